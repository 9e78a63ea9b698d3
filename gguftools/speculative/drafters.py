"""Draft model and MTP head as drafters on llama.cpp contexts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from time import perf_counter

import numpy as np

from gguftools.speculative.context import N_BATCH, Context
from gguftools.speculative.drafting import NOTHING, Draft
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
        rng: np.random.Generator,
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

    def __init__(
        self, context: Context, n_vocab: int, chain: Chain, p_min: float, rng: np.random.Generator
    ) -> None:
        self.context = context
        self.n_max = context.n_ctx
        n_shared = min(n_vocab, context.model.n_vocab)
        self._new_picker = partial(_Picker, chain, n_shared, p_min, rng)
        self._n_true = 0  # cached tokens that were history when we last looked

    def draft(self, history: Sequence[int], n_max: int, proceed: Proceed) -> Draft:
        """Continue `history`; tokens that only the target knows are read as token 0."""
        n_max = min(n_max, self.context.n_ctx - len(history))
        if n_max <= 0:
            return NOTHING
        started = perf_counter()
        unseen = self._rewind(history)
        n_catch_up, seconds_catch_up = len(unseen) - 1, 0.0
        if n_catch_up > N_CATCH_UP_APART:
            self.context.decode(unseen[:-1])
            unseen = unseen[-1:]
            seconds_catch_up = perf_counter() - started
            started = perf_counter()
        row = self.context.decode(unseen, 1)[0]
        self._n_true = len(history)
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

    def _rewind(self, history: Sequence[int]) -> list[int]:
        """Cut the cache to what it shares with `history`; returns the tokens to decode."""
        cached = self.context.tokens
        n = min(self._n_true, len(history) - 1, len(cached))
        n += common_prefix(cached[n:], history[n : len(history) - 1])
        n = self.context.rewind(n)
        known = self.context.model.n_vocab
        return [t if t < known else 0 for t in history[n:]]

    def reset(self, history: Sequence[int]) -> None:
        """A new reply: the history may have changed anywhere."""
        self._n_true = common_prefix(self.context.tokens[: self._n_true], history)


class MtpDrafter:
    """The target's own MTP head, or a sidecar's: fed with the target's hidden rows.

    The hidden row of position p pairs with token p + 1. Rows are kept by the target's context and
    taken over lazily, in one batch, when the head drafts next (or when N_BATCH have gathered).
    With several chained heads, draft step k runs head k and re-decodes the drafted prefix.
    """

    name = "mtp"

    def __init__(
        self,
        context: Context,
        target: Context,
        chain: Chain,
        p_min: float,
        rng: np.random.Generator,
    ) -> None:
        self.context, self.target = context, target
        self.n_heads = max(context.model.n_layer_nextn, 1)
        self.n_max = self.n_heads if self.n_heads > 1 else context.n_ctx
        self._new_picker = partial(_Picker, chain, target.model.n_vocab, p_min, rng)
        self._n_true = 0  # positions decoded with the target's own hidden rows
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
        self._n_true = self.context.rewind(min(self._n_true, last))
        n_catch_up, seconds_catch_up = last - self._n_true, 0.0
        if n_catch_up > N_CATCH_UP_APART or (n_catch_up and self.n_heads > 1):
            self._catch_up(history, last)
            seconds_catch_up = perf_counter() - started
            started = perf_counter()
        tokens = list(history[self._n_true :])
        rows = self.target.hidden_rows(self._n_true - 1, last)
        picker = self._new_picker(history)
        n_new = len(tokens)
        while picker.take(self._step(tokens, rows, n_new, last), started):
            n = len(picker.tokens)
            if not proceed(n, picker.confidence[-1]) or n >= n_max:
                break
            started = perf_counter()
            tokens.append(picker.tokens[-1])
            rows = np.concatenate([rows, self.context.output_hidden()])
            n_new = 1
        return picker.draft(n_catch_up, seconds_catch_up)

    def _step(self, tokens: list[int], rows: Floats, n_new: int, last: int) -> Floats:
        """Logits after all of `tokens`, of which the head has not seen the last `n_new`."""
        if self.n_heads == 1:
            logits = self.context.decode(tokens[-n_new:], 1, rows[-n_new:])
            self._n_true = max(self._n_true, last + 1)
            return logits.reshape(-1)
        head = len(tokens) - 1
        self.context.rewind(last)
        self.context.set_head(head)
        return self.context.decode(tokens, 1, rows).reshape(-1)

    def _catch_up(self, tokens: Sequence[int], stop: int) -> None:
        """Have the head see `tokens` up to `stop`, with the target's hidden rows."""
        start = self._n_true = self.context.rewind(min(self._n_true, stop))
        if start < stop:
            rows = self.target.hidden_rows(start - 1, stop - 1)
            for head in range(self.n_heads):
                if self.n_heads > 1:
                    self.context.rewind(start)
                    self.context.set_head(head)
                self.context.decode(tokens[start:stop], 0, rows)
            self._n_true = stop
        self.target.drop_hidden(stop - 1)

    def _bound(self) -> None:
        """Called after each target decode: never let more than N_BATCH hidden rows gather."""
        if self.target.n_past - self._n_true >= N_BATCH:
            self._catch_up(self.target.tokens, self.target.n_past)

    def reset(self, history: Sequence[int]) -> None:
        """A new reply: the history may have changed anywhere."""
        self._n_true = common_prefix(self.context.tokens[: self._n_true], history)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
