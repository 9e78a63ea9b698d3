"""Fits the constants of the prediction to published speedups, and says how far to trust them.

python -m scripts.calibrate SPEEDUPS.csv [--check] writes gguftools/pairing/calibration.py,
docs/accuracy.md and docs/accuracy.png; with --check it only prints the cross-validation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from gguftools.pairing.prediction import speedup_of, spread_key
from scripts.accuracy import plot, report
from scripts.fitting import Fit, Guess, by_source, guesses, thirds, uses
from scripts.priors import DEVICE, FAMILY, GROUPS, PRIORS
from scripts.published import Row, read_rows
from scripts.scoring import Score, score

HOME = Path(__file__).resolve().parent.parent
MODULE = HOME / "gguftools" / "pairing" / "calibration.py"
N_THIRDS = 2
SEED = 20261130
SPREAD = (
    "Half the 80% interval of the log of the speedup: by device (seen or new) and kind (MTP heads "
    "of dense models on GPUs, or others); the 80% quantile of the errors in cross-validation"
)
HEAD = '''\
"""The constants of the prediction, fitted by scripts/calibrate.py, which writes this. Data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """A value, what was believed before the fit, and how many published figures bear on it.

    With 0 figures it was set: no published figure tells.
    """

    value: float
    prior: float
    n_rows: int


CONSTANTS: dict[str, Constant] = {
'''


def spreads(found: Sequence[Guess]) -> dict[str, tuple[float, int]]:
    """Spread and number of errors by group."""
    groups: dict[str, list[float]] = {}
    for guess in found:
        if guess.row.fit_ok:
            groups.setdefault(guess.group, []).append(abs(guess.error))
    return {
        name: (float(np.quantile(errors, 0.8)), len(errors))
        for name, errors in sorted(groups.items())
    }


def lines(rows: Sequence[Row], values: dict[str, float]) -> Iterator[str]:
    """The module, constants in groups."""
    fitted = [row for row in rows if row.fit_ok]

    def constant(name: str) -> str:
        prior = PRIORS.get(name)
        value = float(f"{values[name]:.4g}")
        n_rows = sum(uses(name, row) for row in fitted)
        n_rows = n_rows if prior is None or prior.spread else 0
        return f'    "{name}": Constant({value!r}, {prior.value if prior else 0.0!r}, {n_rows}),'

    for text, group in GROUPS:
        yield from comment(text)
        yield from map(constant, group)
    for text, mark in ((DEVICE, ".device."), (FAMILY, ".family.")):
        yield from comment(text)
        yield from (constant(name) for name in sorted(values) if mark in name)


def comment(text: str) -> Iterator[str]:
    """Wrapped to the width of the house."""
    line = "    #"
    for word in text.split():
        if len(line) + len(word) > 98:
            yield line
            line = "    #"
        line += f" {word}"
    yield f"{line}."


def write_module(
    rows: Sequence[Row], values: dict[str, float], spread: dict[str, tuple[float, int]]
) -> None:
    """gguftools/pairing/calibration.py."""
    text = [*lines(rows, values), *comment(SPREAD)]
    for name, (value, n_errors) in spread.items():
        text.append(f'    "{name}": Constant({float(f"{value:.3g}")!r}, 0.0, {n_errors}),')
    MODULE.write_text(HEAD + "\n".join(text) + "\n}\n", encoding="utf-8")


def scored(found: Sequence[Guess], spread: dict[str, tuple[float, int]]) -> Score:
    """With the interval of each guess."""
    return score([(g.row, g.speedup, spread[g.group][0]) for g in found])


def main() -> None:
    """Fit, validate, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = read_rows(options.file)
    values = Fit(rows).solve()
    by_third = guesses(rows, thirds(rows, N_THIRDS, SEED), values)
    left_out = guesses(rows, by_source(rows), values)
    spread = spreads([*by_third, *left_out * N_THIRDS])  # as much of one as of the other
    fitted = [Guess(r, speedup_of(r.setup, values), spread_key(r.setup, values)) for r in rows]
    tables = {
        "fitted": scored(fitted, spread),
        "random thirds left out": scored(by_third, spread),
        "each source left out": scored(left_out, spread),
    }
    for name, result in tables.items():
        print(f"{name:24} {result}")
    if not options.check:
        write_module(rows, values, spread)
        report(HOME / "docs" / "accuracy.md", rows, values, tables, fitted, left_out, by_third)
        plot(HOME / "docs" / "accuracy.png", fitted, left_out)


if __name__ == "__main__":
    main()
