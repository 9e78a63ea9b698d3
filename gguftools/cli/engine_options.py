"""The options of `run` and `chat`: how to draft, to place, to sample, and what to write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import click

from gguftools.cli.options import FILE, DeviceList, LogitBias, Number
from gguftools.errors import UsageError
from gguftools.pairing.kv_cache import CACHE_TYPES

_CHAIN = (
    "temp", "top_k", "top_p", "min_p", "penalty_repeat", "penalty_freq", "penalty_present",
    "penalty_last_n", "logit_bias",
)  # fmt: skip
N_PREDICT_UNLIMITED = 1 << 31  # beyond any context, where a reply ends by itself
_CACHE_TYPE = click.Choice(list(CACHE_TYPES))
DrafterChoice = Literal["auto", "draft", "mtp", "ngram", "none"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to draft and to sample, as given; `drafter` already checked against the other options."""

    draft: Path | None
    drafter: DrafterChoice
    ngram_first: bool
    draft_max: int | None
    draft_min: int
    draft_p_min: float
    n_ctx: int
    n_threads: int | None
    n_gpu_layers: int
    n_gpu_layers_draft: int
    device: tuple[str, ...]
    device_draft: tuple[str, ...]
    split_mode: str
    cache_type_k: str
    cache_type_v: str
    cache_type_k_draft: str
    cache_type_v_draft: str
    context_shift: bool
    n_keep: int
    sampling: dict[str, Any]  # arguments of speculative.sampling.Chain
    seed: int | None


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What to write and how to show it."""

    n_predict: int
    stop: tuple[str, ...]
    system: str | None
    trace: Path | None
    show_drafts: bool


_DRAFTING = (
    click.option(
        "-md", "--draft", "--model-draft", "--spec-draft-model",
        type=FILE, help="The draft: a small model, or the MTP head of TARGET as a file of its own.",
    ),
    click.option("--mtp", is_flag=True, help="Draft with the MTP head (in TARGET or in --draft)."),
    click.option(
        "--ngram", is_flag=True,
        help="Draft by looking up what was written before; with another drafter, before it.",
    ),
    click.option("--no-draft", is_flag=True, help="Plain decoding."),
    click.option(
        "--drafter", type=click.Choice(["auto", "draft", "mtp", "ngram", "none"]),
        help="The same by name; auto takes an MTP head that runs, else --draft, else ngram.",
    ),
    click.option(
        "--draft-max", "--spec-draft-n-max", type=Number(int, 1, 64),
        help="Longest draft; the length used adapts, down to none.  [default: 16, or 8 where "
        "the target keeps a state for every row]",
    ),
    click.option(
        "--draft-min", "--spec-draft-n-min", type=Number(int, 0, 64), default=0,
        show_default=True, help="Shortest draft worth verifying.",
    ),
    click.option(
        "--draft-p-min", "--spec-draft-p-min", type=Number(float, 0, 1), default=0.0,
        show_default=True, help="Stop drafting below this probability of the draft's own.",
    ),
)  # fmt: skip

_ENGINE = (
    click.option(
        "-c", "--ctx-size", "n_ctx", type=Number(int, 0, 1 << 24), default=0,
        show_default=True, help="Tokens of context; 0 is the model's own, within reason.",
    ),
    click.option(
        "-t", "--threads", "n_threads", type=Number(int, 1, 1024),
        help="CPU threads.  [default: the cores this process may use]",
    ),
    click.option(
        "-ngl", "--gpu-layers", "--n-gpu-layers", "n_gpu_layers",
        type=Number(int, -1, 1 << 16), default=-1, show_default=True,
        help="Layers on the GPU, if llama.cpp was built for one; -1 is all.",
    ),
    click.option(
        "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "n_gpu_layers_draft",
        type=Number(int, -1, 1 << 16), default=-1, show_default=True,
        help="The same for the draft.",
    ),
    click.option(
        "-dev", "--device", type=DeviceList(),
        help="Devices to use; none keeps everything on the CPU.  [default: all]",
    ),
    click.option(
        "-devd", "--device-draft", "--spec-draft-device", type=DeviceList(),
        help="The same for the draft.  [default: those of the target]",
    ),
    click.option(
        "-sm", "--split-mode", type=click.Choice(["none", "layer", "row", "tensor"]),
        default="layer", show_default=True, help="How to split a model over several GPUs.",
    ),
    click.option(
        "-ctk", "--cache-type-k", type=_CACHE_TYPE, default="f16", show_default=True,
        help="Type in which keys are cached.",
    ),
    click.option(
        "-ctv", "--cache-type-v", type=_CACHE_TYPE, default="f16", show_default=True,
        help="Type in which values are cached; a quantized one needs flash attention.",
    ),
    click.option(
        "-ctkd", "--cache-type-k-draft", "--spec-draft-type-k", "cache_type_k_draft",
        type=_CACHE_TYPE, default="f16", show_default=True, help="The same for the draft's keys.",
    ),
    click.option(
        "-ctvd", "--cache-type-v-draft", "--spec-draft-type-v", "cache_type_v_draft",
        type=_CACHE_TYPE, default="f16", show_default=True, help="The same for the draft's values.",
    ),
    click.option(
        "--context-shift/--no-context-shift", default=False, show_default=True,
        help="When the context is full, forget the older half and go on.",
    ),
    click.option(
        "--keep", "n_keep", type=Number(int, 0, 1 << 24), default=0, show_default=True,
        help="Tokens at the start that --context-shift never forgets.",
    ),
)  # fmt: skip

_SAMPLING = (
    click.option(
        "--temp", "--temperature", "temp", type=Number(float, 0, 1000), default=0.8,
        show_default=True, help="Temperature; 0 takes the likeliest token.",
    ),
    click.option(
        "--top-k", type=Number(int, 0, 1 << 24), default=40, show_default=True,
        help="Sample from the k likeliest tokens; 0 is all.",
    ),
    click.option(
        "--top-p", type=Number(float, 0, 1), default=0.95, show_default=True,
        help="Sample from the likeliest tokens that reach this sum; 1 is all.",
    ),
    click.option(
        "--min-p", type=Number(float, 0, 1), default=0.05, show_default=True,
        help="Sample from tokens with this share of the likeliest one's probability; 0 is all.",
    ),
    click.option(
        "--repeat-penalty", "penalty_repeat", type=Number(float, 0.01, 100), default=1.0,
        show_default=True, help="Divide the logits of tokens written lately; 1 does nothing.",
    ),
    click.option(
        "--frequency-penalty", "penalty_freq", type=Number(float, -100, 100), default=0.0,
        show_default=True, help="Lower a token by this for each time it was written lately.",
    ),
    click.option(
        "--presence-penalty", "penalty_present", type=Number(float, -100, 100), default=0.0,
        show_default=True, help="Lower a token by this if it was written lately.",
    ),
    click.option(
        "--repeat-last-n", "penalty_last_n", type=Number(int, 0, 1 << 20), default=64,
        show_default=True, help="How many tokens the penalties look back.",
    ),
    click.option(
        "-l", "--logit-bias", "logit_bias", type=LogitBias(), multiple=True,
        help="Make a token likelier or not, e.g. 15043+1 or 15043-1.  [repeatable]",
    ),
    click.option(
        "-s", "--seed", type=Number(int, -1, (1 << 32) - 1), default=-1,
        help="Seed of the sampling.  [default: a new one each time]",
    ),
)  # fmt: skip

_REPLY = (
    click.option(
        "-n", "--predict", "--n-predict", "n_predict", type=Number(int, -1, 1 << 24),
        default=-1, help="Most tokens to write.  [default: until the model or its context ends]",
    ),
    click.option(
        "-r", "--reverse-prompt", "stop", multiple=True,
        help="End the reply before this text.  [repeatable]",
    ),
    click.option("-sys", "--system", "--system-prompt", "system", help="A system message."),
    click.option(
        "--trace", type=FILE, help="Append every round of drafting to this file, as JSON lines."
    ),
    click.option("--show-drafts", is_flag=True, help="Colour the tokens that were drafted."),
)  # fmt: skip


def engine_options(command: Callable[..., int]) -> Callable[..., int]:
    """Every option of engine and reply, handed over as `engine` and `how`."""

    @functools.wraps(command)
    def wrapper(**values: Any) -> int:
        engine = _engine(values)
        values["n_predict"] = _n_predict(values["n_predict"])
        how = ReplyOptions(**{f.name: values.pop(f.name) for f in fields(ReplyOptions)})
        return command(engine=engine, how=how, **values)

    for option in reversed((*_REPLY, *_DRAFTING, *_SAMPLING, *_ENGINE)):
        wrapper = option(wrapper)
    return wrapper


def model_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options of the engine alone, handed over as `engine`."""

    @functools.wraps(command)
    def wrapper(**values: Any) -> int:
        return command(engine=_engine(values), **values)

    for option in reversed((*_DRAFTING, *_SAMPLING, *_ENGINE)):
        wrapper = option(wrapper)
    return wrapper


def _engine(values: dict[str, Any]) -> EngineOptions:
    """Takes the options of the engine out of all that was given."""
    flags = {name: values.pop(name) for name in ("mtp", "ngram", "no_draft")}
    drafter, ngram_first = _drafters(values["drafter"], values["draft"], **flags)
    values |= {"drafter": drafter, "ngram_first": ngram_first}
    values |= {name: values[name] or () for name in ("device", "device_draft")}
    if values["n_keep"] and not values["context_shift"]:
        raise UsageError("--keep does nothing without --context-shift")
    values["seed"] = None if values["seed"] < 0 else values["seed"]
    longest = values["draft_max"]
    if longest is not None and values["draft_min"] > longest:
        raise UsageError("--draft-min must not be above --draft-max")
    values["sampling"] = {name: values.pop(name) for name in _CHAIN}
    return EngineOptions(**{f.name: values.pop(f.name) for f in fields(EngineOptions)})


def _n_predict(n: int) -> int:
    if n == 0:
        raise UsageError("--predict must be at least 1, or -1 for no limit")
    return n if n > 0 else N_PREDICT_UNLIMITED


def _drafters(
    named: DrafterChoice | None, draft: Path | None, *, mtp: bool, ngram: bool, no_draft: bool
) -> tuple[DrafterChoice, bool]:
    """The drafter that the options agree on, and whether n-gram lookup goes before it."""
    alone = ngram and named is None and draft is None and not mtp
    chosen = _drafter(named, draft, mtp=mtp, ngram=alone, no_draft=no_draft)
    if ngram and chosen == "none":
        raise UsageError("--ngram and --drafter none contradict each other")
    return chosen, ngram and chosen != "ngram"


def _drafter(
    named: DrafterChoice | None, draft: Path | None, *, mtp: bool, ngram: bool, no_draft: bool
) -> DrafterChoice:
    """The one drafter that the options agree on."""
    asked: dict[str, DrafterChoice] = {}
    if named is not None:
        asked[f"--drafter {named}"] = named
    for flag, given, choice in (
        ("--mtp", mtp, "mtp"), ("--ngram", ngram, "ngram"), ("--no-draft", no_draft, "none"),
    ):  # fmt: skip
        if given:
            asked[flag] = choice  # type: ignore[assignment]
    if len(set(asked.values())) > 1:
        raise UsageError(f"{' and '.join(asked)} contradict each other")
    chosen: DrafterChoice = next(iter(asked.values()), "auto")
    if draft is not None and chosen in ("ngram", "none"):
        raise UsageError(f"{next(iter(asked))} leaves nothing to do for --draft")
    if draft is None and chosen == "draft":
        raise UsageError("--drafter draft needs --draft FILE")
    return chosen
