"""A report of `gguftools bench` as facts: the arm that matters, and what passes cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gguftools.bench.report import ADAPTIVE, PLAIN, BenchReport, Run
from gguftools.bench.report import Arm as BenchArm
from gguftools.explain.facts import Arm, Counts, Facts, add

FULL = 0.9  # of the tokens that an arm may draft: below, its passes are of mixed lengths


def bench_facts(report: BenchReport) -> Facts:
    """The adaptive arm, else the fastest fixed one, with all arms beside it."""
    runs = {arm.name: add(_counts(run) for run in arm.runs) for arm in report.arms}
    arms = [a for arm in report.arms if (a := _arm(arm)) is not None]
    arms.sort(key=lambda a: (a.name != ADAPTIVE, -a.speedup))
    chosen = arms[0] if arms else None
    length = chosen.draft_max if chosen else None
    # A llama-server does not tell drafting from verifying.
    untold = all(run.seconds_verify is None for arm in report.arms for run in arm.runs)
    return Facts(
        sources=("bench report",),
        engine="llama-server" if untold else "gguftools",
        build=", ".join(f"{name} {build}" for name, build in sorted(report.builds.items())),
        target=report.target,
        draft=report.draft,
        drafter=report.drafter,
        temp=report.temp,
        draft_max=length,
        draft_min=length,
        drafted=runs[chosen.name] if chosen else None,
        plain=runs.get(PLAIN),
        passes=_passes(report.arms, runs),
        arms=tuple(arms) or None,
    )


def _arm(arm: BenchArm) -> Arm | None:
    ratio = arm.ratio_to_plain
    if ratio is None:
        return None
    return Arm(arm.name, arm.n_draft, ratio.median, ratio.low, ratio.high)


def _counts(run: Run) -> Counts:
    n_plain = run.n_draft_histogram.get(0, 0) if run.n_draft_histogram else None
    return Counts(
        n_replies=1,
        n_prompt=run.n_prompt,
        n_tokens=run.n_tokens,
        n_rounds=run.n_rounds,
        n_rounds_drafted=None if n_plain is None else run.n_rounds - n_plain,
        n_draft=run.n_draft,
        n_accepted=run.n_accepted,
        drafted_by_position=run.drafted_by_position or None,
        accepted_by_position=run.accepted_by_position or None,
        seconds_prompt=run.seconds_prompt,
        seconds_decode=run.seconds_decode,
        seconds_draft=run.seconds_draft if run.seconds_verify else None,
        seconds_verify=run.seconds_verify or None,
    )


def _passes(
    arms: Sequence[BenchArm], runs: dict[str, Counts | None]
) -> tuple[tuple[int, float], ...] | None:
    """Mean seconds of a pass by its rows, from arms whose rounds drafted alike."""
    found: dict[int, float] = {}
    for arm in arms:
        c, n = runs[arm.name], arm.n_draft
        if c is None or n is None or not (c.n_rounds and c.seconds_verify):
            continue
        if (c.n_draft or 0) >= FULL * n * c.n_rounds:
            found[n + 1] = c.seconds_verify / c.n_rounds
    return tuple(sorted(found.items())) or None
