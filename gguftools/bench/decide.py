"""Which of several values was the fastest, by replies to the same prompts, and why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from gguftools.bench.report import PLAIN, Run, ratios
from gguftools.bench.tuning import Choice, Decision, Tried
from gguftools.bench.verdict import spread

BETTER = 1.02  # a new value must be so much faster, or the old one stays
N_HALVE = 2  # rounds after which the slower half leaves
Runs = dict[Choice | None, list[Run]]  # by choice, None for plain


def faster_half(rivals: Sequence[Choice], runs: Runs, incumbent: Choice) -> list[Choice]:
    """Half of them, by how they compare with the incumbent so far."""

    def speed(choice: Choice) -> float:
        return _middle(ratios(runs[choice], runs[incumbent])) or 0.0

    return sorted(rivals, key=speed, reverse=True)[: (len(rivals) + 1) // 2]


def decided(
    setting: str,
    label: Callable[[Choice], str],
    incumbent: Choice,
    rivals: Sequence[Choice],
    runs: Runs,
) -> tuple[Choice, Decision]:
    """The best rival if it is clearly better than the incumbent, else the incumbent; and why."""
    by_rival = {rival: ratios(runs[rival], runs[incumbent]) for rival in rivals}
    # Who left early has fewer rounds, and had lost those.
    longest = max((len(values) for values in by_rival.values()), default=0)
    finalists = [rival for rival in rivals if len(by_rival[rival]) == longest > 0]
    tried = tuple(
        Tried(label(c) if c else PLAIN, _middle(ratios(runs[c], runs[incumbent])),
              spread([r.tokens_per_second for r in runs[c] if r.tokens_per_second]), len(runs[c]))
        for c in (None, incumbent, *rivals)
    )  # fmt: skip
    if not finalists:
        reason = "nothing else was tried: the time was up"
        return incumbent, Decision(setting, label(incumbent), reason, tried)
    best = max(finalists, key=lambda rival: median(by_rival[rival]))
    values = by_rival[best]
    n_faster, middle = sum(value > 1.0 for value in values), median(values)
    seen = (
        f"{label(best)} came to {middle:.2f} of {label(incumbent)}, "
        f"faster on {n_faster} of {len(values)} prompts"
    )
    if middle >= BETTER and n_faster > len(values) / 2 and len(values) >= N_HALVE:
        return best, Decision(setting, label(best), seen, tried)
    return incumbent, Decision(setting, label(incumbent), f"it stays: {seen}", tried)


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None
