"""`inspect FILE --reference` and `inspect FOLDER`, as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.commands import gguftools, python
from tests.models.checkpoint import config, head, trunk, write_checkpoint, write_model
from tests.models.tiny import tiny, write

QWEN = "Qwen3_5ForCausalLM"
TRUNK, HEAD = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SCHEMAS = Path(__file__).resolve().parent.parent / "docs" / "schemas"


def write_gguf(path: Path, *, with_head: bool) -> Path:
    """The tiny model that llama.cpp loads, with or without its head: as conversion writes it."""
    model = tiny("qwen35", optional=True)
    optional = [f"blk.2.nextn.{name}.weight" for name in ("embed_tokens", "shared_head_head")]
    model = model.without(*optional)
    if not with_head:
        model = model.without(*model.block(2))
        model = model.with_keys(block_count=2, nextn_predict_layers=None)
    write(model, path)
    return path


def shown(verb: str, text: str) -> Any:
    value = json.loads(text)
    jsonschema.validate(value, json.loads((SCHEMAS / f"{verb}.json").read_text()))
    return value


def test_a_head_that_arrived_is_exit_0_and_every_tensor_is_listed(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", QWEN)
    file = write_gguf(tmp_path / "whole.gguf", with_head=True)
    done = gguftools("inspect", file, "--reference", source)
    assert (done.returncode, done.stderr) == (0, "")
    assert "15 tensors; all of it is in the file, as 15 tensors" in done.stdout
    for name in head(QWEN):
        assert name in done.stdout
    value = shown("inspect", gguftools("inspect", file, "--reference", source, "--json").stdout)
    assert (value["reference"]["lost"], value["reference"]["way"]) == (False, "arrived")
    assert {row["arrived"] for row in value["reference"]["tensors"]} == {"yes"}
    plain = shown("inspect", gguftools("inspect", file, "--json").stdout)
    assert plain["reference"] is None


def test_a_head_that_was_lost_is_exit_1_with_the_way_and_the_command(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", QWEN)
    file = write_gguf(tmp_path / "plain.gguf", with_head=False)
    assert gguftools("inspect", file).returncode == 0
    done = gguftools("inspect", file, "--reference", source)
    assert done.returncode == 1
    assert "0 of 15 arrived" in done.stdout
    assert "[reference-not-converted]" in done.stdout
    assert f"python convert_hf_to_gguf.py {source} with llama.cpp b11434 or newer" in done.stdout
    done = gguftools("inspect", file, "--reference", source, "--json")
    value = shown("inspect", done.stdout)
    assert (done.returncode, value["reference"]["way"]) == (1, "not-converted")
    assert [p["code"] for p in value["problems"] if p["severity"] == "error"] == [
        "reference-not-converted"
    ]


def test_a_folder_says_what_conversion_will_do(tmp_path: Path) -> None:
    kept = write_model(tmp_path / "kept", QWEN)
    done = gguftools("inspect", kept)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the head is kept" in done.stdout
    lost = write_checkpoint(tmp_path / "lost", config(QWEN), {TRUNK: trunk(QWEN)})
    done = gguftools("inspect", lost)
    assert done.returncode == 1
    assert "a file that llama.cpp does not load" in done.stdout
    assert "--no-nextn" in done.stdout
    done = gguftools("inspect", lost, "--json")
    value = shown("checkpoint", done.stdout)
    assert (value["outcome"], value["way"]) == ("will-not-load", "weights-missing")
    assert value["declared_key"] == "mtp_num_hidden_layers"


@pytest.mark.parametrize(
    ("place", "text"),
    [("no/such/thing", "no such checkpoint"), ("{file}", "a GGUF as --reference needs --deep"),
     ("{folder}", "no config.json")],
)  # fmt: skip
def test_a_reference_that_is_none_is_one_clear_line(tmp_path: Path, place: str, text: str) -> None:
    file = write_gguf(tmp_path / "whole.gguf", with_head=True)
    named = place.format(file=file, folder=tmp_path)
    done = gguftools("inspect", file, "--reference", named)
    assert done.returncode in (2, 3)
    assert text in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 2


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = "mtp.\x1b]0;owned\x07\u202e\nlayers.weight"
    told = config(QWEN, architectures=["Evil\x1b[2J"])
    source = write_checkpoint(tmp_path / "evil", told, {HEAD: {evil: (2, 2)}})
    done = gguftools("inspect", source)
    assert done.returncode == 1
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)
    assert "\\x1b" in done.stdout


def test_plain_inspect_loads_no_room_of_the_hugging_face_side(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", QWEN)
    file = write_gguf(tmp_path / "whole.gguf", with_head=True)
    code = (
        "import sys; from gguftools.cli import main; main(sys.argv[1:]);"
        "print([n for n in ('huggingface_hub', 'gguftools.gguf.checkpoint', 'gguftools.gguf.hub')"
        " if n in sys.modules])"
    )
    assert python("-c", code, "inspect", str(file)).stdout.endswith("[]\n")
    local = python("-c", code, "inspect", str(file), "--reference", str(source)).stdout
    assert local.endswith("['gguftools.gguf.checkpoint']\n")
