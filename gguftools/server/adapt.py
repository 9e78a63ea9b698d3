"""`serve --adapt`: another draft length where it is measured to be faster. The decision is pure.

A llama-server drafts up to the length that it was started with, and no request can change that.
But a request of k + 2 tokens leaves room for a draft of k at most, so that a round of every shorter
length can be timed while nobody asks; how many tokens such rounds keep, real requests have shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from gguftools.server.client import Client
from gguftools.server.metrics import Counters, Timings, read_timings

GAIN = 1.05
N_ROUNDS_ENOUGH = 100
_N_TIMED = 5
_N_TRIES = 15
# Counting on is what models are surest of: all of a draft has to be kept to time one whole round.
_PROMPT = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of a round by the tokens drafted in it, 0 for plain decoding, and what is kept.

    `kept[i]` is the share of rounds that keep their first i + 1 drafted tokens; `n_drafted` the
    mean length of a draft, which is below `n_max` where the draft stops when it is unsure.
    """

    n_max: int
    seconds: Mapping[int, float]
    kept: tuple[float, ...]
    n_drafted: float

    def speed(self, n_max: int) -> float:
        """Tokens per second with drafts of at most so many."""
        return (1.0 + sum(self.kept[:n_max])) / self._round(min(n_max, self.n_drafted))

    def _round(self, n: float) -> float:
        """Seconds of a round with n drafted tokens, on the line between those measured."""
        below = max(k for k in self.seconds if k <= n)
        above = min((k for k in self.seconds if k >= n), default=below)
        if above == below:
            return self.seconds[below]
        part = (n - below) / (above - below)
        return self.seconds[below] + part * (self.seconds[above] - self.seconds[below])


def lengths(n_max: int) -> tuple[int, ...]:
    """What is measured: plain decoding, and up to three lengths."""
    return tuple(sorted({0, max(n_max // 3, 1), max(n_max * 2 // 3, 1), n_max}))


def better(measured: Measured) -> int | None:
    """A length that is worth a restart, 0 for plain decoding; None: stay."""
    fastest = max(measured.seconds, key=measured.speed)
    gain = measured.speed(fastest) / measured.speed(measured.n_max)
    return fastest if gain > GAIN else None


def measured_of(n_max: int, seconds: Mapping[int, float], counted: Counters) -> Measured | None:
    """Both together, None where too little was drafted or a length could not be timed."""
    if counted.n_rounds < N_ROUNDS_ENOUGH or not {0, n_max} <= set(seconds):
        return None
    kept = tuple(n / counted.n_rounds for n in counted.accepted_by_position)
    return Measured(n_max, seconds, kept, counted.n_draft / counted.n_rounds)


def time_rounds(client: Client, n_max: int, busy: Callable[[], bool]) -> dict[int, float] | None:
    """Seconds of a round by its length, as far as rounds of that length came about.

    None where `busy` says that somebody else asks.
    """
    seconds: dict[int, float] = {}
    for n in lengths(n_max):
        timed: list[float] = []
        for _ in range(_N_TRIES):
            if busy():
                return None
            timings = _probe(client, n)
            whole = timings is not None and (timings.n_draft, timings.n_accepted) == (n, n)
            if timings is not None and whole and timings.seconds_predicted > 0:
                timed.append(timings.seconds_predicted)
            if len(timed) == _N_TIMED:
                seconds[n] = median(timed)
                break
    return seconds


def _probe(client: Client, n_draft: int) -> Timings | None:
    """A reply of one round: the prompt yields its first token, the round all others."""
    timings = None
    for event in client.complete({
        "prompt": _PROMPT, "n_predict": n_draft + 2, "temperature": 0.0, "ignore_eos": True,
        "cache_prompt": True,
    }):  # fmt: skip
        timings = read_timings(event.get("timings")) or timings
    whole = timings is not None and timings.n_predicted == n_draft + 2
    return timings if whole else None
