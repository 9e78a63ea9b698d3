"""What `inspect` says of a checkpoint: as the source of a GGUF, or by itself before conversion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gguftools.cli import render
from gguftools.cli.contract_reference import (
    ArrivalJSON,
    CheckpointJSON,
    ReferenceJSON,
    SourceTensorJSON,
)
from gguftools.errors import UsageError
from gguftools.gguf.header import Header
from gguftools.gguf.lost_ways import Outcome
from gguftools.gguf.problem import Problem

# Its modules are loaded when a checkpoint is named, and not for every file.
if TYPE_CHECKING:
    from gguftools.gguf.checkpoint import Checkpoint
    from gguftools.gguf.conversion import Conversion
    from gguftools.gguf.mtp_expected import Expected
    from gguftools.gguf.reference import Arrival, ReferenceReport

_OUTCOMES: dict[Outcome, str] = {
    "none": "no MTP head, none written",
    "kept": "the head is kept",
    "unusable": "the head is written, llama.cpp cannot draft with it",
    "separate": "the head is left out, and written apart with --mtp",
    "dropped": "the head is dropped",
    "plain": "a plain model, no head",
    "will-not-load": "a file that llama.cpp does not load",
    "fails": "conversion stops",
    "unknown": "not known",
}


def read_reference(header: Header, place: str, *, deep: bool) -> ReferenceReport | None:
    """The file against the checkpoint named by --reference; None for a GGUF."""
    from gguftools.gguf.checkpoint import open_checkpoint
    from gguftools.gguf.reference import compare

    if Path(place).is_file():
        if not deep:
            hint = "gguftools diff compares two headers"
            raise UsageError("a GGUF as --reference needs --deep", where=place, hint=hint)
        return None
    checkpoint = open_checkpoint(place)
    if deep and not checkpoint.local:
        hint = "download it, or leave --deep away"
        raise UsageError("the weights of a Hub repository are not read", where=place, hint=hint)
    return compare(header, checkpoint)


def reference_problem(report: ReferenceReport | None) -> tuple[Problem, ...]:
    """The loss as a finding about the file."""
    if report is None or not report.lost:
        return ()
    return (Problem(f"reference-{report.way}", "error", report.reason, report.fix),)


def reference_json(report: ReferenceReport) -> ReferenceJSON:
    """The `reference` of `inspect --json`."""
    return ReferenceJSON(
        path=report.where,
        model_class=report.model_class,
        declared=report.declared,
        n_source=report.n_source,
        lost=report.lost,
        way=report.way,
        reason=report.reason,
        fix=report.fix,
        tensors=[_arrival_json(row) for row in report.tensors],
    )


def print_reference(report: ReferenceReport) -> None:
    """The tensors of the source and what became of each."""
    render.line()
    known = f" ({report.model_class})" if report.model_class else ""
    outcome = report.reason
    if report.lost:
        outcome = f"{report.n_arrived} of {len(report.tensors)} arrived"
    render.facts([
        ("made from", f"{report.where}{known}"),
        ("its MTP head", f"{render.count(report.n_source, 'tensor')}; {outcome}"),
    ])  # fmt: skip
    if report.tensors:
        render.line()
        head = ("source tensor", "in the GGUF", "arrived", "type", "shape")
        render.table(head, (_row(row) for row in report.tensors))


def inspect_checkpoint(place: str, *, as_json: bool) -> int:
    """Say what conversion will do with the head of a checkpoint; 1 when it is lost."""
    from gguftools.gguf.checkpoint import open_checkpoint
    from gguftools.gguf.conversion import foretell

    checkpoint = open_checkpoint(place)
    found = foretell(checkpoint)
    if as_json:
        render.json_object(_checkpoint_json(checkpoint, found))
    else:
        _print_checkpoint(checkpoint, found)
    return 0 if found.sound else 1


def _print_checkpoint(checkpoint: Checkpoint, found: Conversion) -> None:
    mtp = found.mtp
    counted = "not counted in the config" if mtp.declared is None else str(mtp.declared)
    render.line(checkpoint.where, style="bold")
    render.line()
    render.facts([
        ("class", checkpoint.model_class or "?"),
        ("becomes", mtp.arch or "?"),
        ("layers", str(checkpoint.n_trunk or "?")),
        ("MTP layers", counted + (f" ({mtp.key})" if mtp.key and mtp.declared else "")),
        ("MTP tensors", str(len(mtp.parts))),
        ("conversion", (_OUTCOMES[found.outcome], "green" if found.sound else "red")),
    ])  # fmt: skip
    if found.tensors:
        render.line()
        head = ("source tensor", "in the GGUF", "shape", "file")
        rows = (
            (
                _label(want),
                want.name or "-",
                _shape(want.shape),
                "read" if want.listed else "unread",
            )
            for want in found.tensors
        )
        render.table(head, rows)
    render.line()
    kind = "info" if found.sound else "error"
    render.line(f"{kind}: {found.reason} [conversion-{found.way}]", style=render.STYLES[kind])
    if found.fix:
        render.line(f"  {found.fix}")


def _checkpoint_json(checkpoint: Checkpoint, found: Conversion) -> CheckpointJSON:
    mtp = found.mtp
    return CheckpointJSON(
        schema="gguftools.checkpoint/1",
        path=checkpoint.where,
        model_class=checkpoint.model_class,
        architecture=mtp.arch,
        n_layer=checkpoint.n_trunk,
        declared=mtp.declared,
        declared_key=mtp.key or None,
        unlisted_files=list(mtp.unlisted_files),
        missing_files=list(checkpoint.missing_files),
        outcome=found.outcome,
        way=found.way,
        reason=found.reason,
        fix=found.fix,
        tensors=[_source_json(want) for want in found.tensors],
    )


def _source_json(want: Expected) -> SourceTensorJSON:
    return SourceTensorJSON(
        source=want.source,
        n_sources=want.n_sources,
        source_type=want.dtype,
        listed=want.listed,
        gguf=want.name,
        expected_shape=None if want.shape is None else list(want.shape),
    )


def _arrival_json(row: Arrival) -> ArrivalJSON:
    found = row.found
    return ArrivalJSON(
        **_source_json(row.expected),
        arrived=row.arrived,
        type=found.type.name if found else None,
        shape=list(found.shape) if found else None,
    )


def _row(row: Arrival) -> Sequence[str]:
    found, want = row.found, row.expected
    shape = _shape(found.shape if found else want.shape)
    if row.arrived == "wrong-shape":
        shape += f", not {_shape(want.shape)}"
    name = found.name if found else want.name
    return _label(want), name or "-", row.arrived, found.type.name if found else "-", shape


def _label(want: Expected) -> str:
    return want.source if want.n_sources == 1 else f"{want.source} ({want.n_sources})"


def _shape(shape: tuple[int, ...] | None) -> str:
    return "?" if shape is None else " x ".join(map(str, shape)) or "1"
