"""How many drafted tokens a target keeps: by position, by p_min, and in all. Pure.

The draft's confidence in a token is taken as the chance that it is kept, spread as k c^(k-1) with
mean p = k / (k + 1). A token below p_min ends the draft, so of the next tokens the share
1 - p_min^k is drafted, and p (1 - p_min^(k+1)) is drafted and kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gguftools.pairing.setup import ONE_PASS, Setup

P_MAX = 0.995
LEVELS = (-8.0, 8.0)  # log odds
OWN_TRUST = 0.03  # of the expected level against an acceptance measured at p_min 0


@dataclass(frozen=True, slots=True)
class Drafts:
    """What the drafts of many rounds look like.

    length[l]: share of rounds that draft l tokens. kept[i]: share of rounds in which the first
    i + 1 drafted tokens are all kept, as llama.cpp's metrics count acceptance by position.
    n_computed: tokens the draft computes per round, with the one below p_min that it throws away.
    """

    length: tuple[float, ...]
    kept: tuple[float, ...]
    n_computed: float

    @property
    def n_drafted(self) -> float:
        """Tokens that reach the target, per round."""
        return sum(i * share for i, share in enumerate(self.length))

    @property
    def acceptance(self) -> float:
        """Accepted of drafted tokens, as llama.cpp prints it."""
        return sum(self.kept) / self.n_drafted if self.n_drafted > 0.0 else 0.0

    @property
    def tokens_per_round(self) -> float:
        """The drafted tokens kept, and the one that the target adds."""
        return 1.0 + sum(self.kept)


def drafts(p: Sequence[float], *, n_min: int = 0, p_min: float = 0.0, found: float = 1.0) -> Drafts:
    """p[i]: the chance that token i is kept, given those before; found: that there is a draft."""
    n = len(p)
    going, both = [found], [found]
    for chance in p:
        k = chance / max(1.0 - chance, 1e-9)
        going.append(going[-1] * (1.0 - p_min**k))
        both.append(both[-1] * chance * (1.0 - p_min ** (k + 1.0)))
    n_computed = sum(going[:n])
    length = [going[i] - (going[i + 1] if i < n else 0.0) for i in range(n + 1)]
    kept = both[1:]
    for i in range(min(n_min, n)):
        if i + 1 < n_min and going[i + 1] > 0.0:
            kept[i] *= going[min(n_min, n)] / going[i + 1]
        length[i] = 0.0
    length[0] = max(1.0 - sum(length[1:]), 0.0)
    return Drafts(tuple(length), tuple(kept), n_computed)


def chances(level: float, kind: str, n: int, drop: float) -> tuple[float, ...]:
    """By position: the chance that a token is kept, given those before.

    `level` is the log odds of the first; `drop` what a later one loses: a block fades with every
    position, a head that feeds on its own output once.
    """
    if kind in ONE_PASS:
        return tuple(min(sigmoid(level - drop * math.log(i + 1.0)), P_MAX) for i in range(n))
    later = min(sigmoid(level - drop), P_MAX)
    return (min(sigmoid(level), P_MAX),) + (later,) * (n - 1)


def found(setup: Setup, c: Mapping[str, float]) -> float:
    """How often there is a draft at all: n-gram lookup needs a text that repeats."""
    if setup.kind != "ngram":
        return 1.0
    return c["found.ngram"] if setup.task != "rewrite" else c["found.ngram.rewrite"]


def expected_level(setup: Setup, c: Mapping[str, float]) -> float:
    """Log odds that the first drafted token is kept, from kind, task, sizes and precision."""
    level = c[f"accept.{setup.kind}"] + c.get(f"task.{setup.task}", 0.0)
    level += c.get(f"accept.family.{setup.series}", 0.0)
    if setup.temperature is not None:
        level -= c["accept.temperature"] * setup.temperature
    if setup.kind == "draft-simple" and setup.draft_params > 0.0:
        ratio = setup.target_params / setup.draft_params
        level -= c["accept.size"] * math.log(max(ratio, 1.0) / 30.0)
    lost = max(4.8 - (setup.draft_bits or 4.8), 0.0) + max(3.9 - setup.target_bits, 0.0)
    return level - c["accept.bits"] * lost


@lru_cache(maxsize=4096)
def level_of(
    acceptance: float, expected: float, kind: str, n: int, p_min: float, drop: float
) -> float:
    """The level at which drafts of that length show that acceptance, accepted of drafted.

    The higher p_min was, the less its acceptance says of the tokens below it, and the more the
    expected level counts.
    """
    shown = log_odds(min(max(acceptance, 0.005), 0.995))
    low, high = LEVELS
    for _ in range(24):
        middle = (low + high) / 2.0
        d = drafts(chances(middle, kind, n, drop), p_min=p_min)
        error = log_odds(d.acceptance) - shown + (OWN_TRUST + p_min) * (middle - expected)
        low, high = (middle, high) if error < 0.0 else (low, middle)
    return (low + high) / 2.0


def log_odds(p: float) -> float:
    """The inverse of the logistic function, kept finite."""
    p = min(max(p, 1e-6), 1.0 - 1e-6)
    return math.log(p / (1.0 - p))


def sigmoid(x: float) -> float:
    """The logistic function."""
    return 1.0 / (1.0 + math.exp(-min(max(x, -50.0), 50.0)))
