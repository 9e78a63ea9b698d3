"""The answer to a request that is refused."""

from __future__ import annotations

import asyncio

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gguftools.service.api_error import ApiError

_LINGER_BYTES = 16 << 20
_LINGER_SECONDS = 2


class Refusal(JSONResponse):
    """An error object; where the connection ends with it, the rest of the body is let in first.

    A client that is still sending when its connection is closed sees a reset, not the answer.
    """

    def __init__(self, err: ApiError) -> None:
        super().__init__(err.body, err.status, headers=err.headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.headers.get("connection") != "close":
            await super().__call__(scope, receive, send)
            return
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await _drain(receive)
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    n_left = _LINGER_BYTES
    while n_left > 0:
        message = await receive()
        n_left -= len(message.get("body", b""))
        if not message.get("more_body", False):
            return
