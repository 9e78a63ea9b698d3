"""The answer to a request as an ASGI response: whole, or as server-sent events while it is made."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gguftools.service.answer import DONE, Shape, event
from gguftools.service.api_error import ApiError
from gguftools.service.ask import Ask
from gguftools.service.job import Ending, Job
from gguftools.service.service import Service

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy must not collect the pieces
]


class Answer:
    """Waits for its turn and sends the reply. A client that leaves ends it."""

    def __init__(self, service: Service, ask: Ask, client: str) -> None:
        self.service, self.ask, self.client = service, ask, client
        name = f"{'chatcmpl' if ask.chat else 'cmpl'}-{secrets.token_hex(12)}"
        self.shape = Shape(ask.chat, name, int(time.time()), service.model.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _while_connected(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.service.job(self.ask, self.client) as job:
            if self.ask.stream:
                await self._stream(job, send)
            else:
                await job.hear()
                whole = JSONResponse(self.shape.whole(await _ending(job)))
                await whole(scope, receive, send)

    async def _stream(self, job: Job, send: Send) -> None:
        heard = await job.hear()
        if not heard:
            await _ending(job)  # what fails before the first text is an answer of its own
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        events = [event(self.shape.opening())] if self.ask.chat else []
        while heard:
            events += [event(self.shape.piece(piece)) for piece in heard]
            await _send(send, b"".join(events))
            events = []
            heard = await job.hear()
        try:
            events += self._last(await _ending(job))
        except ApiError as err:
            events.append(event(err.body))
        await _send(send, b"".join(events), more=False)

    def _last(self, ending: Ending) -> list[bytes]:
        chunks = [self.shape.closing(ending)]
        if self.ask.include_usage:
            chunks.append(self.shape.usage_only(ending))
        return [*map(event, chunks), DONE]


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _ending(job: Job) -> Ending:
    """How the reply ended; ApiError where that is not what the client asked for."""
    assert job.spoken is not None
    ending = await asyncio.wrap_future(job.spoken)
    if ending.reason == "cancelled":
        raise job.cause()
    return ending


async def _while_connected(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Do the work unless the client leaves."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.wait((working, gone))
    if not working.cancelled():
        working.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
