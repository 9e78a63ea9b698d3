"""`gguftools serve` with llama-server: starts it, proves that it speculates, watches it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gguftools.cli import render
from gguftools.cli.engine_options import EngineOptions
from gguftools.cli.options import given
from gguftools.cli.serve_options import ServeOptions
from gguftools.cli.server_start import Network, ServerPlan, seen_of, server_plan, starter
from gguftools.errors import EngineError, UsageError
from gguftools.pairing.launch import NGRAM, Settings

if TYPE_CHECKING:
    from gguftools.cli.contract_serve import ServeJSON
    from gguftools.server.adapt import Measured
    from gguftools.server.client import Client
    from gguftools.server.metrics import Counters
    from gguftools.server.process import RunningServer
    from gguftools.server.proof import Proof
    from gguftools.server.traps import Seen
    from gguftools.server.watch import Watch

SECONDS_BETWEEN_LOOKS = 30.0
_SECONDS_BETWEEN = 0.25
_N_TRIES = 3
_N_LONGER = 2  # --adapt starts with a longer draft than expected best, to see more of the curve


def serve_server(
    target: Path,
    engine: EngineOptions,
    serving: ServeOptions,
    extra: tuple[str, ...],
    *,
    as_json: bool,
) -> int:
    """Serve until Ctrl-C or SIGTERM; EngineError if llama-server ends before."""
    plan = _plan(target, engine, serving, extra)
    if serving.print_command:
        click.echo(plan.command.line)
        return 0
    with ExitStack() as stack:
        served = Served(plan, serving, stack)
        served.start()
        try:
            served.announce(as_json=as_json)
            served.watch()
        except KeyboardInterrupt:
            render.note("stopping llama-server")
        except EngineError as err:
            raise served.explained(err) from err
    return 0


def _plan(
    target: Path, engine: EngineOptions, serving: ServeOptions, extra: tuple[str, ...]
) -> ServerPlan:
    settings = None
    if serving.recipe is not None:
        assert engine.draft_max is not None  # a recipe has one
        settings = Settings(engine.draft_max, engine.draft_min, engine.draft_p_min)
    network = Network(serving.host, serving.port, serving.api_key, serving.alias)
    plan = server_plan(
        target, engine, server=serving.server, kind=serving.kind, settings=settings,
        n_parallel=serving.n_parallel, cpu_moe=serving.cpu_moe, network=network, extra=extra,
    )  # fmt: skip
    if not serving.adapt:
        return plan
    if plan.choice.settings is None or plan.choice.kinds == (NGRAM,):
        raise UsageError("--adapt needs a draft whose length can be chosen: --draft or --mtp")
    from gguftools.server.command import with_draft_max

    longer = plan.choice.settings.draft_max + (0 if given("draft_max") else _N_LONGER)
    return replace(plan, command=with_draft_max(plan.command, longer))


class Served:
    """A llama-server while it serves."""

    def __init__(self, plan: ServerPlan, serving: ServeOptions, stack: ExitStack) -> None:
        self.plan, self.serving, self._stack = plan, serving, stack
        self.running: RunningServer
        self.client: Client
        self.proof: Proof
        self._watch: Watch

    def start(self) -> None:
        """Start it and prove that it speculates."""
        from gguftools.server.client import Client
        from gguftools.server.proof import prove
        from gguftools.server.watch import Watch

        self.running = self._stack.enter_context(starter(self.plan, self.serving.log_file)())
        self.client = self._stack.enter_context(
            Client(self.running.url, api_key=self.serving.api_key)
        )
        try:
            self.proof = prove(self.client, ngram=NGRAM in self.plan.choice.kinds)
            self._watch = Watch(self.client, self._seen())
        except EngineError as err:
            raise self.explained(err) from err
        if not self.proof.on and self.plan.choice.kinds and (why := self.running.why_off()):
            self.proof = replace(self.proof, why=f"{why}; {self.proof.why}")

    def explained(self, err: EngineError) -> EngineError:
        """What ended the server, if it ended by itself."""
        time.sleep(_SECONDS_BETWEEN)
        if self.running.closed or self.running.alive:
            return err
        return EngineError(f"llama-server has ended: {self.running.cause()}")

    def announce(self, *, as_json: bool) -> None:
        """Where it is, with what it drafts, and whether it was seen to."""
        choice, command = self.plan.choice, self.plan.command
        model = next(iter(self.client.models()), choice.target.path)
        if as_json:
            render.json_object(self._json(model))
            return
        server = command.server
        render.facts([
            ("url", f"{command.url}/v1"),
            ("model", model),
            ("llama-server", f"{server.path}, {server.version}"),
            ("draft", self._draft()),
            ("speculation", self._verdict()),
            ("log", str(self.running.log)),
        ])  # fmt: skip
        render.note("Ctrl-C stops it")

    def _draft(self) -> str:
        choice, settings = self.plan.choice, self.plan.command.wanted.settings
        if not choice.kinds:
            return "none: plain decoding"
        file = choice.draft.path if choice.draft is not None else choice.target.path
        own = "" if choice.kinds == (NGRAM,) else f", {file}"
        if settings is None or choice.kinds == (NGRAM,):
            return f"{self.plan.drafter}{own}"
        return (
            f"{self.plan.drafter}{own}, {settings.draft_min} to {settings.draft_max} tokens, "
            f"p-min {settings.draft_p_min:g}"
        )

    def _verdict(self) -> render.Cell:
        if not self.plan.choice.kinds:
            return "not asked for", ""
        word, style = ("ON", "green") if self.proof.on else ("OFF", "yellow")
        return f"{word}: {self.proof.why}", style

    def _json(self, model: str) -> ServeJSON:
        choice, command = self.plan.choice, self.plan.command
        settings = command.wanted.settings
        return {
            "schema": "gguftools.serve/1",
            "engine": "server",
            "url": command.url,
            "model": model,
            "target": choice.target.path,
            "draft": None if choice.draft is None else choice.draft.path,
            "drafter": self.plan.drafter,
            "settings": None if settings is None else {
                "draft_max": settings.draft_max,
                "draft_min": settings.draft_min,
                "draft_p_min": settings.draft_p_min,
            },
            "n_ctx": choice.n_ctx,
            "n_parallel": command.wanted.n_parallel,
            "build": command.server.version,
            "proof": {
                "on": self.proof.on, "n_draft": self.proof.n_draft,
                "n_accepted": self.proof.n_accepted, "why": self.proof.why,
            },
            "command": list(command.argv),
            "log": str(self.running.log),
            "notes": [*choice.notes, *command.notes],
        }  # fmt: skip

    def watch(self) -> None:
        """Until it ends, which is an error; notes how the drafts fare."""
        adapter = Adapter(self) if self.serving.adapt else None
        looked = time.monotonic()
        while True:
            time.sleep(_SECONDS_BETWEEN)
            if not self.running.alive:
                raise EngineError("llama-server has ended")
            if time.monotonic() - looked < SECONDS_BETWEEN_LOOKS:
                continue
            looked = time.monotonic()
            try:
                for remark in self._watch.look():
                    render.note(remark)
                if adapter is not None and adapter.done():
                    adapter = None
            except EngineError as err:
                if self.running.closed:  # by a restart that failed
                    raise
                if self.running.alive:
                    render.note(f"not looked at: {err}")

    def skip(self) -> Counters | None:
        """Its counters; what they counted so far were no requests of clients."""
        return self._watch.skip()

    def _seen(self) -> Seen:
        return replace(seen_of(self.plan), build=self.client.props().build)

    def restart(self, draft_max: int) -> None:
        """The same with another length, on the same port."""
        from gguftools.server.command import with_draft_max

        self._stack.close()
        command = with_draft_max(self.plan.command, draft_max)
        kinds = self.plan.choice.kinds if draft_max else ()
        choice = replace(self.plan.choice, kinds=kinds, settings=command.wanted.settings)
        self.plan = replace(self.plan, command=command, choice=choice)
        self.start()


class Adapter:
    """Looks for a faster length while nobody asks, and restarts the server once at most."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._before = served.client.metrics()
        self._n_tries = 0

    def done(self) -> bool:
        """Whether it has decided; before that there were too few requests, or there are some."""
        from gguftools.server.adapt import N_ROUNDS_ENOUGH, measured_of, time_rounds
        from gguftools.server.metrics import between

        served, settings = self._served, self._served.plan.command.wanted.settings
        now = served.client.metrics()
        if settings is None or now is None or self._before is None:
            render.note("--adapt: this build counts no drafts, so the length stays")
            return True
        since = between(self._before, now)
        if since is None or since.n_rounds < N_ROUNDS_ENOUGH or self._busy():
            return False
        seconds = time_rounds(served.client, settings.draft_max, self._busy)
        self._before = served.skip()
        if seconds is None or self._busy():
            return False
        found = measured_of(settings.draft_max, seconds, since)
        return self._given_up() if found is None else self._settled(found)

    def _given_up(self) -> bool:
        """Whether it was tried often enough."""
        self._n_tries += 1
        if self._n_tries == _N_TRIES:
            render.note("--adapt: no round of whole drafts could be timed, so the length stays")
        return self._n_tries == _N_TRIES

    def _settled(self, found: Measured) -> bool:
        """Restart if that is worth it."""
        from gguftools.server.adapt import better

        served, chosen = self._served, better(found)
        speeds = ", ".join(f"{n or 'plain'} {found.speed(n):.1f}" for n in sorted(found.seconds))
        render.note(f"--adapt: tokens/s by draft length: {speeds}")
        if chosen is None:
            render.note(f"--adapt: {found.n_max} stays")
            return True
        render.note(f"--adapt: restarting llama-server with {chosen or 'no draft'}")
        served.restart(chosen)
        render.note(f"--adapt: speculation is {'ON' if served.proof.on else 'OFF'} again")
        return True

    def _busy(self) -> bool:
        """Whether a request is in flight."""
        return any(slot.busy for slot in self._served.client.slots() or ())
