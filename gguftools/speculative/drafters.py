"""Draft model and MTP head as drafters on llama.cpp contexts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from time import perf_counter

import numpy as np

from gguftools.speculative.context import N_BATCH, Context
from gguftools.speculative.drafting import NOTHING, Draft
from gguftools.speculative.excerpt import Excerpt
from gguftools.speculative.sampling import Chain, Distribution, Floats, confidence

Proceed = Callable[[int, float | None], bool]

# Fewer unseen tokens than this are decoded together with the first drafted one.
N_CATCH_UP_APART = 8


class _Picker:
    """Chooses drafted tokens from rows: the top one when greedy, else drawn from the chain."""

    def __init__(
        self,
        chain: Chain,
        n_vocab: int,
        p_min: float,
        rng: Random,
        history: Sequence[int],
    ) -> None:
        self.chain, self.n_vocab, self.p_min, self.rng = chain, n_vocab, p_min, rng
        n = chain.n_before
        self.before = list(history[max(len(history) - n, 0) :]) if n else []
        self.tokens: list[int] = []
        self.distributions: list[Distribution] = []
        self.confidence: list[float | None] = []
        self.seconds: list[float] = []

    def take(self, row: Floats, started: float) -> bool:
        """Add a token unless the draft is not sure enough of it."""
        row = self.chain.adjusted(row[: self.n_vocab], self.before)
        token, p = confidence(row)
        if p < self.p_min:
            return False
        if not self.chain.greedy:
            q = self.chain.filtered(row)
            token = q.sample(self.rng)
            self.distributions.append(q)
        self.tokens.append(token)
        self.before.append(token)
        self.confidence.append(p)
        self.seconds.append(perf_counter() - started)
        return True

    def draft(self, n_catch_up: int, seconds_catch_up: float) -> Draft:
        """All that was taken."""
        q = None if self.chain.greedy else tuple(self.distributions)
        return Draft(
            tuple(self.tokens),
            q,
            tuple(self.confidence),
            tuple(self.seconds),
            n_catch_up,
            seconds_catch_up,
        )


class ModelDrafter:
    """A smaller model with the target's vocabulary. It catches up lazily, when it drafts next."""

    name = "draft"

    def __init__(self, context: Context, n_vocab: int, p_min: float) -> None:
        self.context = context
        self.n_max = context.n_ctx
        self._n_shared, self.p_min = min(n_vocab, context.model.n_vocab), p_min
        self._read = Excerpt(context)

    def draft(self, history: Sequence[int], n_max: int, proceed: Proceed) -> Draft:
        """Continue `history`; tokens that only the target knows are read as token 0."""
        n_max = min(n_max, self.context.n_ctx - len(history))
        if n_max <= 0:
            return NOTHING
        started = perf_counter()
        unseen = self._unseen(history)
        n_catch_up, seconds_catch_up = len(unseen) - 1, 0.0
        if n_catch_up > N_CATCH_UP_APART:
            self.context.decode(unseen[:-1])
            unseen = unseen[-1:]
            seconds_catch_up = perf_counter() - started
            started = perf_counter()
        row = self.context.decode(unseen, 1)[0]
        self._read.n = self.context.n_past
        if n_max > 1:
            self.context.mark()
        picker = self._new_picker(history)
        while picker.take(row, started):
            n = len(picker.tokens)
            if not proceed(n, picker.confidence[-1]) or n >= n_max:
                break
            started = perf_counter()
            row = self.context.decode(picker.tokens[-1:], 1)[0]
        return picker.draft(n_catch_up, seconds_catch_up)

    def _unseen(self, history: Sequence[int]) -> list[int]:
        """The tokens to decode."""
        known = self.context.model.n_vocab
        start = self._read.unread(history, len(history) - 1)
        return [t if t < known else 0 for t in history[start:]]

    def reset(self, history: Sequence[int], chain: Chain, rng: Random) -> None:
        """A new reply: the history may have changed anywhere."""
        self._new_picker = partial(_Picker, chain, self._n_shared, self.p_min, rng)
        self._read.new_text(history)

    def shift(self, n_keep: int, n_discard: int) -> None:
        """Forget the same part of the history."""
        self._read.shift(n_keep, n_discard)


class MtpDrafter:
    """The target's own MTP head, or a sidecar's: fed with the target's hidden rows.

    The hidden row of position p pairs with token p + 1. Rows are kept by the target's context and
    taken over lazily, in one batch, when the head drafts next. No more than N_BATCH of them gather:
    while a prompt is read they are taken over, later the oldest are forgotten.
    With several chained heads, draft step k runs head k and re-decodes the drafted prefix.
    """

    name = "mtp"

    def __init__(self, context: Context, target: Context, p_min: float) -> None:
        self.context, self.target = context, target
        self.n_heads = max(context.model.n_layer_nextn, 1)
        self.n_max = self.n_heads if self.n_heads > 1 else context.n_ctx
        self.p_min = p_min
        self._read = Excerpt(context)
        target.keep_hidden(masked=False)
        context.keep_hidden(masked=True)
        target.on_decode = self._bound

    def draft(self, history: Sequence[int], n_max: int, proceed: Proceed) -> Draft:
        """Continue `history`, all of which but the last token the target has decoded."""
        n_max = min(n_max, self.context.n_ctx - len(history))
        if n_max <= 0:
            return NOTHING
        started = perf_counter()
        last = len(history) - 1
        start = self._read.unread(history, last)
        n_catch_up, seconds_catch_up = last - start, 0.0
        if n_catch_up > N_CATCH_UP_APART or (n_catch_up and self.n_heads > 1):
            self._catch_up(history, start, last)
            start = last
            seconds_catch_up = perf_counter() - started
            started = perf_counter()
        tokens = list(history[start:])
        rows = self.target.hidden_rows(start - 1, last)
        picker = self._new_picker(history)
        n_new = len(tokens)
        while picker.take(self._step(tokens, rows, n_new), started):
            n = len(picker.tokens)
            if not proceed(n, picker.confidence[-1]) or n >= n_max:
                break
            started = perf_counter()
            tokens.append(picker.tokens[-1])
            rows = np.vstack([rows, self.context.output_hidden()])
            n_new = 1
        return picker.draft(n_catch_up, seconds_catch_up)

    def _step(self, tokens: list[int], rows: Floats, n_new: int) -> Floats:
        """Logits after all of `tokens`, of which the head has not seen the last `n_new`."""
        if self.n_heads == 1:
            row = self.context.decode(tokens[-n_new:], 1, rows[-n_new:])[0]
            if n_new == len(tokens):
                self._read.n = self.context.n_past
            return row
        self.context.rewind(self._read.n)
        self.context.set_head(len(tokens) - 1)
        return self.context.decode(tokens, 1, rows)[0]

    def _catch_up(self, tokens: Sequence[int], start: int, stop: int) -> None:
        """Have the head see tokens[start:stop], with the target's hidden rows."""
        if start < stop:
            rows = self.target.hidden_rows(start - 1, stop - 1)
            for head in range(self.n_heads):
                if self.n_heads > 1:
                    self.context.rewind(self._read.n)
                    self.context.set_head(head)
                self.context.decode(tokens[start:stop], 0, rows)
            self._read.n = self.context.n_past
        self.target.drop_hidden(stop - 1)

    def _bound(self, reading: bool) -> None:
        """Called after each target decode: never let more than N_BATCH hidden rows gather."""
        tokens = self.target.tokens
        if self.target.n_hidden < N_BATCH:
            return
        if reading:
            self._read.new_text(tokens)
            self._catch_up(tokens, self._read.unread(tokens, len(tokens)), len(tokens))
        else:
            self.target.drop_hidden(len(tokens) - N_BATCH)

    def reset(self, history: Sequence[int], chain: Chain, rng: Random) -> None:
        """A new reply: the history may have changed anywhere."""
        self._new_picker = partial(_Picker, chain, self.target.model.n_vocab, self.p_min, rng)
        self._read.new_text(history)

    def shift(self, n_keep: int, n_discard: int) -> None:
        """Forget the same part of the history."""
        self._read.shift(n_keep, n_discard)
