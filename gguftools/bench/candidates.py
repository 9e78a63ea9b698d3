"""Which drafters can be tried for a target: named files, its own head, lookup. Headers alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gguftools.bench.tuning import Choice
from gguftools.errors import RefusedError
from gguftools.gguf.header import Header
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.source import open_gguf
from gguftools.pairing.compatibility import Pair, check_pair

DRAFT_MAX = 8  # where adapting starts from, as run and chat do
_DRAFTERS = {"draft-simple": "draft", "draft-mtp": "mtp"}


def candidates(
    target: Header, drafts: Sequence[Path], drafter: str
) -> tuple[list[Choice], list[str]]:
    """The choices that may be tried, and notes on what may not.

    RefusedError where that leaves none. `drafter` other than auto leaves only that kind.
    """
    found: list[Choice] = []
    notes: list[str] = []
    for path in drafts:
        pair = check_pair(target, open_gguf(path))
        if reason := _unusable(pair, drafter):
            notes.append(f"{path.name} is left out: {reason}")
        else:
            found.append(Choice(_DRAFTERS[pair.kind or ""], str(path), DRAFT_MAX))
    report = mtp_report(target)
    if report.runnable and drafter in ("auto", "mtp"):
        found.append(Choice("mtp", None, DRAFT_MAX))
    if drafter in ("auto", "ngram"):
        found.append(Choice("ngram", None, DRAFT_MAX))
    if not found:
        raise RefusedError("; ".join(notes) or report.reason or "nothing can draft",
                           where=target.path, hint=f"gguftools pair {target.path}")  # fmt: skip
    return found, notes


def _unusable(pair: Pair, drafter: str) -> str:
    """Why a file cannot be tried, empty if it can."""
    if pair.verdict == "blocked":
        return pair.reason
    if pair.kind not in _DRAFTERS or pair.commands["gguftools"] is None:
        return f"{pair.kind} runs in llama-server only"
    ours = _DRAFTERS[pair.kind]
    return "" if drafter in ("auto", ours) else f"it is a {pair.kind}, not what was asked for"
