"""What the files say of a pair and its speed, as one frozen record. Unknown is None. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

# The most telling first: where two kinds of file speak of counts, the first one is believed.
KINDS = (
    "trace", "run report", "chat report", "bench report", "server reply", "server metrics",
    "server log", "pair report", "inspect report",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over replies. Position i counts the rounds whose draft reached, or kept, i + 1 tokens.

    A round is one pass of the target; `n_rounds_drafted` had a draft in it.
    """

    n_replies: int | None = None
    n_prompt: int | None = None
    n_tokens: int | None = None
    n_rounds: int | None = None
    n_rounds_drafted: int | None = None
    n_draft: int | None = None
    n_accepted: int | None = None
    drafted_by_position: tuple[int, ...] | None = None
    accepted_by_position: tuple[int, ...] | None = None
    seconds_prompt: float | None = None
    seconds_decode: float | None = None
    seconds_draft: float | None = None
    seconds_verify: float | None = None


@dataclass(frozen=True, slots=True)
class Arm:
    """One draft length of a bench: 0 is plain, None adapts. Speeds are ratios to plain."""

    name: str
    draft_max: int | None
    speedup: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the causes are judged by. `passes` has the seconds of a pass by its rows."""

    sources: tuple[str, ...] = ()
    engine: str | None = None
    build: str | None = None
    backend: str | None = None
    architecture: str | None = None
    target: str | None = None
    draft: str | None = None
    drafter: str | None = None
    temp: float | None = None
    draft_max: int | None = None
    draft_min: int | None = None
    draft_p_min: float | None = None
    drafted: Counts | None = None
    plain: Counts | None = None
    passes: tuple[tuple[int, float], ...] | None = None
    arms: tuple[Arm, ...] | None = None
    repetition: float | None = None  # share of 8-grams that the reply had written before
    failure: str | None = None  # why the server ended, by its log
    failure_hint: str | None = None
    off: str | None = None  # why a server that runs does not draft, by its log
    stale: str | None = None  # the line by which the draft missed part of a prompt
    speculative: bool | None = None  # the engine says that it drafts
    n_slots: int | None = None
    n_layers_gpu: int | None = None
    n_layers_all: int | None = None
    n_draft_layers_gpu: int | None = None
    n_draft_layers_all: int | None = None
    n_cpu_experts: int | None = None  # expert tensors that were put in RAM
    n_head_unused: int | None = None  # tensors of an MTP head that were not loaded
    draft_cache: str | None = None  # type of the draft's keys
    split_mode: str | None = None
    mtp_state: str | None = None
    mtp_reason: str | None = None
    pair_rule: str | None = None
    pair_reason: str | None = None
    memory_reason: str | None = None
    n_ctx_max: int | None = None
    predicted_speedup: float | None = None
    predicted_acceptance: float | None = None
    predicted_break_even: float | None = None


def combine(parts: Sequence[Facts]) -> Facts:
    """One record of several files: counts of the same kind of file add up.

    What one kind does not know another may. A reply without a draft is the baseline of the others;
    alone it is a reply in which nothing was drafted.
    """
    kinds = sorted({p.sources[0] for p in parts}, key=KINDS.index)
    groups = [[p for p in parts if p.sources[0] == kind] for kind in kinds]
    merged = [reduce(_fill, group[1:], _summed(group)) for group in groups]
    whole = reduce(_fill, merged)
    return replace(whole, sources=tuple(p.sources[0] for p in parts))


def _summed(group: Sequence[Facts]) -> Facts:
    return replace(
        group[0],
        drafted=add(p.drafted for p in group if p.drafted is not None),
        plain=add(p.plain for p in group if p.plain is not None),
    )


def _fill(known: Facts, other: Facts) -> Facts:
    """`known`, with what only `other` knows."""
    names = [f.name for f in fields(Facts)]
    missing = {n: getattr(other, n) for n in names if getattr(known, n) is None}
    if known.drafter == "none" and other.drafter is not None:
        missing["drafter"] = other.drafter  # a baseline has no drafter to tell of
        missing["draft"] = known.draft or other.draft
    return replace(known, **missing)


def add(counts: Iterable[Counts]) -> Counts | None:
    """Sums field by field; what one of them does not know is not known of the sum."""
    whole = list(counts)
    if not whole:
        return None
    return Counts(**{f.name: _sum([getattr(c, f.name) for c in whole]) for f in fields(Counts)})


def _sum(values: Sequence[Any]) -> Any:
    if any(v is None for v in values):
        return None
    if not isinstance(values[0], tuple):
        return sum(values)
    length = max(len(v) for v in values)
    return tuple(sum(v[i] for v in values if i < len(v)) for i in range(length))


def repetition(tokens: Sequence[int], n: int = 8) -> float | None:
    """Share of the n-grams that were there before; None if the text is too short to tell."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    if len(grams) < 2 * n:
        return None
    return 1.0 - len(set(grams)) / len(grams)
