"""Reads a recipe; what is wrong in it is a FormatError that names the key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from gguftools.errors import FormatError, SourceError
from gguftools.pairing.kv_cache import CACHE_TYPES
from gguftools.recipes.recipe import (
    ALONE,
    ENGINES,
    KINDS,
    Converted,
    Expected,
    HfModels,
    HubFile,
    Measured,
    Needs,
    PackageFile,
    PlacedFile,
    Recipe,
    RecipeSettings,
    Requantized,
    Source,
)
from gguftools.recipes.table import Table

RECIPE_BYTES_MAX = 1 << 20

_KEYS = frozenset({
    "name", "about", "kind", "tasks", "prompts", "target", "draft", "hf", "settings", "needs",
    "expected", "tested-with", "measured", "unverified", "notes",
})  # fmt: skip
_SETTINGS = frozenset(RecipeSettings.__dataclass_fields__)
_FIGURES = ("acceptance", "speedup", "tokens_per_second", "plain_tokens_per_second")
_REPO = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
_PACKAGE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_REVISION = re.compile(r"\w[\w.-]{0,99}(?:/[\w.-]{1,99})*", re.ASCII)
_SHARD = re.compile(r"-(0*1)-of-([0-9]{5})\.gguf$")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SPEED_MAX = 1e6


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe."""
    try:
        if path.stat().st_size > RECIPE_BYTES_MAX:
            raise FormatError(f"larger than {RECIPE_BYTES_MAX} bytes", where=str(path))
        root = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path)) from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as err:
        raise FormatError(f"not TOML: {err}", where=str(path)) from err
    return _recipe(Table(root, str(path), _KEYS))


def _recipe(table: Table) -> Recipe:
    given = table.values
    kind = table.choice("kind", KINDS, "kind of draft") if "kind" in given else "draft-simple"
    target = _model(table, "target", "draft")
    alone = kind in ALONE and "draft" not in given
    draft = None if alone else _model(table, "draft", "target")
    if isinstance(target, Requantized) and isinstance(draft, Requantized | None):
        what = "target and draft are each made from the other" if draft else "there is no draft"
        raise FormatError(what, where=table.at("target"))
    recipe = Recipe(
        name=table.text("name"),
        about=table.text("about"),
        kind=kind,
        target=target,
        draft=draft,
        settings=_settings(table),
        prompts=table.texts("prompts"),
        tasks=table.texts("tasks"),
        tested_with=_texts(table, "tested-with"),
        hf=_hf(table),
        needs=_needs(table),
        expected=_expected(table),
        measured=_measured(table),
        unverified=table.opt_texts("unverified"),
        notes=table.opt_texts("notes"),
    )
    _check_unverified(recipe, table)
    return recipe


def _model(recipe: Table, key: str, other: str) -> Source:
    values, where = recipe.values.get(key), recipe.at(key)
    if isinstance(values, dict) and "requantize" in values:
        made = Table(values, where, frozenset({"of", "requantize"}))
        if made.text("of") != other:
            raise FormatError(f"must be {other!r}", where=made.at("of"))
        return Requantized(other, made.text("requantize"))
    if isinstance(values, dict) and "convert" in values:
        return _converted(Table(values, where, frozenset({"convert", "file"})))
    if isinstance(values, dict) and "place" in values:
        placed = Table(values, where, frozenset({"place", "n_bytes"}))
        return PlacedFile(placed.text("place"), placed.integer("n_bytes", 0, 1 << 62))
    if isinstance(values, dict) and "repo" in values:
        return _hub_file(Table(values, where, frozenset({"repo", "file", "revision", "sha256"})))
    table = Table(values, where, frozenset({"package", "file", "sha256"}))
    package, file = table.text("package"), _inside(table, "package")
    if not _PACKAGE.fullmatch(package):
        raise FormatError("must be the name of one Python package", where=table.at("package"))
    return PackageFile(package, file, _digest(table, table.text("sha256")))


def _hub_file(table: Table) -> HubFile:
    repo, file, revision = table.text("repo"), _inside(table, "repo"), table.opt_text("revision")
    if not _REPO.fullmatch(repo):
        raise FormatError("must be user/repo", where=table.at("repo"))
    if revision is not None and not _REVISION.fullmatch(revision):
        raise FormatError("must be a branch, tag or commit", where=table.at("revision"))
    given = table.values.get("sha256")
    digests = table.opt_texts("sha256") if isinstance(given, list) else ()
    if given is not None and not isinstance(given, list):
        digests = (table.text("sha256"),)
    match = _SHARD.search(file)
    n_files = int(match[2]) if match else 1
    if digests and len(digests) != n_files:
        raise FormatError(
            f"must be one digest for each of {n_files} files", where=table.at("sha256")
        )
    return HubFile(repo, file, revision, tuple(_digest(table, text) for text in digests))


def _converted(table: Table) -> Converted:
    checkpoint, file = table.text("convert"), _inside(table, "folder")
    if not _REPO.fullmatch(checkpoint):
        raise FormatError("must be org/model", where=table.at("convert"))
    return Converted(checkpoint, file)


def _inside(table: Table, what: str) -> str:
    file = table.text("file")
    if Path(file).is_absolute() or ".." in Path(file).parts or "\\" in file:
        raise FormatError(f"must lie inside the {what}", where=table.at("file"))
    if file.startswith("-"):
        raise FormatError("must not look like an option", where=table.at("file"))
    return file


def _digest(table: Table, text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise FormatError("must be 64 lower-case hexadecimal digits", where=table.at("sha256"))
    return text


def _settings(recipe: Table) -> RecipeSettings:
    table = recipe.table("settings", _SETTINGS)

    def cache(key: str) -> str | None:
        return table.choice(key, tuple(CACHE_TYPES), "cache type") if key in table.values else None

    settings = RecipeSettings(
        draft_max=table.integer("draft_max", 1, 64),
        draft_min=table.integer("draft_min", 0, 64),
        draft_p_min=table.number("draft_p_min", 0, 1),
        temp=table.number("temp", 0, 100),
        n_predict=table.integer("n_predict", 1, 1 << 20),
        n_ctx=table.opt_integer("n_ctx", 1, 1 << 24),
        n_gpu_layers=table.opt_integer("n_gpu_layers", -1, 1 << 16),
        n_threads=table.opt_integer("n_threads", 1, 1024),
        cache_type_k=cache("cache_type_k"),
        cache_type_v=cache("cache_type_v"),
        cache_type_k_draft=cache("cache_type_k_draft"),
        cache_type_v_draft=cache("cache_type_v_draft"),
    )
    if settings.draft_min > settings.draft_max:
        raise FormatError("must not be above draft_max", where=table.at("draft_min"))
    return settings


def _texts(recipe: Table, key: str) -> dict[str, str]:
    table = recipe.table(key, None)
    return {name: table.text(name) for name in table.values}


def _hf(recipe: Table) -> HfModels:
    if "hf" not in recipe.values:
        return HfModels()
    table = recipe.table("hf", frozenset(HfModels.__dataclass_fields__))
    for key in ("target", "draft"):
        if key in table.values and not _REPO.fullmatch(table.text(key)):
            raise FormatError("must be org/model", where=table.at(key))
    n_mtp = table.opt_integer("n_mtp", 0, 64)
    return HfModels(table.opt_text("target"), table.opt_text("draft"), n_mtp)


def _needs(recipe: Table) -> Needs:
    if "needs" not in recipe.values:
        return Needs()
    table = recipe.table("needs", frozenset(Needs.__dataclass_fields__))
    engine = table.choice("engine", ENGINES, "engine") if "engine" in table.values else None
    return Needs(table.opt_integer("build", 1, 1 << 24), engine)


def _expected(recipe: Table) -> tuple[Expected, ...]:
    given, where = recipe.values.get("expected", []), recipe.at("expected")
    if not isinstance(given, list):
        raise FormatError("must be a list of tables: [[expected]]", where=where)
    found = []
    for i, values in enumerate(given, 1):
        table = Table(values, f"{where} {i}", frozenset({"on", "source", *_FIGURES}))
        if not table.text("source").startswith(("https://", "http://")):
            raise FormatError("must be the address of who published it", where=table.at("source"))
        if not any(key in table.values for key in _FIGURES):
            raise FormatError(f"has no figure: one of {', '.join(_FIGURES)}", where=table.where)
        found.append(
            Expected(
                on=table.text("on"),
                source=table.text("source"),
                acceptance=table.opt_number("acceptance", 0, 1),
                tokens_per_second=table.opt_number("tokens_per_second", 0, _SPEED_MAX),
                plain_tokens_per_second=table.opt_number("plain_tokens_per_second", 0, _SPEED_MAX),
                speedup=table.opt_number("speedup", 0, 100),
            )
        )
    return tuple(found)


def _measured(recipe: Table) -> Measured | None:
    if "measured" not in recipe.values:
        return None
    table = recipe.table("measured", frozenset(Measured.__dataclass_fields__))
    if not _DATE.fullmatch(table.text("date")):
        raise FormatError("must be a text like 2026-11-30", where=table.at("date"))
    return Measured(
        machine=table.text("machine"),
        date=table.text("date"),
        builds=_texts(table, "builds"),
        tokens_per_second=table.number("tokens_per_second", 0, _SPEED_MAX),
        plain_tokens_per_second=table.number("plain_tokens_per_second", 0, _SPEED_MAX),
        low=table.number("low", 0, _SPEED_MAX),
        high=table.number("high", 0, _SPEED_MAX),
        acceptance=table.opt_number("acceptance", 0, 1),
    )


def _check_unverified(recipe: Recipe, table: Table) -> None:
    """A digest that is not there is not verified, and says so; one that is there is."""
    where, said = table.at("unverified"), set(recipe.unverified)
    known = {f"settings.{key}" for key in _SETTINGS} | {"kind", "hf.target", "hf.draft", "hf.n_mtp"}
    known |= {"target.head", "needs.build", "needs.engine", "settings"}
    for key, source in (("target", recipe.target), ("draft", recipe.draft)):
        if isinstance(source, HubFile):
            known |= {f"{key}.{part}" for part in ("repo", "file", "revision", "sha256")}
            if bool(source.sha256) == (f"{key}.sha256" in said):
                must = "must not name" if source.sha256 else "must name"
                raise FormatError(f"{must} {key}.sha256", where=where)
    if unknown := sorted(said - known):
        raise FormatError(f"no such field: {unknown[0]}", where=where,
                          hint=f"there are: {', '.join(sorted(known))}")  # fmt: skip
