"""One recipe for the systems that others use: their names and who writes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gguftools.errors import UsageError
from gguftools.recipes import export_desktop, export_llama
from gguftools.recipes.export_sglang import sglang
from gguftools.recipes.export_vllm import vllm
from gguftools.recipes.exported import Deployment, Export
from gguftools.recipes.recipe import Recipe

SYSTEMS: Mapping[str, Callable[[Recipe, Deployment], Export]] = {
    "llama-server": export_llama.llama_server,
    "llama-cli": export_llama.llama_cli,
    "gguftools": export_llama.gguftools,
    "vllm": vllm,
    "sglang": sglang,
    "ollama": export_desktop.ollama,
    "lmstudio": export_desktop.lmstudio,
    "docker": export_llama.docker,
    "wsl2": export_desktop.wsl2,
}

_WITH_FRACTION = ("vllm", "sglang")
_WITH_GPUS = ("llama-server", "llama-cli", "docker", "wsl2", *_WITH_FRACTION)


def export_recipe(recipe: Recipe, system: str, deployment: Deployment) -> Export:
    """The recipe for that system; RefusedError says what the system cannot do."""
    if system not in SYSTEMS:
        raise UsageError(f"no such system: {system!r}", hint=f"there are: {', '.join(SYSTEMS)}")
    for option, given, takers in (
        ("--gpus", deployment.gpus is not None, _WITH_GPUS),
        ("--memory-fraction", deployment.memory_fraction is not None, _WITH_FRACTION),
    ):
        if given and system not in takers:
            raise UsageError(f"{system} decides that by itself", where=option)
    if deployment.gpus == 0 and system in _WITH_FRACTION:
        raise UsageError(f"what is exported for {system} runs on GPUs", where="--gpus 0")
    return SYSTEMS[system](recipe, deployment)
