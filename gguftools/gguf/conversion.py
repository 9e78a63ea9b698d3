"""What conversion with llama.cpp makes of the MTP head of a checkpoint, foretold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gguftools.gguf.checkpoint import INDEX, Checkpoint
from gguftools.gguf.ggml_types import ggml_type
from gguftools.gguf.header import Header, Shard, TensorInfo, Value
from gguftools.gguf.hparams import N_LAYER_MAX, read_hparams
from gguftools.gguf.lost_ways import Outcome, Way
from gguftools.gguf.mtp_expected import Expected, expected_tensors
from gguftools.gguf.mtp_remedy import (
    convert_command,
    graft,
    list_shards,
    unlisted_text,
    without_head,
)
from gguftools.gguf.mtp_source import SourceMtp, source_mtp
from gguftools.gguf.nextn_block import BlockCheck, check_rows
from gguftools.gguf.nextn_file import EH_PROJ
from gguftools.gguf.nextn_table import MTP_ARCHS
from gguftools.gguf.reference_table import CONVERTER_BUILD, Family
from gguftools.gguf.shapes import shape_names


@dataclass(frozen=True, slots=True)
class Conversion:
    """The outcome; `way` is stable, `fix` the command or step that saves the head."""

    outcome: Outcome
    way: Way
    reason: str
    fix: str
    mtp: SourceMtp
    tensors: tuple[Expected, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is lost."""
        return self.outcome in ("none", "kept")


_Verdict = tuple[Outcome, Way, str, str]


def foretell(checkpoint: Checkpoint) -> Conversion:
    """What convert_hf_to_gguf.py of that build does with the head, without options."""
    mtp = source_mtp(checkpoint)
    tensors = expected_tensors(checkpoint, mtp)
    outcome, way, reason, fix = _verdict(checkpoint, mtp, tensors)
    if mtp.unlisted_files and way not in ("by-design", "flag-needed", "shard-missing", "no-graph"):
        if outcome == "none":
            outcome = "dropped"
        way, fix = "shard-unlisted", list_shards(checkpoint, mtp)
        reason = f"{unlisted_text(checkpoint, mtp)}; {reason}"
    return Conversion(outcome, way, reason, fix, mtp, tensors)


def _verdict(checkpoint: Checkpoint, mtp: SourceMtp, tensors: tuple[Expected, ...]) -> _Verdict:
    family = mtp.family
    if checkpoint.missing_files:
        files = ", ".join(checkpoint.missing_files[:3])
        what = f"{INDEX} names {files}, not there: conversion stops with a ValueError"
        return "fails", "shard-missing", what, "download the missing files"
    if family is None:
        return _no_family(checkpoint, mtp)
    if mtp.n_trunk is None:
        what = "the config has no num_hidden_layers: conversion stops"
        return "fails", "count-missing", what, "restore num_hidden_layers in config.json"
    if mtp.n_trunk + mtp.promised > N_LAYER_MAX:
        return _too_deep(mtp.n_trunk + mtp.promised)
    if mtp.is_null and family.null_fails:
        n = len(mtp.blocks)
        what = f"{mtp.key} is null: conversion stops with a TypeError"
        return "fails", "count-null", what, f'set "{family.key}": {n} in config.json'
    if family.drops:
        return _drops(checkpoint, mtp, family)
    if family.naming == "nemotron":
        return _nemotron(checkpoint, mtp, tensors)
    return _keeps(checkpoint, mtp, family, tensors)


def _too_deep(n_layer: int) -> _Verdict:
    what = f"it counts {n_layer} layers; llama.cpp loads at most {N_LAYER_MAX}"
    return "will-not-load", "count-wrong", what, "correct the counts in config.json"


def _no_family(checkpoint: Checkpoint, mtp: SourceMtp) -> _Verdict:
    if not mtp.promised and not mtp.parts:
        return "none", "none", "the checkpoint has no MTP head", ""
    name = checkpoint.model_class or "without a class"
    what = f"no MTP conversion is known for {name} in llama.cpp {CONVERTER_BUILD}"
    return "unknown", "class-unknown", what, "check whether a newer llama.cpp converts its head"


def _drops(checkpoint: Checkpoint, mtp: SourceMtp, family: Family) -> _Verdict:
    what = f"the converter drops the head of {checkpoint.model_class} by design: {family.drops}"
    if family.asserts and mtp.promised:
        what = f"{what}, and still writes nextn_predict_layers = {mtp.promised}: no llama.cpp loads"
        return "will-not-load", "by-design", what, without_head(checkpoint, family)
    if family.asserts:
        what = "it counts no MTP layer: conversion stops with a bare AssertionError"
        return "fails", "by-design", what, without_head(checkpoint, family)
    if not mtp.listed:
        return _nothing(checkpoint, mtp, family, "plain")
    if family.flag_only:
        what = f"without an option the converter leaves the head out: {family.drops}"
        return "separate", "flag-needed", what, convert_command(checkpoint, "--mtp")
    return "dropped", "by-design", what, "draft with another model; no option keeps this head"


def _nemotron(checkpoint: Checkpoint, mtp: SourceMtp, tensors: tuple[Expected, ...]) -> _Verdict:
    assert mtp.family is not None
    if mtp.arch == "nemotron_h" and mtp.listed:
        what = "the dense Nemotron-H converter has no place for mtp.*: it stops with a ValueError"
        return "fails", "name-unknown", what, without_head(checkpoint, mtp.family)
    if mtp.arch == "nemotron_h":
        return "none", "none", "the checkpoint has no MTP head", ""
    if mtp.promised > 1:
        what = f"{mtp.key} is {mtp.promised}, the converter asserts 1: it stops"
        return "fails", "count-wrong", what, without_head(checkpoint, mtp.family)
    return _keeps(checkpoint, mtp, mtp.family, tensors)


def _keeps(
    checkpoint: Checkpoint, mtp: SourceMtp, family: Family, tensors: tuple[Expected, ...]
) -> _Verdict:
    """A class whose converter writes the head, if count and weights agree."""
    count, n_trunk = mtp.promised, mtp.n_trunk or 0
    inferred = 0
    if not count and family.uncounted == "infer":
        layers = [part for part in mtp.listed if ".layers." in f".{part.tensor.name}"]
        inferred = max((b - n_trunk + 1 for part in layers for b in part.blocks or ()), default=0)
    if not count and not inferred:
        return _uncounted(checkpoint, mtp, family)
    count = count or inferred
    if n_trunk + count > N_LAYER_MAX:
        return _too_deep(n_trunk + count)
    if not mtp.listed:
        spec = MTP_ARCHS[mtp.arch or family.arch]
        tolerant = spec.trunk_only or spec.all_optional
        return _nothing(checkpoint, mtp, family, "plain" if tolerant else "will-not-load")
    lost = [part.tensor.name for part in mtp.listed if part.blocks is None]
    if lost and family.naming != "assistant":
        what = f"llama.cpp has no name for {lost[0]}: conversion stops, Can not map tensor"
        return "fails", "name-unknown", what, without_head(checkpoint, family)
    if mtp.blocks and mtp.blocks[-1] >= n_trunk + count:
        n = mtp.blocks[-1] + 1 - n_trunk
        what = f"{mtp.key or 'the converter'} counts {count} MTP layers, the weights hold {n}"
        fix = f'set "{family.key}": {n} in config.json' if family.key else "convert it elsewhere"
        return "fails", "count-wrong", f"{what}: conversion stops, Can not map tensor", fix
    found = _complete(checkpoint, mtp, family, count, tensors)
    if inferred and found[1] == "kept":
        what = f"{found[2]}; the config lacks {family.key}, which older converters need"
        return *found[:2], what, f'restore "{family.key}": {count} in config.json'
    return found


def _uncounted(checkpoint: Checkpoint, mtp: SourceMtp, family: Family) -> _Verdict:
    n = len(mtp.blocks)
    state = "0" if mtp.declared == 0 else "not in the config"
    if family.asserts:
        what = f"{family.key} is {state} and no mtp.layers.* is read"
        what += ": conversion stops with a bare AssertionError"
        return "fails", "count-missing", what, without_head(checkpoint, family)
    if not mtp.listed:
        return "none", "none", "the checkpoint has no MTP head", ""
    fix = f'set "{family.key}": {n} in config.json' if family.key else "restore the missing weights"
    what = f"{len(mtp.listed)} MTP tensors are there, but {family.key or 'the count'} is {state}"
    if family.uncounted == "drop":
        return "dropped", "count-missing", f"{what}: the converter drops them silently", fix
    return "fails", "count-missing", f"{what}: conversion stops, Can not map tensor", fix


def _nothing(checkpoint: Checkpoint, mtp: SourceMtp, family: Family, outcome: Outcome) -> _Verdict:
    """A count without weights."""
    if not mtp.promised:
        return "none", "none", "the checkpoint has no MTP head", ""
    key = mtp.key or "the converter"
    weights = "the listed weights" if mtp.parts else "the weights"
    what = f"{key} promises {mtp.promised}, {weights} hold no MTP tensor"
    if outcome == "will-not-load":
        what += f": the converted file lacks blk.{mtp.n_trunk}.* and llama.cpp does not load it"
    elif not family.drops:
        what += ": the converted file loads as a plain model"
    return outcome, "weights-missing", what, graft(checkpoint, family)


def _complete(
    checkpoint: Checkpoint,
    mtp: SourceMtp,
    family: Family,
    count: int,
    tensors: tuple[Expected, ...],
) -> _Verdict:
    """The written head against what llama.cpp's loader and graph ask for."""
    arch = mtp.arch or family.arch
    spec = MTP_ARCHS[arch]
    checks = dict(_checks(checkpoint, mtp, arch, count, tensors))
    missing = [f"blk.{block}.{name}" for block, check in checks.items() for name in check.missing]
    graph = [f"blk.{b}.{name}" for b, check in checks.items() for name in check.graph_missing]
    if missing:
        what = f"the weights lack {_some(missing)}: llama.cpp will not load the converted file"
        return "will-not-load", "head-incomplete", what, graft(checkpoint, family)
    if graph == [name for name in graph if name.endswith("attn_qkv.weight")] and graph:
        what = f"llama.cpp drafts only with a fused {graph[0]}"
        return "unusable", "head-incomplete", what, convert_command(checkpoint, "--fuse-qkv")
    if graph:
        what = f"the weights lack {_some(graph)}: the file loads, drafting aborts"
        return "unusable", "head-incomplete", what, graft(checkpoint, family)
    if spec.no_graph:
        return "unusable", "no-graph", spec.no_graph, "draft with another model"
    heads = "1 MTP layer" if count == 1 else f"{count} MTP layers"
    return "kept", "kept", f"conversion keeps {heads} of {len(mtp.listed)} tensors", ""


def _checks(
    checkpoint: Checkpoint, mtp: SourceMtp, arch: str, count: int, tensors: Iterable[Expected]
) -> Iterator[tuple[int, BlockCheck]]:
    spec, n_trunk = MTP_ARCHS[arch], mtp.n_trunk or 0
    blocks: dict[int, dict[str, TensorInfo]] = {}
    for tensor in tensors:
        if tensor.listed and tensor.name and tensor.name.startswith("blk."):
            _, number, name = tensor.name.split(".", 2)
            row = TensorInfo(name, tensor.shape or (1,), ggml_type(0), 0)
            blocks.setdefault(int(number), {})[name] = row
    header = _header(checkpoint, arch, n_trunk + count, count)
    tolerant = spec.all_optional or (spec.trunk_only and EH_PROJ not in blocks.get(n_trunk, {}))
    for block in range(n_trunk, n_trunk + count):
        names = shape_names(header, read_hparams(header), spec, block)
        yield (
            block,
            check_rows(
                spec.block, blocks.get(block, {}), names, optional=tolerant, skipped=spec.skipped
            ),
        )


def _header(checkpoint: Checkpoint, arch: str, n_layer_all: int, count: int) -> Header:
    """The metadata that decides which tensors a block must hold, as conversion would write it."""
    n = checkpoint.integer
    head_mla = n("qk_nope_head_dim", "v_head_dim")
    found: dict[str, int | None] = {
        "block_count": n_layer_all,
        "nextn_predict_layers": count,
        "leading_dense_block_count": n("first_k_dense_replace"),
        "expert_shared_count": n("n_shared_experts", "num_shared_experts"),
        "attention.q_lora_rank": n("q_lora_rank"),
        "attention.key_length_mla": head_mla,
        "attention.value_length_mla": n("v_head_dim"),
        "moe_latent_size": n("moe_latent_size"),
        "embedding_length": n("hidden_size"),
        "hash_layer_count": n("num_hash_layers"),
    }
    metadata: dict[str, Value] = {
        f"{arch}.{key}": value for key, value in found.items() if value is not None
    }
    metadata["general.architecture"] = arch
    return Header(3, "<", 32, metadata, {}, {}, (Shard("", 0, 0, 0),))


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
