"""Writes the tables of docs/article.md; --check says whether they are stale."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gguftools.explain.rates import expected
from gguftools.recipes import Expected, Recipe, load_recipe

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "article.md"
LENGTHS = (1, 2, 3, 4, 8, 16)
CHANCES = (0.5, 0.6, 0.7, 0.8, 0.9)


def page() -> str:
    """The page with its tables written anew; the prose stays."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("tokens", tokens()), ("figures", figures())):
        begin, end = f"<!-- {name}: written by scripts/article.py -->", f"<!-- {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"
    return text


def tokens() -> Iterator[str]:
    """Tokens per round by its length, each kept with the same chance."""
    yield "| chance a | " + " | ".join(f"n = {n}" for n in LENGTHS) + " | limit |"
    yield "|---" * (len(LENGTHS) + 2) + "|"
    for a in CHANCES:
        row = " | ".join(f"{expected([a], n):.2f}" for n in LENGTHS)
        yield f"| {a} | {row} | {1 / (1 - a):.1f} |"


def figures() -> Iterator[str]:
    """What others published of the pairs that we have a recipe for."""
    recipes = [load_recipe(path) for path in sorted((ROOT / "recipes").glob("*.toml"))]
    yield "| recipe | on | speed-up | accepted | runs in | not verified |"
    yield "|---|---|---|---|---|---|"
    for recipe in recipes:
        for figure in sorted(recipe.expected, key=lambda e: e.on):
            yield _line(recipe, figure)
    bare = ", ".join(r.name for r in recipes if not r.expected)
    yield ""
    yield f"No figure with its baseline was found for {bare}."


def _line(recipe: Recipe, figure: Expected) -> str:
    cells = (
        recipe.name,
        f"[{figure.on.replace('|', '/')}]({figure.source})",
        "-" if figure.speedup is None else f"{figure.speedup:.2f}x",
        "-" if figure.acceptance is None else f"{figure.acceptance:.0%}",
        recipe.needs.engine or "both",
        ", ".join(recipe.unverified) or "-",
    )
    return f"| {' | '.join(cells)} |"


def main(*, check: bool) -> int:
    """Write the page, or only say whether it is stale."""
    made = page()
    if check:
        return int(PAGE.read_text(encoding="utf-8") != made)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
