"""`gguftools inspect FILE`: what is in a model, and did its MTP head survive."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gguftools.cli import render
from gguftools.cli.options import PLACE, color_option, json_option
from gguftools.gguf.problem import Problem
from gguftools.gguf.report import InspectReport, inspect_header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.kinds import draft_kind

# Every start of inspect pays for what it imports: the rest follows where it is asked for.
if TYPE_CHECKING:
    from gguftools.cli.contract import DeepJSON, HeadJSON, InspectJSON, MtpJSON
    from gguftools.cli.contract_reference import ReferenceJSON
    from gguftools.gguf.deep import DeepReport
    from gguftools.gguf.header import Header
    from gguftools.gguf.reference import ReferenceReport


@click.command(short_help="What is in a file, and did its MTP head survive?")
@click.argument("file", type=PLACE)
@click.option("--deep", is_flag=True, help="Read the tensors too: NaN, Inf, dead or copied heads.")
@click.option(
    "--reference",
    help="What it was made from: a checkpoint (folder, or Hub user/repo[@revision]) to say where "
    "the head was lost; with --deep a GGUF or a folder, to compare the head's values to.",
)
@json_option
@color_option
def inspect(file: str, deep: bool, reference: str | None, as_json: bool) -> int:
    """Say what the GGUF model FILE holds and whether its MTP head survived.

    Only the header is read, with --deep every tensor. Of a split model any shard may be named; all
    are read as one. Of the folder of a Hugging Face checkpoint it says what conversion will do
    with the head. Exit code 1 when something is broken, with what to do about it.

    FILE may also be a URL or user/repo[:QUANT] on the Hugging Face Hub, as in llama.cpp's -hf. Of a
    folder, a quoted pattern or a whole repository (user/repo/) every model gets one line.

    \b
    Examples:
      gguftools inspect model.gguf
      gguftools model.gguf                      the same
      gguftools inspect model-00001-of-00004.gguf
      gguftools inspect folder/                 every model in it, or 'quants/*Q4*.gguf'
      gguftools inspect ggml-org/gemma-3-270m-GGUF:Q8_0
      gguftools inspect https://example.org/model.gguf
      gguftools inspect model.gguf --json | jq .mtp.state
      gguftools inspect model.gguf --reference Qwen/Qwen3.5-9B
      gguftools inspect checkpoint-folder/      before it is converted
      gguftools inspect model-Q4_K_M.gguf --deep --reference model-F16.gguf
    """

    def one(header: Header) -> int:
        return _inspect(header, file, deep, reference, as_json)

    if os.path.isfile(file):
        return one(open_gguf(file))
    from gguftools.cli.inspect_list import inspect_place

    return inspect_place(file, one, deep=deep, alone=deep or bool(reference), as_json=as_json)


def _inspect(header: Header, file: str, deep: bool, reference: str | None, as_json: bool) -> int:
    """One model."""
    report, found, source = inspect_header(header), None, None
    problems: tuple[Problem, ...] = ()
    if reference:
        from gguftools.cli.reference import read_reference, reference_problem

        source = read_reference(report.header, reference, deep=deep)
        problems = reference_problem(source)
    if deep:
        from gguftools.cli.deep import read_tensors

        found, more = read_tensors(report.header, Path(reference) if reference else None)
        problems = (*problems, *more)
    report = replace(report, problems=_by_severity((*report.problems, *problems)))
    if as_json:
        render.json_object(_json(report, file, found, reference, source))
    else:
        _print(report, found, source)
    return 0 if report.sound else 1


def _by_severity(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda p: ("error", "warning", "info").index(p.severity)))


def _json(
    report: InspectReport,
    path: str,
    deep: DeepReport | None,
    reference: str | None,
    source: ReferenceReport | None,
) -> InspectJSON:
    hparams, vocab = report.hparams, report.vocab
    return {
        "schema": "gguftools.inspect/1",
        "path": path,
        "files": [shard.path for shard in report.header.shards],
        "architecture": report.header.architecture,
        "name": report.name,
        "n_layer": hparams.n_layer,
        "n_layer_all": hparams.n_layer_all,
        "n_ctx_train": hparams.n_ctx_train,
        "n_embd": hparams.n_embd,
        "n_head": list(hparams.n_head),
        "n_head_kv": list(hparams.n_head_kv),
        "n_vocab": hparams.n_vocab,
        "tokenizer": vocab.model if vocab is not None else None,
        "n_params": report.tensors.n_params,
        "n_bytes": report.n_bytes,
        "bits_per_weight": report.tensors.bits_per_weight,
        "file_type": report.file_type,
        "quant_types": report.tensors.quant_types(),
        "chat_template": report.chat_template is not None,
        "mtp": _mtp_json(report),
        "draft_kind": draft_kind(report.header),
        "deep": _deep_json(report.header, deep, reference),
        "reference": _reference_json(source),
        "problems": [
            {"code": p.code, "severity": p.severity, "message": p.message, "hint": p.hint}
            for p in report.problems
        ],
    }


def _deep_json(header: Header, report: DeepReport | None, reference: str | None) -> DeepJSON | None:
    if report is None:
        return None
    from gguftools.cli.deep import deep_json

    return deep_json(header, report, reference)


def _reference_json(report: ReferenceReport | None) -> ReferenceJSON | None:
    if report is None:
        return None
    from gguftools.cli.reference import reference_json

    return reference_json(report)


def _mtp_json(report: InspectReport) -> MtpJSON:
    mtp = report.mtp
    return {
        "state": mtp.state,
        "declared": mtp.declared,
        "heads": [
            {
                "block": head.block,
                "missing": list(head.missing),
                "wrong_shape": list(head.wrong_shape),
                "n_bytes": head.n_bytes,
                "eh_proj_type": head.eh_proj_type,
            }
            for head in mtp.heads
        ],
        "loads": mtp.loads,
        "runnable": mtp.runnable,
        "reason": mtp.reason,
    }


def _print(report: InspectReport, deep: DeepReport | None, source: ReferenceReport | None) -> None:
    shards = report.header.shards
    render.line(report.name or Path(shards[0].path).name, style="bold")
    places = shards[0].path if len(shards) == 1 else f"{shards[0].path} and {len(shards) - 1} more"
    render.line(places, style="dim")
    render.line()
    render.facts(_facts(report))
    render.line()
    head = ("tensors", "parameters", "size", "bits", "types")
    render.table(head, _groups(report), right=(1, 2, 3))
    if source:
        from gguftools.cli.reference import print_reference

        print_reference(source)
    if deep:
        from gguftools.cli.deep import print_deep

        print_deep(report.header, deep)
    for problem in report.problems:
        render.line()
        render.line(f"{problem.severity}: {problem.message} [{problem.code}]",
                    style=render.STYLES[problem.severity])  # fmt: skip
        if problem.hint:
            render.line(f"  {problem.hint}")


def _facts(report: InspectReport) -> list[tuple[str, str | render.Cell]]:
    hparams, tensors, vocab = report.hparams, report.tensors, report.vocab
    bits = f", {tensors.bits_per_weight:.2f} bits per weight" if tensors.bits_per_weight else ""
    kind = f", {report.file_type}" if report.file_type else ""
    tokenizer = f", {vocab.model} {vocab.pre}" if vocab else ""
    layers = str(hparams.n_layer)
    if hparams.n_layer_all != hparams.n_layer:
        layers += f" and {hparams.n_layer_all - hparams.n_layer} for MTP"
    return [
        ("architecture", report.header.architecture or "?"),
        ("parameters", render.n_params(tensors.n_params)),
        ("size", f"{render.n_bytes(report.n_bytes)}{kind}{bits}"),
        ("layers", layers),
        ("width", _number(hparams.n_embd)),
        ("heads", _heads(report)),
        ("context", _number(hparams.n_ctx_train)),
        ("vocabulary", f"{_number(hparams.n_vocab)}{tokenizer}"),
        ("chat template", "yes" if report.chat_template else "no"),
        ("MTP head", (_mtp(report), render.STYLES[report.mtp.state])),
        *((f"  block {head['block']}", _head(head)) for head in _mtp_json(report)["heads"]),
        ("drafts as", draft_kind(report.header) or "nothing"),
    ]


def _number(n: int | None) -> str:
    return "?" if n is None else str(n)


def _heads(report: InspectReport) -> str:
    """`32, 8 for keys and values`; layers that differ as a range."""

    def span(values: tuple[int, ...]) -> str:
        low, high = min(values, default=0), max(values, default=0)
        return str(low) if low == high else f"{low} to {high}"

    heads, kv = span(report.hparams.n_head), span(report.hparams.n_head_kv)
    return heads if heads == kv else f"{heads}, {kv} for keys and values"


def _mtp(report: InspectReport) -> str:
    """The verdict with what llama.cpp makes of it."""
    mtp = report.mtp
    if mtp.state == "none":
        return mtp.reason
    if mtp.runnable:
        outcome = "llama.cpp drafts with it"
    elif mtp.loads:
        outcome = "llama.cpp loads the file and cannot draft with it"
    else:
        outcome = "llama.cpp does not load the file"
    state = "" if mtp.state == "complete" else f"{mtp.state}: "
    return f"{state}{mtp.reason}; {outcome}"


def _head(head: HeadJSON) -> str:
    """What one MTP block has and lacks."""
    parts = [render.n_bytes(head["n_bytes"])]
    if head["eh_proj_type"]:
        parts.append(f"eh_proj {head['eh_proj_type']}")
    if head["missing"]:
        parts.append(f"missing {', '.join(head['missing'])}")
    if head["wrong_shape"]:
        parts.append(f"wrong shape {', '.join(head['wrong_shape'])}")
    return "; ".join(parts)


def _groups(report: InspectReport) -> list[tuple[str, ...]]:
    tensors = report.tensors
    rows = {
        "trunk": tensors.trunk,
        "MTP head": tensors.head,
        "embedding": tensors.embedding,
        "output": tensors.output,
        "experts (of these)": tensors.experts,
    }
    return [
        (
            name,
            render.n_params(group.n_params),
            render.n_bytes(group.n_bytes),
            render.rate(group.bits_per_weight),
            ", ".join(f"{kind} {render.n_bytes(size)}" for kind, size in group.types.items()),
        )
        for name, group in rows.items()
        if group.n_tensors
    ]
