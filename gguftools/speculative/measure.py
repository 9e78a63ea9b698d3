"""Measures a pair on the spot: what passes and drafts cost here, how much of a draft is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from statistics import median

from gguftools.speculative.session import Session
from gguftools.speculative.stats import Step

LENGTHS = (0, 1, 2, 4, 8)  # draft lengths tried in turn, so that a slow second hits all of them
_N_PREDICT = 256
_N_COLD = 5  # the first rounds of a session warm caches up
PROMPTS = {
    "code": (
        "Write a Python function that returns the prime numbers below n.",
        "Write a SQL query that lists each customer with the number of their orders.",
        "Write a C function that reverses a linked list.",
    ),
    "chat": (
        "What should I think of before I adopt a dog?",
        "Explain to a child why the sky is blue.",
        "Give me three ideas for a rainy afternoon.",
    ),
    "prose": (
        "Tell a story about a clockmaker who lost an hour.",
        "Describe a harbour at dawn.",
        "Write a letter from a sailor to his brother.",
    ),
    "json": (
        "List four planets as a JSON array of objects with name, radius_km and moons.",
        "Write a JSON object that describes a library book with its author and year.",
        "Write a JSON schema for a postal address.",
    ),
    "rewrite": (
        "Repeat this text and correct its spelling: The wether was fine and the boats were alredy "
        "out when the bell of the old chapel rang seven times over the sleepy harbour.",
        "Repeat this text in the past tense: The ferry leaves the pier at noon, crosses the bay in "
        "an hour and brings the mail to the three small islands.",
        "Copy this list and number it: apples, pears, plums, cherries, grapes, figs, dates.",
    ),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians in seconds, and counts. verify[rows]: one target pass; plain decoding is verify[1].

    n_tried[i]: drafts whose token at position i the target judged, n_kept[i]: and kept.
    """

    verify: dict[int, float]
    draft_token: float
    n_tried: tuple[int, ...]
    n_kept: tuple[int, ...]
    n_rounds: int
    n_tokens: int


class Sweep:
    """A controller that tries every length in turn and keeps what it sees."""

    rate = 1.0

    def __init__(self, lengths: Sequence[int]) -> None:
        self.steps: list[Step] = []
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

    def skip(self, n_tokens: int) -> None:
        """There is no other drafter."""


def measure(session: Session, task: str, seconds: float, clock: Callable[[], float]) -> Measured:
    """Write replies to the prompts of a task for about so many seconds."""
    end, whole = clock() + seconds, session.engine
    most = whole.drafter.n_max if whole.drafter is not None else 0
    sweep = Sweep([n for n in LENGTHS if n <= min(most, session.settings.draft_max)])
    session.engine = replace(whole, controller=sweep)
    try:
        for prompt in cycle(PROMPTS[task]):
            reply = session.reply([{"role": "user", "content": prompt}], _N_PREDICT)
            for _ in reply:
                if clock() > end:
                    reply.stop()
            if clock() > end:
                break
    finally:
        session.engine = whole
    return summary(sweep.steps[_N_COLD:])


def summary(steps: Sequence[Step]) -> Measured:
    """What the rounds add up to."""
    passes: dict[int, list[float]] = {}
    for step in steps:
        passes.setdefault(step.n_verified + 1, []).append(step.seconds_verify)
    depth = max((step.n_verified for step in steps), default=0)
    drafting = [s for step in steps for s in step.seconds_draft]
    return Measured(
        verify={rows: median(times) for rows, times in sorted(passes.items())},
        draft_token=median(drafting) if drafting else 0.0,
        n_tried=tuple(sum(step.n_tried > i for step in steps) for i in range(depth)),
        n_kept=tuple(sum(step.n_accepted > i for step in steps) for i in range(depth)),
        n_rounds=len(steps),
        n_tokens=sum(len(step.tokens) for step in steps),
    )
