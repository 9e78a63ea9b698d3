"""What a GGUF header says: metadata, tensor table, files. Arrays stay as they lie in the file."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import TypeVar, cast

from gguftools.gguf.ggml_types import GGMLType
from gguftools.gguf.strings import ByteOrder, StringArray

__all__ = [
    "Array",
    "ByteOrder",
    "Header",
    "LongText",
    "NumericArray",
    "Shard",
    "StringArray",
    "TensorInfo",
    "Value",
    "once",
]

Fact = TypeVar("Fact")

DEFAULT_ALIGNMENT = 32
ARCHITECTURE_CHARS_MAX = 64  # the longest name llama.cpp knows has 21
LONG_TEXT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class NumericArray:
    """A numeric or bool array as it lies in the file."""

    raw: memoryview
    count: int
    type_name: str
    letter: str
    order: ByteOrder = "<"

    def __len__(self) -> int:
        return self.count

    def values(self) -> tuple[int | float | bool, ...]:
        """All elements, decoded."""
        return struct.unpack(f"{self.order}{self.count}{self.letter}", self.raw)


@dataclass(frozen=True, slots=True)
class LongText:
    """A text that is not decoded until asked for: as str it could take four times the bytes."""

    raw: memoryview

    @property
    def head(self) -> str:
        """Its first 4 MiB, far more than a chat template has."""
        return str(self.raw[:LONG_TEXT_BYTES], "utf-8", "replace")


Array = StringArray | NumericArray
Value = int | float | bool | str | LongText | Array


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One row of the tensor table; `shape` in ggml order (ne[0] first), `offset` in its file."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int  # bytes from the start of the data section
    shard: int = 0

    @property
    def n_elements(self) -> int:
        """Product of the shape."""
        n = 1
        for dim in self.shape:
            n *= dim
        return n

    @property
    def n_bytes(self) -> int | None:
        """Bytes of the data, None for an unknown type."""
        if not self.type.known:
            return None
        return self.n_elements // self.type.block_elements * self.type.block_bytes


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a model."""

    path: str
    n_bytes: int
    data_offset: int
    n_tensors: int
    alignment: int = DEFAULT_ALIGNMENT


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a model says; for a split model the union of its files.

    `metadata` is that of the first file, `types` names the value type of each key, `tensors` is in
    file order, `shards` has one entry per file (`TensorInfo.shard` points into it).
    """

    version: int
    order: ByteOrder
    alignment: int
    metadata: dict[str, Value]
    types: dict[str, str]
    tensors: dict[str, TensorInfo]
    shards: tuple[Shard, ...]
    found: dict[object, object] = field(  # facts already derived, see `once`
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def path(self) -> str:
        """The first file, for messages."""
        return self.shards[0].path

    @property
    def architecture(self) -> str:
        """`general.architecture`, empty if absent or not a string; cut where no name goes on."""
        return self.text("general.architecture")[:ARCHITECTURE_CHARS_MAX]

    def text(self, key: str) -> str:
        """A string value, empty if absent or of another type; of a very long one its beginning."""
        value = self.metadata.get(key)
        if isinstance(value, LongText):
            return value.head
        return value if isinstance(value, str) else ""

    def integer(self, key: str) -> int | None:
        """An integer value, None if absent or of another type (bool is not an integer)."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def arch_key(self, suffix: str) -> str:
        """The key `{architecture}.{suffix}`."""
        return f"{self.architecture}.{suffix}"


def once(derive: Callable[[Header], Fact]) -> Callable[[Header], Fact]:
    """A fact that follows from a header alone and does not change: derived when first asked for."""

    @wraps(derive)
    def known(header: Header) -> Fact:
        if derive not in header.found:
            header.found[derive] = derive(header)
        return cast(Fact, header.found[derive])

    return known
