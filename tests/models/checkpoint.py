"""Writes tiny Hugging Face checkpoints: config, index, safetensors whose weights are holes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[int, ...]]  # PyTorch order
EMBD, VOCAB, FF, HEAD, N_HEAD, N_KV = 32, 64, 48, 16, 2, 1
N_EXPERT, FF_EXP, N_LAYER = 4, 24, 2
Q_LORA, KV_LORA, NOPE, ROPE, V = 12, 16, 8, 8, 16
N_INDEX, INDEX = 2, 16
_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "I64": 8}

_COMMON: dict[str, Any] = {
    "num_hidden_layers": N_LAYER,
    "hidden_size": EMBD,
    "vocab_size": VOCAB,
    "intermediate_size": FF,
    "num_attention_heads": N_HEAD,
    "num_key_value_heads": N_KV,
    "head_dim": HEAD,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
}
_MOE: dict[str, Any] = {
    "num_experts": N_EXPERT,
    "n_routed_experts": N_EXPERT,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": FF_EXP,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}
_MLA: dict[str, Any] = {
    "num_key_value_heads": N_HEAD,
    "q_lora_rank": Q_LORA,
    "kv_lora_rank": KV_LORA,
    "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROPE,
    "v_head_dim": V,
    "index_n_heads": N_INDEX,
    "index_head_dim": INDEX,
    "index_topk": 8,
}
_LINEAR: dict[str, Any] = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "full_attention_interval": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "shared_expert_intermediate_size": FF_EXP,
}


def _gqa(at: str, *, gated: bool = False) -> Shapes:
    n_q = HEAD * N_HEAD * (2 if gated else 1)
    return {
        f"{at}q_proj.weight": (n_q, EMBD),
        f"{at}k_proj.weight": (HEAD * N_KV, EMBD),
        f"{at}v_proj.weight": (HEAD * N_KV, EMBD),
        f"{at}o_proj.weight": (EMBD, HEAD * N_HEAD),
    }


def _qk_norm(at: str) -> Shapes:
    return {f"{at}q_norm.weight": (HEAD,), f"{at}k_norm.weight": (HEAD,)}


def _mla(at: str) -> Shapes:
    return {
        f"{at}q_a_proj.weight": (Q_LORA, EMBD),
        f"{at}q_a_layernorm.weight": (Q_LORA,),
        f"{at}q_b_proj.weight": (N_HEAD * (NOPE + ROPE), Q_LORA),
        f"{at}kv_a_proj_with_mqa.weight": (KV_LORA + ROPE, EMBD),
        f"{at}kv_a_layernorm.weight": (KV_LORA,),
        f"{at}kv_b_proj.weight": (N_HEAD * (NOPE + V), KV_LORA),
        f"{at}o_proj.weight": (EMBD, N_HEAD * V),
    }


def _indexer(at: str) -> Shapes:
    return {
        f"{at}indexer.wq_b.weight": (N_INDEX * INDEX, Q_LORA),
        f"{at}indexer.wk.weight": (INDEX, EMBD),
        f"{at}indexer.k_norm.weight": (INDEX,),
        f"{at}indexer.k_norm.bias": (INDEX,),
        f"{at}indexer.weights_proj.weight": (N_INDEX, EMBD),
    }


def _dense(at: str, n_ff: int = FF) -> Shapes:
    return {
        f"{at}gate_proj.weight": (n_ff, EMBD),
        f"{at}up_proj.weight": (n_ff, EMBD),
        f"{at}down_proj.weight": (EMBD, n_ff),
    }


def _moe(*, shared: str = "shared_experts", bias: str = "gate.e_score_correction_bias") -> Shapes:
    shapes: Shapes = {"mlp.gate.weight": (N_EXPERT, EMBD)}
    if bias:
        shapes[f"mlp.{bias}"] = (N_EXPERT,)
    for i in range(N_EXPERT):
        shapes |= _dense(f"mlp.experts.{i}.", FF_EXP)
    return shapes | _dense(f"mlp.{shared}.", FF_EXP)


_NORMS: Shapes = {"input_layernorm.weight": (EMBD,), "post_attention_layernorm.weight": (EMBD,)}
_NX: Shapes = {
    "eh_proj.weight": (EMBD, 2 * EMBD),
    "enorm.weight": (EMBD,),
    "hnorm.weight": (EMBD,),
}
_SHARED_HEAD: Shapes = {
    "embed_tokens.weight": (VOCAB, EMBD),
    "shared_head.norm.weight": (EMBD,),
    "shared_head.head.weight": (VOCAB, EMBD),
}
_QWEN_NX: Shapes = {
    "mtp.fc.weight": (EMBD, 2 * EMBD),
    "mtp.pre_fc_norm_embedding.weight": (EMBD,),
    "mtp.pre_fc_norm_hidden.weight": (EMBD,),
    "mtp.norm.weight": (EMBD,),
}
_QWEN_ATTN: Shapes = {**_NORMS, **_gqa("self_attn.", gated=True), **_qk_norm("self_attn.")}
_QWEN_MOE: Shapes = {
    **_moe(shared="shared_expert", bias=""),
    "mlp.shared_expert_gate.weight": (1, EMBD),
}
_GQA_BLOCK: Shapes = {**_NORMS, **_gqa("self_attn.")}
_MLA_BLOCK: Shapes = {**_NORMS, **_mla("self_attn.")}


def _at(prefix: str, shapes: Shapes) -> Shapes:
    return {prefix + name: shape for name, shape in shapes.items()}


def _appended(block: Shapes, n: int = 1) -> Shapes:
    """MTP layers after the trunk."""
    return {name: shape for i in range(n)
            for name, shape in _at(f"model.layers.{N_LAYER + i}.", block).items()}  # fmt: skip


_NEXTN = {"num_nextn_predict_layers": 1}
_QWEN_KEY = {"mtp_num_hidden_layers": 1}
_STACKED: Shapes = {
    "mlp.gate.weight": (N_EXPERT, EMBD),
    "mlp.experts.gate_up_proj": (N_EXPERT, 2 * FF_EXP, EMBD),
    "mlp.experts.down_proj": (N_EXPERT, EMBD, FF_EXP),
    **_dense("mlp.shared_expert.", FF_EXP),
    "mlp.shared_expert_gate.weight": (1, EMBD),
}
_STEP_MOE: Shapes = {
    "input_layernorm.weight": (EMBD,),
    "post_attention_layernorm.weight": (EMBD,),
    **_gqa("self_attn."),
    **_qk_norm("self_attn."),
    "self_attn.g_proj.weight": (N_HEAD, EMBD),
    **_dense("mlp."),
    **_NX,
    "transformer.shared_head.norm.weight": (EMBD,),
    "transformer.shared_head.output.weight": (VOCAB, EMBD),
}
_BAILING_ATTN: Shapes = {
    "attention.query_key_value.weight": (HEAD * (N_HEAD + 2 * N_KV), EMBD),
    "attention.dense.weight": (EMBD, HEAD * N_HEAD),
    "attention.query_layernorm.weight": (HEAD,),
    "attention.key_layernorm.weight": (HEAD,),
}
_BAILING_MLA: Shapes = {
    **{name: shape for name, shape in _mla("attention.").items() if "o_proj" not in name},
    "attention.dense.weight": (EMBD, N_HEAD * V),
    "attention.g_proj.weight": (N_HEAD, EMBD),
}
_NEMOTRON: Shapes = {
    **_at("mtp.layers.0.", {**_NX, "norm.weight": (EMBD,), **_gqa("mixer.")}),
    "mtp.layers.1.norm.weight": (EMBD,),
    "mtp.layers.1.final_layernorm.weight": (EMBD,),
    "mtp.layers.1.mixer.gate.weight": (N_EXPERT, EMBD),
    "mtp.layers.1.mixer.gate.e_score_correction_bias": (N_EXPERT,),
    "mtp.layers.1.mixer.shared_experts.up_proj.weight": (FF_EXP, EMBD),
    "mtp.layers.1.mixer.shared_experts.down_proj.weight": (EMBD, FF_EXP),
    **{
        f"mtp.layers.1.mixer.experts.{i}.{name}.weight": shape
        for i in range(N_EXPERT)
        for name, shape in (("up_proj", (FF_EXP, EMBD)), ("down_proj", (EMBD, FF_EXP)))
    },
}
_MIMO: Shapes = {
    **_NX,
    "input_layernorm.weight": (EMBD,),
    "pre_mlp_layernorm.weight": (EMBD,),
    "final_layernorm.weight": (EMBD,),
    "self_attn.qkv_proj.weight": (HEAD * (N_HEAD + 2 * N_KV), EMBD),
    "self_attn.o_proj.weight": (EMBD, HEAD * N_HEAD),
    "self_attn.attention_sink_bias": (N_HEAD,),
    **_dense("mlp."),
}
_HC = 2
_HC_RANK = 8


def _hyper(at: str, *, inject: bool = True) -> Shapes:
    shapes: Shapes = {
        f"{at}.hc_norm.weight": (_HC * EMBD,),
        f"{at}.input_mix_weight_down.weight": (_HC_RANK, _HC * EMBD),
        f"{at}.input_mix_weight_up.weight": (_HC * EMBD, _HC_RANK),
    }
    return shapes | ({f"{at}.block_inject_weight.weight": (_HC, _HC * EMBD)} if inject else {})


_QWEN4: Shapes = {
    "mtp.fc_embedding.weight": (EMBD, EMBD),
    "mtp.fc_hidden.weight": (EMBD, EMBD),
    "mtp.pre_fc_norm_embedding.weight": (EMBD,),
    "mtp.pre_fc_norm_hidden.weight": (_HC * EMBD,),
    **_at("mtp.", _hyper("hyper_connection_mixer", inject=False)),
    **_at(
        "mtp.layers.0.",
        {
            **_hyper("attn_hyper_connection"),
            **_hyper("mlp_hyper_connection"),
            **_gqa("self_attn.", gated=True),
            **_qk_norm("self_attn."),
            "self_attn.indexer.index_qk_proj.weight": ((N_INDEX + 1) * INDEX, EMBD),
            "self_attn.indexer.q_layernorm.weight": (INDEX,),
            "self_attn.indexer.k_layernorm.weight": (INDEX,),
            **_QWEN_MOE,
        },
    ),
}
_EXAONE_ATTN: Shapes = {**_gqa("self_attn."), **_qk_norm("self_attn.")}
_ASSISTANT: Shapes = {
    "pre_projection.weight": (EMBD, 2 * 64),
    "post_projection.weight": (64, EMBD),
    "model.embed_tokens.weight": (VOCAB, EMBD),
    "model.norm.weight": (EMBD,),
    "masked_embedding.centroids.weight": (8, EMBD),
    **{
        f"model.layers.{i}.{name}": shape
        for i in range(N_LAYER)
        for name, shape in {
            **_NORMS,
            "pre_feedforward_layernorm.weight": (EMBD,),
            "post_feedforward_layernorm.weight": (EMBD,),
            "self_attn.q_proj.weight": (HEAD * N_HEAD, EMBD),
            "self_attn.o_proj.weight": (EMBD, HEAD * N_HEAD),
            "self_attn.q_norm.weight": (HEAD,),
            **_dense("mlp."),
            "layer_scalar": (1,),
        }.items()
    },
}

# Class: what its config says besides the common keys, and its MTP tensors.
HEADS: dict[str, tuple[dict[str, Any], Shapes]] = {
    "Qwen3_5ForCausalLM": (
        {**_LINEAR, **_QWEN_KEY},
        {**_QWEN_NX, **_at("mtp.layers.0.", {**_QWEN_ATTN, **_dense("mlp.")})},
    ),
    "Qwen3_5MoeForCausalLM": (
        {**_LINEAR, **_MOE, **_QWEN_KEY},
        {**_QWEN_NX, **_at("mtp.layers.0.", {**_QWEN_ATTN, **_STACKED})},
    ),
    "Qwen3NextForCausalLM": (
        {**_LINEAR, **_MOE},
        {**_QWEN_NX, **_at("mtp.layers.0.", {**_QWEN_ATTN, **_QWEN_MOE})},
    ),
    "Qwen4ExpForCausalLM": (
        {
            **_LINEAR, **_MOE, **_QWEN_KEY, "hc_count": _HC, "hc_lowrank": _HC_RANK,
            "indexer_n_heads": N_INDEX, "indexer_head_dim": INDEX, "indexer_budget": 8,
            "indexer_compress_ratio": 4, "ple_layer_ids": [],
        },
        _QWEN4,
    ),
    "Glm4MoeForCausalLM": (
        {**_MOE, **_NEXTN},
        _appended({**_GQA_BLOCK, **_moe(), **_NX, **_SHARED_HEAD}),
    ),
    "Glm4MoeLiteForCausalLM": (
        {**_MOE, **_MLA, **_NEXTN},
        _appended({**_MLA_BLOCK, **_moe(), **_NX, **_SHARED_HEAD}),
    ),
    "DeepseekV3ForCausalLM": (
        {**_MOE, **_MLA, **_NEXTN},
        _appended({**_MLA_BLOCK, **_moe(), **_NX, **_SHARED_HEAD}),
    ),
    "DeepseekV32ForCausalLM": (
        {**_MOE, **_MLA, **_NEXTN},
        _appended({**_MLA_BLOCK, **_indexer("self_attn."), **_moe(), **_NX, **_SHARED_HEAD}),
    ),
    "GlmMoeDsaForCausalLM": (
        {**_MOE, **_MLA, **_NEXTN},
        _appended({**_MLA_BLOCK, **_indexer("self_attn."), **_moe(), **_NX, **_SHARED_HEAD}),
    ),
    "HYV3ForCausalLM": (
        {**_MOE, **_NEXTN},
        _appended(
            {
                **_GQA_BLOCK, **_qk_norm("self_attn."), **_NX, "final_layernorm.weight": (EMBD,),
                **{
                    name.replace("mlp.gate.weight", "mlp.router.gate.weight"): shape
                    for name, shape in _moe(shared="shared_mlp", bias="expert_bias").items()
                },
            }
        ),
    ),
    "Step3p5ForCausalLM": (
        {
            "num_nextn_predict_layers": 3, "num_attention_groups": N_KV, "sliding_window": 8,
            "moe_num_experts": N_EXPERT, "moe_top_k": 2, "moe_intermediate_size": FF_EXP,
            "share_expert_dim": FF_EXP, "layer_types": ["full_attention"] * 5,
            "partial_rotary_factors": [0.5] * 5,
        },
        _appended(_STEP_MOE, 3),
    ),
    "MiMoV2FlashForCausalLM": (
        {
            **_MOE, "hybrid_layer_pattern": [0, 1], "sliding_window": 8, "v_head_dim": HEAD,
            "swa_num_attention_heads": N_HEAD, "swa_num_key_value_heads": N_KV,
            "swa_head_dim": HEAD, "swa_v_head_dim": HEAD, "swa_rope_theta": 1e4,
            "partial_rotary_factor": 0.5, "moe_layer_freq": [0, 1], "layernorm_epsilon": 1e-6,
        },
        {name: shape for i in range(3) for name, shape in
         _at(f"model.mtp.layers.{i}.", _MIMO).items()},
    ),
    "Cohere2MoeForCausalLM": (
        {
            **_MOE, **_NEXTN, "logit_scale": 1.0, "sliding_window": 8, "layer_norm_eps": 1e-5,
            "layer_types": ["full_attention"] * 2, "intermediate_size": FF_EXP,
        },
        _appended(
            {
                "input_layernorm.weight": (EMBD,), **_gqa("self_attn."), **_moe(bias=""), **_NX,
                "shared_head.norm.weight": (EMBD,),
            }
        ),
    ),
    "BailingMoeV2ForCausalLM": (
        {**_MOE, **_NEXTN},
        _appended(
            {
                **_NORMS, **_BAILING_ATTN, **_moe(bias="gate.expert_bias"), **_NX,
                "final_layernorm.weight": (EMBD,),
            }
        ),
    ),
    "BailingMoeV3ForCausalLM": (
        {
            **_MOE, **_MLA, **_NEXTN, "no_kda_lora": True, "kda_safe_gate": True,
            "kda_lower_bound": -5.0, "gated_attention_proj_granularity_type": "head_wise",
            "short_conv_kernel_size": 4, "layer_group_size": 2,
            "moe_shared_expert_intermediate_size": FF_EXP,
        },
        _appended(
            {
                **_NORMS, **_BAILING_MLA, **_moe(bias="gate.expert_bias"), **_NX,
                "final_layernorm.weight": (EMBD,),
            }
        ),
    ),
    "NemotronHForCausalLM": (
        {
            **_MOE, **_NEXTN, "hybrid_override_pattern": "M*", "mamba_num_heads": 2,
            "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 1, "conv_kernel": 4,
            "chunk_size": 8, "d_head": 16, "moe_shared_expert_intermediate_size": FF_EXP,
            "layer_norm_epsilon": 1e-5, "num_heads": 2,
        },
        _NEMOTRON,
    ),
    "ExaoneMoEForCausalLM": (
        {**_MOE, **_NEXTN, "sliding_window": 8, "layer_types": ["full_attention"] * 2},
        {**_QWEN_NX, **_at("mtp.layers.0.", {**_NORMS, **_EXAONE_ATTN, **_dense("mlp.")})},
    ),
    "Exaone4_5_ForConditionalGeneration": (
        {**_NEXTN, "sliding_window": 8, "layer_types": ["full_attention"] * 2},
        {
            **_QWEN_NX,
            **_at(
                "mtp.layers.0.",
                {
                    "post_attention_layernorm.weight": (EMBD,),
                    "post_feedforward_layernorm.weight": (EMBD,),
                    **_EXAONE_ATTN, **_dense("mlp."),
                },
            ),
        },
    ),
    "GlmOcrForConditionalGeneration": (
        {**_NEXTN},
        _appended(
            {
                **_GQA_BLOCK, **_NX, "mlp.gate_up_proj.weight": (2 * FF, EMBD),
                "mlp.down_proj.weight": (EMBD, FF), "post_self_attn_layernorm.weight": (EMBD,),
                "post_mlp_layernorm.weight": (EMBD,), "shared_head.norm.weight": (EMBD,),
            }
        ),
    ),
    "Gemma4AssistantForCausalLM": (
        {
            "backbone_hidden_size": 64, "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 8, "global_head_dim": HEAD, "num_global_key_value_heads": N_KV,
            "num_kv_shared_layers": 0, "moe_intermediate_size": 0, "hidden_size_per_layer_input": 0,
            "rope_parameters": {
                "full_attention": {"rope_theta": 1e6, "rope_type": "proportional",
                                   "partial_rotary_factor": 0.25},
                "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
            },
        },
        _ASSISTANT,
    ),
    "Ernie4_5_MoeForCausalLM": (
        {
            "num_nextn_predict_layers": 1, "moe_num_experts": N_EXPERT, "moe_k": 2,
            "moe_layer_interval": 1, "moe_layer_start_index": 1,
        },
        {
            "model.mtp_block.0.input_layernorm.weight": (EMBD,),
            "model.mtp_emb_norm.0.weight": (EMBD,),
            "model.mtp_hidden_norm.0.weight": (EMBD,),
            "model.mtp_linear_proj.0.weight": (EMBD, 2 * EMBD),
        },
    ),
}  # fmt: skip

# One tensor for each trunk layer; these classes have no input_layernorm.
_LAYER_TENSORS = {
    "Qwen4ExpForCausalLM": ("attn_hyper_connection.hc_norm.weight", (_HC * EMBD,)),
    "Exaone4_5_ForConditionalGeneration": ("post_attention_layernorm.weight", (EMBD,)),
    "NemotronHForCausalLM": ("norm.weight", (EMBD,)),
}


def trunk(model_class: str) -> Shapes:
    """The ends of a model and a token tensor for each of its layers."""
    if model_class == "Gemma4AssistantForCausalLM":
        return {}
    name, shape = _LAYER_TENSORS.get(model_class, ("input_layernorm.weight", (EMBD,)))
    root = "backbone" if model_class == "NemotronHForCausalLM" else "model"
    ends: Shapes = {
        "model.embed_tokens.weight": (VOCAB, EMBD),
        "model.norm.weight": (EMBD,),
        "lm_head.weight": (VOCAB, EMBD),
    }
    if model_class == "Qwen4ExpForCausalLM":
        del ends["model.norm.weight"]
        ends |= _at("model.", _hyper("hyper_connection_mixer", inject=False))
    return ends | {f"{root}.layers.{i}.{name}": shape for i in range(N_LAYER)}


def config(model_class: str, **changes: Any) -> dict[str, Any]:
    """The config of a class; a change to `...` removes the key."""
    found = {**_COMMON, **HEADS[model_class][0], "architectures": [model_class], **changes}
    return {key: value for key, value in found.items() if value is not ...}


def head(model_class: str) -> Shapes:
    """The MTP tensors of a class."""
    return dict(HEADS[model_class][1])


def safetensors(shapes: Mapping[str, tuple[int, ...]], dtype: str = "F32") -> tuple[bytes, int]:
    """A header with its length before it, and the number of data bytes."""
    rows, end = {}, 0
    for name, shape in shapes.items():
        n = _BYTES[dtype]
        for dim in shape:
            n *= dim
        rows[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + n]}
        end += n
    raw = json.dumps(rows).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw, end


def write_shard(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str = "F32") -> None:
    """A safetensors file whose weights are a hole."""
    raw, n_data = safetensors(shapes, dtype)
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(len(raw) + n_data)


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    shards: Mapping[str, Mapping[str, tuple[int, ...]]],
    *,
    unlisted: tuple[str, ...] = (),
    index: bool = True,
) -> Path:
    """A folder with config, shards and, with `index`, the index of those that are listed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, shapes in shards.items():
        write_shard(folder / name, shapes)
    if index:
        weight_map = {tensor: name for name, shapes in shards.items() if name not in unlisted
                      for tensor in shapes}  # fmt: skip
        text = json.dumps({"metadata": {}, "weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(text)
    return folder


def write_model(folder: Path, model_class: str, **changes: Any) -> Path:
    """A whole checkpoint of a class: trunk in one shard, head in another."""
    shards = {"model-00001-of-00002.safetensors": trunk(model_class),
              "model-00002-of-00002.safetensors": head(model_class)}  # fmt: skip
    return write_checkpoint(folder, config(model_class, **changes), shards)
