"""Compares our MTP verdict with real llama.cpp on every architecture, broken in every known way.

Usage: python scripts/oracle_mtp.py [ARCH ...]   exits 1 on a disagreement.
The judge is the libllama of llama-cpp-python, or that in the folder LLAMA_CPP_LIB_PATH.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.nextn_table import NO_MTP_IN_LIBLLAMA_0_5
from gguftools.gguf.source import open_gguf
from tests.models.mtp_judge import judge
from tests.models.mtp_mutations import Mutation, mutations
from tests.models.tiny import gemma4, write
from tests.models.tiny_archs import METADATA

_BATCH = 200  # files on disk at a time


def main(archs: list[str]) -> int:
    """Judge, print a table per architecture and every disagreement."""
    n_bad = 0
    print(f"{'architecture':18} files  loads   decodes  agree  disagree")
    for arch in archs or list(METADATA):
        if arch in NO_MTP_IN_LIBLLAMA_0_5 and "LLAMA_CPP_LIB_PATH" not in os.environ:
            print(f"{arch:18} not judged: libllama 0.5.0 loads no MTP block of it")
            continue
        counts: Counter[str] = Counter()
        found: list[str] = []
        cases = list(mutations(arch))
        for start in range(0, len(cases), _BATCH):
            found += _compare(cases[start : start + _BATCH], counts)
        n_bad += len(found)
        print(f"{arch:18} {counts['files']:5}  {counts['loads']:5}  {counts['decodes']:7} "
              f"{counts['files'] - len(found):6} {len(found):9}", flush=True)  # fmt: skip
        for line in found:
            print(f"    {line}")
    print(f"{n_bad} disagreements")
    return min(n_bad, 1)


def _compare(cases: list[Mutation], counts: Counter[str]) -> list[str]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.gguf" for i in range(len(cases))]
        for path, (_, model) in zip(paths, cases, strict=True):
            write(model, path)
        target = Path(folder) / "target.gguf" if cases[0][1].arch == "gemma4-assistant" else None
        if target:
            write(gemma4(), target)
        reports = [mtp_report(open_gguf(path)) for path in paths]
        jobs = [
            (p, 1 if target else max(r.declared, 1)) for p, r in zip(paths, reports, strict=True)
        ]
        for (label, _), report, verdict in zip(cases, reports, judge(jobs, target), strict=True):
            counts["files"] += 1
            counts["loads"] += verdict.loads
            counts["decodes"] += verdict.decodes
            ours, theirs = (report.loads, report.runnable), (verdict.loads, verdict.decodes)
            if ours != theirs:
                said = f"we say {_words(ours)} ({report.state}: {report.reason})"
                last = verdict.log.strip().splitlines()[-2:]
                found.append(f"{label}: {said}; llama.cpp {_words(theirs)}: {' | '.join(last)}")
    return found


def _words(outcome: tuple[bool, bool]) -> str:
    loads, decodes = outcome
    return "loads and decodes" if decodes else "loads" if loads else "refuses"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
