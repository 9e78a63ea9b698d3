"""Opens a Hugging Face checkpoint: its config, index and safetensors headers, no weights. I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from gguftools.errors import FormatError, SourceError
from gguftools.gguf.reference_table import FAMILIES, LAYER_KEYS
from gguftools.gguf.safetensors import (
    LENGTH,
    SourceTensor,
    header_length,
    json_object,
    parse_header,
)

INDEX = "model.safetensors.index.json"
_CONFIG_BYTES_MAX = 16_000_000
_INDEX_BYTES_MAX = 100_000_000
_FIRST_BYTES = 65536  # of a shard: mostly the whole header, so one request
_N_SHARDS_MAX = 4096
_N_TENSORS_MAX = 2_000_000


class Files(Protocol):
    """Where a checkpoint lies; a size is None where it is unknown."""

    @property
    def files(self) -> Mapping[str, int | None]: ...

    @property
    def remote(self) -> bool: ...

    def place(self, name: str) -> str: ...

    def read(self, name: str, start: int, n_bytes: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Folder:
    """A local folder; only the files right in it count."""

    path: Path
    files: Mapping[str, int | None]
    remote: bool = False

    def place(self, name: str) -> str:
        """A file, for messages."""
        return str(self.path / name)

    def read(self, name: str, start: int, n_bytes: int) -> bytes:
        """Up to `n_bytes` from `start`."""
        try:
            with (self.path / name).open("rb", buffering=0) as file:
                file.seek(start)
                return file.read(n_bytes)
        except OSError as err:
            raise SourceError(err.strerror or str(err), where=self.place(name)) from err


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint; `config` has text_config merged over it, as the converter reads it.

    `tensors` holds every name; those of remote shards without MTP tensors have no shape.
    `missing_files` are shards that the index names and that are not there.
    """

    where: str
    config: Mapping[str, Any]
    nested: frozenset[str]  # keys of config that stand in text_config or llm_config
    tensors: Mapping[str, SourceTensor]
    indexed: bool
    missing_files: tuple[str, ...]
    local: bool

    @property
    def model_class(self) -> str:
        """The Hugging Face class, empty where the config has none."""
        classes = self.config.get("architectures")
        name = classes[0] if isinstance(classes, list) and classes else ""
        return name if isinstance(name, str) else ""

    def integer(self, *keys: str) -> int | None:
        """The first of the keys that holds a natural number."""
        for key in keys:
            value = self.config.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
                return value
        return None

    @property
    def n_trunk(self) -> int | None:
        """Layers without the MTP ones."""
        blocks = self.config.get("layers_block_type")
        return len(blocks) if isinstance(blocks, list) else self.integer(*LAYER_KEYS)


def open_checkpoint(place: str) -> Checkpoint:
    """The checkpoint in a folder, or in a Hub repository `user/repo[@revision]`."""
    path = Path(place)
    if path.is_dir():
        return read_checkpoint(_folder(path), place)
    from gguftools.gguf.hub import open_repo, parse_repo

    repo = None if path.exists() else parse_repo(place)
    if repo is None:
        hint = "give a folder with config.json, or a Hub repository user/repo[@revision]"
        raise SourceError("no such checkpoint", where=place, hint=hint)
    return read_checkpoint(open_repo(*repo), place)


def _folder(path: Path) -> Folder:
    try:
        files = {entry.name: entry.stat().st_size for entry in os.scandir(path) if entry.is_file()}
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path)) from err
    return Folder(path, files)


def read_checkpoint(files: Files, where: str) -> Checkpoint:
    """What config, index and headers say. Of a remote model only shards with MTP are opened."""
    if "config.json" not in files.files:
        raise SourceError("no config.json in it", where=where,
                          hint="name the folder or repository of the original model")  # fmt: skip
    config, nested = _config(_json(files, "config.json", _CONFIG_BYTES_MAX))
    has_index = INDEX in files.files
    index = _index(files) if has_index else {}
    shards = sorted(name for name in files.files if _is_shard(name))
    if len(shards) > _N_SHARDS_MAX:
        raise FormatError(f"it has more than {_N_SHARDS_MAX} shards", where=where)
    empty = Checkpoint(where, config, nested, {}, has_index, (), not files.remote)
    listed = set(index.values()) if has_index else {s for s in shards if s.startswith("model")}
    if not shards and not has_index:
        hint = "only safetensors are read; name a checkpoint that has them"
        raise SourceError("no *.safetensors in it", where=where, hint=hint)
    tensors = {name: SourceTensor(name, "", None, shard) for name, shard in index.items()}
    wanted = _mtp_shards(index, empty) if files.remote and has_index else listed
    for shard in shards:
        if shard in listed and shard not in wanted:
            continue
        for tensor in _shard(files, shard):
            is_listed = index.get(tensor.name) == shard if has_index else shard in listed
            if is_listed or tensor.name not in tensors:
                tensors[tensor.name] = replace(tensor, listed=is_listed)
        if len(tensors) > _N_TENSORS_MAX:
            raise FormatError(f"it has more than {_N_TENSORS_MAX} tensors", where=where)
    missing = tuple(sorted(listed - set(shards)))
    return replace(empty, tensors=tensors, missing_files=missing)


def _is_shard(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name


def _mtp_shards(index: Mapping[str, str], checkpoint: Checkpoint) -> set[str]:
    family = FAMILIES.get(checkpoint.model_class)
    if family is not None and family.naming == "assistant":
        return set(index.values())
    n_trunk = checkpoint.n_trunk
    return {shard for name, shard in index.items() if speaks_of_mtp(name, n_trunk)}


_MTP_PART = re.compile(r"(?:^|\.)mtp(?:[._]|$)")
_LAYER = re.compile(r"(?:^|\.)layers\.([0-9]{1,6})\.")


def speaks_of_mtp(name: str, n_trunk: int | None) -> bool:
    """Whether a Hugging Face tensor belongs to MTP, by its name alone."""
    if _MTP_PART.search(name):
        return True
    layer = _LAYER.search(name)
    beyond = layer is not None and n_trunk is not None and int(layer[1]) >= n_trunk
    return beyond and not any(part in name for part in ("visual.", "vision", "audio"))


def _config(raw: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    merged, nested = dict(raw), set[str]()
    for part in ("llm_config", "text_config"):
        if isinstance(inner := raw.get(part), dict):
            merged |= {key: value for key, value in inner.items() if key != "architectures"}
            nested |= inner.keys()
    return merged, frozenset(nested)


def _index(files: Files) -> dict[str, str]:
    weight_map = _json(files, INDEX, _INDEX_BYTES_MAX).get("weight_map")
    place = files.place(INDEX)
    if not isinstance(weight_map, dict):
        raise FormatError("it has no weight_map", where=place)
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_shard(shard) or "\\" in shard or "\0" in shard:
            what = f"tensor {name[:200]!r} lies in {str(shard)[:200]!r}, not a file beside it"
            raise FormatError(what, where=place)
    if len(set(weight_map.values())) > _N_SHARDS_MAX:
        raise FormatError(f"it names more than {_N_SHARDS_MAX} shards", where=place)
    return weight_map


def _json(files: Files, name: str, n_bytes_max: int) -> dict[str, Any]:
    raw = files.read(name, 0, n_bytes_max + 1)
    if len(raw) > n_bytes_max:
        raise FormatError(f"it has more than {n_bytes_max} bytes", where=files.place(name))
    return json_object(raw, where=files.place(name))


def _shard(files: Files, name: str) -> Iterator[SourceTensor]:
    """The tensors of one file; the header is read and nothing behind it."""
    place, size = files.place(name), files.files.get(name)
    start = files.read(name, 0, _FIRST_BYTES)
    n = header_length(start, n_bytes=size, where=place)
    raw = start[LENGTH.size : LENGTH.size + n]
    if len(raw) < n:
        raw += files.read(name, LENGTH.size + len(raw), n - len(raw))
    if len(raw) < n:
        raise FormatError(f"its safetensors header ends after {len(raw)} of {n} bytes", where=place,
                          hint="is the download complete?")  # fmt: skip
    n_data = None if size is None else size - LENGTH.size - n
    yield from parse_header(raw, n_data=n_data, where=place, file=name)
