"""A real llama-server for tests that talk to one; they are skipped where none was built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gguftools.pairing.launch import Settings
from gguftools.server.command import Wanted, at_hand, server_argv
from gguftools.server.process import RunningServer, start
from scripts.llama_server import llama_server

BINARY = llama_server()
needs_llama_server = pytest.mark.skipif(BINARY is None, reason="no llama-server was built")


def starter(
    log: Path,
    target: Path,
    draft: Path | None = None,
    kinds: tuple[str, ...] = (),
    *,
    n_max: int = 3,
    p_min: float = 0.0,
    n_ctx: int = 4096,
    api_key: str | None = None,
    extra: tuple[str, ...] = (),
) -> Callable[[], RunningServer]:
    """What starts it, on one thread and with one slot."""
    wanted = Wanted(
        target, draft, kinds, Settings(n_max, 0, p_min) if kinds else None, n_ctx,
        n_threads=1, api_key=api_key, extra=extra,
    )  # fmt: skip
    command = server_argv(wanted, at_hand(str(BINARY)), environ={})
    return lambda: start(command, log=log, say=lambda text: None)
