"""One round of the loop as a Step, and the report that a list of Steps adds up to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One round: draft n_draft tokens, verify the first n_verified, keep n_accepted, add one.

    `tokens` are the ids emitted: `n_accepted` drafted ones, then one of the target's own (absent
    only when the reply ended inside the draft). `confidence` has the drafter's probability of each
    drafted token, None where it has none. Durations are seconds; `seconds_draft` has one entry per
    drafted token, `seconds_catch_up` is what the drafter spent before on `n_catch_up` tokens it had
    not seen yet.
    """

    tokens: tuple[int, ...]
    n_draft: int
    n_verified: int
    n_accepted: int
    confidence: tuple[float | None, ...]
    seconds_catch_up: float
    n_catch_up: int
    seconds_draft: tuple[float, ...]
    seconds_verify: float
    drafter: str = ""

    @property
    def n_tried(self) -> int:
        """Draft tokens that the target judged: those after the first rejection never were."""
        return min(self.n_accepted + 1, self.n_verified)


@dataclass(frozen=True, slots=True)
class Share:
    """What one drafter did in a reply: rounds it drafted in, its tokens sent and kept."""

    n_rounds: int | None
    n_draft: int
    n_accepted: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a reply cost and what its drafts brought. Seconds and counts; see docs for the JSON.

    What an engine keeps to itself is None or empty.
    """

    n_prompt: int
    n_tokens: int
    seconds_prompt: float
    seconds_decode: float
    tokens_per_second: float | None
    n_draft: int
    n_accepted: int
    n_rounds: int
    drafted_by_position: tuple[int, ...]
    accepted_by_position: tuple[int, ...]
    n_draft_histogram: dict[int, int]
    seconds_draft: float | None
    seconds_verify: float | None
    by_drafter: dict[str, Share]

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / verified draft tokens, None when nothing was drafted."""
        return self.n_accepted / self.n_draft if self.n_draft else None

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens per target pass, the target's own included."""
        return self.n_tokens / self.n_rounds if self.n_rounds else None


def summarize(
    steps: Sequence[Step],
    *,
    n_tokens: int,
    n_prompt: int,
    seconds_prompt: float,
    seconds_decode: float,
) -> Report:
    """Add up the steps of one reply. `n_draft` counts draft tokens sent to the target."""
    depth = max((s.n_verified for s in steps), default=0)
    return Report(
        n_prompt=n_prompt,
        n_tokens=n_tokens,
        seconds_prompt=seconds_prompt,
        seconds_decode=seconds_decode,
        tokens_per_second=n_tokens / seconds_decode if seconds_decode > 0 else None,
        n_draft=sum(s.n_verified for s in steps),
        n_accepted=sum(s.n_accepted for s in steps),
        n_rounds=len(steps),
        drafted_by_position=tuple(sum(s.n_verified > i for s in steps) for i in range(depth)),
        accepted_by_position=tuple(sum(s.n_accepted > i for s in steps) for i in range(depth)),
        n_draft_histogram=dict(sorted(Counter(s.n_verified for s in steps).items())),
        seconds_draft=sum(s.seconds_catch_up + sum(s.seconds_draft) for s in steps),
        seconds_verify=sum(s.seconds_verify for s in steps),
        by_drafter={
            name: _share([s for s in steps if s.drafter == name])
            for name in sorted({s.drafter for s in steps} - {""})
        },
    )


def _share(steps: Sequence[Step]) -> Share:
    return Share(len(steps), sum(s.n_verified for s in steps), sum(s.n_accepted for s in steps))
