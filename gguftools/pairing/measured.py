"""The same arithmetic from what was measured on the spot instead of from bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gguftools.pairing.acceptance import drafts, log_odds, sigmoid
from gguftools.pairing.cost import Costs
from gguftools.pairing.launch import Settings
from gguftools.pairing.prediction import (
    Outcome,
    Prediction,
    break_even,
    prediction,
    simplest_best,
)
from gguftools.pairing.setup import ONE_PASS, Setup


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Seconds: a target pass by its number of rows, 1 among them; a drafted token; a round."""

    verify: Mapping[int, float]
    draft_token: float
    round_start: float = 0.0


def predict_from_measured(
    measured: MeasuredCosts,
    acceptance_by_position: Sequence[float],
    *,
    setup: Setup,
    spread: float,
    n_max: Sequence[int] | None = None,
) -> Prediction:
    """The best length among `n_max`, or among all that the two curves cover.

    Position i holds the share of rounds in which the first i + 1 drafted tokens were kept, at
    p_min 0. Rows between measured ones are interpolated; `spread` is half the 80% interval of the
    log of the speedup.
    """
    longest = min(max(measured.verify) - 1, len(acceptance_by_position))
    lengths = [n for n in n_max or range(1, longest + 1) if 1 <= n <= longest]
    if not lengths:
        raise ValueError("neither verify rows nor acceptance cover a drafted token")
    price = _costs(measured, longest, one_pass=setup.kind in ONE_PASS)
    levels, before = [], 1.0
    for kept in acceptance_by_position[:longest]:
        levels.append(log_odds(kept / before if before > 0.0 else 0.0))
        before = min(kept, before)

    def at(n: int, shift: float) -> Outcome:
        d = drafts([sigmoid(level + shift) for level in levels[:n]])
        return Outcome(Settings(n, 0, 0.0), d, d.tokens_per_round / price.round(d))

    best = simplest_best([at(n, 0.0) for n in lengths])
    even = break_even(lambda shift: at(best.settings.draft_max, shift))
    return prediction(setup, best, price, spread=spread, break_even=even)


def _costs(measured: MeasuredCosts, n_max: int, *, one_pass: bool) -> Costs:
    plain = measured.verify[1]
    verify = [_between(measured.verify, rows) / plain for rows in range(1, n_max + 2)]
    token, start = measured.draft_token / plain, measured.round_start / plain
    if one_pass:
        token, start = 0.0, start + token
    return Costs((1.0, *verify), start, token)


def _between(curve: Mapping[int, float], rows: int) -> float:
    """Linear between the nearest measured numbers of rows."""
    below = max(n for n in curve if n <= rows)
    above = min(n for n in curve if n >= rows)
    share = (rows - below) / (above - below) if above > below else 0.0
    return curve[below] + share * (curve[above] - curve[below])
