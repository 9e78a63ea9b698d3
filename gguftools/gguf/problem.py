"""A finding about a file: what is wrong, how bad, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
_CHARS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding; `code` is stable, `hint` is the user's next step.

    Messages quote names from the file, so each is made one printable line of bounded length.
    """

    code: str
    severity: Severity
    message: str
    hint: str = ""

    def __post_init__(self) -> None:
        if not self.message.isprintable() or len(self.message) > _CHARS_MAX:
            object.__setattr__(self, "message", _one_line(self.message))


def _one_line(text: str) -> str:
    shown = text if len(text) <= _CHARS_MAX else text[: _CHARS_MAX - 3] + "..."
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown
    )
