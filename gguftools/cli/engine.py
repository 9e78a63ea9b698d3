"""Opens the engine that was asked for: this process, a llama-server to start, one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gguftools.cli import render
from gguftools.cli.engine_options import EngineOptions
from gguftools.cli.progress import SECONDS_UNSHOWN, Progress, progress
from gguftools.cli.reply import opened_session
from gguftools.cli.server_options import ServerOptions
from gguftools.cli.server_start import ServerPlan, seen_of, server_plan, starter
from gguftools.errors import UsageError
from gguftools.pairing.launch import NGRAM
from gguftools.speculative.streaming import AnyReply, AnySession

if TYPE_CHECKING:
    from gguftools.server.session import ServerSession


@contextmanager
def opened_engine(
    target: Path | None, options: EngineOptions, where: ServerOptions
) -> Iterator[AnySession]:
    """The engine, ready to answer. `target` is None only with --url."""
    if where.engine_name == "inprocess":
        assert target is not None, "no target"
        with opened_session(target, options) as session:
            yield session
        return
    with _server_session(target, options, where) as served:
        _say_notes(served)
        yield served


def _server_session(
    target: Path | None, options: EngineOptions, where: ServerOptions
) -> ServerSession:
    from gguftools.server.remembered import Remembered
    from gguftools.server.session import Sampling, ServerSession
    from gguftools.speculative.sampling import Chain

    sampling = Sampling(Chain(**options.sampling), options.seed, options.n_keep)
    if target is None:
        return ServerSession(
            sampling, url=where.url, api_key=where.api_key, waiting=_Waiting(), probing=_probing
        )
    plan = server_plan(target, options, server=where.server)
    settings = plan.choice.settings
    if plan.choice.kinds:
        lookup = plan.choice.kinds == (NGRAM,)  # its lengths are its own
        most = "" if lookup or settings is None else f"up to {settings.draft_max} at a time, "
        render.note(f"llama-server drafts with {plan.drafter}, {most}fixed when it starts")
    return ServerSession(
        sampling, start=starter(plan), kinds=plan.choice.kinds, seen=seen_of(plan),
        probing=_probing, remembered=Remembered(_pair(plan, greedy=sampling.chain.greedy)),
    )  # fmt: skip


def _pair(plan: ServerPlan, *, greedy: bool) -> str:
    """What an acceptance belongs to: files, settings, and whether it is sampled."""
    wanted = plan.command.wanted
    paths = [path.resolve() for path in (wanted.target, wanted.draft) if path is not None]
    files = [f"{path}:{path.stat().st_size}" for path in paths]
    return " ".join([*files, plan.drafter, str(wanted.settings), "greedy" if greedy else "sampled"])


class _Waiting:
    """Says once that a model is being loaded."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, seconds: float) -> None:
        if seconds >= SECONDS_UNSHOWN and not self._said:
            self._said = True
            render.note("the server is loading its model")


def _probing() -> AbstractContextManager[Progress]:
    return progress("does it draft?")


def _say_notes(session: ServerSession) -> None:
    for remark in session.notes:
        render.note(remark)


def restart(session: AnySession) -> None:
    """Start the server of a session again."""
    from gguftools.server.session import ServerSession

    if not isinstance(session, ServerSession):
        raise UsageError("there is no server to restart")
    session.restart()
    _say_notes(session)


def ended(session: AnySession, where: ServerOptions) -> bool:
    """Whether a server that we started is gone."""
    if where.engine_name == "inprocess":
        return False
    from gguftools.server.session import ServerSession

    return isinstance(session, ServerSession) and not session.alive


def traps(session: AnySession, reply: AnyReply, where: ServerOptions) -> list[str]:
    """What a server walked into in this reply; our own engine measures and adapts."""
    if where.engine_name == "inprocess":
        return []
    from gguftools.server.reply import ServerReply
    from gguftools.server.session import ServerSession

    assert isinstance(session, ServerSession)
    assert isinstance(reply, ServerReply)
    return session.traps(reply)
