"""What can be said of a recipe without running it: its text, its files, its pair. I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gguftools.errors import FormatError, GGUFToolsError
from gguftools.gguf.checkpoint import open_checkpoint
from gguftools.gguf.header import Header
from gguftools.gguf.mtp_source import source_mtp
from gguftools.gguf.place import is_remote
from gguftools.pairing.compatibility import Pair, check_head, check_ngram, check_pair
from gguftools.pairing.launch import NGRAM
from gguftools.recipes.files import Progress, digests_of, local_file, place_of, wrong_file
from gguftools.recipes.reader import load_recipe
from gguftools.recipes.recipe import (
    Converted,
    HfModels,
    PackageFile,
    PlacedFile,
    Recipe,
    Requantized,
    Source,
)

Verdict = Literal["ok", "wrong", "not checked"]
_GONE = re.compile(r"no such (file|repository|revision)")
Open = Callable[[str], Header]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: "schema", "target", "draft", "pair" or "checkpoint"."""

    what: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one recipe; `name` is empty where it could not be read."""

    path: Path
    name: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of them."""
        order: tuple[Verdict, ...] = ("wrong", "not checked", "ok")
        return min((finding.verdict for finding in self.findings), key=order.index)


def once_unreachable(open_header: Open) -> Open:
    """The same, but a Hub or server that could not be reached is not asked again and again."""
    unreachable: dict[str, GGUFToolsError] = {}

    def opened(place: str) -> Header:
        host = "/".join(place.split("/")[: 2 if place.startswith("hf://") else 3])
        if is_remote(place) and host in unreachable:
            raise unreachable[host]
        try:
            return open_header(place)
        except GGUFToolsError as err:
            if _is_offline(err):
                unreachable[host] = err
            raise

    return opened


def check_recipe(path: Path, open_header: Open, progress: Progress, *, own_name: bool) -> Check:
    """Look at everything that is here, and at the headers of what lies on the Hub.

    With `own_name` the recipe must be named as its file: it is found by that name.
    """
    try:
        recipe = load_recipe(path)
    except FormatError as err:
        return Check(path, "", (Finding("schema", "wrong", str(err)),))
    except GGUFToolsError as err:
        return Check(path, "", (Finding("schema", "not checked", str(err)),))
    if own_name and recipe.name != path.stem:
        said = f"name: is {recipe.name!r}, but the file is {path.name!r}"
        return Check(path, recipe.name, (Finding("schema", "wrong", said),))
    findings = [Finding("schema", "ok", "every field is as it must be")]
    findings += _files(recipe, open_header, progress)
    return Check(path, recipe.name, tuple(findings))


def _files(recipe: Recipe, open_header: Open, progress: Progress) -> Iterator[Finding]:
    """The files, then the pair as far as the files can be read."""
    headers: dict[str, Header] = {}
    for key, source in (("target", recipe.target), ("draft", recipe.draft)):
        if source is None:
            continue
        found, header = _file(recipe, key, source, open_header, progress)
        if header is not None:
            headers[key] = header
        yield found
    yield _pair(recipe, headers)
    if recipe.kind == "draft-mtp" and recipe.hf.n_mtp is not None and recipe.hf.draft is None:
        yield _checkpoint(recipe.hf, recipe.hf.n_mtp)


def _file(
    recipe: Recipe, key: str, source: Source, open_header: Open, progress: Progress
) -> tuple[Finding, Header | None]:
    try:
        local = local_file(recipe, source)
        if local is not None and (why := wrong_file(source, local, progress)):
            return Finding(key, "wrong", why), None
        place = place_of(recipe, source)
        if place is None and isinstance(source, Requantized):
            return Finding(key, "ok", f"the first run makes it from the {source.of}"), None
        if place is None:
            return Finding(key, "not checked", _missing(source)), None
        header = open_header(place)
    except FormatError as err:
        return Finding(key, "wrong", str(err)), None
    except GGUFToolsError as err:
        return _unread(key, err), None
    if local is None and (why := _other_size(source, header)):
        return Finding(key, "wrong", why), None
    where = "here" if local is not None else "its header on the Hub is read"
    digest = "" if digests_of(source) else "; no sha256 to compare"
    if local is not None and digests_of(source):
        digest = ", sha256 is right"
    return Finding(key, "ok", f"{where}{digest}"), header


def _missing(source: Source) -> str:
    if isinstance(source, PackageFile):
        return f"the package {source.package} is not installed"
    assert isinstance(source, Converted)
    return f"{source.file} is not here: convert it from {source.checkpoint}"


def _unread(key: str, err: GGUFToolsError) -> Finding:
    """A file that is gone is wrong; one that cannot be looked at now may be right."""
    if _is_offline(err):
        return Finding(key, "not checked", f"offline: {err.what}")
    gone = _GONE.search(err.what) is not None
    return Finding(key, "wrong" if gone else "not checked", str(err))


def _is_offline(err: GGUFToolsError) -> bool:
    """As gguf/remote.py says it."""
    return err.what.startswith(("HF_HUB_OFFLINE", "cannot reach the "))


def _other_size(source: Source, header: Header) -> str:
    n_bytes = sum(shard.n_bytes for shard in header.shards)
    if isinstance(source, PlacedFile) and n_bytes != source.n_bytes:
        return f"it has {n_bytes} bytes, not {source.n_bytes}: another file"
    return ""


def _pair(recipe: Recipe, headers: dict[str, Header]) -> Finding:
    """Vocabularies, widths and heads, by the headers."""
    twins = _twins(recipe, headers)
    headers = {**headers, **twins}
    wanted = 1 if recipe.draft is None else 2
    if len(headers) < wanted:
        missing = (
            " and ".join(sorted({"target", "draft"} - set(headers))) if wanted == 2 else "target"
        )
        return Finding("pair", "not checked", f"the {missing} could not be read")
    pair = _checked(recipe, headers)
    if pair.verdict == "blocked":
        return Finding("pair", "wrong", pair.reason)
    if pair.kind != recipe.kind:
        return Finding("pair", "wrong", f"it drafts as {pair.kind}, the recipe says {recipe.kind}")
    if twins:
        return Finding("pair", "ok", "the same vocabulary: one is made from the other")
    slow = "" if pair.verdict == "works" else "it drafts, but no gain is to be expected: "
    return Finding("pair", "ok", f"{slow}{pair.reason}")


def _checked(recipe: Recipe, headers: dict[str, Header]) -> Pair:
    target, draft = headers["target"], headers.get("draft")
    if recipe.kind == NGRAM:
        return check_ngram(target)
    return check_head(target) if draft is None else check_pair(target, draft)


def _checkpoint(hf: HfModels, n_mtp: int) -> Finding:
    """Whether vLLM and SGLang find as many MTP layers as the recipe says."""
    try:
        found = source_mtp(open_checkpoint(f"hf://{hf.target}"))
    except GGUFToolsError as err:
        return _unread("checkpoint", err)
    if found.family is None:
        return Finding("checkpoint", "not checked", f"{hf.target} is of a class not known here")
    said = f"{hf.target} holds {len(found.blocks)} MTP layers"
    if len(found.blocks) != n_mtp:
        return Finding("checkpoint", "wrong", f"{said}, the recipe says {n_mtp}")
    return Finding("checkpoint", "ok", said)


def _twins(recipe: Recipe, headers: dict[str, Header]) -> dict[str, Header]:
    """A copy that is not made yet has the vocabulary and the shape of the file it is made from."""
    both = (("target", recipe.target), ("draft", recipe.draft))
    return {
        key: headers[source.of]
        for key, source in both
        if isinstance(source, Requantized) and key not in headers and source.of in headers
    }
