"""What every engine offers, in this process or behind a URL: sessions whose replies stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gguftools.speculative.stats import Report, Step

StopReason = Literal["eog", "stop", "length", "context", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one token (or of the token that completed a character), and who proposed it."""

    text: str
    drafted: bool


class AnyReply(Protocol):
    """One reply: iterate it once, read the rest at any time."""

    @property
    def text(self) -> str:
        """What was yielded so far."""
        ...

    @property
    def token_ids(self) -> Sequence[int]:
        """Its tokens, as far as the engine names them."""
        ...

    @property
    def stop_reason(self) -> StopReason:
        """Why it ended; `cancelled` until then."""
        ...

    @property
    def report(self) -> Report:
        """Counts and seconds of what was generated so far."""
        ...

    @property
    def steps(self) -> Sequence[Step]:
        """Its rounds of drafting, empty where the engine keeps them to itself."""
        ...

    @property
    def n_ctx(self) -> int:
        """Tokens that the context holds."""
        ...

    def stop(self) -> None:
        """End it soon; from a signal handler or another thread too."""
        ...

    def __iter__(self) -> Iterator[Piece]: ...


class AnySession(Protocol):
    """A target with its drafter, ready to answer."""

    @property
    def drafter_name(self) -> str:
        """Who drafts, `none` where nobody does."""
        ...

    @property
    def draft_max(self) -> int | None:
        """The longest draft, None where it is not ours to say."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know before the first reply."""
        ...

    def reply(
        self,
        messages: Sequence[dict[str, str]] | str,
        n_predict: int,
        *,
        raw: bool = False,
        stop: Sequence[str] = (),
    ) -> AnyReply:
        """Answer the messages, or continue a raw prompt, up to the first of the `stop` strings."""
        ...
