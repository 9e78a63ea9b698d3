"""The llama-servers that `bench` measures: launches of one draft length each, or a running one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from gguftools.bench.report import PLAIN
from gguftools.cli import render
from gguftools.cli.engine_options import EngineOptions
from gguftools.cli.options import given
from gguftools.cli.server_start import ServerPlan, server_plan, starter
from gguftools.errors import EngineError, UsageError
from gguftools.pairing.launch import NGRAM, Settings

if TYPE_CHECKING:
    from gguftools.bench.way import Way
    from gguftools.server.session import ServerSession

_BOUNDS = ("draft_max", "draft_min", "draft_p_min")


@dataclass(frozen=True, slots=True)
class Servers:
    """The ways, what drafts, and the versions of what serves."""

    ways: list[Way]
    drafter: str
    builds: dict[str, str]


def launches(
    target: Path,
    engine: EngineOptions,
    lengths: Sequence[int | None],
    server: Path | None,
    *,
    raw: bool,
) -> Servers:
    """A way for each length: 0 is a server without draft."""
    _refuse_adaptive(lengths)
    plans: dict[str, tuple[int, ServerPlan]] = {}
    for n in dict.fromkeys(n for n in lengths if n is not None):
        plan = _plan(target, engine, n, server)
        # Lookup has lengths of its own, so that there is only one way to do it.
        name = NGRAM if plan.drafter == NGRAM else f"fixed-{n}" if n else PLAIN
        plans.setdefault(name, (n, plan))
    from gguftools.bench.server_arms import launched

    ways = [launched(name, n, partial(_start, plan, engine), raw=raw)
            for name, (n, plan) in plans.items()]  # fmt: skip
    drafters = [plan.drafter for _, plan in plans.values() if plan.drafter != "none"]
    some = next(iter(plans.values()))[1]
    return Servers(ways, drafters[0] if drafters else "none",
                   {"llama-server": some.command.server.version})  # fmt: skip


def _refuse_adaptive(lengths: Sequence[int | None]) -> None:
    if given("lengths") and None in lengths:
        raise UsageError("a llama-server cannot adapt its length", where="--lengths adaptive",
                         hint="leave adaptive out, or --engine inprocess")  # fmt: skip
    if given("draft_max", "draft_min"):
        raise UsageError("--draft-max and --draft-min bound an adaptive length, which a "
                         "llama-server has not: give --lengths")  # fmt: skip


def _plan(target: Path, engine: EngineOptions, n: int, server: Path | None) -> ServerPlan:
    context = click.get_current_context()
    for name in _BOUNDS:  # they are settled here, not by the command line
        context.set_parameter_source(name, ParameterSource.DEFAULT)
    if not n:
        plain = replace(engine, drafter="none", draft=None, ngram_first=False)
        return server_plan(target, plain, server=server)
    bounds = Settings(n, 0, engine.draft_p_min)
    return server_plan(target, engine, server=server, settings=bounds)


def _start(plan: ServerPlan, engine: EngineOptions) -> ServerSession:
    from gguftools.server.session import Sampling, ServerSession
    from gguftools.speculative.sampling import Chain

    sampling = Sampling(Chain(**engine.sampling), engine.seed, engine.n_keep)
    session = ServerSession(sampling, start=starter(plan), kinds=plan.choice.kinds)
    if plan.choice.kinds and not session.proof.on:
        session.close()
        raise EngineError("; ".join(session.notes), where="llama-server")
    return session


def running_server(
    url: str, engine: EngineOptions, api_key: str | None, stack: ExitStack, *, raw: bool
) -> Servers:
    """A way for the server at that URL, whatever it was started with."""
    from gguftools.bench.server_arms import running
    from gguftools.server.session import Sampling, ServerSession
    from gguftools.speculative.sampling import Chain

    sampling = Sampling(Chain(**engine.sampling), engine.seed, engine.n_keep)
    session = stack.enter_context(ServerSession(sampling, url=url, api_key=api_key))
    for remark in session.notes:
        render.note(remark)
    name = urlsplit(url).netloc.rpartition("@")[2] or url
    build = session.props.build or "unknown"
    return Servers([running(name, session, raw=raw)], session.drafter_name, {name: build})
