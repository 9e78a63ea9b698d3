"""Learns what the target's passes cost, relative to one plain decode. Pure: fed with seconds."""

from __future__ import annotations

import math

N_NEAR = 3  # rows on either side that share a residual
NEAR = [math.exp(-i) for i in range(N_NEAR + 1)]
WEIGHT_MAX = 40.0  # samples
SURPRISE = 1.3
FADE = 0.985  # per pass over other rows
FADE_OFF = 0.998  # per plain decode: what is measured no more may have been a lie
N_FADE = 32  # passes
BACK = 1.03  # a plain decode after more rows, for which llama.cpp builds a new graph
N_ALIKE = 3  # surprises in a row that are no accident
SLOPE = 0.15  # of a verify row, before anything was measured


def side(ratio: float, limit: float) -> int:
    """1 above limit, -1 below its inverse."""
    return (ratio > limit) - (ratio * limit < 1.0)


class CostCurve:
    """verify[n] is the cost of a target pass over n rows in plain decodes.

    Every duration is limited to a factor of what was expected: a stall of 10 to 200 times says
    nothing. Three in a row are believed, and so is a short one after few: stalls only add.
    """

    def __init__(self, n_rows: int) -> None:
        self.verify: list[float] = []
        self.at_worst: list[float] = []
        self.hopeful: list[float] = []  # verify, a little lower where it was seldom measured
        self.noise = 0.1
        self.known = False  # whether ratios mean something
        self.n_verified = 0  # passes over more than one row
        self.n_bad = self.n_built = 0
        self.weight = [0.0, 1.3] + [0.0] * (n_rows - 1)
        self._mean = [0.0, 1.0] + [0.0] * (n_rows - 1)
        self._scale = 0.0  # seconds
        self._n_fast = self._side = self._n_alike = 0
        self._back, self._n_backs = BACK, 24
        self._n_before = 0  # rows of the pass before, 0: not known
        self._first = 0.0  # seconds of the pass before, if that was such a plain decode
        self.stale = 0.0  # what changed since the curve was built
        self._n_since = self._n_verified_since = 0
        self._build()

    def new_reply(self) -> None:
        """The context jumped: the time scale is looked for afresh, the shape stays."""
        self.known = False
        self._n_before = 0
        self._n_fast = 6
        self.weight[1] = min(self.weight[1], 4.0)

    @property
    def plain(self) -> float:
        """Seconds of a plain decode."""
        return self._scale * self._mean[1]

    def observe(self, n: int, seconds: float, draft_side: int | None = None) -> float:
        """Learns from a pass over n rows; returns what to charge for it.

        `draft_side` says whether the draft before it took as much longer: see DraftCost.side.
        """
        n_before, self._n_before = self._n_before, n
        if not 0.0 < seconds < math.inf:
            self.n_bad += 1
            return self.verify[n]
        if n == 1:
            seconds = self._steady(seconds, n_before)
        if not self.known:
            if n == 1:
                self._anchor(seconds)
            return self.verify[n]
        weight, mean = self.weight[n], self._mean[n]
        # Against its own mean where there is one: a misfit of the curve must not move the scale.
        expected = mean if weight >= 3.0 else self._mean[1] * self.verify[n]
        limit = 1.5 if weight >= 3.0 else 1.8 if weight else 2.5
        raw = min(10.0, max(0.1, seconds / (self._scale * expected)))
        raw /= self._shift(raw, limit, draft_side)
        ratio = min(limit, max(1.0 / limit, raw)) if weight else min(limit, raw)
        charge = expected / self._mean[1] * (ratio if weight >= 3.0 else min(raw, max(ratio, 3.0)))
        if weight >= 3.0 or self._n_fast:
            self.noise += 0.03 * (1.25 * abs(math.log(ratio)) - self.noise)
            drift = ratio ** (0.3 if self._n_fast else 0.04)
            self._scale *= drift
            ratio /= drift
            self._n_fast = max(0, self._n_fast - 1)
        self._learn(n, ratio * expected)
        if n > 1:
            return charge
        return 1.0 if n_before == 1 else self._back

    def _steady(self, seconds: float, n_before: int) -> float:
        """What a plain decode would take after another one: that is what drafting must beat."""
        first, self._first = self._first, 0.0
        if n_before != 1:
            self._first = seconds
            return seconds / self._back
        if first:
            self._n_backs = min(self._n_backs + 1, 200)
            ratio = min(1.5, max(1.0 / 1.5, first / seconds))
            self._back += (ratio - self._back) / self._n_backs
        return seconds

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
        """Two plain decodes that agree are the unit of everything else: of a later reply, the
        first one with those of the reply before."""
        seconds /= self._mean[1]
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
        self.stale += gain * abs(value / (mean or value) - 1.0)
        self._n_since += 1
        if n > 1:
            self.n_verified += 1
            self._n_verified_since += 1
        if self.stale > 0.04 or weight < 3.0 or self._n_since >= N_FADE:
            self._fade()
            self._build()

    def _fade(self) -> None:
        """Samples lose weight with time, a few of some number of rows faster: they may lie."""
        n_verified = self._n_verified_since
        keep = FADE_OFF ** (self._n_since - n_verified)
        keep_few = keep * FADE**n_verified
        for n, weight in enumerate(self.weight):
            if n > 1 and weight > 0.02:
                self.weight[n] = weight * (keep_few if weight < 3.0 else keep)
        self._n_since = self._n_verified_since = 0

    def _build(self) -> None:
        """A line through n >= 2, which may start off the plain decode, plus smoothed residuals."""
        self.stale = 0.0
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
