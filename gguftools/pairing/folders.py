"""Finds the GGUF files under a folder, bounded in depth, entries and time. Opens none. I/O."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SHARD = re.compile(r"-(?P<no>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf$", re.IGNORECASE)
Key = tuple[int, int, int] | str


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one search goes; scandir reads some hundred thousand entries a second."""

    depth: int = 8
    n_entries: int = 200_000
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file, by name; of a split model its first shard with the bytes of all of them."""

    path: Path
    n_bytes: int
    key: Key  # equal for two paths of one file


@dataclass(slots=True)
class Search:
    """One walk over some folders: what it may still look at, and why it did not see everything."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    n_entries: int = 0
    cut_at: Path | None = None
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    _end: float = 0.0
    _folders: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._end = self.clock() + self.limits.seconds

    def models(
        self, root: Path, *, depth: int | None = None, enter: Callable[[str], bool] | None = None
    ) -> Iterator[ModelFile]:
        """The models under `root`, folder by folder in the order of their names.

        `enter` says by its name whether a folder is looked into; hidden ones are not.
        """
        depth = self.limits.depth if depth is None else depth
        level = [root]
        for _ in range(depth + 1):
            below: list[Path] = []
            for folder in level:
                names, folders = self._list(folder)
                yield from _models(folder, names)
                below += [folder / name for name in folders if (enter or _is_shown)(name)]
            level = below

    def files(self, root: Path, depth: int) -> Iterator[Path]:
        """Every file exactly `depth` folders below `root`."""
        level = [root]
        for _ in range(depth):
            level = [at / name for at in level for name in self._list(at)[1] if _is_shown(name)]
        for folder in level:
            yield from (folder / name for name in self._list(folder)[0] if _is_shown(name))

    def notes(self) -> Iterator[str]:
        """What this search did not see."""
        if self.unreadable:
            path, why = self.unreadable[0]
            n_more = len(self.unreadable) - 1
            yield f"{path} cannot be read: {why}" + (f" ({n_more} more)" if n_more else "")
        if self.cut_at is not None:
            yield (f"the search stopped in {self.cut_at} after {self.n_entries} entries, so models "
                   "may be missing: name the drafts, or a smaller folder with --in")  # fmt: skip

    def _list(self, folder: Path) -> tuple[list[str], list[str]]:
        """Names of files and of folders in a folder; nothing where it was listed before."""
        files: list[str] = []
        folders: list[str] = []
        if self.cut_at is not None:
            return files, folders
        try:
            key = file_key(os.stat(folder), folder)
            if key in self._folders:
                return files, folders
            self._folders.add(key)
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.n_entries += 1
                    if self._is_spent():
                        self.cut_at = folder
                        break
                    (folders if _is_folder(entry) else files).append(entry.name)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as err:
            self.unreadable.append((folder, getattr(err, "strerror", None) or str(err)))
        return sorted(files), sorted(folders)

    def _is_spent(self) -> bool:
        return self.n_entries > self.limits.n_entries or self.clock() > self._end


def model_file(path: Path) -> ModelFile | None:
    """The file at a path, whatever its name; None unless it is a regular file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return ModelFile(path, found.st_size, file_key(found, path))


def file_key(found: os.stat_result, path: Path) -> Key:
    """What two paths of one file share; a file system without file numbers has only the path."""
    if not found.st_ino:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino, found.st_size


def small_file(path: Path, n_bytes_max: int) -> bytes | None:
    """A regular file of at most so many bytes; None for anything else. Never waits for a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            content = file.read(n_bytes_max + 1)
        except OSError:
            return None
    return content if len(content) <= n_bytes_max else None


def _models(folder: Path, names: list[str]) -> Iterator[ModelFile]:
    shards: dict[str, int] = {}
    first: list[str] = []
    for name in names:
        if not name.lower().endswith(".gguf") or name.startswith("._") or is_projector(name):
            continue
        shard = SHARD.search(name)
        if shard is None or int(shard["no"]) == 1:
            first.append(name)
        elif (found := model_file(folder / name)) is not None:
            whole = _whole(name)
            shards[whole] = shards.get(whole, 0) + found.n_bytes
    for name in first:
        if (found := model_file(folder / name)) is not None:
            n_bytes = found.n_bytes + (shards.get(_whole(name), 0) if SHARD.search(name) else 0)
            yield ModelFile(found.path, n_bytes, found.key)


def is_projector(name: str) -> bool:
    """Whether the name is that of a multimodal projector, as llama.cpp's converter gives it."""
    return "mmproj" in name.lower()


def _whole(name: str) -> str:
    """What the names of all shards of one model share."""
    return SHARD.sub(r"-of-\g<count>.gguf", name)


def _is_shown(name: str) -> bool:
    return not name.startswith(".")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
