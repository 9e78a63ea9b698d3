"""Which recipes there are: those that came with gguftools and the user's own. I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gguftools.errors import UsageError

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "_recipes", _PACKAGE.parent / "recipes")  # in the wheel, in the source tree


def user_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's own recipes lie; it need not exist."""
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(config) / "gguftools" / "recipes"


def recipe_paths() -> dict[str, Path]:
    """Every recipe by name, sorted; one of the user's own hides a shipped one of that name."""
    folders = (*_FOLDERS, user_folder())
    found = {path.stem: path for folder in folders for path in folder.glob("*.toml")}
    return dict(sorted(found.items()))


def recipe_path(name: str) -> Path:
    """The recipe of that name."""
    known = recipe_paths()
    if name not in known:
        raise UsageError(f"no recipe is named {name!r}", hint=f"there are: {', '.join(known)}")
    return known[name]


def find_recipe(text: str) -> Path:
    """A recipe by its name or its file."""
    if text.endswith(".toml") or os.sep in text:
        return Path(text)
    return recipe_path(text)
