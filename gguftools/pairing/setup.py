"""What a prediction rests on: bytes per token, placement, task. Made from headers. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.nextn_table import RollbackClass, rollback_class
from gguftools.gguf.reader import Header
from gguftools.gguf.tensors import TensorGroups, bytes_per_token, tensor_groups
from gguftools.pairing.feature_draft import BLOCK_SIZE_DEFAULT
from gguftools.pairing.memory import kv_bytes_per_token

ONE_PASS = ("draft-dflash", "draft-dspark")  # the whole block in one pass of the draft
N_MAX_SINGLE = 8  # tokens; no published MTP curve gains beyond
N_MAX = 32


@dataclass(frozen=True, slots=True)
class Setup:
    """A pair on a machine with a task; all bytes are of weights. None: not known.

    `device` is a name such as "RTX 3090" and refines what `backend` says. `acceptance` is what
    llama.cpp prints, accepted of drafted tokens, measured with this n_max and p_min.
    """

    kind: str
    target_bytes: float  # read for one token of plain decoding, of the experts those in use
    target_params: float
    target_bits: float  # per weight
    expert_bytes: float = 0.0  # the part of target_bytes that lies in routed experts
    n_expert: int = 0
    n_expert_used: int = 0
    draft_bytes: float = 0.0  # read for one drafted token, or for one block
    draft_params: float = 0.0
    draft_bits: float | None = None
    n_heads: int = 1  # MTP heads in a chain draft one token each
    block_size: int = BLOCK_SIZE_DEFAULT
    rollback: RollbackClass = "PART"
    family: str = ""  # the model's name, for what is known of its series
    backend: str = "cuda"
    device: str = ""
    build: int | None = None  # of llama.cpp
    quant: str = ""  # the type that holds most of the target's bytes
    n_cores: int = 0  # that compute on a CPU; 0: not known
    n_devices: int = 1
    tensor_split: bool = False  # all devices read at once; else their layers take turns
    experts_on_cpu: bool = False
    cpu_share: float = 0.0  # of the layers, beside a GPU
    kv_bytes: float = 0.0  # per token of context
    n_ctx_used: int = 0  # tokens already in the context
    n_streams: int = 1  # requests decoded side by side
    task: str | None = None
    temperature: float | None = None
    n_prompt: int = 1000
    n_output: int = 500
    n_max: int | None = None
    n_min: int = 0
    p_min: float | None = None
    acceptance: float | None = None

    @property
    def is_moe(self) -> bool:
        """Whether tokens choose experts."""
        return self.expert_bytes > 0.0 and 0 < self.n_expert_used < self.n_expert

    @property
    def n_max_limit(self) -> int:
        """The longest draft worth a thought."""
        if self.kind == "draft-mtp" and self.n_heads > 1:
            return min(self.n_heads, N_MAX_SINGLE)
        if self.kind in ONE_PASS:
            return max(min(self.block_size - (self.kind == "draft-dflash"), N_MAX), 1)
        return {"draft-simple": 16, "ngram": N_MAX}.get(self.kind, N_MAX_SINGLE)

    @property
    def series(self) -> str:
        """The series of the model, mixtures of experts apart: "qwen3.6 moe"."""
        return f"{family_key(self.family)}{' moe' if self.is_moe else ''}"


@lru_cache(maxsize=1024)
def family_key(name: str) -> str:
    """The series a model's name belongs to: "Qwen3.8-27B" -> "qwen3.8"."""
    found = re.match(r"[a-z]+[ -]?[0-9]*(\.[0-9]+)?(?![0-9.]*b)", name.lower().strip())
    return found[0].strip(" -").replace(" ", "-") if found else ""


def setup_of(target: Header, draft: Header | None, kind: str) -> Setup:
    """What two files say, on a CPU; the work and the machine are put in with `replace`.

    `draft` is None for n-gram lookup and for the target's own head.
    """
    groups, hparams = tensor_groups(target), read_hparams(target)
    n_bytes = max(float(bytes_per_token(target)), 1.0)
    used = hparams.n_expert_used / hparams.n_expert if hparams.n_expert else 0.0
    head = draft or target
    theirs = tensor_groups(head) if kind != "ngram" else None
    gemma = head.architecture == "gemma4-assistant"
    return Setup(
        kind=kind,
        target_bytes=n_bytes,
        target_params=float(max(groups.n_params - groups.head.n_params, 1)),
        target_bits=groups.trunk.bits_per_weight or groups.bits_per_weight or 16.0,
        expert_bytes=min(groups.experts.n_bytes * min(used, 1.0), n_bytes),
        n_expert=hparams.n_expert,
        n_expert_used=hparams.n_expert_used,
        draft_bytes=_draft_bytes(groups, head, kind) if theirs else 0.0,
        draft_params=float(_draft_group_params(theirs, kind)) if theirs else 0.0,
        draft_bits=theirs.bits_per_weight if theirs else None,
        n_heads=1 if gemma else max(read_hparams(head).n_layer_nextn, 1),
        block_size=max(head.integer("dflash.block_size") or BLOCK_SIZE_DEFAULT, 1),
        rollback=rollback_class(target.architecture),
        family=target.text("general.basename") or target.text("general.name"),
        backend="cpu",
        quant=groups.trunk.dominant_type or "",
        kv_bytes=float(kv_bytes_per_token(target)),
    )


def _draft_bytes(target: TensorGroups, head: Header, kind: str) -> float:
    """Weights that one drafted token reads: of a head also the output matrix, its own or not."""
    if kind == "draft-simple":
        return float(bytes_per_token(head))
    groups, hparams = tensor_groups(head), read_hparams(head)
    if kind == "draft-mtp" and groups.head.n_bytes:
        n_heads = max(hparams.n_layer_nextn, 1)
        n_bytes = _without_idle_experts(head, groups.head.n_bytes) / n_heads
        if any("shared_head_head" in name for name in head.tensors):
            return n_bytes
    else:
        n_bytes = float(groups.trunk.n_bytes + groups.head.n_bytes)
    if groups.output.n_params > 100_000:  # more than a norm
        return n_bytes + groups.output.n_bytes
    if groups.tied_output and kind == "draft-mtp":
        return n_bytes + groups.embedding.n_bytes
    own = target.embedding if target.tied_output else target.output
    return n_bytes + own.n_bytes


def _without_idle_experts(head: Header, n_bytes: int) -> float:
    groups, hparams = tensor_groups(head), read_hparams(head)
    if not 0 < hparams.n_expert_used <= hparams.n_expert:
        return float(n_bytes)
    n_blocks = len({name.split(".")[1] for name in head.tensors if "_exps." in name})
    share = min(max(hparams.n_layer_nextn, 1) / max(n_blocks, 1), 1.0)
    experts = min(groups.experts.n_bytes * share, n_bytes)
    return n_bytes - experts * (1.0 - hparams.n_expert_used / hparams.n_expert)


def _draft_group_params(groups: TensorGroups, kind: str) -> int:
    return groups.head.n_params or groups.n_params if kind == "draft-mtp" else groups.n_params
