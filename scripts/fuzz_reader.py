"""Fuzzes everything that reads a GGUF header: the reader, the integrity check, the MTP verdict.

`python scripts/fuzz_reader.py --runs 100000` is guided by coverage and needs atheris
(`pip install atheris`; Linux or macOS); with `--random` it mutates blindly and needs nothing.
Prints totals as one JSON object; exits 1 after a crash, an input over 1 s or more than 200 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

SECONDS_MAX = 1.0
MEGABYTES_MAX = 200
INPUT_BYTES_MAX = 1 << 15


@dataclass
class Totals:
    """What was seen so far."""

    mode: str
    n_runs: int = 0
    n_refused: int = 0  # no header; the rest got a report
    n_crashes: int = 0
    n_slow: int = 0  # over SECONDS_MAX of CPU
    seconds_slowest: float = 0.0
    seconds_total: float = 0.0
    megabytes_peak: float = 0.0  # of the process, the fuzzer included
    kept: list[str] = field(default_factory=list)

    def passed(self) -> bool:
        return not (self.n_crashes or self.n_slow or self.megabytes_peak > MEGABYTES_MAX)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--random", action="store_true", help="blind mutations, no atheris")
    arguments.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()),
                           help="where inputs that fail are written")  # fmt: skip
    arguments.add_argument("--corpus", type=Path, help="a folder that outlives this run")
    chosen = arguments.parse_args()
    if not chosen.random:
        return guided(chosen.runs, chosen.seed, chosen.keep, chosen.corpus)
    from tests.models.damage import check_answer, damaged, seeds

    totals, rng, files = Totals("random"), random.Random(chosen.seed), seeds()
    for _ in range(chosen.runs):
        execute(check_answer, damaged(rng.choice(files), rng, files), totals, chosen.keep)
    return report(totals)


def execute(
    check_answer: Callable[[bytes], list[str]], content: bytes, totals: Totals, keep: Path
) -> None:
    """One input; a failing one is kept, and the run goes on."""
    before = time.process_time()
    try:
        lines = check_answer(content)
        totals.n_refused += len(lines) == 1 and lines[0].startswith("model.gguf at byte")
    except Exception as err:  # noqa: BLE001  whatever comes out here is what we look for
        totals.n_crashes += 1
        name = keep / f"crash-{totals.n_crashes}.gguf"
        name.write_bytes(content)
        totals.kept.append(f"{name}: {type(err).__name__}: {str(err)[:200]}")
    seconds = time.process_time() - before
    totals.n_runs += 1
    totals.seconds_total += seconds
    totals.seconds_slowest = max(totals.seconds_slowest, seconds)
    if seconds > SECONDS_MAX:
        totals.n_slow += 1
        name = keep / f"slow-{totals.n_slow}.gguf"
        name.write_bytes(content)
        totals.kept.append(f"{name}: {seconds:.1f} s")


def guided(runs: int, seed: int, keep: Path, corpus: Path | None) -> int:
    """libFuzzer chooses the inputs by what they make our code do."""
    try:
        import atheris
    except ImportError:
        print("error: atheris is not installed: pip install atheris, or use --random",
              file=sys.stderr)  # fmt: skip
        return 3
    with atheris.instrument_imports(include=["gguftools"]):
        from tests.models.damage import check_answer, seeds
    totals = Totals("guided")
    corpus = corpus or Path(tempfile.mkdtemp())
    corpus.mkdir(parents=True, exist_ok=True)
    for i, content in enumerate(seeds()):
        if len(content) <= INPUT_BYTES_MAX:
            (corpus / f"seed-{i}").write_bytes(content)

    def one_input(content: bytes) -> None:
        execute(check_answer, content, totals, keep)
        if totals.n_runs == runs:  # libFuzzer takes any other way out for a crash
            os._exit(report(totals))

    options = [f"-max_len={INPUT_BYTES_MAX}", f"-seed={seed}", "-timeout=60", "-verbosity=0",
               f"-artifact_prefix={keep}/"]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], one_input)
    atheris.Fuzz()
    return report(totals)


def report(totals: Totals) -> int:
    unit = 1 << (20 if sys.platform == "darwin" else 10)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    totals.megabytes_peak = round(peak, 1)
    print(json.dumps(asdict(totals), indent=1), flush=True)
    return 0 if totals.passed() else 1


if __name__ == "__main__":
    sys.exit(main())
