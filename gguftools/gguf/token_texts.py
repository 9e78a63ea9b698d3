"""Token texts as llama.cpp holds them, and whether two of them are equal.

They are C strings, cut at the first NUL, `[EMPTY_<id>]` if empty.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain

from gguftools.gguf.strings import RUN, StringArray, short_text

N_TOKENS_CHECKED = 1 << 19  # twice the largest vocabulary in use
_MANY_BYTES = 4 << 20  # of a vocabulary this long only the hashes of its texts are kept


def token_texts(tokens: StringArray, first: int = 0, offset: int = 0) -> list[bytes]:
    """The texts from id `first` on, whose entry lies `offset` bytes into the array."""
    # From one copy: slicing bytes is what costs least.
    unpack, data, pos = struct.Struct(f"{tokens.order}Q").unpack_from, bytes(tokens.raw), offset
    texts = []
    for _ in range(first, tokens.count):
        start = pos + 8
        pos = start + unpack(data, pos)[0]
        texts.append(data[start:pos])
    return _c_texts(texts, first)


def first_duplicate(tokens: StringArray) -> tuple[int, int] | None:
    """The first token whose text came before, behind the id where it did; in little memory."""
    if _distinct(tokens):
        return None
    hashes: set[int] = set()
    for i, entry in enumerate(chain.from_iterable(_entries(tokens))):
        n = len(hashes)
        hashes.add(hash(entry))
        if len(hashes) == n:
            for j, earlier in zip(range(i), chain.from_iterable(_entries(tokens)), strict=False):
                if earlier == entry:
                    return j, i
    return None


def _distinct(tokens: StringArray) -> bool:
    """Whether the texts surely differ. Of very long lists only the hashes are kept."""
    seen: set[bytes | int] = set()
    many = len(tokens.raw) > _MANY_BYTES
    for entries in _entries(tokens):
        seen.update(map(hash, entries) if many else entries)
    return len(seen) == len(tokens)


def _entries(tokens: StringArray) -> Iterator[list[bytes]]:
    """The texts as llama.cpp takes them, each behind its length, some hundred at a time.

    Most are short and without NUL, so that a regular expression finds them as they lie there.
    """
    find, first, n_missed = short_text().findall, 0, 0
    for n, start, end in tokens.runs():
        # Where texts are not of this kind, searching for them costs more than it saves.
        quick = tokens.order == "<" and n_missed <= 4 + first // (2 * RUN)
        found: list[bytes] = find(tokens.raw, start, end) if quick else []
        if sum(map(len, found)) != end - start:
            n_missed += 1
            texts = _c_texts([*StringArray(tokens.raw[start:end], n, tokens.order)], first)
            found = [struct.pack("<Q", len(text)) + text for text in texts]
        yield found
        first += n


def _c_texts(texts: list[bytes], first: int) -> list[bytes]:
    """Texts from id `first` on, cut at the first NUL; empty ones get a name."""
    if b"\0" in b"".join(texts):
        texts = [text.partition(b"\0")[0] for text in texts]
    if b"" in texts:
        texts = [text or b"[EMPTY_%d]" % i for i, text in enumerate(texts, first)]
    return texts
