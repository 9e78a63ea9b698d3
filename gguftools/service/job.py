"""One request in the engine: spoken in its thread, heard on the event loop."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass

from gguftools.errors import GGUFToolsError
from gguftools.service.api_error import ApiError, api_error
from gguftools.service.ask import Ask
from gguftools.service.handover import Handover
from gguftools.speculative.reply import Reply
from gguftools.speculative.session import Session
from gguftools.speculative.stats import Report, Step
from gguftools.speculative.streaming import StopReason


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts and seconds of a reply so far."""

    n_tokens: int
    seconds_decode: float
    n_draft: int
    n_accepted: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A piece of text, who proposed it, and how far the reply is where that was asked for."""

    text: str
    drafted: bool
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class Ending:
    """The whole reply."""

    text: str
    reason: StopReason
    report: Report
    n_cached: int  # tokens of the prompt that did not have to be read again


class Job:
    """`speak` runs in the engine's thread; all else is for the event loop."""

    def __init__(self, session: Session, ask: Ask, *, n_pieces: int, seconds_unread: float) -> None:
        self.ask = ask
        self.spoken: Future[Ending] | None = None  # what `speak` returns, set by who starts it
        self._session = session
        self._out: Handover[Heard] = Handover(n_pieces, seconds_unread)
        self._reply: Reply | None = None
        self._stopped = False

    def speak(self) -> Ending:
        """Make the reply, as far as it is wanted."""
        try:
            return self._speak()
        except GGUFToolsError as err:
            raise api_error(err) from err
        finally:
            self._out.close()

    def _speak(self) -> Ending:
        ask = self.ask
        reply = self._session.reply(
            ask.prompt,
            ask.n_predict,
            raw=not ask.chat,
            stop=ask.stop,
            chain=ask.chain,
            seed=ask.seed,
        )
        n_cached = self._session.target.n_past
        self._reply = reply
        if self._stopped:  # before there was a reply to stop
            reply.stop()
        counter = _Counter(reply)
        with closing(iter(reply)) as pieces:
            for piece in pieces:
                progress = counter.progress() if ask.timings_per_token else None
                if ask.stream and not self._out.put(Heard(piece.text, piece.drafted, progress)):
                    break
        return Ending(reply.text, reply.stop_reason, reply.report, n_cached)

    async def hear(self) -> list[Heard]:
        """The next pieces, none at the end."""
        return await self._out.take()

    def stop(self) -> None:
        """Nobody listens any more: the engine leaves off at its next round."""
        self._stopped = True
        if self._reply is not None:
            self._reply.stop()
        self._out.close()

    def cause(self) -> ApiError:
        """Why a reply was cut short that the client still waits for."""
        if self._out.late:
            return ApiError(408, "the reply was not read in time", code="reader_too_slow")
        return ApiError(503, "the service is stopping", code="stopping")


class _Counter:
    """Adds up the steps of a reply as they come."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._n_steps = self._n_draft = self._n_accepted = 0

    def progress(self) -> Progress:
        new: list[Step] = self._reply.steps[self._n_steps :]
        self._n_steps += len(new)
        self._n_draft += sum(step.n_verified for step in new)
        self._n_accepted += sum(step.n_accepted for step in new)
        return Progress(
            len(self._reply.token_ids), self._reply.seconds_decode, self._n_draft, self._n_accepted
        )
