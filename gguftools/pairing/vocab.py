"""Whether llama.cpp lets this pair draft: its five rules in its order, with ids and texts.

The rules are those of common_speculative_are_compatible (common/speculative.cpp, b11434). Where
upstream names the failing token only in its debug log, VocabMatch carries it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from itertools import islice
from operator import ne

from gguftools.gguf.tokenizer import Vocab
from gguftools.pairing.vocab_rules import (
    FIRST_NEW_FLAGS,
    LAST_OLD_FLAGS,
    LAST_OLD_LIMIT,
    N_VOCAB_DIFF_MAX,
    N_VOCAB_DIFF_MAX_OLD,
    Rules,
    rules_of,
)

FIRST_ID_CHECKED = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID, common/speculative.cpp, b11434
TEXT_CHARS_MAX = 60
# Names that converters and model makers give to rows without a meaning.
_PADDING = re.compile(rb"\W*(?:pad|unused|reserved|dummy|extra)\D*\d+\W*", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"^[\[<]\W*(PAD|unused|reserved|extra_id|EMPTY)", re.IGNORECASE)
N_FEW_DIFFERENCES = 16  # so few texts apart, two lists are one vocabulary converted twice


@dataclass(frozen=True, slots=True)
class VocabMatch:
    """The answer: `rule` is None for a pair that may draft, else the first rule it fails.

    `n_checked` ids were found equal before the answer was known; `n_different` texts differ among
    the ids that both have (counted from id 5 on, as upstream does). Notes do not change the answer.
    """

    rule: str | None
    reason: str
    token_id: int | None = None
    target_text: str | None = None
    draft_text: str | None = None
    n_checked: int = 0
    n_different: int = 0
    notes: tuple[str, ...] = ()

    @property
    def matches(self) -> bool:
        """Whether llama.cpp accepts the pair."""
        return self.rule is None


def match_vocab(target: Vocab, draft: Vocab, build: int | None = None) -> VocabMatch:
    """The first of llama.cpp's five rules that the pair fails, or none; those of an old build."""
    rules = rules_of(build)
    return (
        _match_type(target, draft, rules)
        or _match_special(target, draft, "bos", rules)
        or _match_special(target, draft, "eos", rules)
        or _match_size(target, draft, rules)
        or _match_texts(target, draft, rules)
    )


def match_tokens(target: Vocab, draft: Vocab) -> VocabMatch:
    """The rules about the token list alone: for heads that are fed with the target's own tokens."""
    rules = Rules()
    return (
        _match_type(target, draft, rules)
        or _match_size(target, draft, rules)
        or _match_texts(target, draft, rules)
    )


def printable(text: bytes) -> str:
    """Token bytes as text that is safe to print: escapes for all that is not, cut when long."""
    chars = text[: 4 * TEXT_CHARS_MAX].decode("utf-8", "backslashreplace")
    safe = "".join(c if c.isprintable() else _escape(c) for c in chars)
    return safe if len(safe) <= TEXT_CHARS_MAX else safe[:TEXT_CHARS_MAX] + "..."


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _match_type(target: Vocab, draft: Vocab, rules: Rules) -> VocabMatch | None:
    for vocab, whose in ((target, "target"), (draft, "draft")):
        if vocab.type in ("", "NONE"):
            reason = (
                f"the {whose} has no vocabulary: its tokenizer.ggml.model is {vocab.model[:40]!r}"
            )
            return VocabMatch("vocab-type", reason)
    if target.type == draft.type or not rules.types:
        return None
    return VocabMatch(
        "vocab-type",
        f"the draft's vocabulary is {draft.type} ({draft.model}), "
        f"the target's is {target.type} ({target.model})",
    )


def _match_special(target: Vocab, draft: Vocab, which: str, rules: Rules) -> VocabMatch | None:
    """BOS or EOS: the flag must be equal, and the id where the flag is on (once: everywhere)."""
    name = which.upper()
    if which == "bos":
        flags, ids = (target.add_bos, draft.add_bos), (target.bos, draft.bos)
    else:
        flags, ids = (target.add_eos, draft.add_eos), (target.eos, draft.eos)
    compared = flags[0] or rules.unused_ids
    if flags[0] == flags[1] and (not compared or ids[0] == ids[1]):
        return None
    texts = [_text_of(vocab, i) for vocab, i in zip((target, draft), ids, strict=True)]
    if flags[0] != flags[1]:
        adds, not_ = ("target", "draft") if flags[0] else ("draft", "target")
        shown = _named(ids[0], texts[0]) if flags[0] else _named(ids[1], texts[1])
        reason = f"the {adds} adds {name} ({shown}) to every prompt, the {not_} does not"
    else:
        why = "both add it" if flags[0] else (
            f"builds up to b{LAST_OLD_FLAGS} compare it although neither adds it"
        )  # fmt: skip
        reason = (f"{name} is {_named(ids[0], texts[0])} in the target and "
                  f"{_named(ids[1], texts[1])} in the draft, and {why}")  # fmt: skip
    notes = tuple(_pre_note(target, draft))
    return VocabMatch(which, reason, ids[0], texts[0], texts[1], notes=notes)


def _named(token_id: int | None, text: str | None) -> str:
    return "no token" if token_id is None else f"id {token_id}, {text!r}"


def _text_of(vocab: Vocab, token_id: int | None) -> str | None:
    if token_id is None:
        return None
    return printable(next(islice(iter(vocab.tokens), token_id, None)) or b"[EMPTY_%d]" % token_id)


def _match_size(target: Vocab, draft: Vocab, rules: Rules) -> VocabMatch | None:
    n_target, n_draft = target.n_tokens, draft.n_tokens
    if abs(n_target - n_draft) <= rules.n_diff_max:
        return None
    n_shared = min(n_target, n_draft)
    found = _differences(target, draft)
    if found is None:
        note = f"the first {n_shared} token texts are equal: the longer list only goes on"
    else:
        note = (f"the texts differ too, first at id {found.token_id}: {found.target_text!r} in the "
                f"target, {found.draft_text!r} in the draft")  # fmt: skip
    return VocabMatch(
        "vocab-size",
        f"the target lists {n_target} tokens and the draft {n_draft}: {abs(n_target - n_draft)} "
        f"apart, {_whose(rules)} allows {rules.n_diff_max}",
        n_different=found.n_different if found else 0,
        notes=(note,),
    )


def _whose(rules: Rules) -> str:
    old = rules.n_diff_max == N_VOCAB_DIFF_MAX_OLD
    return f"llama.cpp up to b{LAST_OLD_LIMIT}" if old else "llama.cpp"


def _match_texts(target: Vocab, draft: Vocab, rules: Rules) -> VocabMatch:
    n_shared = min(target.n_tokens, draft.n_tokens)
    notes = [*_pre_note(target, draft), *_size_notes(target, draft)]
    if rules == Rules():
        notes += _id_notes(target, draft)
    found = _differences(target, draft)
    if found is None:
        n_checked = max(n_shared - FIRST_ID_CHECKED, 0)
        reason = f"{n_checked} token texts are equal and BOS and EOS are handled alike"
        return VocabMatch(None, reason, n_checked=n_checked, notes=tuple(notes))
    if found.n_different <= N_FEW_DIFFERENCES and n_shared > 16 * N_FEW_DIFFERENCES:
        notes.append(_nearly(found))
    what = "1 token text differs, at" if found.n_different == 1 else (
        f"{found.n_different} token texts differ, the first at"
    )  # fmt: skip
    return VocabMatch(
        "token-text",
        f"{what} id {found.token_id}: {found.target_text!r} in the target, "
        f"{found.draft_text!r} in the draft",
        found.token_id,
        found.target_text,
        found.draft_text,
        n_checked=found.token_id - FIRST_ID_CHECKED,
        n_different=found.n_different,
        notes=tuple(notes),
    )


def _nearly(found: _Differences) -> str:
    """What two lists with few differences are to each other, and what to look for."""
    for text, whose in ((found.draft_text, "draft"), (found.target_text, "target")):
        if _PLACEHOLDER.search(text):
            return (f"the {whose} has placeholders where the other has tokens of its own, so it is "
                    "of another generation: take a draft of the target's own series")  # fmt: skip
    return ("nearly the same vocabulary, so probably another conversion or a fine-tune with tokens "
            "of its own: try a draft converted like the target")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Differences:
    token_id: int
    target_text: str
    draft_text: str
    n_different: int


def _differences(target: Vocab, draft: Vocab) -> _Differences | None:
    """The ids from 5 on whose texts differ. What is equal in memory is never looked at."""
    first, offset = _equal_entries(target, draft)
    if first >= min(target.n_tokens, draft.n_tokens):
        return None
    ours, theirs = target.texts(first, offset), draft.texts(first, offset)
    n_free = max(FIRST_ID_CHECKED - first, 0)
    n = min(len(ours), len(theirs))
    ids = [
        i for i, unequal in enumerate(map(ne, ours[n_free:n], theirs[n_free:n]), n_free) if unequal
    ]
    if not ids:
        return None
    i = ids[0]
    return _Differences(first + i, printable(ours[i]), printable(theirs[i]), len(ids))


def _equal_entries(target: Vocab, draft: Vocab) -> tuple[int, int]:
    """How many entries both lists begin with, byte for byte, and where the next one lies."""
    a, b = target.tokens, draft.tokens
    if a.order != b.order or "hybriddna" in (target.model, draft.model):
        return 0, 0
    n_bytes = _equal_bytes(bytes(a.raw), bytes(b.raw))
    shorter = a if len(a.raw) <= len(b.raw) else b
    if n_bytes == len(shorter.raw):
        return shorter.count, n_bytes
    unpack, raw, first, pos = struct.Struct(f"{a.order}Q").unpack_from, bytes(a.raw), 0, 0
    while (end := pos + 8) <= n_bytes and (end := end + unpack(raw, pos)[0]) <= n_bytes:
        first, pos = first + 1, end
    return first, pos


def _equal_bytes(a: bytes, b: bytes) -> int:
    """Length of the common beginning, by halving: comparing memory costs least of all."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _pre_note(target: Vocab, draft: Vocab) -> list[str]:
    if target.pre == draft.pre:
        return []
    ours, theirs = printable(target.pre.encode()), printable(draft.pre.encode())
    return [f"tokenizer.ggml.pre is {ours!r} in the target and {theirs!r} in the draft: no rule of "
            "llama.cpp, the token texts decide"]  # fmt: skip


def _size_notes(target: Vocab, draft: Vocab) -> list[str]:
    n_more = abs(target.n_tokens - draft.n_tokens)
    if not n_more:
        return []
    whose = "target" if target.n_tokens > draft.n_tokens else "draft"
    notes = [f"the {whose} has {n_more} more tokens at the end of its list ({target.n_tokens} in "
             f"the target, {draft.n_tokens} in the draft){_tail(target, draft)}"]  # fmt: skip
    if n_more > N_VOCAB_DIFF_MAX_OLD:
        notes.append(f"builds of llama.cpp that still allow only {N_VOCAB_DIFF_MAX_OLD} tokens of "
                     f"difference refuse this pair; b11434 allows {N_VOCAB_DIFF_MAX}")  # fmt: skip
    return notes


def _tail(target: Vocab, draft: Vocab) -> str:
    """Padding is harmless; a token that only one of the two has must never come up."""
    longer, shorter = sorted((target, draft), key=lambda vocab: -vocab.n_tokens)
    first, offset = _equal_entries(target, draft)
    tail = longer.texts(first, offset)[shorter.n_tokens - first :]
    named = [(i, t) for i, t in enumerate(tail, shorter.n_tokens) if not _PADDING.fullmatch(t)]
    if not named:
        return ": tail padding"
    whose, does = ("target", "reads or writes") if longer is target else ("draft", "drafts")
    first_id, text = named[0]
    return (f", {len(named)} of them with a name of their own, the first {printable(text)!r} at id "
            f"{first_id}: llama-server b11434 aborts when the {whose} {does} one")  # fmt: skip


def _id_notes(target: Vocab, draft: Vocab) -> list[str]:
    """Special tokens that differ unused, which builds before pull 22358 did not forgive."""
    sides = (("BOS", target.bos, draft.bos), ("EOS", target.eos, draft.eos))
    names = [name for name, ours, theirs in sides if ours != theirs]
    if not names:
        return []
    return [f"{' and '.join(names)} differ and are not added: builds of llama.cpp up to "
            f"b{LAST_OLD_FLAGS} refuse this pair, b{FIRST_NEW_FLAGS} does not"]  # fmt: skip
