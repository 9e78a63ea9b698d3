"""A `--trace` file as facts: one JSON line per round. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gguftools.errors import SourceError
from gguftools.explain.facts import Counts, Facts, repetition
from gguftools.explain.record import Record

N_STEPS_MAX = 1 << 20
N_PASSES_MIN = 3  # over so many rows: one alone may have stalled


@dataclass(frozen=True, slots=True)
class Round:
    """A line of the trace, as far as it is needed here; seconds."""

    tokens: tuple[int, ...]
    n_draft: int
    n_verified: int
    n_accepted: int
    drafting: float
    verifying: float
    drafter: str


def is_step(record: Record) -> bool:
    """Whether an object is a round of a trace."""
    return {"tokens", "n_draft", "n_verified", "n_accepted"} <= record.values.keys()


def read_trace(records: Sequence[Record]) -> Facts:
    """The facts of all rounds; the plain ones among them are the baseline."""
    rounds = [_round(record) for record in records]
    by_rows: dict[int, list[float]] = defaultdict(list)
    for r in rounds:
        by_rows[r.n_verified + 1].append(r.verifying)
    depth = max((r.n_verified for r in rounds), default=0)
    drafters = sorted({r.drafter for r in rounds} - {""})
    counts = Counts(
        n_tokens=sum(len(r.tokens) for r in rounds),
        n_rounds=len(rounds),
        n_rounds_drafted=sum(r.n_verified > 0 for r in rounds),
        n_draft=sum(r.n_verified for r in rounds),
        n_accepted=sum(r.n_accepted for r in rounds),
        drafted_by_position=tuple(sum(r.n_verified > i for r in rounds) for i in range(depth)),
        accepted_by_position=tuple(sum(r.n_accepted > i for r in rounds) for i in range(depth)),
        seconds_decode=sum(r.drafting + r.verifying for r in rounds),
        seconds_draft=sum(r.drafting for r in rounds),
        seconds_verify=sum(r.verifying for r in rounds),
    )
    return Facts(
        sources=("trace",),
        engine="gguftools",
        drafter=drafters[0] if drafters else None,
        drafted=counts if drafters else None,
        plain=None if drafters else counts,
        passes=tuple(
            (n, statistics.median(s)) for n, s in sorted(by_rows.items()) if len(s) >= N_PASSES_MIN
        ),
        repetition=repetition([t for r in rounds for t in r.tokens]),
    )


def _round(record: Record) -> Round:
    """One line; what it claims to have kept it must have sent, and what it sent, drafted."""
    tokens = record.counts("tokens") or ()
    n = [record.count(key) or 0 for key in ("n_draft", "n_verified", "n_accepted")]
    if not n[0] >= n[1] >= n[2] <= len(tokens):
        raise SourceError("a round kept more than it had", where=record.where)
    return Round(
        tokens,
        n_draft=n[0],
        n_verified=n[1],
        n_accepted=n[2],
        drafting=sum(record.numbers("seconds_draft") or ())
        + (record.seconds("seconds_catch_up") or 0.0),
        verifying=record.seconds("seconds_verify") or 0.0,
        drafter=record.text("drafter") or "",
    )
