"""Draws a benchmark: speed by length, acceptance by position, where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from gguftools.bench.report import PLAIN, Arm, BenchReport
from gguftools.bench.surroundings import machine_line
from gguftools.errors import EngineError, SourceError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _GREY, _ORANGE = "#2f6db5", "#9aa0a6", "#e08a2b"
_NAME_MAX = 60
_STYLE: Any = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "axes.axisbelow": True, "axes.titlesize": 11, "axes.titleweight": "bold", "font.size": 9.5,
    "legend.frameon": False,
}  # fmt: skip


def draw(report: BenchReport, path: Path) -> None:
    """Write the picture as a PNG. It needs matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError as err:
        hint = 'pip install "gguftools[plot]"'
        raise EngineError("matplotlib is not installed", where="--plot", hint=hint) from err
    with rc_context({**_STYLE, "text.parse_math": False}):
        figure = Figure(figsize=(13, 4.9), layout="constrained")
        speed, kept, time = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
        _speed(speed, report)
        _kept(kept, report.arms)
        _time(time, report.arms)
        figure.suptitle(_title(report), fontsize=12, x=0.01, ha="left")
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, format="png", dpi=150)
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path)) from err


def _title(report: BenchReport) -> str:
    by = f", drafted by {_name(report.draft or report.drafter)}"
    first = _name(report.target) + (by if report.drafter != "none" else "")
    runs = max((len(arm.runs) for arm in report.arms), default=0)
    builds = ", ".join(f"{name} {build}" for name, build in report.builds.items())
    return _plain(
        f"{first}\n{machine_line(report.machine)}   {builds}\n"
        f"{runs} runs of up to {report.n_predict} tokens, prompts: {report.prompts}"
    )


def _plain(text: str) -> str:
    """Control characters draw nothing, and a font may lack the rest."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def _name(path: str) -> str:
    name = PurePath(path).name
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 2]}.."


def _label(arm: Arm) -> str:
    return str(arm.n_draft) if arm.n_draft is not None else _plain(_name(arm.name))


def _speed(axes: Axes, report: BenchReport) -> None:
    """Medians with the range of the runs; plain is a line."""
    shown = [arm for arm in report.arms if arm.tokens_per_second and arm.name != PLAIN]
    plain = next((arm for arm in report.arms if arm.name == PLAIN), None)
    if plain is not None and (spread := plain.tokens_per_second):
        axes.axhline(spread.median, color=_GREY, label=f"plain, {spread.median:.1f}")
        axes.axhspan(spread.low, spread.high, color=_GREY, alpha=0.15, linewidth=0)
        axes.legend(loc="lower right")
    for x, arm in enumerate(shown):
        assert arm.tokens_per_second is not None
        middle, low, high = _three(arm)
        color = _BLUE if arm.n_draft is not None else _ORANGE
        axes.errorbar(x, middle, [[middle - low], [high - middle]], fmt="o", markersize=7,
                      capsize=4, color=color)  # fmt: skip
        ratio = arm.ratio_to_plain
        if ratio is not None:
            axes.annotate(f"{ratio.median:.2f}x", (x, high), xytext=(0, 5),
                          textcoords="offset points", ha="center", color=color)  # fmt: skip
    _ticks(axes, shown)
    axes.margins(x=0.08)
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.set(title="Speed: median and range", xlabel="draft length", ylabel="tokens/s")


def _three(arm: Arm) -> tuple[float, float, float]:
    spread = arm.tokens_per_second
    assert spread is not None
    return spread.median, spread.low, spread.high


def _kept(axes: Axes, arms: Sequence[Arm]) -> None:
    """The share of drafts kept up to each position."""
    shown = [arm for arm in arms if arm.accepted_by_position]
    for i, arm in enumerate(shown):
        shares = [100 * share for share in arm.accepted_by_position]
        adapts = arm.n_draft is None
        fade = 0.35 + 0.65 * (i + 1) / max(len(shown), 1)
        axes.plot(range(1, len(shares) + 1), shares, marker="o", markersize=4, label=_label(arm),
                  color=_ORANGE if adapts else _BLUE, alpha=1.0 if adapts else fade)  # fmt: skip
    if shown:
        axes.legend(title="draft length", fontsize=8)
        axes.set_xticks(range(1, max(len(arm.accepted_by_position) for arm in shown) + 1))
    axes.set_ylim(0, 105)
    axes.set(title="Drafts kept up to a position", xlabel="position in the draft", ylabel="%")


def _time(axes: Axes, arms: Sequence[Arm]) -> None:
    """Milliseconds per token, by what they went into."""
    shown = [arm for arm in arms if arm.time is not None and arm.runs]
    below = [0.0] * len(shown)
    parts: Any = (("verify", _BLUE), ("draft", _ORANGE), ("other", _GREY))
    for part, color in parts:
        heights = [1000 * getattr(arm.time, part) / max(_n_tokens(arm), 1) for arm in shown]
        axes.bar(range(len(shown)), heights, bottom=below, label=part, color=color, width=0.7)
        below = [a + b for a, b in zip(below, heights, strict=True)]
    if shown:
        axes.legend(loc="upper right", ncols=3, frameon=False)
    _ticks(axes, shown)
    axes.margins(x=0.04)
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    axes.set(title="Time for a token", xlabel="draft length (0 is plain)", ylabel="ms")


def _n_tokens(arm: Arm) -> int:
    return sum(run.n_tokens for run in arm.runs)


def _ticks(axes: Axes, arms: Sequence[Arm]) -> None:
    axes.set_xticks(range(len(arms)), [_label(arm) for arm in arms])
