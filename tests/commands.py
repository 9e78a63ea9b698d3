"""Runs the command line: in this process, in one of its own, or in a real terminal (a pty)."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Self
from unittest import mock

import jsonschema

from gguftools.cli import main

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# A line editor begins and ends with bracketed paste switched on and off.
PROMPT, ENTERED = "\x1b[?2004h", "\x1b[?2004l"
# Nothing here answers when prompt_toolkit asks where the cursor is.
_TERMINAL = {"TERM": "xterm", "PYTHONIOENCODING": "utf-8", "PROMPT_TOOLKIT_NO_CPR": "1"}
SECONDS_MAX = 60.0
GGUFTOOLS = (sys.executable, "-m", "gguftools")
_SCHEMAS = Path(__file__).resolve().parent.parent / "docs" / "schemas"


def parsed(output: str, verb: str) -> dict[str, Any]:
    """One JSON object, nothing beside it, that fits the schema of its verb."""
    value: dict[str, Any] = json.loads(output)
    jsonschema.validate(value, json.loads((_SCHEMAS / f"{verb}.json").read_text()))
    return value


def gguftools(*args: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """`gguftools ARGS` with pipes, in this process: for what llama.cpp survives."""
    words = [str(arg) for arg in args]
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), mock.patch("sys.stdin", given):
        code = main(words)
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return subprocess.CompletedProcess(words, code, *texts)


def gguftools_apart(*args: object) -> subprocess.CompletedProcess[str]:
    """`gguftools ARGS` with pipes, in a process of its own."""
    return python("-m", "gguftools", *map(str, args))


def python(
    *args: str, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGS` with pipes."""
    return subprocess.run(
        [sys.executable, *args],
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, **(env or {})},
    )


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
            env={**plain, **_TERMINAL, **(env or {})},
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

    @property
    def pid(self) -> int:
        """The child's."""
        return self._child.pid

    def wait_for(self, text: str, *, after: int = 0) -> int:
        """Read until `text` is shown behind position `after`; the position behind it."""
        wanted = text.encode()
        self._read(lambda: wanted in self.shown[after:])
        assert wanted in self.shown[after:], self.shown
        return self.shown.index(wanted, after) + len(wanted)

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
