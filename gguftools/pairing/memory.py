"""What a target and its draft take in memory, part by part and device by device, from the headers.

Arithmetic over what llama.cpp b11434 allocates; scripts/compare_memory.py holds it against the log
of the real thing. Not in it: what a GPU driver takes for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from gguftools.gguf.header import Header, NumericArray
from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.tensors import tensor_bytes
from gguftools.pairing.compute_buffers import compute_bytes
from gguftools.pairing.kv_cache import ContextShape, cache_bytes
from gguftools.pairing.layers import Layers, read_layers
from gguftools.pairing.machine import Gpu
from gguftools.pairing.placement import CPU, Placement, place

_F16 = 2
_F32 = 4
_FEATURES = ("draft-eagle3", "draft-dflash", "draft-dspark")
_AT_THE_END = ("output", "cls", "nextn")  # tensors of no block that go with the output
_BLOCK_DRAFTS = ("draft-dflash", "draft-dspark")


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes by what they are for; those of the draft are named so."""

    weights: int = 0
    kv: int = 0
    recurrent: int = 0
    compute: int = 0
    output: int = 0  # logits and hidden rows, always in RAM
    draft_weights: int = 0
    draft_kv: int = 0
    draft_recurrent: int = 0
    draft_compute: int = 0
    draft_output: int = 0
    projector: int = 0

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self.named().values())

    def named(self) -> dict[str, int]:
        """The parts by name."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def __add__(self, other: Parts) -> Parts:
        return Parts(**{name: n + getattr(other, name) for name, n in self.named().items()})

    def as_draft(self) -> Parts:
        """The same, counted as the draft's."""
        own = (self.weights, self.kv, self.recurrent, self.compute, self.output)
        return Parts(0, 0, 0, 0, 0, *own)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by device, the CPU first, and how long a context that is for."""

    n_ctx: int
    devices: dict[str, Parts]

    @property
    def parts(self) -> Parts:
        """The parts summed over the devices."""
        return sum(self.devices.values(), Parts())

    @property
    def total(self) -> int:
        """All bytes."""
        return self.parts.total


def estimate(
    header: Header,
    shape: ContextShape,
    *,
    placement: Placement | None = None,
    with_weights: bool = True,
    with_heads: bool = False,
    cpu_moe: bool = False,
    n_logits: int | None = None,
    n_hidden: int = 0,
) -> dict[str, Parts]:
    """One model with one context, by device.

    `with_heads` loads the MTP blocks too, `cpu_moe` keeps experts in RAM. `n_logits` is rows of
    logits really asked for, by default as many as may be. `n_hidden` is elements of hidden rows
    that are handed out for each token of a batch, for an MTP head or a feature draft.
    """
    layers = read_layers(header)
    placement = placement or place(len(layers.blocks))
    devices = dict.fromkeys((CPU, *placement.gpus), Parts())
    if with_weights:
        weights = _weights(header, layers, placement, with_heads=with_heads, cpu_moe=cpu_moe)
        for device, n_bytes in weights.items():
            devices[device] += Parts(weights=n_bytes)
    cache = cache_bytes(header, layers, shape)
    for block, n_bytes in cache.kv.items():
        devices[placement.of(block)] += Parts(kv=n_bytes)
    for block, n_bytes in cache.recurrent.items():
        devices[placement.of(block)] += Parts(recurrent=n_bytes)
    for device in devices:
        blocks = [block for block, _ in layers.of(mtp=shape.mtp) if placement.of(block) == device]
        output = placement.output == device
        if blocks or output or device == CPU:
            n_bytes = compute_bytes(header, layers, shape, blocks=blocks, output=output)
            devices[device] += Parts(compute=n_bytes)
    n_logits = shape.n_outputs if n_logits is None else n_logits
    devices[CPU] += Parts(output=_output(header, shape, n_logits, n_hidden))
    return devices


def plan_memory(
    target: Header,
    draft: Header | None,
    kind: str | None,
    *,
    n_ctx: int,
    n_ubatch: int = 512,
    n_batch: int = 2048,
    n_draft_max: int = 3,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    cache_type_k_draft: str = "f16",
    cache_type_v_draft: str = "f16",
    n_gpu_layers: int = -1,
    n_gpu_layers_draft: int = -1,
    gpus: Sequence[Gpu] = (),
    swa_full: bool = False,
    cpu_moe: bool = False,
    all_outputs: bool = False,
    projector_bytes: int = 0,
) -> MemoryPlan:
    """A target with its draft, one sequence, as llama-server b11434 and our engine load them.

    `kind` is a --spec-type or None; for draft-mtp without a draft file the target's own head
    drafts. The draft's context is as long as the target's. `all_outputs` is for builds without
    n_outputs_max: their compute buffers hold logits for a whole batch.
    """
    n_draft = n_draft_max if kind is not None else 0
    n_outputs = n_batch if all_outputs else n_draft + 1
    shape = ContextShape(
        n_ctx, n_ubatch, n_batch, n_outputs=n_outputs, n_rs_seq=n_draft,
        type_k=cache_type_k, type_v=cache_type_v, swa_full=swa_full,
    )  # fmt: skip
    own_head = kind == "draft-mtp" and draft is None
    placement = place(len(read_layers(target).blocks), n_gpu_layers, gpus)
    devices = estimate(
        target, shape, placement=placement, with_heads=own_head, cpu_moe=cpu_moe,
        n_logits=n_draft + 1, n_hidden=_n_hidden(target, draft, kind),
    )  # fmt: skip
    if draft is not None or own_head:
        n_rows = n_draft + 1 if kind in _BLOCK_DRAFTS else 1
        draft_shape = replace(
            shape, n_outputs=n_outputs if all_outputs else n_rows, n_rs_seq=0,
            type_k=cache_type_k_draft, type_v=cache_type_v_draft, mtp=kind == "draft-mtp",
        )  # fmt: skip
        if draft is not None:
            left = _left(gpus, devices)
            placement = place(len(read_layers(draft).blocks), n_gpu_layers_draft, left)
        more = estimate(
            draft or target, draft_shape, placement=placement, with_weights=not own_head,
            with_heads=True, n_logits=n_rows,
        )  # fmt: skip
        devices = {name: parts + more[name].as_draft() for name, parts in devices.items()}
    home = placement.gpus[0] if placement.gpus else CPU
    devices[home] += Parts(projector=projector_bytes)
    return MemoryPlan(n_ctx, devices)


def _left(gpus: Sequence[Gpu], taken: dict[str, Parts]) -> list[Gpu]:
    """The GPUs with what the target leaves free: by that llama.cpp spreads the draft."""
    free = [max(gpu.free_bytes - taken[f"GPU{i}"].total, 0) for i, gpu in enumerate(gpus)]
    return [replace(gpu, free_bytes=n_bytes) for gpu, n_bytes in zip(gpus, free, strict=True)]


def kv_bytes_per_token(header: Header) -> int:
    """Bytes of keys and values that one token of context takes, cached as F16.

    Sliding windows are counted in full, so this is an upper bound for them.
    """
    kept = [layer for _, layer in read_layers(header).of(mtp=False)]
    return _F16 * sum(one.k + one.v + one.indexer + one.indexer_v for one in kept)


def _weights(
    header: Header, layers: Layers, placement: Placement, *, with_heads: bool, cpu_moe: bool
) -> dict[str, int]:
    """Bytes of weights by device. A tied output on a GPU is a second copy of the embedding."""
    found = dict.fromkeys((CPU, *placement.gpus), 0)
    for name, n_bytes in tensor_bytes(header).items():
        head, _, rest = name.partition(".")
        block = int(rest.split(".")[0]) if head == "blk" and rest.split(".")[0].isdecimal() else -1
        if block >= layers.n_trunk and not with_heads:
            continue
        if block >= 0:
            device = CPU if cpu_moe and "_exps." in name else placement.of(block)
        else:
            device = placement.output if head.startswith(_AT_THE_END) else CPU
        found[device] += n_bytes
    if placement.output != CPU and "output.weight" not in header.tensors:
        found[placement.output] += tensor_bytes(header).get("token_embd.weight", 0)
    return found


def _output(header: Header, shape: ContextShape, n_logits: int, n_hidden: int) -> int:
    """Where logits, and hidden rows of a whole batch, wait to be read."""
    hparams = read_hparams(header)
    width = max(hparams.n_vocab or 0, 0)
    width += max(hparams.n_embd_out or 0, 0) if shape.mtp else 0
    return _F32 * (
        width * max(n_logits, shape.n_seq_max) + n_hidden * min(shape.n_batch, shape.n_ctx)
    )


def _n_hidden(target: Header, draft: Header | None, kind: str | None) -> int:
    """Elements of the target's hidden rows that a draft reads, per token."""
    hparams = read_hparams(target)
    if kind == "draft-mtp":
        return max(hparams.n_embd_out or 0, 0)
    if kind in _FEATURES and draft is not None:
        taps = draft.metadata.get(draft.arch_key("target_layers"))
        n_taps = len(taps) if isinstance(taps, NumericArray) else 0
        return min(n_taps, hparams.n_layer_all) * max(hparams.n_embd or 0, 0)
    return 0
