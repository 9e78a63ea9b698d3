"""Learns what drafting costs, in plain decodes of the target. Pure: fed with seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gguftools.speculative.cost_curve import SURPRISE, CostCurve, side

LIMIT = 1.8  # a draft that took longer than this times what was expected
STALL = 2.0  # plain decodes that a stall in a draft may be charged


class DraftCost:
    """What the tokens of one drafter cost in plain decodes of its target, as `curve` knows them."""

    def __init__(self, curve: CostCurve, cost: float) -> None:
        self.first = self.next = cost  # drafted token of a round, later ones
        self.catch_up = 0.0  # per token while it was off
        self._curve = curve
        self._n_drafts = self._n_catch_ups = 0

    def side(self, seconds: Sequence[float]) -> int | None:
        """Whether a draft took much more (1) or less (-1) than expected; None: can't say."""
        expected = self.first + self.next * (len(seconds) - 1)
        if not seconds or self._n_drafts < 4 or expected < 0.02:
            return None
        return side(sum(seconds) / (self._curve.plain * expected), SURPRISE)

    def observe(self, seconds: Sequence[float], seconds_before: float) -> float:
        """Learns from one draft, with what came before its first token; returns what to charge."""
        n, rest, plain = len(seconds), sum(seconds[1:]), self._curve.plain
        first = seconds_before + (seconds[0] if n else 0.0)
        if not (0.0 <= first < math.inf and 0.0 <= rest < math.inf):
            self._curve.n_bad += 1
            return self.first + self.next * max(0, n - 1)
        if not self._curve.known:
            return 0.0
        if not n:
            return min(first / plain, LIMIT * self.first + STALL)
        self._n_drafts += 1
        charge = self._observe_first(first / plain)
        return charge + self._observe_next(rest / plain, n - 1) if n > 1 else charge

    def observe_catch_up(self, n: int, seconds: float) -> float:
        """Learns from a drafter's n tokens of catching up; returns what to charge."""
        if not (0.0 <= seconds < math.inf and n > 0 and self._curve.known):
            self._curve.n_bad += n > 0
            return 0.0
        cost = seconds / self._curve.plain
        # Many at once take no longer than one by one.
        most = n * max(self.first, self.next)
        self._n_catch_ups += 1
        gain = max(1.0 / self._n_catch_ups, 0.1)
        self.catch_up += gain * (min(cost, most) / n - self.catch_up)
        return min(cost, most + STALL)

    def _observe_first(self, cost: float) -> float:
        charge = min(cost, LIMIT * self.first + STALL)
        self.first = self._learn_draft(self.first, cost)
        return charge

    def _observe_next(self, cost: float, n: int) -> float:
        charge = min(cost, LIMIT * self.next * n + STALL)
        self.next = self._learn_draft(self.next, cost / n)
        return charge

    def _learn_draft(self, mean: float, cost: float) -> float:
        n = self._n_drafts
        new = min(cost, mean + 1.0 if n == 1 else LIMIT * mean + 0.01)
        gain = 1.0 if n <= 3 and cost * LIMIT < mean else max(1.0 / n, 0.05)
        step = gain * (new - mean)
        self._curve.stale += abs(step)
        return mean + step
