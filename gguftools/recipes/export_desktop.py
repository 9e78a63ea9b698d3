"""The pair for Ollama and LM Studio, and the settings of the WSL that llama-server runs in.

Ollama by its parser, docs/modelfile.mdx and llm/llama_server.go at v0.33.0-rc2; drafts of GGUF
models came with 0.30.0 (before, 0.23.1 drafted on Apple's MLX only). LM Studio by `lms load` of
lms 0.3.43. WSL by learn.microsoft.com/windows/wsl/wsl-config.
"""

from __future__ import annotations

import os
import re
from shlex import join

from gguftools.errors import RefusedError
from gguftools.recipes.export_llama import server_line
from gguftools.recipes.exported import (
    Deployment,
    Export,
    command,
    named_files,
    one_line,
    plain_path,
    refuse_machines,
)
from gguftools.recipes.recipe import HubFile, Recipe

_OLLAMA = "Ollama 0.33.0-rc2"
_LMS = "lms 0.3.43"
_WSL = "learn.microsoft.com/windows/wsl/wsl-config"
_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}\.gguf$")
_GIB = 1 << 30
_SPARE_GIB = 4  # for the cache of keys and values, buffers and the system

_NOT_OLLAMA = {
    "draft-simple": "it takes every DRAFT for an MTP head or DFlash, so a draft model would be "
                    "run as what it is not",
    "draft-eagle3": "it starts llama-server for MTP heads and DFlash only",
    "draft-dspark": "it starts llama-server for MTP heads and DFlash only",
    "ngram": "it has no lookup of n-grams",
}  # fmt: skip
_NOT_LMSTUDIO = {
    "draft-eagle3": "it has no EAGLE-3",
    "draft-dflash": "it has no DFlash",
    "draft-dspark": "it has no DSpark",
    "ngram": "it has no lookup of n-grams",
}


def ollama(recipe: Recipe, deployment: Deployment) -> Export:
    """A Modelfile."""
    refuse_machines(recipe, "Ollama", deployment)
    if why := _NOT_OLLAMA.get(recipe.kind):
        raise RefusedError(f"Ollama cannot: {why}", where=recipe.name, hint=_OLLAMA)
    files, settings = named_files(recipe), recipe.settings
    lines = [f"FROM {plain_path(_whole(recipe, files.target))}"]
    if files.draft is not None:
        lines.append(f"DRAFT {plain_path(files.draft)}")
    parameters = {
        "draft_num_predict": settings.draft_max, "temperature": settings.temp,
        "num_predict": settings.n_predict, "num_ctx": deployment.n_ctx or settings.n_ctx,
        "num_thread": settings.n_threads, "num_gpu": settings.n_gpu_layers,
    }  # fmt: skip
    lines += [f"PARAMETER {name} {value:g}" for name, value in parameters.items()
              if value is not None and value != -1]  # fmt: skip
    notes = [*files.before, "save as Modelfile, then: ollama create NAME -f Modelfile"]
    notes.append("needs Ollama 0.30.0 or newer; without draft_num_predict a head stays idle")
    if settings.draft_min or settings.draft_p_min:
        notes.append("Ollama has no draft_min and draft_p_min: every draft has full length")
    return Export("ollama", _OLLAMA, "\n".join(lines), tuple(notes))


def _whole(recipe: Recipe, path: str) -> str:
    """Of a split model Ollama wants a folder with nothing else in it (server/create.go)."""
    if not _SHARD.search(path):
        return path
    folder = os.path.dirname(path)
    if not folder:
        hint = "put the shards into one and write FROM ./folder"
        raise RefusedError("Ollama takes a split model from a folder of its own only",
                           where=recipe.name, hint=hint)  # fmt: skip
    return folder


def lmstudio(recipe: Recipe, deployment: Deployment) -> Export:
    """`lms get` and `lms load`."""
    refuse_machines(recipe, "LM Studio", deployment)
    if why := _NOT_LMSTUDIO.get(recipe.kind):
        raise RefusedError(f"LM Studio cannot: {why}", where=recipe.name, hint=_LMS)
    if recipe.kind == "draft-mtp" and recipe.draft is not None:
        what = "LM Studio drafts with heads inside the model's file only"
        hint = "--speculative-draft-mtp takes no second file"
        raise RefusedError(what, where=recipe.name, hint=hint)
    settings, lines, models = recipe.settings, [], []
    for source in (recipe.target, recipe.draft):
        if source is None:
            continue
        if not isinstance(source, HubFile):
            what = "LM Studio takes models from the Hub or from its own folder"
            hint = "put the files there and use lms load by hand"
            raise RefusedError(what, where=recipe.name, hint=hint)
        lines.append(command("lms", "get", f"https://huggingface.co/{source.repo}", "--gguf"))
        models.append(f"{source.repo}/{source.file}")
    words = ["lms", "load", models[0], "--gpu", "max"]
    if n_ctx := deployment.n_ctx or settings.n_ctx:
        words += ["--context-length", str(n_ctx)]
    words += (
        ["--speculative-draft-mtp"]
        if recipe.kind == "draft-mtp"
        else ["--speculative-draft-simple", "--speculative-draft-model", models[1]]
    )
    words += [
        "--speculative-draft-max-tokens", str(settings.draft_max),
        "--speculative-draft-min-tokens", str(settings.draft_min),
        "--speculative-draft-min-continue-probability", f"{settings.draft_p_min:g}",
    ]  # fmt: skip
    notes = tuple(f"in lms get choose {one_line(name)}" for name in models)
    return Export("lmstudio", _LMS, "\n".join([*lines, command(*words)]), notes)


def wsl2(recipe: Recipe, deployment: Deployment) -> Export:
    """%UserProfile%\\.wslconfig for the llama-server of this recipe."""
    refuse_machines(recipe, "WSL", deployment)
    files = named_files(recipe)
    lines = ["[wsl2]"]
    notes = ["save as .wslconfig in your Windows profile, then: wsl --shutdown"]
    if deployment.n_bytes is not None:
        n_gib = -(-deployment.n_bytes // _GIB) + _SPARE_GIB
        lines.append(f"memory={n_gib}GB")
        notes.append(
            f"memory: {deployment.n_bytes / 1e9:.3g} GB of files and {_SPARE_GIB} GiB more"
        )
    else:
        notes.append("set memory=..GB to the size of the files and some GB more; the default is "
                     "half of the machine's")  # fmt: skip
    # Swapped weights look like a slow model; a failure says what is wrong.
    lines += ["swap=0", "networkingMode=mirrored"]
    if recipe.settings.n_threads is not None:
        lines.append(f"processors={recipe.settings.n_threads}")
    notes.append("mirrored networking (Windows 11 22H2): the server is on localhost of both sides")
    line = join(["llama-server", *server_line(recipe, files, deployment)])
    notes += [*files.before, f"then in WSL: {line}"]
    return Export("wsl2", _WSL, "\n".join(lines), tuple(notes))
