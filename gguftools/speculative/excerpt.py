"""What a drafter's context has read of a text: its start, perhaps a gap, and its recent past."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from gguftools.speculative.context import Context
from gguftools.speculative.controller import CATCH_UP_MAX


class Excerpt:
    """The first `n` cached tokens are text[:gap_at] + text[gap_at + gap : n + gap]."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.n = self.gap_at = self.gap = 0
        self._is_new = True

    def new_text(self, text: Sequence[int]) -> None:
        """Another reply begins: the text may differ anywhere from the one before."""
        n = common_prefix(self.context.tokens[: self.n], text)
        if self.gap and n >= self.gap_at:
            cached = self.context.tokens[self.gap_at : self.n]
            n = self.gap_at + common_prefix(cached, text[self.gap_at + self.gap :])
        self._cut(n)
        self._is_new = True

    def _cut(self, n: int) -> None:
        self.n = n
        if n < self.gap_at:
            self.gap_at = self.gap = 0

    def unread(self, text: Sequence[int], stop: int) -> int:
        """Cut the cache to what it shares with text[:stop]; the place from which to read on.

        The first reading of a new text leaves nothing out.
        """
        cached = self.context.tokens
        n = max(min(self.n, stop - self.gap, len(cached)), 0)
        if not self.context.is_mtp:  # there, drafted tokens were read with rows that are not true
            n += common_prefix(cached[n:], text[n + self.gap : stop])
        self._cut(self.context.rewind(n))
        if not self._is_new and stop - self.gap - self.n > CATCH_UP_MAX:
            self.n = self.gap_at = self.context.rewind(self.gap_at if self.gap else self.n)
            self.gap = stop - CATCH_UP_MAX - self.n
        self._is_new = False
        return self.n + self.gap

    def shift(self, n_keep: int, n_discard: int) -> None:
        """The text forgets the n_discard tokens after its first n_keep; so does the cache."""
        if self.gap:
            self.n = self.context.rewind(min(self.gap_at, n_keep))
            self.gap_at = self.gap = 0
            return
        self.context.shift(n_keep, n_discard)
        if self.n > n_keep:
            self.n = max(self.n - n_discard, n_keep)
        self.n = min(self.n, self.context.n_past)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
