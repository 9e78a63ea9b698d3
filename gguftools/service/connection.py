"""A connection that ends when its client neither sends a request's head nor reads its reply."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from gguftools.service.limits import LIMITS, Limits


class Connection(H11Protocol):
    """uvicorn's, with the two time limits it lacks."""

    limits: Limits = LIMITS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel()

    def on_response_complete(self) -> None:
        self._expect_head()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.seconds_unread, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel()
        if self._unread is not None:
            self._unread.cancel()

    def _expect_head(self) -> None:
        self._cancel()
        self._head = self.loop.call_later(self.limits.seconds_head, self.transport.abort)

    def _cancel(self) -> None:
        if self._head is not None:
            self._head.cancel()
