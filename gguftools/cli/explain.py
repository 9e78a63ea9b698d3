"""`gguftools explain FILE...`: why is it not faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from gguftools.cli import render
from gguftools.cli.contract_explain import CauseJSON, ExplainJSON, FactsJSON
from gguftools.cli.options import FILE, color_option, json_option

if TYPE_CHECKING:
    from gguftools.explain import Explanation


@click.command(short_help="Say why it is not faster.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@json_option
@color_option
def explain(files: tuple[Path, ...], as_json: bool) -> int:
    """Say why drafting is not faster, from what was measured, and what to try next.

    FILE is a report of run, chat, bench, pair or inspect (--json), a --trace file, the log of a
    llama-server, its /metrics, or a reply of its with timings; - is stdin. What it is is told by
    its content. Several files are taken together: a plain run beside a drafted one says what
    acceptance is needed, a log beside a report why the server does not draft.

    Exit code 0: it is faster, or nothing was found; 1: a cause was found.

    \b
    Examples:
      gguftools run model.gguf --draft small.gguf -p "Why?" --json > drafted.json
      gguftools run model.gguf --no-draft -p "Why?" --json > plain.json
      gguftools explain drafted.json plain.json
      gguftools explain llama-server.log
      curl -s localhost:8080/metrics | gguftools explain -
    """
    from gguftools import explain as library

    found = library.explain([library.read_facts(path) for path in files])
    if as_json:
        render.json_object(explain_json(found))
    else:
        show(found)
    return int(found.guilty)


def explain_json(found: Explanation) -> ExplainJSON:
    """The answer for `--json`."""
    return ExplainJSON(
        schema="gguftools.explain/1",
        facts=cast(FactsJSON, asdict(found.facts)),
        verdict=found.verdict,
        speedup=found.speedup,
        at_most=found.at_most,
        causes=[
            CauseJSON(
                code=c.code, severity=c.severity, message=c.message, hint=c.hint, numbers=c.numbers
            )
            for c in found.causes
        ],
    )


def show(found: Explanation) -> None:
    """The facts in a few lines, the verdict, then each cause with what to try."""
    render.facts(_rows(found))
    render.line()
    style = {"faster": "green", "slower": "red", "no-gain": "yellow", "unknown": ""}
    render.line(verdict_line(found), style[found.verdict])
    for cause in found.causes:
        render.line()
        render.line(f"{cause.code}: {cause.message}", render.STYLES[cause.severity])
        render.line(f"  try: {cause.hint}")


def verdict_line(found: Explanation) -> str:
    """The answer in a sentence."""
    speed, most = found.speedup, "at most " if found.at_most else ""
    of = f"{most}{speed:.2f}x the speed of plain decoding" if speed is not None else ""
    if found.verdict == "faster":
        return f"It is faster: {of}" + (", and could be faster yet." if found.causes else ".")
    if found.verdict == "slower":
        return f"It is slower: {of}."
    if found.verdict == "no-gain":
        return f"It is no faster: {of}."
    if found.causes and found.causes[0].severity == "error":
        return "It does not draft:"
    if found.guilty:
        return "How fast it could be, these files do not say; but something is in the way:"
    bound = f": {of}" if of else ""
    return f"Nothing was found. How fast plain decoding is, these files do not say{bound}."


def _rows(found: Explanation) -> Iterator[tuple[str, str]]:
    from gguftools.explain.rates import acceptance, rate

    f, d = found.facts, found.facts.drafted
    yield "from", ", ".join(f.sources)
    for label, value in (("target", f.target), ("draft", f.draft), ("drafter", f.drafter)):
        if value:
            yield label, value
    settings = (("n-max", f.draft_max), ("p-min", f.draft_p_min), ("temperature", f.temp))
    if known := ", ".join(f"{name} {value:g}" for name, value in settings if value is not None):
        yield "settings", known
    if d is not None and d.n_draft:
        rounds = f" in {render.count(d.n_rounds, 'round')}" if d.n_rounds else ""
        yield "drafted", f"{d.n_draft} tokens{rounds}, {render.ratio(acceptance(d))} accepted"
    for label, counts in (("speed", d), ("plain", f.plain)):
        if (speed := rate(counts)) is not None:
            yield label, f"{speed:.1f} tokens/s"
