"""The floors of the house: imports go down, never up, never in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "gguftools"
FLOORS = (
    "errors", "gguf", "pairing", "speculative", "server", "service", "recipes", "bench", "explain",
    "cli",
)  # fmt: skip
MODULES = sorted(PACKAGE.rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _floor(module: str) -> int | None:
    parts = module.split(".")
    return FLOORS.index(parts[1]) if len(parts) > 1 and parts[1] in FLOORS else None


def _own_imports(path: Path) -> set[str]:
    """The modules of gguftools that a file imports, each by the name of its file."""
    known = {_name(p) for p in MODULES}
    found = set()
    for name in _imports(path):
        if name.split(".")[0] == "gguftools":
            found.add(name if name in known else name.rpartition(".")[0])
    return found - {_name(path), "gguftools"}


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_go_down(path: Path) -> None:
    own = _floor(_name(path))
    for name in _own_imports(path):
        other = _floor(name)
        assert own is None or other is None or other <= own, f"{_name(path)} imports {name}"


def test_imports_form_no_circle() -> None:
    graph = {_name(path): _own_imports(path) for path in MODULES}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(MODULES)


# Rooms of the lower floors that need a heavy library, and are themselves imported only on request.
HEAVY = {
    "gguftools.gguf.blocks": {"numpy", "gguf"},
    "gguftools.gguf.deep": set(),
    "gguftools.gguf.deep_findings": set(),
    "gguftools.gguf.source_weights": {"numpy"},
    "gguftools.gguf.hub": {"huggingface_hub"},
    "gguftools.gguf.remote": {"huggingface_hub"},
    "gguftools.gguf.repo_files": {"huggingface_hub"},
    "gguftools.pairing.hub_search": set(),
}


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_heavy_rooms_are_entered_only_on_request(path: Path) -> None:
    top = ast.parse(path.read_text(encoding="utf-8")).body
    named = {n.module for n in top if isinstance(n, ast.ImportFrom)}
    assert _name(path) in HEAVY or not named & set(HEAVY)


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_heavy_modules_are_imported_only_where_they_belong(path: Path) -> None:
    name, roots = _name(path), {module.split(".")[0] for module in _imports(path)}
    below = _floor(name) is not None and name.split(".")[1] in ("errors", "gguf", "pairing")
    if below or name.startswith(("gguftools.cli", "gguftools.recipes")):
        heavy = {"numpy", "llama_cpp", "huggingface_hub", "gguf", "jinja2"}
        assert not roots & (heavy - HEAVY.get(name, set()))
    if name != "gguftools.speculative.llama":
        assert "llama_cpp" not in roots
    if not name.startswith("gguftools.cli"):
        assert not roots & {"click", "rich", "prompt_toolkit"}


def test_the_floors_are_all_there() -> None:
    assert {p.name.removesuffix(".py") for p in PACKAGE.iterdir()} >= set(FLOORS)
