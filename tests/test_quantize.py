"""llama.cpp's quantizer behind one function, and the widened target made with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gguftools.errors import EngineError, RefusedError, UsageError
from gguftools.gguf.source import open_gguf
from gguftools.speculative.quantize import requantize
from tests.models.markov import N_VOCAB, random_chain, write_llama
from tests.models.oracle import next_token_logits
from tests.models.widen import widen
from tests.test_integrity import N_EMBD, N_FF, sound
from tests.test_integrity import N_VOCAB as N_VOCAB_SMALL

TOKENS = list(range(10, 60))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "f32.gguf"
    return write_llama(path, random_chain(N_VOCAB, 1), n_layer=2)


@pytest.mark.parametrize(("file_type", "type_id"), [("F16", 1), ("Q8_0", 7), ("Q4_0", 2)])
def test_the_copy_has_the_file_type_and_nothing_is_printed(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], file_type: str, type_id: int
) -> None:
    copy = tmp_path / "copy.gguf"
    requantize(source, copy, file_type)
    header = open_gguf(copy)
    assert header.integer("general.file_type") == type_id
    assert header.tensors["blk.0.attn_q.weight"].type.name == file_type
    assert header.tensors.keys() == open_gguf(source).tensors.keys()
    assert list(tmp_path.iterdir()) == [copy]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_a_copy_in_16_bits_speaks_nearly_the_same_chain(source: Path, tmp_path: Path) -> None:
    requantize(source, tmp_path / "f16.gguf", "F16")
    before, after = (next_token_logits(p, TOKENS) for p in (source, tmp_path / "f16.gguf"))
    assert 0 < np.abs(before - after).max() < 0.05


def test_an_unknown_file_type_is_misuse(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown file type 'Q3'"):
        requantize(source, tmp_path / "copy.gguf", "Q3")


def test_a_type_that_needs_an_importance_matrix_says_so(source: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="imatrix"):
        requantize(source, tmp_path / "copy.gguf", "IQ2_XXS")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_source_is_refused_before_llama_cpp_sees_it(source: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(source.read_bytes()[:-1000])
    with pytest.raises(RefusedError, match="bytes are missing"):
        requantize(cut, tmp_path / "copy.gguf", "Q8_0")


def test_a_folder_that_is_not_there_is_an_engine_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        requantize(source, tmp_path / "nowhere" / "copy.gguf", "Q8_0")


def test_a_widened_model_is_larger_and_speaks_the_same(tmp_path: Path) -> None:
    model = sound()
    for row in model.rows:
        if "ffn_down" in row.name:
            noise = np.random.default_rng(1).standard_normal(row.shape, np.float32) / 4
            row.content = noise.tobytes()
    narrow = tmp_path / "narrow.gguf"
    narrow.write_bytes(model.content())
    wide = widen(narrow, tmp_path / "wide.gguf", 4)
    header = open_gguf(wide)
    assert header.integer("llama.feed_forward_length") == 4 * N_FF
    assert header.tensors["blk.0.ffn_down.weight"].shape == (4 * N_FF, N_EMBD)
    assert header.tensors["blk.0.ffn_up.weight"].shape == (N_EMBD, 4 * N_FF)
    assert header.tensors["blk.0.attn_q.weight"].shape == (N_EMBD, N_EMBD)
    tokens = list(range(N_VOCAB_SMALL))
    before, after = next_token_logits(narrow, tokens), next_token_logits(wide, tokens)
    chain = random_chain(N_VOCAB_SMALL, 1)
    assert np.abs(before - np.log(np.maximum(chain, 1e-26))).max() > 1, "the FFN does something"
    assert np.abs(before - after).max() < 1e-3
