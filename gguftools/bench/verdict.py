"""Whether drafting is faster than plain decoding: paired ratios and one exact test. Pure.

The rule. Every reply of an arm is divided by the plain reply to the same prompt in the same round.
An arm gains if these ratios are above 1 by the exact signed-rank test (Wilcoxon's, one-sided, on
their logarithms) at 5 percent, shared among the arms that draft, since the best of many is chosen.
It loses if they are below 1 by the same test. Else no gain can be shown. n ratios cannot show more
than p = 2^-n: too few runs never show anything, however large their gain looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

P_MAX = 0.05
N_PAIRS_MAX = 128  # the exact test takes n^3 steps

Outcome = Literal["gain", "no-gain", "loss"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle value and the outermost ones."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`best` is the fastest arm that gains, else plain; `reason` says it with the figures."""

    outcome: Outcome
    best: str
    reason: str


def spread(values: Sequence[float]) -> Spread | None:
    """None where there is no value."""
    return Spread(median(values), min(values), max(values)) if values else None


def n_least(n_arms: int) -> int:
    """Runs below which nothing can be shown for the best of so many arms."""
    return math.ceil(math.log2(max(n_arms, 1) / P_MAX))


def p_above(ratios: Sequence[float]) -> float:
    """How likely ratios are that high if drafting made no difference."""
    logs = sorted((math.log(r) for r in ratios[:N_PAIRS_MAX] if r != 1.0), key=abs)
    ranks = _doubled_ranks([abs(x) for x in logs])
    total = sum(rank for rank, x in zip(ranks, logs, strict=True) if x > 0)
    ways = [1] + [0] * sum(ranks)  # ways[s]: subsets of the ranks that sum up to s
    for rank in ranks:
        for s in range(len(ways) - 1, rank - 1, -1):
            ways[s] += ways[s - rank]
    return sum(ways[total:]) / (1 << len(ranks))


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Twice the rank of each sorted size, so that ties share a whole number."""
    return [sum(1 for x in sizes if x < size) + sum(1 for x in sizes if x <= size) + 1
            for size in sizes]  # fmt: skip


def judge(ratios: Mapping[str, Sequence[float]]) -> Verdict | None:
    """Over the arms that draft, by their ratios to plain; None where nothing was compared."""
    arms = {name: values for name, values in ratios.items() if values}
    if not arms:
        return None
    by_speed = sorted(arms, key=lambda name: median(arms[name]), reverse=True)
    for name in by_speed:
        p = min(p_above(arms[name]) * len(arms), 1.0)
        if p <= P_MAX and median(arms[name]) > 1.0:
            return Verdict("gain", name, _reason(f"{name} gains", arms[name], p))
    best = by_speed[0]
    values = arms[best]
    p = p_above([1.0 / ratio for ratio in values])
    if p <= P_MAX and median(values) < 1.0:
        what = f"{best} loses" if len(arms) == 1 else f"even {best}, the best of them, loses"
        return Verdict("loss", "plain", _reason(what, values, p))
    return Verdict("no-gain", "plain", _unshown(best, values, len(arms)))


def _reason(what: str, ratios: Sequence[float], p: float) -> str:
    middle = median(ratios)
    n_faster = sum(ratio > 1.0 for ratio in ratios)
    return (
        f"{what} {percent(abs(middle - 1.0))} (median; {n_faster} of {len(ratios)} runs were "
        f"faster than plain on the same prompt, {_p(p)})"
    )


def _unshown(best: str, ratios: Sequence[float], n_arms: int) -> str:
    middle, n_faster = median(ratios), sum(ratio > 1.0 for ratio in ratios)
    seen = f"{best} came to {middle:.2f} of plain, {n_faster} of {len(ratios)} runs faster"
    least = n_least(n_arms)
    if len(ratios) < least:
        return f"no gain can be shown: {seen}, and it takes at least {least} runs to tell"
    return f"no gain can be shown: {seen}"


def _p(p: float) -> str:
    return f"p = {p:.2g}" if p >= 0.001 else "p < 0.001"


def percent(share: float) -> str:
    """`21%`, and a decimal below ten."""
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%"
