"""One streamed answer: its events as they come, cut at any moment from anywhere."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import httpx2

from gguftools.errors import EngineError
from gguftools.server.answers import check_status, events, translated


class Stream:
    """Iterate it once. `stop()` shuts the connection down, so the server stops generating."""

    def __init__(
        self,
        http: httpx2.Client,
        path: str,
        fields: Mapping[str, object],
        timeout: httpx2.Timeout,
    ) -> None:
        self._http, self._path, self.fields = http, path, fields
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self.stopped = False

    def stop(self) -> None:
        """End it now. Safe in a signal handler: it touches nothing but the socket."""
        self.stopped = True
        if self._socket is not None:
            with suppress(OSError, ValueError):  # it may be closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.stopped:
            return
        try:
            yield from self._events()
        except EngineError:
            if not self.stopped:
                raise

    def _events(self) -> Iterator[dict[str, Any]]:
        url = str(self._http.base_url)
        # json.dumps escapes what is not ASCII, lone surrogates too.
        request = self._http.build_request(
            "POST",
            self._path,
            content=json.dumps(self.fields),
            headers={"Content-Type": "application/json"},
            timeout=self._timeout,
            extensions={"trace": self._trace},
        )
        with translated(url):
            response = self._http.send(request, stream=True)
            try:
                check_status(response, url)
                yield from events(response.iter_bytes(), url)
            finally:
                response.close()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """httpcore tells when it has connected: the socket, before any answer."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self.stopped:
                self.stop()
