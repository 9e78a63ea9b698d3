"""What `inspect --deep` adds: the progress bar while tensors are read, and what was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gguftools.cli import render
from gguftools.cli.contract import (
    CopyJSON,
    DeepJSON,
    FidelityJSON,
    HeadPrecisionJSON,
    ImatrixJSON,
    NonFiniteJSON,
    PrecisionJSON,
)
from gguftools.cli.progress import progress
from gguftools.gguf.header import Header, TensorInfo
from gguftools.gguf.precision import head_precision, imatrix
from gguftools.gguf.problem import Problem
from gguftools.gguf.source import open_gguf

if TYPE_CHECKING:
    from gguftools.gguf.deep import DeepReport


def read_tensors(header: Header, reference: Path | None) -> tuple[DeepReport, tuple[Problem, ...]]:
    """Read the tensors, with a bar on a terminal. numpy is loaded here and not before.

    The reference is another GGUF, or the folder of a checkpoint.
    """
    from gguftools.gguf.checkpoint import open_checkpoint
    from gguftools.gguf.deep import deep_report
    from gguftools.gguf.deep_findings import deep_problems

    source = None
    if reference is not None:
        source = open_checkpoint(str(reference)) if reference.is_dir() else open_gguf(reference)
    with progress("reading tensors", in_bytes=True) as read:
        report = deep_report(header, source, read)
    return report, deep_problems(header, report)


def deep_json(header: Header, report: DeepReport, reference: str | None) -> DeepJSON:
    """The report as `--json` has it."""
    return DeepJSON(
        n_tensors=report.n_tensors,
        n_bytes=report.n_bytes,
        unread=list(report.unread),
        nonfinite=[
            NonFiniteJSON(tensor=b.tensor, n_blocks=b.n_blocks, n_bad=b.n_bad, first=b.first)
            for b in report.nonfinite
        ],
        zero=list(report.zero),
        constant=list(report.constant),
        blank=list(report.blank),
        copies=[CopyJSON(tensor=c.tensor, of=c.of, n_bytes=c.n_bytes) for c in report.copies],
        reference=reference,
        fidelity=[
            FidelityJSON(
                tensor=f.tensor,
                type=f.type,
                reference_type=f.reference_type,
                error=f.error,
                cosine=f.cosine,
            )
            for f in report.fidelity
        ],
        lost=list(report.lost),
        head=[
            HeadPrecisionJSON(
                block=head.block, eh_proj=_precision(head.eh_proj), output=_precision(head.output)
            )
            for head in head_precision(header)
        ],
        imatrix=_imatrix(header),
    )


def _imatrix(header: Header) -> ImatrixJSON | None:
    matrix = imatrix(header)
    if matrix is None:
        return None
    return ImatrixJSON(
        file=matrix.file,
        dataset=matrix.dataset,
        n_entries=matrix.n_entries,
        n_chunks=matrix.n_chunks,
        covers_head=matrix.covers_head,
    )


def _precision(row: TensorInfo | None) -> PrecisionJSON | None:
    if row is None:
        return None
    return PrecisionJSON(
        tensor=row.name, type=row.type.name, bits_per_weight=row.type.bits_per_weight
    )


def print_deep(header: Header, report: DeepReport) -> None:
    """What was read, how precise the head is, and how close to the reference."""
    render.line()
    n_bad = len(report.nonfinite)
    finite = "no NaN or Inf" if not n_bad else f"NaN or Inf in {render.count(n_bad, 'tensor')}"
    rows = [("tensors read", f"{report.n_tensors}, {render.n_bytes(report.n_bytes)}: {finite}")]
    for head in head_precision(header):
        parts = [f"{r.name} {r.type.name}" for r in (head.eh_proj, head.output) if r is not None]
        rows.append((f"MTP block {head.block}", ", ".join(parts)))
    if (matrix := imatrix(header)) is not None:
        n_entries = "?" if matrix.n_entries is None else str(matrix.n_entries)
        seen = ", none left for the MTP head" if matrix.covers_head is False else ""
        rows.append(
            ("imatrix", f"{matrix.dataset or matrix.file or '?'}: {n_entries} entries{seen}")
        )
    render.facts(rows)
    if report.fidelity:
        render.line()
        render.table(
            ("against the reference", "type", "its type", "error", "cosine"),
            [
                (f.tensor, f.type, f.reference_type, _percent(f.error), _cosine(f.cosine))
                for f in report.fidelity
            ],
            right=(3, 4),
        )


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:.2f} %"


def _cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"
