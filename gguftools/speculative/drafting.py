"""What the loop asks of a drafter, and what it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from gguftools.speculative.sampling import Chain, Distribution


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafted tokens, with their distributions where the drafter sampled from them.

    `confidence` is the drafter's own belief in each token, `seconds` the time each took;
    `seconds_catch_up` went into `n_catch_up` tokens the drafter had not seen.
    """

    tokens: tuple[int, ...]
    distributions: tuple[Distribution, ...] | None
    confidence: tuple[float | None, ...]
    seconds: tuple[float, ...]
    n_catch_up: int = 0
    seconds_catch_up: float = 0.0


NOTHING = Draft((), None, (), ())


class Drafter(Protocol):
    """Guesses how a text goes on. It keeps whatever cache it needs in step with `history`."""

    @property
    def name(self) -> str:
        """For reports."""
        ...

    @property
    def n_max(self) -> int:
        """Most tokens it can draft at once."""
        ...

    def reset(self, history: Sequence[int], chain: Chain, rng: Random) -> None:
        """A new reply, drawn with `chain`: `history` may differ anywhere from the one before."""
        ...

    def shift(self, n_keep: int, n_discard: int) -> None:
        """`history` forgot the n_discard tokens after its first n_keep."""
        ...

    def draft(
        self,
        history: Sequence[int],
        n_max: int,
        proceed: Callable[[int, float | None], bool],
    ) -> Draft:
        """Continue `history` by up to n_max tokens, as long as proceed(n_drafted, p) says so."""
        ...
