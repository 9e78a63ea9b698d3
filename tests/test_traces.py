"""What the controller decides on recorded real replies, to the digit; and that it decides well.

After a change that is meant to alter decisions:
python -m scripts.replay tests/traces/*.jsonl --draft-max 8 > tests/traces/golden.txt
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

from gguftools.speculative.controller import Controller
from scripts.replay import Trace, load, replay, summary
from tests.commands import gguftools

FOLDER = Path(__file__).parent / "traces"
TRACES = sorted(FOLDER.glob("*.jsonl"))
K = 8


def read(path: Path) -> Trace:
    with path.open(encoding="utf-8") as lines:
        return load(lines)


def seconds(trace: Trace, controller: Controller) -> float:
    return sum(trace.seconds(step) for step in replay(trace, controller))


def test_decisions_are_those_of_the_golden_summary() -> None:
    """A difference is not wrong, but it must be seen."""
    golden = (FOLDER / "golden.txt").read_text(encoding="utf-8").splitlines()
    now = "\n".join(summary(path, K) for path in TRACES).splitlines()
    assert now == golden, "\n".join(difflib.unified_diff(golden, now, lineterm="", n=0))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_cold_start_is_near_the_best_fixed_length_and_plain(path: Path) -> None:
    """From the first token on, with everything yet to be learnt."""
    trace = read(path)
    best = min(seconds(trace, Controller(k, k)) for k in range(K + 1))
    adaptive = seconds(trace, Controller(K))
    assert adaptive < best / 0.95
    assert adaptive < seconds(trace, Controller(0)) / 0.98


def test_the_traces_are_small_and_of_every_kind_of_drafter() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 100_000
    assert {path.stem for path in TRACES} >= {
        "markov-mtp", "smollm2-f16-q4_0", "smollm2-ngram-rewrite", "widened-smollm2"
    }  # fmt: skip


def test_the_command_line_writes_steps_that_replay(models: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "steps.jsonl"
    run = ["run", models["hybrid-mtp"], "--mtp", "--ngram", "--temp", "0", "-t", "1", "-n", "60"]
    done = gguftools(*run, "-p", "abc", "--draft-max", "4", "--draft-min", "4", "--trace", out)
    assert done.returncode == 0
    lines = out.read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["drafter"] for line in lines} <= {"mtp", "ngram", ""}
    head = {"seconds_verify": [1.0, 1.1, 1.2, 1.3, 1.4], "seconds_draft": [0.1] * 4}
    trace = load([json.dumps(head), *lines])
    assert len(trace.runs) == 60
    kept = sum(s.n_accepted for s in replay(trace, Controller(4, 4)))
    assert kept > 0
