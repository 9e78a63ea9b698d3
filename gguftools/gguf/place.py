"""Where a model can be: file, glob, folder, Hub repository, URL. Finds and opens it there. I/O.

model.gguf  'quants/*.gguf'  folder/          what exists here always comes first
user/repo[@revision][:QUANT]                  one model of a repository, as llama.cpp's -hf
user/repo/  user/repo/file.gguf  'user/repo/*Q8*'     hf:// may stand before these
https://host/model.gguf
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from gguftools.errors import SourceError, UsageError
from gguftools.gguf.source import missing_shard, open_gguf, open_split

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gguftools.gguf.header import Header
    from gguftools.gguf.remote import Progress

N_MODELS_MAX = 10_000
N_FOLDERS_MAX = 100_000
_NAME = r"\w[\w.-]{0,95}"
_HUB = re.compile(
    rf"(?P<scheme>hf://)?(?P<repo>{_NAME}/{_NAME})"
    r"(?:@(?P<revision>refs/(?:pr|convert)/\w[\w.-]{0,99}|\w[\w.-]{0,99}))?"
    r"(?P<file>/[^:]*)?(?P<colon>:(?P<quant>\w[\w.-]{0,59}))?",
    re.ASCII,
)
_URL = re.compile(r"https?://[^\s/]+/\S*", re.ASCII | re.IGNORECASE)
# Of the Hub's web site: the page of a repository, or of a folder in it.
_PAGE = re.compile(r"(?P<repo>[^/?#]+/[^/?#]+)(?:/tree/(?P<tree>[^?#]+))?/?(?:[?#].*)?")


@dataclass(frozen=True, slots=True)
class Found:
    """The models that a place names; `many` if it stands for all there are, even if that is one."""

    places: tuple[str, ...]
    many: bool = False
    stem: str = ""  # what all of them begin with
    checkpoint: str = ""  # instead of models: the repository or folder of a checkpoint


def is_remote(text: str) -> bool:
    """Whether `text` names something on another machine."""
    return not os.path.exists(text) and (_is_url(text) or not _is_local(text))


def _is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def find_models(text: str) -> Found:
    """The models that `text` names, each as a place that `open_model` takes."""
    if os.path.isdir(text):
        return Found(_folder(text), many=True, stem=os.path.join(text, ""))
    if os.path.exists(text):
        return Found((text,))
    if _is_url(text):
        return _web(text)
    if not _is_local(text):
        return _hub(text)
    if any(c in text for c in "*?["):
        return _glob(text)
    hint = f"on the Hub: hf://{text}" if _HUB.fullmatch(text) else ""
    raise SourceError("no such file", where=text, hint=hint or missing_shard(text))


def open_model(place: str, progress: Progress | None = None) -> Header:
    """The header of the one model that a place names; no more of a remote one is fetched."""
    if os.path.isfile(place):
        return open_gguf(place)
    found = find_models(place)
    if found.checkpoint:
        hint = "convert it with convert_hf_to_gguf.py"
        raise SourceError("it holds a checkpoint and no *.gguf", where=place, hint=hint)
    if found.many and len(found.places) != 1:
        names = f"{len(found.places)} models: {_few(found.places)}"
        raise UsageError(f"it holds {names}", where=place, hint="name one of them")
    place = found.places[0]
    return _open_remote(place, progress) if is_remote(place) else open_gguf(place)


def _open_remote(place: str, progress: Progress | None) -> Header:
    from gguftools.gguf.hub import file_url
    from gguftools.gguf.reader import read_header
    from gguftools.gguf.remote import RemoteFile

    name, query = place, ""
    if not place.startswith("hf://"):
        name, _, query = place.partition("?")

    def read(name: str) -> Header:
        match = _HUB.fullmatch(name) if name.startswith("hf://") else None
        url = f"{name}?{query}" if query else name
        if match is not None:
            url = file_url(match["repo"], match["revision"], match["file"][1:])
        where = name if match is not None else _shown(name)
        with RemoteFile(url, where, progress=progress) as file:
            return read_header(cast(BinaryIO, file), where)

    return open_split(name, read)


def _shown(url: str) -> str:
    """A URL without what may be secret in it."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0].partition("#")[0], count=1)


def _is_local(text: str) -> bool:
    """Whether a name that is not there would be a file here, so that no typo goes to the Hub."""
    match = _HUB.fullmatch(text)
    if match is None:
        return not text.startswith("hf://")
    if match["scheme"]:
        return False
    two = match["file"] is None and match["colon"] is None
    return (two and text.endswith(".gguf")) or os.path.isdir(text.partition("/")[0])


def _folder(path: str) -> tuple[str, ...]:
    """Every model in a folder and the folders in it; of a split model the first shard there is."""

    def unreadable(err: OSError) -> None:
        if err.filename == path:
            raise SourceError(err.strerror or str(err), where=path) from err

    names: list[str] = []
    for n, (folder, folders, files) in enumerate(os.walk(path, onerror=unreadable)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names += (os.path.join(folder, name) for name in sorted(files) if _is_gguf(name))
        if len(names) > N_MODELS_MAX or n == N_FOLDERS_MAX:
            what = f"it holds more than {N_MODELS_MAX} models or {N_FOLDERS_MAX} folders"
            raise SourceError(what, where=path, hint="name a folder in it")
    if not names:
        raise SourceError("no *.gguf in this folder", where=path)
    return _one_of_each(names)


def _glob(text: str) -> Found:
    """What a quoted pattern matches; of a folder in it the models."""
    from glob import iglob
    from itertools import islice

    names = sorted(islice(iglob(text, recursive=True), N_MODELS_MAX + 1))
    if len(names) > N_MODELS_MAX:
        raise SourceError(f"it matches more than {N_MODELS_MAX} files", where=text)
    files = [name for name in names if os.path.isfile(name)]
    chosen = [name for name in files if _is_gguf(name)] or files
    if not chosen:
        raise SourceError("no file matches", where=text)
    return Found(_one_of_each(chosen), many=True)


def _is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")


_SHARD = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5}\.gguf)", re.DOTALL)


def _one_of_each(names: Iterable[str]) -> tuple[str, ...]:
    """The names with the shards of a split model counted once."""
    models: dict[tuple[str, ...], str] = {}
    for name in names:
        match = _SHARD.fullmatch(name)
        models.setdefault(match.groups() if match else (name,), name)
    return tuple(models.values())


def _web(text: str) -> Found:
    """A URL; pages of the Hub as what they show."""
    from gguftools.gguf.remote import endpoint

    if not _URL.fullmatch(text if "/" in text.partition("://")[2] else f"{text}/"):
        raise UsageError("not an address", where=_shown(text))
    hubs = ("https://huggingface.co/", "https://hf.co/", f"{endpoint()}/")
    hub = next((hub for hub in hubs if text.startswith(hub)), None)
    if hub is None:
        return Found((text,))
    page = _PAGE.fullmatch(text[len(hub) :])
    if page is None:
        return Found((re.sub("/(blob|raw)/", "/resolve/", text.partition("#")[0], count=1),))
    revision, _, folder = (page["tree"] or "").partition("/")
    at = f"@{revision}/{folder}" if revision else ""
    return _hub(f"hf://{page['repo']}{at}" + ("/" if folder.strip("/") else ""))


def _hub(text: str) -> Found:
    """A file of a repository, those that match, all, or the one that llama.cpp would take."""
    match = _HUB.fullmatch(text)
    if match is None:
        hint = "hf://user/repo[@revision][/file.gguf][:QUANT]"
        raise UsageError("not a place on the Hub", where=text, hint=hint)
    from gguftools.gguf.repo_files import cached_file, list_repo, matching, pick

    name, quant = (match["file"] or "")[1:], match["quant"]
    if match["file"] is not None and quant:
        raise UsageError("it names both a file and a quantization", where=text)
    at = f"@{match['revision']}" if match["revision"] else ""
    stem = f"hf://{match['repo']}{at}/"
    if name and not any(c in name for c in "*?[") and not name.endswith("/"):
        return Found((cached_file(match["repo"], match["revision"], name) or stem + name,))

    where, files = list_repo(match["repo"], match["revision"])
    stem = os.path.join(where, "") if where is not None else stem
    names = sorted(each for each in files if _is_gguf(each))
    if not names and "config.json" in files:
        return Found((), checkpoint=stem.rstrip("/"))
    if not names:
        raise SourceError("no *.gguf in this repository", where=text)
    if match["file"] is None:
        return Found((stem + pick(names, quant, text),))
    if name in names:
        return Found((stem + name,))
    chosen = _one_of_each(matching(names, name, text))
    return Found(tuple(stem + each for each in chosen), many=True, stem=stem)


def _few(places: Sequence[str]) -> str:
    names = [os.path.basename(place) for place in places[:8]]
    return ", ".join(names) + (", ..." if len(places) > 8 else "")
