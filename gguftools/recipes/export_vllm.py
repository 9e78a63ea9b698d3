"""The pair for vLLM: `vllm serve` with --speculative-config.

By vllm/config/speculative.py at 002e77c1f (SpeculativeConfig and its checks), the later of the
copies that could be read; pipeline parallelism with speculation by vllm-project/vllm#57755, 0.29.0.
"""

from __future__ import annotations

import json

from gguftools.errors import RefusedError
from gguftools.recipes.exported import Deployment, Export, command
from gguftools.recipes.recipe import HfModels, Recipe

_VERSION = "vLLM 002e77c1f"
_METHODS = {
    "draft-mtp": "mtp",
    "draft-simple": "draft_model",
    "draft-eagle3": "eagle3",
    "draft-dflash": "dflash",
    "draft-dspark": "dspark",
    "ngram": "ngram",
}
_LOOKUP_MIN, _LOOKUP_MAX = 2, 5  # n-grams that are looked up; ours are 24 tokens, too long here


def vllm(recipe: Recipe, deployment: Deployment) -> Export:
    """`vllm serve` with the checkpoints that the GGUF files were made from."""
    target = hub_model(recipe, "vLLM")
    n_draft, notes = _n_draft(recipe)
    spoken = speculation(recipe, n_draft)
    gpus = (deployment.gpus or 1) * deployment.nodes
    words = ["vllm", "serve", target]
    if gpus > 1:
        words += ["--tensor-parallel-size", str(gpus)]
    before: tuple[str, ...] = ()
    if deployment.nodes > 1:
        before = ("ray start --head --port=6379",)
        words += ["--distributed-executor-backend", "ray"]
        notes += _MACHINES
    if n_ctx := deployment.n_ctx or recipe.settings.n_ctx:
        words += ["--max-model-len", str(n_ctx)]
    if deployment.memory_fraction is not None:
        words += ["--gpu-memory-utilization", f"{deployment.memory_fraction:g}"]
    words += ["--speculative-config", json.dumps(spoken)]
    refuse_rpc(recipe, "vLLM", deployment)
    text = "\n".join([*before, command(*words)])
    return Export("vllm", _VERSION, text, (*common_notes(recipe, "vLLM"), *notes))


def speculation(recipe: Recipe, n_draft: int) -> dict[str, object]:
    """The value of --speculative-config."""
    said: dict[str, object] = {"method": _METHODS[recipe.kind], "num_speculative_tokens": n_draft}
    if recipe.kind == "ngram":
        return said | {"prompt_lookup_max": _LOOKUP_MAX, "prompt_lookup_min": _LOOKUP_MIN}
    if recipe.hf.draft is not None:
        said["model"] = recipe.hf.draft
    return said


def hub_model(recipe: Recipe, system: str) -> str:
    """The target's checkpoint; refused where the system has nothing to draft with."""
    hf = recipe.hf
    if hf.target is None:
        what = f"{system} does not draft from GGUF files"
        if recipe.kind == "draft-mtp":
            what = f"{system} reads no MTP head from a GGUF file"
        hint = "the recipe names no checkpoint on the Hub ([hf] target)"
        raise RefusedError(what, where=recipe.name, hint=hint)
    if recipe.kind == "draft-mtp" and hf.draft is None and hf.n_mtp == 0:
        raise RefusedError(f"{hf.target} holds no MTP layers", where=recipe.name)
    if recipe.kind not in ("draft-mtp", "ngram") and hf.draft is None:
        what = f"{system} needs the draft's own checkpoint"
        raise RefusedError(what, where=recipe.name, hint="the recipe names none ([hf] draft)")
    return hf.target


def common_notes(recipe: Recipe, system: str) -> tuple[str, ...]:
    """What differs from the recipe."""
    notes = [f"{system} runs the checkpoint {recipe.hf.target}, not the GGUF file of the recipe"]
    if unread := [key for key in recipe.unverified if key.startswith("hf.")]:
        notes.append(f"not verified: {', '.join(unread)}")
    if recipe.kind == "draft-mtp" and recipe.hf.draft is None and recipe.hf.n_mtp is None:
        notes.append("not verified: whether that checkpoint holds its MTP layers")
    if recipe.settings.draft_p_min or recipe.settings.draft_min:
        notes.append(f"{system} has no draft_p_min and draft_min: every draft has full length")
    return tuple(notes)


def refuse_rpc(recipe: Recipe, system: str, deployment: Deployment) -> None:
    """--rpc names servers of llama.cpp."""
    if deployment.rpc:
        what = f"{system} does not use llama.cpp's rpc-server"
        raise RefusedError(what, where=recipe.name, hint="--nodes says how many machines there are")


_MACHINES = (
    "on every other machine first: ray start --address=ADDRESS_OF_THE_FIRST:6379",
    "tensor parallel over all machines: vLLM 0.29.0 does not speculate with pipeline parallelism "
    "(vllm-project/vllm issue 57755)",
)


def _n_draft(recipe: Recipe) -> tuple[int, tuple[str, ...]]:
    """vLLM refuses more tokens than MTP layers unless it is a multiple of them."""
    n_draft, n_mtp = recipe.settings.draft_max, _n_predict(recipe.hf)
    if recipe.kind != "draft-mtp" or n_draft <= n_mtp or n_draft % n_mtp == 0:
        return n_draft, ()
    fewer = n_draft - n_draft % n_mtp
    return fewer, (f"{fewer} tokens instead of {n_draft}: vLLM wants a multiple of {n_mtp}",)


def _n_predict(hf: HfModels) -> int:
    """Gemma's assistants draft one token at a time."""
    return hf.n_mtp or 1
