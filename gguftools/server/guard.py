"""Run as a script: starts a server and stops it when the program that asked for it is gone.

    guard.py LIFE STATUS PROGRAM [ARGUMENT]...

LIFE is the end of a pipe whose other end only that program holds: when it closes, even by kill -9,
the server gets SIGTERM, and SIGKILL after a grace period or at a second request. STATUS is a pipe
on which the guard says `pid N`, then `exit N`, negative for a signal. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

SECONDS_GRACE = 10.0
STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(life: int, status: int, argv: list[str]) -> None:
    """Start the server, wait for its end or for ours."""
    os.set_inheritable(life, False)
    os.set_inheritable(status, False)
    bell, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    asked: list[int] = []  # signals that mean: stop it
    for number in STOP:
        signal.signal(number, lambda number, frame: asked.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    try:
        pid = os.posix_spawn(argv[0], argv, os.environ, setpgroup=0, setsigdef=STOP)
    except OSError as err:
        _say(status, f"error {err.strerror}")
        return
    _say(status, f"pid {pid}")
    _say(status, f"exit {_watch(pid, life, bell, asked)}")
    _kill(pid, signal.SIGKILL)  # what it may have started itself


def _watch(pid: int, life: int, bell: int, asked: list[int]) -> int:
    """Its exit code, after it ended by itself or was ended."""
    watched, ends, n_heard = [life, bell], float("inf"), 0
    while True:
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(code)
        n_asked = len(asked) + (life not in watched)
        if n_asked > n_heard or time.monotonic() >= ends:
            _kill(pid, signal.SIGKILL if n_heard else signal.SIGTERM)
            ends, n_heard = time.monotonic() + SECONDS_GRACE, n_asked
        ready, _, _ = select.select(watched, [], [], min(ends - time.monotonic(), 60.0))
        if bell in ready:
            os.read(bell, 4096)
        if life in ready and not os.read(life, 4096):
            watched.remove(life)


def _kill(pid: int, number: signal.Signals) -> None:
    """The server and what it started: it leads a group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _say(status: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(status, f"{text}\n".encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
