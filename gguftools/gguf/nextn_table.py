"""What an MTP (nextn) block must hold, per architecture: data read off the loaders of llama.cpp.

Shapes are in ggml order (ne[0] first); each dimension is a small expression over the names of
`shapes.shape_names`. A name that ends in `_l` belongs to the block, without it to block 0, as in
the loaders. `source` names the loader under src/models/ of the build below.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

LLAMA_BUILD = "b11434"

# "required": without it the load fails. "graph": it loads, but the MTP graph aborts.
# "wanted": it loads and decodes, but not as trained. "trunk": may be absent from a head-only file.
Need = Literal["required", "graph", "wanted", "optional", "trunk"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, named without its `blk.N.`; it exists only where `when` holds.

    With `reshape` llama.cpp compares the number of elements only.
    """

    name: str
    shape: tuple[str, ...]
    need: Need = "required"
    when: str = ""
    reshape: bool = False


@dataclass(frozen=True, slots=True)
class QKV:
    """attn_qkv, or attn_q + attn_k + attn_v; biases optional (src/llama-model.cpp:3414-3449)."""

    q: str
    k: str
    v: str
    graph_form: Literal["any", "fused", "split"] = "any"  # the MTP graph may read one form only


@dataclass(frozen=True, slots=True)
class GateUp:
    """ffn_gate_up_exps, or ffn_gate_exps + ffn_up_exps (src/llama-model.cpp:3396-3412)."""

    n_ff: str
    need: Need = "required"
    when: str = ""


@dataclass(frozen=True, slots=True)
class Ffn:
    """A feed-forward part whose loader takes any subset; the graph asks for ffn_gate_inp first."""

    dense: tuple[Tensor, ...]
    experts: tuple[Tensor | GateUp, ...]
    shared: tuple[Tensor, ...]


Row = Tensor | QKV | GateUp | Ffn


@dataclass(frozen=True, slots=True)
class MtpArch:
    """How one architecture stores, loads and runs its MTP blocks."""

    source: str
    block: tuple[Row, ...]
    model: tuple[Tensor, ...]
    n_heads: int | None = 1  # heads the MTP graph takes: exactly 1, None = as many as declared
    no_graph: str = ""  # why no MTP graph runs, empty where one does
    skipped: bool = (
        False  # the loader never allocates the block: fused and split may both lie there
    )
    all_optional: bool = False  # the loader asks for no tensor of the block
    trunk_only: bool = True  # without nextn.eh_proj in the first block it loads as a plain model
    probe_zeroes: bool = False  # without nextn.eh_proj every block is taken as trunk
    head_only: bool = True  # without `trunk_probe` it loads as a head alone
    trunk_probe: str = "blk.0.attn_norm.weight"  # empty: never has a trunk
    load_if: tuple[tuple[str, str], ...] = ()  # (expression, meaning): else the load fails
    graph_if: tuple[tuple[str, str], ...] = ()  # (expression, meaning): else the MTP graph aborts
    fallbacks: dict[str, str] = field(default_factory=dict)  # names the loader derives
    arrays: tuple[str, ...] = ()  # per-layer keys besides PER_LAYER_KEYS


# Arrays under these keys must have block_count entries (src/llama-model.cpp:1334-1402).
PER_LAYER_KEYS = (
    "expert_used_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
)
_EXPERT_FF = ("expert_feed_forward_length",)
_CLAMPS = ("swiglu_clamp_exp", "swiglu_clamp_shexp")
_RECURRENT = ("attention.recurrent_layers",)


def _t(name: str, *shape: str, need: Need = "required", when: str = "") -> Tensor:
    return Tensor(name, shape, need, when)


def _optional(*rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(replace(row, need="optional") for row in rows)


def _when(when: str, *rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(replace(row, when=f"({row.when}) and ({when})" if row.when else when)
                 for row in rows)  # fmt: skip


_EH = (
    _t("nextn.eh_proj.weight", "2*n_embd", "n_embd"),
    _t("nextn.enorm.weight", "n_embd"),
    _t("nextn.hnorm.weight", "n_embd"),
)
_EMBED_TOKENS = _t("nextn.embed_tokens.weight", "n_embd", "n_vocab", need="optional")
_HEAD_HEAD = _t("nextn.shared_head_head.weight", "n_embd", "n_vocab", need="optional")
_HEAD_NORM = _t("nextn.shared_head_norm.weight", "n_embd", need="optional")
_NEXTN = (*_EH, _EMBED_TOKENS, _HEAD_HEAD, _HEAD_NORM)

_ATTN_NORM = _t("attn_norm.weight", "n_embd")
_POST_NORM = _t("post_attention_norm.weight", "n_embd")
_FFN_NORM = _t("ffn_norm.weight", "n_embd")
_QK_NORM = (
    _t("attn_q_norm.weight", "n_embd_head_k"),
    _t("attn_k_norm.weight", "n_embd_head_k"),
)
_WO = _t("attn_output.weight", "n_embd_head_k*n_head", "n_embd")
_PROBS_B = _t("exp_probs_b.bias", "n_expert")
_QKV = QKV("n_embd_head_k*n_head", "n_embd_k_gqa", "n_embd_v_gqa")
_QKV_GATED = QKV("2*n_embd_head_k*n_head", "n_embd_k_gqa", "n_embd_v_gqa")

_DENSE = (
    _t("ffn_gate.weight", "n_embd", "n_ff"),
    _t("ffn_down.weight", "n_ff", "n_embd"),
    _t("ffn_up.weight", "n_embd", "n_ff"),
)
_GATE_INP = _t("ffn_gate_inp.weight", "n_embd", "n_expert")
_DOWN_EXPS = _t("ffn_down_exps.weight", "n_ff_exp", "n_embd", "n_expert")
_MOE = (_GATE_INP, _DOWN_EXPS)
_MOE_SPLIT = (
    _GATE_INP,
    _DOWN_EXPS,
    _t("ffn_gate_exps.weight", "n_embd", "n_ff_exp", "n_expert"),
    _t("ffn_up_exps.weight", "n_embd", "n_ff_exp", "n_expert"),
)
_GATE_UP = GateUp("n_ff_exp")
_SHARED = (
    _t("ffn_gate_shexp.weight", "n_embd", "n_ff_shexp"),
    _t("ffn_down_shexp.weight", "n_ff_shexp", "n_embd"),
    _t("ffn_up_shexp.weight", "n_embd", "n_ff_shexp"),
)
_SHARED_GATE = _t("ffn_gate_inp_shexp.weight", "n_embd")

_MLA_Q = (
    _t("attn_q_a.weight", "n_embd", "n_lora_q"),
    _t("attn_q_a_norm.weight", "n_lora_q"),
    _t("attn_q_b.weight", "n_lora_q", "n_head*n_embd_head_k_mla"),
)
_MLA_KV = (
    _t("attn_kv_a_mqa.weight", "n_embd", "n_lora_kv + n_rot"),
    _t("attn_kv_a_norm.weight", "n_lora_kv"),
)
_MLA_B = (
    _t("attn_k_b.weight", "n_embd_head_k_mla - n_rot", "n_lora_kv", "n_head"),
    _t("attn_v_b.weight", "n_lora_kv", "n_embd_head_v_mla", "n_head"),
)
_MLA_WO = _t("attn_output.weight", "n_head*n_embd_head_v_mla", "n_embd")
_MLA = (*_MLA_Q, *_MLA_KV, *_MLA_B, _MLA_WO)
_INDEXER = (
    _t("indexer.k_norm.weight", "n_embd_indexer"),
    _t("indexer.k_norm.bias", "n_embd_indexer"),
    _t("indexer.proj.weight", "n_embd", "n_head_indexer"),
    _t("indexer.attn_k.weight", "n_embd", "n_embd_indexer"),
    _t("indexer.attn_q_b.weight", "n_lora_q", "n_head_indexer*n_embd_indexer"),
)

_TOKEN_EMBD = _t("token_embd.weight", "n_embd", "n_vocab")
_OUTPUT_NORM = _t("output_norm.weight", "n_embd")
_OUTPUT = _t("output.weight", "n_embd", "n_vocab")
_TIED = (_TOKEN_EMBD, _OUTPUT_NORM, replace(_OUTPUT, need="optional"))
_UNTIED = (_TOKEN_EMBD, _OUTPUT_NORM, _OUTPUT)

_DENSE_BLOCK = "block < n_layer_dense_lead"
_MOE_BLOCK = "block >= n_layer_dense_lead"
_MOE_ONLY = (_MOE_BLOCK, "the MTP block lies inside leading_dense_block_count")
_HEAD_SIZES = ("n_embd_head_k == n_embd_head_v", "key_length differs from value_length")
_ROPE_SIZE = ("n_embd_head_k == n_rot", "rope.dimension_count differs from key_length")
_ATTENTION = ("not recurrent", "attention.recurrent_layers marks the MTP block as recurrent")

_QWEN_FF = {"n_ff_exp": "n_ff_exp or n_ff // n_expert_used", "n_ff_shexp": "n_ff_shexp or n_ff"}
_SHARED_FF = {"n_ff_shexp": "n_ff_exp*n_expert_shared"}

_QWEN_ATTN = (_ATTN_NORM, _POST_NORM, _QKV_GATED, _WO, *_QK_NORM)
_QWEN_MOE = (*_MOE, _GATE_UP, _SHARED_GATE, *_SHARED)

_QWEN35 = MtpArch(
    source="qwen35.cpp",
    block=(*_QWEN_ATTN, *_DENSE, *_NEXTN),
    model=_TIED,
    trunk_only=False,
    graph_if=(_HEAD_SIZES,),
    arrays=_RECURRENT,
)
_QWEN35MOE = MtpArch(
    source="qwen35moe.cpp",
    block=(*_QWEN_ATTN, *_QWEN_MOE, *_NEXTN),
    model=_TIED,
    trunk_only=False,
    graph_if=(_HEAD_SIZES,),
    fallbacks=_QWEN_FF,
    arrays=(*_EXPERT_FF, *_RECURRENT),
)
_QWEN3NEXT = replace(
    _QWEN35MOE,
    source="qwen3next.cpp",
    load_if=(_ATTENTION,),
    fallbacks={
        "n_ff_exp": "n_ff_exp or n_ff // n_expert_used",
        "n_ff_shexp": "n_ff_shexp or n_ff_l",
    },
)


def _hc(part: str) -> tuple[Tensor, ...]:
    """The hyper-connection tensors of one half of a qwen4exp block."""
    return (
        Tensor(f"hc_{part}_norm.weight", ("n_embd", "n_hc"), reshape=True),
        _t(f"hc_{part}_down.weight", "n_hc*n_embd", "n_lora_hc"),
        _t(f"hc_{part}_up.weight", "n_lora_hc", "n_hc*n_embd"),
        _t(f"hc_{part}_inject.weight", "n_hc*n_embd", "n_hc"),
    )


def _hc_mix(part: str) -> tuple[Tensor, ...]:
    """The hyper-connection tensors of one half of a deepseek4 or glm5-next block."""
    return (
        _t(f"hc_{part}_fn.weight", "n_hc*n_embd", "(2 + n_hc)*n_hc"),
        _t(f"hc_{part}_base.weight", "(2 + n_hc)*n_hc"),
        _t(f"hc_{part}_scale.weight", "3"),
    )


_QWEN4EXP = MtpArch(
    source="qwen4exp.cpp",
    block=(
        *_hc("attn"),
        *_hc("ffn"),
        replace(_QKV_GATED, graph_form="split"),  # qwen4exp.cpp:950
        _WO,
        *_QK_NORM,
        _t("indexer.q_proj.weight", "n_embd", "n_head_indexer*n_embd_indexer"),
        _t("indexer.k_proj.weight", "n_embd", "n_embd_indexer"),
        _t("indexer.q_norm.weight", "n_embd_indexer"),
        _t("indexer.k_norm.weight", "n_embd_indexer"),
        *_QWEN_MOE,
        _t("nextn.eh_proj.weight", "2*n_embd", "n_embd"),
        _t("nextn.enorm.weight", "n_embd"),
        Tensor("nextn.hnorm.weight", ("n_embd", "n_hc"), reshape=True),
        Tensor("nextn.hc_head_norm.weight", ("n_embd", "n_hc"), reshape=True),
        _t("nextn.hc_head_down.weight", "n_hc*n_embd", "n_lora_hc"),
        _t("nextn.hc_head_up.weight", "n_lora_hc", "n_hc*n_embd"),
    ),
    model=(
        _TOKEN_EMBD,
        Tensor("output_hc_norm.weight", ("n_embd", "n_hc"), need="trunk", reshape=True),
        _t("output_hc_down.weight", "n_hc*n_embd", "n_lora_hc", need="trunk"),
        _t("output_hc_up.weight", "n_lora_hc", "n_hc*n_embd", need="trunk"),
        replace(_OUTPUT, need="optional"),
    ),
    trunk_only=False,
    trunk_probe="blk.0.hc_attn_norm.weight",
    load_if=(_ATTENTION,),
    fallbacks=_QWEN_FF,
    arrays=(*_EXPERT_FF, *_RECURRENT, "attention.compress_ratios"),
)

_GLM4MOE = MtpArch(
    source="glm4-moe.cpp",
    block=(
        _ATTN_NORM,
        _QKV,
        _WO,
        *_optional(*_QK_NORM),
        _POST_NORM,
        *_when(_MOE_BLOCK, *_MOE_SPLIT, _PROBS_B),
        *_when(f"{_MOE_BLOCK} and n_expert_shared > 0", *_SHARED),
        *_when(_DENSE_BLOCK, *_DENSE),
        *_NEXTN,
    ),
    model=_TIED,
    graph_if=(_HEAD_SIZES, _MOE_ONLY),
    fallbacks={
        "n_ff_exp": "n_ff_exp or n_ff // n_expert_used",
        "n_ff_shexp": "n_ff_exp*n_expert_shared",
    },
    arrays=_EXPERT_FF,
)

_MLA_GRAPH = ("n_embd_head_k_mla > 0 and n_embd_head_v_mla > 0", "it has no MLA head sizes")
_DEEPSEEK2 = MtpArch(
    source="deepseek2.cpp",
    block=(
        _ATTN_NORM,
        *_when("n_lora_q > 0", *_MLA_Q),
        _t("attn_q.weight", "n_embd", "n_head*n_embd_head_k_mla", when="n_lora_q == 0"),
        *_MLA_KV,
        *_when("is_mla", *_MLA_B),
        _t(
            "attn_kv_b.weight",
            "n_lora_kv",
            "n_head*(n_embd_head_k_mla - n_rot + n_embd_head_v_mla)",
            when="not is_mla",
        ),
        _MLA_WO,
        _FFN_NORM,
        *_when(_DENSE_BLOCK, *_DENSE),
        *_when(_MOE_BLOCK, *_MOE, replace(_PROBS_B, need="optional"), *_SHARED),
        replace(_GATE_UP, when=_MOE_BLOCK),
        *_NEXTN,
    ),
    model=_TIED,
    graph_if=(
        ("is_mla", "its attention is not in MLA form (no key_length_mla)"),
        ("n_lora_q > 0", "it has no q_lora_rank (a lite model)"),
        ("not attn_temp_scale", "it uses attention temperature scaling"),
        _MOE_ONLY,
    ),
    fallbacks={
        # The lite variants ignore the key (deepseek2.cpp:8-15).
        "n_lora_q": "n_lora_q*(n_layer != 26)*(n_layer != 27)*(n_layer != 48 or n_vocab != 128256)",
        "n_embd_head_k_mla": "n_embd_head_k_mla if is_mla else n_embd_head_k",
        "n_embd_head_v_mla": "n_embd_head_v_mla if is_mla else n_embd_head_v",
        **_SHARED_FF,
    },
    arrays=_EXPERT_FF,
)
_DEEPSEEK32 = MtpArch(
    source="deepseek32.cpp",
    block=(
        _ATTN_NORM,
        *_MLA,
        _FFN_NORM,
        *_INDEXER,
        *_when(_DENSE_BLOCK, *_DENSE),
        *_when(_MOE_BLOCK, *_MOE_SPLIT, replace(_PROBS_B, need="optional"), *_SHARED),
        *_NEXTN,
    ),
    model=_TIED,
    load_if=(("is_mla", "its attention is not in MLA form (no key_length_mla)"),),
    graph_if=(_MOE_ONLY,),
    fallbacks=_SHARED_FF,
    arrays=_EXPERT_FF,
)
_GLM_DSA = replace(
    _DEEPSEEK32,
    source="glm-dsa.cpp",
    block=(
        _ATTN_NORM,
        *_MLA,
        _FFN_NORM,
        *_optional(*_INDEXER),
        *_when(_DENSE_BLOCK, *_DENSE),
        *_when(_MOE_BLOCK, *_MOE_SPLIT, replace(_PROBS_B, need="optional"), *_SHARED),
        *_NEXTN,
    ),
)

_DEEPSEEK4 = MtpArch(
    source="deepseek4.cpp",
    block=(
        _ATTN_NORM,
        _t("attn_sinks.weight", "n_head"),
        _t("attn_q_a.weight", "n_embd", "n_lora_q"),
        _t("attn_q_a_norm.weight", "n_lora_q"),
        _t("attn_q_b.weight", "n_lora_q", "n_head*n_embd_head_k"),
        _t("attn_kv.weight", "n_embd", "n_embd_head_k"),
        _t("attn_kv_a_norm.weight", "n_embd_head_k"),
        Tensor("attn_output_a.weight", ("n_head*n_embd_head_k", "n_lora_o"), reshape=True),
        _t("attn_output_b.weight", "n_group_o*n_lora_o", "n_embd"),
        *_hc_mix("attn"),
        *_hc_mix("ffn"),
        *_when(
            "ratio",
            _t("attn_compressor_kv.weight", "n_embd", "(1 + (ratio == 4))*n_embd_head_k"),
            _t("attn_compressor_gate.weight", "n_embd", "(1 + (ratio == 4))*n_embd_head_k"),
            _t("attn_compressor_ape.weight", "(1 + (ratio == 4))*n_embd_head_k", "ratio"),
            _t("attn_compressor_norm.weight", "n_embd_head_k"),
        ),
        *_when(
            "ratio == 4",
            _t("indexer.proj.weight", "n_embd", "n_head_indexer"),
            _t("indexer.attn_q_b.weight", "n_lora_q", "n_head_indexer*n_embd_indexer"),
            _t("indexer_compressor_kv.weight", "n_embd", "2*n_embd_indexer"),
            _t("indexer_compressor_gate.weight", "n_embd", "2*n_embd_indexer"),
            _t("indexer_compressor_ape.weight", "2*n_embd_indexer", "ratio"),
            _t("indexer_compressor_norm.weight", "n_embd_indexer"),
        ),
        _t("ffn_gate_tid2eid.weight", "n_expert_used", "n_vocab", when="block < n_layer_hash"),
        replace(_PROBS_B, when="block >= n_layer_hash"),
        _t("exp_probs_b_vl.bias", "n_expert", need="optional"),
        _FFN_NORM,
        *_MOE_SPLIT,
        *_SHARED,
        *_NEXTN,
    ),
    model=(
        *_UNTIED,
        _t("output_hc_fn.weight", "n_hc*n_embd", "n_hc"),
        _t("output_hc_base.weight", "n_hc"),
        _t("output_hc_scale.weight", "1"),
    ),
    trunk_only=False,
    probe_zeroes=True,
    load_if=(("ratio in (0, 4, 128)", "its compress_ratios entry is not 0, 4 or 128"),),
    graph_if=(
        ("block >= n_layer_hash", "the MTP block is hash-routed (hash_layer_count)"),
        ("ratio == 0", "compress_ratios is not 0 at the MTP block"),
        _HEAD_SIZES,
    ),
    fallbacks=_SHARED_FF,
    arrays=(*_EXPERT_FF, *_CLAMPS),
)

_STEP35 = MtpArch(
    source="step35.cpp",
    block=(
        _ATTN_NORM,
        *_optional(*_QK_NORM),
        QKV("n_embd_head_k*n_head_l", "n_embd_k_gqa_l", "n_embd_v_gqa_l"),
        _t("attn_output.weight", "n_embd_head_v*n_head_l", "n_embd"),
        _t("attn_gate.weight", "n_embd", "n_head_l", need="optional"),
        _FFN_NORM,
        Ffn(_DENSE, (*_MOE_SPLIT, replace(_PROBS_B, need="optional")), _SHARED),
        *_NEXTN,
    ),
    model=(_TOKEN_EMBD, _OUTPUT_NORM, replace(_OUTPUT, need="trunk")),
    n_heads=None,
    arrays=(*_EXPERT_FF, *_CLAMPS),
)
_MIMO2 = MtpArch(
    source="mimo2.cpp",
    block=(
        QKV("n_embd_head_k*n_head_l", "n_embd_k_gqa_l", "n_embd_v_gqa_l", graph_form="fused"),
        _t("attn_output.weight", "n_embd_head_v*n_head_l", "n_embd"),
        _ATTN_NORM,
        _t("attn_sinks.weight", "n_head_l", need="optional"),
        _FFN_NORM,
        *(replace(row, need="graph") for row in _DENSE),
        *_optional(*_MOE_SPLIT, _PROBS_B),
        *_NEXTN,
        _t("layer_output_norm.weight", "n_embd", need="optional"),
    ),
    model=_UNTIED,
    n_heads=None,
    arrays=_EXPERT_FF,
)
_HY_V3 = MtpArch(
    source="hy-v3.cpp",
    block=(
        _ATTN_NORM,
        _QKV,
        _WO,
        *_QK_NORM,
        _FFN_NORM,
        Ffn(_DENSE, (*_MOE, _GATE_UP, _t("exp_probs_b", "n_expert", need="optional")), _SHARED),
        *_NEXTN,
    ),
    model=_TIED,
    n_heads=None,
    graph_if=(_HEAD_SIZES, _ROPE_SIZE),
    fallbacks={
        "n_ff_exp": "n_ff_exp or n_ff // (n_expert_used or 1)",
        "n_ff_shexp": "n_ff_shexp or n_ff_exp",
    },
    arrays=_EXPERT_FF,
)
_COHERE2MOE = MtpArch(
    source="cohere2moe.cpp",
    block=(
        _ATTN_NORM,
        QKV("n_embd_head_k*n_head", "n_embd_v_gqa", "n_embd_v_gqa"),
        _WO,
        *_MOE,
        _GATE_UP,
        *_when("n_expert_shared > 0", *_SHARED),
        *_NEXTN,
    ),
    model=_TIED,
    graph_if=(_HEAD_SIZES, _ROPE_SIZE),
    fallbacks={
        "n_ff_exp": "n_ff_exp or n_ff",
        "n_ff_shexp": "n_ff_shexp or n_ff_exp*n_expert_shared",
    },
    arrays=_EXPERT_FF,
)
_BAILINGMOE3 = MtpArch(
    source="bailingmoe3.cpp",
    block=(
        _ATTN_NORM,
        *_when("n_lora_q > 0", *_MLA_Q),
        _t("attn_q.weight", "n_embd", "n_head*n_embd_head_k_mla", when="n_lora_q == 0"),
        *_MLA_KV,
        *_MLA_B,
        _t("attn_gate.weight", "n_embd", "n_head"),
        _MLA_WO,
        _FFN_NORM,
        *_MOE_SPLIT,
        _PROBS_B,
        *_SHARED,
        *_EH,
        _t("layer_output_norm.weight", "n_embd"),
    ),
    model=_TIED,
    fallbacks={"n_ff_shexp": "n_ff_shexp or n_ff_exp*(n_expert_shared or 1)"},
    arrays=(*_EXPERT_FF, *_CLAMPS),
)
_LATENT = (
    _t("ffn_latent_down.weight", "n_embd", "n_embd_latent"),
    _t("ffn_latent_up.weight", "n_embd_latent", "n_embd"),
)
_NEMOTRON_H_MOE = MtpArch(
    source="nemotron-h.cpp",
    block=(
        *_EH,
        replace(_HEAD_NORM, need="required"),
        _ATTN_NORM,
        QKV("n_embd_head_k*n_head_l", "n_embd_k_gqa_l", "n_embd_v_gqa_l"),
        _t("attn_output.weight", "n_embd_head_k*n_head_l", "n_embd"),
        _t("attn_output.bias", "n_embd", need="optional"),
        _POST_NORM,
        _GATE_INP,
        _PROBS_B,
        *_when("n_embd_latent == n_embd", *_optional(*_LATENT)),
        *_when("n_embd_latent != n_embd", *(replace(row, need="graph") for row in _LATENT)),
        _t("ffn_down_exps.weight", "n_ff_exp_l", "n_embd_latent", "n_expert"),
        _t("ffn_up_exps.weight", "n_embd_latent", "n_ff_exp_l", "n_expert"),
        _t("ffn_down_shexp.weight", "n_ff_shexp", "n_embd"),
        _t("ffn_up_shexp.weight", "n_embd", "n_ff_shexp"),
    ),
    model=_TIED,
    trunk_only=False,
    graph_if=(_HEAD_SIZES,),
    fallbacks={
        "n_ff_exp_l": "n_ff_exp_l or n_ff // n_expert_used_l",
        "n_embd_latent": "n_embd_latent or n_embd",
    },
    arrays=_EXPERT_FF,
)

_NO_GRAPH = f"llama.cpp {LLAMA_BUILD} keeps the tensors of this architecture but has no MTP graph"

_GLM5_NEXT = MtpArch(
    source="glm5-next.cpp",
    block=(
        _ATTN_NORM,
        _FFN_NORM,
        *_MLA,
        *_INDEXER,
        _t("indexer_compressor_gate.weight", "n_embd", "n_embd_indexer"),
        _t("indexer_compressor_ape.weight", "n_embd_indexer", "n_kpool"),
        *_when(_DENSE_BLOCK, *_DENSE),
        *_when(
            _MOE_BLOCK,
            _GATE_INP,
            _PROBS_B,
            _t("ffn_gate_exps.weight", "n_embd", "n_ff_exp_l", "n_expert"),
            _t("ffn_down_exps.weight", "n_ff_exp_l", "n_embd", "n_expert"),
            _t("ffn_up_exps.weight", "n_embd", "n_ff_exp_l", "n_expert"),
            *_SHARED,
        ),
        *_NEXTN,
    ),
    model=_UNTIED,
    no_graph=_NO_GRAPH,
    trunk_only=False,
    head_only=False,
    load_if=(("n_head_kv_l != 0", "head_count_kv marks the MTP block as recurrent"),),
    fallbacks={"n_ff_shexp": "n_ff_exp_l*n_expert_shared"},
    arrays=(*_EXPERT_FF, *_CLAMPS),
)
_BAILINGMOE2 = MtpArch(
    source="bailingmoe2.cpp",
    block=(
        _ATTN_NORM,
        _t("attn_qkv.weight", "n_embd", "n_embd + 2*n_embd_v_gqa"),
        _WO,
        *_QK_NORM,
        _FFN_NORM,
        *_when(_MOE_BLOCK, *_MOE_SPLIT, replace(_PROBS_B, need="optional"), *_SHARED),
        *_when(_DENSE_BLOCK, *_DENSE),
        *_NEXTN,
        _t("layer_output_norm.weight", "n_embd"),
    ),
    model=_UNTIED,
    no_graph=_NO_GRAPH,
    skipped=True,
    trunk_only=False,
    head_only=False,
    fallbacks={"n_ff_shexp": "(n_ff_shexp or n_ff_exp)*n_expert_shared"},
    arrays=_EXPERT_FF,
)
_EXAONE_MOE = MtpArch(
    source="exaone-moe.cpp",
    block=(
        QKV("n_head*n_embd_head_k", "n_head_kv*n_embd_head_k", "n_head_kv*n_embd_head_k"),
        _t("attn_output.weight", "n_head*n_embd_head_k", "n_embd"),
        _ATTN_NORM,
        *_QK_NORM,
        _FFN_NORM,
        *_DENSE,
        *_NEXTN,
    ),
    model=_UNTIED,
    no_graph=_NO_GRAPH,
    skipped=True,
    trunk_only=False,
    head_only=False,
    # Each MTP block counts rope_freqs once more, so the tensor total no longer agrees.
    load_if=(("not has_rope_freqs", "rope_freqs.weight and MTP blocks do not load together"),),
    arrays=_EXPERT_FF,
)
_EXAONE4 = MtpArch(
    source="exaone4.cpp",
    block=(
        _QKV,
        _t("attn_output.weight", "n_embd", "n_embd"),
        _POST_NORM,
        *_QK_NORM,
        *_DENSE,
        _t("post_ffw_norm.weight", "n_embd"),
        *_EH,
        _HEAD_NORM,
    ),
    model=_TIED,
    no_graph=_NO_GRAPH,
    skipped=True,
    trunk_only=False,
    head_only=False,
    trunk_probe="blk.0.post_attention_norm.weight",
)
_GLM4 = MtpArch(
    source="glm4.cpp",
    block=(
        _ATTN_NORM,
        _QKV,
        _WO,
        _POST_NORM,
        _FFN_NORM,
        _t("ffn_down.weight", "n_ff", "n_embd"),
        _t("ffn_up.weight", "n_embd", "2*n_ff"),
        _t("post_ffw_norm.weight", "n_embd"),
        *_NEXTN,
    ),
    model=_TIED,
    no_graph=_NO_GRAPH,
    skipped=True,
    trunk_only=False,
    head_only=False,
)
_DOTS3NOTE = MtpArch(
    source="dots3note.cpp",
    block=(
        _ATTN_NORM,
        _t("attn_q_a_norm.weight", "n_lora_q"),
        _t("attn_kv_a_norm.weight", "n_lora_kv_swa"),
        _t("attn_k_norm.weight", "n_rot"),
        _t("attn_q_a.weight", "n_embd", "n_lora_q"),
        _t("attn_q_b.weight", "n_lora_q", "n_head_l*n_embd_head_k_mla_swa"),
        _t("attn_kv_a_mqa.weight", "n_embd", "n_lora_kv_swa + n_rot"),
        _t("attn_k_b.weight", "n_embd_head_k_mla_swa - n_rot", "n_lora_kv_swa", "n_head_l"),
        _t("attn_v_b.weight", "n_lora_kv_swa", "n_embd_head_v_mla_swa", "n_head_l"),
        _t("attn_output.weight", "n_head_l*n_embd_head_v_mla_swa", "n_embd"),
        _t("attn_gate.weight", "n_embd", "n_head_l"),
        _FFN_NORM,
        *_DENSE,
        *_EH,
        _EMBED_TOKENS,
        _HEAD_NORM,
    ),
    model=_TIED,
    no_graph=_NO_GRAPH,
    skipped=True,
    all_optional=True,
    head_only=False,
    arrays=_EXPERT_FF,
)
_GEMMA4_ASSISTANT = MtpArch(
    source="gemma4-assistant.cpp",
    block=(
        _ATTN_NORM,
        _t("attn_q.weight", "n_embd", "n_embd_head_k_l*n_head_l"),
        _t("attn_output.weight", "n_embd_head_k_l*n_head_l", "n_embd"),
        _t("attn_q_norm.weight", "n_embd_head_k_l"),
        _POST_NORM,
        _t("layer_output_scale.weight", "1"),
        _FFN_NORM,
        _t("ffn_gate.weight", "n_embd", "n_ff_l"),
        _t("ffn_up.weight", "n_embd", "n_ff_l"),
        _t("ffn_down.weight", "n_ff_l", "n_embd"),
        _t("post_ffw_norm.weight", "n_embd"),
    ),
    model=(
        _TOKEN_EMBD,
        _OUTPUT_NORM,
        _t("nextn.pre_projection.weight", "2*n_embd_out", "n_embd"),
        _t("nextn.post_projection.weight", "n_embd", "n_embd_out"),
        _t("rope_freqs.weight", "n_embd_head_k_full // 2", when="any_full_attention"),
    ),
    n_heads=None,
    trunk_only=False,
    trunk_probe="",
    load_if=(
        ("n_embd_out != n_embd", "embedding_length_out does not carry the target's hidden size"),
        _HEAD_SIZES,
    ),
    graph_if=(
        ("n_layer == 0", "nextn_predict_layers is not block_count"),
        ("n_embd_head_k_l == n_embd_head_v_l", _HEAD_SIZES[1]),
    ),
)

MTP_ARCHS: dict[str, MtpArch] = {
    "qwen35": _QWEN35,
    "qwen35moe": _QWEN35MOE,
    "qwen3next": _QWEN3NEXT,
    "qwen4exp": _QWEN4EXP,
    "glm4moe": _GLM4MOE,
    "deepseek2": _DEEPSEEK2,
    "deepseek32": _DEEPSEEK32,
    "glm-dsa": _GLM_DSA,
    "deepseek4": _DEEPSEEK4,
    "step35": _STEP35,
    "mimo2": _MIMO2,
    "hy_v3": _HY_V3,
    "cohere2moe": _COHERE2MOE,
    "bailingmoe3": _BAILINGMOE3,
    "nemotron_h_moe": _NEMOTRON_H_MOE,
    "nemotron_h": replace(_NEMOTRON_H_MOE, no_graph=_NO_GRAPH),
    "glm5-next": _GLM5_NEXT,
    "bailingmoe2": _BAILINGMOE2,
    "exaone-moe": _EXAONE_MOE,
    "exaone4": _EXAONE4,
    "glm4": _GLM4,
    "dots3note": _DOTS3NOTE,
    "gemma4-assistant": _GEMMA4_ASSISTANT,
}

# The one difference found to libllama 0.5.0, which llama-cpp-python 0.3.36 bundles: it loads no MTP
# block of these, so their files are refused there.
NO_MTP_IN_LIBLLAMA_0_5 = frozenset({"qwen4exp"})

# graniteswitch counts a router layer as nextn (granite-switch.cpp:57-67); the others are drafts.
NOT_MTP = frozenset({"graniteswitch", "eagle3", "dflash"})

# How a tensor of the HF side or of an old converter starts; llama.cpp knows none of them.
LEGACY_NAMES = ("mtp.", "model.mtp.", "model.layers.")
LEGACY_PARTS = (".nextn.shared_head.", ".nextn.fc.", ".nextn.norm.")

# Weights with companions `.scale` and `.input_scale`, by length (src/llama-model.cpp:1607-1776).
SCALED: dict[str, str] = {
    "attn_q": "1",
    "attn_k": "1",
    "attn_v": "1",
    "attn_output": "1",
    "attn_qkv": "1",
    "attn_gate": "1",
    "ffn_gate": "1",
    "ffn_down": "1",
    "ffn_up": "1",
    "ffn_gate_shexp": "1",
    "ffn_down_shexp": "1",
    "ffn_up_shexp": "1",
    "ffn_gate_exps": "n_expert",
    "ffn_down_exps": "n_expert",
    "ffn_up_exps": "n_expert",
    "nextn.eh_proj": "1",
    "nextn.shared_head_head": "1",
}

RollbackClass = Literal["PART", "RS", "FULL"]

# src/llama-arch.cpp:1110-1179. Everything else keeps a plain KV cache.
_RS = {
    "bailingmoe3", "deepseek4", "glm5-next", "kimi-k3", "lfm2", "lfm2moe", "nemotron_h",
    "nemotron_h_moe", "qwen35", "qwen35moe", "qwen4exp",
}  # fmt: skip
_FULL = {
    "arwkv7", "falcon-h1", "granitehybrid", "jamba", "kimi-linear", "mamba", "mamba2", "minimax-01",
    "plamo2", "qwen3next", "rwkv6", "rwkv6qwen2", "rwkv7",
}  # fmt: skip


def rollback_class(arch: str) -> RollbackClass:
    """How a target of that architecture undoes rejected tokens.

    PART cuts its KV cache anywhere, RS goes back up to n_rs_seq tokens, FULL needs a checkpoint.
    """
    return "RS" if arch in _RS else "FULL" if arch in _FULL else "PART"
