"""Reads the body of a request, bounded in bytes and time."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from gguftools.service.api_error import ApiError, unavailable
from gguftools.service.limits import Limits

# What follows of the body is not worth receiving.
_CLOSE = {"Connection": "close"}


class Bodies:
    """Counts the bytes of all bodies that are being received."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._n_bytes = 0

    async def read(self, request: Request) -> bytes:
        """The whole body of a request that says it is JSON."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            message = "the body must be sent with Content-Type: application/json"
            raise ApiError(415, message, code="not_json", headers=_CLOSE)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.seconds_body):
                return await self._read(request)
        except TimeoutError:
            message = f"the body did not come within {self._limits.seconds_body:g} s"
            raise ApiError(408, message, code="body_too_slow", headers=_CLOSE) from None
        except ClientDisconnect:
            raise ApiError(400, "the body ends early", code="body_cut", headers=_CLOSE) from None

    async def _read(self, request: Request) -> bytes:
        body = bytearray()
        try:
            async for block in request.stream():
                body += block
                self._n_bytes += len(block)
                if len(body) > self._limits.body_bytes:
                    raise self._too_large()
                if self._n_bytes > self._limits.bodies_bytes:
                    message = "too many large requests at once"
                    err = unavailable(message, code="overloaded", seconds=2)
                    err.headers |= _CLOSE
                    raise err
            return bytes(body)
        finally:
            self._n_bytes -= len(body)

    def _too_large(self) -> ApiError:
        message = f"the body is larger than {self._limits.body_bytes} bytes"
        return ApiError(413, message, code="body_too_large", headers=_CLOSE)
