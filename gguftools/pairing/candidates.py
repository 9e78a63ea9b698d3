"""Opens each candidate of a target, one after the other, and says what it is worth. I/O.

Only one draft's header is held at a time: a vocabulary takes megabytes, and there may be hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gguftools.errors import GGUFToolsError
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.place import is_remote, open_model
from gguftools.gguf.reader import Header
from gguftools.pairing.compatibility import (
    Pair,
    check_head,
    check_ngram,
    check_pair,
    check_stranger,
)
from gguftools.pairing.ranking import Question, expect, ranked

NAMED = "named"
UNREADABLE = "file"  # the rule of a draft whose header cannot be read


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that may draft, and how it came to be asked about."""

    place: str
    origin: str = NAMED


def judge(
    target: Header,
    drafts: Sequence[Draft],
    question: Question,
    *,
    opened: Callable[[int, int], None] = lambda done, total: None,
) -> list[Pair]:
    """Every draft, the target's own MTP head and n-gram lookup, the best first."""
    return ranked(map(_at_hand, _pairs(target, drafts, question, opened)))


def _pairs(
    target: Header, drafts: Sequence[Draft], question: Question, opened: Callable[[int, int], None]
) -> Iterator[Pair]:
    why = broken(target)
    if why:
        reason = f"llama.cpp does not load the target: {why}"
        for draft in drafts:
            yield _blocked(target, draft, "target", reason)
        return
    for done, draft in enumerate(drafts):
        opened(done, len(drafts))
        yield _candidate(target, draft, question)
    if mtp_report(target).state != "none":
        yield expect(check_head(target), target, None, question)
    yield expect(check_ngram(target), target, None, question)


def _candidate(target: Header, draft: Draft, question: Question) -> Pair:
    """One draft; a file that cannot be read is blocked and does not stop the others."""
    try:
        header = open_model(draft.place)
    except GGUFToolsError as err:
        reason = str(err).removeprefix(draft.place).lstrip(": ")
        return _blocked(target, draft, UNREADABLE, reason)
    pair = check_stranger(target, header, build=question.build)
    if pair is not None:
        return replace(pair, draft=draft.place, origin=draft.origin)
    if why := broken(header):
        return _blocked(target, draft, "draft", f"llama.cpp does not load the draft: {why}")
    pair = expect(check_pair(target, header, build=question.build), target, header, question)
    return replace(pair, draft=draft.place, origin=draft.origin)


def _at_hand(pair: Pair) -> Pair:
    """No engine starts a pair whose files are elsewhere."""
    away = [place for place in (pair.target, pair.draft) if place and is_remote(place)]
    if not away or not any(pair.commands.values()):
        return pair
    commands: dict[str, str | None] = dict.fromkeys(pair.commands)
    note = f"only headers were read: download {' and '.join(away)} to run the pair"
    return replace(pair, commands=commands, notes=(*pair.notes, note))


def _blocked(target: Header, draft: Draft, rule: str, reason: str) -> Pair:
    pair = Pair(target.path, draft.place, None, "blocked", rule, reason)
    return replace(pair, origin=draft.origin)


def broken(header: Header) -> str:
    """What is wrong with the file itself, empty for an intact one."""
    problems = check_integrity(header)
    return next((p.message for p in problems if p.severity == "error"), "")
