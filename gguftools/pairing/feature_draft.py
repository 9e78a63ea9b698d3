"""What an EAGLE-3, DFlash or DSpark file must hold, as llama.cpp loads and runs it. Pure.

Read off src/models/eagle3.cpp, src/models/dflash.cpp and common/speculative.cpp, b11434, and held
against the real llama-server by scripts/oracle_pair.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header, NumericArray
from gguftools.gguf.tokenizer import read_vocab

N_EAGLE3_LAYERS = 3
BLOCK_SIZE_DEFAULT = 16  # dflash.block_size where absent, common/speculative.cpp, b11434

# What the loaders take beside the rows below; DFlash 2 has convolutions and a selector.
_OPTIONAL = ("token_embd.weight", "output.weight", "d2t", "rope_freqs.weight", ".scale", ".bias",
             "attn_sinks.weight", "post_attention_norm.weight", "post_ffw_norm.weight",
             "layer_output_scale.weight", "conf_proj.weight", "_conv_base", "_conv_proj.weight",
             "selector_predecessor.weight", "selector_successor.weight",
             "selector_hidden.weight")  # fmt: skip

Shape = tuple[int | None, ...]  # None where the file does not say


def target_layers(draft: Header) -> tuple[int, ...]:
    """The layers of the target whose inputs the draft reads."""
    value = draft.metadata.get(draft.arch_key("target_layers"))
    if not isinstance(value, NumericArray) or value.letter in "fd?":
        return ()
    return tuple(int(v) for v in value.values())


def block_draft_max(kind: str, draft: Header) -> int:
    """Tokens that one block drafts: all of it for an anchor-first DSpark, else all but one."""
    size = draft.integer("dflash.block_size")
    size = BLOCK_SIZE_DEFAULT if size is None else size
    anchor_first = draft.metadata.get("dflash.sample_from_anchor", True) is not False
    return size if kind == "draft-dspark" and anchor_first else size - 1


def why_not_loaded(draft: Header) -> str:
    """Why llama.cpp does not load the file or aborts on it; empty if nothing speaks against it."""
    if draft.architecture == "eagle3":
        return _why_not_eagle3(draft)
    if draft.integer("dflash.hyper_connection.count"):
        return ""  # the backbone of DeepSeek V4: not looked into
    return _why_not_dflash(draft)


def _why_not_eagle3(draft: Header) -> str:
    n_layer = read_hparams(draft).n_layer
    if n_layer != 1:
        return f"it has {n_layer} blocks, an EAGLE-3 draft has one"
    if "d2t" in draft.tensors and "output.weight" not in draft.tensors:
        return "it has a d2t map, and no output of its own that the map would be for"
    return _why_not_tensors(draft, _eagle3_tensors(draft))


def _why_not_dflash(draft: Header) -> str:
    kind = "draft-dspark" if "markov_w1.weight" in draft.tensors else "draft-dflash"
    if kind == "draft-dspark" and draft.integer("dflash.block_size") is None:
        return "its dflash.block_size is missing, which a DSpark draft needs"
    if block_draft_max(kind, draft) < 1:
        return "its dflash.block_size leaves no token to draft"
    vocab, mask = read_vocab(draft), draft.integer("tokenizer.ggml.mask_token_id")
    if vocab is not None and (mask is None or not 0 <= mask < vocab.n_tokens):
        return "it names no mask token (tokenizer.ggml.mask_token_id), with which a block is filled"
    if "d2t" in draft.tensors and "output.weight" not in draft.tensors:
        return "it has a d2t map, and no output of its own that the map would be for"
    return _why_not_tensors(draft, _dflash_tensors(draft))


def _why_not_tensors(draft: Header, rows: Iterator[tuple[str, Shape]]) -> str:
    wanted = dict(rows)
    for name, shape in wanted.items():
        row = draft.tensors.get(name)
        if row is None:
            return f"{name} is missing"
        if any(n is not None and n != m for n, m in zip(shape, row.shape, strict=False)):
            shown = ", ".join("?" if n is None else str(n) for n in shape)
            return f"{name} is {list(row.shape)}, llama.cpp expects [{shown}]"
    for name in draft.tensors:
        if name not in wanted and not name.endswith(_OPTIONAL):
            return f"{name[:64]!r} is no tensor of such a draft"
    return ""


def n_draft_rows(draft: Header) -> int | None:
    """Rows of the output that the loader expects: one per token, or one per entry of d2t."""
    d2t = draft.tensors.get("d2t")
    if d2t is not None:
        return d2t.shape[0]
    vocab = read_vocab(draft)
    return vocab.n_tokens if vocab is not None else None


def _eagle3_tensors(draft: Header) -> Iterator[tuple[str, Shape]]:
    n_embd = read_hparams(draft).n_embd
    n_target = draft.integer("eagle3.target_hidden_size")
    yield "fc.weight", (N_EAGLE3_LAYERS * n_target if n_target else None, n_embd)
    yield "output_norm.weight", (n_embd,)
    if draft.metadata.get("eagle3.norm_before_fc") is True:
        yield "enc.output_norm.weight", (N_EAGLE3_LAYERS * n_target if n_target else None,)
    yield from _output(draft, n_embd)
    yield "blk.0.attn_norm_2.weight", (n_embd,)
    yield from _block(draft, "blk.0.", 2 * n_embd if n_embd else None)


def _dflash_tensors(draft: Header) -> Iterator[tuple[str, Shape]]:
    hparams, n_layers = read_hparams(draft), len(target_layers(draft))
    n_embd = hparams.n_embd
    yield "fc.weight", (n_layers * n_embd if n_layers and n_embd else None, n_embd)
    yield "enc.output_norm.weight", (n_embd,)
    yield "output_norm.weight", (n_embd,)
    yield from _output(draft, n_embd)
    if (markov := draft.tensors.get("markov_w1.weight")) is not None:
        vocab = read_vocab(draft)
        yield "markov_w1.weight", (None, vocab.n_tokens if vocab is not None else None)
        yield "markov_w2.weight", (markov.shape[0], n_draft_rows(draft))
    for i in range(hparams.n_layer):
        yield from _block(draft, f"blk.{i}.", n_embd)
        yield f"blk.{i}.attn_q_norm.weight", (hparams.n_embd_head_k,)
        yield f"blk.{i}.attn_k_norm.weight", (hparams.n_embd_head_k,)


def _output(draft: Header, n_embd: int | None) -> Iterator[tuple[str, Shape]]:
    if "output.weight" in draft.tensors:
        yield "output.weight", (n_embd, n_draft_rows(draft))
    if draft.architecture == "dflash" and "token_embd.weight" in draft.tensors:
        vocab = read_vocab(draft)
        yield "token_embd.weight", (n_embd, vocab.n_tokens if vocab is not None else None)


def _block(draft: Header, at: str, n_input: int | None) -> Iterator[tuple[str, Shape]]:
    """A block of attention over rows `n_input` wide and a gated feed-forward."""
    hparams = read_hparams(draft)
    n_embd, n_ff = hparams.n_embd, hparams.n_ff[0] if hparams.n_ff else None
    n_q = _product(hparams.n_embd_head_k, hparams.n_head)
    n_k = _product(hparams.n_embd_head_k, hparams.n_head_kv)
    n_v = _product(hparams.n_embd_head_v, hparams.n_head_kv)
    yield f"{at}attn_norm.weight", (n_embd,)
    yield f"{at}attn_q.weight", (n_input, n_q)
    yield f"{at}attn_k.weight", (n_input, n_k)
    if draft.architecture == "eagle3" or f"{at}attn_v.weight" in draft.tensors:
        yield f"{at}attn_v.weight", (n_input, n_v)
    yield f"{at}attn_output.weight", (n_q, n_embd)
    yield f"{at}ffn_norm.weight", (n_embd,)
    yield f"{at}ffn_gate.weight", (n_embd, n_ff)
    yield f"{at}ffn_up.weight", (n_embd, n_ff)
    yield f"{at}ffn_down.weight", (n_ff, n_embd)


def _product(width: int | None, heads: tuple[int, ...]) -> int | None:
    return width * heads[0] if width and heads else None
