"""What `inspect` says of places: of a folder, a pattern or a whole repository a line a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from gguftools.cli import render
from gguftools.cli.contract_list import ListedJSON
from gguftools.cli.fetch import fetch
from gguftools.cli.progress import progress
from gguftools.cli.reference import inspect_checkpoint
from gguftools.errors import GGUFToolsError, UsageError
from gguftools.gguf.header import Header
from gguftools.gguf.place import Found, find_models, is_remote, open_model
from gguftools.gguf.report import InspectReport, inspect_header
from gguftools.pairing.kinds import draft_kind


def inspect_place(
    where: str, one: Callable[[Header], int], *, deep: bool, alone: bool, as_json: bool
) -> int:
    """What is not a file here: a checkpoint, several models, or one elsewhere, shown by `one`.

    With `alone` only one model makes sense, with `deep` only one on this machine.
    """
    if os.path.isfile(os.path.join(where, "config.json")) and not alone:
        return inspect_checkpoint(where, as_json=as_json)
    found = find_models(where)
    if found.checkpoint and not alone:
        return inspect_checkpoint(found.checkpoint, as_json=as_json)
    if found.many and alone:
        raise UsageError("--deep and --reference are for one model", where=where)
    if found.many:
        return inspect_list(where, found, as_json=as_json)
    if deep and is_remote(where):
        hint = "download it and name the file"
        raise UsageError("--deep does not read remote tensors", where=where, hint=hint)
    return one(fetch(where if found.checkpoint else found.places[0]))


def inspect_list(where: str, found: Found, *, as_json: bool) -> int:
    """Show every model; 3 when none can be read, else 1 when one is broken or cannot be read."""
    files = list(_read(found.places))
    if as_json:
        render.json_object({"schema": "gguftools.inspect-list/1", "path": where, "files": files})
    else:
        _print(where, files, found.stem)
    verdicts = {file["verdict"] for file in files}
    if verdicts == {"unreadable"}:
        return 3
    return 0 if verdicts == {"sound"} else 1


def _read(places: Sequence[str]) -> Iterator[ListedJSON]:
    """One after the other; of each only what is shown stays in memory."""
    with progress("reading headers") as done:
        for i, place in enumerate(places):
            done(i, len(places))
            try:
                yield _listed(place, inspect_header(open_model(place)))
            except GGUFToolsError as err:
                yield _unreadable(place, err.what + (f" ({err.hint})" if err.hint else ""))


def _listed(place: str, report: InspectReport) -> ListedJSON:
    errors = [p.message for p in report.problems if p.severity == "error"]
    reason = None if report.sound else (errors or [report.mtp.reason])[0]
    return {
        "path": place,
        "n_files": len(report.header.shards),
        "architecture": report.header.architecture,
        "name": report.name,
        "file_type": report.file_type,
        "n_params": report.tensors.n_params,
        "n_bytes": report.n_bytes,
        "mtp": report.mtp.state,
        "mtp_runnable": report.mtp.runnable,
        "draft_kind": draft_kind(report.header),
        "verdict": "sound" if report.sound else "broken",
        "reason": reason,
    }


def _unreadable(place: str, reason: str) -> ListedJSON:
    return {
        "path": place,
        "n_files": None,
        "architecture": None,
        "name": None,
        "file_type": None,
        "n_params": None,
        "n_bytes": None,
        "mtp": None,
        "mtp_runnable": None,
        "draft_kind": None,
        "verdict": "unreadable",
        "reason": reason,
    }


def _print(where: str, files: Sequence[ListedJSON], stem: str) -> None:
    render.line(f"{render.count(len(files), 'model')} in {where}", style="bold")
    head = ("model", "architecture", "parameters", "quant", "size", "MTP head", "verdict")
    render.table(head, (_row(file, stem) for file in files), right=(2, 4))


def _row(file: ListedJSON, stem: str) -> tuple[str, ...]:
    n_files, n_params, reason = file["n_files"], file["n_params"], file["reason"]
    return (
        file["path"].removeprefix(stem)
        + (f" and {n_files - 1} more" if n_files and n_files > 1 else ""),
        file["architecture"] or "?",
        "?" if n_params is None else render.n_params(n_params),
        file["file_type"] or "?",
        render.n_bytes(file["n_bytes"]),
        file["mtp"] or "?",
        file["verdict"] + (f": {reason}" if reason else ""),
    )
