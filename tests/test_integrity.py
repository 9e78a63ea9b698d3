"""What the integrity check calls an error is what real llama.cpp refuses, and nothing else is."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from gguftools.gguf.ggml_types import ggml_type
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.problem import Problem
from gguftools.gguf.reader import read_header
from gguftools.gguf.source import open_gguf
from tests.models import bytes as raw
from tests.models.blocks import attention, ends, ffn
from tests.models.chain import random_chain
from tests.models.oracle import loads_each
from tests.models.real import smollm2
from tests.models.vocabulary import vocabulary

N_VOCAB, N_EMBD, N_FF, N_HEAD = 20, 64, 128, 2


@dataclass
class Row:
    """A tensor to be written; `shift` moves it from where it belongs."""

    name: str
    shape: list[int]
    content: bytes
    type_id: int = 0
    shift: int = 0


@dataclass
class Model:
    """A sound one-block llama file, and what is done to it."""

    entries: dict[str, bytes] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    order: str = "<"

    def put(self, key: str, type_id: int, value: float | str) -> None:
        self.entries[key] = raw.entry(key, type_id, value, order=self.order)

    def put_array(self, key: str, type_id: int, values: list[str] | list[int]) -> None:
        self.entries[key] = raw.array(key, type_id, values, order=self.order)

    def content(self) -> bytes:
        rows, body = [], b""
        for row in self.rows:
            offset = len(body) + row.shift
            rows.append(raw.tensor(row.name, row.shape, row.type_id, offset, order=self.order))
            body += bytes(max(row.shift, 0)) + raw.padded(row.content)
        return raw.padded(raw.header([*self.entries.values()], rows, order=self.order)) + body


def sound(order: str = "<") -> Model:
    model = Model(order=order)
    texts = vocabulary(N_VOCAB)
    model.put("general.architecture", raw.STRING, "llama")
    for suffix, value in {
        "block_count": 1, "context_length": 64, "embedding_length": N_EMBD,
        "feed_forward_length": N_FF, "attention.head_count": N_HEAD,
    }.items():  # fmt: skip
        model.put(f"llama.{suffix}", raw.U32, value)
    model.put("llama.attention.layer_norm_rms_epsilon", raw.F32, 1e-6)
    model.put("tokenizer.ggml.model", raw.STRING, "gpt2")
    model.put("tokenizer.ggml.pre", raw.STRING, "gpt-2")
    model.put_array("tokenizer.ggml.tokens", raw.STRING, texts)
    model.put_array("tokenizer.ggml.token_type", raw.I32, [3, 3, 3] + [1] * (N_VOCAB - 3))
    model.put_array("tokenizer.ggml.merges", raw.STRING, ["x y"])
    model.put("tokenizer.ggml.bos_token_id", raw.U32, 0)
    model.put("tokenizer.ggml.eos_token_id", raw.U32, 0)
    tensors = ends(random_chain(N_VOCAB, 1), N_EMBD)
    tensors |= attention("blk.0.", N_EMBD, N_HEAD, N_EMBD // N_HEAD)
    tensors |= ffn("blk.0.", N_EMBD, N_FF, norm="ffn_norm")
    for name, weights in tensors.items():
        content = weights.astype(f"{order}f4").tobytes()
        model.rows.append(Row(name, list(reversed(weights.shape)), content))
    return model


def misplaced(shift: int) -> Model:
    model = sound()
    model.rows[3].shift = shift
    return model


def without(*keys: str) -> Model:
    model = sound()
    for key in keys:
        del model.entries[key]
    return model


def put(key: str, type_id: int, value: float | str) -> Model:
    model = sound()
    model.put(key, type_id, value)
    return model


def put_array(key: str, type_id: int, values: list[str] | list[int]) -> Model:
    model = sound()
    model.put_array(key, type_id, values)
    return model


def typed(type_id: int) -> Model:
    """The last tensor in another type, with as many bytes as that type needs."""
    model, kind = sound(), ggml_type(type_id)
    row = model.rows[-1]
    row.type_id = type_id
    n_elements = int(np.prod(row.shape))
    row.content = bytes(n_elements // kind.block_elements * kind.block_bytes)
    return model


def without_tensors() -> Model:
    model = sound()
    model.rows = []
    return model


Build = Callable[[], bytes]

REFUSED: dict[str, tuple[str, Build]] = {
    "one byte short": ("truncated", lambda: sound().content()[:-1]),
    "half of it": ("truncated", lambda: sound().content()[:-60_000]),
    "only the header": ("truncated", lambda: sound().content()[: -sum(
        len(raw.padded(row.content)) for row in sound().rows)]),
    "a gap": ("tensor-gap", lambda: misplaced(32).content()),
    "a tensor that starts in the one before": (
        "tensor-overlap", lambda: misplaced(-32).content()),
    "an offset that is not aligned": ("tensor-overlap", lambda: misplaced(-4).content()),
    "half a block per row": ("partial-block", lambda: typed(12).content()),
    "big-endian": ("byte-order", lambda: sound(">").content()),
    "no tensors": ("no-tensors", lambda: without_tensors().content()),
    "no architecture": ("no-architecture", lambda: without("general.architecture").content()),
    "an architecture that is a number": (
        "no-architecture", lambda: put("general.architecture", raw.U32, 1).content()),
    "no block count": ("key-missing", lambda: without("llama.block_count").content()),
    "no context length": ("key-missing", lambda: without("llama.context_length").content()),
    "no embedding length": ("key-missing", lambda: without("llama.embedding_length").content()),
    "no blocks": ("block-count", lambda: put("llama.block_count", raw.U32, 0).content()),
    "513 blocks": ("block-count", lambda: put("llama.block_count", raw.U32, 513).content()),
    "more MTP blocks than blocks": (
        "nextn-count", lambda: put("llama.nextn_predict_layers", raw.U32, 2).content()),
    "a block count of 64 bits": (
        "key-type", lambda: put("llama.block_count", raw.U64, 1).content()),
    "a token id of 32 signed bits": (
        "tokenizer-key-type", lambda: put("tokenizer.ggml.eos_token_id", raw.I32, 0).content()),
    "a flag that is a number": (
        "tokenizer-key-type", lambda: put("tokenizer.ggml.add_bos_token", raw.U8, 0).content()),
    "a split count of 32 bits": ("key-type", lambda: put("split.count", raw.U32, 0).content()),
    "two head counts for one block": (
        "per-layer-length",
        lambda: put_array("llama.attention.head_count", raw.U32, [2, 2]).content()),
    "no tokenizer": ("tokenizer-unknown", lambda: without("tokenizer.ggml.model").content()),
    "no tokens": ("tokens-missing", lambda: without("tokenizer.ggml.tokens").content()),
    "tokens that are numbers": (
        "tokens-missing",
        lambda: put_array("tokenizer.ggml.tokens", raw.U32, list(range(N_VOCAB))).content()),
    "token types of one byte": (
        "tokenizer-key-type",
        lambda: put_array("tokenizer.ggml.token_type", raw.U8, [1] * N_VOCAB).content()),
    "scores of 8 bytes": (
        "tokenizer-key-type",
        lambda: put_array("tokenizer.ggml.scores", raw.F64, [0] * N_VOCAB).content()),
    "a token type too few": (
        "tokenizer-array-short",
        lambda: put_array("tokenizer.ggml.token_type", raw.I32, [1] * (N_VOCAB - 1)).content()),
    "a score too few": (
        "tokenizer-array-short",
        lambda: put_array("tokenizer.ggml.scores", raw.F32, [0] * (N_VOCAB - 1)).content()),
    "a token twice": (
        "token-duplicate",
        lambda: put_array("tokenizer.ggml.tokens", raw.STRING,
                          [*vocabulary(N_VOCAB - 1), "a"]).content()),
    "one shard of two": (
        "shard-alone", lambda: put("split.count", raw.U16, 2).content()),
}  # fmt: skip

ACCEPTED: dict[str, tuple[str | None, Build]] = {
    "sound": (None, lambda: sound().content()),
    "31 bytes of padding": (None, lambda: sound().content() + bytes(31)),
    "another file behind it": ("trailing-data", lambda: sound().content() * 2),
    "a type that is in use": (None, lambda: typed(8).content()),
    "scores that are integers": (
        None, lambda: put_array("tokenizer.ggml.scores", raw.I32, [0] * N_VOCAB).content()),
    "more scores than tokens": (
        None, lambda: put_array("tokenizer.ggml.scores", raw.F32, [0] * 99).content()),
    "two empty tokens": (
        None,
        lambda: put_array("tokenizer.ggml.tokens", raw.STRING,
                          [*vocabulary(N_VOCAB - 2), "", ""]).content()),
    "one head count per block": (
        None, lambda: put_array("llama.attention.head_count", raw.U32, [2]).content()),
    "keys of a split that was merged": (
        "stale-split-keys", lambda: merged().content()),
}  # fmt: skip


def merged() -> Model:
    model = put("split.count", raw.U16, 0)
    model.put("split.tensors.count", raw.I32, 999)
    return model


def problems(content: bytes) -> tuple[Problem, ...]:
    return check_integrity(read_header(io.BytesIO(content), "model.gguf"))


@pytest.mark.parametrize("name", REFUSED)
def test_damage_is_an_error_with_its_own_code(name: str) -> None:
    code, build = REFUSED[name]
    found = problems(build())
    assert found[0].severity == "error"
    assert code in {problem.code for problem in found if problem.severity == "error"}
    assert all(problem.message.isprintable() for problem in found)
    assert all(problem.hint for problem in found if not problem.code.startswith("token"))


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_no_damage_is_no_error(name: str) -> None:
    code, build = ACCEPTED[name]
    assert [problem.code for problem in problems(build())] == ([code] if code else [])
    assert not any(problem.severity == "error" for problem in problems(build()))


def test_llama_cpp_refuses_what_is_an_error_and_loads_the_rest(tmp_path: Path) -> None:
    cases = {name: build for name, (_, build) in (REFUSED | ACCEPTED).items()}
    paths = []
    for i, build in enumerate(cases.values()):
        paths.append(tmp_path / f"{i}.gguf")
        paths[-1].write_bytes(build())
    loaded = {name for name, accepted in zip(cases, loads_each(paths), strict=True) if accepted}
    assert loaded == set(ACCEPTED)


def test_a_cut_file_says_how_much_is_missing_and_what_suffers_first() -> None:
    content = sound().content()
    (problem,) = problems(content[: -8 - 4 * N_EMBD * N_FF])
    assert problem.code == "truncated"
    assert f"{8 + 4 * N_EMBD * N_FF} bytes are missing" in problem.message
    assert "'blk.0.ffn_up.weight' is the first of 2 tensors" in problem.message


def test_a_region_shorter_than_its_rows_counts_the_tensors() -> None:
    model = sound()
    for i, row in enumerate(model.rows[1:], 1):
        row.shift = -32 * i
    (problem,) = problems(model.content())
    assert problem.code == "tensor-overlap"
    assert "before it reaches to byte" in problem.message


def test_an_unknown_type_is_a_warning_and_the_rest_is_still_checked() -> None:
    model = sound()
    model.rows[2].type_id = 156
    (problem,) = problems(model.content())
    assert (problem.code, problem.severity) == ("unknown-type", "warning")
    assert "type 156" in problem.message
    model.rows[-1].shift = 32
    assert [p.code for p in problems(model.content())] == ["tensor-gap", "unknown-type"]


@pytest.mark.parametrize(("key", "value"), [
    ("general.architecture", "clip"), ("general.type", "adapter"),
])  # fmt: skip
def test_a_projector_or_an_adapter_is_sound_but_no_model(key: str, value: str) -> None:
    model = put(key, raw.STRING, value)
    del model.entries["tokenizer.ggml.tokens"]
    found = problems(model.content())
    assert [(p.code, p.severity) for p in found] == [("not-a-model", "info")]


def test_each_shard_is_checked_by_its_own_size(tmp_path: Path) -> None:
    for no in (0, 1):
        model = sound()
        model.rows = model.rows[:2] if no == 0 else model.rows[2:]
        model.put("split.no", raw.U16, no)
        model.put("split.count", raw.U16, 2)
        content = model.content()
        path = tmp_path / f"m-{no + 1:05}-of-00002.gguf"
        path.write_bytes(content if no == 0 else content[:-5])
    (problem,) = check_integrity(open_gguf(tmp_path / "m-00001-of-00002.gguf"))
    assert problem.code == "truncated"
    assert "m-00002-of-00002.gguf" in problem.message
    assert "5 bytes are missing" in problem.message


def test_a_real_model_has_no_problems() -> None:
    path = smollm2()
    if path is None:
        pytest.skip("the model is not here: python -m tests.models.real")
    assert check_integrity(open_gguf(path)) == ()
