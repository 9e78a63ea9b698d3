"""What `gguftools recipe run` takes from the recipe: files, prompt, settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gguftools.cli import render
from gguftools.cli.contract import RunJSON, RunSettingsJSON
from gguftools.cli.engine_options import DrafterChoice, EngineOptions
from gguftools.cli.progress import progress
from gguftools.cli.reply import reply_json
from gguftools.errors import UsageError
from gguftools.recipes import Recipe
from gguftools.recipes.files import LocalPair, get_pair

if TYPE_CHECKING:
    from gguftools.speculative.reply import Reply

_DRAFTERS: dict[str, DrafterChoice] = {"draft-mtp": "mtp", "ngram": "ngram"}


def prompt_of(found: Recipe, given: str | None) -> str:
    """The prompt that was given, else the recipe's first."""
    if given is None and not found.prompts:
        raise UsageError("no prompt: the recipe has none, give --prompt")
    text = found.prompts[0] if given is None else given
    if not text.strip():
        raise UsageError("the prompt is empty")
    return text


def files_of_pair(found: Recipe) -> LocalPair:
    """Its files, with a bar and a line for each that is downloaded or made."""
    said: set[str] = set()
    with progress("getting the files", in_bytes=True) as done:

        def report(what: str, n_bytes: int, total: int) -> None:
            if what not in said and not what.startswith("checking"):
                render.note(what)
            said.add(what)
            done(n_bytes, total)

        return get_pair(found, report)


def engine_of(
    found: Recipe, files: LocalPair, *, temp: float | None, n_ctx: int | None, seed: int | None
) -> EngineOptions:
    """The recipe's settings as `run` takes them."""
    s = found.settings
    cache = [s.cache_type_k, s.cache_type_v, s.cache_type_k_draft, s.cache_type_v_draft]
    types = [each or "f16" for each in cache]
    layers = -1 if s.n_gpu_layers is None else s.n_gpu_layers
    return EngineOptions(
        draft=files.draft, drafter=_DRAFTERS.get(found.kind, "draft"), ngram_first=False,
        draft_max=s.draft_max, draft_min=s.draft_min, draft_p_min=s.draft_p_min,
        n_ctx=(s.n_ctx or 0) if n_ctx is None else n_ctx, n_threads=s.n_threads,
        n_gpu_layers=layers, n_gpu_layers_draft=layers, device=(), device_draft=(),
        split_mode="layer", cache_type_k=types[0], cache_type_v=types[1],
        cache_type_k_draft=types[2], cache_type_v_draft=types[3], context_shift=False, n_keep=0,
        sampling={"temp": s.temp if temp is None else temp}, seed=seed,
    )  # fmt: skip


def run_json(files: LocalPair, engine: EngineOptions, reply: Reply, drafter: str) -> RunJSON:
    """As `gguftools run --json` says it."""
    settings = RunSettingsJSON(
        engine="inprocess",
        target=str(files.target),
        draft=None if files.draft is None else str(files.draft),
        temp=engine.sampling["temp"],
        draft_max=engine.draft_max,
        draft_min=engine.draft_min,
        draft_p_min=engine.draft_p_min,
    )
    answer = reply_json(reply, drafter)
    return RunJSON(schema="gguftools.run/1", settings=settings, verify=None, **answer)
