"""A llama-server of ours: started, watched while it loads, stopped whatever happens to us. I/O."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from gguftools.errors import EngineError
from gguftools.server import guard
from gguftools.server.command import Command, check_port
from gguftools.server.failure import Failure, failure, why_off

SECONDS_QUIET = 300.0  # without a new line in the log; large models load for minutes
_SECONDS_BETWEEN = 0.1
_SECONDS_SAID = 5.0
_SECONDS_ANSWER = 5.0
_HEAD_BYTES, _TAIL_BYTES = 64 << 10, 256 << 10  # of a log that may grow for days
_STATUS_BYTES_MAX = 4096


class RunningServer:
    """A process and its log. `close` ends it, and so does the end of this program."""

    def __init__(self, command: Command, log: Path | None = None) -> None:
        self._folder = None if log else Path(tempfile.mkdtemp(prefix="gguftools-"))
        self.command = command
        self.log = log or Path(self._folder or "", "llama-server.log")
        self.url = command.url
        self.pid: int | None = None
        self.exit_code: int | None = None
        self._said = b""
        self._error = ""
        life, self._life = os.pipe()
        self._status, status = os.pipe()
        try:
            self._guard = self._spawn(life, status)
        except OSError as err:
            os.close(self._life)
            os.close(self._status)
            raise EngineError(err.strerror or str(err), where=str(log)) from err
        finally:
            os.close(life)
            os.close(status)
        os.set_blocking(self._status, False)
        self._listening = True

    def _spawn(self, life: int, status: int) -> subprocess.Popen[bytes]:
        """The guard, in a session of its own: Ctrl-C in a terminal does not reach it."""
        words = [sys.executable, "-I", "-S", guard.__file__, str(life), str(status)]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*words, *self.command.argv], pass_fds=(life, status), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=dict(self.command.environ), start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""
        self._hear()
        return self._listening and self.exit_code is None

    @property
    def closed(self) -> bool:
        """Whether it was asked to end."""
        return self._life < 0

    def _hear(self) -> None:
        """Read what the guard said since; its pipe closes when it ends."""
        while self._listening:
            try:
                block = os.read(self._status, _STATUS_BYTES_MAX)
            except BlockingIOError:
                break
            self._said += block
            if not block:
                self._listening = False
                os.close(self._status)
        for line in self._said.decode("ascii", "replace").splitlines():
            what, _, value = line.partition(" ")
            if what == "pid":
                self.pid = int(value)
            elif what == "exit":
                self.exit_code = int(value)
            elif what == "error":
                self._error = value
        if not self._listening and self.pid is not None and self.exit_code is None:
            # The guard itself was killed: nobody else ends the server.
            self.exit_code = -signal.SIGKILL
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def failure(self) -> Failure:
        """Why it ended, or what stops it."""
        if self._error:
            return Failure(f"it cannot be started: {self._error}")
        return failure(self.log_text(), self.exit_code)

    def cause(self) -> str:
        """Why it ended, in one line, and where its log is."""
        self._hear()
        found = self.failure()
        hint = f"{found.hint}; " if found.hint else ""
        return f"{found.what} ({hint}its log: {self.log})"

    def why_off(self) -> str:
        """Why it does not draft, empty where its log does not say."""
        return why_off(self.log_text())

    def keep_log(self) -> Path:
        """Its log, which now stays."""
        self._folder = None
        return self.log

    def log_text(self) -> str:
        """Begin and end of its log."""
        try:
            with self.log.open("rb") as file:
                head = file.read(_HEAD_BYTES)
                n_bytes = file.seek(0, os.SEEK_END)
                file.seek(max(n_bytes - _TAIL_BYTES, len(head)))
                tail = file.read(_TAIL_BYTES)
        except OSError:
            return ""
        return (head + tail).decode("utf-8", "replace")

    def close(self) -> None:
        """Ask it to end, and wait until it has; a second Ctrl-C meanwhile kills it at once.

        Its log stays if it had ended by itself, and where the user wanted it.
        """
        wanted = self.alive
        try:
            if self._life >= 0:
                os.close(self._life)
                self._life = -1
            self._guard.wait(2 * guard.SECONDS_GRACE + 1)
        except KeyboardInterrupt:
            self._kill()
            raise
        except subprocess.TimeoutExpired:
            self._kill()
        self._hear()
        if wanted and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _kill(self) -> None:
        """The guard takes a second request for impatience; on a busy machine two can be one."""
        for _ in range(5):
            if self._guard.poll() is not None:
                return
            self._guard.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(
    command: Command,
    *,
    log: Path | None = None,
    say: Callable[[str], None],
    seconds_quiet: float = SECONDS_QUIET,
) -> RunningServer:
    """A server that answers; EngineError with the cause in one line if it does not come to that.

    Without `log` its log lies in a private folder, which goes when it is closed in good health.
    """
    check_port(command.host, command.port)
    running = RunningServer(command, log)
    try:
        _wait(running, say, seconds_quiet)
    except BaseException:
        running.close()
        raise
    return running


def _wait(running: RunningServer, say: Callable[[str], None], seconds_quiet: float) -> None:
    """Until /health says that its model is loaded."""
    began = heard = said = time.monotonic()
    n_bytes = 0
    while True:
        healthy = is_healthy(running.command)
        if not running.alive:  # asked after: another server may have answered on its port
            raise EngineError(f"llama-server did not start: {running.cause()}")
        if healthy:
            return
        now = time.monotonic()
        if (grown := _size(running.log)) != n_bytes:
            n_bytes, heard = grown, now
        if now - heard > seconds_quiet:
            raise EngineError(
                f"llama-server has said nothing for {seconds_quiet:g} s and is not ready",
                where=str(running.keep_log()),
            )
        if now - said >= _SECONDS_SAID:
            said = now
            say(f"llama-server is loading, {now - began:.0f} s so far")
        time.sleep(_SECONDS_BETWEEN)


def is_healthy(command: Command) -> bool:
    """Whether it answers /health with 200: its model is loaded."""
    connection = http.client.HTTPConnection(command.address, command.port, timeout=_SECONDS_ANSWER)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
