"""Targets and drafts of the field reports: headers of real shapes, the weights a hole in the file.

Shapes are those of the published models where a report names one; the vocabularies have the real
sizes and differ where the reports say, the other texts are made up.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gguftools.gguf.ggml_types import ggml_type
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from tests.models import bytes as raw
from tests.models.tiny import tiny
from tests.models.tiny_vocab import KEY, TinyVocab

Shapes = dict[str, tuple[int, ...]]
F32, F16, Q4_0, Q8_0, Q3_K, Q4_K, Q5_K, Q6_K = 0, 1, 2, 8, 11, 12, 13, 14
IQ2_XXS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_XS, IQ4_XS = 16, 18, 19, 20, 21, 17, 23
# Most matrices; attn_v and ffn_down of every other block; output (and a tied embedding).
QUANTS: dict[str, tuple[int, int, int]] = {
    "F16": (F16, F16, F16),
    "Q8_0": (Q8_0, Q8_0, Q8_0),
    "Q6_K": (Q6_K, Q6_K, Q6_K),
    "Q4_K_M": (Q4_K, Q6_K, Q6_K),
    "Q4_0": (Q4_0, Q4_0, Q6_K),
    "Q3_K_M": (Q3_K, Q5_K, Q6_K),
    "IQ4_NL": (IQ4_NL, IQ4_NL, Q6_K),
    "IQ4_XS": (IQ4_XS, Q5_K, Q6_K),
    "IQ3_XXS": (IQ3_XXS, IQ3_S, Q5_K),
    "IQ2_XXS": (IQ2_XXS, IQ3_XXS, Q5_K),
    "UD-IQ2_XXS": (IQ2_XS, IQ3_XXS, Q6_K),
    "IQ1_S": (IQ1_S, IQ3_XXS, Q5_K),
}
_ALWAYS_F32 = ("ffn_gate_inp", "ssm_alpha", "ssm_beta", "ssm_conv1d", "ssm_a", "ssm_dt")


# Vocabularies.


def _texts(prefix: str, n: int, changed: Mapping[int, bytes] | None = None) -> list[bytes]:
    texts = [b"%s%d" % (prefix.encode(), i) for i in range(n)]
    for i, text in (changed or {}).items():
        texts[i] = text
    return texts


def _qwen(n: int, named: Mapping[int, bytes] | None = None, n_real: int = 151665) -> list[bytes]:
    """Unused rows are called [PADn] by the converter."""
    pads = {i: b"[PAD%d]" % i for i in range(n_real, n)}
    return _texts("q", n, {**pads, **(named or {})})


_TOOLS = {151665: b"<tool_response>", 151666: b"</tool_response>", 151667: b"<think>",
          151668: b"</think>"}  # fmt: skip
_R1 = {151643: b"<|end_of_sentence|>", 151644: b"<|User|>", 151645: b"<|Assistant|>",
       151646: b"<|begin_of_sentence|>", 151648: b"<think>", 151649: b"</think>"}  # fmt: skip
_BOS, _NO_BOS = ("add_bos_token", raw.BOOL, True), ("add_bos_token", raw.BOOL, False)


def _gemma(changed: Mapping[int, bytes] | None = None) -> TinyVocab:
    texts = _texts(
        "g", 256000, {0: b"<pad>", 1: b"<eos>", 2: b"<bos>", 3: b"<unk>", **(changed or {})}
    )
    keys = (("bos_token_id", raw.U32, 2), ("eos_token_id", raw.U32, 1), _BOS)
    return TinyVocab(texts, "llama", "default", None, keys)


def _bpe(
    texts: list[bytes], pre: str = "qwen2", *keys: tuple[str, int, raw.Scalar | str]
) -> TinyVocab:
    return TinyVocab(texts, "gpt2", pre, ("q1 q2",), keys)


VOCABS: dict[str, Callable[[], TinyVocab]] = {
    "qwen1.5 large": lambda: _bpe(_qwen(152064)),
    "qwen1.5 small": lambda: _bpe(_qwen(151936)),
    "qwen3": lambda: _bpe(_qwen(151936, _TOOLS)),
    "r1 distill large": lambda: _bpe(
        _qwen(152064, _R1), "deepseek-r1-qwen", _BOS, ("bos_token_id", raw.U32, 151646)
    ),
    "r1 distill small": lambda: _bpe(
        _qwen(151936, _R1), "deepseek-r1-qwen", _BOS, ("bos_token_id", raw.U32, 151646)
    ),
    "r1 distill, other prefix": lambda: _bpe(
        _qwen(151936, {**_R1, 7000: b"other"}), "deepseek-r1-qwen", _BOS,
        ("bos_token_id", raw.U32, 151646),
    ),
    "deepseek v3": lambda: _bpe(_texts("d", 129280), "deepseek-v3", _BOS,
                                ("bos_token_id", raw.U32, 0)),
    "lfm2.5 moe": lambda: _bpe(_texts("m", 128000), "lfm2"),
    "lfm2.5": lambda: _bpe(_texts("l", 65536), "lfm2"),
    "qwen3.6": lambda: _bpe(_texts("q", 248320), "qwen35", _NO_BOS,
                            ("bos_token_id", raw.U32, 248044), ("eos_token_id", raw.U32, 248046)),
    "qwen3.5": lambda: _bpe(_texts("q", 248320), "qwen35", _NO_BOS,
                            ("bos_token_id", raw.U32, 248045), ("eos_token_id", raw.U32, 248044)),
    "another of that width": lambda: _bpe(_texts("x", 248320), "qwen35"),
    "gemma2": _gemma,
    "gemma2, converted anew": lambda: _gemma({139: b"\\n\\n"}),
    "gemma4": lambda: TinyVocab(_texts("g", 262144), "gemma4", "gemma4", ("g1 g2",), (_BOS,)),
    "glm5": lambda: _bpe(_texts("z", 154880), "glm4"),
    "logical 200058": lambda: _bpe(_texts("o", 200058), "gpt-4o"),
    "padded 201024": lambda: _bpe(
        _texts("o", 201024, {i: b"[PAD%d]" % i for i in range(200058, 201024)}), "gpt-4o"
    ),
}  # fmt: skip


@functools.cache
def _vocab(name: str) -> tuple[bytes, int, int]:
    """Its metadata entries, how many they are, and the number of tokens."""
    vocab = VOCABS[name]()
    n = len(vocab.tokens)
    entries = replace(vocab, tokens=()).entries()
    entries[2] = raw.array(KEY + "tokens", raw.STRING, (), count=n) + b"".join(
        len(text).to_bytes(8, "little") + text for text in vocab.tokens
    )
    if vocab.model == "llama":  # scores of 0.0, types NORMAL
        entries += [
            raw.array(KEY + "scores", raw.F32, (), count=n) + bytes(4 * n),
            raw.array(KEY + "token_type", raw.I32, (), count=n) + b"\1\0\0\0" * n,
        ]
    return b"".join(entries[1:]), len(entries) - 1, n


def n_tokens(vocab: str) -> int:
    """Tokens of one of VOCABS."""
    return _vocab(vocab)[2]


# Files.


@dataclass(frozen=True)
class FieldModel:
    """One file: what its header says. `types` overrides the type of tensors by name prefix."""

    name: str
    arch: str
    keys: Mapping[str, Any]
    shapes: Shapes
    quant: str
    vocab: str | None
    types: Mapping[str, int] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """A file of full size that takes only its header's room on the disk."""
        path = folder / f"{self.name}-{self.quant}.gguf"
        entries, rows, end = self._entries(), [], 0
        for name, shape in self.shapes.items():
            type_id = self._type(name, shape)
            rows.append(raw.tensor(name, shape, type_id, end))
            end += _n_bytes(shape, type_id)
        vocab, n_vocab_entries, _ = _vocab(self.vocab) if self.vocab else (b"", 0, 0)
        n_entries = len(entries) + n_vocab_entries
        header = raw.padded(raw.header([*entries, vocab], rows, n_entries=n_entries))
        path.write_bytes(header)
        os.truncate(path, len(header) + end)
        return path

    def header(self, folder: Path) -> Header:
        """What gguftools reads from the file, which is gone afterwards."""
        path = self.write(folder)
        header = open_gguf(path)
        path.unlink()
        return header

    def without(self, *prefixes: str) -> FieldModel:
        kept = {k: v for k, v in self.shapes.items() if not k.startswith(prefixes)}
        return replace(self, shapes=kept)

    def _entries(self) -> list[bytes]:
        found = [raw.entry("general.architecture", raw.STRING, self.arch),
                 raw.entry("general.name", raw.STRING, self.name)]  # fmt: skip
        for suffix, value in self.keys.items():
            if value is not None:
                key = (
                    suffix if suffix.startswith(("general.", "clip.")) else f"{self.arch}.{suffix}"
                )
                found.append(_entry(key, value))
        return found

    def _type(self, name: str, shape: Sequence[int]) -> int:
        for prefix, type_id in self.types.items():
            if name.startswith(prefix):
                return type_id
        body, better, output = QUANTS[self.quant]
        part = name.split(".")[2] if name.startswith("blk.") else name
        if len(shape) == 1 or part.startswith(_ALWAYS_F32) or not name.endswith(".weight"):
            return F32
        tied = name.startswith("token_embd") and "output.weight" not in self.shapes
        if tied or name.startswith("output"):
            body = output
        elif part.startswith(("attn_v", "ffn_down")) and int(name.split(".")[1]) % 2 == 0:
            body = better
        if shape[0] % ggml_type(body).block_elements == 0:
            return body
        return Q8_0 if shape[0] % 32 == 0 else F16


def _n_bytes(shape: Sequence[int], type_id: int) -> int:
    kind = ggml_type(type_id)
    n_bytes = math.prod(shape) // kind.block_elements * kind.block_bytes
    return n_bytes + -n_bytes % 32


def _entry(key: str, value: Any) -> bytes:
    match value:
        case bool():
            return raw.entry(key, raw.BOOL, value)
        case int():
            return raw.entry(key, raw.U32, value)
        case float():
            return raw.entry(key, raw.F32, value)
        case list():
            return raw.array(key, raw.BOOL if isinstance(value[0], bool) else raw.I32, value)
        case _:
            return raw.entry(key, raw.STRING, value)


# Families.


def dense(
    name: str,
    arch: str,
    quant: str,
    vocab: str,
    *,
    n_layer: int,
    n_embd: int,
    n_ff: int,
    n_head: int,
    n_head_kv: int,
    n_embd_head: int = 128,
    tied: bool = False,
    n_ctx: int = 32768,
    rows: int | None = None,
    **keys: Any,
) -> FieldModel:
    """A plain transformer."""
    n_rows = rows or n_tokens(vocab)
    shapes: Shapes = {"token_embd.weight": (n_embd, n_rows), "output_norm.weight": (n_embd,)}
    if not tied:
        shapes["output.weight"] = (n_embd, n_rows)
    q, kv = n_head * n_embd_head, n_head_kv * n_embd_head
    for i in range(n_layer):
        at = f"blk.{i}."
        shapes |= {
            f"{at}attn_norm.weight": (n_embd,),
            f"{at}attn_q.weight": (n_embd, q),
            f"{at}attn_k.weight": (n_embd, kv),
            f"{at}attn_v.weight": (n_embd, kv),
            f"{at}attn_output.weight": (q, n_embd),
            f"{at}ffn_norm.weight": (n_embd,),
            f"{at}ffn_gate.weight": (n_embd, n_ff),
            f"{at}ffn_up.weight": (n_embd, n_ff),
            f"{at}ffn_down.weight": (n_ff, n_embd),
        }
    metadata = {
        "block_count": n_layer, "embedding_length": n_embd, "feed_forward_length": n_ff,
        "context_length": n_ctx, "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv, "attention.key_length": n_embd_head,
        "attention.value_length": n_embd_head,
        **{k.replace("__", "."): v for k, v in keys.items()},
    }  # fmt: skip
    return FieldModel(name, arch, metadata, shapes, quant, vocab)


def qwen35(
    name: str,
    quant: str,
    *,
    n_layer: int,
    n_embd: int,
    n_ff: int,
    n_head: int,
    n_head_kv: int,
    n_rank: int,
    vocab: str = "qwen3.6",
    tied: bool = False,
    n_nextn: int = 1,
    n_expert: int = 0,
    types: Mapping[str, int] | None = None,
) -> FieldModel:
    """A hybrid of Qwen3.5 or later: three recurrent blocks to each with attention; MTP at its end.

    `n_ff` is that of one expert where there are experts (8 of them and a shared one in use).
    """
    arch = "qwen35moe" if n_expert else "qwen35"
    keys: dict[str, Any] = {
        "embedding_length": n_embd, "feed_forward_length": n_ff, "context_length": 262144,
        "attention.head_count": n_head, "attention.head_count_kv": n_head_kv,
        "attention.key_length": 256, "attention.value_length": 256, "rope.dimension_count": 64,
        "ssm.state_size": 128, "ssm.group_count": 16, "ssm.time_step_rank": n_rank,
        "ssm.inner_size": 128 * n_rank,
    }  # fmt: skip
    if n_expert:
        keys |= {
            "expert_count": n_expert, "expert_used_count": 8,
            "expert_feed_forward_length": n_ff, "expert_shared_feed_forward_length": n_ff,
        }  # fmt: skip
    one = tiny(arch, keys={**keys, "vocab_size": n_tokens(vocab)})
    keys = {
        k: v for k, v in one.metadata.items() if k not in ("vocab_size", "tokenizer.ggml.model")
    }
    full, head = (_block(one.tensors, i) for i in (1, 2))
    ffn = {k: v for k, v in full.items() if not k.startswith("attn_") or k == "attn_norm.weight"}
    recurrent = {**ffn, **_delta_net(n_embd, n_rank)}
    shapes: Shapes = {k: v for k, v in one.tensors.items() if not k.startswith("blk.")}
    if not tied:
        shapes["output.weight"] = shapes["token_embd.weight"]
    for i in range(n_layer):
        rows = full if i % 4 == 3 else recurrent
        shapes |= {f"blk.{i}.{k}": v for k, v in rows.items()}
    for i in range(n_layer, n_layer + n_nextn):
        shapes |= {f"blk.{i}.{k}": v for k, v in head.items()}
    keys |= {"block_count": n_layer + n_nextn, "full_attention_interval": 4,
             "nextn_predict_layers": n_nextn or None}  # fmt: skip
    return FieldModel(name, arch, keys, shapes, quant, vocab, types or {})


def _block(tensors: Shapes, block: int) -> Shapes:
    at = f"blk.{block}."
    return {k.removeprefix(at): v for k, v in tensors.items() if k.startswith(at)}


def _delta_net(n_embd: int, n_rank: int) -> Shapes:
    key, value = 16 * 128, n_rank * 128
    return {
        "attn_qkv.weight": (n_embd, 2 * key + value), "attn_gate.weight": (n_embd, value),
        "ssm_conv1d.weight": (4, 2 * key + value), "ssm_dt.bias": (n_rank,), "ssm_a": (n_rank,),
        "ssm_norm.weight": (128,), "ssm_out.weight": (value, n_embd),
        "ssm_alpha.weight": (n_embd, n_rank), "ssm_beta.weight": (n_embd, n_rank),
    }  # fmt: skip


def glm_dsa(name: str, quant: str) -> FieldModel:
    """A large MLA model with an indexer and an MTP head (kv_lora_rank 512)."""
    n_layer = 78
    keys: dict[str, Any] = {
        "embedding_length": 6144, "feed_forward_length": 12288, "context_length": 202752,
        "attention.head_count": 64, "attention.head_count_kv": 1, "attention.q_lora_rank": 2048,
        "attention.kv_lora_rank": 512, "attention.key_length_mla": 256,
        "attention.value_length_mla": 256, "attention.key_length": 576,
        "attention.value_length": 512, "rope.dimension_count": 64, "expert_count": 256,
        "expert_used_count": 8, "expert_feed_forward_length": 2048,
        "attention.indexer.head_count": 32, "attention.indexer.key_length": 128,
        "attention.indexer.top_k": 2048,
    }  # fmt: skip
    one = tiny("glm-dsa", keys={**keys, "vocab_size": n_tokens("glm5")})
    keys = {
        k: v for k, v in one.metadata.items() if k not in ("vocab_size", "tokenizer.ggml.model")
    }
    lead, experts, head = (_block(one.tensors, i) for i in (0, 1, 2))
    shapes: Shapes = {k: v for k, v in one.tensors.items() if not k.startswith("blk.")}
    for i in range(n_layer):
        shapes |= {f"blk.{i}.{k}": v for k, v in (lead if i < 3 else experts).items()}
    shapes |= {f"blk.{n_layer}.{k}": v for k, v in head.items()}
    keys |= {"block_count": n_layer + 1, "leading_dense_block_count": 3}
    return FieldModel(name, "glm-dsa", keys, shapes, quant, "glm5")


def head_of(model: FieldModel, name: str, quant: str | None = None) -> FieldModel:
    """The MTP blocks of a model as a file of its own, as --mtp of the converter writes it."""
    n_trunk = int(model.keys["block_count"]) - int(model.keys["nextn_predict_layers"])
    head = model.without(*(f"blk.{i}." for i in range(n_trunk)))
    return replace(head, name=name, quant=quant or model.quant)


def eagle3(name: str, target: FieldModel, vocab: str, rows: int) -> FieldModel:
    """An EAGLE-3 draft for a target, with an output of so many rows."""
    n_embd = int(target.keys["embedding_length"])
    keys = {
        "block_count": 1, "embedding_length": n_embd, "target_hidden_size": n_embd,
        "target_layers": [1, 2, 3], "context_length": 4096, "feed_forward_length": 4 * n_embd,
        "attention.head_count": 32,
    }  # fmt: skip
    shapes: Shapes = {"fc.weight": (3 * n_embd, n_embd), "output_norm.weight": (n_embd,),
                      "output.weight": (n_embd, rows)}  # fmt: skip
    return FieldModel(name, "eagle3", keys, shapes, "F16", vocab)


# The models that the reports name.


def qwen15_7b() -> FieldModel:
    return dense("Qwen1.5-7B", "qwen2", "Q4_K_M", "qwen1.5 large",
                 n_layer=32, n_embd=4096, n_ff=11008, n_head=32, n_head_kv=32)  # fmt: skip


def qwen15_05b() -> FieldModel:
    return dense("Qwen1.5-0.5B", "qwen2", "Q8_0", "qwen1.5 small", n_layer=24, n_embd=1024,
                 n_ff=2816, n_head=16, n_head_kv=16, n_embd_head=64, tied=True)  # fmt: skip


def qwen25_72b(name: str = "Qwen2.5-72B") -> FieldModel:
    return dense(name, "qwen2", "Q4_K_M", "qwen1.5 large",
                 n_layer=80, n_embd=8192, n_ff=29568, n_head=64, n_head_kv=8)  # fmt: skip


def qwen25_32b(name: str = "Qwen2.5-32B", vocab: str = "qwen1.5 large") -> FieldModel:
    return dense(name, "qwen2", "Q4_K_M", vocab,
                 n_layer=64, n_embd=5120, n_ff=27648, n_head=40, n_head_kv=8)  # fmt: skip


def qwen25_15b(name: str = "Qwen2.5-1.5B", vocab: str = "qwen1.5 small") -> FieldModel:
    return dense(name, "qwen2", "Q8_0", vocab,
                 n_layer=28, n_embd=1536, n_ff=8960, n_head=12, n_head_kv=2)  # fmt: skip


def qwen25_05b(name: str = "Qwen2.5-Coder-0.5B") -> FieldModel:
    return dense(name, "qwen2", "Q8_0", "qwen1.5 small", n_layer=24, n_embd=896, n_ff=4864,
                 n_head=14, n_head_kv=2, n_embd_head=64, tied=True)  # fmt: skip


def qwen3_06b(quant: str = "Q8_0") -> FieldModel:
    return dense("Qwen3-0.6B", "qwen3", quant, "qwen3", n_layer=28, n_embd=1024, n_ff=3072,
                 n_head=16, n_head_kv=8, tied=True, n_ctx=40960)  # fmt: skip


def qwen3_17b(quant: str = "Q8_0") -> FieldModel:
    return dense("Qwen3-1.7B", "qwen3", quant, "qwen3", n_layer=28, n_embd=2048, n_ff=6144,
                 n_head=16, n_head_kv=8, tied=True, n_ctx=40960)  # fmt: skip


def qwen3_4b(quant: str = "Q4_K_M") -> FieldModel:
    return dense("Qwen3-4B", "qwen3", quant, "qwen3", n_layer=36, n_embd=2560, n_ff=9728,
                 n_head=32, n_head_kv=8, tied=True, n_ctx=40960)  # fmt: skip


def qwen3_8b(quant: str = "IQ4_NL") -> FieldModel:
    return dense("Qwen3-8B", "qwen3", quant, "qwen3", n_layer=36, n_embd=4096, n_ff=12288,
                 n_head=32, n_head_kv=8, n_ctx=40960)  # fmt: skip


def qwen3_32b(quant: str = "Q4_K_M") -> FieldModel:
    return dense("Qwen3-32B", "qwen3", quant, "qwen3", n_layer=64, n_embd=5120, n_ff=25600,
                 n_head=64, n_head_kv=8, n_ctx=40960)  # fmt: skip


def qwen35_08b(quant: str = "Q8_0", *, n_nextn: int = 0) -> FieldModel:
    return qwen35("Qwen3.5-0.8B", quant, n_layer=24, n_embd=1024, n_ff=3584, n_head=8, n_head_kv=2,
                  n_rank=16, vocab="qwen3.5", tied=True, n_nextn=n_nextn)  # fmt: skip


def qwen35_4b(quant: str = "Q4_K_M", *, n_nextn: int = 1) -> FieldModel:
    return qwen35("Qwen3.5-4B", quant, n_layer=32, n_embd=2560, n_ff=9216, n_head=16, n_head_kv=4,
                  n_rank=32, vocab="qwen3.5", tied=True, n_nextn=n_nextn)  # fmt: skip


def qwen35_9b(quant: str = "Q4_K_M", *, n_nextn: int = 1) -> FieldModel:
    return qwen35("Qwen3.5-9B", quant, n_layer=32, n_embd=4096, n_ff=12288, n_head=16, n_head_kv=4,
                  n_rank=32, vocab="qwen3.5", n_nextn=n_nextn)  # fmt: skip


def qwen36_27b(quant: str = "Q4_K_M", *, name: str = "Qwen3.6-27B", n_nextn: int = 1) -> FieldModel:
    return qwen35(name, quant, n_layer=64, n_embd=5120, n_ff=17408, n_head=24, n_head_kv=4,
                  n_rank=48, n_nextn=n_nextn)  # fmt: skip


def qwen36_35b_a3b(quant: str = "Q4_K_M", *, n_nextn: int = 1) -> FieldModel:
    return qwen35("Qwen3.6-35B-A3B", quant, n_layer=40, n_embd=2048, n_ff=512, n_head=16,
                  n_head_kv=2, n_rank=32, n_expert=256, n_nextn=n_nextn)  # fmt: skip


def gemma2_27b() -> FieldModel:
    return dense("gemma-2-27b-it", "gemma2", "Q4_K_M", "gemma2", n_layer=46, n_embd=4608,
                 n_ff=36864, n_head=32, n_head_kv=16, tied=True, n_ctx=8192,
                 attention__sliding_window=4096)  # fmt: skip


def gemma2_2b(quant: str = "Q8_0", vocab: str = "gemma2") -> FieldModel:
    return dense("gemma-2-2b-it", "gemma2", quant, vocab, n_layer=26, n_embd=2304, n_ff=9216,
                 n_head=8, n_head_kv=4, n_embd_head=256, tied=True, n_ctx=8192,
                 attention__sliding_window=4096)  # fmt: skip


def trimmed_head(*, has_map: bool) -> FieldModel:
    """C16: an output of 32768 of 248320 rows, with or without the map back."""
    head = head_of(qwen36_27b(), "mtp-Qwen3.6-27B-trimmed", "Q8_0")
    shapes = {**head.shapes, "output.weight": (5120, 32768)}
    if has_map:
        shapes["d2t"] = (32768,)
    return replace(head, shapes=shapes, types={"d2t": 27})


def gemma4_e2b() -> tuple[FieldModel, FieldModel]:
    """C82: the target with the embeddings of its layers, and its assistant."""
    keys = {"embedding_length_per_layer_input": 256, "attention__sliding_window": 512}
    target = dense("gemma-4-E2B-it", "gemma4", "Q4_K_M", "gemma4", n_layer=35, n_embd=1536,
                   n_ff=6144, n_head=8, n_head_kv=1, n_embd_head=256, tied=True, n_ctx=131072,
                   **keys)  # fmt: skip
    per_layer = {"per_layer_token_embd.weight": (35 * 256, n_tokens("gemma4"))}
    target = replace(target, shapes={**target.shapes, **per_layer},
                     types={"per_layer_token_embd": Q6_K, "token_embd": Q8_0})  # fmt: skip
    one = tiny("gemma4-assistant", n_heads=4, keys={
        "embedding_length": 256, "embedding_length_out": 1536, "feed_forward_length": 2048,
        "attention.head_count": 4, "attention.head_count_kv": 1, "attention.key_length": 512,
        "attention.value_length": 512, "attention.key_length_swa": 256,
        "attention.value_length_swa": 256, "vocab_size": n_tokens("gemma4"),
    })  # fmt: skip
    drop = ("vocab_size", "tokenizer.ggml.model")
    own = {k: v for k, v in one.metadata.items() if k not in drop}
    return target, FieldModel("mtp-gemma-4-E2B-it", "gemma4-assistant", own, dict(one.tensors),
                              "Q8_0", "gemma4")  # fmt: skip
