"""The one tree of exceptions. Each says what, where and what next, and knows its exit code.

GGUFToolsError
    UsageError      2  the request itself makes no sense
    RefusedError    1  the answer is no: checked, and llama.cpp would fail or abort
    SourceError     3  a file is not there or cannot be read
    FormatError     3  bytes that are not a GGUF header
    EngineError     3  llama.cpp failed at something we had checked
"""

from __future__ import annotations

__all__ = [
    "EngineError",
    "FormatError",
    "GGUFToolsError",
    "RefusedError",
    "SourceError",
    "UsageError",
]


class GGUFToolsError(Exception):
    """Anything gguftools reports to a user: `what`, `where` (file, offset, flag), `hint` (next)."""

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what}" + (f" ({self.hint})" if self.hint else "")


class UsageError(GGUFToolsError):
    """A request that cannot be meant: misuse, exit code 2."""

    exit_code = 2


class RefusedError(GGUFToolsError):
    """A file or pair that fails our check, so llama.cpp never sees it: exit code 1."""

    exit_code = 1


class SourceError(GGUFToolsError):
    """A file that is missing, not a file, or not readable."""


class FormatError(GGUFToolsError):
    """Bytes that are not a GGUF header we can trust."""


class EngineError(GGUFToolsError):
    """llama.cpp refused or failed at run time."""
