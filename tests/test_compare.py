"""What became of the MTP head between two files, and everything else that differs."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gguftools.gguf.compare import MetadataChange, Side, compare
from gguftools.gguf.header import Header
from gguftools.gguf.source import open_gguf
from gguftools.speculative.quantize import requantize
from tests.models import bytes as raw
from tests.models import tiny
from tests.models.markov import random_chain, write_qwen35


def model(arch: str = "qwen35") -> tiny.TinyModel:
    return tiny.tiny(arch)


def written(path: Path, *entries: bytes) -> Header:
    path.write_bytes(raw.header(entries))
    return open_gguf(path)


def changes(a: Header, b: Header) -> dict[str, MetadataChange]:
    return {change.key: change for change in compare(a, b).metadata}


def test_a_file_equals_itself(models: dict[str, Path]) -> None:
    for path in models.values():
        found = compare(open_gguf(path), open_gguf(path))
        assert found.same
        assert found.survived
        assert found.verdict in ("none", "intact")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("hybrid-mtp", "hybrid", "lost"),
        ("hybrid", "hybrid-mtp", "gained"),
        ("hybrid-mtp", "mtp-sidecar", "intact"),
        ("mtp-sidecar", "hybrid-mtp", "intact"),
        ("mtp-sidecar", "hybrid", "lost"),
        ("hybrid-mtp", "hybrid-mtp-tied", "changed"),
        ("hybrid-mtp-tied", "hybrid-mtp", "intact"),
        ("hybrid", "hybrid", "none"),
        ("target", "draft", "none"),
    ],
)
def test_the_verdict_says_what_became_of_the_head(
    models: dict[str, Path], before: str, after: str, verdict: str
) -> None:
    found = compare(open_gguf(models[before]), open_gguf(models[after]))
    assert found.verdict == verdict
    assert found.survived == (verdict != "lost")


def test_a_head_that_stops_running_is_broken() -> None:
    whole = tiny.header(model())
    block = model().n_layer_all - 1
    eh_proj = f"blk.{block}.nextn.eh_proj.weight"
    torn = tiny.header(model().without(eh_proj))
    found = compare(whole, torn)
    assert (found.verdict, found.survived) == ("broken", False)
    assert eh_proj in found.reason
    assert found.head[0].name == eh_proj
    assert found.head[0].after is None
    assert compare(torn, torn).verdict == "still-broken"
    assert compare(torn, torn).survived
    assert compare(torn, whole).verdict == "intact"


def test_a_count_that_was_stripped_breaks_the_head_though_every_tensor_is_there() -> None:
    # Field report C26: the tensors kept, the key gone.
    keyless = tiny.header(model().with_keys(nextn_predict_layers=None))
    found = compare(tiny.header(model()), keyless)
    assert (found.verdict, found.survived) == ("broken", False)
    assert all(pair.same for pair in found.head)
    assert found.tensors == ()
    assert found.metadata[0].key == "qwen35.nextn_predict_layers"
    assert found.metadata[0].after is None


def test_a_head_stripped_from_under_its_key_is_lost() -> None:
    plain = model("glm4moe").without(*model("glm4moe").block(2))
    found = compare(tiny.header(model("glm4moe")), tiny.header(plain))
    assert (found.verdict, found.survived) == ("lost", False)
    assert found.reason.startswith(f"all {len(model('glm4moe').block(2))} head tensors are gone: ")


def test_a_file_that_claims_a_head_it_never_had_is_broken() -> None:
    plain = model().without(*model().block(2)).with_keys(block_count=2, nextn_predict_layers=None)
    promised = plain.with_keys(block_count=3, nextn_predict_layers=1)
    found = compare(tiny.header(plain), tiny.header(promised))
    assert (found.verdict, found.survived) == ("broken", False)


def test_quantizing_keeps_the_head_and_shows_its_new_types(tmp_path: Path) -> None:
    chain = random_chain(107, 1)
    source = write_qwen35(tmp_path / "a.gguf", chain, mtp_chain=chain, n_embd=256, n_head=8)
    requantize(source, tmp_path / "b.gguf", "Q4_K_M")
    a, b = open_gguf(source), open_gguf(tmp_path / "b.gguf")
    found = compare(a, b)
    assert found.verdict == "intact"
    pairs = {pair.name: pair for pair in found.head}
    eh_proj = pairs["blk.4.nextn.eh_proj.weight"]
    assert eh_proj.before is not None
    assert eh_proj.after is not None
    assert (eh_proj.before.type.name, eh_proj.after.type.name) == ("F32", "Q4_K")
    assert pairs["blk.4.nextn.enorm.weight"].same
    n_head = len([pair for pair in found.head if not pair.same])
    assert [pair in found.head for pair in found.tensors[: n_head + 1]] == [True] * n_head + [False]
    assert found.groups_after.n_bytes < found.groups_before.n_bytes / 4
    assert "general.file_type" in changes(a, b)


def test_every_kind_of_metadata_change_is_found(tmp_path: Path) -> None:
    a = written(
        tmp_path / "a.gguf",
        raw.entry("same", raw.U32, 1),
        raw.entry("gone", raw.U32, 1),
        raw.entry("number", raw.U32, 1),
        raw.entry("type", raw.U32, 1),
        raw.entry("nan", raw.F32, math.nan),
        raw.entry("text", raw.STRING, "x" * 500 + "yes" + "x" * 500),
        raw.array("texts", raw.STRING, ["a", "b", "c"]),
        raw.array("numbers", raw.I32, range(1000)),
        raw.array("shorter", raw.I32, [1, 2, 3]),
        raw.array("equal", raw.F32, [math.nan, 1.0]),
    )
    b = written(
        tmp_path / "b.gguf",
        raw.entry("same", raw.U32, 1),
        raw.entry("number", raw.U32, 2),
        raw.entry("type", raw.U64, 1),
        raw.entry("nan", raw.F32, math.nan),
        raw.entry("text", raw.STRING, "x" * 500 + "no" + "x" * 500),
        raw.array("texts", raw.STRING, ["a", b"\xff\x1b", "c"]),
        raw.array("numbers", raw.I32, [*range(700), -1, *range(701, 1000)]),
        raw.array("shorter", raw.I32, [1, 2]),
        raw.array("equal", raw.F32, [math.nan, 1.0]),
        raw.entry("new", raw.STRING, "n"),
    )
    found = changes(a, b)
    shown = "x" * 20 + "no" + "x" * 58
    assert found == {
        "gone": MetadataChange("gone", Side("uint32", None, 1), None, None),
        "new": MetadataChange("new", None, Side("string", 1, "n"), None),
        "number": MetadataChange("number", Side("uint32", None, 1), Side("uint32", None, 2), None),
        "type": MetadataChange("type", Side("uint32", None, 1), Side("uint64", None, 1), None),
        "text": MetadataChange(
            "text",
            Side("string", 1003, "x" * 20 + "yes" + "x" * 57),
            Side("string", 1002, shown),
            500,
        ),
        "texts": MetadataChange(
            "texts", Side("array[string]", 3, "b"), Side("array[string]", 3, "\\xff\x1b"), 1
        ),
        "numbers": MetadataChange(
            "numbers", Side("array[int32]", 1000, 700), Side("array[int32]", 1000, -1), 700
        ),
        "shorter": MetadataChange(
            "shorter", Side("array[int32]", 3, 3), Side("array[int32]", 2, None), 2
        ),
    }
    assert changes(a, a) == {}
    back = changes(b, a)
    assert back.keys() == found.keys()
    assert all(back[key].before == found[key].after for key in found)


def test_big_vocabularies_are_compared_in_a_moment(tmp_path: Path) -> None:
    texts = [f"token {i}" for i in range(262144)]
    a = written(tmp_path / "a.gguf", raw.array("tokens", raw.STRING, texts))
    b = written(tmp_path / "b.gguf", raw.array("tokens", raw.STRING, texts))
    c = written(tmp_path / "c.gguf", raw.array("tokens", raw.STRING, [*texts[:-1], "other 262143"]))
    start = time.process_time()
    assert compare(a, b).same
    equal = time.process_time()
    assert changes(a, c)["tokens"].index == 262143
    differing = time.process_time()
    # The limits are 80 and 170 ms; twice as much for a busy machine.
    assert equal - start < 0.16
    assert differing - equal < 0.34


def test_what_differs_only_in_type_or_length_is_shown_from_its_start(tmp_path: Path) -> None:
    a = written(
        tmp_path / "a.gguf", raw.array("x", raw.I32, [7, 8]), raw.array("y", raw.STRING, [])
    )
    b = written(
        tmp_path / "b.gguf", raw.array("x", raw.U32, [7, 8]), raw.array("y", raw.STRING, [""])
    )
    assert changes(a, b) == {
        "x": MetadataChange("x", Side("array[int32]", 2, 7), Side("array[uint32]", 2, 7), None),
        "y": MetadataChange("y", Side("array[string]", 0, None), Side("array[string]", 1, ""), 0),
    }


@pytest.mark.parametrize("n", [0, 65535, 65536, 65537, 200000])
def test_the_first_difference_is_found_wherever_it_lies(tmp_path: Path, n: int) -> None:
    a = written(tmp_path / "a.gguf", raw.array("x", raw.U8, [1] * n + [2] + [3] * 70000))
    b = written(tmp_path / "b.gguf", raw.array("x", raw.U8, [1] * n + [4] + [5] * 70000))
    assert changes(a, b)["x"].index == n


def test_tensors_of_another_shape_or_name_are_found(models: dict[str, Path]) -> None:
    a = open_gguf(models["hybrid-mtp"])
    name = "blk.0.ffn_up.weight"
    reshaped = {**a.tensors, name: replace(a.tensors[name], shape=(1, 2))}
    moved = {n: replace(row, offset=row.offset + 32) for n, row in a.tensors.items()}
    assert [pair.name for pair in compare(a, replace(a, tensors=reshaped)).tensors] == [name]
    assert compare(a, replace(a, tensors=moved)).same
