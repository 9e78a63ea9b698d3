"""From options to a llama-server: which draft, which command, and how it is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gguftools.cli import render
from gguftools.cli.engine_options import DrafterChoice, EngineOptions
from gguftools.cli.options import given
from gguftools.errors import UsageError
from gguftools.pairing.launch import NGRAM, Launch, Settings
from gguftools.pairing.machine import Machine, read_machine
from gguftools.pairing.ranking import Question

if TYPE_CHECKING:
    from gguftools.server.choose import Choice
    from gguftools.server.command import Command, Wanted
    from gguftools.server.process import RunningServer
    from gguftools.server.traps import Seen

_KINDS: dict[DrafterChoice, str] = {
    "auto": "auto", "draft": "auto", "mtp": "draft-mtp", "ngram": NGRAM, "none": "none",
}  # fmt: skip
# Defaults of requests: llama-server takes them under the names that ours have.
_SAMPLING = {
    "temp": "--temp", "top_k": "--top-k", "top_p": "--top-p", "min_p": "--min-p",
    "penalty_repeat": "--repeat-penalty", "penalty_freq": "--frequency-penalty",
    "penalty_present": "--presence-penalty", "penalty_last_n": "--repeat-last-n",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Network:
    """Where it listens and for whom. Port 0 is a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What was chosen, and the command that starts it."""

    choice: Choice
    command: Command
    machine: Machine

    @property
    def drafter(self) -> str:
        """`draft-mtp`, `ngram+draft-simple`, `none`."""
        return "+".join(self.choice.kinds) or "none"


def server_plan(
    target: Path,
    engine: EngineOptions,
    *,
    server: Path | str | None = None,
    kind: str | None = None,
    settings: Settings | None = None,
    n_parallel: int = 1,
    cpu_moe: bool = False,
    network: Network = Network(),
    extra: tuple[str, ...] = (),
) -> ServerPlan:
    """Check the files, choose the draft and its lengths, write the command.

    `kind` and `settings` come from a recipe; options that stand on the command line go first.
    """
    from gguftools.server.choose import choose
    from gguftools.server.command import at_hand, server_argv

    found, machine = at_hand(None if server is None else str(server)), read_machine()
    gpu = machine.backend != "cpu" and engine.n_gpu_layers != 0 and engine.device != ("none",)
    launch = Launch(engine.n_ctx or None, gpu=gpu, cpu_moe=cpu_moe, n_parallel=n_parallel,
                    dialect=found.dialect)  # fmt: skip
    question = Question(
        temperature=engine.sampling["temp"] if given("temp") else None,
        backend=machine.backend if gpu else "cpu", machine=machine, launch=launch,
        build=None if found.is_ik else found.build,
    )  # fmt: skip
    choice = choose(target, engine.draft, kind or _KINDS[engine.drafter], question, found,
                    ngram_too=engine.ngram_first)  # fmt: skip
    lengths = _lengths(engine, settings or choice.settings)
    choice = replace(choice, settings=lengths if choice.kinds else None)
    wanted = _wanted(target, engine, choice, launch, network)
    command = server_argv(replace(wanted, extra=(*wanted.extra, *extra)), found)
    for remark in (*choice.notes, *command.notes):
        render.note(remark)
    return ServerPlan(choice, command, machine)


def _wanted(
    target: Path, engine: EngineOptions, choice: Choice, launch: Launch, network: Network
) -> Wanted:
    """What was chosen, with the options that were given; llama-server decides the others."""
    from gguftools.server.command import Wanted

    return Wanted(
        target=target,
        draft=None if choice.draft is None else engine.draft,
        kinds=choice.kinds,
        settings=choice.settings,
        n_ctx=choice.n_ctx,
        n_parallel=launch.n_parallel,
        gpu=launch.gpu,
        cpu_moe=launch.cpu_moe,
        n_threads=engine.n_threads,
        n_gpu_layers=engine.n_gpu_layers if engine.n_gpu_layers >= 0 else None,
        n_gpu_layers_draft=engine.n_gpu_layers_draft if engine.n_gpu_layers_draft >= 0 else None,
        device=engine.device,
        device_draft=engine.device_draft,
        split_mode=engine.split_mode if given("split_mode") else None,
        cache_type_k=_if_set(engine.cache_type_k),
        cache_type_v=_if_set(engine.cache_type_v),
        cache_type_k_draft=_if_set(engine.cache_type_k_draft),
        cache_type_v_draft=_if_set(engine.cache_type_v_draft),
        alias=network.alias,
        host=network.host,
        port=network.port,
        api_key=network.api_key,
        extra=tuple(_defaults(engine)),
    )


def starter(plan: ServerPlan, log: Path | None = None) -> Callable[[], RunningServer]:
    """What starts it, as often as it is called; it says how the loading goes."""
    from gguftools.server.process import start

    return lambda: start(plan.command, log=log, say=render.note)


def seen_of(plan: ServerPlan) -> Seen:
    """What is known of a server by its launch, for the watchdog of traps."""
    from gguftools.server.traps import Seen

    wanted = plan.command.wanted
    caches = (wanted.cache_type_k_draft, wanted.cache_type_v_draft)
    return Seen(
        backend=plan.machine.backend if wanted.gpu else "cpu",
        kind=",".join("ngram-mod" if kind == NGRAM else kind for kind in wanted.kinds),
        architecture=plan.choice.target.architecture,
        n_max=wanted.settings.draft_max if wanted.settings else None,
        p_min=wanted.settings.draft_p_min if wanted.settings else None,
        cache_types_draft=tuple(name for name in caches if name),
        split_mode=wanted.split_mode or "",
    )


def _lengths(engine: EngineOptions, chosen: Settings | None) -> Settings | None:
    """The chosen lengths, with those that the user gave."""
    if chosen is None:
        if given("draft_max", "draft_min", "draft_p_min"):
            raise UsageError("--draft-max, --draft-min and --draft-p-min: nothing drafts")
        return None
    n_max = chosen.draft_max if engine.draft_max is None else engine.draft_max
    n_min = engine.draft_min if given("draft_min") else min(chosen.draft_min, n_max)
    p_min = engine.draft_p_min if given("draft_p_min") else chosen.draft_p_min
    if n_min > n_max:
        raise UsageError(f"--draft-min {n_min} is above the longest draft, {n_max}")
    return Settings(n_max, n_min, p_min)


def _if_set(cache_type: str) -> str | None:
    return None if cache_type == "f16" else cache_type  # llama-server's default too


def _defaults(engine: EngineOptions) -> list[str]:
    """Options of sampling and context that were given, as llama-server takes them."""
    words = [w for key, flag in _SAMPLING.items() if given(key)
             for w in (flag, f"{engine.sampling[key]:g}")]  # fmt: skip
    for token, bias in engine.sampling["logit_bias"]:
        words += ["--logit-bias", f"{token}{bias:+g}"]
    if engine.seed is not None:
        words += ["--seed", str(engine.seed)]
    if engine.context_shift:
        words += ["--context-shift", "--keep", str(engine.n_keep)]
    return words
