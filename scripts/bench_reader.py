"""CPU time and memory of reading a header, ours beside gguf-py's, each in a fresh process.

`python scripts/bench_reader.py $(python -m tests.models.real)`; --json for a machine.
Memory is the growth of the process's peak over what it held after its imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf import GGUFReader

    from gguftools.gguf.header import Header

READERS = ("gguftools", "gguf-py")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    arguments.add_argument("--rounds", type=int, default=5, help="fresh processes per reader")
    arguments.add_argument("--json", action="store_true")
    chosen = arguments.parse_args()
    results = [compare(model, rounds=chosen.rounds) for model in chosen.models]
    print(json.dumps(results, indent=1) if chosen.json else table(results))


def compare(model: Path, *, rounds: int) -> dict[str, object]:
    """Medians over `rounds`; gguf-py takes seconds, so it gets one."""
    found: dict[str, object] = {"model": model.name, "n_bytes": model.stat().st_size}
    for reader in READERS:
        runs = [measure(reader, model) for _ in range(rounds if reader == "gguftools" else 1)]
        found[reader] = {key: median(run[key] for run in runs) for key in runs[0]}
    return found


def measure(reader: str, model: Path) -> dict[str, float]:
    """One fresh process."""
    command = [sys.executable, __file__, "--child", reader, str(model)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return {key: float(value) for key, value in json.loads(done.stdout).items()}


def child(reader: str, model: str) -> None:
    """Read one header and print what it cost."""
    open_model = opener(reader)
    held, cpu, wall = memory("VmRSS"), time.process_time(), time.perf_counter()
    header = open_model(model)
    cost = {
        "seconds_cpu": time.process_time() - cpu,
        "seconds_wall": time.perf_counter() - wall,
        "growth_bytes": memory("VmHWM") - held,
    }
    assert len(header.tensors) > 0
    print(json.dumps(cost))


def opener(reader: str) -> Callable[[str], Header | GGUFReader]:
    """Imported here, so that each process pays for one reader only."""
    if reader == "gguftools":
        from gguftools.gguf.source import open_gguf

        return open_gguf
    from gguf import GGUFReader

    return GGUFReader


def memory(line: str) -> int:
    """Bytes resident now (VmRSS) or at most so far (VmHWM); Linux only."""
    status = Path("/proc/self/status").read_text()
    kilobytes = next(row.split()[1] for row in status.splitlines() if row.startswith(line))
    return int(kilobytes) * 1024


def table(results: list[dict[str, object]]) -> str:
    lines = [f"{'model':<36} {'reader':<10} {'CPU ms':>9} {'wall ms':>9} {'growth MB':>10}"]
    for result in results:
        for reader in READERS:
            cost = result[reader]
            assert isinstance(cost, dict)
            lines.append(
                f"{result['model']:<36} {reader:<10} {1e3 * cost['seconds_cpu']:9.1f} "
                f"{1e3 * cost['seconds_wall']:9.1f} {cost['growth_bytes'] / 1e6:10.1f}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
