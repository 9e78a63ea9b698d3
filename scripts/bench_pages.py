"""docs/benchmarks.md and its plot from the figures of bench_matrix."""

from __future__ import annotations

from math import exp, log, sqrt
from pathlib import Path
from statistics import harmonic_mean, median
from typing import Any

Row = dict[str, Any]
_INTRO = """\
# Benchmarks

Made by `python -m scripts.bench_matrix` from [benchmarks.json](benchmarks.json); do not edit.

{machine}
Every figure is a median over {n_rounds} rounds, in each of which all our arms write a reply, a sixteenth of it in turn, and then the peers one; in tokens/s of decoding or as a ratio of such medians of one run.
"adaptive" keeps its controller from reply to reply, as a chat does, after one reply of warm-up; "cold" begins each reply with a new one, as a single run does.
"of plain" compares with our own plain decoding; "best fixed" is the fastest of the fixed lengths 0 to 8 and 16 in hindsight.
The best of ten noisy figures is too high by its noise: "chosen before" picks the length by the other rounds and takes its speed in the one left out, as somebody does who has measured before.
The Markov files are synthetic: random chains whose acceptance is known, with depth for cost.
The widened target is synthetic too: SmolLM2 with zero columns, which writes SmolLM2's text at many times its cost.
Replies have 96 tokens on the widened target, 512 where stretches switch and up to 256 elsewhere, fewer where the text ends before; single figures are some 5 to 10% uncertain, more where text is sampled.
"native" is the llama.cpp server inside xllamacpp, same files, threads, context and sampling; n-max 3 is llama.cpp's default.
It drafts its draft's likeliest tokens and keeps one where the target samples the same, which costs it acceptance in sampled text (its --spec-draft-sampling is greedy by default); ours accepts by the rejection rule.

![speed by draft length](benchmarks.png)

{notes}| workload | plain | best fixed | adaptive | of plain | of best fixed | of the one chosen before | cold, of plain | native, n-max 3 | adaptive of that |
|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501
_NATIVE = """
## The same length in both

Plain decoding and drafts of three, ours of native's; the share of the drafted tokens that was kept says why sampled text differs.

| workload | plain | drafts of 3 | kept by ours | kept by native |
|---|---|---|---|---|
"""  # noqa: E501
_PAPER = """
## Acceptance on paper and measured

Drafts of one token on the Markov pairs: the share kept should be the sum over all tokens of the smaller of both probabilities, averaged over the chain.

| workload | on paper | measured, with two standard errors |
|---|---|---|
"""  # noqa: E501
_ALL = """
## Every arm

Tokens/s, median and range.

"""


def geometric_mean(values: list[float]) -> float:
    """Of ratios."""
    return exp(sum(map(log, values)) / len(values))


def write_pages(rows: list[Row], folder: Path) -> None:
    """The table and the plot."""
    n_rounds = {len(row["runs"]["plain"]) for row in rows}
    lines = [_INTRO.format(
        machine=_machine(rows), n_rounds=" or ".join(map(str, sorted(n_rounds))), notes=_notes(rows)
    )]  # fmt: skip
    lines += [_line(row) + "\n" for row in rows]
    lines += ["\n", *_totals(rows), *_beside_native(rows), *_on_paper(rows), *_all_arms(rows)]
    (folder / "benchmarks.md").write_text("".join(lines), encoding="utf-8")
    _draw(rows, folder / "benchmarks.png")


def _machine(rows: list[Row]) -> str:
    builds = {name: build for row in rows for name, build in row["builds"].items()}
    ours = builds.pop("ours")
    peers = f"; native build {next(iter(builds.values()))}" if builds else ""
    return f"2 CPU cores, no GPU, 2 threads; {ours}{peers}.\n"


def _notes(rows: list[Row]) -> str:
    """What a row's own note says, each with its workloads."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        if "note" in row:
            notes.setdefault(row["note"], []).append(row["workload"]["name"])
    lines = [
        f"{'; '.join(names)}: {note} The totals below include them.\n"
        for note, names in notes.items()
    ]
    return "".join([*lines, "\n"]) if lines else ""


def _fixed(row: Row) -> dict[int, float]:
    """Median by length, 0 is plain."""
    found = {0: row["summary"]["plain"]["median"]}
    for name, arm in row["summary"].items():
        if name.startswith("fixed "):
            found[int(name.split()[1])] = arm["median"]
    return dict(sorted(found.items()))


def _chosen_before(row: Row) -> float:
    """Median speed of the fixed length that the other rounds would choose."""
    arms = [
        [run["tokens_per_second"] for run in runs]
        for name, runs in row["runs"].items()
        if name == "plain" or name.startswith("fixed ")
    ]
    n_rounds = len(arms[0])
    if n_rounds == 1:
        return float(max(arm[0] for arm in arms))
    chosen = []
    for i in range(n_rounds):
        best = max(arms, key=lambda arm: median(arm[:i] + arm[i + 1 :]))
        chosen.append(best[i])
    return float(median(chosen))


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
        _spread(adaptive),
        f"{adaptive['median'] / fixed[0]:.2f}",
        f"{adaptive['median'] / fixed[best]:.2f}",
        f"{adaptive['median'] / _chosen_before(row):.2f}",
        f"{row['summary']['adaptive, cold']['median'] / fixed[0]:.2f}",
        "" if native is None else f"{native:.1f}",
        "" if native is None else f"{adaptive['median'] / native:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _totals(rows: list[Row]) -> list[str]:
    def ratios(name: str) -> list[float]:
        return [_of(row, "adaptive", name) for row in rows if _median(row, name)]

    def ours(row: Row) -> float:
        return float(row["summary"]["adaptive"]["median"])

    best = [ours(row) / max(_fixed(row).values()) for row in rows]
    before = [ours(row) / _chosen_before(row) for row in rows]
    plain = ratios("plain")
    cold = [row["summary"]["adaptive, cold"]["median"] / _fixed(row)[0] for row in rows]
    found = [
        f"Adaptive against plain: geometric mean {geometric_mean(plain):.2f}, "
        f"worst {min(plain):.2f}.\n",
        f"Cold against plain: geometric mean {geometric_mean(cold):.2f}, worst {min(cold):.2f}.\n",
        f"Adaptive against the best fixed length of each workload: geometric mean "
        f"{geometric_mean(best):.2f}, worst {min(best):.2f}; against the one chosen before "
        f"{geometric_mean(before):.2f}, worst {min(before):.2f}.\n",
        *_mixed(rows),
        *_equal(rows),
    ]
    if native := ratios("native n-max 3"):
        found.append(
            f"Adaptive against native at n-max 3: geometric mean {geometric_mean(native):.2f}, "
            f"worst {min(native):.2f}.\n"
        )
    if pairs := [row for row in rows if _median(row, "native plain")]:
        ratio = geometric_mean([_of(row, "plain", "native plain") for row in pairs])
        found.append(f"Plain decoding against native plain: geometric mean {ratio:.2f}.\n")
    return found


def _mixed(rows: list[Row]) -> list[str]:
    """One length for all the texts of a session, as a setting is, beside the adaptive one."""
    found = []
    for temp in (0.0, 0.8):
        texts = [
            row
            for row in rows
            if row["workload"]["group"].startswith("real text") and row["workload"]["temp"] == temp
        ]
        if len(texts) < 2:
            continue
        speeds = {n: harmonic_mean([_fixed(row)[n] for row in texts]) for n in _fixed(texts[0])}
        best = max(speeds, key=lambda n: speeds[n])
        adaptive = harmonic_mean([float(row["summary"]["adaptive"]["median"]) for row in texts])
        found.append(
            f"As many tokens of each of the {len(texts)} real texts, temperature {temp:g}: "
            f"adaptive {adaptive / speeds[best]:.2f} of the best single fixed length ({best}).\n"
        )
    return found


def _equal(rows: list[Row]) -> list[str]:
    """How many greedy replies with drafts have the tokens of plain decoding."""
    n_equal = n_replies = 0
    for row in rows:
        for name, arm in row["summary"].items():
            if row["workload"]["temp"] == 0 and name != "plain" and arm["n_equal"] is not None:
                n_equal += arm["n_equal"]
                n_replies += len(row["runs"][name])
    text = f"Greedy replies with drafts whose tokens are plain's: {n_equal} of {n_replies}.\n"
    return [text] if n_replies else []


def _spread(arm: Row) -> str:
    return f"{arm['median']:.1f} ({arm['low']:.1f} to {arm['high']:.1f})"


def _of(row: Row, ours: str, theirs: str) -> float:
    return float(row["summary"][ours]["median"] / row["summary"][theirs]["median"])


def _beside_native(rows: list[Row]) -> list[str]:
    pairs = [row for row in rows if _median(row, "native plain")]
    lines = [_NATIVE] if pairs else []
    for row in pairs:
        cells = [row["workload"]["name"], f"{_of(row, 'plain', 'native plain'):.2f}"]
        if _median(row, "native n-max 3") is None:
            cells += ["", "", ""]
        else:
            kept = [row["summary"][arm]["acceptance"] for arm in ("fixed 3", "native n-max 3")]
            cells += [f"{_of(row, 'fixed 3', 'native n-max 3'):.2f}"]
            cells += ["" if share is None else f"{share:.0%}" for share in kept]
        lines.append(f"| {' | '.join(cells)} |\n")
    return lines


def _on_paper(rows: list[Row]) -> list[str]:
    lines = []
    for row in rows:
        name, _, paper = row["workload"]["name"].partition(", acceptance ")
        if paper:
            runs = row["runs"]["fixed 1"]
            n = sum(run["n_draft"] for run in runs)
            kept = sum(run["n_accepted"] for run in runs) / n
            error = 2 * sqrt(kept * (1 - kept) / n)
            lines.append(f"| {name} | {float(paper):.0%} | {kept:.1%} ± {error:.1%} |\n")
    return [_PAPER, *lines] if lines else []


def _all_arms(rows: list[Row]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row["summary"]))
    lines = [_ALL, f"| workload | {' | '.join(names)} |\n", "|---" * (len(names) + 1) + "|\n"]
    for row in rows:
        cells = [row["workload"]["name"]]
        for name in names:
            arm = row["summary"].get(name)
            cells.append("" if arm is None else _spread(arm))
        lines.append(f"| {' | '.join(cells)} |\n")
    return lines


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
