"""What llama.cpp's converter makes of the MTP part of each Hugging Face model class: data.

Read off conversion/*.py and gguf-py/gguf/tensor_mapping.py of the build below; `source` names the
file under conversion/.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

CONVERTER_BUILD = "b11434"

# How the MTP tensors are called: model.layers.N beyond the trunk, mtp.layers.i with mtp.fc beside
# them, and one spelling each for the rest. "assistant" is nothing but a head.
Naming = Literal[
    "layers", "qwen", "exaone", "mimo", "nemotron", "deepseek4", "dots3", "assistant", "dropped"
]
# What the converter does with MTP tensors when the config counts none of them.
Uncounted = Literal["infer", "drop", "fail"]


@dataclass(frozen=True, slots=True)
class Family:
    """One way of converting; `arch` is the architecture of the GGUF."""

    arch: str
    source: str
    naming: Naming = "layers"
    key: str = "num_nextn_predict_layers"
    drops: str = ""  # says how the converter leaves the MTP tensors out, empty where it keeps them
    flag_only: bool = False  # the head is written by --mtp alone, into a file of its own
    flags: bool = True  # the class takes --mtp and --no-nextn
    uncounted: Uncounted = "fail"
    null_fails: bool = True  # a null count is not taken as 0
    asserts: bool = False  # no count and no MTP tensor: a bare AssertionError
    n_fixed: int | None = None  # the count is not in the config


_QWEN = Family(
    "qwen35", "qwen.py", "qwen", "mtp_num_hidden_layers", uncounted="infer", asserts=True
)
_DEEPSEEK2 = Family(
    "deepseek2",
    "deepseek.py",
    drops="it skips every layer from num_hidden_layers on, without a message",
    flags=False,
    uncounted="drop",
    null_fails=False,
)
_GLM4MOE = Family("glm4moe", "glm.py")
_NEMOTRON = Family("nemotron_h_moe", "nemotron.py", "nemotron", null_fails=False)
_EXAONE4 = Family("exaone4", "exaone.py", "exaone", flags=False, uncounted="drop", null_fails=False)
_BAILING2 = Family("bailingmoe2", "bailingmoe.py", flags=False, null_fails=False)
_BAILING3 = Family("bailingmoe3", "bailingmoe3.py", null_fails=False)
_DOTS3 = Family("dots3note", "dots3.py", "dots3", key="", null_fails=False)
_STEP35 = Family("step35", "step3.py")
_MIMO2 = Family("mimo2", "mimo.py", "mimo", key="", n_fixed=3, null_fails=False)
_EXAONE_MOE = Family("exaone-moe", "exaone.py", "exaone", flags=False)
_ASSISTANT = Family("gemma4-assistant", "gemma.py", "assistant", key="", flags=False)


def _dropped(arch: str, source: str, drops: str) -> Family:
    return Family(arch, source, "dropped", drops=drops, flags=False, uncounted="drop",
                  null_fails=False)  # fmt: skip


FAMILIES: dict[str, Family] = {
    "Qwen3NextForCausalLM": replace(_QWEN, arch="qwen3next"),
    **dict.fromkeys(("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"), _QWEN),
    **dict.fromkeys(
        ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
        replace(_QWEN, arch="qwen35moe"),
    ),
    **dict.fromkeys(
        ("Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM"),
        replace(_QWEN, arch="qwen4exp", source="qwen4exp.py"),
    ),
    "MiniCPMV4_6ForConditionalGeneration": replace(
        _QWEN, source="minicpm.py", drops="it skips every tensor whose name starts with mtp"
    ),
    **dict.fromkeys(
        (
            "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekOCRForCausalLM",
            "UnlimitedOCRForCausalLM", "KimiVLForConditionalGeneration",
            "KimiK25ForConditionalGeneration", "YoutuForCausalLM",
            "YoutuVLForConditionalGeneration",
        ),
        _DEEPSEEK2,
    ),
    "DeepseekV32ForCausalLM": Family("deepseek32", "deepseek.py"),
    "DeepseekV4ForCausalLM": Family(
        "deepseek4",
        "deepseek.py",
        "deepseek4",
        drops="it skips mtp.* unless --mtp is given",
        flag_only=True,
        uncounted="drop",
        null_fails=False,
    ),
    "GlmOcrForConditionalGeneration": Family("glm4", "glm.py", flags=False),
    **dict.fromkeys(("Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration"), _GLM4MOE),
    "SolarOpenForCausalLM": replace(_GLM4MOE, flags=False),
    "Glm4MoeLiteForCausalLM": Family("deepseek2", "glm.py", uncounted="drop"),
    "GlmMoeDsaForCausalLM": Family("glm-dsa", "glm.py"),
    "Glm5NextForConditionalGeneration": Family("glm5-next", "glm.py"),
    "HYV3ForCausalLM": Family("hy_v3", "hunyuan.py"),
    "HYV4ForCausalLM": _dropped("hy_v4", "hy_v4.py", "it skips model.mtp_layers.*, with a warning"),
    **dict.fromkeys(("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"), _STEP35),
    **dict.fromkeys(("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"), _MIMO2),
    "NemotronHForCausalLM": _NEMOTRON,
    "NemotronHPuzzleForCausalLM": replace(
        _NEMOTRON, drops="it skips mtp.*: the head has another layout", flags=False
    ),
    "Cohere2MoeForCausalLM": Family("cohere2moe", "command_r.py", flags=False),
    **dict.fromkeys(
        (
            "BailingMoeV2ForCausalLM", "SarvamMoEForCausalLM",
            "modeling_sarvam_moe.SarvamMoEForCausalLM",
        ),
        _BAILING2,
    ),
    **dict.fromkeys(
        ("BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"), _BAILING3
    ),
    **dict.fromkeys(("ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM"), _EXAONE_MOE),
    "Exaone4_5_ForConditionalGeneration": _EXAONE4,
    **dict.fromkeys(
        (
            "Dots3NoteForCausalLM", "Dots3NoteForConditionalGeneration",
            "Dots3NoteTextForCausalLM",
        ),
        _DOTS3,
    ),
    **dict.fromkeys(
        ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"), _ASSISTANT
    ),
    "Ernie4_5_MoeForCausalLM": _dropped(
        "ernie4_5-moe", "ernie.py", "it skips model.mtp_*, without a message"
    ),
}  # fmt: skip

# Configs count trunk layers under one of these (conversion/base.py:1358).
LAYER_KEYS = ("n_layers", "num_hidden_layers", "n_layer", "num_layers")
MTP_KEYS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")

_ATTENTION = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_a_proj": "attn_q_a",
    "q_a_layernorm": "attn_q_a_norm",
    "q_b_proj": "attn_q_b",
    "kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "kv_a_layernorm": "attn_kv_a_norm",
    "g_proj": "attn_gate",
}
_DENSE = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
_INDEXER = {
    "wq_b": "indexer.attn_q_b",
    "wk": "indexer.attn_k",
    "k_norm": "indexer.k_norm",
    "weights_proj": "indexer.proj",
    "q_layernorm": "indexer.q_norm",
    "k_layernorm": "indexer.k_norm",
    "index_kpool_compress_ape": "indexer_compressor_ape",
    "index_kpool_compress_gate": "indexer_compressor_gate",
}
_HC = {
    "hc_norm": "norm",
    "input_mix_weight_down": "down",
    "input_mix_weight_up": "up",
    "block_inject_weight": "inject",
}
_HC_MIX = {f"hc_{part}_{what}": f"hc_{part}_{what}"
           for part in ("attn", "ffn") for what in ("fn", "base", "scale")}  # fmt: skip

# A tensor of one block without its `.weight` or `.bias`: Hugging Face name to GGUF name.
BLOCK_NAMES: dict[str, str] = {
    "eh_proj": "nextn.eh_proj",
    "enorm": "nextn.enorm",
    "hnorm": "nextn.hnorm",
    "embed_tokens": "nextn.embed_tokens",
    "shared_head.norm": "nextn.shared_head_norm",
    "shared_head.head": "nextn.shared_head_head",
    "input_layernorm": "attn_norm",
    "norm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "pre_mlp_layernorm": "ffn_norm",
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "final_layernorm": "layer_output_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "attention.query_layernorm": "attn_q_norm",
    "attention.key_layernorm": "attn_k_norm",
    "self_attn.k_rope_only_layernorm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "self_attn.attention_sink_bias": "attn_sinks",
    "attn_k_b": "attn_k_b",
    "attn_v_b": "attn_v_b",
    "indexer.q_proj": "indexer.q_proj",
    "indexer.k_proj": "indexer.k_proj",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router.gate": "ffn_gate_inp",
    "moe.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction": "exp_probs_b",
    "mlp.e_score_correction": "exp_probs_b",
    "mlp.gate.expert_bias": "exp_probs_b",
    "mlp.expert_bias": "exp_probs_b",
    "moe.router_bias": "exp_probs_b",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.gate_up_proj": "ffn_up",
    **{f"self_attn.{name}": to for name, to in _ATTENTION.items()},
    **{f"attention.{name}": to for name, to in _ATTENTION.items()},
    **{f"self_attn.indexer.{name}": to for name, to in _INDEXER.items()},
    **{f"mlp.{name}": to for name, to in _DENSE.items()},
    **{
        f"{shared}.{name}": f"{to}_shexp"
        for shared in ("mlp.shared_expert", "mlp.shared_experts", "mlp.shared_mlp", "share_expert")
        for name, to in _DENSE.items()
    },
    **{f"mlp.experts.{name}": f"{to}_exps" for name, to in _DENSE.items()},
    **{f"moe.{name}": f"{to}_exps" for name, to in _DENSE.items()},
    **{f"attn_hyper_connection.{name}": f"hc_attn_{to}" for name, to in _HC.items()},
    **{f"mlp_hyper_connection.{name}": f"hc_ffn_{to}" for name, to in _HC.items()},
    **{f"hyper_connection_mixer.{name}": f"nextn.hc_head_{to}" for name, to in _HC.items()},
    **_HC_MIX,
}  # fmt: skip

# Where an architecture puts one of these elsewhere.
_POST = {"post_attention_layernorm": "post_attention_norm"}
ARCH_NAMES: dict[str, dict[str, str]] = {
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen3next", "glm4moe", "nemotron_h_moe", "nemotron_h",
                     "exaone4"), _POST),
    "hy_v3": {"final_layernorm": "nextn.shared_head_norm"},
    "nemotron_h_moe": {
        **_POST,
        "mixer.q_proj": "attn_q",
        "mixer.k_proj": "attn_k",
        "mixer.v_proj": "attn_v",
        "mixer.o_proj": "attn_output",
        "mixer.gate": "ffn_gate_inp",
        "mixer.gate.e_score_correction": "exp_probs_b",
        "mixer.fc1_latent_proj": "ffn_latent_down",
        "mixer.fc2_latent_proj": "ffn_latent_up",
        "mixer.shared_experts.up_proj": "ffn_up_shexp",
        "mixer.shared_experts.down_proj": "ffn_down_shexp",
        "mixer.experts.up_proj": "ffn_up_exps",
        "mixer.experts.down_proj": "ffn_down_exps",
    },
    "gemma4-assistant": {
        **_POST,
        "pre_feedforward_layernorm": "ffn_norm",
        "layer_scalar": "layer_output_scale",
    },
    "deepseek4": {
        "attn.attn_sink": "attn_sinks",
        "attn.wq_a": "attn_q_a",
        "attn.wq_b": "attn_q_b",
        "attn.q_norm": "attn_q_a_norm",
        "attn.wkv": "attn_kv",
        "attn.kv_norm": "attn_kv_a_norm",
        "attn.wo_a": "attn_output_a",
        "attn.wo_b": "attn_output_b",
        "attn.compressor.ape": "attn_compressor_ape",
        "attn.compressor.wkv": "attn_compressor_kv",
        "attn.compressor.wgate": "attn_compressor_gate",
        "attn.compressor.norm": "attn_compressor_norm",
        "attn.indexer.wq_b": "indexer.attn_q_b",
        "attn.indexer.weights_proj": "indexer.proj",
        "attn.indexer.compressor.ape": "indexer_compressor_ape",
        "attn.indexer.compressor.wkv": "indexer_compressor_kv",
        "attn.indexer.compressor.wgate": "indexer_compressor_gate",
        "attn.indexer.compressor.norm": "indexer_compressor_norm",
        "eh_proj": "nextn.eh_proj",
        "enorm": "nextn.enorm",
        "hnorm": "nextn.hnorm",
        **_HC_MIX,
        "attn_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
        "norm": "nextn.shared_head_norm",
        "ffn.gate": "ffn_gate_inp",
        "ffn.gate.bias": "exp_probs_b",
        "ffn.gate.bias_vl": "exp_probs_b_vl.bias",
        "ffn.gate.tid2eid": "ffn_gate_tid2eid",
        "ffn.shared_experts.w1": "ffn_gate_shexp",
        "ffn.shared_experts.w2": "ffn_down_shexp",
        "ffn.shared_experts.w3": "ffn_up_shexp",
        "ffn.experts.w1": "ffn_gate_exps",
        "ffn.experts.w2": "ffn_down_exps",
        "ffn.experts.w3": "ffn_up_exps",
    },
}  # fmt: skip

# Tensors that stand outside the blocks.
MODEL_NAMES: dict[str, dict[str, str]] = {
    "qwen": {
        "fc": "eh_proj",
        "pre_fc_norm_embedding": "enorm",
        "pre_fc_norm_hidden": "hnorm",
        "norm": "shared_head.norm",
    },
    "assistant": {
        "embed_tokens": "token_embd",
        "norm": "output_norm",
        "pre_projection": "nextn.pre_projection",
        "post_projection": "nextn.post_projection",
    },
    "deepseek4": {
        "hc_head_fn": "output_hc_fn",
        "hc_head_base": "output_hc_base",
        "hc_head_scale": "output_hc_scale",
    },
}

# Both halves of eh_proj, embedding first (qwen4exp.py:146, deepseek.py:787).
EH_HALVES = frozenset({"fc_embedding", "fc_hidden", "e_proj", "h_proj"})
