"""Whether a drafted greedy text is the plain one, and if not, how near the two tokens were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from gguftools.speculative.context import Context
from gguftools.speculative.controller import Controller
from gguftools.speculative.loop import Generation
from gguftools.speculative.reply import Engine
from gguftools.speculative.sampling import Floats


@dataclass(frozen=True, slots=True)
class Equality:
    """Drafted beside plain. All but `n_tokens` is None where the texts are equal.

    `position` counts the reply's tokens from 0; `gap` is how far apart the logits of the two tokens
    are there, `noise` the most that any logit moves when the text is decoded in larger batches.
    """

    n_tokens: int
    position: int | None = None
    plain: int | None = None
    drafted: int | None = None
    gap: float | None = None
    noise: float | None = None

    @property
    def holds(self) -> bool:
        """Equal, or parted at a tie that llama.cpp itself breaks by the size of the batch."""
        if self.gap is None or self.noise is None:
            return self.position is None
        return self.gap <= 2 * self.noise


def compare_with_plain(engine: Engine, prompt: Sequence[int], drafted: Sequence[int]) -> Equality:
    """Decode the reply again without drafts. Greedy only; the conversation's cache is lost."""
    plain, _ = _plain(engine, prompt, len(drafted))
    pairs = zip(plain, drafted, strict=False)
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if position is None:
        return Equality(min(len(plain), len(drafted)))
    _, text = _plain(engine, prompt, position)
    single = _last_row(engine.target, text, engine.target.n_past)
    engine.target.clear()
    batched = _last_row(engine.target, text, max(len(text) - engine.draft_max - 1, 0))
    a, b = plain[position], drafted[position]
    return Equality(
        n_tokens=position,
        position=position,
        plain=a,
        drafted=b,
        gap=abs(float(single[a] - single[b])),
        noise=float(np.abs(single - batched).max()),
    )


def _plain(
    engine: Engine, prompt: Sequence[int], n_predict: int
) -> tuple[list[int], Sequence[int]]:
    """The reply without drafts, and the text of which the target holds all but the last token."""
    engine.target.clear()
    generation = Generation(
        target=engine.target,
        drafter=None,
        controller=Controller(0),
        chain=engine.chain,
        history=list(prompt),
        n_predict=n_predict,
        is_eog=engine.target.model.is_eog,
        rng=engine.rng,
        clock=perf_counter,
        n_keep=engine.n_keep,
    )
    tokens = [token for step in generation.steps() for token in step.tokens]
    generation.make_room()
    return tokens, generation.history


def _last_row(target: Context, text: Sequence[int], n_before: int) -> Floats:
    """Logits after `text`, its tokens from n_before on decoded in one batch."""
    if target.n_past < n_before:
        target.decode(text[target.n_past : n_before])
    return target.decode(text[target.n_past :], 1)[0].copy()
