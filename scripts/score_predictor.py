#!/usr/bin/env python3
"""Scores the prediction on a CSV of published speedups, and prints JSON."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gguftools.pairing.prediction import predict
from scripts.published import read_rows
from scripts.scoring import score


def main() -> None:
    """n, sign_accuracy, median_abs_error of the log, interval_coverage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    found = []
    for row in read_rows(parser.parse_args().file):
        p = predict(row.setup)
        found.append((row, p.speedup, math.log(p.speedup_high / p.speedup)))
    print(json.dumps(asdict(score(found)), indent=2))


if __name__ == "__main__":
    main()
