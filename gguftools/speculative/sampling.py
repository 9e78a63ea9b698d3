"""Logits -> next-token distribution: one chain for target and draft. Pure.

The order is llama.cpp's: bias, penalties, top-k, top-p, min-p, then temperature (common/common.h,
b11434). Rows are cut to the candidates before anything is exponentiated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from gguftools.errors import EngineError

Floats = npt.NDArray[np.float32]

_ROWS = 64  # of the table whose columns bound the k largest logits


@dataclass(frozen=True, slots=True)
class OneHot:
    """All probability on one token: a greedy choice, or a guess that came without odds."""

    token: int

    def prob(self, token: int) -> float:
        """Probability of one token."""
        return float(token == self.token)

    def probs(self, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Probabilities of some tokens."""
        return np.equal(ids, self.token).astype(np.float64)

    def sample(self, rng: Random) -> int:
        """The token."""
        return self.token

    def without(self, draft: Distribution) -> OneHot:
        """Itself: rounding leaves nothing else."""
        return self


@dataclass(frozen=True, slots=True)
class Table:
    """Probabilities `p` of the token ids `ids`, in any order; every other token has none."""

    ids: npt.NDArray[np.intp]
    p: npt.NDArray[np.float64]

    def prob(self, token: int) -> float:
        """Probability of one token."""
        return float(self.p.dot(self.ids == token))

    def probs(self, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Probabilities of some tokens."""
        order = self.ids.argsort(kind="stable")
        known = self.ids[order]
        at = np.minimum(known.searchsorted(ids), len(known) - 1)
        return np.where(known[at] == ids, self.p[order[at]], 0.0)

    def sample(self, rng: Random) -> int:
        """Draw a token."""
        cumulated = self.p.cumsum()
        i = int(cumulated.searchsorted(rng.random() * cumulated[-1], side="right"))
        return int(self.ids[min(i, len(self.ids) - 1)])

    def without(self, draft: Distribution) -> Table:
        """What is left after rejecting a token of `draft`: max(0, p - q), normalised.

        Leviathan et al. 2023. Falls back to p where rounding leaves nothing.
        """
        rest = np.maximum(self.p - draft.probs(self.ids), 0.0)
        total = float(rest.sum())
        return Table(self.ids, rest / total) if total > 0 else self


Distribution = OneHot | Table


@dataclass(frozen=True, slots=True)
class Chain:
    """Sampling settings, llama.cpp's names; temp <= 0 is greedy, top_k <= 0 keeps all tokens.

    The penalties look at the last `penalty_last_n` tokens before a position, prompt and draft
    included; their defaults do nothing. `logit_bias` adds to the logits of token ids.
    """

    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    penalty_last_n: int = 64
    penalty_repeat: float = 1.0
    penalty_freq: float = 0.0
    penalty_present: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether only the top token counts."""
        return self.temp <= 0

    @property
    def n_before(self) -> int:
        """How many tokens before a position its distribution depends on, beyond the logits."""
        idle = (self.penalty_repeat, self.penalty_freq, self.penalty_present) == (1.0, 0.0, 0.0)
        return 0 if idle else max(self.penalty_last_n, 0)

    def adjusted(self, row: Floats, before: Sequence[int]) -> Floats:
        """The row with bias and penalties; `before` ends with the token before the position."""
        n = self.n_before
        if not self.logit_bias and not n:
            return row
        row = row.copy()
        for token, bias in self.logit_bias:
            if 0 <= token < len(row):
                row[token] += bias
        if n:
            counts = Counter(t for t in before[max(len(before) - n, 0) :] if t < len(row))
            for token, count in counts.items():
                z = float(row[token])
                z = z * self.penalty_repeat if z <= 0 else z / self.penalty_repeat
                row[token] = z - count * self.penalty_freq - self.penalty_present
        return row

    def distribution(self, row: Floats, before: Sequence[int] = ()) -> Distribution:
        """The next-token distribution that these settings make of a row of logits, {n_vocab}."""
        return self.filtered(self.adjusted(row, before))

    def filtered(self, row: Floats) -> Distribution:
        """The same of an adjusted row: top-k, top-p, min-p and temperature.

        The tokens of top-p and of min-p are both the first of one order, so either may cut first;
        only the share that top-p keeps is one of all tokens of top-k.
        """
        if self.greedy:
            return OneHot(int(row.argmax()))
        ids, share = self._candidates(row)
        z = row[ids]
        z -= z[:1]
        weights = np.exp(z)
        n = int(np.count_nonzero(weights >= self.min_p))  # none where logits are no numbers
        if not n:
            raise EngineError("the model gave logits that are no numbers")
        if self.top_p < 1:
            cumulated = weights.cumsum()
            n = min(n, int(cumulated.searchsorted(self.top_p * (share or cumulated[-1]))) + 1)
        p = np.exp(z[:n].astype(np.float64) / self.temp)
        return Table(ids[:n], p / np.add.reduce(p))

    def _candidates(self, row: Floats) -> tuple[npt.NDArray[np.intp], float]:
        """Ids by falling logit; with it the weight of all, 0 where they are all there are."""
        if 0 < self.top_k < len(row):
            return _top_k(row, self.top_k), 0.0
        weights = row - np.maximum.reduce(row)
        np.exp(weights, out=weights)
        ids = (weights >= self.min_p).nonzero()[0]
        return _falling(row, ids), float(np.add.reduce(weights))


def _top_k(row: Floats, k: int) -> npt.NDArray[np.intp]:
    """Ids of the k largest logits; ties at the border go to the lower ids."""
    n_columns = len(row) // _ROWS
    if n_columns <= k:
        return (-row).argsort(kind="stable")[:k]
    # The k-th largest of the maxima of all columns bounds the k-th largest logit from below.
    tops = np.maximum.reduce(row[: _ROWS * n_columns].reshape(_ROWS, n_columns))
    tops.partition(n_columns - k)
    ids = (row >= tops[n_columns - k]).nonzero()[0]
    return _falling(row, ids)[:k]


def _falling(row: Floats, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The ids by falling logit, equal ones as they were."""
    ordered: npt.NDArray[np.intp] = ids[(-row[ids]).argsort(kind="stable")]
    return ordered


def confidence(row: Floats) -> tuple[int, float]:
    """The top token of a row and its probability at temperature 1; 0 where logits are NaN."""
    top = int(row.argmax())
    weights = row - row[top]
    total = float(np.exp(weights, out=weights).sum())
    return top, 1.0 / total if total >= 1.0 else 0.0
