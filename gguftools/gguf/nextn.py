"""The MTP (nextn) verdict on a file: declared, present, complete, loadable, runnable. Pure.

Three facts must agree: the key `nextn_predict_layers`, `block_count`, and the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gguftools.gguf.header import Header, TensorInfo, once
from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.nextn_block import block_tensors, check_rows
from gguftools.gguf.nextn_file import EH_PROJ, Head, MtpFile, is_mtp_name
from gguftools.gguf.nextn_findings import (
    Finding,
    block_count_findings,
    graph_findings,
    head_findings,
    key_findings,
    model_findings,
    stray_findings,
)
from gguftools.gguf.nextn_table import LLAMA_BUILD, MTP_ARCHS, NOT_MTP, Tensor
from gguftools.gguf.problem import Problem
from gguftools.gguf.shapes import shape_names

MtpState = Literal["none", "complete", "trunk-only", "head-only", "broken", "unsupported"]
_NONE = "no MTP head: neither declared nor present"


@dataclass(frozen=True, slots=True)
class HeadReport:
    """One MTP block: what it lacks, what has the wrong shape, its size."""

    block: int
    missing: tuple[str, ...]
    wrong_shape: tuple[str, ...]
    n_bytes: int
    eh_proj_type: str | None


@dataclass(frozen=True, slots=True)
class MtpReport:
    """The verdict. `loads` and `runnable` say what llama.cpp with load_mtp does with the file.

    `loads` covers what the MTP facts decide (key, block count, MTP blocks, model-level tensors);
    trunk tensors and keys of other hyperparameters are taken as they should be. `runnable`: an MTP
    context decodes with every declared head (an assistant beside its target).
    """

    state: MtpState
    declared: int
    heads: tuple[HeadReport, ...]
    loads: bool
    runnable: bool
    reason: str
    problems: tuple[Problem, ...]


@once
def mtp_report(header: Header) -> MtpReport:
    """Whether the MTP tensors of a file survived, and what llama.cpp makes of it."""
    arch = header.architecture
    declared = max(header.integer(f"{arch}.nextn_predict_layers") or 0, 0)
    spec = MTP_ARCHS.get(arch)
    if arch in NOT_MTP:
        return MtpReport("none", 0, (), True, False, f"{arch} is not an MTP architecture", ())
    if spec is None:
        return _unknown(header, declared)
    n_layer_all = max(header.integer(f"{arch}.block_count") or 0, 0)
    blocks: dict[int, dict[str, TensorInfo]] = {}
    for block, name, tensor in block_tensors(header):
        blocks.setdefault(block, {})[name] = tensor
    file = MtpFile(header, arch, spec, declared, n_layer_all, blocks)
    # With counts that disagree, no shape means anything.
    if found := list(key_findings(file)):
        return _report(file, [], found)
    heads = _heads(file)
    names = shape_names(header, read_hparams(header), spec, 0)
    head_only = declared > 0 and not file.trunk and spec.head_only
    model = check_rows(spec.model, header.tensors, names, head_only=head_only)
    findings = [
        *model_findings(file, model),
        *block_count_findings(file),
        *head_findings(file, heads),
        *stray_findings(file, heads),
        *graph_findings(file, heads),
    ]
    return _report(file, heads, findings)


def _unknown(header: Header, declared: int) -> MtpReport:
    """An architecture whose loader reads block_count - nextn_predict_layers blocks, no nextn."""
    names = [name for name in header.tensors if is_mtp_name(name)]
    if not declared and not names:
        return MtpReport("none", 0, (), True, False, _NONE, ())
    n_trunk = (header.integer(header.arch_key("block_count")) or 0) - declared
    hidden = any(block >= n_trunk for block, _, _ in block_tensors(header)) or n_trunk < 1
    what = f"llama.cpp {LLAMA_BUILD} knows no MTP for architecture {header.architecture!r}"
    if names:
        what += f" and refuses the file for tensors such as {names[0]}"
    elif hidden:
        what += f"; nextn_predict_layers = {declared} hides the last blocks from it"
    hint = "convert it again with --no-nextn, or use a newer llama.cpp if one supports it"
    loads = not names and not hidden
    problem = Problem("mtp-arch-unknown", "warning" if loads else "error", what, hint)
    return MtpReport("unsupported", declared, (), loads, False, problem.message, (problem,))


def _heads(file: MtpFile) -> list[Head]:
    """Each MTP block against its table rows, the way the loader takes it."""
    spec, hparams, rows = file.spec, read_hparams(file.header), file.spec.block
    if file.zeroed:
        rows = tuple(
            row for row in rows if not isinstance(row, Tensor) or not row.name.startswith("nextn.")
        )
    tolerant = spec.all_optional or (spec.trunk_only and not file.probed)
    heads = []
    for block in file.head_blocks:
        names = shape_names(file.header, hparams, spec, block)
        check = check_rows(
            rows,
            file.blocks.get(block, {}),
            names,
            optional=tolerant and file.declared > 0,
            skipped=spec.skipped,
        )
        heads.append(Head(block, names, check))
    return heads


def _report(file: MtpFile, heads: list[Head], findings: list[Finding]) -> MtpReport:
    stops = {finding.stops for finding in findings}
    loads = "load" not in stops
    state = _state(file, findings)
    ordered = sorted(findings, key=lambda f: ("load", "graph", "nothing").index(f.stops))
    return MtpReport(
        state,
        file.declared,
        tuple(_head(file, head) for head in heads),
        loads,
        loads and "graph" not in stops and file.declared > 0,
        ordered[0].problem.message if ordered else _reason(file, state),
        tuple(finding.problem for finding in ordered),
    )


def _state(file: MtpFile, findings: list[Finding]) -> MtpState:
    codes = {finding.problem.code for finding in findings}
    if any(finding.stops == "load" for finding in findings):
        return "broken"
    if file.stripped:
        return "trunk-only"
    if codes - {"mtp-no-graph", "mtp-many-heads"}:
        return "broken"
    if codes:
        return "unsupported"
    if not file.declared:
        return "none"
    return "complete" if file.trunk else "head-only"


def _reason(file: MtpFile, state: MtpState) -> str:
    if state == "none":
        return _NONE
    blocks = file.head_blocks
    where = f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {blocks[0]} to {blocks[-1]}"
    if state == "head-only":
        return f"an MTP head alone ({where}), for use beside its own target"
    return f"a complete MTP head in {where}"


def _head(file: MtpFile, head: Head) -> HeadReport:
    tensors, at = file.blocks.get(head.block, {}), f"blk.{head.block}."
    eh_proj = tensors.get(EH_PROJ)
    lost = (*head.check.missing, *head.check.graph_missing, *head.check.wanted)
    return HeadReport(
        head.block,
        tuple(at + name for name in dict.fromkeys(lost)),
        tuple(at + wrong.name for wrong in head.check.wrong),
        sum(tensor.n_bytes or 0 for tensor in tensors.values()),
        eh_proj.type.name if eh_proj else None,
    )
