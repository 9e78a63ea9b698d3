"""Estimates how likely the target keeps a drafted token. Pure: a Bayes filter over a few levels.

The chance that token i of a draft is kept, given that those before it were, is the logistic
function of level + w * (x - X_CENTRE) + b * ln i, x being the log odds of the drafter's confidence.
"""

from __future__ import annotations

import math
from operator import mul

LEVELS = tuple(-3.2 + 0.97 * i for i in range(9))
ODDS = tuple(math.exp(level) for level in LEVELS)
X_CENTRE = 2.0
X_MAX = 5.0
P_MAX = 1.0 / (1.0 + math.exp(-X_MAX))


def log_odds(p: float | None) -> float | None:
    """Clipped; None for what is not a probability."""
    if p is None or not 0.0 <= p <= 1.001:
        return None
    if p > P_MAX:
        return X_MAX
    if p < 1.0 - P_MAX:
        return -X_MAX
    return math.log(p / (1.0 - p))


class Level:
    """Which of LEVELS the text is at now. It may jump at every token, to where it often was."""

    __slots__ = ("_n_idle", "_n_new", "_usual", "jump", "now", "prior", "slow")

    def __init__(self, *, mean: float, sd: float, jump: float) -> None:
        weights = [math.exp(-0.5 * ((level - mean) / sd) ** 2) for level in LEVELS]
        total = sum(weights)
        self.prior = [w / total for w in weights]
        self.now = self.prior
        self.jump = jump
        self._n_new = self._n_idle = 0
        self.slow = self.prior
        self._usual = self.prior

    def _drift(self, goal: list[float], share: float) -> None:
        self.slow = [s + share * (g - s) for s, g in zip(self.slow, goal, strict=True)]
        self._usual = [0.95 * s + 0.05 * q for s, q in zip(self.slow, self.prior, strict=True)]

    def update(self, joint: list[float], n_tokens: int) -> None:
        """Takes up what n_tokens new tokens showed: joint is now times their likelihood."""
        total = sum(joint)
        if not total > 0.0:
            joint, total = self.prior, 1.0
        self._relax(joint, n_tokens, total)
        self._n_new += n_tokens
        if self._n_new >= 32:
            self._drift(self.now, min(1.0, 0.004 * self._n_new))
            self._n_new = 0

    def idle(self, n_tokens: int) -> None:
        """Nothing was tried for n_tokens tokens: fade, or off would be for ever."""
        self._n_idle += n_tokens
        if self._n_idle >= 32:
            self._drift(self.prior, min(1.0, 0.0005 * self._n_idle))
            self._n_idle = 0
        self._relax(self.now, n_tokens, 1.0)

    def _relax(self, joint: list[float], n_tokens: int, total: float) -> None:
        stay = (1.0 - self.jump) ** n_tokens
        leave, stay = 1.0 - stay, stay / total
        self.now = [stay * p + leave * u for p, u in zip(joint, self._usual, strict=True)]

    def forget(self) -> None:
        """A new text: mostly what this pair usually shows, partly anything."""
        self.now = [0.6 * s + 0.4 * q for s, q in zip(self.slow, self.prior, strict=True)]


class Slope:
    """One learnt coefficient: a scalar Kalman filter on the log odds."""

    __slots__ = ("high", "low", "value", "variance")

    def __init__(self, value: float, variance: float, low: float, high: float) -> None:
        self.value, self.variance, self.low, self.high = value, variance, low, high

    def update(self, error: float, information: float) -> None:
        """Both summed over tokens: feature * (kept - p) and feature^2 * p * (1 - p)."""
        self.variance /= 1.0 + self.variance * information
        self.value = min(self.high, max(self.low, self.value + self.variance * error))
        self.variance += 5e-5


def depth_slope() -> Slope:
    """Deeper tokens are kept less often."""
    return Slope(-0.1, 0.05, -3.0, 0.5)


class History:
    """Survival of the next draft, from what was kept and refused. survival[i]: the first i kept."""

    def __init__(self, n_max: int, *, mean: float) -> None:
        self.level = Level(mean=mean, sd=1.4, jump=0.01)
        self.survival = [1.0]
        self._slope = depth_slope()
        self._ln = [0.0] + [math.log(i) for i in range(1, n_max + 1)]
        self._tabulate()
        self.refresh()

    def _tabulate(self) -> None:
        """_rows[i]: for every level, the chance that the first i tokens are all kept."""
        self._rows_slope = self._slope.value
        row = [1.0] * len(ODDS)
        self._rows = [row]
        for ln_i in self._ln[1:]:
            g = math.exp(-self._slope.value * ln_i)
            row = [s * o / (o + g) for s, o in zip(row, ODDS, strict=True)]
            self._rows.append(row)

    def refresh(self, tolerance: float = 0.0) -> bool:
        """Brings survival up to date if it moved by more than tolerance."""
        now, i = self.level.now, min(2, len(self._rows) - 1)
        if i < len(self.survival):
            moved = abs(sum(map(mul, now, self._rows[i])) - self.survival[i])
            if moved <= tolerance:
                return False
        self.survival = [sum(map(mul, now, row)) for row in self._rows]
        return True

    def observe(self, n_accepted: int, n_tried: int, n_tokens: int) -> None:
        """The target judged n_tried tokens, of which it kept n_accepted: all, or all but one."""
        s = self.survival
        error = information = 0.0
        for i in range(2, n_tried + 1):
            p, ln_i = s[i] / s[i - 1], self._ln[i]
            error += ln_i * (1.0 - p if i <= n_accepted else -p)
            information += ln_i * ln_i * p * (1.0 - p)
        if n_tried > 1:
            self._slope.update(error, information)
        row = self._rows[n_accepted]
        if n_tried > n_accepted:
            row = [a - b for a, b in zip(row, self._rows[n_tried], strict=True)]
        self.level.update(list(map(mul, self.level.now, row)), n_tokens)
        if abs(self._slope.value - self._rows_slope) > 0.02:
            self._tabulate()


class Confidence:
    """Survival of the draft at hand, from the drafter's confidence in each of its tokens."""

    def __init__(self, n_max: int, *, mean: float) -> None:
        self.level = Level(mean=mean, sd=1.0, jump=0.005)
        self._slope = depth_slope()
        self._w = Slope(0.8, 0.10, 0.0, 1.6)
        self._ln = [0.0] + [math.log(i) for i in range(1, n_max + 2)]
        self.start()

    def start(self) -> None:
        """A new draft."""
        self._joint = [self.level.now]
        self.survival = [1.0]
        self.x: list[float] = []

    def extend(self, x: float) -> float:
        """One more drafted token; the chance that all so far are kept."""
        i = len(self._joint)
        g = math.exp(self._w.value * (X_CENTRE - x) - self._slope.value * self._ln[i])
        joint = [q * o / (o + g) for q, o in zip(self._joint[-1], ODDS, strict=True)]
        s = sum(joint)
        self._joint.append(joint)
        self.survival.append(s)
        self.x.append(x)
        return s

    def next_odds(self) -> float:
        """Odds of the next token at the central confidence, if all so far are kept."""
        g = math.exp(-self._slope.value * self._ln[len(self._joint)])
        h = sum([q * o / (o + g) for q, o in zip(self._joint[-1], ODDS, strict=True)])
        return h / max(self.survival[-1] - h, 1e-12)

    def lift(self, x: float) -> float:
        """The factor by which confidence x changes the odds."""
        return math.exp(self._w.value * (x - X_CENTRE))

    def observe(self, n_accepted: int, n_tried: int, n_tokens: int) -> None:
        """As History.observe, for the tokens given to extend()."""
        s = self.survival
        error = information = error_w = information_w = 0.0
        for i in range(1, n_tried + 1):
            p, ln_i, u = s[i] / s[i - 1], self._ln[i], self.x[i - 1] - X_CENTRE
            e, spread = (1.0 - p if i <= n_accepted else -p), p * (1.0 - p)
            error += ln_i * e
            information += ln_i * ln_i * spread
            error_w += u * e
            information_w += u * u * spread
        if n_tried > 1:
            self._slope.update(error, information)
        self._w.update(error_w, information_w)
        joint = self._joint[n_accepted]
        if n_tried > n_accepted:
            joint = [a - b for a, b in zip(joint, self._joint[n_tried], strict=True)]
        self.level.update(joint, n_tokens)
