"""docs/benchmarks.md and its plot from the figures of bench_matrix."""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_INTRO = """\
# Benchmarks

Made by `python -m scripts.bench_matrix` from [benchmarks.json](benchmarks.json); do not edit.

{machine}
Every figure is a median over {n_rounds} interleaved rounds, in tokens/s of decoding or as a ratio of such medians of one run.
"adaptive" keeps its controller from reply to reply, as a chat does, after one reply of warm-up; "cold" begins each reply with a new one, as a single run does.
"of plain" compares with our own plain decoding, "best fixed" is the fastest of the fixed lengths in hindsight.
The Markov files are synthetic: random chains whose acceptance is known, with depth for cost.
The widened target is synthetic too: SmolLM2 with zero columns, which writes SmolLM2's text at many times its cost.
Replies are short, 48 to 192 tokens, so that a controller is still learning in them, a cold one most of all, and single figures are some 10% uncertain.
"native" is the llama.cpp server inside xllamacpp, same files, threads, context and sampling; n-max 3 is llama.cpp's default.
It drafts its draft's likeliest tokens and keeps one where the target samples the same, which costs it acceptance in sampled text (its --spec-draft-sampling is greedy by default); ours accepts by the rejection rule.

![speed by draft length](benchmarks.png)

| workload | plain | best fixed | adaptive | of plain | of best fixed | cold, of plain | native, n-max 3 | adaptive of that |
|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def geometric_mean(values: list[float]) -> float:
    """Of ratios."""
    return exp(sum(map(log, values)) / len(values))


def write_pages(rows: list[Row], folder: Path) -> None:
    """The table and the plot."""
    n_rounds = {len(row["runs"]["plain"]) for row in rows}
    lines = [_INTRO.format(
        machine=_machine(rows), n_rounds=" or ".join(map(str, sorted(n_rounds)))
    )]  # fmt: skip
    lines += [_line(row) + "\n" for row in rows]
    lines += ["\n", *_totals(rows)]
    (folder / "benchmarks.md").write_text("".join(lines), encoding="utf-8")
    _draw(rows, folder / "benchmarks.png")


def _machine(rows: list[Row]) -> str:
    builds = {name: build for row in rows for name, build in row["builds"].items()}
    ours = builds.pop("ours")
    peers = f"; native build {next(iter(builds.values()))}" if builds else ""
    return f"2 CPU cores, no GPU, 2 threads; {ours}{peers}.\n"


def _fixed(row: Row) -> dict[int, float]:
    """Median by length, 0 is plain."""
    found = {0: row["summary"]["plain"]["median"]}
    for name, arm in row["summary"].items():
        if name.startswith("fixed "):
            found[int(name.split()[1])] = arm["median"]
    return dict(sorted(found.items()))


def _median(row: Row, name: str) -> float | None:
    arm = row["summary"].get(name)
    return None if arm is None else float(arm["median"])


def _line(row: Row) -> str:
    fixed, adaptive = _fixed(row), row["summary"]["adaptive"]
    best = max(fixed, key=lambda n: fixed[n])
    native = _median(row, "native n-max 3")
    cells = [
        row["workload"]["name"],
        f"{fixed[0]:.1f}",
        f"{fixed[best]:.1f} ({best})",
        f"{adaptive['median']:.1f} ({adaptive['low']:.1f} to {adaptive['high']:.1f})",
        f"{adaptive['median'] / fixed[0]:.2f}",
        f"{adaptive['median'] / fixed[best]:.2f}",
        f"{row['summary']['adaptive, cold']['median'] / fixed[0]:.2f}",
        "" if native is None else f"{native:.1f}",
        "" if native is None else f"{adaptive['median'] / native:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _totals(rows: list[Row]) -> list[str]:
    def ratios(name: str) -> list[float]:
        pairs = [(row["summary"]["adaptive"]["median"], _median(row, name)) for row in rows]
        return [ours / theirs for ours, theirs in pairs if theirs]

    best = [row["summary"]["adaptive"]["median"] / max(_fixed(row).values()) for row in rows]
    plain = ratios("plain")
    cold = [row["summary"]["adaptive, cold"]["median"] / _fixed(row)[0] for row in rows]
    found = [
        f"Adaptive against plain: geometric mean {geometric_mean(plain):.2f}, "
        f"worst {min(plain):.2f}.\n",
        f"Cold against plain: geometric mean {geometric_mean(cold):.2f}, worst {min(cold):.2f}.\n",
        f"Adaptive against the best fixed length of each workload: geometric mean "
        f"{geometric_mean(best):.2f}, worst {min(best):.2f}.\n",
    ]
    if native := ratios("native n-max 3"):
        found.append(
            f"Adaptive against native at n-max 3: geometric mean {geometric_mean(native):.2f}, "
            f"worst {min(native):.2f}.\n"
        )
    both = [
        (row["summary"]["plain"]["median"], theirs)
        for row in rows
        if (theirs := _median(row, "native plain"))
    ]
    if both:
        ratio = geometric_mean([ours / theirs for ours, theirs in both])
        found.append(f"Plain decoding against native plain: geometric mean {ratio:.2f}.\n")
    return found


def _draw(rows: list[Row], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    n_columns = 4
    n_lines = -(-len(rows) // n_columns)
    figure, axes = plt.subplots(
        n_lines, n_columns, figsize=(14, 2.4 * n_lines), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(rows) :]:
        axis.axis("off")
    for axis, row in zip(axes.flat, rows, strict=False):
        fixed = _fixed(row)
        plain = fixed[0]
        places = range(len(fixed))
        axis.plot(places, [v / plain for v in fixed.values()], "o-", label="fixed length")
        axis.axhline(1.0, color="grey", linewidth=0.8, label="plain")
        adaptive = row["summary"]["adaptive"]["median"] / plain
        axis.axhline(adaptive, color="tab:green", label="adaptive")
        native = _median(row, "native n-max 3")
        if native and 3 in fixed:
            axis.plot([list(fixed).index(3)], [native / plain], "x", color="tab:red",
                      label="native, n-max 3")  # fmt: skip
        axis.set_xticks(places, [str(n) for n in fixed], fontsize=7)
        axis.set_title(row["workload"]["name"], fontsize=9)
        axis.set_ylim(bottom=0)
    axes[0][0].legend(fontsize=7)
    figure.supxlabel("draft length")
    figure.supylabel("speed, of plain decoding")
    figure.savefig(path, dpi=80)
