"""Files that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.markov import write_standard_set


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The standard Markov set; never written to."""
    return write_standard_set(tmp_path_factory.mktemp("models"))
