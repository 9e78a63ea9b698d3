"""Draws docs/controller-*.png: the controller on the recorded traces and on made-up texts.

python -m scripts.plot_controller. Virtual time: the same code makes the same pictures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from gguftools.explain.rates import expected
from gguftools.speculative.controller import Controller
from gguftools.speculative.ledger import ALLOWANCE_EARNED, ALLOWANCE_START
from gguftools.speculative.stats import Step
from scripts.replay import Trace, load, replay, without_confidence

ROOT = Path(__file__).resolve().parent.parent
DOCS, TRACES = ROOT / "docs", ROOT / "tests" / "traces"
K = 8


def recorded() -> dict[str, Trace]:
    """The committed traces by name."""
    found = {}
    for path in sorted(TRACES.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            found[path.stem] = load(lines)
    return found


def made(kept: Sequence[float], *, draft: float, row: float, seed: int = 1) -> Trace:
    """A text whose token i a draft guesses with chance kept[i]; costs in plain decodes."""
    rng = random.Random(seed)
    hits = [rng.random() < p for p in kept]
    runs = [0] * (len(hits) + 1)
    for i in range(len(hits) - 1, -1, -1):
        runs[i] = min(K, runs[i + 1] + 1) if hits[i] else 0
    rows: list[list[float | None]] = [[*kept[i : i + K]] for i in range(len(kept))]
    return Trace([1.0 + row * n for n in range(K + 1)], [draft] * K, runs[:-1], rows)


def rate(trace: Trace, controller: Controller) -> float:
    """Tokens per plain decode."""
    steps = replay(trace, controller)
    return len(trace.runs) * trace.verify[0] / sum(trace.seconds(s) for s in steps)


def kept_by_depth(trace: Trace) -> list[float]:
    """S_1, S_2, ...: share of positions from which a draft of that length is all right."""
    return [sum(run > i for run in trace.runs) / len(trace.runs) for i in range(K)]


def draw_round(axes: Any, trace: Trace) -> None:
    """What a round of n tokens writes, costs, and so makes."""
    plain, lengths = trace.verify[0], range(K + 1)
    kept = kept_by_depth(trace)
    tokens = [expected(kept, n) for n in lengths]
    cost = [(sum(trace.draft[:n]) + trace.verify[n]) / plain for n in lengths]
    axes[0].plot(lengths, tokens, "o-", color="tab:green", label="tokens written")
    axes[0].plot(lengths, cost, "s-", color="tab:red", label="cost in plain decodes")
    speed = [t / c for t, c in zip(tokens, cost, strict=True)]
    axes[1].plot(lengths, speed, "o-", color="tab:blue")
    best = max(lengths, key=lambda n: speed[n])
    axes[1].axhline(1.0, color="0.7", linewidth=1)
    axes[1].annotate(f"best: {best}", (best, speed[best]), xytext=(10, -2),
                     textcoords="offset points")  # fmt: skip
    axes[0].set(xlabel="drafted tokens n", title="a round")
    axes[0].legend(frameon=False)
    axes[1].set(xlabel="drafted tokens n", title="tokens per plain decode", ylim=(0.6, None))
    axes[1].margins(y=0.15)


def draw_traces(axes: Any, traces: dict[str, Trace]) -> None:
    """Every fixed length beside the controller, which starts cold."""
    for axis, (name, trace) in zip(axes, traces.items(), strict=True):
        lengths = range(K + 1)
        speeds = [rate(trace, Controller(n, n)) for n in lengths]
        axis.bar(lengths, speeds, color="0.75", label="fixed length")
        axis.axhline(1.0, color="0.5", linewidth=1)
        axis.axhline(rate(trace, Controller(K)), color="tab:blue", label="adaptive")
        blind = rate(without_confidence(trace), Controller(K))
        axis.axhline(blind, color="tab:blue", linestyle=":", label="without confidences")
        axis.set(title=name, xlabel="draft length", xticks=range(0, K + 1, 2))
    axes[0].set_ylabel("tokens per plain decode")
    axes[0].legend(frameon=False, loc="lower right", fontsize=8)


def lost(trace: Trace, steps: Sequence[Step]) -> tuple[list[int], list[float]]:
    """After each round: tokens written, and plain decodes behind plain decoding."""
    tokens = list(accumulate(len(s.tokens) for s in steps))
    spent = accumulate(trace.seconds(s) / trace.verify[0] for s in steps)
    return tokens, [time - n for time, n in zip(spent, tokens, strict=True)]


def draw_promise(axis: Any) -> None:
    """A draft that is never right."""
    n = 600
    for draft, row, colour in ((0.05, 0.05, "tab:green"), (0.2, 0.2, "tab:blue"),
                               (0.6, 0.3, "tab:purple")):  # fmt: skip
        trace = made([0.0] * n, draft=draft, row=row)
        axis.plot(*lost(trace, replay(trace, Controller(K))), color=colour,
                  label=f"adaptive, token {draft}, row {row}")  # fmt: skip
    trace = made([0.0] * n, draft=0.05, row=0.05)
    axis.plot(*lost(trace, replay(trace, Controller(3, 3))), color="tab:red",
              label="fixed 3, token 0.05, row 0.05")  # fmt: skip
    axis.plot([0, n], [ALLOWANCE_START, ALLOWANCE_START + ALLOWANCE_EARNED * n], "k--",
              linewidth=1, label="promise")  # fmt: skip
    axis.set(xlabel="tokens", ylabel="plain decodes lost", ylim=(0, 30),
             title="every drafted token is wrong")  # fmt: skip
    axis.legend(frameon=False, fontsize=8)


def draw_text(axes: Any) -> None:
    """A text that is predictable, then not, then again."""
    part = 200
    kept = [0.95] * part + [0.1] * part + [0.95] * part
    trace = made(kept, draft=0.05, row=0.1)
    steps = replay(trace, Controller(K))
    position = 0
    starts, lengths, accepted = [], [], []
    for step in steps:
        starts.append(position)
        lengths.append(step.n_verified)
        accepted.append(step.n_accepted)
        position += len(step.tokens)
    axes[0].step(range(len(kept)), kept, color="0.4")
    axes[0].set(ylabel="chance of a token", ylim=(0, 1.05), title="a text that changes")
    axes[1].vlines(starts, 0, lengths, color="tab:orange", label="drafted and refused")
    axes[1].vlines(starts, 0, accepted, color="tab:green", label="accepted")
    axes[1].set(xlabel="tokens written", ylabel="draft length")
    axes[1].legend(frameon=False, fontsize=8, loc="center")


def main() -> None:
    """All four."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    traces = recorded()
    pictures: list[tuple[str, tuple[int, int, tuple[float, float]], Callable[[Any], None]]] = [
        ("round", (1, 2, (8, 3.2)), lambda axes: draw_round(axes, traces["widened-smollm2"])),
        ("traces", (1, len(traces), (10, 3)), lambda axes: draw_traces(axes, traces)),
        ("promise", (1, 1, (6, 3.4)), draw_promise),
        ("text", (2, 1, (8, 4)), draw_text),
    ]
    for name, (rows, columns, size), draw in pictures:
        figure, axes = plt.subplots(rows, columns, figsize=size)
        draw(axes)
        figure.tight_layout()
        figure.savefig(DOCS / f"controller-{name}.png", dpi=90, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
