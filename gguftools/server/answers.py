"""What a server may answer: bounded, checked, and every failure one error of ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from time import monotonic
from typing import Any

import httpx2

from gguftools.errors import EngineError, UsageError

MESSAGE_CHARS_MAX = 300
LINE_BYTES_MAX = 16 << 20  # one event; the last one may repeat a long prompt
_ERROR_BYTES_MAX = 1 << 16
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class LostError(EngineError):
    """The connection is gone, and perhaps the server with it."""


class LoadingError(EngineError):
    """The server is there, its model not yet."""


class MissingError(EngineError):
    """The server has no such endpoint, or it is switched off."""


@contextmanager
def translated(url: str) -> Iterator[None]:
    """httpx2's errors as ours; `url` is the server's."""
    try:
        yield
    except httpx2.ConnectError as err:
        hint = "is it running, and is this its host and port?"
        raise LostError(f"nothing answers there: {_reason(err)}", where=url, hint=hint) from err
    except httpx2.TimeoutException as err:
        what = (
            "cannot be reached" if isinstance(err, httpx2.ConnectTimeout) else "stopped answering"
        )
        raise EngineError(f"{what} in time", where=url) from err
    except httpx2.InvalidURL as err:
        raise UsageError(f"not an address: {err}", where=url) from err
    except (httpx2.HTTPError, httpx2.StreamError) as err:
        raise LostError(f"the connection broke: {_reason(err)}", where=url) from err


def _reason(err: Exception) -> str:
    return str(err).strip()[:MESSAGE_CHARS_MAX] or type(err).__name__


def check_status(response: httpx2.Response, url: str) -> None:
    """Raise what a status other than 200 means; the answer's own words go with it."""
    status = response.status_code
    if status == HTTPStatus.OK:
        return
    if response.is_redirect:
        to = response.headers.get("location", "elsewhere")[:MESSAGE_CHARS_MAX]
        raise EngineError(f"it redirects to {to}", where=url, hint="give the final address")
    said = _said(response)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        hint = "give its key with --api-key or LLAMA_API_KEY"
        raise EngineError(f"it refuses the request: {said}", where=url, hint=hint)
    if status in _MISSING:
        raise MissingError(f"it has no {response.request.url.path}: {said}", where=url)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        raise LoadingError(f"it is not ready: {said}", where=url)
    if status == HTTPStatus.BAD_REQUEST and "context" in said:
        hint = "a larger -c where it is started, or a shorter prompt"
        raise UsageError(f"it refuses the request: {said}", where=url, hint=hint)
    raise EngineError(f"it fails: {said}", where=url)


def _said(response: httpx2.Response) -> str:
    """The message of an error, as llama-server and OpenAI word them; else the status."""
    body = bounded(response.iter_bytes(), _ERROR_BYTES_MAX, str(response.url), cut=True)
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = None
    status = f"HTTP {response.status_code} {response.reason_phrase}".strip()
    return message[:MESSAGE_CHARS_MAX] if isinstance(message, str) and message else status


def bounded(
    chunks: Iterable[bytes],
    n_bytes_max: int,
    url: str,
    *,
    cut: bool = False,
    seconds_max: float = 60.0,
) -> bytes:
    """All of an answer that has to be short and come soon."""
    body = bytearray()
    end = monotonic() + seconds_max
    for chunk in chunks:
        body += chunk
        if len(body) > n_bytes_max:
            if cut:
                break
            raise EngineError(f"its answer is longer than {n_bytes_max >> 10} KiB", where=url)
        if monotonic() > end:
            raise EngineError(f"its answer takes longer than {seconds_max:.0f} s", where=url)
    return bytes(body[:n_bytes_max])


def json_object(body: bytes, url: str) -> dict[str, Any]:
    """The one JSON object that an answer is."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as err:
        raise EngineError(f"it answers with {_kind(body)}, not JSON", where=url) from err
    if not isinstance(value, dict):
        raise EngineError("it answers with JSON that is no object", where=url)
    return value


def _kind(body: bytes) -> str:
    start = body.lstrip()[:64].lower()
    return "a web page" if start.startswith((b"<!doctype", b"<html")) else "something else"


def events(chunks: Iterable[bytes], url: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events, up to `[DONE]` or the end."""
    for line in lines(chunks, url):
        name, _, value = line.partition(b":")
        value = value.strip()
        if value == b"[DONE]":
            return
        if name not in (b"data", b"error") or not value:
            continue  # a comment that keeps the connection alive, or a field without use here
        event = json_object(value, url)
        if name == b"error" or event.get("error"):
            raise EngineError(f"it fails in the reply: {_failure(event)}", where=url)
        yield event


def _failure(event: dict[str, Any]) -> str:
    error = event.get("error", event)
    message = error.get("message") if isinstance(error, dict) else error
    return message[:MESSAGE_CHARS_MAX] if isinstance(message, str) else "no reason given"


def lines(chunks: Iterable[bytes], url: str) -> Iterator[bytes]:
    """Whole lines; an unfinished one at the end is no line."""
    rest = bytearray()
    for chunk in chunks:
        *whole, tail = chunk.split(b"\n")
        for line in whole:
            yield bytes(rest + line).rstrip(b"\r")
            rest.clear()
        rest += tail
        if len(rest) > LINE_BYTES_MAX:
            raise EngineError(f"a line of it exceeds {LINE_BYTES_MAX >> 20} MiB", where=url)
