"""Bytes, quant types and parameters per group of tensors: trunk, head, embedding, output."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header, TensorInfo

GROUPS = ("trunk", "head", "embedding", "output")
_BLOCK = re.compile(r"^blk\.(\d{1,6})\.")
_EMBEDDING = ("token_embd", "token_types", "position_embd", "per_layer_token_embd")
_OUTPUT = ("output", "cls")


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Sums over some tensors; `types` is bytes by type name, the largest first."""

    n_tensors: int
    n_params: int
    n_bytes: int
    types: dict[str, int]

    @property
    def bits_per_weight(self) -> float | None:
        """Stored bits per parameter, None for an empty group."""
        return 8 * self.n_bytes / self.n_params if self.n_params else None

    @property
    def dominant_type(self) -> str | None:
        """The type that holds most of the bytes."""
        return next(iter(self.types), None)


@dataclass(frozen=True, slots=True)
class TensorGroups:
    """The groups of a model and the sums over all of them.

    `trunk` is the blocks that the target runs, `head` the MTP blocks and what belongs to them,
    `embedding` and `output` the rest. `experts` counts tensors that are in trunk or head too.
    A tied output has no tensor of its own, so it is counted once, as embedding.
    """

    trunk: TensorGroup
    head: TensorGroup
    embedding: TensorGroup
    output: TensorGroup
    experts: TensorGroup
    total: TensorGroup
    tied_output: bool
    n_unknown: int  # tensors of a type whose size is taken from the gap to the next one

    @property
    def n_params(self) -> int:
        """Parameters stored in the file."""
        return self.total.n_params

    @property
    def n_bytes(self) -> int:
        """Bytes of tensor data, padding not included."""
        return self.total.n_bytes

    @property
    def bits_per_weight(self) -> float | None:
        """Bits per parameter over the whole file, as llama.cpp prints it (BPW)."""
        return self.total.bits_per_weight

    @property
    def dominant_type(self) -> str | None:
        """The type that holds most of the bytes."""
        return self.total.dominant_type

    def quant_types(self) -> dict[str, dict[str, int]]:
        """Bytes by group and type, as `inspect --json` has it."""
        groups = zip(GROUPS, (self.trunk, self.head, self.embedding, self.output), strict=True)
        return {name: dict(group.types) for name, group in groups}


def tensor_groups(header: Header, n_layer_trunk: int | None = None) -> TensorGroups:
    """Sort the tensors into groups; blocks from `n_layer_trunk` on are the head."""
    n_layer = read_hparams(header).n_layer if n_layer_trunk is None else n_layer_trunk
    sizes = tensor_bytes(header)
    rows: dict[str, list[TensorInfo]] = {name: [] for name in GROUPS}
    for row in header.tensors.values():
        rows[group_of(row.name, n_layer)].append(row)
    every = list(header.tensors.values())
    return TensorGroups(
        trunk=_sum(rows["trunk"], sizes),
        head=_sum(rows["head"], sizes),
        embedding=_sum(rows["embedding"], sizes),
        output=_sum(rows["output"], sizes),
        experts=_sum((r for r in every if "_exps." in r.name), sizes),
        total=_sum(every, sizes),
        tied_output="token_embd.weight" in header.tensors and "output.weight" not in header.tensors,
        n_unknown=sum(not r.type.known for r in every),
    )


def bytes_per_token(header: Header) -> int:
    """Bytes of weights that one token of the trunk reads: of the experts only the chosen ones.

    Embeddings give it a row, which is nothing; a tied one is read whole, as the output.
    """
    groups, hparams = tensor_groups(header), read_hparams(header)
    n_bytes = groups.trunk.n_bytes + groups.output.n_bytes
    if groups.tied_output:
        n_bytes += tensor_bytes(header)["token_embd.weight"]
    if hparams.n_expert > 0 and 0 < hparams.n_expert_used <= hparams.n_expert:
        idle = hparams.n_expert - hparams.n_expert_used
        n_bytes -= groups.experts.n_bytes * idle // hparams.n_expert
    return max(n_bytes, 0)


def group_of(name: str, n_layer_trunk: int) -> str:
    """trunk, head, embedding or output."""
    block = _BLOCK.match(name)
    if block is not None:
        return "head" if int(block[1]) >= n_layer_trunk else "trunk"
    if name.startswith("nextn."):
        return "head"
    if name.startswith(_EMBEDDING):
        return "embedding"
    return "output" if name.split(".")[0].startswith(_OUTPUT) else "trunk"


def tensor_bytes(header: Header) -> dict[str, int]:
    """Bytes per tensor; for an unknown type the gap to the next tensor of its file, padding in."""
    sizes = {name: row.n_bytes for name, row in header.tensors.items()}
    if None in sizes.values():
        for no, shard in enumerate(header.shards):
            rows = sorted(
                (r for r in header.tensors.values() if r.shard == no), key=lambda r: r.offset
            )
            end = max(shard.n_bytes - shard.data_offset, 0)
            ends = [*(r.offset for r in rows[1:]), end]
            for row, stop in zip(rows, ends, strict=True):
                if sizes[row.name] is None:
                    sizes[row.name] = max(min(stop, end) - row.offset, 0)
    return {name: size or 0 for name, size in sizes.items()}


def _sum(rows: Iterable[TensorInfo], sizes: dict[str, int]) -> TensorGroup:
    types: Counter[str] = Counter()
    n_tensors = n_params = 0
    for row in rows:
        n_tensors += 1
        n_params += row.n_elements
        types[row.type.name] += sizes[row.name]
    return TensorGroup(n_tensors, n_params, types.total(), dict(types.most_common()))
