"""`gguftools bench TARGET`: what drafting brings on this machine, measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gguftools.bench.measure import Measuring, Subject, measure, report_of
from gguftools.bench.prompt_set import PROMPT_SET, TASKS, Prompt, builtin_prompts, file_prompts
from gguftools.bench.report import BenchReport, report_json
from gguftools.bench.surroundings import our_builds
from gguftools.bench.verdict import N_PAIRS_MAX
from gguftools.cli import bench_text, render
from gguftools.cli.bench_server import Servers, launches, running_server
from gguftools.cli.engine_options import EngineOptions, model_options
from gguftools.cli.options import FILE, Number, color_option, given, json_option
from gguftools.cli.progress import progress
from gguftools.cli.reply import opened_session, run_extra
from gguftools.errors import EngineError, SourceError, UsageError

LENGTHS = "0,1,2,3,4,8,adaptive"
N_RUNS, N_PREDICT = 8, 128
_LENGTH_MAX = 64


class Lengths(click.ParamType[tuple[int | None, ...]]):
    """Draft lengths with commas between them; `adaptive` is None."""

    name = "n,.."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, ...]:
        found: list[int | None] = []
        for word in str(value).split(","):
            if word.strip() == "adaptive":
                found.append(None)
            elif word.strip().isdecimal() and int(word) <= _LENGTH_MAX:
                found.append(int(word))
            else:
                self.fail(f"{word!r} is neither a length from 0 to {_LENGTH_MAX} nor adaptive.",
                          param, ctx)  # fmt: skip
        return tuple(found)


@click.command(short_help="Measure what drafting brings.")
@click.argument("target", type=FILE)
@click.option(
    "--lengths",
    type=Lengths(),
    default=LENGTHS,
    show_default=True,
    help="Draft lengths to compare: 0 is plain, adaptive is what run and chat do.",
)
@click.option(
    "--runs",
    "n_runs",
    type=Number(int, 1, N_PAIRS_MAX),
    default=N_RUNS,
    show_default=True,
    help="Replies of each length, every one to another prompt.",
)
@click.option(
    "-n",
    "--predict",
    "--n-predict",
    "n_predict",
    type=Number(int, 1, 1 << 20),
    default=N_PREDICT,
    show_default=True,
    help="Most tokens of a reply.",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    help=f"Of the prompts only these: {', '.join(TASKS)}, or a category of --prompts.  "
    "[repeatable]",
)
@click.option(
    "--prompts",
    type=FILE,
    help="JSON lines with a prompt each, or of SPEED-Bench, instead of our own prompts.",
)
@click.option("--raw", is_flag=True, help="Continue the prompts as they are, without template.")
@click.option("--plot", type=FILE, help="Draw the result as a PNG.")
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["inprocess", "server"]),
    default="inprocess",
    show_default=True,
    help="What decodes: this process, or a llama-server that is started anew for each length.",
)
@click.option("--server", type=FILE, metavar="PATH", help="The llama-server to start.")
@click.option("--against", "url", help="A running llama-server (URL) that takes turns with them.")
@click.option("--api-key", envvar="LLAMA_API_KEY", help="The key of the server at --against.")
@model_options
@json_option
@color_option
def bench(
    target: Path,
    lengths: tuple[int | None, ...],
    n_runs: int,
    n_predict: int,
    tasks: tuple[str, ...],
    prompts: Path | None,
    raw: bool,
    plot: Path | None,
    engine_name: str,
    server: Path | None,
    url: str | None,
    api_key: str | None,
    engine: EngineOptions,
    as_json: bool,
) -> int:
    """Measure TARGET plain and with drafts of each length, taking turns on the same prompts.

    Says a gain only where the spread allows it. Exit code 0 is a gain, 1 is none. Ctrl-C ends
    with what is measured by then.

    \b
    Examples:
      gguftools bench model.gguf --draft small.gguf
      gguftools bench model.gguf --mtp --task code --task chat --temp 0
      gguftools bench model.gguf --ngram --task rewrite --lengths 0,8,16,adaptive
      gguftools bench model.gguf --draft small.gguf --plot speed.png --json > report.json
      gguftools bench model.gguf --draft small.gguf --prompts qualitative.jsonl --runs 22
      gguftools bench model.gguf --draft small.gguf --engine server --lengths 0,2,4
      gguftools bench model.gguf --draft small.gguf --against http://127.0.0.1:8080
    """
    if server is not None and engine_name != "server":
        raise UsageError("--server is for --engine server")
    if given("api_key") and url is None:
        raise UsageError("--api-key is for --against")
    if plot is not None:
        _needs_matplotlib()
        needs_folder(plot)
    chosen = prompts_of(prompts, tasks)
    name = prompts_name(prompts, tasks)
    with ExitStack() as stack, progress("measuring") as said:
        in_turn = 1 if engine_name == "inprocess" else (n_runs + 1) // 2
        how = Measuring(chosen, n_runs, n_predict, said, in_turn, engine.sampling["temp"] <= 0)
        other = None if url is None else running_server(url, engine, api_key, stack, raw=raw)
        if engine_name == "server":
            report = _served(target, engine, launches(target, engine, lengths, server, raw=raw),
                             other, how, name)  # fmt: skip
        else:
            report = _inprocess(target, engine, lengths, raw, other, how, name)
    if as_json:
        render.json_object(report_json(report))
    else:
        bench_text.show(report)
    if plot is not None:
        from gguftools.bench.plot import draw

        draw(report, plot)
    return exit_code(report)


def prompts_of(file: Path | None, tasks: tuple[str, ...]) -> tuple[Prompt, ...]:
    """Those of a file, else our own."""
    return file_prompts(file, tasks) if file else builtin_prompts(tasks or TASKS)


def prompts_name(file: Path | None, tasks: tuple[str, ...]) -> str:
    """What a report calls them."""
    return (file.name if file else PROMPT_SET) + (f" ({', '.join(tasks)})" if tasks else "")


def _inprocess(
    target: Path,
    engine: EngineOptions,
    lengths: Sequence[int | None],
    raw: bool,
    other: Servers | None,
    how: Measuring,
    name: str,
) -> BenchReport:
    with run_extra():
        from gguftools.bench.arms import Asked, bench_session
        from gguftools.speculative.plan import DRAFT_MAX_STATE
    asked = Asked(
        lengths, engine.draft_max, engine.draft_min, raw, name,
        against=other.ways if other else (), builds=other.builds if other else {},
    )  # fmt: skip
    # Where the longest one of them is a usual draft, so is the one that adapts.
    longest = max((n for n in (*lengths, engine.draft_max) if n is not None), default=0)
    if engine.draft_max is not None or longest > DRAFT_MAX_STATE:
        engine = replace(engine, draft_max=longest)
    with opened_session(target, engine) as session:
        return bench_session(session, asked, how)


def _served(
    target: Path,
    engine: EngineOptions,
    servers: Servers,
    other: Servers | None,
    how: Measuring,
    name: str,
) -> BenchReport:
    ways = [*servers.ways, *(other.ways if other else ())]
    subject = Subject(
        target=str(target),
        draft=None if engine.draft is None else str(engine.draft),
        drafter=servers.drafter,
        temp=engine.sampling["temp"],
        prompts=name,
        builds={**our_builds(), **servers.builds, **(other.builds if other else {})},
        n_threads=engine.n_threads,
    )
    return report_of(ways, measure(ways, how), how, subject)


def exit_code(report: BenchReport) -> int:
    """0 for a gain, or where nothing was to be compared; 1 for none; 130 when interrupted."""
    if not report.complete:
        return 130
    return 0 if report.verdict in ("gain", None) else 1


def needs_folder(path: Path) -> None:
    """SourceError if a file cannot be written there, before minutes go by."""
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise SourceError("no file can be written there", where=str(path))


def _needs_matplotlib() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise EngineError("matplotlib is not installed", where="--plot",
                          hint='pip install "gguftools[plot]"')  # fmt: skip
