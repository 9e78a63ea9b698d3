"""EAGLE-3, DFlash and DSpark files: what they must hold, and their maps of token ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.feature_draft import block_draft_max, target_layers, why_not_loaded
from gguftools.pairing.token_map import map_bounds
from tests.models import pair_files as files
from tests.models.pair_files import PairFile
from tests.models.pair_models import mtp_header

DRAFTS = {"eagle3": files.eagle3(), "dflash": files.dflash(), "dspark": files.dspark()}
MAY_LACK = {"token_embd.weight", "output.weight"}  # borrowed from the target
TENSORS = [(kind, name) for kind, draft in DRAFTS.items() for name in draft.model.tensors]


def _header(draft: PairFile) -> Header:
    return mtp_header(draft.model, draft.vocab)


@pytest.mark.parametrize("kind", DRAFTS)
def test_a_whole_draft_has_nothing_against_it(kind: str) -> None:
    header = _header(DRAFTS[kind])
    assert why_not_loaded(header) == ""
    assert target_layers(header) == ((0, 1, 2) if kind == "eagle3" else (0, 1))


@pytest.mark.parametrize(("kind", "name"), TENSORS)
def test_a_missing_tensor_is_named(kind: str, name: str) -> None:
    why = why_not_loaded(_header(DRAFTS[kind].without(name)))
    free = name in MAY_LACK or (kind != "eagle3" and name == "blk.0.attn_v.weight")
    if name == "markov_w1.weight":  # without it the file is a DFlash draft with a tensor too many
        assert "markov_w2.weight" in why
    else:
        assert why == ("" if free else f"{name} is missing")


@pytest.mark.parametrize(("kind", "name"), TENSORS)
def test_a_tensor_of_another_size_is_named_with_both_sizes(kind: str, name: str) -> None:
    draft = DRAFTS[kind]
    shape = draft.model.tensors[name]
    changed = (*shape[:-1], shape[-1] + 16)
    why = why_not_loaded(_header(draft.having({name: changed})))
    free = kind == "eagle3" and name == "token_embd.weight"  # it may list more tokens
    wanted = "[?, 300]" if name == "markov_w1.weight" else str(list(shape))  # any rank will do
    assert why == ("" if free else f"{name} is {list(changed)}, llama.cpp expects {wanted}")


@pytest.mark.parametrize(
    ("keys", "dflash", "dspark"),
    [({"block_size": 7}, 6, 7), ({"block_size": 1}, 0, 1),
     ({"block_size": 7, "sample_from_anchor": False}, 6, 6), ({"block_size": None}, 15, 16)],
)  # fmt: skip
def test_the_block_bounds_the_draft(keys: dict[str, object], dflash: int, dspark: int) -> None:
    header = _header(DRAFTS["dflash"].keys(**keys))
    assert block_draft_max("draft-dflash", header) == dflash
    assert block_draft_max("draft-dspark", header) == dspark


def test_the_bounds_of_a_map_are_read_from_the_file(tmp_path: Path) -> None:
    draft = files.reduced(files.eagle3(), [70, 12, 299, 13])
    path = draft.write(tmp_path / "draft.gguf")
    assert map_bounds(open_gguf(path)) == (12, 299)
    assert map_bounds(open_gguf(files.eagle3().write(tmp_path / "whole.gguf"))) is None


def test_a_map_out_of_reach_is_not_judged(tmp_path: Path) -> None:
    path = files.reduced(files.eagle3(), [70, 12]).write(tmp_path / "draft.gguf")
    header = open_gguf(path)
    path.write_bytes(path.read_bytes()[:-64])
    assert map_bounds(header) is None
    path.unlink()
    assert map_bounds(header) is None
