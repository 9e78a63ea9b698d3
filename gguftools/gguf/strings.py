"""The strings of an array as they lie in the file, walked by a regular expression where it can be.

A loop in Python takes twice as long for the same walk, and a vocabulary has 262144 strings.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

ByteOrder = Literal["<", ">"]

RUN = 256  # strings per match, and between two marks

# Lengths from the commonest among token texts on: alternatives are tried in this order.
_LENGTHS = (6, 5, 7, 4, 8, 3, 9, 10, 11, 12, 2, 13, 14, 15, 16, 1, *range(17, 64))


@dataclass(frozen=True, slots=True)
class StringArray:
    """A string array as it lies in the file: `count` times u64 length + bytes."""

    raw: memoryview
    count: int
    order: ByteOrder = "<"
    type_name: str = "string"
    # Where each RUN-th string begins; empty: nobody noted it.
    marks: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        unpack = struct.Struct(f"{self.order}Q").unpack_from
        for n, start, end in self.runs():
            # One copy of each run: slices of bytes are made twice as fast as those of a view.
            raw, pos = bytes(self.raw[start:end]), 0
            for _ in range(n):
                begin = pos + 8
                pos = begin + unpack(raw, pos)[0]
                yield raw[begin:pos]

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """RUN strings at a time: how many these are, where they begin and end."""
        if not self.marks:
            yield self.count, 0, len(self.raw)
        for i, start in enumerate(self.marks):
            end = self.marks[i + 1] if i + 1 < len(self.marks) else len(self.raw)
            yield min(RUN, self.count - i * RUN), start, end

    def same_as(self, other: StringArray) -> bool:
        """Whether both hold the same texts, by one comparison of memory."""
        return (self.count, self.order) == (other.count, other.order) and self.raw == other.raw


@cache
def short_run() -> re.Pattern[bytes]:
    """RUN little-endian strings of less than 64 bytes."""
    return re.compile(rb"(?:%s|\0{8}){%d}+" % (_alternatives(rb"."), RUN), re.DOTALL)


@cache
def short_text() -> re.Pattern[bytes]:
    """One little-endian string of 1 to 63 bytes, none of them NUL, with its length before it."""
    return re.compile(_alternatives(rb"[^\0]"))


def _alternatives(char: bytes) -> bytes:
    return b"|".join(rb"\x%02x\0{7}%s{%d}" % (n, char, n) for n in _LENGTHS)
