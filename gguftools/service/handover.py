"""Hands things from the engine's thread to the event loop, a bounded number at a time."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Handover(Generic[T]):
    """`put` in the one thread, `take` on the event loop; `close` from either ends it."""

    def __init__(self, n_max: int, seconds_unread: float) -> None:
        self._n_max, self._seconds_unread = n_max, seconds_unread
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._closed = False
        self.late = False  # closed because nobody took anything

    def put(self, item: T) -> bool:
        """Leave an item, waiting for room; False once nobody wants it."""
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or len(self._items) < self._n_max, self._seconds_unread
            )
            if not room:
                self.late = self._closed = True
            if not self._closed:
                self._items.append(item)
        call_in(self._loop, self._ready.set)
        return not self._closed

    async def take(self) -> list[T]:
        """All that was left so far, at least one; none when no more come."""
        while True:
            self._ready.clear()
            with self._changed:
                items = list(self._items)
                self._items.clear()
                closed = self._closed
                self._changed.notify()
            if items or closed:
                return items
            await self._ready.wait()

    def close(self) -> None:
        """No more items, whichever side says so."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        call_in(self._loop, self._ready.set)


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call it on the loop, from any thread; a loop that is closed wants to know nothing more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
