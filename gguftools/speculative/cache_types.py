"""Whether llama.cpp caches the keys and values of a model as some type. Pure and light."""

from __future__ import annotations

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header
from gguftools.pairing.kv_cache import cache_type


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
        block = cache_type(name).block_elements
        if block > 1 and width and width % block:
            return f"{name} comes in blocks of {block}, the {what} of a head are {width} wide"
    if header.architecture == "grok" and cache_type(type_v).block_elements > 1:
        return f"{type_v} values need flash attention, which grok has not"
    return None
