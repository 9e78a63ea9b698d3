"""Prompt-lookup drafter: what followed the last time these tokens stood here. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from gguftools.speculative.drafting import NOTHING, Draft
from gguftools.speculative.sampling import Chain

N_MIN = 2
N_MAX = 4
N_EXTEND_MAX = 16


class NgramDrafter:
    """Looks the last N_MAX .. n_min tokens up in the text so far; needs no model."""

    name = "ngram"
    n_max = 1 << 10

    def __init__(self, n_min: int = N_MIN) -> None:
        self._n_min = n_min
        self._ends: dict[tuple[int, ...], int] = {}  # n-gram -> place after its last occurrence
        self._n_seen = 0
        self._match: int | None = None

    def reset(self, history: Sequence[int], chain: Chain, rng: Random) -> None:
        """A new reply: index its history from the start."""
        self._forget()

    def shift(self, n_keep: int, n_discard: int) -> None:
        """All places moved: index what is left."""
        self._forget()

    def _forget(self) -> None:
        self._ends.clear()
        self._n_seen = 0
        self._match = None

    def draft(
        self,
        history: Sequence[int],
        n_max: int,
        proceed: Callable[[int, float | None], bool],
    ) -> Draft:
        """Up to n_max tokens that followed the longest match; its length gives the confidence."""
        self._index(history)
        start = self._match
        if start is None or n_max <= 0:
            return NOTHING
        n_match = _match_length(history, start)
        tokens: list[int] = []
        confidence: list[float | None] = []
        for place in range(start, start + n_max):
            beyond = place - len(history)  # a match that reaches the end goes on in the draft
            tokens.append(history[place] if beyond < 0 else tokens[beyond])
            confidence.append(1 - 1 / (1 + n_match + len(tokens)))
            if not proceed(len(tokens), confidence[-1]):
                break
        return Draft(tuple(tokens), None, tuple(confidence), (0.0,) * len(tokens))

    def _index(self, history: Sequence[int]) -> None:
        """Enter the n-grams of the new tokens; keep where the longest of the last one stood before.

        Every n-gram is hashed once: what is entered for a token was looked up for the draft.
        """
        for end in range(self._n_seen + 1, len(history) + 1):
            self._match = None
            for n in range(self._n_min, min(N_MAX, end) + 1):
                ngram = tuple(history[end - n : end])
                self._match = self._ends.get(ngram, self._match)
                self._ends[ngram] = end
        self._n_seen = len(history)


def _match_length(history: Sequence[int], start: int) -> int:
    """How many tokens before `start` equal those at the end of the text."""
    n = 0
    while n < min(N_EXTEND_MAX, start) and history[start - 1 - n] == history[-1 - n]:
        n += 1
    return n
