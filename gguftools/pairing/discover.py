"""Finds files that might draft for a target: beside it, in given folders, in known stores. I/O.

By name and place only: what a file is and whether it fits is for `ranking` to say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gguftools.pairing.folders import SHARD, Key, Limits, ModelFile, Search, model_file
from gguftools.pairing.ollama import ollama_models
from gguftools.pairing.stores import (
    Places,
    hub_cache,
    hub_name,
    is_hub_folder,
    llama_cache,
    lm_studio_folders,
    ollama_folders,
)

N_CANDIDATES_MAX = 2000
BESIDE, NEAR = "beside the target", "near the target"
_LIMITS = Limits()
_N_LEVELS_UP = 2  # MODELS/REPOSITORY/Q4_K_M/model-00001-of-00003.gguf
_DRAFT_PREFIX = re.compile(r"^(mtp|eagle3|dflash|dspark)[-_.]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may draft; `n_bytes` counts all shards, `name` is how its store calls it."""

    path: Path
    origin: str
    name: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Discovery:
    """The candidates, each file once, in the order of the places; notes say what was not seen."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()


def discover(
    target: Path | None,
    *,
    folders: Sequence[Path] = (),
    stores: bool = True,
    places: Places | None = None,
    limits: Limits = _LIMITS,
) -> Discovery:
    """Every model file in reach but the target itself, without opening one."""
    places = places or Places()
    found = _Found(set() if target is None else _own_keys(target))
    if target is not None:
        _beside(target, places.home, limits, found)
    for folder in folders:
        _in_folder(folder, limits, found)
    if stores:
        _in_stores(places, limits, found)
    return Discovery(tuple(found.candidates), tuple(found.all_notes()))


@dataclass(slots=True)
class _Found:
    seen: set[Key]
    candidates: list[Candidate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_left_out: int = 0

    def add(self, model: ModelFile, origin: str, name: str) -> None:
        if model.key in self.seen:
            return
        self.seen.add(model.key)
        if len(self.candidates) < N_CANDIDATES_MAX:
            self.candidates.append(Candidate(model.path, origin, name, model.n_bytes))
        else:
            self.n_left_out += 1

    def all_notes(self) -> list[str]:
        if not self.n_left_out:
            return self.notes
        return [*self.notes, f"{self.n_left_out} more models were found and are not listed: at "
                f"most {N_CANDIDATES_MAX} are, so name the drafts"]  # fmt: skip


def _own_keys(target: Path) -> set[Key]:
    """The target; for a split one its first shard, which stands for all of them."""
    first = SHARD.sub(r"-00001-of-\g<count>.gguf", target.name)
    own = (model_file(target), model_file(target.with_name(first)) if target.name else None)
    return {model.key for model in own if model is not None}


def _beside(target: Path, home: Path, limits: Limits, found: _Found) -> None:
    """The target's folder; where each model has a folder of its own, its neighbours too."""
    search = Search(limits)
    for level, folder in enumerate(_folders_up(target, home)):
        models = list(search.models(folder, depth=1 if level == 0 else 2))
        for model in models:
            origin = NEAR if level else BESIDE
            found.add(model, origin, _below(model.path, target.parent))
        if any(not _is_one_model(target.name, model.path.name) for model in models):
            break
    linked = Path(os.path.realpath(target)).parent
    for model in search.models(linked, depth=0):
        found.add(model, BESIDE, model.path.name)
    found.notes += search.notes()


def _folders_up(target: Path, home: Path) -> Iterable[Path]:
    """The target's folder and those above it, below the home folder and never the whole disk."""
    yield target.parent
    folder = Path(os.path.abspath(target.parent))
    for _ in range(_N_LEVELS_UP):
        folder = folder.parent
        if folder == folder.parent or home.is_relative_to(folder):
            break
        yield folder


def _is_one_model(a: str, b: str) -> bool:
    """Whether two files are quantizations or drafts of one model, by their names."""
    one, other = _family(a), _family(b)
    return one.startswith(other) or other.startswith(one)


def _family(name: str) -> str:
    """The name without kind of draft, shard and last part, which tells the quantization."""
    stem = re.sub(r"\.gguf$", "", SHARD.sub("", name), flags=re.IGNORECASE)
    return re.sub(r"[-.][^-.]*$", "", _DRAFT_PREFIX.sub("", stem)).lower()


def _in_folder(folder: Path, limits: Limits, found: _Found) -> None:
    search = Search(limits)
    if not os.path.isdir(folder):
        why = "not a folder" if os.path.lexists(folder) else "no such folder"
        found.notes.append(f"{folder}: {why}")
        return
    for model in search.models(folder):
        found.add(model, f"--in {folder}", _below(model.path, folder))
    found.notes += search.notes()


def _in_stores(places: Places, limits: Limits, found: _Found) -> None:
    hub, own = hub_cache(places), llama_cache(places)
    for origin, roots in (
        ("Hugging Face cache", [hub]),
        ("LM Studio", lm_studio_folders(places)),
        ("llama.cpp cache", [own]),
    ):
        search = Search(limits)
        for root in roots:
            for model in search.models(root, enter=is_hub_folder):
                found.add(model, origin, hub_name(Path(_below(model.path, root))))
        found.notes += search.notes()
    search = Search(limits)
    for store in ollama_folders(places):
        for model, name in ollama_models(store, search):
            found.add(model, "Ollama", name)
    found.notes += search.notes()


def _below(path: Path, folder: Path) -> str:
    """The path as seen from a folder above it; elsewhere its last two parts."""
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return "/".join(path.parts[-2:])
