"""Files that several tests read."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# llama.cpp's OpenMP threads spin for their turn: with more of them than cores, as when something
# else runs beside the tests, one decode takes up to a hundred times longer. Read at import.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest

from tests.models.markov import write_standard_set

# A shell in the background and nohup have a program ignore these, and all that it starts. What is
# handled here, whatever the handler does, is at its default again there.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The standard Markov set; never written to."""
    return write_standard_set(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What programs keep for later stays out of the user's own folder."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("XDG_CACHE_HOME")
    if before is not None:
        os.environ["XDG_CACHE_HOME"] = before
