"""Talks to a llama-server by URL. Reads are bounded, waits end, failures are errors of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from time import monotonic, sleep
from typing import Self
from urllib.parse import urlsplit

import httpx2

from gguftools import __version__
from gguftools.errors import EngineError, UsageError
from gguftools.server.answers import (
    LoadingError,
    MissingError,
    bounded,
    check_status,
    json_object,
    translated,
)
from gguftools.server.metrics import (
    Counters,
    Props,
    Slot,
    count,
    read_counters,
    read_props,
    read_slots,
)
from gguftools.server.stream import Stream

SECONDS_CONNECT = 5.0
SECONDS_ANSWER = 60.0
SECONDS_QUIET = 600.0  # between two events of a reply; builds of 2026 send a sign of life in 30
SECONDS_LOAD = 1800.0
_BYTES_MAX = 64 << 20  # /slots and /apply-template repeat whole prompts
_METRICS_BYTES_MAX = 1 << 20
_SECONDS_BETWEEN = 0.25


def server_url(text: str) -> str:
    """`host:8080`, `http://host:8080/v1/` -> `http://host:8080`."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as err:
        raise UsageError(f"not the address of a server: {err}", where=text) from err
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        hint = "such as http://127.0.0.1:8080"
        raise UsageError("not the address of a server", where=text, hint=hint)
    if parts.username is not None or parts.password is not None:
        raise UsageError("a password in an address is not used", hint="--api-key gives a key")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


class Client:
    """One server. Every request has a connection of its own, so that cutting it harms no other."""

    def __init__(
        self, url: str, *, api_key: str | None = None, seconds_quiet: float = SECONDS_QUIET
    ) -> None:
        self.url = server_url(url)
        headers = {"Accept-Encoding": "identity", "User-Agent": f"gguftools/{__version__}"}
        if api_key:
            if not (api_key.isascii() and api_key.isprintable()):
                raise UsageError("an API key has only printable ASCII", where="--api-key")
            headers["Authorization"] = f"Bearer {api_key}"
        timeout = httpx2.Timeout(SECONDS_ANSWER, connect=SECONDS_CONNECT)
        self._quiet = httpx2.Timeout(seconds_quiet, connect=SECONDS_CONNECT)
        with translated(self.url):
            self._http = httpx2.Client(
                base_url=self.url,
                headers=headers,
                timeout=timeout,
                limits=httpx2.Limits(max_keepalive_connections=0),
                follow_redirects=False,
                trust_env=not _is_local(self.url),  # no proxy stands before this machine
            )

    def ready(self) -> bool:
        """Whether its model is loaded; a server without /health counts as ready."""
        try:
            self._ask("GET", "/health")
        except LoadingError:
            return False
        except MissingError:
            return True
        return True

    def wait(self, waiting: Callable[[float], None], *, seconds_max: float = SECONDS_LOAD) -> None:
        """Return when the model is loaded; `waiting` hears the seconds so far."""
        start = monotonic()
        while not self.ready():
            seconds = monotonic() - start
            if seconds > seconds_max:
                what = f"it has been loading its model for {seconds:.0f} s"
                raise EngineError(what, where=self.url, hint="see its log")
            waiting(seconds)
            sleep(_SECONDS_BETWEEN)

    def props(self) -> Props:
        """What it says of itself."""
        return read_props(json_object(self._ask("GET", "/props"), self.url))

    def slots(self) -> tuple[Slot, ...] | None:
        """Its places for requests, None where it does not show them."""
        try:
            body = self._ask("GET", "/slots")
        except MissingError:
            return None
        return read_slots(json_object(b'{"slots":%b}' % body, self.url)["slots"])

    def metrics(self) -> Counters | None:
        """Its counters, None where it was started without --metrics or its build counts none."""
        try:
            body = self._ask("GET", "/metrics", n_bytes_max=_METRICS_BYTES_MAX)
        except MissingError:
            return None
        return read_counters(body.decode("utf-8", "replace"))

    def models(self) -> tuple[str, ...]:
        """The names under which it offers models."""
        ids = (model.get("id") for model in self.listed())
        return tuple(name for name in ids if isinstance(name, str))

    def listed(self) -> list[dict[str, object]]:
        """What it says of each model."""
        listed = json_object(self._ask("GET", "/v1/models"), self.url).get("data")
        return [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> str | list[Mapping[str, str]]:
        """The conversation as its chat template writes it, up to where the reply begins."""
        answer = self._json("/apply-template", {"messages": list(messages)})
        if not isinstance(text := answer.get("prompt"), str):
            raise EngineError("it answers /apply-template without a prompt", where=self.url)
        return text

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """The ids of a text."""
        answer = self._json("/tokenize", {"content": text, "add_special": add_special})
        if not isinstance(ids := answer.get("tokens"), list):
            raise EngineError("it answers /tokenize without tokens", where=self.url)
        return [count(i) for i in ids]

    def complete(self, fields: Mapping[str, object]) -> Stream:
        """The events of /completion; nothing is sent before they are iterated."""
        return Stream(self._http, "/completion", {**fields, "stream": True}, self._quiet)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _json(self, path: str, fields: Mapping[str, object]) -> dict[str, object]:
        return json_object(self._ask("POST", path, content=json.dumps(fields)), self.url)

    def _ask(
        self, method: str, path: str, *, content: str | None = None, n_bytes_max: int = _BYTES_MAX
    ) -> bytes:
        headers = {"Content-Type": "application/json"} if content is not None else {}
        with (
            translated(self.url),
            self._http.stream(method, path, content=content, headers=headers) as response,
        ):
            check_status(response, self.url)
            return bounded(response.iter_bytes(), n_bytes_max, self.url, seconds_max=SECONDS_ANSWER)


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
