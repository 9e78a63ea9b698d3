"""`gguftools tune TARGET [DRAFT]...`: the best pair settings for this machine, as a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gguftools.bench.prompt_set import TASKS
from gguftools.bench.report import Arm
from gguftools.bench.surroundings import machine_line
from gguftools.bench.tuning import Choice, TuneReport, tune_json
from gguftools.cli import render
from gguftools.cli.bench import needs_folder, prompts_name, prompts_of
from gguftools.cli.bench_text import STYLES, spread_text
from gguftools.cli.engine_options import EngineOptions, model_options
from gguftools.cli.options import FILE, Number, color_option, given, json_option
from gguftools.cli.progress import progress
from gguftools.cli.reply import run_extra, settings_of
from gguftools.errors import EngineError, RefusedError, UsageError

if TYPE_CHECKING:
    from gguftools.bench.tune import TuneAsked
    from gguftools.gguf.header import Header

SECONDS = 120


@click.command(short_help="Find the best pair settings for this machine.")
@click.argument("target", type=FILE)
@click.argument("drafts", type=FILE, nargs=-1, metavar="[DRAFT]...")
@click.option(
    "--seconds",
    type=Number(float, 1, 86400),
    default=SECONDS,
    show_default=True,
    help="How long it may take, loading included.",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    help=f"Tune for these alone: {', '.join(TASKS)}, or a category of --prompts.  [repeatable]",
)
@click.option("--prompts", type=FILE, help="JSON lines with a prompt each, as for bench.")
@click.option("--raw", is_flag=True, help="Continue the prompts as they are, without template.")
@click.option("-o", "--output", type=FILE, help="Write the result there as a recipe.")
@click.option(
    "--for",
    "larger",
    type=FILE,
    help="A larger model of the series: offer it the settings that carry over.",
)
@model_options
@json_option
@color_option
def tune(
    target: Path,
    drafts: tuple[Path, ...],
    seconds: float,
    tasks: tuple[str, ...],
    prompts: Path | None,
    raw: bool,
    output: Path | None,
    larger: Path | None,
    engine: EngineOptions,
    as_json: bool,
) -> int:
    """Find which draft for TARGET, how long, and with how many threads is fastest here.

    Tries every DRAFT, the target's own MTP head and n-gram lookup, then compares the winner with
    plain decoding on fresh prompts. Exit code 0 is a gain, 1 is none; no recipe is written then.
    Batch sizes stay: they only change how prompts are read.

    \b
    Examples:
      gguftools tune model.gguf small.gguf smaller.gguf -o mine.toml
      gguftools tune model.gguf --mtp --seconds 300 --task code
      gguftools tune 8b.gguf 1b.gguf -o mine.toml --for 70b.gguf
    """
    _refuse_tuned(engine)
    if output is not None:
        needs_folder(output)
    chosen, name = prompts_of(prompts, tasks), prompts_name(prompts, tasks)
    sibling = _sibling(target, larger)
    with run_extra():
        from gguftools.bench.tune import TuneAsked, tune_pair
    settings = settings_of(target, engine)
    named = [*drafts, *([engine.draft] if engine.draft is not None else [])]
    keep = given("cache_type_k_draft", "cache_type_v_draft")
    asked = TuneAsked(named, seconds, chosen, name, tasks, raw, keep)
    with progress("tuning (s)") as said:
        report = tune_pair(settings, asked, said)
    if report.choice is None and report.complete:
        raise EngineError("; ".join(report.notes), hint="more --seconds, or other prompts")
    report, written = _written(report, output, sibling, asked)
    if as_json:
        render.json_object(tune_json(replace(report, notes=(*report.notes, *written))))
    else:
        show(report, written)
    if not report.complete:
        return 130
    return 0 if report.verdict == "gain" else 1


def _refuse_tuned(engine: EngineOptions) -> None:
    """What is to be found cannot be given."""
    for name, flag in (
        ("draft_max", "--draft-max"),
        ("draft_min", "--draft-min"),
        ("draft_p_min", "--draft-p-min"),
    ):
        if given(name):
            raise UsageError(f"{flag} is what tune finds; bench measures given lengths")
    if engine.drafter == "none":
        raise UsageError("--no-draft leaves nothing to tune")
    if engine.ngram_first:
        raise UsageError("tune tries --ngram by itself, not before another drafter")


def _sibling(target: Path, larger: Path | None) -> Header | None:
    """The larger model, checked before any time is spent."""
    if larger is None:
        return None
    from gguftools.bench.transfer import check_series
    from gguftools.gguf.source import open_gguf

    header = open_gguf(larger)
    check_series(open_gguf(target), header)
    return header


def _written(
    report: TuneReport, output: Path | None, sibling: Header | None, asked: TuneAsked
) -> tuple[TuneReport, list[str]]:
    """The recipes of a gain, and what is said of them."""
    choice = report.choice
    if not report.complete or report.verdict != "gain" or choice is None:
        said = ["no recipe is written: no gain was shown"] if output is not None else []
        return report, said
    said = []
    if output is not None:
        from gguftools.bench.tune import tuned_recipe
        from gguftools.recipes import write_recipe

        write_recipe(tuned_recipe(output.stem, report, asked), output)
        report = replace(report, recipe=str(output))
        said.append(f"recipe written to {output}; run it: gguftools recipe run {output}")
    if sibling is not None:
        said += _offered(report, choice, output, sibling, asked)
    return report, said


def _offered(
    report: TuneReport, choice: Choice, output: Path | None, sibling: Header, asked: TuneAsked
) -> list[str]:
    """What the larger model is offered, and the recipe for it."""
    from gguftools.bench.transfer import transfer
    from gguftools.bench.tune import transferred_recipe
    from gguftools.recipes import write_recipe

    try:
        offered = transfer(choice, sibling)
    except RefusedError as err:
        return [f"nothing carries over: {err}"]
    said = [f"for {sibling.path}: --draft-max {offered.draft_max} --draft-min {offered.draft_min} "
            f"--draft-p-min {offered.draft_p_min:g}", *offered.caveats]  # fmt: skip
    if output is not None:
        place = output.with_name(f"{output.stem}-for-{Path(sibling.path).stem}.toml")
        write_recipe(transferred_recipe(place.stem, report, offered, asked), place)
        said.append(f"recipe written to {place}")
    return said


def show(report: TuneReport, said: Sequence[str]) -> None:
    """Decisions with their reasons, then the comparison."""
    render.line(Path(report.target).name, "bold")
    render.line(machine_line(report.machine), "dim")
    render.line(f"{report.seconds_spent:.0f} of {report.seconds:.0f} seconds; "
                f"prompts: {report.prompts}", "dim")  # fmt: skip
    for text in report.notes:
        render.line(text, "dim")
    if report.decisions:
        render.line()
        render.table(("setting", "value", "why"),
                     [(d.setting, d.value, d.reason) for d in report.decisions])  # fmt: skip
    if report.arms:
        render.line()
        render.line("On prompts that had no part in it:")
        rows = [_row(arm) for arm in report.arms]
        head = ("", "tokens/s", "low-high", "of plain", "accepted", "replies")
        render.table(head, rows, right=(1, 2, 3, 4, 5))
    render.line()
    if not report.complete:
        render.line("interrupted: this is what was found by then", "yellow")
    render.line(report.reason, STYLES.get(report.verdict or "", ""))
    for text in said:
        render.line(text)


def _row(arm: Arm) -> tuple[str, ...]:
    return (arm.name, *spread_text(arm.tokens_per_second, 1), spread_text(arm.ratio_to_plain, 2)[0],
            render.ratio(arm.acceptance), str(len(arm.runs)))  # fmt: skip
