"""The types in which llama.cpp caches keys and values. Pure and light: data and their checks."""

from __future__ import annotations

from collections.abc import Mapping

from gguftools.gguf.ggml_types import ggml_type
from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header
from gguftools.pairing.memory import kv_bytes_per_token

# kv_cache_types in common/arg.cpp, b11434: name -> ggml type id.
CACHE_TYPES: Mapping[str, int] = {
    "f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "iq4_nl": 20, "q5_0": 6,
    "q5_1": 7,
}  # fmt: skip


def cache_bytes_per_token(header: Header, type_k: str, type_v: str) -> int:
    """Bytes of keys and values that one token of context takes, cached as these types."""
    bits = [ggml_type(CACHE_TYPES[name]).bits_per_weight or 16 for name in (type_k, type_v)]
    return round(kv_bytes_per_token(header) * sum(bits) / 32)


def cache_refusal(header: Header, type_k: str, type_v: str) -> str | None:
    """Why llama.cpp makes no such cache for this model, None if it does.

    llama_init_from_model in llama-context.cpp, b11434. Flash attention is on where the model can.
    """
    hparams = read_hparams(header)
    is_mla = bool(header.integer(header.arch_key("attention.key_length_mla")))
    if type_k != type_v and (is_mla or header.architecture == "deepseek4"):
        return f"{header.architecture} caches keys and values together: they need one type"
    for what, name, width in (
        ("keys", type_k, hparams.n_embd_head_k),
        ("values", type_v, hparams.n_embd_head_v),
    ):
        block = ggml_type(CACHE_TYPES[name]).block_elements
        if block > 1 and width and width % block:
            return f"{name} comes in blocks of {block}, the {what} of a head are {width} wide"
    if header.architecture == "grok" and ggml_type(CACHE_TYPES[type_v]).block_elements > 1:
        return f"{type_v} values need flash attention, which grok has not"
    return None
