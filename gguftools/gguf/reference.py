"""A GGUF against the checkpoint it was made from: where was the MTP head lost? Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gguftools.gguf.checkpoint import Checkpoint
from gguftools.gguf.header import Header, TensorInfo
from gguftools.gguf.lost_ways import Arrived, LostWay
from gguftools.gguf.mtp_expected import Expected, Shape, expected_tensors
from gguftools.gguf.mtp_remedy import (
    convert_command,
    graft,
    list_shards,
    unlisted_text,
    without_head,
)
from gguftools.gguf.mtp_source import SourceMtp, source_mtp
from gguftools.gguf.reference_table import CONVERTER_BUILD

# `--fuse-qkv` and `--fuse-gate-up-exps` write these instead.
_FUSED = {
    "attn_q": "attn_qkv", "attn_k": "attn_qkv", "attn_v": "attn_qkv",
    "ffn_gate_exps": "ffn_gate_up_exps", "ffn_up_exps": "ffn_gate_up_exps",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrival:
    """One tensor of the source's head and what became of it; `found` is its row in the GGUF.

    `arrived` is "unknown" where llama.cpp has no name for the source tensor.
    """

    expected: Expected
    arrived: Arrived
    found: TensorInfo | None


@dataclass(frozen=True, slots=True)
class ReferenceReport:
    """Whether the head of the source is in the file, the way it was lost and what to do."""

    where: str
    model_class: str
    declared: int | None
    n_source: int  # MTP tensors of the source, experts one by one
    tensors: tuple[Arrival, ...]
    lost: bool
    way: LostWay
    reason: str
    fix: str

    @property
    def n_arrived(self) -> int:
        """Rows that arrived whole."""
        return sum(row.arrived == "yes" for row in self.tensors)


_Verdict = tuple[bool, LostWay, str, str]


def compare(header: Header, checkpoint: Checkpoint) -> ReferenceReport:
    """Each MTP tensor of the source against the file."""
    mtp = source_mtp(checkpoint, arch=header.architecture)
    rows = tuple(_arrival(header, want) for want in expected_tensors(checkpoint, mtp))
    lost, way, reason, fix = _verdict(header, checkpoint, mtp, rows)
    return ReferenceReport(
        checkpoint.where,
        checkpoint.model_class,
        mtp.declared,
        sum(row.expected.n_sources for row in rows),
        rows,
        lost,
        way,
        reason,
        fix,
    )


def _arrival(header: Header, want: Expected) -> Arrival:
    if want.name is None:
        return Arrival(want, "unknown", None)
    found = header.tensors.get(want.name)
    if found is not None:
        same = want.shape is None or _plain(found.shape) == _plain(want.shape)
        # llama.cpp takes some tensors by their size alone, and converters write them so.
        same = same or (want.shape is not None and _size(want.shape) == found.n_elements)
        return Arrival(want, "yes" if same else "wrong-shape", found)
    block, _, stem = want.name.removesuffix(".weight").rpartition(".")
    if fused := header.tensors.get(f"{block}.{_FUSED.get(stem, '')}.weight"):
        return Arrival(want, "yes", fused)
    return Arrival(want, "no", None)


def _plain(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _size(shape: Shape) -> int:
    n = 1
    for dim in shape:
        n *= dim
    return n


def _verdict(
    header: Header, checkpoint: Checkpoint, mtp: SourceMtp, rows: tuple[Arrival, ...]
) -> _Verdict:
    declared = header.integer(header.arch_key("nextn_predict_layers")) or 0
    n_blocks = header.integer(header.arch_key("block_count")) or 0
    pruned = declared > 0 and (mtp.n_trunk or 0) // 2 < n_blocks < (mtp.n_trunk or 0) + declared
    if other := _other_model(header, checkpoint, mtp, n_blocks=None if pruned else n_blocks):
        what = f"{other}: it is not what the file was made from"
        return True, "other-model", what, "name the original model with --reference"
    if not mtp.parts:
        return _no_source(header, checkpoint, mtp, declared)
    known = [row for row in rows if row.arrived != "unknown"]
    missing = [row for row in known if row.arrived == "no"]
    wrong = [row for row in known if row.arrived == "wrong-shape"]
    if missing and len(missing) == len(known):
        return _all_lost(checkpoint, mtp, rows, declared=declared, pruned=pruned)
    if missing:
        return _partial(checkpoint, mtp, known, missing)
    if wrong:
        first = wrong[0]
        shape = first.found.shape if first.found else ()
        what = (
            f"{len(wrong)} of {len(known)} head tensors have another shape, {first.expected.name}"
        )
        what += f" {list(shape)} where the source makes {list(first.expected.shape or ())}"
        return True, "wrong-shape", what, convert_command(checkpoint)
    if not known:
        return _all_lost(checkpoint, mtp, rows, declared=declared, pruned=pruned)
    what = f"all of it is in the file, as {len(known)} tensors"
    return False, "arrived", what, ""


def _other_model(
    header: Header, checkpoint: Checkpoint, mtp: SourceMtp, *, n_blocks: int | None
) -> str:
    """How the reference differs from the file, empty where it may be its source."""
    arch = header.architecture
    if mtp.arch is not None and mtp.arch != arch:
        return f"the reference becomes a {mtp.arch} file, this one is {arch or 'without a name'}"
    width, n_embd = checkpoint.integer("hidden_size"), header.integer(f"{arch}.embedding_length")
    if width and n_embd and width != n_embd:
        return f"the reference has width {width}, the file {n_embd}"
    declared = header.integer(f"{arch}.nextn_predict_layers") or 0
    if mtp.n_trunk and n_blocks and mtp.n_trunk not in (n_blocks, n_blocks - declared):
        return f"the reference has {mtp.n_trunk} layers, the file {n_blocks - declared}"
    return ""


def _no_source(header: Header, checkpoint: Checkpoint, mtp: SourceMtp, declared: int) -> _Verdict:
    heads = any(".nextn." in name or name.startswith("nextn.") for name in header.tensors)
    if heads:
        return False, "none", "the file has an MTP head that this source has not (grafted)", ""
    if not mtp.promised or mtp.family is None:
        return False, "none", "the source has no MTP head either", ""
    what = f"{mtp.key or 'the class'} promises {mtp.promised}, the weights hold no MTP tensor:"
    what += " the head was lost before conversion"
    if declared:
        what += f"; the file still says nextn_predict_layers = {declared}"
    return True, "weights-missing", what, graft(checkpoint, mtp.family)


def _all_lost(
    checkpoint: Checkpoint,
    mtp: SourceMtp,
    rows: tuple[Arrival, ...],
    *,
    declared: int,
    pruned: bool,
) -> _Verdict:
    """Nothing arrived: by which way."""
    family, names = mtp.family, {row.expected.source for row in rows}
    n = sum(row.expected.n_sources for row in rows)
    example = min(names, default="")
    what = f"the source has {n} MTP tensors such as {example}, the file has none"
    again = convert_command(checkpoint)
    if not mtp.listed:
        what = f"{what}: {unlisted_text(checkpoint, mtp)}"
        return True, "shard-unlisted", what, list_shards(checkpoint, mtp)
    if family is not None and family.flag_only and not declared:
        what = f"{what}: {family.drops}"
        return True, "flag-needed", what, convert_command(checkpoint, "--mtp")
    if family is not None and family.drops:
        what = f"{what}: the converter drops them by design, {family.drops}"
        return True, "by-design", what, "draft with another model; no option keeps this head"
    if pruned:
        what += "; nextn_predict_layers stayed while block_count fell, as --prune-layers does"
        return True, "pruned", what, "quantize again without --prune-layers"
    if declared:
        what += f"; nextn_predict_layers = {declared} stayed: they were taken out after conversion"
        return True, "stripped", what, f"take the file before that step, or {again}"
    if family is not None and family.key and not mtp.promised:
        what = f"{what}: the config lacks {family.key}"
        fix = f'set "{family.key}": {len(mtp.blocks)} in config.json, then {again}'
        return True, "count-missing", what, fix
    what += ": converted with --no-nextn, or by a converter older than their support"
    return True, "not-converted", what, f"{again} with llama.cpp {CONVERTER_BUILD} or newer"


def _partial(
    checkpoint: Checkpoint, mtp: SourceMtp, known: list[Arrival], missing: list[Arrival]
) -> _Verdict:
    names = ", ".join(str(row.expected.name) for row in missing[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    what = f"{len(missing)} of {len(known)} head tensors are not in the file: {names}{more}"
    if all(not row.expected.listed for row in missing):
        what = f"{what}; {unlisted_text(checkpoint, mtp)}"
        return True, "shard-unlisted", what, list_shards(checkpoint, mtp)
    fix = convert_command(checkpoint)
    if mtp.family is not None and mtp.family.flags:
        fix += f", or without a head: {without_head(checkpoint, mtp.family)}"
    return True, "partial", what, fix
