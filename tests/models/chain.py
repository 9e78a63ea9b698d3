"""Bigram chains: the distributions that Markov files hold, and what theory says about them. Pure.

A chain is a float64 matrix, row i the distribution of the next token after token i.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tests.models.vocabulary import EMOJI, EURO, N_SPECIAL, UTF8_BYTES

Chain = npt.NDArray[np.float64]


def random_chain(
    n_vocab: int,
    seed: int,
    *,
    predictable: float = 0.5,
    peak: float = 0.95,
    concentration: float = 0.3,
    p_switch: float = 0.02,
    p_eog: float = 0.0,
    utf8: bool = False,
) -> Chain:
    """A chain over the ordinary tokens, with a predictable region and a random region.

    The first `predictable` share of the ordinary tokens forms a cycle in which each has one
    successor of mass `peak` (code-like); the rest has Dirichlet rows (prose-like; a smaller
    `concentration` is peakier). Every row leaves its region with `p_switch` and ends the text
    (token 0) with `p_eog`. With `utf8` the euro sign and an emoji appear, byte by byte, each
    byte followed by the next with certainty; otherwise their bytes never appear.
    """
    rng = np.random.default_rng(seed)
    first = N_SPECIAL + len(UTF8_BYTES)
    ordinary = rng.permutation(np.arange(first, n_vocab))
    n_cycle = round(predictable * len(ordinary))
    cycle, rest = ordinary[:n_cycle], ordinary[n_cycle:]
    chain = np.zeros((n_vocab, n_vocab))
    for place, token in enumerate(cycle):
        chain[token, cycle] = (1 - peak) / n_cycle
        chain[token, cycle[(place + 1) % n_cycle]] += peak
    for token in rest:
        chain[token, rest] = rng.dirichlet(np.full(len(rest), concentration))
    if n_cycle and len(rest):
        chain[cycle] *= 1 - p_switch
        chain[np.ix_(cycle, rest)] = p_switch / len(rest)
        chain[rest] *= 1 - p_switch
        chain[np.ix_(rest, cycle)] = p_switch / n_cycle
    if utf8:
        chain[ordinary] *= 0.9
        chain[ordinary, EURO[0]] = chain[ordinary, EMOJI[0]] = 0.05
    chain[ordinary] *= 1 - p_eog
    chain[ordinary, 0] = p_eog
    return _complete(chain, ordinary, utf8=utf8)


def perturbed(chain: Chain, amount: float, seed: int) -> Chain:
    """Another chain: each row mixed with the row of another token, which gets weight `amount`."""
    live = _live(chain)
    other = np.array(chain)
    other[live] = chain[np.roll(np.random.default_rng(seed).permutation(live), 1)]
    return _normalised((1 - amount) * chain + amount * other)


def disagreeing(chain: Chain, rate: float, seed: int) -> Chain:
    """Another chain: in a share `rate` of the rows the two likeliest tokens change places."""
    live = _live(chain)
    rng = np.random.default_rng(seed)
    rows = rng.choice(live, round(rate * len(live)), replace=False)
    result = np.array(chain)
    for row in rows:
        second, best = np.argsort(chain[row])[-2:]
        result[row, [second, best]] = chain[row, [best, second]]
    return result


def acceptance(p_target: Chain, p_draft: Chain) -> npt.NDArray[np.float64]:
    """Chance that a token drafted after token i is kept by rejection sampling, for every i."""
    kept: npt.NDArray[np.float64] = np.minimum(p_target, p_draft).sum(axis=1)
    return kept


def stationary(chain: Chain) -> npt.NDArray[np.float64]:
    """Share of each token in a long text of the chain."""
    share = np.full(len(chain), 1 / len(chain))
    # Half a step of idling keeps a nearly cyclic chain from ringing.
    step = (chain + np.eye(len(chain))) / 2
    for _ in range(24):
        step = step @ step
        step /= step.sum(axis=1, keepdims=True)
    return np.asarray(share @ step, dtype=np.float64)


def _complete(chain: Chain, ordinary: npt.NDArray[np.int64], *, utf8: bool) -> Chain:
    """Rows for the tokens that never appear, and for the bytes of multi-byte characters."""
    start = np.zeros(len(chain))
    start[ordinary] = 1 / len(ordinary)
    chain[: N_SPECIAL + len(UTF8_BYTES)] = start
    if utf8:
        for character in (EURO, EMOJI):
            for token, successor in pairwise(character):
                chain[token] = 0
                chain[token, successor] = 1
    return _normalised(chain)


def _live(chain: Chain) -> npt.NDArray[np.int64]:
    """Ordinary tokens: those whose rows say something."""
    return np.arange(N_SPECIAL + len(UTF8_BYTES), len(chain))


def _normalised(chain: Chain) -> Chain:
    return np.asarray(chain / chain.sum(axis=1, keepdims=True), dtype=np.float64)
