"""A llama-server as an engine: the same session and replies as our own, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import TYPE_CHECKING, Protocol, Self

from gguftools.errors import EngineError, UsageError
from gguftools.server.answers import LostError, MissingError
from gguftools.server.client import Client
from gguftools.server.proof import PLAIN, Progress, Proof, prove
from gguftools.server.remembered import Remembered
from gguftools.server.reply import ServerReply
from gguftools.server.service_client import ServiceClient
from gguftools.server.traps import Seen, find_traps, sentences

if TYPE_CHECKING:
    from gguftools.speculative.sampling import Chain

N_PREDICT_UNLIMITED = (1 << 31) - 1  # and above: until the model or its context ends
_SEEDS = (1 << 32) - 1
_SECONDS_TO_DIE = 2.0
_CHAIN = ("penalties", "top_k", "top_p", "min_p", "temperature")


class Running(Protocol):
    """A server that we started."""

    @property
    def url(self) -> str:
        """Where it answers."""
        ...

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""
        ...

    def cause(self) -> str:
        """Why it ended, in one line."""
        ...

    def why_off(self) -> str:
        """Why it does not draft, empty where that is not known."""
        ...

    def close(self) -> None:
        """Stop it."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """What every request says. A seed counts up from reply to reply, so that each differs."""

    chain: Chain
    seed: int | None = None
    n_keep: int = 0

    def fields(self, n_replies: int) -> dict[str, object]:
        """The chain in llama-server's words, all of it: its own defaults may be others."""
        c = self.chain
        return {
            "samplers": list(_CHAIN),
            "temperature": max(c.temp, 0.0),
            "dynatemp_range": 0.0,
            "mirostat": 0,
            "top_k": max(c.top_k, 0),
            "top_p": c.top_p,
            "min_p": c.min_p,
            "repeat_penalty": c.penalty_repeat,
            "frequency_penalty": c.penalty_freq,
            "presence_penalty": c.penalty_present,
            "repeat_last_n": c.penalty_last_n,
            "logit_bias": [list(pair) for pair in c.logit_bias],
            "seed": -1 if self.seed is None else (self.seed + n_replies) % _SEEDS,
            "n_keep": self.n_keep,
        }


def _unseen() -> AbstractContextManager[Progress]:
    return nullcontext(lambda done, total: None)


class ServerSession:
    """A conversation with a server: one that runs at `url`, or one that we `start` and stop.

    `kinds` is what it was told to draft with, None where that is not known. `waiting` hears the
    seconds that a model takes to load, `probing` shows how far the proof of its drafts is.
    """

    def __init__(
        self,
        sampling: Sampling,
        *,
        url: str | None = None,
        start: Callable[[], Running] | None = None,
        kinds: tuple[str, ...] | None = None,
        api_key: str | None = None,
        waiting: Callable[[float], None] = lambda seconds: None,
        probing: Callable[[], AbstractContextManager[Progress]] = _unseen,
        seen: Seen = Seen(),  # noqa: B008  frozen
        remembered: Remembered | None = None,
    ) -> None:
        self._url, self._sampling, self._start = url, sampling, start
        self._kinds, self._seen, self._remembered = kinds, seen, remembered
        self._waiting, self._probing, self._api_key = waiting, probing, api_key
        self.running: Running | None = None
        self._client: Client | None = None
        self._n_replies = 0
        self._last: ServerReply | None = None
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        if self._start is not None:
            self.running = self._start()
        url = self.running.url if self.running else self._url
        assert url is not None, "a URL or a way to start"
        self._client = Client(url, api_key=self._api_key)
        self._client.wait(self._waiting)
        self.notes: list[str] = []
        try:
            self.props = self._client.props()
        except MissingError:
            self._connect_to_service(url)
        else:
            self.proof = self._prove(self._client)
        self._metered = self.client.metrics() is not None

    def _connect_to_service(self, url: str) -> None:
        """Our own engine behind a URL, which needs no proof; EngineError if it is not."""
        self.close()
        self._client = client = ServiceClient(url, api_key=self._api_key)
        found = client.served()
        if found is None:
            hint = "llama-server's own endpoints are needed, not only /v1"
            raise EngineError("it is no llama-server", where=client.url, hint=hint)
        self.props, drafter = found
        self.proof = replace(PLAIN, on=drafter != "none", types=drafter, why="it says so itself")

    def _prove(self, client: Client) -> Proof:
        """Whether it drafts; a server that should and does not is worth a note."""
        if self._kinds == ():
            return PLAIN
        with self._probing() as progress:
            ngram = any("ngram" in kind for kind in self._kinds or ())
            proof = prove(client, ngram=ngram, progress=progress)
        if not proof.on:
            logged = self.running.why_off() if self.running is not None else ""
            p_min = self._seen.p_min
            sure = f"; the draft may never be as sure as p-min {p_min:g}" if p_min else ""
            self.notes.append(f"speculation is OFF: {logged or proof.why + sure}")
        return proof

    @property
    def client(self) -> Client:
        """For what a session does not ask."""
        assert self._client is not None, "closed"
        return self._client

    @property
    def drafter_name(self) -> str:
        """What drafts there, `none` where nothing was seen to."""
        seen = self.proof.on or (self._last is not None and self._last.report.n_draft)
        return self._named if seen else "none"

    @property
    def draft_max(self) -> None:
        """The server has its own."""
        return

    @property
    def _named(self) -> str:
        return "+".join(self._kinds or ()) or self.proof.types or "draft"

    @property
    def alive(self) -> bool:
        """Whether the next request has a chance; unknown is yes."""
        return self.running is None or self.running.alive

    def reply(
        self,
        messages: Sequence[dict[str, str]] | str,
        n_predict: int,
        *,
        raw: bool = False,
        stop: Sequence[str] = (),
    ) -> ServerReply:
        """Answer the messages (roles system, user, assistant), or continue a raw prompt."""
        if isinstance(messages, str) and not raw:
            messages = [{"role": "user", "content": messages}]
        try:
            prompt = messages if isinstance(messages, str) else self.client.prompt(messages)
            before = self.client.metrics() if self._metered else None
        except EngineError as err:
            raise self._explain(err) from err
        unlimited = n_predict >= N_PREDICT_UNLIMITED
        fields = {
            **self._sampling.fields(self._n_replies),
            "prompt": prompt,
            "n_predict": -1 if unlimited else n_predict,
            "stop": list(stop),
        }
        self._n_replies += 1
        self._last = ServerReply(
            self.client,
            fields,
            n_ctx=self.props.n_ctx,
            drafter=self._named,
            before=before,
            explain=self._explain,
        )
        return self._last

    def traps(self, reply: ServerReply) -> list[str]:
        """What it walked into in this reply, one sentence each."""
        report, counted = reply.report, reply.counted
        try:
            slots = self.client.slots() or ()
        except EngineError:  # the reply is whole
            slots = ()
        build, remembered = self.props.build, self._remembered
        if remembered is not None:
            remembered.add(build, report.n_draft, report.n_accepted)
        seen = replace(
            self._seen,
            build=build,
            rate=remembered.rate(build) if remembered else None,
            before=remembered.before(build) if remembered else None,
            kind=self._seen.kind or self.proof.types,
            slots=slots,
            n_draft=report.n_draft,
            n_accepted=report.n_accepted,
            n_rounds=report.n_rounds,
            n_rounds_drafted=counted.n_rounds if counted else None,
            accepted_by_position=report.accepted_by_position,
            token_ids=reply.token_ids,
        )
        return list(sentences(find_traps(seen)))

    def restart(self) -> None:
        """Stop the server if it still runs, and start it again."""
        if self._start is None:
            hint = "start it again where it was started"
            raise UsageError("this server was not started here", where=self.client.url, hint=hint)
        self.close()
        self._connect()

    def close(self) -> None:
        """Stop what was started."""
        client, running = self._client, self.running
        self._client = self.running = None
        try:
            if client is not None:
                client.close()
        finally:
            if running is not None:
                running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _explain(self, err: EngineError) -> EngineError:
        """A broken connection to a server of ours: what ended it, if it ended."""
        if self.running is None or not isinstance(err, LostError):
            return err
        end = monotonic() + _SECONDS_TO_DIE
        while self.running.alive and monotonic() < end:
            sleep(0.05)
        if self.running.alive:
            return err
        return EngineError(f"llama-server has ended: {self.running.cause()}", where=err.where)
