"""Opens a model by path: one file, or every shard of a split model, merged into one Header. I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from gguftools.errors import FormatError, SourceError
from gguftools.gguf.header import Header, Shard, TensorInfo
from gguftools.gguf.reader import N_TENSORS_MAX, read_header

N_SHARDS_MAX = 4096
_SHARD_NAME = re.compile(
    r"^(?P<prefix>.*)-(?P<no>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf$", re.DOTALL
)


def open_gguf(path: str | os.PathLike[str]) -> Header:
    """The header of a model; for a split model every shard is read, whichever one is named."""
    return open_split(os.fspath(path), _read)


def open_split(name: str, read: Callable[[str], Header]) -> Header:
    """The header of a model by the name of its file, or of any of its shards."""
    first = read(name)
    count = first.integer("split.count") or 0
    if count <= 1:
        return first
    names = shard_names(name, count, where=first.path)
    return merge(first if each == name else read(each) for each in names)


def shard_paths(path: Path, count: int) -> list[Path]:
    """The files of a split model on this machine."""
    return [Path(name) for name in shard_names(str(path), count, where=str(path))]


def shard_names(name: str, count: int, *, where: str) -> list[str]:
    """The files of a split model, from the name of any one of them (llama.cpp's own pattern)."""
    match = _SHARD_NAME.match(name)
    if match is None or int(match["count"]) != count:
        raise FormatError(
            f"it is one of {count} shards, but its name does not end in -NNNNN-of-{count:05}.gguf",
            where=where,
            hint="give the shards back their own names",
        )
    if count > N_SHARDS_MAX:
        raise FormatError(f"it declares {count} shards; at most {N_SHARDS_MAX} are read",
                          where=where)  # fmt: skip
    prefix = match["prefix"]
    return [f"{prefix}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]


def merge(headers: Iterable[Header]) -> Header:
    """Shards as one model: metadata of the first, the union of the tensors.

    Read one after the other, so that only the first keeps its arrays in memory.
    """
    first: Header | None = None
    tensors: dict[str, TensorInfo] = {}
    shards: list[Shard] = []
    for no, header in enumerate(headers):
        first = first or header
        _check_shard(header, no, first)
        for row in header.tensors.values():
            if row.name in tensors:
                raise FormatError(f"tensor {row.name!r} is in two shards", where=header.path)
            tensors[row.name] = replace(row, shard=no)
        if len(tensors) > N_TENSORS_MAX:
            raise FormatError(f"the shards hold more than {N_TENSORS_MAX} tensors",
                              where=header.path)  # fmt: skip
        shards += header.shards
    if first is None:
        raise ValueError("no shards")
    declared = first.integer("split.tensors.count")
    if declared is not None and declared != len(tensors):
        raise FormatError(f"split.tensors.count is {declared}, the shards hold {len(tensors)}",
                          where=first.path)  # fmt: skip
    return replace(first, tensors=tensors, shards=tuple(shards))


def _check_shard(header: Header, no: int, first: Header) -> None:
    found = header.integer("split.no")
    if found != no:
        raise FormatError(f"split.no is {found}, expected {no}", where=header.path,
                          hint="are the shards in their right names?")  # fmt: skip
    if header.order != first.order:
        raise FormatError("its byte order is not that of the first shard", where=header.path)


def _read(name: str) -> Header:
    path = Path(name)
    try:
        if not path.exists():
            raise SourceError("no such file", where=name, hint=missing_shard(name))
        if not path.is_file():
            raise SourceError("not a regular file", where=name)
        with path.open("rb", buffering=0) as file:
            return read_header(file, name)
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=name) from err


def missing_shard(name: str) -> str:
    """What to say next when a file is missing."""
    match = _SHARD_NAME.match(name)
    if match is None:
        return ""
    return f"shard {int(match['no'])} of {int(match['count'])} is missing: download it too"
