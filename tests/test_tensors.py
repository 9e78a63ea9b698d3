"""Groups and sums of tensors, against what llama.cpp counts."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gguftools.gguf.reader import Header, Shard, read_header
from gguftools.gguf.source import open_gguf
from gguftools.gguf.tensors import GROUPS, bytes_per_token, group_of, tensor_bytes, tensor_groups
from tests.models import bytes as raw
from tests.models.markov import random_chain, write_llama, write_qwen35
from tests.models.real import smollm2

F32, Q4_K, Q6_K, UNKNOWN = 0, 12, 14, 77
_COUNT = """
import json, sys, llama_cpp as lib
params = lib.llama_model_default_params()
params.vocab_only = True  # sums are taken from the header, before any weight is read
model = lib.llama_model_load_from_file(sys.argv[1].encode(), params)
print(json.dumps([lib.llama_model_n_params(model), lib.llama_model_size(model)]))
"""


def _llama_counts(path: Path) -> tuple[int, int]:
    """Parameters and bytes, as llama.cpp adds them up."""
    child = subprocess.run(
        [sys.executable, "-c", _COUNT, str(path)], capture_output=True, text=True, check=True
    )
    n_params, n_bytes = json.loads(child.stdout)
    return n_params, n_bytes


def _header(
    rows: list[tuple[str, list[int], int]], keys: dict[str, int] | None = None, n_extra: int = 0
) -> Header:
    """A qwen35 header whose tensors lie one behind the other, known and unknown ones alike."""
    tensors, offset = [], 0
    for name, shape, type_id in rows:
        tensors.append(raw.tensor(name, shape, type_id, offset))
        offset += 64
    entries = [raw.entry("general.architecture", raw.STRING, "qwen35")]
    entries += [raw.entry(f"qwen35.{k}", raw.U32, v) for k, v in (keys or {}).items()]
    head = raw.padded(raw.header(entries, tensors))
    return read_header(io.BytesIO(head + bytes(offset + n_extra)), "model.gguf")


@pytest.mark.parametrize("kind", ["llama", "hybrid", "hybrid-mtp", "smollm2"])
def test_sums_are_llama_cpps(kind: str, tmp_path: Path) -> None:
    path, chain = tmp_path / "model.gguf", random_chain(60, 1)
    match kind:
        case "llama":
            write_llama(path, chain)
        case "hybrid":
            write_qwen35(path, chain, mtp=None)
        case "hybrid-mtp":
            write_qwen35(path, chain)
        case "smollm2":
            found = smollm2()
            if found is None:
                pytest.skip("SmolLM2 is not here")
            path = found
    groups = tensor_groups(open_gguf(path))
    assert (groups.n_params, groups.n_bytes) == _llama_counts(path)


def test_groups_add_up_to_the_whole(tmp_path: Path) -> None:
    header = open_gguf(write_qwen35(tmp_path / "m.gguf", random_chain(60, 1)))
    groups = tensor_groups(header)
    parts = (groups.trunk, groups.head, groups.embedding, groups.output)
    assert sum(p.n_tensors for p in parts) == groups.total.n_tensors == len(header.tensors)
    assert sum(p.n_bytes for p in parts) == groups.n_bytes
    assert sum(p.n_params for p in parts) == groups.n_params
    assert tuple(groups.quant_types()) == GROUPS
    assert all(p.n_tensors for p in parts)


def test_blocks_behind_the_trunk_are_the_head() -> None:
    rows = [
        ("token_embd.weight", [32, 4], F32),
        ("blk.0.attn_q.weight", [256, 2], Q4_K),
        ("blk.1.nextn.eh_proj.weight", [256, 1], Q6_K),
        ("output_norm.weight", [32], F32),
        ("output.weight", [256, 1], Q6_K),
        ("rope_freqs.weight", [8], F32),
    ]
    groups = tensor_groups(_header(rows, {"block_count": 2, "nextn_predict_layers": 1}))
    assert groups.quant_types() == {
        "trunk": {"Q4_K": 288, "F32": 32},
        "head": {"Q6_K": 210},
        "embedding": {"F32": 512},
        "output": {"Q6_K": 210, "F32": 128},
    }
    assert groups.trunk.dominant_type == "Q4_K"
    assert not groups.tied_output


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("blk.0.attn_norm.weight", "trunk"),
        ("blk.4.attn_norm.weight", "head"),
        ("blk.40.ffn_up.weight", "head"),
        ("nextn.pre_projection.weight", "head"),
        ("token_embd.weight", "embedding"),
        ("per_layer_token_embd.weight", "embedding"),
        ("output.weight", "output"),
        ("output_norm.weight", "output"),
        ("rope_freqs.weight", "trunk"),
        ("fc.weight", "trunk"),
    ],
)
def test_a_name_tells_the_group(name: str, group: str) -> None:
    assert group_of(name, 4) == group


def test_a_tied_output_is_counted_once() -> None:
    rows = [("token_embd.weight", [32, 4], F32), ("output_norm.weight", [32], F32)]
    groups = tensor_groups(_header(rows))
    assert groups.tied_output
    assert groups.n_params == 32 * 4 + 32


def test_bytes_of_an_unknown_type_are_the_gap_to_the_next_tensor() -> None:
    rows = [
        ("blk.0.a.weight", [32, 4], UNKNOWN),
        ("blk.0.b.weight", [16], F32),
        ("blk.0.c.weight", [32], UNKNOWN),
    ]
    header = _header(rows, {"block_count": 1}, n_extra=36)
    assert tensor_bytes(header) == {
        "blk.0.a.weight": 64,
        "blk.0.b.weight": 64,
        "blk.0.c.weight": 100,
    }
    groups = tensor_groups(header)
    assert groups.n_unknown == 2
    assert groups.trunk.types == {"type 77": 164, "F32": 64}


def test_offsets_that_lie_give_no_negative_bytes() -> None:
    row = raw.tensor("blk.0.a.weight", [32], UNKNOWN, 1 << 50)
    header = read_header(io.BytesIO(raw.padded(raw.header([], [row]))), "model.gguf")
    assert tensor_bytes(header) == {"blk.0.a.weight": 0}


def test_the_gap_stays_inside_one_shard() -> None:
    one = _header([("blk.0.a.weight", [32], UNKNOWN)])
    row = one.tensors["blk.0.a.weight"]
    shards = (one.shards[0], Shard("second.gguf", 500, 100, 1))
    both = replace(
        one,
        tensors={
            "first": replace(row, name="first"),
            "second": replace(row, name="second", shard=1),
        },
        shards=shards,
    )
    assert tensor_bytes(both) == {"first": 64, "second": 400}


def test_of_the_experts_only_the_chosen_are_read() -> None:
    rows = [
        ("token_embd.weight", [32, 4], F32),
        ("output.weight", [32, 4], F32),
        ("blk.0.attn_q.weight", [32, 2], F32),
        ("blk.0.ffn_up_exps.weight", [32, 2, 8], F32),
    ]
    header = _header(rows, {"block_count": 1, "expert_count": 8, "expert_used_count": 2})
    assert tensor_groups(header).experts.n_bytes == 2048
    assert bytes_per_token(header) == 512 + 256 + 2048 // 4


def test_embeddings_of_layers_are_looked_up_and_not_read() -> None:
    rows = [
        ("token_embd.weight", [32, 4], F32),
        ("per_layer_token_embd.weight", [64, 4], F32),
        ("blk.0.attn_q.weight", [32, 2], F32),
    ]
    assert bytes_per_token(_header(rows, {"block_count": 1})) == 512 + 256


def test_a_file_without_tensors_has_no_bits_per_weight() -> None:
    groups = tensor_groups(_header([]))
    assert groups.bits_per_weight is None
    assert groups.dominant_type is None
