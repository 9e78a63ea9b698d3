"""Finds the best choice in a stated time: one setting after the other, then a fresh comparison.

Costs and acceptance of each drafter are measured first; what they predict picks the drafter and the
lengths worth trying. Then values compete in rounds: all write replies to the same prompt beside
plain decoding, and every two rounds the slower half leaves. The winner is compared with plain on
prompts that had no part in choosing it. Pure: the lab has the clock and the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gguftools.bench.decide import N_HALVE, Runs, decided, faster_half
from gguftools.bench.report import Run
from gguftools.bench.tuning import Choice, Decision, Tried
from gguftools.bench.verdict import N_PAIRS_MAX
from gguftools.errors import GGUFToolsError

# Shares of the time by which each setting is decided; the rest compares the winner with plain.
BY = {"costs": 0.2, "drafter": 0.3, "length": 0.46, "p_min": 0.53, "threads": 0.6, "cache": 0.65}
CLOSE = 0.75  # a drafter that comes so near to the best by its costs competes with it
ROUNDS_MAX, N_ROUNDS = 6, 4  # at most, and as many as should fit the time
N_TOKENS = (16, 128)
N_CONFIRM = 8  # pairs of replies that the last comparison should have time for


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of a drafter; `draft_cost` in plain passes for one drafted token."""

    speedup: float
    draft_max: int
    acceptance: float
    draft_cost: float
    plain_per_second: float


class Lab(Protocol):
    """Where choices are tried."""

    @property
    def seconds_to_open(self) -> float:
        """What loading took the last time."""
        ...

    def clock(self) -> float:
        """Seconds."""
        ...

    def profile(self, choice: Choice, seconds: float) -> Profile:
        """Costs and acceptance of a drafter, from about so many seconds."""
        ...

    def run(self, choice: Choice, round_: int, n_predict: int, *, plain: bool) -> Run:
        """A reply to the prompt of that round; or plain decoding beside that choice."""
        ...


@dataclass(frozen=True, slots=True)
class Axes:
    """Values to try; an axis with fewer than two is not tuned."""

    draft_max: int  # the longest draft that a session is made for
    p_min: tuple[float, ...] = ()
    threads: tuple[int, ...] = ()
    cache: tuple[str, ...] = ()


@dataclass(slots=True)
class Search:
    """The search as far as it went: it can be interrupted at any reply."""

    lab: Lab
    seconds: float
    axes: Axes
    said: Callable[[int, int], None] = lambda done, total: None
    choice: Choice | None = None
    decisions: list[Decision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plain: list[Run] = field(default_factory=list)  # of the last comparison
    tuned: list[Run] = field(default_factory=list)
    profiles: dict[Choice, Profile] = field(default_factory=dict)
    _round: int = 0
    _start: float = 0.0
    _seconds_prompt: float = 0.0  # of the last reply
    _plain_per_second: float = 0.0

    def run(self, candidates: Sequence[Choice]) -> None:
        """Decide everything, then compare."""
        self._start = self.lab.clock()
        self._costs(candidates)
        if self.choice is None:
            return
        near = CLOSE * self.profiles[self.choice].speedup
        close = [choice for choice, p in self.profiles.items() if p.speedup >= near]
        self._compete("drafter", "drafter", lambda c: c.name, close, n_in_turn=2, loads=True)
        self._compete("length", "length", lambda c: c.length, self._lengths())
        if self.choice.drafter != "ngram" and self.choice.draft_min < self.choice.draft_max:
            floors = [replace(self.choice, draft_p_min=p) for p in self.axes.p_min]
            self._compete("p_min", "draft_p_min", lambda c: f"{c.draft_p_min:g}", floors)
        threads = [replace(self.choice, n_threads=n) for n in self.axes.threads]
        self._compete("threads", "threads", lambda c: str(c.n_threads or "default"), threads)
        if self.choice.drafter == "draft":
            types = [replace(self.choice, cache_type_draft=t) for t in self.axes.cache]
            self._compete("cache", "cache_type_draft", lambda c: c.cache_type_draft or "f16", types,
                          n_in_turn=2, loads=True)  # fmt: skip
        self._compare()

    # -- the drafter, by its measured costs

    def _costs(self, candidates: Sequence[Choice]) -> None:
        found = self.profiles
        for i, choice in enumerate(candidates):
            left = self._until("costs") - self.lab.clock()
            try:
                found[choice] = self.lab.profile(choice, max(left / (len(candidates) - i), 0.0))
            except GGUFToolsError as err:
                self.notes.append(f"{choice.name} is left out: {err}")
        if not found:
            return
        best = max(found, key=lambda choice: found[choice].speedup)
        self.choice = best
        self._plain_per_second = found[best].plain_per_second
        others = [f"{c.name} to {p.speedup:.2f}" for c, p in found.items() if c != best]
        p = found[best]
        self.decisions.append(Decision(
            "drafter, by its costs", best.name,
            f"its measured costs come to {p.speedup:.2f} of plain at length {p.draft_max}: a "
            f"drafted token costs {p.draft_cost:.2f} of a plain pass, {p.acceptance:.0%} are kept"
            + (f"; {', '.join(others)}" if others else "; there was no other"),
            tuple(Tried(c.name, each.speedup, None, 0) for c, each in found.items()),
        ))  # fmt: skip

    def _lengths(self) -> list[Choice]:
        """Adaptive and fixed lengths about the one that the costs predict."""
        assert self.choice is not None
        most, n = self.axes.draft_max, self.profiles[self.choice].draft_max
        caps = [cap for cap in (n, 2 * n) if 1 <= cap <= most]
        fixed = [k for k in (n, n - 1, n + 1) if 1 <= k <= most]
        adaptive = [replace(self.choice, draft_max=cap) for cap in caps]
        always = [replace(self.choice, draft_max=k, draft_min=k) for k in fixed]
        return [*adaptive[:1], *always[:1], *adaptive[1:], *always[1:]]  # the likelier ones first

    # -- one setting after the other

    def _compete(
        self,
        stage: str,
        setting: str,
        label: Callable[[Choice], str],
        values: Sequence[Choice],
        *,
        n_in_turn: int = 1,
        loads: bool = False,
    ) -> None:
        """Rivals against the choice so far; the best of them becomes it if it is better."""
        assert self.choice is not None
        incumbent = self.choice
        rivals = list(dict.fromkeys(value for value in values if value != incumbent))
        if not rivals:
            return
        runs: Runs = {way: [] for way in (None, incumbent, *rivals)}
        left = self._until(stage) - self.lab.clock()
        if loads and left < 3 * self.lab.seconds_to_open:
            rivals = []  # the files would be loaded for most of that time
        rivals = rivals[: self._affordable(left)]
        standing = rivals
        for i, rounds in enumerate(self._rounds(stage, n_in_turn) if rivals else ()):
            left = self._until(stage) - self.lab.clock()
            n_replies = max(N_ROUNDS - i * n_in_turn, 1) * (len(standing) + 2)
            n = self._tokens(left, n_replies)
            self._play(incumbent, standing, runs, rounds, n, stage)
            if (i + 1) % N_HALVE == 0 and len(standing) > 1:
                standing = faster_half(standing, runs, incumbent)
        self.choice, decision = decided(setting, label, incumbent, rivals, runs)
        self.decisions.append(decision)

    def _rounds(self, stage: str, n_in_turn: int) -> Iterator[list[int]]:
        for _ in range(max(ROUNDS_MAX // n_in_turn, 1)):
            if self.lab.clock() >= self._until(stage):
                return
            rounds = list(range(self._round + 1, self._round + 1 + n_in_turn))
            self._round = rounds[-1]
            yield rounds

    def _play(
        self,
        incumbent: Choice,
        standing: Sequence[Choice],
        runs: Runs,
        rounds: Sequence[int],
        n_predict: int,
        stage: str,
    ) -> None:
        """Everyone replies; who begins moves on. A round that ran out of time does not count."""
        everyone = [None, incumbent, *standing]
        first = rounds[0] % len(everyone)
        new: Runs = {way: [] for way in everyone}
        for way in (*everyone[first:], *everyone[:first]):
            if self.lab.clock() >= self._until(stage):
                return
            for i in rounds:
                plain = way is None
                new[way].append(self._reply(way or incumbent, i, n_predict, plain=plain))
        for way, found in new.items():
            runs[way] += found

    # -- the last comparison

    def _compare(self) -> None:
        assert self.choice is not None
        end = self._start + self.seconds
        n = self._tokens(end - self.lab.clock(), 2 * N_CONFIRM)
        while len(self.tuned) < N_PAIRS_MAX:
            self._round += 1
            both = [True, False] if self._round % 2 else [False, True]
            pair = {plain: self._reply(self.choice, self._round, n, plain=plain) for plain in both}
            self.plain.append(pair[True])
            self.tuned.append(pair[False])
            if self.lab.clock() >= end:
                return

    # -- time

    def _until(self, stage: str) -> float:
        return self._start + self.seconds * BY[stage]

    def _reply(self, choice: Choice, round_: int, n_predict: int, *, plain: bool) -> Run:
        run = self.lab.run(choice, round_, n_predict, plain=plain)
        self._seconds_prompt = run.seconds_prompt
        if plain and run.tokens_per_second:
            self._plain_per_second = run.tokens_per_second
        spent = self.lab.clock() - self._start
        self.said(min(int(spent), int(self.seconds)), int(self.seconds))
        return run

    def _affordable(self, seconds: float) -> int:
        """How many rivals can have two short rounds beside plain and the choice so far."""
        one = self._seconds_prompt + N_TOKENS[0] / self._plain_per_second
        return max(int(seconds / (N_HALVE * one)) - 2, 1)

    def _tokens(self, seconds: float, n_replies: int) -> int:
        """How long replies may be for that many of them to fit the time."""
        n = int((max(seconds, 0.0) / n_replies - self._seconds_prompt) * self._plain_per_second)
        return min(max(n, N_TOKENS[0]), N_TOKENS[1])
