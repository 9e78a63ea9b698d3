"""Fits the constants of the prediction: robust least squares, drawn to what is believed before."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from gguftools.pairing.devices import ENGINES, device_key, find_device
from gguftools.pairing.prediction import speedup_of, spread_key
from scripts.priors import PRIORS, SPREAD_ACCEPT, SPREAD_DEVICE, SPREAD_ROUND, Prior
from scripts.published import Row, sources

SIGMA = 0.14  # of the log of a speedup: what a published figure may be off by itself
ROBUST = 2.0  # residuals beyond so many sigmas count less and less
STEP = 1e-3

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Guess:
    """What constants fitted without a row say of it."""

    row: Row
    speedup: float
    group: str

    @property
    def error(self) -> float:
        """Of the log of the speedup."""
        return math.log(self.speedup / self.row.speedup)


def priors_for(rows: Sequence[Row]) -> dict[str, Prior]:
    """All constants that these rows speak of."""
    found = dict(PRIORS)
    for key in sorted({device_key(r.setup.device, r.setup.backend) for r in rows} - {""}):
        found[f"slope.device.{key}"] = Prior(0.0, SPREAD_DEVICE, positive=False)
    for key in sorted({r.setup.series for r in rows} - {""}):
        found[f"accept.family.{key}"] = Prior(0.0, SPREAD_ACCEPT, positive=False)
        found[f"round.family.{key}"] = Prior(0.0, SPREAD_ROUND, positive=False)
    return found


def uses(name: str, row: Row) -> bool:
    """Whether the prediction of a row may depend on a constant."""
    s = row.setup
    guessed = s.acceptance is None or bool(s.p_min)
    first, _, rest = name.partition(".")
    if rest.startswith("device."):
        return rest[7:] == device_key(s.device, s.backend)
    if rest.startswith("family."):
        return rest[7:] == s.series and (guessed or first == "round")
    if rest in ENGINES:
        engine = find_device(s.device, s.backend).engine
        return rest == engine or (rest == "cpu" and s.cpu_share > 0.0)
    if rest.startswith("draft-") or rest == "ngram":
        return rest == s.kind
    if first == "task":
        return rest == s.task and guessed
    special = {
        "slope.metal-plain": s.backend == "metal",
        "slope.experts": s.is_moe,
        "experts.apart": s.is_moe,
        "accept.size": s.kind == "draft-simple" and guessed,
        "accept.bits": guessed,
        "seconds.split": s.tensor_split,
        "replay": s.rollback != "PART" and s.kind in ("draft-simple", "ngram"),
        "context.bytes": s.n_ctx_used > 0,
        "context.slope": s.n_ctx_used > 0,
    }
    return special.get(name, first != "prefill")


class Fit:
    """One least-squares problem; a vector holds the logarithms of positive constants."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [row for row in rows if row.fit_ok]
        self.priors = priors_for(self.rows)
        self.free = [name for name, prior in self.priors.items() if prior.spread > 0.0]
        self.centre = np.array([self._inner(n, self.priors[n].value) for n in self.free])
        self.width = np.array([self.priors[n].spread for n in self.free])
        self.users = [[i for i, r in enumerate(self.rows) if uses(n, r)] for n in self.free]
        self.seen = [math.log(row.speedup) for row in self.rows]

    def _inner(self, name: str, value: float) -> float:
        return math.log(value) if self.priors[name].positive else value

    def constants(self, x: Vector) -> dict[str, float]:
        """By name."""
        found = {name: prior.value for name, prior in self.priors.items()}
        for name, value in zip(self.free, x, strict=True):
            found[name] = math.exp(value) if self.priors[name].positive else float(value)
        return found

    def _residual(self, i: int, c: dict[str, float]) -> float:
        z = (math.log(speedup_of(self.rows[i].setup, c)) - self.seen[i]) / SIGMA
        # The square root of the pseudo-Huber loss.
        loss = ROBUST**2 * (math.sqrt(1.0 + (z / ROBUST) ** 2) - 1.0)
        return math.copysign(math.sqrt(2.0 * loss), z)

    def residuals(self, x: Vector) -> Vector:
        """Of the rows, then of the priors."""
        c = self.constants(x)
        rows = [self._residual(i, c) for i in range(len(self.rows))]
        return np.concatenate([rows, (x - self.centre) / self.width])

    def jacobian(self, x: Vector) -> Vector:
        """Differences, only where a row depends on a constant."""
        n_rows, base = len(self.rows), self.residuals(x)
        slopes = np.zeros((n_rows + len(x), len(x)))
        for j, users in enumerate(self.users):
            moved = x.copy()
            moved[j] += STEP
            c = self.constants(moved)
            for i in users:
                slopes[i, j] = (self._residual(i, c) - base[i]) / STEP
            slopes[n_rows + j, j] = 1.0 / self.width[j]
        return slopes

    def solve(self, start: dict[str, float] | None = None) -> dict[str, float]:
        """The constants; a start near them saves time."""
        begin = self.centre.copy()
        for j, name in enumerate(self.free):
            if start and name in start:
                begin[j] = self._inner(name, start[name])
        found = least_squares(
            self.residuals, begin, self.jacobian, max_nfev=25, ftol=2e-3, xtol=1e-3
        )
        return self.constants(found.x)


def thirds(rows: Sequence[Row], n_times: int, seed: int) -> list[list[Row]]:
    """Random thirds, drawn several times."""
    rng, folds = random.Random(seed), []
    for _ in range(n_times):
        order = list(rows)
        rng.shuffle(order)
        folds += [order[i::3] for i in range(3)]
    return folds


def by_source(rows: Sequence[Row]) -> list[list[Row]]:
    """One fold per source."""
    return [[row for row in rows if row.source == source] for source in sources(rows)]


def guesses(
    rows: Sequence[Row], folds: Sequence[Sequence[Row]], start: dict[str, float]
) -> list[Guess]:
    """Every fold predicted by constants fitted to the rest."""
    found = []
    for fold in folds:
        held = {row.id for row in fold}
        c = Fit([row for row in rows if row.id not in held]).solve(start)
        found += [Guess(row, speedup_of(row.setup, c), spread_key(row.setup, c)) for row in fold]
    return found
