"""A finding about a file: what is wrong, how bad, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding; `code` is stable, `hint` is the user's next step."""

    code: str
    severity: Severity
    message: str
    hint: str = ""
