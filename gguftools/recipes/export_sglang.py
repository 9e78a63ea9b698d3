"""The pair for SGLang: its --speculative-* options.

By python/sglang/srt/server_args.py at 001067fff, where EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM,
DFLASH and DSPARK are the algorithms that are built in.
"""

from __future__ import annotations

from gguftools.errors import RefusedError
from gguftools.recipes.export_vllm import common_notes, hub_model, refuse_rpc
from gguftools.recipes.exported import Deployment, Expanded, Export, command
from gguftools.recipes.recipe import Recipe

_VERSION = "SGLang 001067fff"
_ALGORITHMS = {
    "draft-mtp": "NEXTN",
    "draft-simple": "STANDALONE",
    "draft-eagle3": "EAGLE3",
    "draft-dflash": "DFLASH",
    "draft-dspark": "DSPARK",
    "ngram": "NGRAM",
}
_PORT = 20000


def sglang(recipe: Recipe, deployment: Deployment) -> Export:
    """`python3 -m sglang.launch_server` with the checkpoints that the GGUF files were made from."""
    target = hub_model(recipe, "SGLang")
    refuse_rpc(recipe, "SGLang", deployment)
    if recipe.kind == "draft-mtp" and recipe.hf.draft is not None:
        what = "how SGLang takes an MTP draft that is a checkpoint of its own was not to be found"
        raise RefusedError(what, where=recipe.name, hint="export it --for vllm")
    words: list[str | Expanded] = ["python3", "-m", "sglang.launch_server", "--model-path", target]
    words += ["--speculative-algorithm", _ALGORITHMS[recipe.kind]]
    if recipe.hf.draft is not None:
        words += ["--speculative-draft-model-path", recipe.hf.draft]
    words += _lengths(recipe)
    notes = common_notes(recipe, "SGLang")
    if (gpus := (deployment.gpus or 1) * deployment.nodes) > 1:
        words += ["--tp-size", str(gpus)]
    if deployment.nodes > 1:
        words += ["--nnodes", str(deployment.nodes), "--node-rank", "0"]
        words += ["--dist-init-addr", Expanded("HEAD", f":{_PORT}")]
        notes += ("HEAD is the address of the first machine; the others run the same with "
                  "--node-rank 1, 2, ..",)  # fmt: skip
    if n_ctx := deployment.n_ctx or recipe.settings.n_ctx:
        words += ["--context-length", str(n_ctx)]
    if deployment.memory_fraction is not None:
        words += ["--mem-fraction-static", f"{deployment.memory_fraction:g}"]
    return Export("sglang", _VERSION, command(*words), notes)


def _lengths(recipe: Recipe) -> list[str]:
    """A chain without branches; the window to verify is one longer than the draft."""
    n_draft = recipe.settings.draft_max
    match recipe.kind:
        case "ngram":
            return ["--speculative-num-draft-tokens", str(n_draft)]
        case "draft-dflash":
            return ["--speculative-dflash-block-size", str(n_draft + 1)]
        case "draft-dspark":
            return ["--speculative-dspark-block-size", str(n_draft)]
    return [
        "--speculative-num-steps", str(n_draft), "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", str(n_draft + 1),
    ]  # fmt: skip
