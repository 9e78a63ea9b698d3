"""What a tiny model of each MTP architecture consists of: hyperparameters and trunk blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gguftools.gguf.nextn_table import MTP_ARCHS, QKV, GateUp, Row, Tensor

N_EMBD, N_VOCAB, N_FF, N_HEAD_DIM = 32, 40, 48, 16
N_STATE, N_RANK, N_GROUP, N_CONV = 16, 2, 1, 4  # of recurrent layers

COMMON: dict[str, Any] = {
    "context_length": 64,
    "embedding_length": N_EMBD,
    "feed_forward_length": N_FF,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.key_length": N_HEAD_DIM,
    "attention.value_length": N_HEAD_DIM,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.dimension_count": N_HEAD_DIM,
    "vocab_size": N_VOCAB,
    "tokenizer.ggml.model": "no_vocab",
}
_MOE: dict[str, Any] = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 24,
    "expert_shared_count": 1,
    "expert_gating_func": 2,
}
_SSM: dict[str, Any] = {
    "ssm.conv_kernel": N_CONV,
    "ssm.inner_size": N_STATE * N_RANK,
    "ssm.state_size": N_STATE,
    "ssm.time_step_rank": N_RANK,
    "ssm.group_count": N_GROUP,
    "full_attention_interval": 2,
}
_SECTIONS = {"rope.dimension_sections": [4, 2, 2, 0]}
_MLA: dict[str, Any] = {
    "attention.q_lora_rank": 12,
    "attention.kv_lora_rank": 16,
    "attention.key_length_mla": 16,
    "attention.value_length_mla": 16,
    "attention.key_length": 24,
    "attention.value_length": 16,
    "rope.dimension_count": 8,
}
_INDEXER: dict[str, Any] = {
    "attention.indexer.head_count": 2,
    "attention.indexer.key_length": 16,
    "attention.indexer.top_k": 8,
}
_KDA: dict[str, Any] = {
    "ssm.conv_kernel": N_CONV,
    "kda.head_dim": 16,
    "kda.gate_lower_bound": -5.0,
    "attention.head_count_kv": [0, 1, 1],
}
_HC: dict[str, Any] = {
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 2,
    "hyper_connection.epsilon": 1e-6,
}
_DENSE_LEAD = {"leading_dense_block_count": 1}

METADATA: dict[str, dict[str, Any]] = {
    "qwen35": {**_SSM, **_SECTIONS},
    "qwen35moe": {**_SSM, **_SECTIONS, **_MOE, "expert_shared_feed_forward_length": 20},
    "qwen3next": {**_SSM, **_MOE, "expert_shared_feed_forward_length": 20},
    "qwen4exp": {
        **_SSM,
        **_SECTIONS,
        **_MOE,
        **_INDEXER,
        "expert_shared_feed_forward_length": 20,
        "hyper_connection.count": 2,
        "hyper_connection.low_rank": 6,
    },
    "glm4moe": {**_MOE, **_DENSE_LEAD},
    "deepseek2": {**_MOE, **_MLA, **_DENSE_LEAD},
    "deepseek32": {**_MOE, **_MLA, **_INDEXER, **_DENSE_LEAD},
    "glm-dsa": {**_MOE, **_MLA, **_INDEXER, **_DENSE_LEAD},
    "deepseek4": {
        **_MOE,
        **_HC,
        **_INDEXER,
        "expert_gating_func": 4,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "swiglu_clamp_exp": 7.0,
        "attention.q_lora_rank": 12,
        "attention.output_lora_rank": 8,
        "attention.output_group_count": 2,
        "attention.sliding_window": 16,
        "attention.compress_rope_freq_base": 10000.0,
        "attention.compress_ratios": [0, 0, 0],
        "attention.key_length": 32,
        "attention.value_length": 32,
        "hash_layer_count": 0,
    },
    "step35": {
        **_MOE,
        "expert_shared_feed_forward_length": 20,
        "attention.sliding_window": 16,
        "attention.sliding_window_pattern": [True, False, True, True],
        "attention.head_count": [2, 2, 3, 3],
        "attention.head_count_kv": 1,
    },
    "mimo2": {
        **_MOE,
        "attention.sliding_window": 16,
        "attention.sliding_window_pattern": [True, False, True, True],
        "attention.head_count": [2, 2, 3, 3],
        "attention.head_count_kv": 1,
    },
    "hy_v3": {**_MOE, "expert_shared_feed_forward_length": 20},
    "cohere2moe": {
        **_MOE,
        **_DENSE_LEAD,
        "attention.sliding_window": 16,
        "logit_scale": 1.0,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.layer_norm_rms_epsilon": None,
    },
    "bailingmoe3": {**_MOE, **_MLA, **_KDA, **_DENSE_LEAD},
    "nemotron_h_moe": {
        **_MOE,
        **_SSM,
        "full_attention_interval": None,
        "attention.layer_norm_epsilon": 1e-5,
        "expert_shared_feed_forward_length": 20,
        "attention.head_count_kv": [0, 1, 1],
        "feed_forward_length": [0, 0, N_FF],
    },
    "glm5-next": {
        **_MOE,
        **_MLA,
        **_KDA,
        **_HC,
        **_INDEXER,
        **_DENSE_LEAD,
        "attention.key_length": 16,
        "rope.dimension_count": 0,
        "attention.indexer.kpool": 4,
    },
    "bailingmoe2": {**_MOE, **_DENSE_LEAD},
    "exaone-moe": {
        **_MOE,
        **_DENSE_LEAD,
        "expert_shared_feed_forward_length": 24,
        "attention.sliding_window": 16,
    },
    "exaone4": {},
    "glm4": {},
    "dots3note": {
        **_MOE,
        **_MLA,
        **_INDEXER,
        **_DENSE_LEAD,
        "attention.kv_lora_rank_swa": 20,
        "attention.key_length_mla_swa": 18,
        "attention.value_length_mla_swa": 14,
        "attention.sliding_window": 16,
        "attention.sliding_window_pattern": [True, False, True],
        "attention.indexer.types": [0, 1, 1],
        "rope.freq_base_swa": 10000.0,
    },
    "gemma4-assistant": {
        "embedding_length_out": 48,
        "attention.sliding_window": 16,
        "attention.sliding_window_pattern": [True, False],
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.key_length_swa": 16,
        "attention.value_length_swa": 16,
    },
}
METADATA["nemotron_h"] = METADATA["nemotron_h_moe"]

# A gemma4 of the width that the tiny gemma4-assistant expects.
GEMMA4: dict[str, Any] = {
    **METADATA["gemma4-assistant"],
    "embedding_length": 48,
    "embedding_length_out": None,
    "embedding_length_per_layer_input": 0,
}
_NO_EXPERT_FF = {"expert_feed_forward_length": 0}
_NO_SHARED_FF = {"expert_shared_feed_forward_length": 0}
_HEADS = {"attention.head_count": 4, "attention.head_count_kv": 2}
_SWA = {
    "attention.key_length_swa": 8,
    "attention.value_length_swa": 8,
    "rope.dimension_count_swa": 8,
}
# Other hyperparameters under which a block holds other tensors or other shapes.
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "qwen35": (_HEADS, {"attention.key_length": None, "attention.value_length": None}),
    "qwen35moe": (_NO_EXPERT_FF, _NO_SHARED_FF, _HEADS),
    "qwen3next": (_NO_EXPERT_FF, _NO_SHARED_FF),
    "qwen4exp": (_NO_EXPERT_FF, _NO_SHARED_FF, {"attention.compress_ratios": [0, 4, 4]}),
    "glm4moe": (_NO_EXPERT_FF, _HEADS, {"expert_shared_count": 0}, {"expert_shared_count": 2}),
    "deepseek2": (
        {"attention.q_lora_rank": 0},
        {"attention.key_length_mla": None, "attention.value_length_mla": None},
        {"expert_shared_count": 2},
        {"leading_dense_block_count": 3},
        {"attention.temperature_scale": 0.5},
    ),
    "deepseek32": ({"expert_shared_count": 2}, {"leading_dense_block_count": 3}),
    "glm-dsa": ({"expert_shared_count": 2}, {"leading_dense_block_count": 3}),
    "deepseek4": (
        {"attention.compress_ratios": [0, 0, 4]},
        {"attention.compress_ratios": [0, 0, 128]},
        {"hash_layer_count": 3},
        {"expert_shared_count": 2},
    ),
    "step35": (_SWA, {"attention.head_count_kv": [1, 1, 3, 3]}),
    "mimo2": (_SWA, {"attention.head_count_kv": [1, 1, 3, 3]}),
    "hy_v3": (_NO_EXPERT_FF, _NO_SHARED_FF, _HEADS),
    "cohere2moe": (_NO_EXPERT_FF, {"expert_shared_count": 0}, {"expert_shared_count": 2}),
    "bailingmoe3": ({"attention.q_lora_rank": 0}, {"expert_shared_count": 2}),
    "nemotron_h_moe": (
        {"moe_latent_size": 28},
        {"expert_feed_forward_length": [24, 24, 20]},
        {"attention.head_count_kv": [0, 1, 2]},
    ),
    "glm5-next": ({"expert_feed_forward_length": [24, 24, 20]}, {"expert_shared_count": 2}),
    "bailingmoe2": (
        {"leading_dense_block_count": 3},
        {"expert_shared_count": 2},
        {"expert_shared_feed_forward_length": 20},
    ),
    "exaone-moe": (_HEADS,),
    "exaone4": ({"attention.head_count_kv": 2},),
    "glm4": (_HEADS,),
}
N_HEADS = {"step35": 2, "mimo2": 2}  # chained


def _t(name: str, *shape: int | str) -> Tensor:
    return Tensor(name, tuple(str(dim) for dim in shape))


def trunk_rows(arch: str, block: int) -> tuple[Row, ...]:
    """Rows of a trunk block: those of the MTP block without nextn, or a recurrent layer."""
    rows = tuple(
        row
        for row in MTP_ARCHS[arch].block
        if not isinstance(row, Tensor) or not row.name.startswith("nextn.")
    )
    change = _TRUNKS.get(arch)
    return change(rows, block) if change else rows


def _swap(rows: tuple[Row, ...], drop: str, *add: Row) -> tuple[Row, ...]:
    """Rows without those named in `drop` (prefixes; 'QKV' for the attention row), with others."""
    words = tuple(drop.split())
    kept = [
        row
        for row in rows
        if not (isinstance(row, Tensor) and row.name.startswith(words))
        and not (isinstance(row, QKV) and "QKV" in words)
    ]
    return (*kept, *add)


_KEY, _VALUE = N_STATE * N_GROUP, N_STATE * N_RANK
_DELTA_NET = (
    _t("attn_qkv.weight", N_EMBD, 2 * _KEY + _VALUE),
    _t("attn_gate.weight", N_EMBD, _VALUE),
    _t("ssm_conv1d.weight", N_CONV, 2 * _KEY + _VALUE),
    _t("ssm_dt.bias", N_RANK),
    _t("ssm_a", N_RANK),
    _t("ssm_norm.weight", N_STATE),
    _t("ssm_out.weight", _VALUE, N_EMBD),
)
_ALPHA_BETA = (_t("ssm_alpha.weight", N_EMBD, N_RANK), _t("ssm_beta.weight", N_EMBD, N_RANK))


def _qwen(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    drop = "QKV attn_output attn_q_norm attn_k_norm indexer."
    return rows if block else _swap(rows, drop, *_DELTA_NET, *_ALPHA_BETA)


def _qwen3next(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    ba = _t("ssm_ba.weight", N_EMBD, 2 * N_RANK)
    return (
        rows if block else _swap(rows, "QKV attn_output attn_q_norm attn_k_norm", *_DELTA_NET, ba)
    )


def _mimo2(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    dense = "ffn_gate.weight ffn_up.weight ffn_down.weight"
    experts = "ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps exp_probs_b"
    return _swap(rows, f"layer_output_norm {dense if block else experts}")


def _dense_lead(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    """For loaders whose MTP block is always MoE and whose first trunk block is dense."""
    if block:
        return rows
    kept = tuple(row for row in rows if not isinstance(row, GateUp))
    return _swap(kept, "ffn_gate_inp ffn_down_exps ffn_gate_exps ffn_up_exps ffn_gate_shexp "
                       "ffn_down_shexp ffn_up_shexp exp_probs_b", *_dense(N_FF))  # fmt: skip


def _dense(n_ff: int) -> tuple[Tensor, ...]:
    return (
        _t("ffn_gate.weight", N_EMBD, n_ff),
        _t("ffn_up.weight", N_EMBD, n_ff),
        _t("ffn_down.weight", n_ff, N_EMBD),
    )


_INNER = 2 * 16  # n_head * kda.head_dim
_CONVS = tuple(_t(f"ssm_conv1d_{part}.weight", N_CONV, 1, _INNER, 1) for part in "qkv")
_MLA_NAMES = "attn_q_a attn_q_b attn_q. attn_kv attn_k_b attn_v_b attn_gate attn_output indexer"


def _bailing3(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    rows = _swap(_dense_lead(rows, block), "layer_output_norm")
    if block:
        return rows
    return _swap(
        rows,
        _MLA_NAMES,
        QKV(str(_INNER), str(_INNER), str(_INNER)),
        *_CONVS,
        _t("ssm_f_a.weight", N_EMBD, _INNER),
        _t("ssm_beta.weight", N_EMBD, 2),
        _t("ssm_a", 1, 2),
        _t("ssm_dt.bias", _INNER),
        _t("ssm_g_a.weight", N_EMBD, _INNER),
        _t("ssm_norm.weight", 16),
        _t("attn_output.weight", _INNER, N_EMBD),
    )


def _glm5_next(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    mix = 6 * 4
    for part in ("attn", "ffn"):
        rows = (
            *rows,
            _t(f"hc_{part}_fn.weight", 4 * N_EMBD, mix),
            _t(f"hc_{part}_base.weight", mix),
            _t(f"hc_{part}_scale.weight", 3),
        )
    if block:
        return rows
    return _swap(
        rows,
        _MLA_NAMES,
        QKV(str(_INNER), str(_INNER), str(_INNER)),
        *_CONVS,
        _t("ssm_f_a.weight", N_EMBD, 16),
        _t("ssm_f_b.weight", 16, _INNER),
        _t("ssm_beta.weight", N_EMBD, 2),
        _t("ssm_a", 2),
        _t("ssm_dt.bias", _INNER),
        _t("ssm_g_a.weight", N_EMBD, 16),
        _t("ssm_g_b.weight", 16, _INNER),
        _t("ssm_norm.weight", 16),
        _t("attn_output.weight", _INNER, N_EMBD),
    )


def _nemotron(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    ffn = "post_attention_norm ffn_ exp_probs_b"
    if block:
        return _swap(rows, ffn)
    state = 2 * N_GROUP * N_STATE
    inner = N_STATE * N_RANK
    return _swap(
        rows,
        f"QKV attn_output {ffn}",
        _t("ssm_in.weight", N_EMBD, 2 * inner + state + N_RANK),
        _t("ssm_conv1d.weight", N_CONV, inner + state),
        _t("ssm_conv1d.bias", inner + state),
        _t("ssm_dt.bias", N_RANK),
        _t("ssm_a", 1, N_RANK),
        _t("ssm_d", 1, N_RANK),
        _t("ssm_norm.weight", inner // N_GROUP, N_GROUP),
        _t("ssm_out.weight", inner, N_EMBD),
    )


def _exaone_moe(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    if not block:
        return rows
    moe = MTP_ARCHS["bailingmoe2"].block
    experts = tuple(
        row for row in moe if isinstance(row, Tensor) and "n_layer_dense_lead" in row.when
    )
    kept = _swap(rows, "ffn_gate.weight ffn_up.weight ffn_down.weight")
    return (*kept, *(r for r in experts if r.when.startswith("block >=")))


def _dots3note(rows: tuple[Row, ...], block: int) -> tuple[Row, ...]:
    if not block:
        return rows
    full = tuple(
        replace(row, shape=tuple(dim.replace("_swa", "") for dim in row.shape))
        for row in rows
        if isinstance(row, Tensor)
    )
    kept = _swap(full, "ffn_gate.weight ffn_up.weight ffn_down.weight")
    experts = tuple(
        replace(row, need="required", shape=tuple(d.replace("n_ff_shexp", "24") for d in row.shape))
        for row in MTP_ARCHS["glm-dsa"].block
        if isinstance(row, Tensor)
        and (row.name.startswith("indexer.") or ">= n_layer_dense" in row.when)
    )
    return (*kept, *experts)


_TRUNKS: dict[str, Callable[[tuple[Row, ...], int], tuple[Row, ...]]] = {
    "qwen35": _qwen,
    "qwen35moe": _qwen,
    "qwen3next": _qwen3next,
    "qwen4exp": _qwen,
    "mimo2": _mimo2,
    "cohere2moe": _dense_lead,
    "bailingmoe3": _bailing3,
    "nemotron_h_moe": _nemotron,
    "nemotron_h": _nemotron,
    "glm5-next": _glm5_next,
    "bailingmoe2": lambda rows, _: _swap(rows, "layer_output_norm"),
    "exaone-moe": _exaone_moe,
    "dots3note": _dots3note,
}
