"""What a Hugging Face checkpoint says of its MTP head: the count and the tensors. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gguftools.gguf.checkpoint import Checkpoint, speaks_of_mtp
from gguftools.gguf.hparams import N_LAYER_MAX
from gguftools.gguf.nextn_table import MTP_ARCHS
from gguftools.gguf.reference_table import EH_HALVES, FAMILIES, MODEL_NAMES, MTP_KEYS, Family
from gguftools.gguf.safetensors import SourceTensor

# Dropped by the converter for any model (conversion/base.py:1393, 1066), whatever block names them.
_NOT_TEXT = ("visual.", "vision.", "vision_", "audio.", "audio_", "talker.", "masked_embedding")
_IGNORED = (".rotary_emb.inv_freq", ".attention.masked_bias")
# They quantize the weight beside them and are consumed with it.
COMPANIONS = (
    ".weight_scale_inv", ".weight_scale", ".weight_scale_2", ".input_scale", ".scale", ".g_idx",
    ".qzeros", ".scales", ".weight_shape", ".weight_zero_point", ".input_global_scale",
    ".weight_global_scale",
)  # fmt: skip
_LAYER = re.compile(r"model\.layers\.([0-9]{1,6})\.(.+)")


@dataclass(frozen=True, slots=True)
class Part:
    """An MTP tensor and where it stands: block of the GGUF, None beside the blocks, and its rest.

    `rest` is the name inside the block as the families without a spelling of their own have it.
    """

    tensor: SourceTensor
    blocks: tuple[int, ...] | None
    rest: str


@dataclass(frozen=True, slots=True)
class SourceMtp:
    """The MTP side of a checkpoint. `declared` is None where the config has no count or null.

    `key` is the place of the count, as `text_config.mtp_num_hidden_layers`.
    """

    family: Family | None
    arch: str | None
    n_trunk: int | None
    key: str
    declared: int | None
    is_null: bool
    parts: tuple[Part, ...]

    @property
    def promised(self) -> int:
        """The count of the config, absent and null taken as 0."""
        return self.declared or 0

    @property
    def listed(self) -> tuple[Part, ...]:
        """The parts that the converter reads."""
        return tuple(part for part in self.parts if part.tensor.listed)

    @property
    def unlisted_files(self) -> tuple[str, ...]:
        """Files with MTP tensors that the converter does not read."""
        return tuple(sorted({p.tensor.file for p in self.parts if not p.tensor.listed}))

    @property
    def blocks(self) -> tuple[int, ...]:
        """GGUF blocks that the converter's tensors belong to, by their own numbers."""
        return tuple(sorted({b for part in self.listed for b in part.blocks or ()}))


def source_mtp(checkpoint: Checkpoint, *, arch: str = "") -> SourceMtp:
    """The MTP head of a checkpoint; `arch` (of a GGUF) helps where the class is not known."""
    family = FAMILIES.get(checkpoint.model_class) or _family_of(arch)
    arch_name = family.arch if family else None
    if arch_name == "nemotron_h_moe" and "num_experts_per_tok" not in checkpoint.config:
        arch_name = "nemotron_h"
    key, declared, is_null = _count(checkpoint, family)
    tensors = _mtp_tensors(checkpoint, family)
    parts = [_part(checkpoint, family, name, tensor) for name, tensor in tensors.items()]
    n_trunk = 0 if family and family.naming == "assistant" else checkpoint.n_trunk
    return SourceMtp(family, arch_name, n_trunk, key, declared, is_null, tuple(parts))


def _family_of(arch: str) -> Family | None:
    if arch not in MTP_ARCHS:
        return None
    return next((family for family in FAMILIES.values() if family.arch == arch), None)


def _count(checkpoint: Checkpoint, family: Family | None) -> tuple[str, int | None, bool]:
    """Place and value of the count; a family whose count is not in the config has its own."""
    config = checkpoint.config
    if family is not None and family.n_fixed is not None:
        return "", family.n_fixed, False
    if family is not None and family.naming == "assistant":
        return "", checkpoint.n_trunk, False
    if family is not None and family.naming == "dots3":
        has = any(_plain(n) == "model.mtp.embed_tokens.weight" and t.listed
                  for n, t in checkpoint.tensors.items())  # fmt: skip
        return "", int(has), False
    keys = (family.key,) if family else MTP_KEYS
    key = next((key for key in keys if key in config), keys[0])
    place = f"text_config.{key}" if key in checkpoint.nested else key
    return place, checkpoint.integer(key), key in config and config[key] is None


def _plain(name: str) -> str:
    """A name as the converter's filter leaves it."""
    return name.replace("language_model.", "").replace(
        "e_score_correction_bias", "e_score_correction.bias"
    )


def _mtp_tensors(checkpoint: Checkpoint, family: Family | None) -> Mapping[str, SourceTensor]:
    whole = family is not None and family.naming == "assistant"
    found = {}
    for name, tensor in checkpoint.tensors.items():
        if not whole and not speaks_of_mtp(name, checkpoint.n_trunk):
            continue
        if any(part in name for part in _NOT_TEXT) or name.endswith(_IGNORED):
            continue
        found[name] = tensor
    return found


def _part(checkpoint: Checkpoint, family: Family | None, name: str, tensor: SourceTensor) -> Part:
    first, plain = checkpoint.n_trunk, _plain(name)
    if family is None or first is None:
        return Part(tensor, None, plain)
    match family.naming:
        case "qwen" | "exaone":
            return _mtp_part(checkpoint, family, plain.removeprefix("model."), tensor, first)
        case "mimo":
            return _numbered(plain, "model.mtp.layers.", tensor, first)
        case "nemotron":
            return _nemotron(plain, tensor, first)
        case "deepseek4":
            part = _numbered(plain, "mtp.", tensor, first)
            outside = part.rest in MODEL_NAMES["deepseek4"]
            return Part(tensor, None, part.rest) if outside else part
        case "dots3" if plain == "model.mtp.embed_tokens.weight":
            return Part(tensor, (first,), "embed_tokens.weight")
        case "assistant" if not _LAYER.fullmatch(plain):
            return Part(tensor, None, plain.removeprefix("model."))
    layer = _LAYER.fullmatch(plain)
    if layer is None:
        return Part(tensor, None, plain)
    # Step-3.5 nests the shared head (step3.py:252).
    rest = layer[2].replace("transformer.shared_head.output", "shared_head.head")
    return Part(tensor, (int(layer[1]),), rest.removeprefix("transformer."))


def _mtp_part(
    checkpoint: Checkpoint, family: Family, plain: str, tensor: SourceTensor, first: int
) -> Part:
    """`mtp.layers.i.*`, and `mtp.fc` and its norms beside them."""
    count = min(max(checkpoint.integer(family.key) or 0, 1), N_LAYER_MAX)
    every = tuple(range(first, first + count))
    part = _numbered(plain, "mtp.layers.", tensor, first)
    if part.blocks is not None:
        share = family.arch == "exaone4" and checkpoint.config.get("mtp_share_layers") is True
        return Part(tensor, every, part.rest) if share else part
    stem, _, suffix = plain.removeprefix("mtp.").partition(".")
    to = every if family.naming == "exaone" else (first,)
    if stem in MODEL_NAMES["qwen"]:
        return Part(tensor, to, f"{MODEL_NAMES['qwen'][stem]}.{suffix}")
    if family.arch == "qwen4exp" and (stem in EH_HALVES or stem == "hyper_connection_mixer"):
        return Part(tensor, to, f"{stem}.{suffix}")
    return Part(tensor, None, plain)


def _numbered(plain: str, prefix: str, tensor: SourceTensor, first: int) -> Part:
    number, _, rest = plain.removeprefix(prefix).partition(".")
    if not plain.startswith(prefix) or not number.isdecimal() or len(number) > 6 or not rest:
        return Part(tensor, None, plain)
    return Part(tensor, (first + int(number),), rest)


def _nemotron(plain: str, tensor: SourceTensor, first: int) -> Part:
    """Attention (mtp.layers.0) and experts (mtp.layers.1) make one block (nemotron.py:427)."""
    part = _numbered(plain, "mtp.layers.", tensor, first)
    if part.blocks is None or part.blocks[0] > first + 1:
        return Part(tensor, None, plain)
    renamed = {"norm.weight": "post_attention_layernorm.weight",
               "final_layernorm.weight": "shared_head.norm.weight"}  # fmt: skip
    experts = part.blocks[0] == first + 1
    return Part(tensor, (first,), renamed.get(part.rest, part.rest) if experts else part.rest)
