"""What a web server's answer to a request for a range means: which bytes follow, or why none do."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from gguftools.errors import SourceError

SECONDS_WAIT_MAX = 30.0  # longer than that nobody waits unasked
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_EMPTY = re.compile(r"bytes \*/([0-9]{1,18})")
_LENGTH = re.compile(r"[0-9]{1,18}")
_LATER = (408, 429, 500, 502, 503, 504)

# The Hub's X-Error-Code, and what to do.
_CODES = {
    "GatedRepo": ("the repository is gated", "accept its terms on the Hub and set HF_TOKEN"),
    "RepoNotFound": ("no such repository", "check the name; for a private one set HF_TOKEN"),
    "RevisionNotFound": ("no such revision", ""),
    "EntryNotFound": ("no such file", ""),
}
_STATUSES = {
    401: ("the server wants a login (401)", "for the Hub set HF_TOKEN"),
    403: ("the server forbids it (403)", "for the Hub: does the HF_TOKEN allow reading it?"),
    404: ("no such file (404)", ""),
    410: ("no such file any more (410)", ""),
    429: ("too many requests (429)", "try again later"),
}


class AgainError(Exception):
    """Nothing came now, but it may: after `seconds`, None where the server does not say."""

    def __init__(self, what: str, *, seconds: float | None = None, hint: str = "") -> None:
        super().__init__(what)
        self.seconds = seconds
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Answer:
    """What follows: up to byte `end` of the file, the first `n_skip` bytes not asked for."""

    is_range: bool
    n_skip: int
    end: int | None
    n_bytes: int | None  # of the whole file
    tag: str | None


def read_answer(response: Any, pos: int, where: str) -> Answer:
    """What follows the head of an answer to a request for the bytes from `pos` on."""
    status, headers = response.status_code, response.headers
    if status not in (200, 206, 416):
        raise _refusal(status, headers, where)
    if headers.get("Content-Encoding", "identity") != "identity":
        what = f"the server sends it compressed ({headers['Content-Encoding'][:20]})"
        raise SourceError(what, where=where, hint="download the file and name the copy")
    tag = headers.get("ETag")
    if status == 200:
        length = _LENGTH.fullmatch(headers.get("Content-Length", ""))
        n_bytes = int(length[0]) if length else None
        return Answer(False, pos, n_bytes, n_bytes, tag)
    if status == 416:
        empty = _EMPTY.fullmatch(headers.get("Content-Range", ""))
        return Answer(True, 0, pos, int(empty[1]) if empty else pos, tag)
    found = _RANGE.fullmatch(headers.get("Content-Range", ""))
    if found is None or int(found[1]) != pos:
        raise SourceError("the server sends another range than the one asked for", where=where)
    n_bytes = None if found[3] == "*" else int(found[3])
    return Answer(True, 0, int(found[2]) + 1, n_bytes, tag)


def _refusal(status: int, headers: Any, where: str) -> Exception:
    """An error by its own name, by its number, or one that may pass."""
    what, hint = _CODES.get(headers.get("X-Error-Code", "")) or _STATUSES.get(status) or ("", "")
    what = what or f"the {'Hub' if where.startswith('hf://') else 'server'} answered {status}"
    if status not in _LATER:
        return SourceError(what, where=where, hint=hint)
    seconds = _retry_after(headers)
    if seconds is not None and seconds > SECONDS_WAIT_MAX:
        wait = f"it asks to wait {min(seconds, 1e9):.0f} s"
        return SourceError(what, where=where, hint=wait)
    return AgainError(what, seconds=seconds, hint=hint)


def _retry_after(headers: Any) -> float | None:
    """Seconds to wait, by Retry-After or by the Hub's RateLimit."""
    text = headers.get("Retry-After", "").strip()
    if _LENGTH.fullmatch(text):
        return float(text)
    if text:
        try:
            return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
        except (ValueError, OverflowError, OSError):
            return None
    limit = re.search(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*([0-9]{1,9})", headers.get("RateLimit", ""))
    return float(limit[1]) if limit else None
