"""The three jobs on a real model: inspect it, check a pair, answer with and without drafts.

Reads recipes/smollm2-demo.toml; every step is a command that you can repeat by hand.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguftools.cli import render
from gguftools.errors import GGUFToolsError, SourceError
from gguftools.recipes import (
    PackageFile,
    Recipe,
    Requantized,
    installed_file,
    load_recipe,
    recipe_path,
)
from gguftools.speculative.quantize import requantize

CACHE = Path(".cache")
N_REPEATS = 3
ARMS = {"plain": ["--no-draft"], "draft model": ["--draft"], "n-gram": ["--ngram"]}


@dataclass(frozen=True, slots=True)
class Arm:
    """The runs of one way to draft, as `gguftools run --json` printed them."""

    name: str
    runs: list[dict[str, Any]]

    @property
    def speeds(self) -> list[float]:
        """Tokens per second of each run."""
        return [float(run["tokens_per_second"]) for run in self.runs]

    @property
    def tokens_per_second(self) -> float:
        """The median run's."""
        return statistics.median(self.speeds)


def main() -> int:
    """Run the demo."""
    try:
        recipe = load_recipe(recipe_path("smollm2-demo"))
        draft = _installed(recipe)
        target = _made(recipe, draft)
        _show("inspect", str(draft))
        _show("pair", str(target), str(draft))
        arms = _answers(recipe, target, draft)
    except GGUFToolsError as err:
        print(f"demo: {render.printable(str(err))}", file=sys.stderr)
        return err.exit_code
    except subprocess.CalledProcessError as err:
        print(f"demo: {shlex.join(err.cmd)} ended with {err.returncode}", file=sys.stderr)
        print(err.stderr or "", file=sys.stderr)
        return 3
    _table(arms)
    print('\nNow try: .venv/bin/gguftools chat   (or "run MODEL -p PROMPT" with a model of yours)')
    return 0


def _installed(recipe: Recipe) -> Path:
    """The recipe's file from its package, checked."""
    source = recipe.draft
    assert isinstance(source, PackageFile)
    path = installed_file(source)
    if path is None:
        raise SourceError(f"{source.package} is not installed", hint="run scripts/demo")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != source.sha256:
            raise SourceError("not the file that the recipe was tested with", where=str(path))
    return path


def _made(recipe: Recipe, draft: Path) -> Path:
    """The recipe's target, requantized once and kept in .cache."""
    source = recipe.target
    assert isinstance(source, Requantized)
    path = CACHE / f"{draft.name.removesuffix('.gguf')}.{source.file_type}.gguf"
    if not path.exists():
        print(f"-- writing {path} ({source.file_type} from {draft.name})", file=sys.stderr)
        CACHE.mkdir(exist_ok=True)
        requantize(draft, path, source.file_type)
    return path


def _gguftools(*args: str, shown: bool = True) -> list[str]:
    if shown:
        print(f"\n$ gguftools {shlex.join(args)}", flush=True)
    return [sys.executable, "-m", "gguftools", *args]


def _show(*args: str) -> None:
    """Run a command whose output is the point, be it a yes or a no."""
    done = subprocess.run(_gguftools(*args), check=False)
    if done.returncode > 1:
        done.check_returncode()


def _answers(recipe: Recipe, target: Path, draft: Path) -> list[Arm]:
    """One prompt in every arm, N_REPEATS times in turn, so that a slow minute hits all of them."""
    settings = recipe.settings
    arms = [Arm(name, []) for name in ARMS]
    for repeat in range(N_REPEATS):
        for arm in arms:
            drafter = ARMS[arm.name] + ([str(draft)] if arm.name == "draft model" else [])
            command = [
                "run", str(target), *drafter, "--json",
                "--temp", f"{settings.temp:g}", "-n", str(settings.n_predict),
                "--draft-max", str(settings.draft_max), "--draft-min", str(settings.draft_min),
                "--draft-p-min", f"{settings.draft_p_min:g}", "-p", recipe.prompts[0],
            ]  # fmt: skip
            full = _gguftools(*command, shown=repeat == 0)
            done = subprocess.run(full, check=True, capture_output=True, text=True)
            arm.runs.append(json.loads(done.stdout))
        if repeat == 0:
            print(f"\n{render.stream_text(arms[0].runs[0]['text'])}\n")
            print(f"-- the same {N_REPEATS - 1} times more, for the table", file=sys.stderr)
    return arms


def _table(arms: list[Arm]) -> None:
    plain = arms[0]
    render.table(
        ("arm", "tokens/s", "of plain", "acceptance", "tokens/round", "text"),
        [_row(arm, plain) for arm in arms],
        right=(1, 2, 3, 4),
    )
    print(f"\n{_verdict(max(arms[1:], key=lambda arm: arm.tokens_per_second), plain)}")


def _verdict(best: Arm, plain: Arm) -> str:
    """Whether drafting pays; runs that overlap are a tie."""
    gain = best.tokens_per_second / plain.tokens_per_second
    what = f"{best.name}, the best drafter, runs at {gain:.2f} of plain"
    if min(best.speeds) > max(plain.speeds):
        return f"Drafting pays here: {what}."
    if max(best.speeds) < min(plain.speeds):
        return f"Drafting does not pay here: {what}; this draft costs as much as its target."
    return f"Drafting makes no difference here: {what}, and their runs overlap."


def _row(arm: Arm, plain: Arm) -> tuple[str, ...]:
    run = arm.runs[0]
    speeds = arm.speeds
    n_draft, n_rounds = run["n_draft"], run["n_rounds"]
    return (
        arm.name,
        f"{arm.tokens_per_second:.1f} ({min(speeds):.1f} to {max(speeds):.1f})",
        f"{arm.tokens_per_second / plain.tokens_per_second:.2f}",
        render.ratio(run["n_accepted"] / n_draft if n_draft else None),
        render.rate(run["n_tokens"] / n_rounds if n_rounds else None),
        "-" if arm is plain else _compare(run["token_ids"], plain.runs[0]["token_ids"]),
    )


def _compare(token_ids: list[int], plain: list[int]) -> str:
    """Equal, or where the greedy texts part."""
    if token_ids == plain:
        return "equal to plain"
    same = next(
        (i for i, (a, b) in enumerate(zip(token_ids, plain, strict=False)) if a != b),
        min(len(token_ids), len(plain)),
    )
    return f"differs from token {same + 1} on: rounding flipped a near-tie"


if __name__ == "__main__":
    sys.exit(main())
