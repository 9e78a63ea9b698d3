"""Files that several tests read."""

from __future__ import annotations

import os
from pathlib import Path

# llama.cpp's OpenMP threads spin for their turn: with more of them than cores, as when something
# else runs beside the tests, one decode takes up to a hundred times longer. Read at import.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest

from tests.models.markov import write_standard_set


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The standard Markov set; never written to."""
    return write_standard_set(tmp_path_factory.mktemp("models"))
