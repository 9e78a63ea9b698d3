"""What an exporter is given and what it returns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from shlex import join, quote

from gguftools.errors import RefusedError, SourceError, UsageError
from gguftools.gguf.place import is_remote
from gguftools.recipes.files import as_hub_file, files_of, local_file, made_path
from gguftools.recipes.recipe import (
    Converted,
    HubFile,
    PackageFile,
    PlacedFile,
    Recipe,
    Requantized,
    Source,
)

_LINE = 96
# Their vocabulary and sizes come from the target's checkpoint (conversion/, b11434).
_WITH_TARGET = ("draft-eagle3", "draft-dflash", "draft-dspark")


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where the pair is to run; None leaves it to the recipe or to the system."""

    gpus: int | None = None  # on each machine
    nodes: int = 1
    rpc: tuple[str, ...] = ()  # HOST:PORT of llama.cpp's rpc-server
    n_ctx: int | None = None
    memory_fraction: float | None = None
    n_bytes: int | None = None  # of the files together, where that is known


@dataclass(frozen=True, slots=True)
class Export:
    """The pair for one system: what to run or to save, and what to know."""

    system: str
    version: str  # of the system whose documents or parser this was written by
    text: str
    notes: tuple[str, ...] = ()

    @property
    def full(self) -> str:
        """The text under its notes, as comments: every format here starts one with #."""
        head = [f"for {self.system}, with what {self.version} knows", *self.notes]
        return "\n".join([*(f"# {one_line(note)}" for note in head), self.text])


@dataclass(frozen=True, slots=True)
class Named:
    """The files by the names they have in the commands, and the commands that get them."""

    target: str
    draft: str | None
    before: tuple[str, ...]


def named_files(recipe: Recipe) -> Named:
    """The files as the commands name them: those of the Hub as downloaded here."""
    before: list[str] = []
    target = _named(recipe, recipe.target, before)
    draft = None if recipe.draft is None else _named(recipe, recipe.draft, before)
    for name in (recipe.name, target, draft or ""):
        if not name.isprintable():
            raise RefusedError("a name in it has characters that no terminal shows",
                               where=one_line(name))  # fmt: skip
    return Named(target, draft, tuple(before))


def _named(recipe: Recipe, source: Source, before: list[str]) -> str:
    match as_hub_file(source):
        case HubFile() as hub:
            at = ["--revision", hub.revision] if hub.revision else []
            before.append(
                join(["hf", "download", hub.repo, *files_of(hub), *at, "--local-dir", "."])
            )
            return hub.file
        case PlacedFile() as placed:
            if is_remote(placed.place):
                before.append(join(["curl", "-fLO", placed.place]))
                return os.path.basename(placed.place.partition("?")[0])
            return placed.place
        case PackageFile() as packed:
            path = local_file(recipe, packed)
            if path is None:
                hint = f"pip install {packed.package.replace('_', '-')}"
                raise SourceError(f"the package {packed.package} is not installed", hint=hint)
            return str(path)
        case Converted() as made:
            before += conversion(recipe, made)
            return made.file
        case Requantized() as made:
            copy = made_path(recipe, made)
            if copy is None:
                what = f"the {made.of} is not here, so its copy has no name yet"
                raise SourceError(what, hint=f"gguftools recipe run {recipe.name}")
            if not copy.is_file():
                before.append(
                    f"{join(['gguftools', 'recipe', 'run', recipe.name])}  # makes a file"
                )
            return str(copy)


@dataclass(frozen=True, slots=True)
class Expanded:
    """A word that begins with a variable of the shell."""

    variable: str
    rest: str

    def __str__(self) -> str:
        return f'"${self.variable}"{quote(self.rest) if self.rest else ""}'


def conversion(recipe: Recipe, made: Converted) -> list[str]:
    """The commands that make the file; the converter lies in llama.cpp's source."""
    folder = made.checkpoint.rpartition("/")[2]
    lines = [join(["hf", "download", made.checkpoint, "--local-dir", folder])]
    words = ["python3", "convert_hf_to_gguf.py", folder]
    words += ["--outtype", "q8_0", "--outfile", made.file]
    if recipe.kind == "draft-mtp":
        return [*lines, join([*words, "--mtp"])]
    if recipe.kind in _WITH_TARGET and recipe.hf.target is not None:
        target = recipe.hf.target.rpartition("/")[2]
        parts = ["--include", "*.json", "--include", "*.txt", "--include", "*.model"]
        lines.append(join(["hf", "download", recipe.hf.target, *parts, "--local-dir", target]))
        words += ["--target-model-dir", target]
    return [*lines, join(words)]


def one_line(text: str) -> str:
    """Text that stays inside its comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def plain_path(path: str) -> str:
    """A path for a format that cannot quote: refused where it could end its line or word."""
    if not path.isprintable() or path != path.strip() or '"' in path:
        raise UsageError("the name has characters that this format cannot hold", where=path)
    return path if os.path.isabs(path) else f"./{path}"


def refuse_machines(recipe: Recipe, system: str, deployment: Deployment) -> None:
    """For a system that runs on one machine only."""
    if deployment.nodes > 1 or deployment.rpc:
        hint = "llama-server, vllm and sglang do"
        raise RefusedError(f"{system} does not spread a model over machines", where=recipe.name,
                           hint=hint)  # fmt: skip


def command(*words: str | Expanded) -> str:
    """A shell command; a long one is folded before its options."""
    quoted = [str(word) if isinstance(word, Expanded) else quote(word) for word in words]
    line = " ".join(quoted)
    if len(line) <= _LINE:
        return line
    return quoted[0] + "".join(
        f" \\\n    {word}" if word.startswith("-") and i > 1 else f" {word}"
        for i, word in enumerate(quoted[1:], 1)
    )
