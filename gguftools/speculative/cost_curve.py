"""Learns what drafting and verifying cost, relative to one plain decode. Pure: fed with seconds."""

from __future__ import annotations

import math

N_NEAR = 3  # rows on either side that share a residual
NEAR = [math.exp(-i) for i in range(N_NEAR + 1)]
WEIGHT_MAX = 40.0  # samples
SLOPE = 0.15  # of a verify row, before anything was measured


class CostCurve:
    """verify[n] is the cost of a target pass over n rows in plain decodes; so are first and next.

    Every duration is limited to a factor of what was expected: a stall of 10 to 200 times says
    nothing. Two in a row are believed, and so is a short one after few samples: stalls only add.
    """

    def __init__(self, n_rows: int, *, draft: float) -> None:
        self.verify: list[float] = []
        self.hopeful: list[float] = []  # verify, a little lower where it was seldom measured
        self.first = self.next = draft  # drafted token of a round, later ones
        self.catch_up = 0.0  # per token that the drafter has not seen
        self.noise = 0.1
        self.n_bad = self.n_built = 0
        self.weight = [0.0] * (n_rows + 1)
        self._mean = [0.0] * (n_rows + 1)
        self._scale = 0.0  # seconds
        self._n_plain = self._n_drafts = self._n_catch_ups = self._n_fast = 0
        self._last = 1.0
        self._stale = 0.0
        self._build()

    @property
    def known(self) -> bool:
        """Whether a plain decode was timed twice, so that ratios mean something."""
        return self._n_plain >= 2

    @property
    def n_verified(self) -> float:
        """Passes over more than one row, the first of each number counting little."""
        return sum(self.weight[2:])

    def new_reply(self) -> None:
        """The context jumped: look for the time scale afresh, keep the shape."""
        self._n_fast = 6
        self.weight[1] = min(self.weight[1], 4.0)

    def observe_verify(self, n: int, seconds: float) -> float | None:
        """Learns from a pass over n rows; returns what to charge, None if the clock was broken."""
        if not 0.0 < seconds < math.inf:
            self.n_bad += 1
            return None
        if not self._scale:
            self._scale = seconds / self.verify[n]
            self._mean[1] = 1.0
        weight, expected = self.weight[n], self._mean[1] * self.verify[n]
        raw = seconds / (self._scale * expected)
        ratio = self._believe(raw, weight)
        if weight >= 3.0 or self._n_fast:
            self._scale *= ratio ** (0.3 if self._n_fast else 0.04)
            self._n_fast = max(0, self._n_fast - 1)
            self.noise += 0.03 * (1.25 * abs(math.log(ratio)) - self.noise)
        charge = self.verify[n] * (ratio if weight >= 3.0 else min(raw, max(ratio, 3.0)))
        self._learn(n, seconds / self._scale * (ratio / raw))
        return charge

    def _believe(self, raw: float, weight: float) -> float:
        limit = 1.5 if weight >= 3.0 else 1.8
        last, self._last = self._last, raw
        if raw > limit:
            return max(limit, min(raw, last))
        if raw * limit < 1.0 and weight >= 3.0:
            return min(1.0 / limit, max(raw, last))
        return raw

    def _learn(self, n: int, value: float) -> None:
        weight, mean = self.weight[n], self._mean[n]
        # The first pass over n rows often builds a graph.
        new = 1.0 if weight else 0.3
        if weight < 3.0 and value * 1.8 < mean:
            weight = 0.0
        gain = max(new / (weight + new), 1.0 / WEIGHT_MAX)
        self._mean[n] = mean + (value - mean) * gain
        self.weight[n] = min(weight + new, WEIGHT_MAX)
        self._n_plain += n == 1
        self._stale += gain * abs(value / (mean or value) - 1.0)
        if self._stale > 0.02 or weight < 3.0:
            self._build()

    def _build(self) -> None:
        """A line through n >= 2, which may start off the plain decode, plus smoothed residuals."""
        self._stale = 0.0
        self.n_built += 1
        weight, plain, n_rows = self.weight, self._mean[1] or 1.0, len(self.weight) - 1
        seen = [n for n in range(2, n_rows + 1) if weight[n] > 0.0]
        ridge = 1.0 if self.n_verified < 2.0 else 0.1
        q0, q1, q2, r0, r1 = ridge, 0.0, ridge, ridge * (1.0 + SLOPE), ridge * SLOPE
        for n in seen:
            w, y, z = weight[n], self._mean[n] / plain, n - 2.0
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
        # Otherwise one bad sample would ban a number of rows for good.
        self.hopeful = [
            max(1.0, v * (1.0 - 0.15 / math.sqrt(w + 1.0)))
            for v, w in zip(self.verify, weight, strict=True)
        ]

    def observe_draft(
        self, seconds: tuple[float, ...], n_catch_up: int, seconds_catch_up: float
    ) -> float | None:
        """Learns from one draft; returns what to charge, None if the clock was broken."""
        n = len(seconds)
        total = sum(seconds)
        if not (0.0 <= total < math.inf and 0.0 <= seconds_catch_up < math.inf):
            self.n_bad += 1
            return None
        plain = self._scale * self._mean[1]
        if not plain:
            return 0.0
        charge = 0.0
        if n_catch_up > 2:
            charge = self._observe_catch_up(n_catch_up, seconds_catch_up / plain)
            seconds_catch_up = 0.0
        if not n:
            return charge + min(seconds_catch_up / plain, 1.0)
        self._n_drafts += 1
        gain = max(1.0 / self._n_drafts, 0.05)
        t = (seconds[0] + seconds_catch_up) / plain
        step = gain * (min(t, 1.8 * self.first + 0.01) - self.first)
        charge += min(t, 1.8 * self.first + 1.0)
        self.first += step
        if n > 1:
            t = (total - seconds[0]) / (n - 1) / plain
            charge += min(t, 1.8 * self.next + 1.0) * (n - 1)
            more = gain * (min(t, 1.8 * self.next + 0.01) - self.next)
            self.next += more
            step += more
        self._stale += abs(step)
        return charge

    def _observe_catch_up(self, n: int, cost: float) -> float:
        expected = n * self.catch_up
        self._n_catch_ups += 1
        gain = max(1.0 / self._n_catch_ups, 0.1)
        self.catch_up += gain * (min(cost, 1.8 * expected + 0.5) / n - self.catch_up)
        return min(cost, 1.8 * expected + 1.0)
