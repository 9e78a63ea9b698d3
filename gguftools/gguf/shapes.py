"""Evaluates the shape expressions of the MTP table for one block of a file. Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache

from gguftools.gguf.hparams import HParams, per_layer
from gguftools.gguf.nextn_table import MtpArch
from gguftools.gguf.reader import Header, NumericArray

Names = Mapping[str, int | None]

# Names that are one scalar key each; an absent key is 0, as in llama_hparams.
_SCALARS = {
    "n_expert": "expert_count",
    "n_expert_shared": "expert_shared_count",
    "n_ff_shexp": "expert_shared_feed_forward_length",
    "n_layer_dense_lead": "leading_dense_block_count",
    "n_lora_q": "attention.q_lora_rank",
    "n_lora_kv": "attention.kv_lora_rank",
    "n_lora_kv_swa": "attention.kv_lora_rank_swa",
    "n_lora_o": "attention.output_lora_rank",
    "n_group_o": "attention.output_group_count",
    "n_embd_head_k_mla": "attention.key_length_mla",
    "n_embd_head_v_mla": "attention.value_length_mla",
    "n_embd_head_k_mla_swa": "attention.key_length_mla_swa",
    "n_embd_head_v_mla_swa": "attention.value_length_mla_swa",
    "n_head_indexer": "attention.indexer.head_count",
    "n_embd_indexer": "attention.indexer.key_length",
    "n_kpool": "attention.indexer.kpool",
    "n_hc": "hyper_connection.count",
    "n_lora_hc": "hyper_connection.low_rank",
    "n_layer_hash": "hash_layer_count",
    "n_embd_latent": "moe_latent_size",
}


def evaluate(expr: str, names: Names) -> int | None:
    """The value of a table expression; None where it depends on something the file does not say."""
    try:
        return int(_value(_parse(expr), names))
    except (_UnknownNameError, ZeroDivisionError):
        return None


class _UnknownNameError(Exception):
    """A name without a value."""


@cache
def _parse(expr: str) -> ast.expr:
    return ast.parse(expr, mode="eval").body


def _value(node: ast.expr, names: Names) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            found = names[name]
            if found is None:
                raise _UnknownNameError(name)
            return found
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _value(left, names), _value(right, names))
        case ast.BoolOp(op=op, values=values):
            result = 0
            for item in values:
                result = _value(item, names)
                if bool(result) is isinstance(op, ast.Or):
                    return result
            return result
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return int(not _value(operand, names))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.Compare(left=left, ops=[op], comparators=[ast.Tuple(elts=items)]):
            return int(_value(left, names) in [_value(item, names) for item in items])
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compare(op, _value(left, names), _value(right, names))
    raise AssertionError(ast.dump(node))


def _binary(op: ast.operator, left: int, right: int) -> int:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            return left // right
    raise AssertionError(op)


def _compare(op: ast.cmpop, left: int, right: int) -> int:
    match op:
        case ast.Eq():
            return int(left == right)
        case ast.NotEq():
            return int(left != right)
        case ast.Lt():
            return int(left < right)
        case ast.Gt():
            return int(left > right)
        case ast.GtE():
            return int(left >= right)
    raise AssertionError(op)


def shape_names(header: Header, hparams: HParams, arch: MtpArch, block: int) -> Names:
    """Every name a table expression may use, for one block."""
    names: dict[str, int | None] = {
        name: header.integer(header.arch_key(key)) or 0 for name, key in _SCALARS.items()
    }
    n_layer_all = header.integer(header.arch_key("block_count")) or 0
    names |= {
        "block": block,
        "n_layer": hparams.n_layer,
        "n_vocab": hparams.n_vocab,
        "n_embd": hparams.n_embd,
        "n_embd_out": hparams.n_embd_out,
        "is_mla": int(bool(names["n_embd_head_k_mla"] and names["n_embd_head_v_mla"])),
        "attn_temp_scale": int(
            bool(header.metadata.get(header.arch_key("attention.temperature_scale")))
        ),
        "has_rope_freqs": int("rope_freqs.weight" in header.tensors),
        "recurrent": _at(per_layer_flags(header, "attention.recurrent_layers", n_layer_all), block),
        "ratio": _at(per_layer(header, "attention.compress_ratios", n_layer_all), block),
    }
    for suffix, il in (("", 0), ("_l", block)):
        names |= {
            f"{name}{suffix}": value for name, value in _layer_names(header, hparams, il).items()
        }
    names |= _attention_names(header, hparams, block, n_layer_all)
    for name, expr in arch.fallbacks.items():
        names[name] = evaluate(expr, names)
    return names


def _layer_names(header: Header, hparams: HParams, il: int) -> dict[str, int | None]:
    """Per-layer counts at one block; llama.cpp fills absent ones with 0."""
    n = hparams.n_layer_all
    return {
        "n_head": _at(hparams.n_head, il) if hparams.n_head else None,
        "n_head_kv": _at(hparams.n_head_kv, il) if hparams.n_head_kv else None,
        "n_ff": _at(hparams.n_ff, il),
        "n_ff_exp": _at(per_layer(header, "expert_feed_forward_length", n), il),
        "n_expert_used": _at(per_layer(header, "expert_used_count", n), il),
    }


def _attention_names(
    header: Header, hparams: HParams, block: int, n_layer_all: int
) -> dict[str, int | None]:
    """Head sizes, which differ between sliding-window and full layers where the file says so."""

    def key(suffix: str) -> int | None:
        return header.integer(header.arch_key(suffix))

    swa = per_layer_flags(header, "attention.sliding_window_pattern", 0)
    k, v = hparams.n_embd_head_k, hparams.n_embd_head_v
    k_swa = key("attention.key_length_swa") or k
    v_swa = key("attention.value_length_swa") or v
    n_rot = key("rope.dimension_count")
    n_rot = k if n_rot is None else n_rot
    n_rot_swa = key("rope.dimension_count_swa")
    names: dict[str, int | None] = {
        "n_rot": n_rot if n_rot_swa is None or not _at(swa, 0) else n_rot_swa,
        "n_embd_head_k_full": k,
        "any_full_attention": int(not all(_at(swa, il) for il in range(n_layer_all))),
    }
    for suffix, il in (("", 0), ("_l", block)):
        head_k, head_v = (k_swa, v_swa) if _at(swa, il) else (k, v)
        n_head_kv = _at(hparams.n_head_kv, il) if hparams.n_head_kv else None
        names[f"n_embd_head_k{suffix}"] = head_k
        names[f"n_embd_head_v{suffix}"] = head_v
        names[f"n_embd_k_gqa{suffix}"] = _product(head_k, n_head_kv)
        names[f"n_embd_v_gqa{suffix}"] = _product(head_v, n_head_kv)
    return names


def per_layer_flags(header: Header, suffix: str, n_layer: int) -> tuple[int, ...]:
    """Like `per_layer`, for keys stored as bools or as numbers."""
    value = header.metadata.get(header.arch_key(suffix))
    if isinstance(value, NumericArray):
        return tuple(int(bool(v)) for v in value.values())
    return (int(bool(value)),) * n_layer if isinstance(value, int) else ()


def _at(values: tuple[int, ...], i: int) -> int:
    return values[i] if i < len(values) else 0


def _product(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a * b
