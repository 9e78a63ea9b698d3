"""The part of a block that looks at other tokens, as llama.cpp b11434 draws it into a graph. Pure.

src/llama-graph.cpp and src/models/: which kind a block is, and how wide, say the weights it has.
"""

from __future__ import annotations

from gguftools.pairing.graph_arena import Tensor
from gguftools.pairing.graph_sheet import F32, Sheet
from gguftools.pairing.layers import Layer

_SCALES = frozenset({"gemma3"})  # multiplies the queries into another tensor


def mix_tokens(sheet: Sheet, norm: Tensor, n: int, kept: Layer) -> Tensor | None:
    """The block's attention or recurrence over the normed rows; None if it has neither."""
    width = sheet.width
    mixed: Tensor | None = None
    if width("attn_kv_a_mqa"):
        mixed = _latent_attention(sheet, norm, n)
    elif width("ssm_alpha") or width("ssm_ba"):
        mixed = _delta_net(sheet, norm, n, width("attn_qkv"))
    elif width("ssm_f_a"):
        mixed = _delta_net(sheet, norm, n, 3 * width("attn_q"))
    elif width("ssm_in"):
        mixed = _mamba(sheet, norm, n)
        if kept.k:  # falcon-h1 runs both
            mixed = sheet.over(mixed, _attention(sheet, norm, n, kept))
    elif width("shortconv.in_proj"):
        mixed = _short_convolution(sheet, norm, n)
    elif width("time_mix_key"):
        mixed = _time_mix(sheet, norm, n)
    elif width("attn_q") or width("attn_qkv"):
        mixed = _attention(sheet, norm, n, kept)
    return mixed


def _attention(sheet: Sheet, norm: Tensor, n: int, kept: Layer) -> Tensor:
    """Grouped queries, perhaps normed, perhaps with a gate that is made with the queries.

    A block that caches nothing reads the keys and values of another.
    """
    width = sheet.width
    n_out = sheet.depth("attn_output") or sheet.n_embd
    keys, values = width("attn_k"), width("attn_v")
    gate: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None
    if fused := width("attn_qkv"):
        both = sheet.new(fused, n, norm)
        q = sheet.new(n_out, n, both, sheet.positions)
        k = v = sheet.new(max(fused - n_out, 0) // 2, n, both, sheet.positions)
    else:
        q = sheet.new(width("attn_q"), n, norm)
        if width("attn_q") >= 2 * n_out:
            gate, q = q, sheet.new(n_out, n, q)
        q = sheet.over(sheet.over(q), sheet.positions)
        q = sheet.new(width("attn_q"), n, q) if sheet.header.architecture in _SCALES else q
        if kept.k:
            v = sheet.new(values, n, norm) if values else None
            k = sheet.over(sheet.new(keys, n, norm), sheet.positions)
    for written in (k, v):
        if written is not None:
            sheet.graph.read(written)
    out = _look(sheet, q, n_out, n, window=kept.window)
    if gate is not None:
        out = sheet.over(out, sheet.over(sheet.new(n_out, n, gate)))
    return sheet.new(sheet.n_embd, n, out)


def _look(sheet: Sheet, q: Tensor, n_out: int, n: int, *, window: bool = False) -> Tensor:
    """Attention proper: in one step, or over the scores of every head and cell."""
    mask = sheet.window_mask if window else sheet.mask
    if sheet.shape.flash_attn:
        return sheet.new(n_out, n, q, mask)
    n_kv = sheet.n_window if window else sheet.shape.n_ctx_seq
    scores = sheet.over(sheet.new(n_kv * sheet.n_head, n, q), mask)
    return sheet.new(n_out, n, sheet.new(n_out, n, scores))


def _latent_attention(sheet: Sheet, norm: Tensor, n: int) -> Tensor:
    """MLA: queries absorbed into the latent space of the cached rows."""
    width = sheet.width
    n_latent, n_head = sheet.depth("attn_kv_b") or sheet.depth("attn_v_b"), sheet.n_head
    n_pe = max(width("attn_kv_a_mqa") - n_latent, 0)
    q = norm
    if width("attn_q_a"):
        q = sheet.over(sheet.over(sheet.new(width("attn_q_a"), n, norm)))
    q = sheet.new(width("attn_q_b") or width("attn_q"), n, q)
    absorbed = sheet.new(n_latent * n_head, n, q)
    q_pe = sheet.new(n_pe * n_head, n, q, sheet.positions)
    q = sheet.new((n_latent + n_pe) * n_head, n, absorbed, q_pe)
    rows = sheet.new(width("attn_kv_a_mqa"), n, norm)
    latent = sheet.over(sheet.new(n_latent, n, rows))
    k = sheet.new(n_latent + n_pe, n, latent, sheet.new(n_pe, n, rows, sheet.positions))
    sheet.graph.read(k, latent)
    if width("indexer.attn_k") or width("indexer.k"):
        n_pool = sheet.number("attention.indexer.kpool") or 1
        scores = sheet.new(sheet.shape.n_ctx_seq // n_pool, n, norm)
        chosen = sheet.new(sheet.shape.n_ctx_seq, n, scores, sheet.mask)
        out = sheet.new(n_latent * n_head, n, q, chosen)
    else:
        out = _look(sheet, q, n_latent * n_head, n)
    n_out = sheet.depth("attn_output") or n_latent * n_head
    out = sheet.new(n_out, n, sheet.new(n_out, n, out))
    return sheet.new(sheet.n_embd, n, out)


def _delta_net(sheet: Sheet, norm: Tensor, n: int, n_conv: int) -> Tensor:
    """Gated delta rule (Qwen) and its per-channel form (KDA)."""
    number = sheet.number
    inner = sheet.depth("ssm_out") or sheet.depth("attn_output") or n_conv // 3
    n_head = number("ssm.time_step_rank") or sheet.n_head
    state = number("ssm.state_size") or number("kda.head_dim")
    n_keys = state * (number("ssm.group_count") or n_head)
    padded = n_conv * (n + sheet.n_seq * max(number("ssm.conv_kernel") - 1, 0))
    joined = sheet.graph.new(padded * F32, sheet.new(n_conv, n, norm))
    remembered = sheet.graph.new(inner * state * sheet.n_seq * F32)
    silu = sheet.over(sheet.new(n_conv, n, joined))
    q, k = (sheet.over(sheet.new(n_keys, n, silu)) for _ in range(2))
    n_gate = n_head * state if number("kda.head_dim") else n_head
    gate, beta = sheet.over(sheet.new(n_gate, n, norm)), sheet.new(n_head, n, norm)
    result = (inner * n + inner * state * sheet.n_states) * F32
    out = sheet.graph.new(result, q, k, silu, gate, beta, remembered)
    sheet.graph.read(out)
    out = sheet.over(sheet.new(inner, n, out))
    out = sheet.over(out, sheet.over(sheet.new(inner, n, norm)))
    return sheet.new(sheet.n_embd, n, out)


def _mamba(sheet: Sheet, norm: Tensor, n: int) -> Tensor:
    """A selective scan over convolved rows."""
    number = sheet.number
    inner, state, n_seq = number("ssm.inner_size"), number("ssm.state_size"), sheet.n_seq
    n_conv = inner + 2 * number("ssm.group_count") * state
    rows = sheet.new(sheet.width("ssm_in"), n, norm)
    padded = n_conv * (n + n_seq * max(number("ssm.conv_kernel") - 1, 0))
    silu = sheet.over(sheet.new(n_conv, n, sheet.graph.new(padded * F32, rows)))
    out = sheet.graph.new((inner * n + inner * state * n_seq) * F32, silu)
    sheet.graph.read(out)
    out = sheet.over(sheet.new(inner, n, out, silu))
    out = sheet.new(inner, n, out, rows)
    return sheet.new(sheet.n_embd, n, out)


def _short_convolution(sheet: Sheet, norm: Tensor, n: int) -> Tensor:
    """LFM2: a gated convolution over the last few rows."""
    rows = sheet.new(sheet.width("shortconv.in_proj"), n, norm)
    joined = sheet.new(sheet.n_embd, n, sheet.new(sheet.n_embd, n, rows))
    out = sheet.new(sheet.n_embd, n, sheet.new(sheet.n_embd, n, joined), rows)
    return sheet.new(sheet.n_embd, n, out)


def _time_mix(sheet: Sheet, norm: Tensor, n: int) -> Tensor:
    """RWKV: the rows beside those of the token before, and six mixtures of both."""
    shifted = sheet.new(sheet.n_embd, n, norm)
    mixtures = sheet.new(6 * sheet.n_embd, n, norm, shifted)
    made = [sheet.new(sheet.n_embd, n, mixtures) for _ in range(5)]
    out = sheet.over(sheet.new(sheet.n_embd, n, *made))
    return sheet.new(sheet.n_embd, n, out)
