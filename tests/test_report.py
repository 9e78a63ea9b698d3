"""The report of `inspect`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gguftools.gguf.report import file_type, inspect_header
from gguftools.gguf.source import open_gguf


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "F32"),
        (15, "Q4_K_M"),
        (1024 + 15, "Q4_K_M"),
        (999, "type 999"),
        (True, None),
        ("7", None),
    ],
)
def test_file_type_is_named_even_when_guessed_or_unknown(
    number: int | str, name: str | None, models: dict[str, Path]
) -> None:
    header = open_gguf(models["target"])
    changed = replace(header, metadata={**header.metadata, "general.file_type": number})
    assert file_type(changed) == name


def test_groups_add_up_to_the_file(models: dict[str, Path]) -> None:
    for path in models.values():
        report = inspect_header(open_gguf(path))
        groups = report.tensors.quant_types().values()
        assert sum(sum(group.values()) for group in groups) == report.tensors.n_bytes
        assert report.tensors.n_bytes < report.n_bytes == path.stat().st_size
        assert report.sound
        assert report.problems == ()
