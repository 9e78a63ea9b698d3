"""`gguftools diff`: what it prints and how it exits."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import pytest

from tests.commands import gguftools
from tests.models import bytes as raw

SCHEMA = Path(__file__).parent.parent / "docs" / "schemas" / "diff.json"


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [("hybrid-mtp", "hybrid", 1), ("hybrid", "hybrid-mtp", 0), ("hybrid-mtp", "hybrid-mtp", 0),
     ("hybrid-mtp", "hybrid-mtp-tied", 0), ("target", "draft", 0), ("target", "hybrid-mtp", 0)],
)  # fmt: skip
def test_it_exits_1_only_if_the_head_did_not_survive(
    models: dict[str, Path], before: str, after: str, code: int
) -> None:
    human = gguftools("diff", models[before], models[after])
    as_json = gguftools("diff", models[before], models[after], "--json")
    assert (human.returncode, human.stderr) == (code, "")
    assert as_json.returncode == code
    shown = json.loads(as_json.stdout)
    jsonschema.validate(shown, json.loads(SCHEMA.read_text()))
    assert shown["same"] == (before == after)
    assert shown["mtp"]["survived"] == (code == 0)


def test_the_head_comes_first(models: dict[str, Path]) -> None:
    lines = gguftools("diff", models["hybrid-mtp"], models["hybrid"]).stdout.splitlines()
    assert lines[0] == "MTP head: lost: all 16 head tensors are gone"
    assert lines[2].split() == ["head", "tensor", "before", "after"]
    assert lines[3].split() == ["blk.4.nextn.eh_proj.weight", "F32", "[256,", "128]", "missing"]
    assert [line.split()[0] for line in lines if "block_count" in line] == ["qwen35.block_count"]


def test_equal_files_take_two_lines(models: dict[str, Path]) -> None:
    done = gguftools("diff", models["hybrid"], models["hybrid"])
    assert done.stdout.splitlines() == [
        "the same metadata and the same tensors, by type and shape",
        "no MTP head: neither declared nor present",
    ]


def test_tensors_are_told_by_what_happened_to_them(models: dict[str, Path]) -> None:
    done = gguftools("diff", models["target"], models["draft"])
    assert "only before: blk.1.attn_norm.weight and 26 more" in done.stdout


def test_what_cannot_be_read_is_exit_3(models: dict[str, Path], tmp_path: Path) -> None:
    missing = gguftools("diff", models["target"], tmp_path / "missing.gguf")
    assert missing.returncode == 3
    assert "no such file" in missing.stderr
    (tmp_path / "page.gguf").write_text("<!doctype html>" + " " * 100)
    broken = gguftools("diff", tmp_path / "page.gguf", models["target"])
    assert (broken.returncode, broken.stdout) == (3, "")
    assert gguftools("diff", models["target"]).returncode == 2


def test_foreign_text_is_escaped_and_long_lists_are_cut(tmp_path: Path) -> None:
    a, b = tmp_path / "a.gguf", tmp_path / "b.gguf"
    names = [f"key.{i:03}" for i in range(100)]
    a.write_bytes(raw.header([raw.entry(name, raw.STRING, "a\x1b[2J") for name in names]))
    b.write_bytes(raw.header([raw.entry(name, raw.STRING, "b" * 5000) for name in names]))
    done = gguftools("diff", a, b)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "a\\x1b[2J" in done.stdout
    assert f"5000 characters, at 0: {'b' * 48}..." in done.stdout
    assert done.stdout.count("key.") == 24
    assert "and 76 more keys; --json has all" in done.stdout


def test_a_type_that_changed_is_shown(tmp_path: Path) -> None:
    a, b = tmp_path / "a.gguf", tmp_path / "b.gguf"
    a.write_bytes(raw.header([raw.entry("x", raw.U32, 1)]))
    b.write_bytes(raw.header([raw.entry("x", raw.I64, 1)]))
    line = next(x for x in gguftools("diff", a, b).stdout.splitlines() if x.startswith("x "))
    assert line.split() == ["x", "1", "(uint32)", "1", "(int64)"]


def test_json_has_no_nan(tmp_path: Path) -> None:
    a, b = tmp_path / "a.gguf", tmp_path / "b.gguf"
    a.write_bytes(raw.header([raw.entry("x", raw.F32, math.nan)]))
    b.write_bytes(raw.header([raw.entry("x", raw.F32, math.inf)]))
    text = gguftools("diff", a, b, "--json").stdout
    (change,) = json.loads(text, parse_constant=pytest.fail)["metadata"]
    assert (change["before"]["shown"], change["after"]["shown"]) == ("nan", "inf")
