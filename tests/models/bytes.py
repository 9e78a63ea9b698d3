"""Writes GGUF headers byte by byte, so that every field can lie."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
LETTERS = {
    U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?",
    U64: "Q", I64: "q", F64: "d",
}  # fmt: skip

Scalar = int | float | bool


def string(text: str | bytes, *, length: int | None = None, order: str = "<") -> bytes:
    """u64 length and bytes; `length` is what it claims."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(f"{order}Q", len(raw) if length is None else length) + raw


def scalar(type_id: int, value: Scalar | str | bytes, *, order: str = "<") -> bytes:
    """A value without its type."""
    if isinstance(value, str | bytes):
        return string(value, order=order)
    return struct.pack(order + LETTERS[type_id], value)


def entry(
    key: str | bytes, type_id: int, value: Scalar | str | bytes, *, order: str = "<"
) -> bytes:
    """One metadata entry."""
    type_and_value = struct.pack(f"{order}I", type_id) + scalar(type_id, value, order=order)
    return string(key, order=order) + type_and_value


def array(
    key: str | bytes,
    type_id: int,
    values: Sequence[Scalar | str | bytes],
    *,
    count: int | None = None,
    order: str = "<",
) -> bytes:
    """One metadata entry that is an array; `count` is what it claims."""
    claimed = len(values) if count is None else count
    head = struct.pack(f"{order}IIQ", ARRAY, type_id, claimed)
    items = b"".join(scalar(type_id, value, order=order) for value in values)
    return string(key, order=order) + head + items


def tensor(
    name: str | bytes,
    shape: Sequence[int],
    type_id: int = 0,
    offset: int = 0,
    *,
    n_dims: int | None = None,
    order: str = "<",
) -> bytes:
    """One row of the tensor table; `n_dims` is what it claims."""
    claimed = len(shape) if n_dims is None else n_dims
    return (
        string(name, order=order)
        + struct.pack(f"{order}I{len(shape)}Q", claimed, *shape)
        + struct.pack(f"{order}IQ", type_id, offset)
    )


def header(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
    order: str = "<",
) -> bytes:
    """A whole header; the counts are what it claims."""
    counts = struct.pack(
        f"{order}IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_entries is None else n_entries,
    )
    return magic + counts + b"".join(entries) + b"".join(tensors)


def padded(raw: bytes, alignment: int = 32) -> bytes:
    """Zero bytes up to the next multiple."""
    return raw + bytes(-len(raw) % alignment)
