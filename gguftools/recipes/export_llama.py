"""The pair for llama.cpp's programs, for our own, and for llama-server in a container."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from gguftools.errors import RefusedError
from gguftools.pairing.engines import OURS, SERVER, engines_of
from gguftools.pairing.launch import NGRAM, Launch, Settings, server_words
from gguftools.recipes.exported import (
    Deployment,
    Expanded,
    Export,
    Named,
    command,
    named_files,
    plain_path,
    refuse_machines,
)
from gguftools.recipes.recipe import Recipe

_BUILD = "llama.cpp b11434"  # common/arg.cpp: each flag below is one of llama-server and llama-cli
# Tags of a build are server-cuda13-bNNNNN (github.com/orgs/ggml-org/packages/container/llama.cpp).
_IMAGE = "ghcr.io/ggml-org/llama.cpp:server-cuda13-b11434"
_IMAGE_CPU = "ghcr.io/ggml-org/llama.cpp:server-b11434"
_PORT = 8080


def llama_server(recipe: Recipe, deployment: Deployment) -> Export:
    """llama-server with the recipe's files."""
    files = named_files(recipe)
    words = server_line(recipe, files, deployment)
    return Export("llama-server", _BUILD, _lines(files, command(SERVER, *words)),
                  _notes(recipe, deployment))  # fmt: skip


def llama_cli(recipe: Recipe, deployment: Deployment) -> Export:
    """llama-cli: a chat in the terminal."""
    files = named_files(recipe)
    words = [*server_line(recipe, files, deployment), "-n", str(recipe.settings.n_predict)]
    return Export("llama-cli", _BUILD, _lines(files, command("llama-cli", *words)),
                  _notes(recipe, deployment))  # fmt: skip


def gguftools(recipe: Recipe, deployment: Deployment) -> Export:
    """Our own engine in this process."""
    refuse_machines(recipe, OURS, deployment)
    ours_only(recipe)
    files, settings = named_files(recipe), recipe.settings
    drafter = {NGRAM: ["--ngram"], "draft-mtp": ["--mtp"]}.get(recipe.kind, [])
    if files.draft is not None:
        drafter = [*drafter, "--draft", _option(files.draft)]
    words = [
        "gguftools", "run", _option(files.target), *drafter,
        "--draft-max", str(settings.draft_max), "--draft-min", str(settings.draft_min),
        "--draft-p-min", f"{settings.draft_p_min:g}", "--temp", f"{settings.temp:g}",
        "-n", str(settings.n_predict), *_context(recipe, deployment), *_engine(recipe),
        "-p", _prompt(recipe),
    ]  # fmt: skip
    notes = (f"the same: gguftools recipe run {recipe.name}",)
    return Export("gguftools", "this version", _lines(files, command(*words)), notes)


def ours_only(recipe: Recipe) -> None:
    """Refuse what our engine cannot draft with."""
    if recipe.needs.engine == SERVER or OURS not in engines_of(recipe.kind, "", ""):
        what = f"{recipe.kind} of this pair runs in llama-server only"
        hint = f"gguftools recipe export {recipe.name} --for llama-server"
        raise RefusedError(what, where=recipe.name, hint=hint)


def docker(recipe: Recipe, deployment: Deployment) -> Export:
    """llama-server in the image of that build, files mounted where they lie."""
    files = named_files(recipe)
    mounts: dict[str, str] = {}  # folder: where it is in the container
    target, draft = (_mounted(path, mounts) for path in (files.target, files.draft))
    assert target is not None
    inside = server_line(recipe, Named(target, draft, ()), deployment)
    gpus = ["--gpus", "all" if deployment.gpus is None else str(deployment.gpus)]
    on_cpu = deployment.gpus == 0
    volumes = [word for at, to in mounts.items() for word in ("-v", _volume(at, to))]
    line = command(
        "docker", "run", "--rm", *([] if on_cpu else gpus),
        "-p", f"127.0.0.1:{_PORT}:{_PORT}", *volumes, _IMAGE_CPU if on_cpu else _IMAGE,
        *inside, "--host", "0.0.0.0", "--port", str(_PORT),
    )  # fmt: skip
    notes = (
        "whether the image of this build is still there is not checked",
        *_notes(recipe, deployment),
    )
    return Export("docker", _BUILD, _lines(files, line), notes)


def server_line(recipe: Recipe, files: Named, deployment: Deployment) -> list[str]:
    """The arguments of llama-server."""
    settings = recipe.settings
    n_ctx = deployment.n_ctx or settings.n_ctx
    words = server_words(
        files.target, files.draft, (recipe.kind,),
        Settings(settings.draft_max, settings.draft_min, settings.draft_p_min), Launch(n_ctx=n_ctx),
    )  # fmt: skip
    assert words is not None, "every kind of a recipe is one of b11434"
    return [*words, "--temp", f"{settings.temp:g}", *_engine(recipe), *_spread(deployment)]


def _engine(recipe: Recipe) -> Iterator[str]:
    """What run, llama-cli and llama-server call by the same names."""
    settings = recipe.settings
    for flag, value in (
        ("-t", settings.n_threads), ("-ngl", settings.n_gpu_layers),
        ("-ctk", settings.cache_type_k), ("-ctv", settings.cache_type_v),
        ("-ctkd", settings.cache_type_k_draft), ("-ctvd", settings.cache_type_v_draft),
    ):  # fmt: skip
        if value is not None:
            yield from (flag, str(value))


def _context(recipe: Recipe, deployment: Deployment) -> Sequence[str]:
    n_ctx = deployment.n_ctx or recipe.settings.n_ctx
    return ["-c", str(n_ctx)] if n_ctx else []


def _spread(deployment: Deployment) -> Iterator[str]:
    """Over GPUs and machines: by layers, since tensor splits abort on heads of some models."""
    if deployment.nodes > 1 and not deployment.rpc:
        what = "llama.cpp reaches other machines by address"
        raise RefusedError(what, where="--nodes", hint="--rpc HOST:PORT for each")
    if deployment.rpc:
        yield from ("--rpc", ",".join(deployment.rpc))
    if deployment.gpus == 0 and not deployment.rpc:
        yield from ("-dev", "none")
    if deployment.gpus is not None and deployment.gpus > 1:
        yield from ("-sm", "layer")
        if not deployment.rpc:
            yield from ("-ts", ",".join(["1"] * deployment.gpus))


def _notes(recipe: Recipe, deployment: Deployment) -> tuple[str, ...]:
    notes = []
    if recipe.needs.build is not None:
        notes.append(f"needs llama.cpp b{recipe.needs.build} or newer")
    if deployment.rpc:
        ports = ", ".join(deployment.rpc)
        notes.append(f"start rpc-server -H ADDRESS -p PORT first, for {ports}: it has no password, "
                     "so only in a network that you trust")  # fmt: skip
    return tuple(notes)


def _lines(files: Named, line: str) -> str:
    return "\n".join([*files.before, line])


def _prompt(recipe: Recipe) -> str:
    """The first prompt, if a terminal can show it."""
    prompt = recipe.prompts[0] if recipe.prompts else ""
    shown = prompt.replace("\n", "").replace("\t", "").isprintable()
    return prompt if prompt and shown else "Once upon a time"


def _option(path: str) -> str:
    """A path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def _mounted(path: str | None, mounts: dict[str, str]) -> str | None:
    """The path inside the container; its folder is mounted, which docker cannot do with a colon."""
    if path is None:
        return None
    folder, name = os.path.split(plain_path(path))
    if ":" in folder:
        raise RefusedError("docker cannot mount a folder with a colon in its name", where=folder)
    to = mounts.setdefault(folder, f"/models/{len(mounts)}")
    return f"{to}/{name}"


def _volume(folder: str, to: str) -> str | Expanded:
    """What is relative lies below the folder that the command is run in."""
    if os.path.isabs(folder):
        return f"{folder}:{to}:ro"
    return Expanded("PWD", f"{folder.removeprefix('.')}:{to}:ro")
