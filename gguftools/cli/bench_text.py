"""A benchmark on a screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from statistics import median

from gguftools.bench.report import PLAIN, Arm, BenchReport, ratios
from gguftools.bench.surroundings import machine_line
from gguftools.bench.verdict import Spread
from gguftools.cli import render

STYLES = {"gain": "green", "loss": "red", "no-gain": "yellow"}
_N_POSITIONS = 8
_N_TASKS = 11  # as many as SPEED-Bench has


def show(report: BenchReport) -> None:
    """Arms, drafts, and the verdict."""
    drafted = f", drafted by {_drafter(report)}" if report.drafter != "none" else ""
    render.line(f"{PurePath(report.target).name}{drafted}", "bold")
    n_runs = max((len(arm.runs) for arm in report.arms), default=0)
    temp = "" if report.temp is None else f", temperature {report.temp:g}"
    runs = f"{render.count(n_runs, 'run')} of up to {report.n_predict} tokens each{temp}"
    render.line(machine_line(report.machine), "dim")
    render.line(f"{runs}; prompts: {report.prompts}", "dim")
    render.line()
    speeds(report)
    drafts(report)
    by_task(report)
    for text in _remarks(report):
        render.line(text, "dim")
    render.line()
    render.line(report.reason, STYLES.get(report.verdict or "", ""))


def speeds(report: BenchReport) -> None:
    """Tokens per second, and the ratio to plain on the same prompts, each with its spread."""
    rows = [
        (arm.name, *spread_text(arm.tokens_per_second, 1), *spread_text(arm.ratio_to_plain, 2),
         *spread_text(arm.request_ratio_to_plain, 2)[:1])
        for arm in report.arms
    ]  # fmt: skip
    head = ("", "tokens/s", "low-high", "of plain", "low-high", "whole request")
    render.table(head, rows, right=(1, 2, 3, 4, 5))


def drafts(report: BenchReport) -> None:
    """What the drafts brought, and where the time went."""
    rows = [_draft_row(arm) for arm in report.arms if arm.name != PLAIN]
    if rows:
        render.line()
        head = ("", "tokens/round", "accepted", "by position", "draft", "verify", "other")
        render.table(head, rows, right=(1, 2, 4, 5, 6))


def _draft_row(arm: Arm) -> tuple[str, ...]:
    kept = [f"{100 * share:.0f}" for share in arm.accepted_by_position[:_N_POSITIONS]]
    if len(arm.accepted_by_position) > _N_POSITIONS:
        kept.append("..")
    time = arm.time
    whole = time.draft + time.verify + time.other if time else 0.0
    parts = (time.draft, time.verify, time.other) if time else ()
    shares = [render.ratio(part / whole) for part in parts] if whole else ["-"] * 3
    rounds = "-" if arm.tokens_per_round is None else f"{arm.tokens_per_round:.2f}"
    return (arm.name, rounds, render.ratio(arm.acceptance), " ".join(kept) or "-", *shares)


def by_task(report: BenchReport) -> None:
    """The median ratio to plain for each task, where there are several."""
    plain = next((arm.runs for arm in report.arms if arm.name == PLAIN), ())
    tasks = list(dict.fromkeys(run.task for run in plain if run.task))[:_N_TASKS]
    rows = []
    for arm in report.arms:
        found = [ratios([run for run in arm.runs if run.task == task], plain) for task in tasks]
        if arm.name != PLAIN:
            rows.append((arm.name, *(f"{median(f):.2f}" if f else "-" for f in found)))
    if len(tasks) > 1 and rows:
        render.line()
        render.table(("of plain by task", *tasks), rows, right=range(1, len(tasks) + 1))


def _remarks(report: BenchReport) -> Iterator[str]:
    for arm in report.arms:
        if arm.cold is not None and arm.cold.tokens_per_second:
            yield (f"{arm.name}, first reply, before it knew the pair: "
                   f"{arm.cold.tokens_per_second:.1f} tokens/s")  # fmt: skip
    greedy = [arm for arm in report.arms if arm.n_same is not None and arm.runs]
    if greedy:
        n_same = sum(arm.n_same or 0 for arm in greedy)
        n_all = sum(len(arm.runs) for arm in greedy)
        yield f"{n_same} of {n_all} drafted texts equal plain's"
    if not report.complete:
        yield "interrupted: these are the runs that were finished"


def _drafter(report: BenchReport) -> str:
    return PurePath(report.draft).name if report.draft else report.drafter


def spread_text(spread: Spread | None, digits: int) -> tuple[str, str]:
    """The median, and from where to where the rest goes."""
    if spread is None:
        return "-", ""
    return (f"{spread.median:.{digits}f}", f"{spread.low:.{digits}f}-{spread.high:.{digits}f}")
