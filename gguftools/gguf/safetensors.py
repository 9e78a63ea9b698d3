"""Reads what a safetensors header says: names, types, shapes. Pure; hostile bytes are an error."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from gguftools.errors import FormatError

HEADER_BYTES_MAX = 100_000_000  # the format's own limit
LENGTH = struct.Struct("<Q")
# The largest known checkpoints stay far below; past it the parsed header would fill the memory.
_N_BRACKETS_MAX = 1_000_000
_N_COMMAS_MAX = 4_000_000
_N_DIMS_MAX = 8


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """One tensor of a checkpoint; `shape` in PyTorch order, None where only the index names it.

    `listed` tells whether llama.cpp's converter reads it: from a file that the index names, or
    without an index from model*.safetensors.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    file: str
    listed: bool = True

    @property
    def packed(self) -> bool:
        """Whether integers stand for quantized weights, so that the shape is not the model's."""
        return self.dtype in ("U8", "I8", "I16", "I32", "I64", "U16", "U32", "U64", "F4")


def header_length(start: bytes, *, n_bytes: int | None, where: str) -> int:
    """The length of the JSON, from the first 8 bytes of a file of `n_bytes` (None: unknown)."""
    if len(start) < LENGTH.size:
        raise FormatError(f"it has {len(start)} bytes, too few for a safetensors file", where=where)
    n: int = LENGTH.unpack_from(start)[0]
    if start.startswith((b"version ", b"<!DOCTYP", b"<html")):
        raise FormatError("a Git LFS pointer or a web page, not a safetensors file", where=where,
                          hint="download the file itself")  # fmt: skip
    if not 2 <= n <= HEADER_BYTES_MAX:
        raise FormatError(f"it claims a safetensors header of {n} bytes", where=where)
    if n_bytes is not None and n > n_bytes - LENGTH.size:
        what = f"its safetensors header needs {n} bytes, the file has {n_bytes - LENGTH.size}"
        raise FormatError(what, where=where, hint="is the download complete?")
    return n


def parse_header(raw: bytes, *, n_data: int | None, where: str, file: str) -> list[SourceTensor]:
    """The tensors of a header; with `n_data` known, none may end beyond the file."""
    rows = json_object(raw, where=where)
    return [
        _tensor(name, row, n_data, where, file)
        for name, row in rows.items()
        if name != "__metadata__"
    ]


def json_object(raw: bytes, *, where: str) -> dict[str, Any]:
    """A JSON object, or a FormatError; deep nesting and a flood of values included."""
    if raw.count(b"[") + raw.count(b"{") > _N_BRACKETS_MAX or raw.count(b",") > _N_COMMAS_MAX:
        raise FormatError("JSON with more values than any model has", where=where)
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as err:
        what = "not JSON" if isinstance(err, ValueError) else "JSON nested too deep"
        raise FormatError(what, where=where) from err
    if not isinstance(value, dict):
        raise FormatError("not a JSON object", where=where)
    return value


def _tensor(name: str, row: Any, n_data: int | None, where: str, file: str) -> SourceTensor:
    if not isinstance(row, dict):
        raise FormatError(f"tensor {name!r} has no description", where=where)
    dtype: Any = row.get("dtype")
    shape: Any = row.get("shape")
    offsets: Any = row.get("data_offsets")
    if not isinstance(dtype, str) or not dtype.isascii() or len(dtype) > 16:
        raise FormatError(f"tensor {name!r} has no dtype", where=where)
    if not _sizes(shape) or len(shape) > _N_DIMS_MAX:
        raise FormatError(f"tensor {name!r} has the shape {str(shape)[:80]}", where=where)
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(f"tensor {name!r} has no data_offsets", where=where)
    if n_data is not None and offsets[1] > n_data:
        what = f"tensor {name!r} ends at byte {offsets[1]} of {n_data}"
        raise FormatError(what, where=where, hint="is the download complete?")
    return SourceTensor(name, dtype, tuple(shape), file)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**63 for n in value
    )
