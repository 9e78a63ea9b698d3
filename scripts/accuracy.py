"""Writes docs/accuracy.md and docs/accuracy.png."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from gguftools.pairing.setup import Setup
from scripts.fitting import Guess
from scripts.priors import PRIORS
from scripts.published import Row, sources
from scripts.scoring import Score

# Why the worst rows are off, where it is known.
WHY = {
    "F034": "out of line with the curve of the same card: 2.17 at n 4, 2.13 at n 5",
    "F046": "another report of the same card at 4 bits has 2.07",
    "F059": "only a range of acceptance was published; the same card gains 2.37 with Q8_0",
    "F062": "only a range of acceptance was published, .34 to .69; its middle is taken",
    "F064": "the baseline is as fast as with all layers on the card, the draft ran with 60",
    "F103": "driver paging: memory, not arithmetic",
    "F160": "memory spill suspected: four slots, 256K of context",
    "F163": "an early build, and a long prompt",
    "F170": "neither quantization nor settings were published",
    "F172": "an early branch: a loss at high acceptance",
    "F173": "an early branch: a loss at high acceptance",
    "F188": "the first implementation copied the KV cache, by the report",
    "F203": "open issue of one backend: the same file drafts well on other cards",
    "F223": "another engine",
    "F224": "another engine",
    "F227": "ratio from the title of an issue; the same setup gains 1.8 on another card",
    "F230": "a best-case prompt",
    "F241": "a build of 2024",
    "F247": "baseline derived from a percentage",
    "F248": "baseline derived from a percentage",
    "F250": "baseline derived from a percentage",
    "F251": "baseline derived from a percentage",
    "F256": "a build of 2023, settings unknown",
    "F257": "a build of 2023, settings unknown",
    "F259": "a build of 2023, derived from wall time",
    "F260": "an upper bound, as the report says",
    "F262": "a build of 2024, settings unknown",
    "F263": "the middle of a range; Metal with experts is known from two other figures",
    "F268": "the only DFlash figure that counts",
}  # fmt: skip


def report(
    path: Path, rows: Sequence[Row], values: Mapping[str, float], tables: Mapping[str, Score],
    fitted: Sequence[Guess], left_out: Sequence[Guess], by_third: Sequence[Guess],
) -> None:  # fmt: skip
    """docs/accuracy.md."""
    n_set = sum(prior.spread == 0.0 for prior in PRIORS.values())
    text = [
        "# How accurate the prediction is",
        "",
        "Written by `python -m scripts.calibrate SPEEDUPS.csv`; `scripts/score_predictor.py "
        "FILE.csv` scores any file of the same format.",
        "",
        f"`gguftools pair` predicts speedups with {len(values)} constants; {n_set} are set, the "
        "others are drawn to what is believed beforehand (`scripts/priors.py`) and fitted to "
        f"{sum(r.fit_ok for r in rows)} of {len(rows)} published figures from "
        f"{len(sources(rows))} sources; the rest (ratios only, derived or suspect figures) count "
        "for the sign.",
        "A prediction never sees the measured speeds: it knows the names of models, quantization, "
        "hardware, the settings, and the acceptance where one was published.",
        "",
        "| | rows | sign right | median error | in the 80% interval |",
        "|---|---|---|---|---|",
        *(f"| {name} | {t.n} | {t.sign_accuracy:.1%} | {t.median_abs_error:.1%} | "
          f"{t.interval_coverage:.1%} |" for name, t in tables.items()),
        "",
        "Random thirds show what to expect for machines and models that are in the table, sources "
        "left out what to expect elsewhere. About half of the rows come from one source; left "
        "out, they are predicted from everybody else's.",
        "The widths of the intervals are taken from the errors of the two lower lines, so that "
        "they hold there by construction.",
        "The priors and the form of the model were chosen by people who had seen these figures; "
        "only rows that nobody here has seen are an honest test.",
        "",
        "![predicted against published speedups](accuracy.png)",
        "",
        *by_kind(left_out, by_third),
        *worst(fitted, left_out),
    ]  # fmt: skip
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def by_kind(left_out: Sequence[Guess], by_third: Sequence[Guess]) -> list[str]:
    """A table of errors by kind of draft and backend."""
    text = ["## By kind", "", "Rows that errors count for; median error with thirds and with "
            "sources left out, and the mean of the latter with its sign (above 0: promised too "
            "much).", "", "| kind | rows | thirds | sources | lean |",
            "|---|---|---|---|---|"]  # fmt: skip
    for name in sorted({_kind(g.row) for g in left_out}):
        ours = [g for g in left_out if g.row.fit_ok and _kind(g.row) == name]
        theirs = [g for g in by_third if g.row.fit_ok and _kind(g.row) == name]
        if ours:
            lean = statistics.fmean(g.error for g in ours)
            text.append(f"| {name} | {len(ours)} | {_median(theirs):.0%} | {_median(ours):.0%} | "
                        f"{lean:+.0%} |")  # fmt: skip
    return [*text, ""]


def _kind(row: Row) -> str:
    s = row.setup
    moe = ", experts" if s.is_moe else ""
    return f"{s.kind}{moe}, {s.backend}"


def _median(found: Iterable[Guess]) -> float:
    return statistics.median(abs(g.error) for g in found)


def worst(fitted: Sequence[Guess], left_out: Sequence[Guess]) -> list[str]:
    """The rows that are most wrong, and those whose sign is wrong."""
    others = {g.row.id: g.speedup for g in left_out}
    text = ["## The worst rows", "", "Off by more than 25%, or on the wrong side of 1, with all "
            "rows fitted.", "", "| row | what | published | predicted | source left out | why |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    for g in sorted(fitted, key=lambda g: -abs(g.error)):
        wrong = (g.speedup > 1.0) != (g.row.speedup > 1.0)
        if abs(g.error) > 0.25 or wrong:
            why = WHY.get(g.row.id, "not known" if abs(g.error) > 0.1 else "a near tie")
            text.append(f"| {g.row.id} | {g.row.label} | {g.row.speedup:.2f} | {g.speedup:.2f} | "
                        f"{others[g.row.id]:.2f} | {why} |")  # fmt: skip
    return text


_SERIES: tuple[tuple[str, str, Callable[[Setup], bool]], ...] = (
    ("MTP, dense", "tab:blue", lambda s: s.kind == "draft-mtp" and not s.is_moe),
    ("MTP, experts", "tab:orange", lambda s: s.kind == "draft-mtp" and s.is_moe),
    ("other drafts", "tab:green", lambda s: s.kind != "draft-mtp"),
)


def plot(path: Path, fitted: Sequence[Guess], left_out: Sequence[Guess]) -> None:
    """Predicted against published, with all rows fitted and with sources left out."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 5), sharex=True, sharey=True)
    for axis, found, title in zip(
        axes, (fitted, left_out), ("all rows fitted", "source left out"), strict=True
    ):
        axis.plot([0.3, 5.0], [0.3, 5.0], color="0.7", linewidth=1)
        axis.axhline(1.0, color="0.85", linewidth=1)
        axis.axvline(1.0, color="0.85", linewidth=1)
        for label, colour, pick in _SERIES:
            some = [g for g in found if g.row.fit_ok and pick(g.row.setup)]
            axis.scatter([g.row.speedup for g in some], [g.speedup for g in some], s=14,
                         color=colour, alpha=0.7, label=label)  # fmt: skip
        axis.set(xscale="log", yscale="log", xlim=(0.35, 4.0), ylim=(0.35, 4.0), title=title,
                 xlabel="published speedup")  # fmt: skip
        ticks = (0.5, 1.0, 1.5, 2.0, 3.0)
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.set_yticks(ticks, [str(t) for t in ticks])
        axis.minorticks_off()
    axes[0].set_ylabel("predicted speedup")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
