"""Reads a file and says what it is by what is in it: report, trace, log, metrics, reply. I/O."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gguftools.errors import SourceError
from gguftools.explain.facts import Facts
from gguftools.explain.record import Record
from gguftools.explain.reports import READERS, read_report
from gguftools.explain.server_log import looks_like_log, read_log
from gguftools.explain.server_texts import read_metrics, read_reply
from gguftools.explain.trace import N_STEPS_MAX, is_step, read_trace

BYTES_MAX = 64 << 20
WHAT = "a JSON report, a --trace file, a llama-server log, its /metrics or a reply with timings"


def read_facts(path: Path) -> Facts:
    """The facts of one file; `-` is stdin."""
    where = "stdin" if str(path) == "-" else str(path)
    try:
        if where == "stdin":
            text = _read(sys.stdin.buffer, where)
        else:
            with path.open("rb") as file:
                text = _read(file, where)
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=where) from err
    return parse(text, where)


def _read(file: BinaryIO, where: str) -> str:
    content = file.read(BYTES_MAX + 1)
    if content[:4] == b"GGUF":
        raise SourceError("is a model", where=where, hint="try: gguftools inspect")
    if len(content) > BYTES_MAX:
        raise SourceError(f"larger than {BYTES_MAX >> 20} MiB", where=where, hint="cut it first")
    if b"\0" in content:
        raise SourceError(f"is not text; explain reads {WHAT}", where=where)
    return content.decode("utf-8-sig", "replace")


def parse(text: str, where: str) -> Facts:
    """The facts in a text."""
    if not text.strip():
        raise SourceError("is empty", where=where)
    if text.lstrip()[:1] in "{[":
        return _parse_json(text, where)
    if (event := _last_event(text, where)) is not None:
        return read_reply(event)
    if text.startswith("llamacpp:") or "\nllamacpp:" in text:
        return read_metrics(text, where)
    if looks_like_log(text):
        return read_log(text)
    raise SourceError(f"is none of what explain reads: {WHAT}", where=where)


def _parse_json(text: str, where: str) -> Facts:
    value = _load(text)
    if value is None:
        return _parse_lines(text, where)
    if not isinstance(value, dict):
        raise SourceError("is JSON, but not one object", where=where)
    record = Record(value, where)
    if (facts := read_report(record)) is not None:
        return facts
    if "timings" in value:
        return read_reply(record)
    if is_step(record):
        return read_trace([record])
    schema = record.text("schema")
    if schema:
        known = ", ".join(sorted(READERS))
        raise SourceError(f"is a {schema}; explain reads {known}", where=where)
    if "choices" in value:
        raise SourceError("is a reply without timings: llama-server's have them", where=where)
    raise SourceError(f"is none of what explain reads: {WHAT}", where=where)


def _parse_lines(text: str, where: str) -> Facts:
    """JSON lines: a trace. A last line that was cut off is left out."""
    records: list[Record] = []
    lines = [line for line in text.splitlines() if line.strip()]
    for i, line in enumerate(lines[: N_STEPS_MAX + 1], 1):
        value = _load(line)
        record = Record(value, f"{where}, line {i}") if isinstance(value, dict) else None
        if record is not None and is_step(record):
            records.append(record)
        elif i < len(lines) or not records:
            raise SourceError(f"is not a round of a trace, nor {WHAT}", where=f"{where}, line {i}")
    if len(records) > N_STEPS_MAX:
        raise SourceError(f"a trace of more than {N_STEPS_MAX} rounds", where=where)
    return read_trace(records)


def _last_event(text: str, where: str) -> Record | None:
    """The message with timings of a streamed reply (`data: {...}` lines)."""
    if not text.lstrip().startswith("data:"):
        return None
    for value in _events(text):
        if "timings" in value:
            return Record(value, where)
    raise SourceError("a streamed reply without timings: llama-server's last one has them",
                      where=where)  # fmt: skip


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in reversed(text.splitlines()):
        value = _load(line.removeprefix("data:")) if line.startswith("data:") else None
        if isinstance(value, dict):
            yield value


def _load(text: str) -> Any:
    """JSON, None where it is none: also where it is too deep, or a number too long, to be meant."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
