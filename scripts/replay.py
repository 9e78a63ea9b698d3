"""Replays controllers over recorded drafts, in virtual time and without a model.

python -m scripts.replay TRACE.jsonl... [--draft-max 16] [--draft-min 0]

A trace is JSON lines. The first says what things cost, in seconds or in any other unit:
  {"seconds_verify": [1 row, 2 rows, ...], "seconds_draft": [token 1, token 2, ...],
   "seconds_catch_up": per token that the drafter has not seen (optional)}
Every other line is a Step as `--trace` writes it, of a run with --draft-max K --draft-min K: what
was drafted and kept from there. A draft begun at one of the kept tokens would have gone on alike,
so that all lengths up to K can be replayed. A line with "run" stands for one position instead:
  {"run": how many tokens of a draft from here are the target's, "confidence": [p or null, ...]}
No confidences: the drafter has nothing to say there. scripts/record_trace.py writes such files.

Prints, per policy, tokens per plain decode and the mean draft. Same trace, same numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguftools.speculative.controller import CATCH_UP_MAX, Controller
from gguftools.speculative.stats import Step

Jitter = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Trace:
    """What a draft from each position would have brought, and what drafts and passes cost."""

    verify: Sequence[float]  # seconds of a pass over 1, 2, ... rows
    draft: Sequence[float]  # seconds of drafted token 1, 2, ...
    runs: Sequence[int]  # tokens of a draft from here that are the target's
    confidence: Sequence[Sequence[float | None]]
    catch_up: float = 0.0  # seconds per token

    def seconds(self, step: Step) -> float:
        """What the step costs, whatever a noisy clock said."""
        drafted = sum(self.draft[: step.n_draft]) + self.catch_up * step.n_catch_up
        return drafted + self.verify[step.n_verified]


def load(lines: Iterable[str]) -> Trace:
    """Read a trace."""
    head, *rest = [json.loads(line) for line in lines if line.strip()]
    runs: list[int] = []
    confidence: list[list[float | None]] = []
    for line in rest:
        for run, row in _positions(line):
            runs.append(run)
            confidence.append(row)
    return Trace(
        head["seconds_verify"],
        head["seconds_draft"],
        runs,
        confidence,
        head.get("seconds_catch_up", 0.0),
    )


def _positions(line: dict[str, Any]) -> list[tuple[int, list[float | None]]]:
    if "run" in line:
        return [(line["run"], line["confidence"])]
    return positions(Step(**line))


def positions(step: Step) -> list[tuple[int, list[float | None]]]:
    """For each token of a step: how many drafted ones from there are right, and confidences."""
    row = list(step.confidence)
    return [(step.n_accepted - i, row[i:]) for i in range(len(step.tokens))]


def replay(
    trace: Trace,
    controller: Controller,
    *,
    measure: Jitter = lambda seconds: seconds,
    catch_up_max: int = CATCH_UP_MAX,
) -> list[Step]:
    """The steps that the controller would have made; `measure` is the clock it sees."""
    steps: list[Step] = []
    position = gap = 0
    while position < len(trace.runs):
        n = min(controller.plan(), len(trace.draft), len(trace.verify) - 1)
        row = trace.confidence[position]
        n = n if row else 0  # the drafter had nothing to say
        drafted: list[float | None] = []
        while len(drafted) < n:
            drafted.append(row[len(drafted)] if len(drafted) < len(row) else None)
            if not controller.proceed(len(drafted), drafted[-1]):
                break
        n_verified = min(controller.n_verify(), len(drafted)) if drafted else 0
        n_accepted = min(n_verified, trace.runs[position], len(trace.runs) - position - 1)
        n_catch_up = min(gap, catch_up_max) if drafted else 0
        step = Step(
            tokens=(0,) * (n_accepted + 1),
            n_draft=len(drafted),
            n_verified=n_verified,
            n_accepted=n_accepted,
            confidence=tuple(drafted),
            seconds_catch_up=measure(trace.catch_up * n_catch_up),
            n_catch_up=n_catch_up,
            seconds_draft=tuple(measure(s) for s in trace.draft[: len(drafted)]),
            seconds_verify=measure(trace.verify[n_verified]),
        )
        controller.observe(step)
        steps.append(step)
        position += n_accepted + 1
        gap = 0 if drafted else gap + 1
    return steps


def digest(steps: Sequence[Step]) -> str:
    """Eight characters that change when any decision does."""
    decisions = bytes(n for s in steps for n in (s.n_draft, s.n_verified, s.n_accepted))
    return hashlib.sha256(decisions).hexdigest()[:8]


def without_confidence(trace: Trace) -> Trace:
    """The same drafts from a drafter that does not say how sure it is."""
    nothing: list[list[float | None]] = [[None] * len(row) for row in trace.confidence]
    return Trace(trace.verify, trace.draft, trace.runs, nothing, trace.catch_up)


def table(trace: Trace, draft_max: int, draft_min: int) -> str:
    """One line per policy."""
    arms: list[tuple[str, Trace, Controller]] = [("plain", trace, Controller(0))]
    fixed = [k for k in (1, 2, 3, 4, 5, 6, 8, 12, 16) if k <= draft_max]
    arms += [(f"fixed {k}", trace, Controller(k, k)) for k in fixed]
    adaptive = [("adaptive, no confidence", without_confidence(trace)), ("adaptive", trace)]
    arms += [(name, t, Controller(draft_max, draft_min)) for name, t in adaptive]
    lines = [f"{'policy':24} {'tokens/plain':>12} {'drafted':>8} {'rounds':>7} digest"]
    for name, seen, controller in arms:
        steps = replay(seen, controller)
        rate = len(trace.runs) * trace.verify[0] / sum(trace.seconds(s) for s in steps)
        drafted = sum(s.n_draft for s in steps) / len(steps)
        lines.append(f"{name:24} {rate:12.3f} {drafted:8.2f} {len(steps):7} {digest(steps)}")
    return "\n".join(lines)


def summary(path: Path, draft_max: int, draft_min: int = 0) -> str:
    """The table of one file under its name."""
    with path.open(encoding="utf-8") as lines:
        trace = load(lines)
    draft_max = min(draft_max, len(trace.draft), len(trace.verify) - 1)
    made = table(trace, draft_max, min(draft_min, draft_max))
    return f"{path.name} {len(trace.runs)} tokens\n{made}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--draft-max", type=int, default=16)
    parser.add_argument("--draft-min", type=int, default=0)
    args = parser.parse_args()
    for path in args.traces:
        print(summary(path, args.draft_max, args.draft_min))


if __name__ == "__main__":
    main()
