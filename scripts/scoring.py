"""Scores predictions against published speedups."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from scripts.published import Row


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of scripts/score_predictor.py."""

    n: int
    sign_accuracy: float
    median_abs_error: float  # of the log of the speedup
    interval_coverage: float

    def __str__(self) -> str:
        return (
            f"n {self.n}  sign {self.sign_accuracy:.1%}  median error "
            f"{self.median_abs_error:.1%}  in the interval {self.interval_coverage:.1%}"
        )


def score(found: Iterable[tuple[Row, float, float]]) -> Score:
    """Row, predicted speedup, half the interval of its log. Errors count where fit_ok is 1.

    A speedup of exactly 1 is no gain.
    """
    every = list(found)
    errors = [(abs(math.log(p / r.speedup)), half) for r, p, half in every if r.fit_ok]
    right = [(p > 1.0) == (r.speedup > 1.0) for r, p, _ in every]
    return Score(
        n=len(every),
        sign_accuracy=sum(right) / len(right) if right else math.nan,
        median_abs_error=statistics.median(e for e, _ in errors) if errors else math.nan,
        interval_coverage=sum(e <= h for e, h in errors) / len(errors) if errors else math.nan,
    )
