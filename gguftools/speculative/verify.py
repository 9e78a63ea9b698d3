"""Accept or resample: the rule that keeps the output the target's own. Pure.

Leviathan et al. 2023: keep a drafted token x with probability min(1, p(x) / q(x)), else draw from
max(0, p - q). A drafter without a distribution has q(x) = 1; greedy decoding is the same rule with
all of p on one token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from gguftools.speculative.sampling import Distribution, OneHot


def verify(
    tokens: Sequence[int],
    draft: Sequence[Distribution] | None,
    target: Callable[[int], Distribution],
    rng: Random,
) -> tuple[int, int]:
    """How many of the drafted `tokens` to keep, and the target's own token after them.

    `target(i)` is the target's distribution before the i-th drafted token, i = 0 .. len(tokens);
    it is asked only as far as the draft holds.
    """
    for i, token in enumerate(tokens):
        p = target(i)
        q = OneHot(token) if draft is None else draft[i]
        if rng.random() * q.prob(token) >= p.prob(token):
            return i, p.without(q).sample(rng)
    return len(tokens), target(len(tokens)).sample(rng)
