"""What a context costs in memory, from the header alone. The weights are the file's own size."""

from __future__ import annotations

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header

F16_BYTES = 2  # llama.cpp's default type of keys and values


def kv_bytes_per_token(header: Header) -> int:
    """Bytes of keys and values that one token of context takes, cached as F16.

    Counts the layers with attention: in a hybrid every `full_attention_interval`-th, else those
    with KV heads. Sliding windows are counted in full, so this is an upper bound for them.
    """
    hparams = read_hparams(header)
    width = (hparams.n_embd_head_k or 0) + (hparams.n_embd_head_v or 0)
    heads = sum(hparams.n_head_kv[: hparams.n_layer_all])
    interval = header.integer(header.arch_key("full_attention_interval")) or 1
    return heads * width * F16_BYTES // max(interval, 1)
