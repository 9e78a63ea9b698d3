"""Hyperparameters against what llama.cpp reads from the same files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gguftools.gguf.hparams import N_LAYER_MAX, read_hparams
from gguftools.gguf.nextn_table import MTP_ARCHS
from gguftools.gguf.source import open_gguf
from tests.models.pair_models import model
from tests.models.tiny import tiny, write

FACTS = ("n_layer", "n_layer_nextn", "n_embd", "n_embd_out", "n_head", "n_head_kv", "n_ctx_train")
_ASK = f"""
import json, sys, llama_cpp as lib
for path in sys.argv[1:]:
    params = lib.llama_model_default_params()
    params.load_mtp = True
    model = lib.llama_model_load_from_file(path.encode(), params)
    facts = [getattr(lib, "llama_model_" + name)(model) for name in {FACTS}] if model else None
    print(json.dumps(facts), flush=True)
"""


def _ask_llama(paths: list[Path]) -> list[list[int] | None]:
    child = subprocess.run(
        [sys.executable, "-c", _ASK, *map(str, paths)], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in child.stdout.splitlines()]


def test_counts_and_widths_are_llama_cpps(tmp_path: Path) -> None:
    paths = [tmp_path / f"{arch}.gguf" for arch in MTP_ARCHS]
    for arch, path in zip(MTP_ARCHS, paths, strict=True):
        write(tiny(arch), path)
    answers = _ask_llama(paths)
    for path, answer in zip(paths, answers, strict=True):
        # The llama.cpp in llama-cpp-python 0.3.36 does not know the youngest of them.
        if answer is not None:
            hparams = read_hparams(open_gguf(path))
            ours = [getattr(hparams, name) for name in FACTS]
            assert [_first(value) for value in ours] == answer, path.name
    assert sum(answer is not None for answer in answers) >= 15


def _first(value: int | tuple[int, ...]) -> int:
    return value if isinstance(value, int) else value[0]


def test_an_array_no_model_can_have_is_ignored() -> None:
    fits, too_long = (
        read_hparams(model(keys={"attention.head_count_kv": [1] * n})) for n in (4, N_LAYER_MAX + 1)
    )
    assert fits.n_head_kv == (1, 1, 1, 1)
    assert too_long.n_head_kv == too_long.n_head == (2, 2, 2, 2)


@pytest.mark.parametrize("n_layer", [0, 1, 1 << 31])
def test_a_block_count_that_lies_costs_no_memory(n_layer: int) -> None:
    hparams = read_hparams(model(keys={"block_count": n_layer}))
    assert hparams.n_layer_all == len(hparams.n_head) == min(n_layer, N_LAYER_MAX)


def test_more_mtp_blocks_than_blocks_leave_no_trunk() -> None:
    assert read_hparams(model(keys={"nextn_predict_layers": 9})).n_layer == 0


def test_experts_used_may_differ_by_layer() -> None:
    assert read_hparams(model(keys={"expert_used_count": [2, 4, 4, 1]})).n_expert_used == 4
    assert read_hparams(model(keys={"expert_used_count": 3})).n_expert_used == 3


def test_a_model_without_heads_has_no_head_size() -> None:
    assert read_hparams(model(keys={"attention.head_count": 0})).n_embd_head_k is None
