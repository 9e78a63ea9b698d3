"""Reading a local checkpoint: what may lie in it, and what hostile files do not get."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gguftools.errors import FormatError, SourceError
from gguftools.gguf.checkpoint import INDEX, Checkpoint, open_checkpoint
from gguftools.gguf.conversion import foretell
from gguftools.gguf.safetensors import SourceTensor, header_length, json_object, parse_header
from tests.models.checkpoint import (
    HEADS,
    config,
    head,
    safetensors,
    trunk,
    write_checkpoint,
    write_model,
)

QWEN = "Qwen3_5ForCausalLM"
SHARD = "model-00002-of-00002.safetensors"
ROW = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}


def parse(rows: Any, n_data: int | None = 12) -> list[SourceTensor]:
    return parse_header(json.dumps(rows).encode(), n_data=n_data, where="w", file="f")


def test_a_header_gives_names_types_and_shapes() -> None:
    assert parse({"__metadata__": {"format": "pt"}, "a": ROW}) == [
        SourceTensor("a", "BF16", (2, 3), "f")
    ]


@pytest.mark.parametrize(
    "row",
    [
        None, [], "x", {},
        ROW | {"dtype": 1}, ROW | {"dtype": "\x1b[31m" * 9},
        ROW | {"shape": None}, ROW | {"shape": [-1]}, ROW | {"shape": [2**63]},
        ROW | {"shape": [1.5]}, ROW | {"shape": [True]}, ROW | {"shape": [1] * 9},
        ROW | {"data_offsets": [0]}, ROW | {"data_offsets": [5, 1]},
        ROW | {"data_offsets": [0, 13]}, ROW | {"data_offsets": [0, 2**64]},
    ],
)  # fmt: skip
def test_a_hostile_row_is_a_format_error(row: Any) -> None:
    with pytest.raises(FormatError):
        parse({"a": row})


@pytest.mark.parametrize("raw", [b"", b"[1]", b"{", b"\xff\xff", b"[" * 100_000, b"1" * 5000])
def test_what_is_no_json_object_is_a_format_error(raw: bytes) -> None:
    with pytest.raises(FormatError):
        json_object(raw, where="w")


def test_a_flood_of_values_is_refused_before_it_is_parsed() -> None:
    raw = b'{"a":[' + b"[]," * 2_000_000 + b"[]]}"
    tracemalloc.start()
    with pytest.raises(FormatError, match="more values"):
        json_object(raw, where="w")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("start", "n_bytes", "text"),
    [
        (b"", 0, "too few"),
        (struct.pack("<Q", 0), 100, "a safetensors header of 0 bytes"),
        (struct.pack("<Q", 2**63), None, "header of 9223372036854775808 bytes"),
        (struct.pack("<Q", 100_000_001), None, "100000001 bytes"),
        (struct.pack("<Q", 93), 100, "needs 93 bytes, the file has 92"),
        (b"version https://git-lfs", 130, "Git LFS pointer"),
        (b"<!DOCTYPE html>", 500, "a web page"),
    ],
)
def test_a_hostile_length_is_a_format_error(start: bytes, n_bytes: int | None, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        header_length(start, n_bytes=n_bytes, where="w")


def test_only_headers_are_read_however_large_the_weights(tmp_path: Path) -> None:
    big = trunk(QWEN) | {"model.layers.0.mlp.up_proj.weight": (300_000, 300_000)}
    shards = {"model-00001-of-00002.safetensors": big, SHARD: head(QWEN)}
    place = write_checkpoint(tmp_path / "m", config(QWEN), shards)
    assert foretell(open_checkpoint(str(place))).outcome == "kept"


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": "../../etc/passwd"}}', '{"weight_map": {"a": "/x.safetensors"}}',
        '{"weight_map": {"a": "..\\\\x.safetensors"}}',
    ],
)  # fmt: skip
def test_a_hostile_index_is_a_format_error(tmp_path: Path, text: str) -> None:
    place = write_model(tmp_path / "m", QWEN)
    (place / INDEX).write_text(text)
    with pytest.raises(FormatError, match=r"weight_map|JSON object|not a file beside it"):
        open_checkpoint(str(place))


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": None}, {"architectures": [7]}, {"architectures": {}},
        {"num_hidden_layers": "2"}, {"num_hidden_layers": -1}, {"num_hidden_layers": 2**40},
        {"num_hidden_layers": True}, {"num_hidden_layers": ...}, {"text_config": 3},
        {"text_config": {"num_hidden_layers": None}}, {"mtp_num_hidden_layers": 2**31 - 1},
        {"mtp_num_hidden_layers": 10**12}, {"mtp_num_hidden_layers": [1]},
        {"layers_block_type": [1] * 3}, {"num_hidden_layers": 2**31 - 1},
    ],
)  # fmt: skip
@pytest.mark.parametrize("model_class", [QWEN, "ExaoneMoEForCausalLM", "Step3p5ForCausalLM"])
def test_a_hostile_config_gets_an_answer_or_one_clear_line(
    tmp_path: Path, model_class: str, changes: dict[str, Any]
) -> None:
    place = write_model(tmp_path / "m", model_class, **changes)
    found = foretell(open_checkpoint(str(place)))
    assert found.reason
    assert len(found.tensors) < 10_000


def test_a_layer_number_out_of_all_bounds_is_told_at_once(tmp_path: Path) -> None:
    told = config(QWEN, mtp_num_hidden_layers=...)
    shards = {"model.safetensors": {"mtp.layers.999999.eh_proj.weight": (2, 2)}}
    found = foretell(open_checkpoint(str(write_checkpoint(tmp_path / "m", told, shards))))
    assert (found.outcome, found.way) == ("will-not-load", "count-wrong")


def test_damaged_shards_name_themselves(tmp_path: Path) -> None:
    place = write_model(tmp_path / "m", QWEN)
    whole = (place / SHARD).read_bytes()
    for n in (0, 4, 200, len(whole) - 1):
        (place / SHARD).write_bytes(whole[:n])
        with pytest.raises(FormatError, match=SHARD):
            open_checkpoint(str(place))


def test_every_cut_of_a_header_is_a_format_error(tmp_path: Path) -> None:
    raw, n_data = safetensors({"mtp.fc.weight": (2, 2)})
    place = write_checkpoint(tmp_path / "m", config(QWEN), {"model.safetensors": {}}, index=False)
    for n in range(len(raw) + n_data):
        (place / "model.safetensors").write_bytes((raw + bytes(n_data))[:n])
        with pytest.raises(FormatError):
            open_checkpoint(str(place))


def test_a_folder_that_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no config\.json"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SourceError, match=r"no \*\.safetensors"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_bytes(b"{" * 10)
    with pytest.raises(FormatError, match="not JSON"):
        open_checkpoint(str(tmp_path))


_JUNK: list[Any] = [None, 0, 1, 3, -1, 2**31, 2**40, 1.5, "x", "", [], [1, 2, 3], {}, {"a": 1},
                    True, 512, 513]  # fmt: skip
_PIECES = ("layers", "mtp", "model", "weight", "0", "2")


def _distorted(random: Random, model_class: str) -> Checkpoint:
    """A checkpoint as read, with some values, names and shapes replaced."""
    told, shapes = config(model_class), head(model_class)
    for key in random.sample([*told, "text_config", "mtp_share_layers", "layers_block_type"], 2):
        told[key] = random.choice(_JUNK)
    told["architectures"] = [model_class]
    for name in random.sample(list(shapes), 3):
        odd = tuple(random.choice((0, 1, 2, 32, 2**40)) for _ in range(random.randint(0, 4)))
        piece = random.choice(_PIECES)
        shapes[name.replace(piece, random.choice(("", "99", "999999", "x")))] = odd
        shapes[name] = odd if random.random() < 0.5 else shapes[name]
    dtypes = ("F32", "I8", "BF16")
    tensors = {name: SourceTensor(name, random.choice(dtypes), shape, "f", random.random() < 0.9)
               for name, shape in shapes.items()}  # fmt: skip
    return Checkpoint("w", told, frozenset(), tensors, random.random() < 0.5, (), True)


@pytest.mark.parametrize("model_class", sorted(HEADS))
def test_whatever_config_names_and_shapes_say_there_is_an_answer(model_class: str) -> None:
    random = Random(model_class)
    for _ in range(40):
        found = foretell(_distorted(random, model_class))
        assert found.reason
        assert found.fix or found.sound
