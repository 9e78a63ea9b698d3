"""The session with its one thread, and whose turn it is to use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import perf_counter

from gguftools.service.ask import Ask, ServedModel
from gguftools.service.handover import call_in
from gguftools.service.job import Job
from gguftools.service.limits import Limits
from gguftools.service.turns import Turns
from gguftools.speculative.session import Session


class Service:
    """Makes one reply at a time. A session is not thread-safe: only `_thread` touches it."""

    def __init__(
        self, session: Session, *, model_name: str, queue_max: int, limits: Limits
    ) -> None:
        self.model = ServedModel(
            name=model_name,
            n_vocab=session.model.n_vocab,
            n_ctx=session.target.n_ctx,
            chain=session.settings.chain,
        )
        self.drafter_name = session.drafter_name
        self.limits = limits
        self.turns = Turns(queue_max)
        self._session = session
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._running: Job | None = None

    @asynccontextmanager
    async def job(self, ask: Ask, client: str) -> AsyncIterator[Job]:
        """A reply that begins when it is the client's turn, and ends with the block."""
        await self.turns.take(client)
        loop = asyncio.get_running_loop()
        started = perf_counter()

        def over() -> None:
            self._running = None
            self.turns.give_back(perf_counter() - started)

        limits = self.limits
        job = Job(
            self._session, ask, n_pieces=limits.n_pieces, seconds_unread=limits.seconds_unread
        )
        self._running = job
        job.spoken = self._thread.submit(job.speak)
        # The turn lasts until the thread is done, which may be after the client has left.
        job.spoken.add_done_callback(lambda _: call_in(loop, over))
        try:
            yield job
        finally:
            job.stop()

    def close(self) -> None:
        """Refuse what waits and cut short what runs."""
        self.turns.close()
        if self._running is not None:
            self._running.stop()

    def end(self) -> None:
        """Wait until the engine's thread has left the session, at its next round."""
        if self._running is not None:
            self._running.stop()
        self._thread.shutdown()
