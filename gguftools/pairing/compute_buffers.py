"""Bytes of the compute buffers: a graph drawn in outline, then laid out as ggml does. Pure."""

from __future__ import annotations

from collections.abc import Collection

from gguftools.gguf.header import Header
from gguftools.pairing.graph_arena import Tensor, buffer_bytes
from gguftools.pairing.graph_sheet import Sheet
from gguftools.pairing.kv_cache import ContextShape
from gguftools.pairing.layers import ROLLS_BACK, Layers
from gguftools.pairing.token_mixers import mix_tokens


def compute_bytes(
    header: Header,
    layers: Layers,
    shape: ContextShape,
    *,
    blocks: Collection[int] | None = None,
    output: bool = True,
) -> int:
    """The compute buffer of a device that runs these blocks (all of the context's, by default)
    and, with `output`, the logits."""
    sheet = Sheet(header, layers, shape)
    wanted = [block for block, _ in layers.of(mtp=shape.mtp) if blocks is None or block in blocks]
    # Heads in a chain run one at a time, each in a graph of its own.
    wanted = wanted[:1] if shape.mtp else [block for block in wanted if block not in layers.idle]
    rows, n = sheet.new(sheet.n_embd, sheet.n_tokens, sheet.tokens), sheet.n_tokens
    per_layer = None if shape.mtp else _per_layer_embedding(sheet, rows)
    if shape.mtp:
        sheet.graph.read(sheet.embedding)
    for block in wanted:
        sheet.at = f"blk.{block}."
        rows, n = _block(sheet, rows, n, block, last=output and block == wanted[-1])
        if per_layer is not None and (gate := sheet.width("inp_gate")):
            gated = sheet.over(sheet.new(gate, n, rows), per_layer)
            rows = sheet.over(sheet.new(sheet.n_embd, n, gated), rows)
    if output:
        _logits(sheet, rows, n)
    return buffer_bytes(sheet.graph)


def _per_layer_embedding(sheet: Sheet, rows: Tensor) -> Tensor | None:
    """Gemma 3n and 4: for each token a short row for every block."""
    table = sheet.header.tensors.get("per_layer_token_embd.weight")
    if table is None or not table.shape:
        return None
    looked_up = sheet.over(sheet.new(table.shape[0], sheet.n_tokens, sheet.tokens))
    projected = sheet.over(sheet.new(table.shape[0], sheet.n_tokens, rows))
    return sheet.new(table.shape[0], sheet.n_tokens, sheet.over(projected, looked_up))


def _block(sheet: Sheet, rows: Tensor, n: int, block: int, *, last: bool) -> tuple[Tensor, int]:
    """One block. The last one goes on with the rows alone whose logits are wanted."""
    if sheet.shape.mtp and sheet.width("nextn.eh_proj"):
        token = sheet.over(rows)
        hidden = sheet.norm(sheet.positions, n)
        rows = sheet.new(sheet.n_embd, n, sheet.new(2 * sheet.n_embd, n, token, hidden))
    mixed = mix_tokens(sheet, sheet.norm(rows, n), n, sheet.layers.blocks[block])
    if mixed is not None:
        if last and sheet.header.architecture not in ROLLS_BACK and not sheet.shape.mtp:
            n = sheet.n_outputs
            mixed = sheet.new(sheet.n_embd, n, mixed, sheet.out_ids)
            rows = sheet.new(sheet.n_embd, n, rows, sheet.out_ids)
        rows = sheet.over(sheet.over(mixed), rows)
    if (fed := _feed(sheet, rows, n)) is not None:
        rows = sheet.over(sheet.over(fed), rows)
    return rows, n


def _feed(sheet: Sheet, rows: Tensor, n: int) -> Tensor | None:
    """The part of a block that looks at each token alone; None if it has none."""
    has_experts = f"{sheet.at}ffn_down_exps.weight" in sheet.header.tensors
    suffix = "_shexp" if has_experts else ""
    up = sheet.width(f"ffn_up{suffix}")
    if not up and not has_experts:
        return None
    norm = sheet.norm(rows, n)
    experts = _experts(sheet, norm, n) if has_experts else None
    if not up:
        return experts
    inner = sheet.depth(f"ffn_down{suffix}")
    if gate := sheet.width(f"ffn_gate{suffix}"):
        gated = sheet.new(gate, n, norm)
        hidden = sheet.new(up, n, gated, sheet.new(up, n, norm))
    else:
        hidden = sheet.new(up, n, norm)
        hidden = sheet.new(inner, n, hidden) if up != inner else sheet.over(hidden)
    fed = sheet.new(sheet.n_embd, n, hidden)
    return fed if experts is None else sheet.over(experts, fed)


def _experts(sheet: Sheet, norm: Tensor, n: int) -> Tensor:
    """A mixture of experts: every token goes through `n_used` of them."""
    n_used = max(sheet.hparams.n_expert_used, 1)
    n_expert = max(sheet.hparams.n_expert, 0)
    probabilities = sheet.over(sheet.new(n_expert, n, norm))
    chosen = sheet.new(n_expert, n, probabilities)
    weights = sheet.over(sheet.new(n_used, n, probabilities, chosen))
    inner = sheet.depth("ffn_down_exps") * n_used
    if fused := sheet.width("ffn_gate_up_exps"):
        hidden = sheet.new(inner, n, sheet.new(fused * n_used, n, norm, chosen))
    else:
        hidden = sheet.new(inner, n, norm, chosen)
        if sheet.width("ffn_gate_exps"):
            hidden = sheet.new(inner, n, hidden, sheet.new(inner, n, norm, chosen))
    n_out = sheet.width("ffn_down_exps") or sheet.n_embd
    weighted = sheet.over(sheet.new(n_out * n_used, n, hidden, chosen), weights)
    return sheet.new(n_out, n, weighted)


def _logits(sheet: Sheet, rows: Tensor, n: int) -> None:
    normed = sheet.over(sheet.over(rows))
    if n != sheet.n_outputs:
        normed = sheet.new(sheet.n_embd, sheet.n_outputs, normed, sheet.out_ids)
    n_vocab = max(sheet.hparams.n_vocab or 0, 0)
    sheet.over(sheet.over(sheet.new(n_vocab, sheet.n_outputs, normed)))
