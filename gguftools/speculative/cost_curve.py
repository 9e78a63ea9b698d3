"""Learns what drafting and verifying cost, relative to one plain decode. Pure: fed with seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

N_NEAR = 3  # rows on either side that share a residual
NEAR = [math.exp(-i) for i in range(N_NEAR + 1)]
WEIGHT_MAX = 40.0  # samples
LIMIT = 1.8  # a draft that took longer than this times what was expected
STALL = 2.0  # plain decodes that a stall in a draft may be charged
SURPRISE = 1.3
FADE = 0.985  # per pass over other rows
N_FADE = 32  # passes
N_ALIKE = 3  # surprises in a row that are no accident
GAP_MIN = 2  # tokens; what a drafter in use catches up belongs to its first token
SLOPE = 0.15  # of a verify row, before anything was measured


def side(ratio: float, limit: float) -> int:
    """1 above limit, -1 below its inverse."""
    return (ratio > limit) - (ratio * limit < 1.0)


class CostCurve:
    """verify[n] is the cost of a target pass over n rows in plain decodes; so are first and next.

    Every duration is limited to a factor of what was expected: a stall of 10 to 200 times says
    nothing. Three in a row are believed, and so is a short one after few: stalls only add.
    """

    def __init__(self, n_rows: int, *, draft: float) -> None:
        self.verify: list[float] = []
        self.at_worst: list[float] = []
        self.hopeful: list[float] = []  # verify, a little lower where it was seldom measured
        self.first = self.next = draft  # drafted token of a round, later ones
        self.catch_up = 0.0  # per token while it was off
        self.noise = 0.1
        self.known = False  # whether ratios mean something
        self.n_verified = 0  # passes over more than one row
        self.n_bad = self.n_built = 0
        self.weight = [0.0, 1.3] + [0.0] * (n_rows - 1)
        self._mean = [0.0, 1.0] + [0.0] * (n_rows - 1)
        self._scale = 0.0  # seconds
        self._n_drafts = self._n_catch_ups = self._n_fast = 0
        self._side = self._n_alike = 0
        self._stale = 0.0
        self._n_unbuilt = 0
        self._build()

    def new_reply(self) -> None:
        """The context jumped: look for the time scale afresh, keep the shape."""
        self._n_fast = 6
        self.weight[1] = min(self.weight[1], 4.0)

    def observe_verify(self, n: int, seconds: float, seconds_draft: Sequence[float] = ()) -> float:
        """Learns from a pass over n rows after that draft; returns what to charge for the pass."""
        if not 0.0 < seconds < math.inf:
            self.n_bad += 1
            return self.verify[n]
        if not self.known:
            if n == 1:
                self._anchor(seconds)
            return self.verify[n]
        weight, mean = self.weight[n], self._mean[n]
        # Against its own mean where there is one: a misfit of the curve must not move the scale.
        expected = mean if weight >= 3.0 else self._mean[1] * self.verify[n]
        limit = 1.5 if weight >= 3.0 else 1.8 if weight else 2.5
        raw = min(10.0, max(0.1, seconds / (self._scale * expected)))
        raw /= self._shift(raw, limit, self._draft_side(seconds_draft))
        ratio = min(limit, max(1.0 / limit, raw)) if weight else min(limit, raw)
        charge = expected / self._mean[1] * (ratio if weight >= 3.0 else min(raw, max(ratio, 3.0)))
        if weight >= 3.0 or self._n_fast:
            self.noise += 0.03 * (1.25 * abs(math.log(ratio)) - self.noise)
            drift = ratio ** (0.3 if self._n_fast else 0.04)
            self._scale *= drift
            ratio /= drift
            self._n_fast = max(0, self._n_fast - 1)
        self._learn(n, ratio * expected)
        return charge

    def _draft_side(self, seconds: Sequence[float]) -> int | None:
        """Whether drafting, too, took much more (1) or less (-1) than expected; None: can't say."""
        expected = self.first + self.next * (len(seconds) - 1)
        if not seconds or self._n_drafts < 4 or expected < 0.02:
            return None
        return side(sum(seconds) / (self._scale * self._mean[1] * expected), SURPRISE)

    def _shift(self, raw: float, limit: float, draft_side: int | None) -> float:
        """Moves the scale when everything takes longer, or less; returns by what factor."""
        alike = side(raw, SURPRISE)
        self._n_alike = self._n_alike + 1 if alike == self._side else 1
        self._side = alike
        common = side(raw, limit) if draft_side is None else draft_side
        if not alike or common != alike or self._n_alike < N_ALIKE:
            return 1.0
        self._scale *= raw
        # It may have been these rows alone: measure plain decoding again soon.
        self.weight[1] = min(self.weight[1], 2.0)
        return raw

    def _anchor(self, seconds: float) -> None:
        """Two plain decodes in a row that agree are the unit of everything else."""
        self.known = self._scale / 1.5 < seconds < self._scale * 1.5
        self._scale = (self._scale + seconds) / 2.0 if self.known else seconds

    def _learn(self, n: int, value: float) -> None:
        weight, mean = self.weight[n], self._mean[n]
        # The first pass over n rows often builds a graph.
        new = 1.0 if weight else 0.3
        if n > 1 and weight < 3.0 and value * 1.8 < mean:
            weight = 0.0
        gain = max(new / (weight + new), 1.0 / WEIGHT_MAX)
        self._mean[n] = mean + (value - mean) * gain
        self.weight[1] = max(1.0, self.weight[1] * 0.997)
        self.weight[n] = min(weight + new, WEIGHT_MAX)
        self._stale += gain * abs(value / (mean or value) - 1.0)
        if n > 1:
            self.n_verified += 1
            self._n_unbuilt += 1
        if self._stale > 0.04 or weight < 3.0 or self._n_unbuilt >= N_FADE:
            self._fade()
            self._build()

    def _fade(self) -> None:
        """A few samples of some number of rows lose weight while others come in: they may lie."""
        keep = FADE**self._n_unbuilt
        for n, weight in enumerate(self.weight):
            if n > 1 and 0.02 < weight < 3.0:
                self.weight[n] = weight * keep
        self._n_unbuilt = 0

    def _build(self) -> None:
        """A line through n >= 2, which may start off the plain decode, plus smoothed residuals."""
        self._stale = 0.0
        self.n_built += 1
        weight, plain, n_rows = self.weight, self._mean[1], len(self.weight) - 1
        seen = [n for n in range(2, n_rows + 1) if weight[n] > 0.0]
        ridge = 1.0 if self.n_verified < 3 else 0.1
        q0, q1, q2, r0, r1 = ridge, 0.0, ridge, ridge * (1.0 + SLOPE), ridge * SLOPE
        for n in seen:
            w, y, z = weight[n], self._mean[n] / plain, n - 2.0
            w *= min(1.0, w / 0.3)
            q0, q1, q2 = q0 + w, q1 + w * z, q2 + w * z * z
            r0, r1 = r0 + w * y, r1 + w * z * y
        det = q0 * q2 - q1 * q1
        offset, slope = (r0 * q2 - r1 * q1) / det, max((r1 * q0 - r0 * q1) / det, 0.0)
        verify = [max(1.0, offset + slope * (n - 2.0)) for n in range(n_rows + 1)]
        above, below = [0.0] * (n_rows + 1), [2.0] * (n_rows + 1)
        for n in seen:
            residual = self._mean[n] / plain - verify[n]
            for m in range(max(2, n - N_NEAR), min(n_rows, n + N_NEAR) + 1):
                w = weight[n] * NEAR[abs(m - n)]
                above[m] += w * residual
                below[m] += w
        self.verify = [max(1.0, f + a / b) for f, a, b in zip(verify, above, below, strict=True)]
        self.verify[1] = 1.0
        self._bound_unseen()
        # Otherwise one bad sample would ban a number of rows for good.
        self.hopeful = [
            max(1.0, v * (1.0 - 0.10 / math.sqrt(w + 1.0)))
            for v, w in zip(self.verify, weight, strict=True)
        ]

    def _bound_unseen(self) -> None:
        """Rows never measured: at worst as many as were, else with a margin."""
        self.at_worst = self.verify[:]
        bound = 0.0
        for n in range(len(self.verify) - 1, 1, -1):
            if self.weight[n] > 0.0:
                bound = max(self.verify[n], self._mean[n] / self._mean[1])
            self.at_worst[n] = max(bound, self.verify[n] * (1.0 if bound else 1.2))

    def observe_draft(self, seconds: Sequence[float], seconds_before: float) -> float:
        """Learns from one draft, with what came before its first token; returns what to charge."""
        n, rest, plain = len(seconds), sum(seconds[1:]), self._scale * self._mean[1]
        first = seconds_before + (seconds[0] if n else 0.0)
        if not (0.0 <= first < math.inf and 0.0 <= rest < math.inf):
            self.n_bad += 1
            return self.first + self.next * max(0, n - 1)
        if not self.known:
            return 0.0
        if not n:
            return min(first / plain, LIMIT * self.first + STALL)
        self._n_drafts += 1
        charge = self._observe_first(first / plain)
        return charge + self._observe_next(rest / plain, n - 1) if n > 1 else charge

    def observe_catch_up(self, n: int, seconds: float) -> float:
        """Learns from a drafter's n tokens of catching up; returns what to charge."""
        if not (0.0 <= seconds < math.inf and n > 0 and self.known):
            self.n_bad += n > 0
            return 0.0
        cost = seconds / (self._scale * self._mean[1])
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
        self._stale += abs(step)
        return mean + step
