"""Costs, break-even and the best draft length, from counts and seconds. Pure.

The unit of cost is one plain decode. A round that drafts n tokens and costs R writes 1 + a n of
them when a share a is accepted, so that it is faster than plain where a > (R - 1) / n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gguftools.explain.facts import Counts, Facts

N_LOOK = 16  # the longest draft that is considered


@dataclass(frozen=True, slots=True)
class Round:
    """The mean round: tokens drafted, kept share, tokens written, and costs in plain decodes.

    `exact`: a plain decode was measured. Else the mean verify pass stands for it, which is longer,
    and the costs are the least they can be.
    """

    n_draft: float
    acceptance: float
    tokens: float
    cost: float
    draft: float | None  # per drafted token
    verify: float | None  # the pass
    exact: bool

    @property
    def speedup(self) -> float:
        """Against plain decoding; the most it can be where not exact."""
        return self.tokens / self.cost

    @property
    def break_even(self) -> float:
        """The acceptance at which this round would be as fast as plain decoding."""
        return max(0.0, (self.cost - 1.0) / self.n_draft)

    @property
    def slope(self) -> float | None:
        """What each verified row adds."""
        return None if self.verify is None else max(0.0, (self.verify - 1.0) / self.n_draft)


def acceptance(counts: Counts | None) -> float | None:
    """Accepted of drafted tokens."""
    if counts is None or not counts.n_draft or counts.n_accepted is None:
        return None
    return counts.n_accepted / counts.n_draft


def rate(counts: Counts | None) -> float | None:
    """Tokens per second of decoding."""
    if counts is None or not counts.n_tokens or not counts.seconds_decode:
        return None
    return counts.n_tokens / counts.seconds_decode


def prompt_rate(counts: Counts | None) -> float | None:
    """Tokens per second of reading the prompt."""
    if counts is None or not counts.n_prompt or not counts.seconds_prompt:
        return None
    return counts.n_prompt / counts.seconds_prompt


def plain_seconds(f: Facts) -> float | None:
    """A plain decode, where it was measured."""
    if (plain := rate(f.plain)) is not None:
        return 1.0 / plain
    return dict(f.passes or ()).get(1)


def mean_round(f: Facts) -> Round | None:
    """The mean round of the drafted replies, None where too little is known."""
    d, a = f.drafted, acceptance(f.drafted)
    if d is None or a is None or not d.n_draft or not d.n_rounds or not d.n_tokens:
        return None
    plain, exact = plain_seconds(f), True
    parts = _parts(d)
    if plain is None:
        if parts is None or not parts[1]:
            return None
        plain, exact = parts[1] / d.n_rounds, False
    seconds = d.seconds_decode if exact else sum(parts or ())
    if not seconds:
        return None
    return Round(
        n_draft=d.n_draft / d.n_rounds,
        acceptance=a,
        tokens=d.n_tokens / d.n_rounds,
        cost=seconds / d.n_rounds / plain,
        draft=None if parts is None else parts[0] / d.n_draft / plain,
        verify=None if parts is None else parts[1] / d.n_rounds / plain,
        exact=exact,
    )


def _parts(d: Counts) -> tuple[float, float] | None:
    """Seconds of drafting and of verifying, where they were told apart."""
    if d.seconds_draft is None or not d.seconds_verify:
        return None
    return d.seconds_draft, d.seconds_verify


def speedup(f: Facts) -> float | None:
    """Measured against plain decoding: the bench's own ratio, else that of the mean round."""
    if f.arms:
        return f.arms[0].speedup
    drafted, plain = rate(f.drafted), plain_seconds(f)
    return drafted * plain if drafted is not None and plain is not None else None


def survival(counts: Counts | None) -> tuple[float, ...]:
    """Chance that the first 1, 2, ... drafted tokens are all kept, as far as drafts went.

    Where nobody counted how far drafts went, they must have been of one length, or only the first
    token, which each of them has, says something.
    """
    if counts is None or not counts.accepted_by_position:
        return ()
    drafted = counts.drafted_by_position
    n = counts.n_rounds_drafted
    if drafted is None:
        length = len(counts.accepted_by_position)
        full = n and (counts.n_draft or 0) >= 0.8 * length * n
        drafted = (n,) * (length if full else 1) if n else ()
    kept: list[float] = []
    for n_kept, n_drafted in zip(counts.accepted_by_position, drafted, strict=False):
        if not n_drafted:
            break
        kept.append(min(kept[-1] if kept else 1.0, n_kept / n_drafted))
    return tuple(kept)


def expected(kept: Sequence[float], n: int) -> float:
    """Tokens of a round that drafts n; behind the known positions the last step is repeated."""
    before = kept[-2] if len(kept) > 1 else 1.0
    last = kept[-1] / before if kept and before else 0.0
    s = tokens = 1.0
    for i in range(n):
        s = kept[i] if i < len(kept) else s * last
        tokens += s
    return tokens


def speeds_by_length(f: Facts) -> dict[int, float]:
    """What each draft length should bring, in tokens per plain decode; {} if costs are unknown."""
    kept, typical, plain = survival(f.drafted), mean_round(f), plain_seconds(f)
    if not kept or typical is None or typical.draft is None or plain is None:
        return {}
    passes = [(n, seconds / plain) for n, seconds in f.passes or ()]
    if len(passes) < 2:
        if typical.verify is None:
            return {}
        passes = [(1, 1.0), (2, 1.0 + (typical.slope or 0.0))]
    return {
        n: expected(kept, n) / (n * typical.draft + _pass(passes, n + 1))
        for n in range(1, N_LOOK + 1)
    }


def _pass(passes: Sequence[tuple[int, float]], rows: int) -> float:
    """The cost of a pass over so many rows: on the line through its neighbours, never below 1."""
    below = [p for p in passes if p[0] <= rows][-2:] or [passes[0]]
    above = next((p for p in passes if p[0] >= rows), None)
    (n0, t0), (n1, t1) = (below[-1], above) if above else (below[0], below[-1])
    t = t0 if n0 == n1 else t0 + (t1 - t0) * (rows - n0) / (n1 - n0)
    return max(t, 1.0)
