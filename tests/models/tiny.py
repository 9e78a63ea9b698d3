"""Tiny random-weight GGUF files of every MTP architecture, whole or broken.

MTP blocks follow gguftools' own table, so a file that real llama.cpp loads confirms the table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFValueType, GGUFWriter

from gguftools.gguf.ggml_types import ggml_type
from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.nextn_table import MTP_ARCHS, QKV, Ffn, GateUp, Row, Tensor
from gguftools.gguf.reader import Header, NumericArray, Shard, TensorInfo, Value
from gguftools.gguf.shapes import Names, evaluate, shape_names
from tests.models.tiny_archs import COMMON, GEMMA4, METADATA, N_HEADS, trunk_rows

Shape = tuple[int, ...]
_NOISE = np.random.default_rng(0).standard_normal(1 << 16, np.float32) / 8
_N_TRUNK = 2


@dataclass(frozen=True)
class TinyModel:
    """A model before it is written: metadata by suffix, tensor shapes in ggml order."""

    arch: str
    metadata: dict[str, Any]
    tensors: dict[str, Shape]

    @property
    def n_layer_all(self) -> int:
        return int(self.metadata["block_count"])

    @property
    def n_nextn(self) -> int:
        return int(self.metadata.get("nextn_predict_layers", 0))

    def with_keys(self, **keys: Any) -> TinyModel:
        """Keys set (`__` stands for a dot), or removed with None."""
        changed = {k.replace("__", "."): v for k, v in keys.items()}
        metadata = {k: v for k, v in {**self.metadata, **changed}.items() if v is not None}
        return replace(self, metadata=metadata)

    def without(self, *names: str) -> TinyModel:
        return replace(self, tensors={k: v for k, v in self.tensors.items() if k not in names})

    def having(self, **shapes: Shape) -> TinyModel:
        return replace(self, tensors={**self.tensors, **shapes})

    def reshaped(self, name: str, shape: Shape) -> TinyModel:
        return replace(self, tensors={**self.tensors, name: shape})

    def block(self, block: int) -> list[str]:
        return [name for name in self.tensors if name.startswith(f"blk.{block}.")]


def write(model: TinyModel, path: Path | str) -> None:
    """Write the file with gguf-py."""
    writer = GGUFWriter(path, model.arch)
    _fill(writer, model)
    for name, shape in model.tensors.items():
        n = int(np.prod(shape))
        weights = np.resize(_NOISE, n)
        if name.endswith(("norm.weight", "scale")):
            weights = np.ones(n, np.float32)
        writer.add_tensor(name, weights.reshape(shape[::-1]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def header(model: TinyModel) -> Header:
    """What gguftools would read from the file, without a file."""
    metadata: dict[str, Value] = {"general.architecture": model.arch}
    types = {"general.architecture": "string"}
    for suffix, value in model.metadata.items():
        key = _key(model, suffix)
        metadata[key], types[key] = _value(value)
    tensors = {
        name: TensorInfo(name, shape, ggml_type(0), 0) for name, shape in model.tensors.items()
    }
    shards = (Shard(f"{model.arch}.gguf", 0, 0, len(tensors)),)
    return Header(3, "<", 32, metadata, types, tensors, shards)


def _value(value: Any) -> tuple[Value, str]:
    match value:
        case (str(kind), number):
            return number, kind
        case list():
            kinds = {bool: ("bool", "?"), int: ("int32", "i"), float: ("float32", "f")}
            name, letter = kinds[type(value[0])]
            raw = memoryview(struct.pack(f"<{len(value)}{letter}", *value))
            return NumericArray(raw, len(value), name, letter), f"array[{name}]"
        case bool():
            return value, "bool"
        case int():
            return value, "uint32"
        case float():
            return struct.unpack("<f", struct.pack("<f", value))[0], "float32"
    return value, "string"


def _key(model: TinyModel, suffix: str) -> str:
    return suffix if suffix.startswith("tokenizer.") else f"{model.arch}.{suffix}"


def _fill(writer: GGUFWriter, model: TinyModel) -> None:
    for suffix, value in model.metadata.items():
        key = _key(model, suffix)
        match value:
            case (str(kind), number):
                writer.add_key_value(key, number, GGUFValueType[kind.upper()])
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case list():
                writer.add_array(key, value)


def tiny(
    arch: str,
    *,
    fused: bool = False,
    optional: bool = False,
    n_heads: int | None = None,
    keys: dict[str, Any] | None = None,
) -> TinyModel:
    """A complete model: two trunk blocks and its MTP heads; `keys` change its hyperparameters.

    With `fused` attn_qkv and ffn_gate_up_exps, with `optional` the optional tensors too.
    """
    n_heads = n_heads or N_HEADS.get(arch, 1)
    alone = arch == "gemma4-assistant"
    n_heads = 2 if alone else n_heads
    n_trunk = 0 if alone else _N_TRUNK
    metadata = {**COMMON, **METADATA[arch], **(keys or {})}
    metadata |= {"block_count": n_trunk + n_heads, "nextn_predict_layers": n_heads}
    for key, value in metadata.items():
        if isinstance(value, list) and key != "rope.dimension_sections":
            metadata[key] = value + value[-1:] * (n_trunk + n_heads - len(value))
    model = TinyModel(arch, {k: v for k, v in metadata.items() if v is not None}, {})
    probe = header(model)
    spec, hparams = MTP_ARCHS[arch], read_hparams(probe)
    tensors: dict[str, Shape] = {}
    for block in (0, *range(n_trunk + n_heads)):
        names = shape_names(probe, hparams, spec, block)
        if not tensors:
            tensors |= dict(_shapes(spec.model, names, fused, optional))
            continue
        rows = spec.block if block >= n_trunk else trunk_rows(arch, block)
        for name, shape in _shapes(rows, names, fused, optional or block < n_trunk):
            tensors[f"blk.{block}.{name}"] = shape
    return replace(model, tensors=tensors)


def gemma4() -> TinyModel:
    """The target of the tiny gemma4-assistant: one sliding-window and one full layer."""
    metadata = {**COMMON, **GEMMA4, "block_count": 2}
    n_embd, n_ff, n_vocab = 48, int(COMMON["feed_forward_length"]), int(COMMON["vocab_size"])
    tensors: dict[str, Shape] = {
        "token_embd.weight": (n_embd, n_vocab),
        "output_norm.weight": (n_embd,),
        "rope_freqs.weight": (16,),
    }
    for block, head in enumerate((16, 32)):
        at = f"blk.{block}."
        tensors |= {
            f"{at}attn_q.weight": (n_embd, 2 * head),
            f"{at}attn_k.weight": (n_embd, head),
            f"{at}attn_v.weight": (n_embd, head),
            f"{at}attn_output.weight": (2 * head, n_embd),
            f"{at}attn_q_norm.weight": (head,),
            f"{at}attn_k_norm.weight": (head,),
            f"{at}ffn_gate.weight": (n_embd, n_ff),
            f"{at}ffn_up.weight": (n_embd, n_ff),
            f"{at}ffn_down.weight": (n_ff, n_embd),
        }
        for norm in ("attn", "post_attention", "ffn", "post_ffw"):
            tensors[f"{at}{norm}_norm.weight"] = (n_embd,)
    known = {key: value for key, value in metadata.items() if value is not None}
    return TinyModel("gemma4", known, tensors)


def _shapes(
    rows: tuple[Row, ...], names: Names, fused: bool, optional: bool
) -> Iterator[tuple[str, Shape]]:
    for row in rows:
        match row:
            case Tensor():
                if (row.need != "optional" or optional) and _holds(row.when, names):
                    yield row.name, _shape(row.shape, names)
            case QKV():
                total = f"{row.q} + {row.k} + {row.v}"
                if fused or row.graph_form == "fused":
                    yield "attn_qkv.weight", _shape(("n_embd", total), names)
                else:
                    for part, n in (("q", row.q), ("k", row.k), ("v", row.v)):
                        yield f"attn_{part}.weight", _shape(("n_embd", n), names)
            case GateUp():
                if not _holds(row.when, names):
                    continue
                if fused:
                    shape = ("n_embd", f"2*({row.n_ff})", "n_expert")
                    yield "ffn_gate_up_exps.weight", _shape(shape, names)
                else:
                    for part in ("gate", "up"):
                        shape = ("n_embd", row.n_ff, "n_expert")
                        yield f"ffn_{part}_exps.weight", _shape(shape, names)
            case Ffn():
                yield from _shapes((*row.experts, *row.shared), names, fused, True)


def _holds(when: str, names: Names) -> bool:
    return not when or bool(evaluate(when, names))


def _shape(dims: tuple[str, ...], names: Names) -> Shape:
    values = [evaluate(dim, names) for dim in dims]
    assert all(v is not None and v > 0 for v in values), (dims, values)
    return tuple(v for v in values if v is not None)
