"""Tensor bytes: read in whole blocks, checked for NaN and Inf, decoded, compared. Uses numpy.

Imported only by deep.py, which is imported only for --deep; a header needs neither.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from gguftools.errors import SourceError
from gguftools.gguf.ggml_types import GGMLType
from gguftools.gguf.header import ByteOrder, Header, TensorInfo

CHUNK_BYTES = 4 << 20
N_DECODED = 1 << 17  # elements decoded at a time, a multiple of every block size

_NATIVE: ByteOrder = "<" if sys.byteorder == "little" else ">"
_NUMBERS = {
    "F32": "f4",
    "F16": "f2",
    "F64": "f8",
    "I8": "i1",
    "I16": "i2",
    "I32": "i4",
    "I64": "i8",
}

Values = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Scale:
    """A float at a byte of each block, as an unsigned number: NaN or Inf with all of `mask`."""

    offset: int
    letter: str
    mask: int


def _f16(*offsets: int) -> tuple[Scale, ...]:
    return tuple(Scale(offset, "u2", 0x7C00) for offset in offsets)


# ggml/src/ggml-common.h, b11434; scales of the types left out have no value that is not finite.
SCALES: dict[str, tuple[Scale, ...]] = {
    "F32": (Scale(0, "u4", 0x7F80_0000),),
    "F16": _f16(0),
    "BF16": (Scale(0, "u2", 0x7F80),),
    "F64": (Scale(0, "u8", 0x7FF0 << 48),),
    "Q4_0": _f16(0),
    "Q4_1": _f16(0, 2),
    "Q5_0": _f16(0),
    "Q5_1": _f16(0, 2),
    "Q8_0": _f16(0),
    "Q8_1": _f16(0, 2),
    "Q2_K": _f16(80, 82),
    "Q3_K": _f16(108),
    "Q4_K": _f16(0, 2),
    "Q5_K": _f16(0, 2),
    "Q6_K": _f16(208),
    "Q8_K": (Scale(0, "u4", 0x7F80_0000),),
    "IQ2_XXS": _f16(0),
    "IQ2_XS": _f16(0),
    "IQ2_S": _f16(0),
    "IQ3_XXS": _f16(0),
    "IQ3_S": _f16(0),
    "IQ1_S": _f16(0),
    # Its f16 lies in the top four bits of four numbers, the exponent in the last two of them.
    "IQ1_M": (Scale(52, "u4", 0x7000_C000),),
    "IQ4_NL": _f16(0),
    "IQ4_XS": _f16(0),
    "TQ1_0": _f16(52),
    "TQ2_0": _f16(64),
    "MXFP4": (Scale(0, "u1", 0xFF),),
    "Q1_0": _f16(0),
    "Q2_0": _f16(0),
}


def nonfinite_blocks(raw: memoryview, kind: GGMLType, order: ByteOrder) -> Indices:
    """The blocks that hold a NaN or Inf, as a scale or as a value."""
    n_blocks = len(raw) // kind.block_bytes
    found = np.zeros(n_blocks, np.bool_)
    for scale in SCALES.get(kind.name, ()):
        bits: npt.NDArray[np.unsignedinteger] = np.ndarray(
            (n_blocks,), np.dtype(order + scale.letter), raw, scale.offset, (kind.block_bytes,)
        )
        found |= (bits & bits.dtype.type(scale.mask)) == scale.mask
    return np.flatnonzero(found)


def only_zero_bytes(raw: memoryview) -> bool:
    """Whether there is no other byte."""
    return not np.frombuffer(raw, np.uint8).any()


def decode(raw: memoryview, kind: GGMLType, order: ByteOrder) -> Values | None:
    """The values of whole blocks, None where gguf-py cannot decode the type."""
    with np.errstate(all="ignore"):  # what overflows or is NaN shows in the values
        if kind.name in _NUMBERS:
            return np.frombuffer(raw, order + _NUMBERS[kind.name]).astype(np.float32)
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        if order != _NATIVE or kind.id not in {member.value for member in GGMLQuantizationType}:
            return None
        try:
            blocks = np.frombuffer(raw, np.uint8).reshape(1, -1)
            values: Values = dequantize(blocks, GGMLQuantizationType(kind.id))
        except NotImplementedError:
            return None
        return values.reshape(-1)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How close a tensor is to its reference, both None where that cannot be computed.

    `error` is the root mean square of the difference over that of the reference.
    """

    tensor: str
    type: str
    reference_type: str
    error: float | None
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Weights:
    """The values of one tensor, wherever it lies: N_DECODED at a time, None if unreadable."""

    type: str
    n_bytes: int
    values: Callable[[], Iterator[Values | None]]


class TensorFiles:
    """The files of a model, opened one at a time as its tensors are read."""

    def __init__(self, header: Header, on_read: Callable[[int], None]) -> None:
        self.header = header
        self._on_read = on_read
        self._shard = -1
        self._file: BinaryIO | None = None

    def close(self) -> None:
        """Close what is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def chunks(self, row: TensorInfo, chunk_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
        """The bytes of a tensor, whole blocks at a time; each chunk is overwritten by the next."""
        n_bytes, block = row.n_bytes or 0, max(row.type.block_bytes, 1)
        step = max(chunk_bytes // block, 1) * block
        buffer = memoryview(bytearray(min(step, n_bytes)))
        start = self.header.shards[row.shard].data_offset + row.offset
        for offset in range(0, n_bytes, step):
            chunk = buffer[: min(step, n_bytes - offset)]
            self._read(row.shard, start + offset, chunk)
            yield chunk
            self._on_read(len(chunk))

    def _read(self, shard: int, position: int, into: memoryview) -> None:
        path = self.header.shards[shard].path
        try:
            file = self._open(shard)
            file.seek(position)
            if file.readinto(into) < len(into):  # type: ignore[attr-defined]
                raise SourceError("the file became shorter while it was read", where=path)
        except OSError as err:
            raise SourceError(err.strerror or str(err), where=path) from err

    def _open(self, shard: int) -> BinaryIO:
        if self._file is None or shard != self._shard:
            self.close()
            self._file, self._shard = open(self.header.shards[shard].path, "rb"), shard  # noqa: SIM115
        return self._file


def one_value(chunk: memoryview, kind: GGMLType, order: ByteOrder) -> float | None:
    """The value that all elements of a chunk have, None where they differ or cannot be decoded."""
    step = N_DECODED // kind.block_elements * kind.block_bytes
    level: float | None = None
    for start in range(0, len(chunk), step):
        values = decode(chunk[start : start + step], kind, order)
        if values is None or (values != (values[0] if level is None else level)).any():
            return None
        level = float(values[0])
    return level


def same_bytes(files: TensorFiles, row: TensorInfo, other: TensorInfo) -> bool:
    """Whether two tensors of one model and one size hold the same bytes."""
    return all(a == b for a, b in zip(files.chunks(row), files.chunks(other), strict=True))


def weights(files: TensorFiles, row: TensorInfo) -> Weights:
    """The values of a tensor of a GGUF."""
    kind, order = row.type, files.header.order
    step = N_DECODED // kind.block_elements * kind.block_bytes

    def values() -> Iterator[Values | None]:
        for chunk in files.chunks(row, step):
            yield decode(chunk, kind, order)

    return Weights(kind.name, row.n_bytes or 0, values)


def fidelity(name: str, own: Weights, reference: Weights) -> Fidelity:
    """Compare as many values as both have."""
    found = Fidelity(name, own.type, reference.type, None, None)
    sums = np.zeros(4)  # a.b, a.a, b.b, (a-b).(a-b)
    for a, b in zip(own.values(), reference.values(), strict=True):
        if a is None or b is None:
            return found
        with np.errstate(all="ignore"):
            d = a - b
            # einsum keeps the sums in double precision without copies of the values.
            pairs = ((a, b), (a, a), (b, b), (d, d))
            sums += [np.einsum("i,i", x, y, dtype=np.float64) for x, y in pairs]
    dot, norm, norm_reference, difference = sums.tolist()
    if not (math.isfinite(sum(sums)) and norm_reference > 0):
        return found
    error = math.sqrt(difference / norm_reference)
    cosine = dot / math.sqrt(norm * norm_reference) if norm else 0.0
    return replace(found, error=error, cosine=cosine)
