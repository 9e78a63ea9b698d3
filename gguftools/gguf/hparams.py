"""Layers, heads, widths and context of a model, from its metadata; scalar or per-layer."""

from __future__ import annotations

from dataclasses import dataclass

from gguftools.gguf.reader import Header, NumericArray, StringArray

N_LAYER_MAX = 512  # LLAMA_MAX_LAYERS, src/llama-hparams.h, b11434
_WIDE_ROWS = frozenset({"deepseek4", "qwen4exp"})  # n_embd_out_impl in src/models/, b11434


@dataclass(frozen=True, slots=True)
class HParams:
    """Counts as llama.cpp names them; per-layer values are tuples over `n_layer_all` blocks.

    `n_layer_all` counts every block, `n_layer_nextn` the MTP blocks at its end as declared by the
    key, `n_layer` the trunk. None means that the file does not say.
    """

    n_layer_all: int
    n_layer_nextn: int
    n_ctx_train: int | None
    n_embd: int | None
    n_embd_out: int | None
    n_vocab: int | None
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    n_ff: tuple[int, ...]
    n_embd_head_k: int | None
    n_embd_head_v: int | None
    n_expert: int
    n_expert_used: int
    n_swa: int | None

    @property
    def n_layer(self) -> int:
        """Trunk blocks."""
        return max(self.n_layer_all - self.n_layer_nextn, 0)


def read_hparams(header: Header) -> HParams:
    """The hyperparameters of a model."""

    def scalar(suffix: str) -> int | None:
        return header.integer(header.arch_key(suffix))

    n_layer_all = min(max(scalar("block_count") or 0, 0), N_LAYER_MAX)

    def layers(suffix: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        return per_layer(header, suffix, n_layer_all) or default

    n_embd, n_head = scalar("embedding_length"), layers("attention.head_count")
    head = n_embd // n_head[0] if n_embd and n_head and n_head[0] > 0 else None
    return HParams(
        n_layer_all=n_layer_all,
        n_layer_nextn=max(scalar("nextn_predict_layers") or 0, 0),
        n_ctx_train=scalar("context_length"),
        n_embd=n_embd,
        n_embd_out=_n_embd_out(header, n_embd),
        n_vocab=n_vocab(header),
        n_head=n_head,
        n_head_kv=layers("attention.head_count_kv", n_head),
        n_ff=layers("feed_forward_length"),
        n_embd_head_k=scalar("attention.key_length") or head,
        n_embd_head_v=scalar("attention.value_length") or head,
        n_expert=scalar("expert_count") or 0,
        n_expert_used=max(layers("expert_used_count", (0,))),
        n_swa=scalar("attention.sliding_window"),
    )


def _n_embd_out(header: Header, n_embd: int | None) -> int | None:
    """Width of the hidden rows; two architectures keep several residual streams side by side."""
    if header.architecture in _WIDE_ROWS:
        n_streams = header.integer(header.arch_key("hyper_connection.count"))
        return n_streams * n_embd if n_streams and n_embd else None
    return header.integer(header.arch_key("embedding_length_out")) or n_embd


def per_layer(header: Header, suffix: str, n_layer: int) -> tuple[int, ...]:
    """`{arch}.{suffix}` for every block: a scalar is repeated, an array is taken as it is.

    An array that no model can have (more than N_LAYER_MAX entries, or not integers) is ignored.
    """
    value = header.metadata.get(header.arch_key(suffix))
    if isinstance(value, NumericArray):
        usable = value.letter not in "fd?" and len(value) <= N_LAYER_MAX
        return tuple(int(v) for v in value.values()) if usable else ()
    one = header.integer(header.arch_key(suffix))
    return (one,) * n_layer if one is not None else ()


def n_vocab(header: Header) -> int | None:
    """Tokens in the tokenizer's list, else `{arch}.vocab_size`."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray):
        return len(tokens)
    return header.integer(header.arch_key("vocab_size"))
