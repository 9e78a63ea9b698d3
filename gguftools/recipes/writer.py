"""Writes a recipe as the text that `load_recipe` reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from gguftools.errors import SourceError
from gguftools.recipes.recipe import Converted, HubFile, Recipe, Requantized, Source

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def recipe_toml(recipe: Recipe) -> str:
    """The recipe as TOML."""
    root: dict[str, object] = {
        "name": recipe.name, "about": recipe.about, "kind": recipe.kind,
        "tasks": list(recipe.tasks), "prompts": list(recipe.prompts),
    }  # fmt: skip
    for key, texts in (("unverified", recipe.unverified), ("notes", recipe.notes)):
        if texts:
            root[key] = list(texts)
    sections: list[tuple[str, Mapping[str, object]]] = [("[target]", _source(recipe.target))]
    if recipe.draft is not None:
        sections.append(("[draft]", _source(recipe.draft)))
    if hf := _given(asdict(recipe.hf)):
        sections.append(("[hf]", hf))
    sections.append(("[settings]", _given(asdict(recipe.settings))))
    if needs := _given(asdict(recipe.needs)):
        sections.append(("[needs]", needs))
    sections += [("[[expected]]", _given(asdict(each))) for each in recipe.expected]
    sections.append(("[tested-with]", recipe.tested_with))
    if recipe.measured is not None:
        figures = _given(asdict(recipe.measured))
        del figures["builds"]
        sections += [("[measured]", figures), ("[measured.builds]", recipe.measured.builds)]
    return "\n".join([_rows(root), *(f"{name}\n{_rows(rows)}" for name, rows in sections)])


def _source(source: Source) -> Mapping[str, object]:
    if isinstance(source, Requantized):
        return {"of": source.of, "requantize": source.file_type}
    if isinstance(source, Converted):
        return {"convert": source.checkpoint, "file": source.file}
    values = _given(asdict(source))
    if isinstance(source, HubFile):
        del values["sha256"]
        if source.sha256:
            one = len(source.sha256) == 1
            values["sha256"] = source.sha256[0] if one else list(source.sha256)
    return values


def _given(values: Mapping[str, object]) -> dict[str, object]:
    """Without what is not known: TOML has no null."""
    return {key: value for key, value in values.items() if value is not None}


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
