"""A pair as a TOML file: where its files come from, how to run it, on what it was tried.

name = "..."   about = "..."   kind = "draft-simple"   tasks = ["..."]   prompts = ["..."]
[target] and [draft]     package + file + sha256: a file inside an installed Python package
                         of + requantize: made from the other one with that file type
                         place + n_bytes: a file here, on the Hub, or at a URL
[settings]               draft_max, draft_min, draft_p_min, temp, n_predict
[tested-with]            names and versions; empty for a pair that was only predicted
There is no [draft] where the target drafts for itself, by its MTP head or by n-gram lookup.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gguftools.errors import FormatError, SourceError, UsageError
from gguftools.pairing.compatibility import Pair

RECIPE_BYTES_MAX = 1 << 20

_HERE = Path(__file__).resolve().parent
_FOLDERS = (_HERE / "_recipes", _HERE.parent / "recipes")  # in the wheel, in the source tree
_KEYS = frozenset({"name", "about", "kind", "tasks", "prompts", "target", "draft", "settings",
                   "tested-with"})  # fmt: skip
_TEMP, _N_PREDICT = 0.8, 512  # of a recipe that nobody has run yet
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ALONE = ("draft-mtp", "ngram")  # kinds that may need no second file
_KINDS = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark", *_ALONE)


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file that an installed Python package carries."""

    package: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Requantized:
    """A file made from the pair's other one."""

    of: str  # "target" or "draft"
    file_type: str


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file by its place, as every verb takes one; another size is another file."""

    place: str
    n_bytes: int


Source = PackageFile | Requantized | PlacedFile


@dataclass(frozen=True, slots=True)
class RecipeSettings:
    """How the pair is run."""

    draft_max: int
    draft_min: int
    draft_p_min: float
    temp: float
    n_predict: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """One pair: known to work where `tested_with` says on what, else expected to."""

    name: str
    about: str
    kind: str
    target: Source
    draft: Source | None
    settings: RecipeSettings
    prompts: tuple[str, ...]
    tasks: tuple[str, ...]
    tested_with: dict[str, str]


def recipe_path(name: str) -> Path:
    """The recipe of that name that came with gguftools."""
    known = {p.stem: p for folder in _FOLDERS for p in sorted(folder.glob("*.toml"))}
    if name not in known:
        raise UsageError(f"no recipe is named {name!r}", hint=f"there are: {', '.join(known)}")
    return known[name]


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe; FormatError names the key at fault."""
    try:
        if path.stat().st_size > RECIPE_BYTES_MAX:
            raise FormatError(f"larger than {RECIPE_BYTES_MAX} bytes", where=str(path))
        root = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path)) from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as err:
        raise FormatError(f"not TOML: {err}", where=str(path)) from err
    table = _Table(root, str(path), _KEYS)
    kind = table.text("kind") if "kind" in root else "draft-simple"
    if kind not in _KINDS:
        raise FormatError("no kind of draft", where=table.at("kind"),
                          hint=f"there are: {', '.join(_KINDS)}")  # fmt: skip
    target = _model(table, "target", "draft")
    alone = kind in _ALONE and "draft" not in root
    draft = None if alone else _model(table, "draft", "target")
    if isinstance(target, Requantized) and isinstance(draft, Requantized):
        raise FormatError("target and draft are each made from the other", where=str(path))
    return Recipe(
        name=table.text("name"),
        about=table.text("about"),
        kind=kind,
        target=target,
        draft=draft,
        settings=_settings(table),
        prompts=table.texts("prompts"),
        tasks=table.texts("tasks"),
        tested_with=_tested_with(table),
    )


class _Table:
    """A TOML table whose wrong, missing or unknown keys are format errors with their place."""

    def __init__(self, values: object, where: str, keys: frozenset[str] | None) -> None:
        if not isinstance(values, dict):
            raise FormatError("must be a table", where=where)
        self.values: Mapping[str, object] = values
        self.where = where
        if keys is not None and (unknown := sorted(set(values) - keys)):
            raise FormatError(f"unknown key {unknown[0]!r}", where=where,
                              hint=f"keys are: {', '.join(sorted(keys))}")  # fmt: skip

    def at(self, key: str) -> str:
        return f"{self.where}: {key}"

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            raise FormatError("must be a text that is not empty", where=self.at(key))
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise FormatError("must be a list of texts", where=self.at(key))
        return tuple(value)

    def number(self, key: str, low: float, high: float) -> float:
        value = self.values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise FormatError(f"must be a number from {low:g} to {high:g}", where=self.at(key))

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.number(key, low, high)
        if not isinstance(value, int):
            raise FormatError("must be a whole number", where=self.at(key))
        return value


def _model(recipe: _Table, key: str, other: str) -> Source:
    values, where = recipe.values.get(key), recipe.at(key)
    if isinstance(values, dict) and "requantize" in values:
        made = _Table(values, where, frozenset({"of", "requantize"}))
        if made.text("of") != other:
            raise FormatError(f"must be {other!r}", where=made.at("of"))
        return Requantized(other, made.text("requantize"))
    if isinstance(values, dict) and "place" in values:
        placed = _Table(values, where, frozenset({"place", "n_bytes"}))
        return PlacedFile(placed.text("place"), placed.integer("n_bytes", 0, 1 << 62))
    table = _Table(values, where, frozenset({"package", "file", "sha256"}))
    file, digest = table.text("file"), table.text("sha256")
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise FormatError("must lie inside the package", where=table.at("file"))
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise FormatError("must be 64 lower-case hexadecimal digits", where=table.at("sha256"))
    return PackageFile(table.text("package"), file, digest)


def _settings(recipe: _Table) -> RecipeSettings:
    keys = frozenset({"draft_max", "draft_min", "draft_p_min", "temp", "n_predict"})
    table = _Table(recipe.values.get("settings"), recipe.at("settings"), keys)
    settings = RecipeSettings(
        draft_max=table.integer("draft_max", 1, 64),
        draft_min=table.integer("draft_min", 0, 64),
        draft_p_min=table.number("draft_p_min", 0, 1),
        temp=table.number("temp", 0, 100),
        n_predict=table.integer("n_predict", 1, 1 << 20),
    )
    if settings.draft_min > settings.draft_max:
        raise FormatError("must not be above draft_max", where=table.at("draft_min"))
    return settings


def _tested_with(recipe: _Table) -> dict[str, str]:
    table = _Table(recipe.values.get("tested-with"), recipe.at("tested-with"), None)
    return {key: table.text(key) for key in table.values}


def installed_file(source: PackageFile) -> Path | None:
    """Where that file lies here, None if its package is not installed. Does not import it."""
    spec = importlib.util.find_spec(source.package)
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    paths = (Path(folder) / source.file for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def predicted_recipe(
    name: str, pair: Pair, target_bytes: int, *, task: str | None, temp: float | None
) -> Recipe:
    """The recipe of a pair that was looked at and not run."""
    assert pair.kind is not None
    assert pair.settings is not None
    settings = pair.settings
    return Recipe(
        name=name,
        about=f"predicted by gguftools pair, not measured; {pair.reason}",
        kind=pair.kind,
        target=PlacedFile(pair.target, target_bytes),
        draft=None if pair.draft is None else PlacedFile(pair.draft, pair.n_bytes or 0),
        settings=RecipeSettings(
            settings.draft_max, settings.draft_min, settings.draft_p_min,
            _TEMP if temp is None else temp, _N_PREDICT,
        ),
        prompts=(),
        tasks=() if task is None else (task,),
        tested_with={},
    )  # fmt: skip


def recipe_toml(recipe: Recipe) -> str:
    """The recipe as the text that `load_recipe` reads."""
    lines = [_rows({
        "name": recipe.name, "about": recipe.about, "kind": recipe.kind,
        "tasks": list(recipe.tasks), "prompts": list(recipe.prompts),
    })]  # fmt: skip
    sections: list[tuple[str, Mapping[str, object]]] = [("target", _source(recipe.target))]
    if recipe.draft is not None:
        sections.append(("draft", _source(recipe.draft)))
    sections += [("settings", asdict(recipe.settings)), ("tested-with", recipe.tested_with)]
    lines += [f"[{name}]\n{_rows(values)}" for name, values in sections]
    return "\n".join(lines)


def _source(source: Source) -> Mapping[str, object]:
    if isinstance(source, Requantized):
        return {"of": source.of, "requantize": source.file_type}
    return asdict(source)


def _rows(values: Mapping[str, object]) -> str:
    """Keys and values; JSON's texts, numbers and lists are TOML's too, but for DEL."""
    return "".join(
        f"{key if _BARE.fullmatch(key) else _value(key)} = {_value(value)}\n"
        for key, value in values.items()
    )


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe; an existing file is only replaced by a whole one."""
    text = recipe_toml(recipe)
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(text.encode())
        part.replace(path)
    except UnicodeEncodeError as err:
        raise SourceError("a path in it is not UTF-8", where=str(path)) from err
    except OSError as err:
        part.unlink(missing_ok=True)
        raise SourceError(err.strerror or str(err), where=str(path)) from err
