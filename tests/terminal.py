"""A real terminal (a pty) for a command: what it shows, and keys or signals for it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SECONDS_MAX = 60.0


def unstyled(text: str) -> str:
    """`text` without colours; every other escape sequence stays."""
    return _COLOUR.sub("", text)


def shown_by(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """What a command shows from start to end."""
    with Terminal(command, env) as terminal:
        terminal.end()
        return terminal.shown.decode("utf-8", "replace")


class Terminal:
    """A child process whose stdin, stdout and stderr are one terminal."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        plain = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        self._child = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**plain, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **(env or {})},
        )
        os.close(slave)
        self.shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        os.close(self._master)

    def wait_for(self, text: str, *, after: int = 0) -> int:
        """Read until `text` is shown behind byte `after`; the position behind it."""
        wanted = text.encode()
        self._read(lambda: wanted in self.shown[after:])
        found = self.shown.find(wanted, after)
        assert found >= 0, self.shown.decode("utf-8", "replace")
        return found + len(wanted)

    def send(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """What Ctrl-C does while no line is edited."""
        self._child.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read until the child ends; its exit code."""
        self._read(lambda: False)
        return self._child.wait(SECONDS_MAX)

    def _read(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS_MAX
        while not done():
            ready, _, _ = select.select([self._master], [], [], max(end - time.monotonic(), 0))
            assert ready, f"nothing for {SECONDS_MAX} s after {self.shown!r}"
            try:
                block = os.read(self._master, 1 << 16)
            except OSError:  # EIO: the other end is closed
                block = b""
            if not block:
                break
            self.shown += block
