"""The MTP matrices of a local checkpoint as the GGUF tensors they become, by value. Uses numpy.

Norms are left out (some converters add one to them), and so is what is split, joined or quantized.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from gguftools.errors import SourceError
from gguftools.gguf.blocks import N_DECODED, Values, Weights
from gguftools.gguf.checkpoint import Checkpoint
from gguftools.gguf.header import Header
from gguftools.gguf.mtp_expected import Expected, expected_tensors
from gguftools.gguf.mtp_source import source_mtp
from gguftools.gguf.safetensors import LENGTH, SourceTensor, header_length, json_object

_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8}
_NUMBERS = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}

# The converter may reorder their rows (conversion/glm.py:81, b11434).
_REORDERED = {"glm4": ("attn_q.weight", "attn_k.weight")}

Place = tuple[str, int, int]  # file, first byte, elements


def source_weights(
    checkpoint: Checkpoint, header: Header, on_read: Callable[[int], None]
) -> dict[str, Weights]:
    """By the name of the GGUF tensor, those that were taken over as they are or stacked."""
    found = {}
    starts: dict[str, Mapping[str, int]] = {}
    mtp = source_mtp(checkpoint, arch=header.architecture)
    for want in expected_tensors(checkpoint, mtp):
        row = header.tensors.get(want.name or "")
        if row is None or len(row.shape) < 2 or want.shape != row.shape:
            continue
        if row.name.endswith(_REORDERED.get(header.architecture, ())):
            continue
        if not (sources := _sources(checkpoint, want)):
            continue
        places = [_place(checkpoint, source, starts) for source in sources]
        n_bytes = row.n_elements * _ITEM_BYTES[want.dtype]
        found[row.name] = Weights(want.dtype, n_bytes, _values(places, want.dtype, on_read))
    return found


def _sources(checkpoint: Checkpoint, want: Expected) -> list[SourceTensor]:
    """What a GGUF tensor is made of, in its order; empty where it is not just copied or stacked."""
    if "*" in want.source:
        pattern = re.compile(re.escape(want.source).replace(r"\*", "([0-9]{1,6})"))
        numbered = {
            int(match[1]): tensor
            for name, tensor in checkpoint.tensors.items()
            if (match := pattern.fullmatch(name))
        }
        sources = [numbered[i] for i in sorted(numbered)]
        shape = want.shape[:-1] if want.shape else None
    else:
        sources = [checkpoint.tensors[want.source]]
        shape = want.shape
    alike = all(
        source.dtype == want.dtype and source.shape is not None and source.shape[::-1] == shape
        for source in sources
    )
    known = want.dtype in _ITEM_BYTES and len(sources) == want.n_sources
    return sources if alike and known else []


def _place(
    checkpoint: Checkpoint, source: SourceTensor, starts: dict[str, Mapping[str, int]]
) -> Place:
    path = os.fspath(Path(checkpoint.where) / source.file)
    if path not in starts:
        starts[path] = _starts(path)
    if source.name not in starts[path]:
        raise SourceError("the file changed while it was read", where=path)
    return path, starts[path][source.name], int(np.prod(source.shape or (), dtype=np.int64))


def _starts(path: str) -> dict[str, int]:
    """The first byte of every tensor of a safetensors file."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            n = header_length(file.read(LENGTH.size), n_bytes=size, where=path)
            rows = json_object(file.read(n), where=path)
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=path) from err
    found = {}
    for name, row in rows.items():
        offsets = row.get("data_offsets") if isinstance(row, dict) else None
        if isinstance(offsets, list) and offsets and isinstance(offsets[0], int):
            found[name] = LENGTH.size + n + offsets[0]
    return found


def _values(
    places: list[Place], dtype: str, on_read: Callable[[int], None]
) -> Callable[[], Iterator[Values | None]]:
    """Parts of N_DECODED values, whatever the lengths of the places."""

    def values() -> Iterator[Values | None]:
        left = np.empty(0, np.float32)
        for path, start, n in places:
            for part in _read(path, start, n, dtype):
                on_read(len(part) * _ITEM_BYTES[dtype])
                left = np.concatenate((left, part)) if len(left) else part
                while len(left) >= N_DECODED:
                    yield left[:N_DECODED]
                    left = left[N_DECODED:]
        if len(left):
            yield left

    return values


def _read(path: str, start: int, n: int, dtype: str) -> Iterator[Values]:
    size = _ITEM_BYTES[dtype]
    try:
        with open(path, "rb") as file:
            file.seek(start)
            for at in range(0, n, N_DECODED):
                wanted = min(N_DECODED, n - at) * size
                raw = file.read(wanted)
                if len(raw) < wanted:
                    raise SourceError("the file ends within a tensor", where=path)
                yield _floats(raw, dtype)
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=path) from err


def _floats(raw: bytes, dtype: str) -> Values:
    if dtype == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        return np.frombuffer(raw, _NUMBERS[dtype]).astype(np.float32)
