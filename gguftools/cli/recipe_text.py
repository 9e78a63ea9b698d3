"""Recipes on the screen and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from gguftools.cli import render
from gguftools.cli.contract_recipe import (
    RecipeCheckJSON,
    RecipeExpectedJSON,
    RecipeJSON,
    RecipeListJSON,
    RecipeMeasuredJSON,
    RecipeRowJSON,
    RecipeSettingsJSON,
    RecipeSourceJSON,
)
from gguftools.recipes import (
    Converted,
    Expected,
    HubFile,
    PackageFile,
    Recipe,
    Requantized,
    Source,
    user_folder,
)
from gguftools.recipes.check import Check

_TYPES = {
    "HubFile": "hub", "PackageFile": "package", "Converted": "converted",
    "Requantized": "requantized", "PlacedFile": "placed",
}  # fmt: skip
_COLOURS = {"ok": "green", "wrong": "red", "not checked": "yellow"}


def print_list(recipes: Mapping[Path, Recipe], broken: Mapping[Path, str]) -> None:
    """One line a recipe."""
    rows = [
        (recipe.name, recipe.kind, _range(recipe), "yours" if _is_own(path) else "", recipe.about)
        for path, recipe in recipes.items()
    ]
    render.table(("recipe", "kind", "published gain", "", "about"), rows)
    for path, why in broken.items():
        render.note(f"{path} is no recipe: {why}")


def list_json(recipes: Mapping[Path, Recipe], broken: Mapping[Path, str]) -> RecipeListJSON:
    """The list for `--json`."""
    rows = []
    for path, recipe in recipes.items():
        gains = _gains(recipe)
        rows.append(
            RecipeRowJSON(
                name=recipe.name,
                path=str(path),
                own=_is_own(path),
                kind=recipe.kind,
                about=recipe.about,
                tasks=list(recipe.tasks),
                speedup_low=min(gains, default=None),
                speedup_high=max(gains, default=None),
            )
        )
    return RecipeListJSON(
        schema="gguftools.recipe-list/1",
        recipes=rows,
        broken={str(path): why for path, why in broken.items()},
    )


def print_recipe(recipe: Recipe, path: Path) -> None:
    """All that it says."""
    render.line(f"{recipe.name}: {recipe.about}", style="bold")
    settings = {k: v for k, v in asdict(recipe.settings).items() if v is not None}
    rows = [
        ("kind", recipe.kind),
        ("tasks", ", ".join(recipe.tasks)),
        ("target", _source_text(recipe.target)),
        ("draft", "none" if recipe.draft is None else _source_text(recipe.draft)),
        ("checkpoints", _pairs(asdict(recipe.hf))),
        ("settings", _pairs(settings)),
        ("needs", _pairs(asdict(recipe.needs))),
        *(("published", _figures(each)) for each in recipe.expected),
        ("tested with", _pairs(recipe.tested_with)),
        ("measured", _measured(recipe)),
        ("not verified", ", ".join(recipe.unverified)),
        *(("note", note) for note in recipe.notes),
        ("file", str(path)),
    ]
    render.facts([(label, text) for label, text in rows if text])


def recipe_json(recipe: Recipe, path: Path) -> RecipeJSON:
    """The recipe for `--json`."""
    measured = recipe.measured
    return RecipeJSON(
        schema="gguftools.recipe/1",
        path=str(path),
        name=recipe.name,
        about=recipe.about,
        kind=recipe.kind,
        tasks=list(recipe.tasks),
        prompts=list(recipe.prompts),
        target=_source_json(recipe.target),
        draft=None if recipe.draft is None else _source_json(recipe.draft),
        hf=asdict(recipe.hf),
        settings=cast(RecipeSettingsJSON, asdict(recipe.settings)),
        needs=asdict(recipe.needs),
        expected=[cast(RecipeExpectedJSON, asdict(each)) for each in recipe.expected],
        tested_with=dict(recipe.tested_with),
        measured=None if measured is None else cast(RecipeMeasuredJSON, asdict(measured)),
        unverified=list(recipe.unverified),
        notes=list(recipe.notes),
    )


def print_checks(checks: Sequence[Check]) -> None:
    """One recipe with all that was found, several with what is not right."""
    if len(checks) == 1:
        (check,) = checks
        render.line(f"{check.name or check.path}: {check.verdict}", style=_COLOURS[check.verdict])
        rows = [(f.what, (f"{f.verdict}: {f.reason}", _COLOURS[f.verdict])) for f in check.findings]
        render.facts(rows)
        return
    rows_of_all = []
    for check in checks:
        worst = [f for f in check.findings if f.verdict == check.verdict]
        # Of a pair that is right its own line says most; the rest would repeat itself.
        shown = worst[-1:] if check.verdict == "ok" else worst[:1]
        reasons = "; ".join(f"{f.what}: {f.reason}" for f in shown)
        rows_of_all.append((check.name or str(check.path), check.verdict, reasons))
    render.table(("recipe", "verdict", "why"), rows_of_all)


def checks_json(checks: Sequence[Check]) -> RecipeCheckJSON:
    """The checks for `--json`."""
    return RecipeCheckJSON(
        schema="gguftools.recipe-check/1",
        recipes=[
            {
                "path": str(check.path),
                "name": check.name,
                "verdict": check.verdict,
                "findings": [
                    {"what": f.what, "verdict": f.verdict, "reason": f.reason}
                    for f in check.findings
                ],
            }
            for check in checks
        ],
    )


def _source_json(source: Source) -> RecipeSourceJSON:
    values: dict[str, Any] = asdict(source)
    digests = values.get("sha256", ())
    return RecipeSourceJSON(
        type=cast(Any, _TYPES[type(source).__name__]),
        repo=values.get("repo"),
        package=values.get("package"),
        checkpoint=values.get("checkpoint"),
        file=values.get("file"),
        revision=values.get("revision"),
        sha256=[digests] if isinstance(digests, str) else list(digests),
        of=values.get("of"),
        file_type=values.get("file_type"),
        place=values.get("place"),
        n_bytes=values.get("n_bytes"),
    )


def _source_text(source: Source) -> str:
    match source:
        case PackageFile():
            return f"{source.file} of the package {source.package}"
        case HubFile():
            return source.place
        case Converted():
            return f"{source.file}, converted from {source.checkpoint}"
        case Requantized():
            return f"the {source.of} as {source.file_type}"
    return f"{source.place}, {render.n_bytes(source.n_bytes)}"


def _figures(each: Expected) -> str:
    parts = [] if each.speedup is None else [f"{each.speedup:g} of plain"]
    if each.tokens_per_second is not None:
        parts.append(f"{each.tokens_per_second:g} tokens/s")
    if each.plain_tokens_per_second is not None:
        parts.append(f"plain {each.plain_tokens_per_second:g}")
    if each.acceptance is not None:
        parts.append(f"{render.ratio(each.acceptance)} accepted")
    return f"{', '.join(parts)}: {each.on} ({each.source})"


def _measured(recipe: Recipe) -> str:
    m = recipe.measured
    if m is None:
        return ""
    accepted = "" if m.acceptance is None else f", {render.ratio(m.acceptance)} accepted"
    return (
        f"{m.tokens_per_second:g} tokens/s ({m.low:g} to {m.high:g}), plain "
        f"{m.plain_tokens_per_second:g}{accepted}: {m.machine}, {m.date}, {_pairs(m.builds)}"
    )


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)


def _gains(recipe: Recipe) -> list[float]:
    return [each.speedup for each in recipe.expected if each.speedup is not None]


def _range(recipe: Recipe) -> str:
    gains = _gains(recipe)
    if not gains:
        return "-"
    low, high = min(gains), max(gains)
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def _is_own(path: Path) -> bool:
    return path.parent == user_folder()
