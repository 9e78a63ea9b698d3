"""Headers of targets and drafts, built in memory: enough of each file for the pair check."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gguftools.gguf.reader import Header, read_header
from tests.models import bytes as raw
from tests.models.tiny import TinyModel
from tests.models.tiny import header as tiny_header
from tests.models.tiny_vocab import TinyVocab, words

F32, Q4_0, Q8_0, F16, I64 = 0, 2, 8, 1, 27
Tensors = dict[str, tuple[Sequence[int], int]]


def model(
    arch: str = "llama",
    *,
    tokens: Sequence[bytes] | None = None,
    n_layer: int = 4,
    n_embd: int = 64,
    n_nextn: int = 0,
    type_id: int = F16,
    rows: int | None = None,
    keys: Mapping[str, Any] | None = None,
    extra: Tensors | None = None,
    drop: Collection[str] = (),
    vocab: TinyVocab | None = None,
    path: str = "",
) -> Header:
    """A text model: embedding, output and `n_layer` blocks of one matrix; MTP blocks as `extra`."""
    vocab = vocab or TinyVocab(words(40) if tokens is None else tokens)
    n_rows = len(vocab.tokens) if rows is None else rows
    tensors: Tensors = {
        "token_embd.weight": ((n_embd, n_rows), type_id),
        "output_norm.weight": ((n_embd,), F32),
        "output.weight": ((n_embd, n_rows), type_id),
    }
    for i in range(n_layer):
        tensors[f"blk.{i}.attn_norm.weight"] = ((n_embd,), F32)
        tensors[f"blk.{i}.ffn_up.weight"] = ((n_embd, 4 * n_embd), type_id)
    tensors |= extra or {}
    keys = {
        "block_count": n_layer + n_nextn,
        "embedding_length": n_embd,
        "attention.head_count": 2,
        "context_length": 4096,
        **({"nextn_predict_layers": n_nextn} if n_nextn else {}),
        **(keys or {}),
    }
    kept = {name: row for name, row in tensors.items() if name not in drop}
    return built(arch, keys, kept, vocab, path or f"{arch}.gguf")


def feature_draft(
    arch: str,
    *,
    keys: Mapping[str, Any] | None = None,
    extra: Tensors | None = None,
    tokens: Sequence[bytes] | None = None,
) -> Header:
    """An EAGLE-3, DFlash or DSpark draft for `model()`; a key that is None is left out."""
    defaults: dict[str, Any] = {
        "block_count": 1,
        "embedding_length": 64,
        "attention.head_count": 2,
        "feed_forward_length": 128,
        "target_layers": [1, 2, 3],
        **({"target_hidden_size": 64} if arch == "eagle3" else {"block_size": 16}),
    }
    tensors = _feature_tensors(arch) | (extra or {})
    if "markov_w1.weight" in tensors:
        tensors.setdefault("markov_w2.weight", tensors["markov_w1.weight"])
    mask = () if arch == "eagle3" else (("mask_token_id", raw.U32, 0),)
    vocab = TinyVocab(words(40) if tokens is None else tokens, keys=mask)
    return built(arch, {**defaults, **(keys or {})}, tensors, vocab, f"{arch}.gguf")


def _feature_tensors(arch: str) -> Tensors:
    n_input = 128 if arch == "eagle3" else 64
    norms = ("attn_norm", "attn_norm_2", "ffn_norm") if arch == "eagle3" else (
        "attn_norm", "ffn_norm"
    )  # fmt: skip
    tensors: Tensors = {"fc.weight": ((192, 64), F16), "output_norm.weight": ((64,), F32)}
    if arch == "dflash":
        tensors["enc.output_norm.weight"] = ((64,), F32)
        tensors |= {f"blk.0.attn_{x}_norm.weight": ((32,), F32) for x in "qk"}
    tensors |= {f"blk.0.{name}.weight": ((64,), F32) for name in norms}
    tensors |= {f"blk.0.attn_{x}.weight": ((n_input, 64), F16) for x in "qkv"}
    tensors |= {f"blk.0.ffn_{x}.weight": ((64, 128), F16) for x in ("gate", "up")}
    tensors["blk.0.attn_output.weight"] = ((64, 64), F16)
    tensors["blk.0.ffn_down.weight"] = ((128, 64), F16)
    return tensors


def mtp_header(model: TinyModel, vocab: TinyVocab | None = None) -> Header:
    """A little model with its MTP heads, with a vocabulary instead of none."""
    bare, words_ = tiny_header(model), (vocab or TinyVocab(words(40))).header()
    keys = {k: v for k, v in words_.metadata.items() if k.startswith("tokenizer.")}
    types = {k: v for k, v in words_.types.items() if k.startswith("tokenizer.")}
    return replace(bare, metadata=bare.metadata | keys, types=bare.types | types)


def sidecar(model: TinyModel) -> TinyModel:
    """The MTP blocks of a model alone."""
    n_layer = model.n_layer_all - model.n_nextn
    return model.without(*(name for i in range(n_layer) for name in model.block(i)))


def built(
    arch: str, keys: Mapping[str, Any], tensors: Tensors, vocab: TinyVocab | None, path: str
) -> Header:
    """A header with exactly these keys (by suffix) and tensors."""
    entries = [raw.entry("general.architecture", raw.STRING, arch)]
    entries += vocab.entries()[1:] if vocab is not None else []
    for suffix, value in keys.items():
        key = suffix if suffix.startswith(("general.", "clip.")) else f"{arch}.{suffix}"
        entries += [_entry(key, value)] if value is not None else []
    rows = [raw.tensor(name, shape, type_id) for name, (shape, type_id) in tensors.items()]
    return read_header(io.BytesIO(raw.padded(raw.header(entries, rows))), path)


def _entry(key: str, value: Any) -> bytes:
    match value:
        case list():
            return raw.array(key, raw.I32, value)
        case str():
            return raw.entry(key, raw.STRING, value)
        case bool():
            return raw.entry(key, raw.BOOL, value)
        case _:
            return raw.entry(key, raw.U32, value)
