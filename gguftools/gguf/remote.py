"""A file on a web server, fetched from its beginning in growing ranges, only as far as read. I/O.

HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE act as everywhere: the HTTP client is huggingface_hub's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from importlib import import_module
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

from gguftools import __version__
from gguftools.errors import SourceError, UsageError
from gguftools.gguf.remote_answer import AgainError, Answer, read_answer

Progress = Callable[[str, int], None]  # the file, bytes of it so far

FIRST_BYTES = 256 << 10
_GROWTH = 1.5  # so at most half of what is needed is fetched in vain
N_TRIES = 4
_N_REDIRECTS = 10
SECONDS_TIMEOUT = 30.0  # to connect, and for each piece that arrives
SECONDS_MAX = 300.0  # for one file, however steadily it drips
_EXPIRED = (401, 403, 404, 410)  # of an address that redirects led to
_SECONDS_PAUSE = 0.25  # before the second try, then doubled


class RemoteFile:
    """Bytes from `start` on, forwards only; a connection that breaks is resumed where it broke.

    `n_first` bytes are asked for at once; with None the file is asked for without a range.
    """

    def __init__(
        self,
        url: str,
        where: str,
        *,
        start: int = 0,
        n_first: int | None = FIRST_BYTES,
        progress: Progress | None = None,
    ) -> None:
        self.url, self.where = url, where
        self.n_bytes: int | None = None
        self._near = url  # where redirects led to
        self._tag: str | None = None
        self._pos, self._held = start, b""
        self._n_first, self._progress = n_first, progress
        self._seconds_end = time.monotonic() + SECONDS_MAX
        self._pieces = self._fetch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pieces.close()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The size of the file, or its first byte: what a reader of headers asks for."""
        if whence == os.SEEK_SET:
            return offset
        self._held = self._held or next(self._pieces, b"")
        if self.n_bytes is None:
            hint = "download the file and name the copy"
            raise SourceError("the server does not say how large it is", where=self.where,
                              hint=hint)  # fmt: skip
        return self.n_bytes

    def read(self, n: int) -> bytes:
        """At least one and at most `n` bytes, none at the end of the file."""
        held = self._held or next(self._pieces, b"")
        self._held = held[n:]
        return held[:n]

    def read_all(self, n: int) -> bytes:
        """`n` bytes, fewer only at the end of the file."""
        parts: list[bytes] = []
        while n > 0 and (part := self.read(n)):
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def _fetch(self) -> Generator[bytes, None, None]:
        """One range after the other; a break or a busy server costs a try."""
        http = _http()
        end = None if self._n_first is None else self._pos + self._n_first
        n_failed = 0
        while self.n_bytes is None or self._pos < self.n_bytes:
            before = self._pos
            try:
                yield from self._range(http, end)
            except (AgainError, http.HTTPError) as err:
                n_failed += 1
                if n_failed == N_TRIES or not _may_pass(
                    http, err, started=self.n_bytes is not None
                ):
                    raise self._failure(http, err, n_failed) from err
                self._pause(err, n_failed)
            else:
                if self._pos == before or (self.n_bytes is None and end is None):
                    return
            if end is not None and self._pos >= end:
                end = max(int(self._pos * _GROWTH), self._pos + 1)

    def _range(self, http: Any, end: int | None) -> Iterator[bytes]:
        """The bytes up to `end`; all that follow from a server that ignores ranges."""
        near = self._near
        with closing(self._ask(http, end)) as response:
            if near != self.url and response.status_code in _EXPIRED:
                raise AgainError(f"the server answered {response.status_code}")
            answer = read_answer(response, self._pos, self.where)
            self._note(response, answer)
            skip = answer.n_skip
            stop = answer.end if end is None or not answer.is_range else min(end, answer.end or end)
            for piece in response.iter_raw():
                if time.monotonic() > self._seconds_end:
                    raise SourceError("the server is too slow", where=self.where)
                part = piece[skip:]
                skip -= len(piece) - len(part)
                if stop is not None:
                    part = part[: max(stop - self._pos, 0)]
                if part:
                    self._pos += len(part)
                    if self._progress is not None:
                        self._progress(self.where, self._pos)
                    yield part
                elif not skip:
                    return
        if stop is not None and self._pos < stop:
            raise AgainError(f"the connection ended after {self._pos} bytes")

    def _ask(self, http: Any, end: int | None) -> Any:
        """An answer that is no redirect; the bodies of redirects are not read."""
        for _ in range(_N_REDIRECTS):
            response = self._send(http, end)
            place = response.headers.get("Location", "")
            if response.status_code not in (301, 302, 303, 307, 308) or not place:
                return response
            response.close()
            self._near = _joined(self._near, place)
            if _origin(self._near)[2] is None:
                raise SourceError("the server redirects to no address", where=self.where)
        raise SourceError("the server redirects again and again", where=self.where)

    def _send(self, http: Any, end: int | None) -> Any:
        from huggingface_hub import constants, get_session, get_token

        if constants.is_offline_mode():
            hint = "unset HF_HUB_OFFLINE, or name what is on this machine"
            raise SourceError("HF_HUB_OFFLINE is set", where=self.where, hint=hint)
        headers = {"User-Agent": f"gguftools/{__version__}", "Accept-Encoding": "identity"}
        if end is not None:
            headers["Range"] = f"bytes={self._pos}-{end - 1}"
        # The token goes to the Hub and to no other server.
        at_hub = _origin(self._near) == _origin(constants.ENDPOINT)
        if at_hub and not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN and (token := get_token()):
            headers["Authorization"] = f"Bearer {token}"
        try:
            client = get_session()
            request = client.build_request(
                "GET", self._near, headers=headers, timeout=SECONDS_TIMEOUT
            )
        except UnicodeError as err:
            raise SourceError("HF_TOKEN is not a token", where=self.where) from err
        except (OSError, ValueError, ImportError) as err:
            raise SourceError(f"no HTTP client: {err}", where=self.where) from err
        except http.InvalidURL as err:
            raise UsageError("not an address", where=self.where) from err
        return client.send(request, stream=True, follow_redirects=False)

    def _note(self, response: Any, answer: Answer) -> None:
        """Keep the size, and see that it is still the same file."""
        changed = self.n_bytes is not None and answer.n_bytes not in (None, self.n_bytes)
        if changed or (self._tag and answer.tag and answer.tag != self._tag):
            raise SourceError("the file changed while it was read", where=self.where,
                              hint="try again")  # fmt: skip
        self.n_bytes = self.n_bytes if answer.n_bytes is None else answer.n_bytes
        self._tag = answer.tag or self._tag

    def _pause(self, err: Exception, n_failed: int) -> None:
        self._near = self.url  # the address behind a redirect may have expired
        seconds = err.seconds if isinstance(err, AgainError) else None
        pause = _SECONDS_PAUSE * 2 ** (n_failed - 1) if seconds is None else seconds
        time.sleep(min(pause, max(self._seconds_end - time.monotonic(), 0)))

    def _failure(self, http: Any, err: Exception, n_failed: int) -> SourceError:
        """The last error, in words."""
        if isinstance(err, AgainError):
            return SourceError(str(err), where=self.where, hint=err.hint)
        if isinstance(err, http.TimeoutException):
            what = f"the server says nothing for {SECONDS_TIMEOUT:g} s"
            return SourceError(what, where=self.where)
        if self.n_bytes is not None:
            return SourceError(f"the connection broke {n_failed} times, at last after "
                               f"{self._pos} bytes", where=self.where)  # fmt: skip
        # The text of a local error may quote a header, and with it the token.
        text = "" if isinstance(err, http.LocalProtocolError) else str(err)[:200]
        hub = self.where.startswith("hf://")
        what = f"cannot reach the {'Hub' if hub else 'server'}{': ' if text else ''}{text}"
        hint = "HF_ENDPOINT names another server" if hub else ""
        return SourceError(what, where=self.where, hint=hint)


def read_range(url: str, where: str, start: int, n_bytes: int) -> bytes:
    """Up to `n_bytes` from `start`."""
    with RemoteFile(url, where, start=start, n_first=n_bytes) as file:
        return file.read_all(n_bytes)


def read_whole(url: str, where: str, n_bytes_max: int) -> bytes:
    """A small file or an answer of the Hub, at most so long."""
    with RemoteFile(url, where, n_first=None) as file:
        raw = file.read_all(n_bytes_max + 1)
    if len(raw) > n_bytes_max:
        raise SourceError(f"the answer has more than {n_bytes_max} bytes", where=where)
    return raw


def endpoint() -> str:
    """The address of the Hub."""
    from huggingface_hub import constants

    return str(constants.ENDPOINT).rstrip("/")


def _http() -> Any:
    """The HTTP library beneath huggingface_hub, whichever it is: its errors have one base."""
    from huggingface_hub import errors

    base: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    return import_module(base.__module__.partition(".")[0])


def _may_pass(http: Any, err: Exception, *, started: bool) -> bool:
    """Whether to try again: what is refused or silent at once stays so."""
    if isinstance(err, AgainError):
        return True
    if isinstance(err, http.ConnectError):
        return started
    return isinstance(err, (http.ReadError, http.RemoteProtocolError))


def _joined(url: str, place: str) -> str:
    try:
        return urljoin(url, place)
    except ValueError:
        return ""


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url, "", None
    return parts.scheme, parts.hostname or "", port or {"http": 80, "https": 443}.get(parts.scheme)
