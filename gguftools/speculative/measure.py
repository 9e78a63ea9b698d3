"""Measures a pair on the spot: what passes and drafts cost here, how much of a draft is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter

from gguftools.errors import EngineError
from gguftools.pairing.compatibility import Pair
from gguftools.pairing.launch import NGRAM
from gguftools.pairing.measured import MeasuredCosts, predict_from_measured
from gguftools.pairing.prediction import Prediction
from gguftools.pairing.setup import Setup
from gguftools.speculative.plan import DrafterName, Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session
from gguftools.speculative.stats import Step

_DRAFTERS: dict[str, DrafterName] = {
    "draft-simple": "draft", "draft-mtp": "mtp", NGRAM: "ngram"
}  # fmt: skip
LENGTHS = (0, 1, 2, 4, 8)  # draft lengths tried in turn, so that a slow second hits all of them
N_PREDICT = 256
_SD_TIMES = 0.05  # of the log of a speedup: medians of a few dozen passes, here (docs/log.md)
_N_COLD = 5  # the first rounds of a session warm caches up


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians in seconds, and counts. verify[rows]: one target pass; plain decoding is verify[1].

    n_tried[i]: drafts whose token at position i the target judged, n_kept[i]: and kept.
    `found`: the share of the rounds that wanted a draft and had one, which lookup often has not.
    """

    verify: dict[int, float]
    draft_token: float
    n_tried: tuple[int, ...]
    n_kept: tuple[int, ...]
    found: float
    n_rounds: int
    n_tokens: int


class Sweep:
    """A controller that tries every length in turn and keeps what it sees."""

    rate = 1.0

    def __init__(self, lengths: Sequence[int]) -> None:
        self.steps: list[Step] = []
        self.wanted: list[int] = []  # the length asked for, by step
        self._turns, self._n = cycle(lengths), 0

    def new_reply(self) -> None:
        """Another text: the turns go on."""

    def plan(self) -> int:
        """The next length in turn."""
        self._n = next(self._turns)
        return self._n

    def proceed(self, n_drafted: int, p_draft: float | None) -> bool:
        """Drafts are never cut short: each length is to be seen."""
        return True

    def n_verify(self) -> int:
        """Everything drafted."""
        return self._n

    def promise(self) -> float:
        """No opinion."""
        return 1.0

    def observe(self, step: Step) -> None:
        """Keep the round."""
        self.steps.append(step)
        self.wanted.append(self._n)

    def skip(self, n_tokens: int) -> None:
        """There is no other drafter."""


def measure_pair(
    pair: Pair, setup: Setup, prompts: Sequence[str], *, seconds: float, n_ctx: int | None
) -> Prediction:
    """What the pair brings on this machine, from about so many seconds of its work.

    The model is loaded first, which is not counted. EngineError and the like as from a session.
    """
    drafter = _DRAFTERS[pair.kind or NGRAM]
    settings = Settings(
        target=Path(pair.target),
        draft=None if pair.draft is None else Path(pair.draft),
        drafter=drafter,
        draft_max=max(LENGTHS),
        n_ctx=n_ctx or 0,
        chain=Chain() if setup.temperature is None else Chain(temp=setup.temperature),
    )
    with open_session(settings) as session:
        return predicted(measure(session, prompts, seconds, perf_counter), setup)


def predicted(found: Measured, setup: Setup) -> Prediction:
    """The best length for what was measured, and its speed."""
    kept, share = [], found.found
    for n_tried, n_kept in zip(found.n_tried, found.n_kept, strict=True):
        share *= n_kept / n_tried if n_tried else 0.0
        kept.append(share)
    # A round writes between 1 and n + 1 tokens: at most one in relative spread, each.
    spread = 1.28 * math.hypot(_SD_TIMES, 0.5 / math.sqrt(max(found.n_rounds, 1)))
    plain = found.verify[1]
    verify = {n: plain + found.found * (cost - plain) for n, cost in found.verify.items()}
    costs = MeasuredCosts(verify, found.draft_token)
    seen = replace(setup, acceptance=sum(found.n_kept) / max(sum(found.n_tried), 1))
    return predict_from_measured(costs, kept, setup=seen, spread=spread)


def measure(
    session: Session,
    prompts: Sequence[str],
    seconds: float,
    clock: Callable[[], float],
    *,
    n_predict: int = N_PREDICT,
    raw: bool = False,
) -> Measured:
    """Write replies to these prompts for about so many seconds."""
    end, whole = clock() + seconds, session.engine
    most = whole.drafter.n_max if whole.drafter is not None else 0
    sweep = Sweep([n for n in LENGTHS if n <= min(most, session.draft_max)])
    session.engine = replace(whole, controller=sweep)
    try:
        for prompt in cycle(prompts):
            turns = [{"role": "user", "content": prompt}]
            reply = session.reply(prompt if raw else turns, n_predict, raw=raw)
            for _ in reply:
                if clock() > end:
                    reply.stop()
            if clock() > end:
                break
    finally:
        session.engine = whole
    return summary(sweep.steps[_N_COLD:], sweep.wanted[_N_COLD:])


def summary(steps: Sequence[Step], wanted: Sequence[int]) -> Measured:
    """What the rounds add up to; EngineError if too little was measured to say anything."""
    passes: dict[int, list[float]] = {}
    for step in steps:
        passes.setdefault(step.n_verified + 1, []).append(step.seconds_verify)
    if not {1, 2} <= passes.keys():
        raise EngineError(
            "too little was drafted to measure it", hint="another task may give more to draft"
        )
    depth = max(step.n_verified for step in steps)
    drafting = [s for step in steps for s in step.seconds_draft]
    asked = [step for step, n in zip(steps, wanted, strict=True) if n]
    return Measured(
        verify={rows: median(times) for rows, times in sorted(passes.items())},
        draft_token=median(drafting) if drafting else 0.0,
        n_tried=tuple(sum(step.n_tried > i for step in steps) for i in range(depth)),
        n_kept=tuple(sum(step.n_accepted > i for step in steps) for i in range(depth)),
        found=sum(step.n_verified > 0 for step in asked) / max(len(asked), 1),
        n_rounds=len(steps),
        n_tokens=sum(len(step.tokens) for step in steps),
    )
