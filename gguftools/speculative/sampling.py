"""Logits -> next-token distribution: one chain for target and draft. Pure.

The order is llama.cpp's: bias, penalties, top-k, top-p, min-p, then temperature (common/common.h,
b11434). Rows are cut to the candidates before anything is exponentiated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_BLOCK = 64
_NEGLIGIBLE = 18.0  # logits this far below the top weigh e^-18 each in a confidence


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities `p` of the token ids `ids` (ascending); every other token has none."""

    ids: npt.NDArray[np.intp]
    p: npt.NDArray[np.float64]

    def prob(self, token: int) -> float:
        """Probability of one token."""
        i = int(np.searchsorted(self.ids, token))
        return float(self.p[i]) if i < len(self.ids) and self.ids[i] == token else 0.0

    def sample(self, rng: np.random.Generator) -> int:
        """Draw a token."""
        if len(self.ids) == 1:
            return int(self.ids[0])
        cumulated = np.cumsum(self.p)
        i = int(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"))
        return int(self.ids[min(i, len(self.ids) - 1)])

    def without(self, draft: Distribution) -> Distribution:
        """What is left after rejecting a token of `draft`: max(0, p - q), normalised.

        Leviathan et al. 2023. Falls back to p where rounding leaves nothing.
        """
        at = np.minimum(np.searchsorted(draft.ids, self.ids), len(draft.ids) - 1)
        q = np.where(draft.ids[at] == self.ids, draft.p[at], 0.0)
        rest = np.maximum(self.p - q, 0.0)
        total = float(rest.sum())
        return Distribution(self.ids, rest / total) if total > 0 else self


def one_hot(token: int) -> Distribution:
    """All probability on one token."""
    return Distribution(np.array([token]), np.array([1.0]))


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
        """The same of an adjusted row: top-k, top-p, min-p and temperature."""
        if self.greedy:
            return one_hot(int(row.argmax()))
        ids = np.arange(len(row)) if not 0 < self.top_k < len(row) else _top_k(row, self.top_k)
        z = row[ids].astype(np.float64)
        z -= z.max()
        if self.top_p < 1:
            keep = _top_p(z, self.top_p)
            ids, z = ids[keep], z[keep]
        if self.min_p > 0:
            likely = z >= math.log(self.min_p)
            ids, z = ids[likely], z[likely]
        p = np.exp(z / self.temp)
        return Distribution(ids, p / p.sum())


def _top_k(row: Floats, k: int) -> npt.NDArray[np.intp]:
    """Ids of the k largest logits, ascending; ties at the border go to the lower ids."""
    n_blocks = len(row) // _BLOCK
    candidates = np.arange(len(row))
    if n_blocks > k:
        # The k-th largest block maximum bounds the k-th largest logit from below.
        tops = row[: n_blocks * _BLOCK].reshape(n_blocks, _BLOCK).max(axis=1)
        candidates = np.flatnonzero(row >= np.partition(tops, n_blocks - k)[n_blocks - k])
    order = np.argsort(-row[candidates], kind="stable")[:k]
    return np.sort(candidates[order])


def _top_p(z: npt.NDArray[np.float64], top_p: float) -> npt.NDArray[np.intp]:
    """Places of the smallest set of top tokens whose probability reaches top_p, ascending."""
    order = np.argsort(-z, kind="stable")
    p = np.exp(z[order])
    cumulated = np.cumsum(p) / p.sum()
    n = int(np.searchsorted(cumulated, top_p)) + 1
    return np.sort(order[:n])


def confidence(row: Floats) -> tuple[int, float]:
    """The top token of a row and its probability at temperature 1; 0 where logits are NaN."""
    top = int(row.argmax())
    near = row[row > row[top] - _NEGLIGIBLE]
    if not near.size:
        return top, 0.0
    return top, 1.0 / float(np.exp(near - row[top]).sum())
