"""Whose turn it is: one at a time, clients in a circle, a bounded number waiting.

Lives on one event loop and needs no locks.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque

from gguftools.service.api_error import ApiError, unavailable

_SECONDS_TURN_MAX = 60  # what a refused client is told to wait, at most


class Turns:
    """Each client with something waiting gets a turn before any gets its next."""

    def __init__(self, n_max: int) -> None:
        self.n_max = n_max
        self.n_waiting = 0
        self.seconds_turn = 1.0  # what a turn took lately
        self._busy = False
        self._closed: ApiError | None = None
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, client: str) -> None:
        """Wait for a turn; ApiError when too many wait already."""
        if self._closed is not None:
            raise self._closed
        if not self._busy:
            self._busy = True
            return
        if self.n_waiting >= self.n_max:
            self._make_room(client)
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(place)
        self.n_waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            self._leave(client, place)
            if not place.cancelled() and place.exception() is None:
                self.give_back()  # its turn came as it went away
            raise

    def give_back(self, seconds: float | None = None) -> None:
        """The turn is over; the next client's begins."""
        if seconds is not None:
            self.seconds_turn += (seconds - self.seconds_turn) / 4
        while self._waiting:
            client = next(iter(self._waiting))
            place = self._waiting[client][0]
            self._leave(client, place)
            if client in self._waiting:
                self._waiting.move_to_end(client)
            if not place.done():  # else its client is gone
                place.set_result(None)
                return
        self._busy = False

    def close(self) -> None:
        """Nobody gets a turn any more."""
        self._closed = unavailable("the service is stopping", code="stopping", seconds=5)
        for client, places in list(self._waiting.items()):
            for place in list(places):
                self._refuse(client, place, self._closed)

    def _make_room(self, client: str) -> None:
        """The newest request of the client with most of them gives way to one with fewer."""
        fullest = max(self._waiting, key=lambda name: len(self._waiting[name]), default=client)
        n_own = len(self._waiting.get(client, ()))
        if fullest == client or n_own + 1 >= len(self._waiting[fullest]):
            raise self._full()
        self._refuse(fullest, self._waiting[fullest][-1], self._full())

    def _full(self) -> ApiError:
        seconds = math.ceil(self.seconds_turn * max(self.n_waiting, 1))
        return unavailable(
            f"{self.n_waiting} requests are waiting already",
            code="queue_full",
            seconds=min(max(seconds, 1), _SECONDS_TURN_MAX),
        )

    def _refuse(self, client: str, place: asyncio.Future[None], reason: ApiError) -> None:
        self._leave(client, place)
        if not place.done():
            place.set_exception(reason)

    def _leave(self, client: str, place: asyncio.Future[None]) -> None:
        places = self._waiting.get(client, deque())
        if place not in places:
            return
        places.remove(place)
        self.n_waiting -= 1
        if not places:
            del self._waiting[client]
