"""What a benchmark found, and its JSON: arms of runs, each arm beside plain decoding. I/O.

No heavy imports: `explain` reads these too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from gguftools.bench.from_json import from_json
from gguftools.bench.verdict import Outcome, Spread, spread
from gguftools.errors import FormatError, SourceError
from gguftools.speculative.stats import Report

REPORT_BYTES_MAX = 256 << 20
PLAIN = "plain"
ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True)
class Run(Report):
    """The report of one reply to `prompt` in `round`, with what was written."""

    prompt: str
    task: str
    round: int
    text: str
    token_ids: tuple[int, ...]
    stop_reason: str
    drafter: str

    @property
    def request_per_second(self) -> float | None:
        """Tokens per second of the whole request, reading the prompt included."""
        seconds = self.seconds_prompt + self.seconds_decode
        return self.n_tokens / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Where the seconds of decoding went; other: everything between passes and drafts."""

    draft: float
    verify: float
    other: float


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to decode. Spreads are over its runs; ratios are to plain on the same prompts.

    `n_draft`: 0 plain, None where it adapts or nobody knows. `accepted_by_position` has the share
    of drafts kept up to there. `cold`: the first reply of an arm that learns, not in the spreads.
    `n_same`: replies with the very text of plain's, where they should have it (greedy).
    `time` is None where the engine does not say it.
    """

    name: str
    n_draft: int | None
    runs: tuple[Run, ...]
    cold: Run | None
    tokens_per_second: Spread | None
    ratio_to_plain: Spread | None
    request_per_second: Spread | None
    request_ratio_to_plain: Spread | None
    acceptance: float | None
    tokens_per_round: float | None
    accepted_by_position: tuple[float, ...]
    time: TimeSplit | None
    n_same: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it ran."""

    system: str
    cpu: str
    n_cores: int
    n_threads: int | None
    ram_bytes: int | None
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The whole of it. `verdict` is None where nothing was compared; `complete`: not interrupted.

    `builds` names gguftools, the binding, and any server by its version.
    """

    date: str
    machine: Machine
    builds: dict[str, str]
    target: str
    draft: str | None
    drafter: str
    prompts: str
    n_predict: int
    temp: float | None
    complete: bool
    arms: tuple[Arm, ...]
    verdict: Outcome | None
    best: str | None
    reason: str
    notes: tuple[str, ...] = ()
    schema: Literal["gguftools.bench/1"] = "gguftools.bench/1"


def arm_of(
    name: str,
    n_draft: int | None,
    runs: Sequence[Run],
    plain: Sequence[Run],
    *,
    cold: Run | None = None,
    comparable: bool = False,
) -> Arm:
    """Adds the runs of an arm up. `comparable`: greedy replies, which plain's should equal."""
    pairs = pairs_of(runs, plain)
    drafted = sum(run.n_draft for run in runs)
    rounds = sum(run.n_rounds for run in runs)
    return Arm(
        name=name,
        n_draft=n_draft,
        runs=tuple(runs),
        cold=cold,
        tokens_per_second=spread([r.tokens_per_second for r in runs if r.tokens_per_second]),
        ratio_to_plain=None if name == PLAIN else spread(ratios(runs, plain)),
        request_per_second=spread([r.request_per_second for r in runs if r.request_per_second]),
        request_ratio_to_plain=None if name == PLAIN else spread(request_ratios(runs, plain)),
        acceptance=sum(r.n_accepted for r in runs) / drafted if drafted else None,
        tokens_per_round=sum(r.n_tokens for r in runs) / rounds if rounds else None,
        accepted_by_position=_kept(runs),
        time=_time(runs),
        n_same=sum(a.text == b.text for a, b in pairs) if comparable and name != PLAIN else None,
    )


def pairs_of(runs: Sequence[Run], plain: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Each run with plain's on the same prompt in the same round."""
    theirs = {(run.round, run.prompt): run for run in plain}
    return [(run, theirs[key]) for run in runs if (key := (run.round, run.prompt)) in theirs]


def ratios(runs: Sequence[Run], plain: Sequence[Run]) -> list[float]:
    """Decoding speed as a multiple of plain's."""
    speeds = ((a.tokens_per_second, b.tokens_per_second) for a, b in pairs_of(runs, plain))
    return [ours / theirs for ours, theirs in speeds if ours and theirs]


def request_ratios(runs: Sequence[Run], plain: Sequence[Run]) -> list[float]:
    """The same of whole requests."""
    speeds = ((a.request_per_second, b.request_per_second) for a, b in pairs_of(runs, plain))
    return [ours / theirs for ours, theirs in speeds if ours and theirs]


def _kept(runs: Sequence[Run]) -> tuple[float, ...]:
    depth = max((len(run.drafted_by_position) for run in runs), default=0)
    shares = []
    for i in range(depth):
        drafted = sum(r.drafted_by_position[i] for r in runs if i < len(r.drafted_by_position))
        kept = sum(r.accepted_by_position[i] for r in runs if i < len(r.accepted_by_position))
        shares.append(kept / drafted if drafted else 0.0)
    return tuple(shares)


def _time(runs: Sequence[Run]) -> TimeSplit | None:
    known = [r for r in runs if r.seconds_draft is not None and r.seconds_verify]
    if not known:
        return None
    verify = sum(run.seconds_verify or 0.0 for run in known)
    draft = sum(run.seconds_draft or 0.0 for run in known)
    whole = sum(run.seconds_decode for run in known)
    return TimeSplit(draft, verify, max(whole - draft - verify, 0.0))


def report_json(report: BenchReport) -> dict[str, Any]:
    """The object for `--json` and for a file."""
    return {"schema": report.schema, **asdict(report)}


def load_report(path: Path) -> BenchReport:
    """A report that `bench --json` wrote; SourceError or FormatError if it is none."""
    return parse_report(read_json(path), str(path))


def parse_report(value: Mapping[str, Any], where: str) -> BenchReport:
    """The same from parsed JSON."""
    if value.get("schema") != "gguftools.bench/1":
        raise FormatError("no report of gguftools bench", where=where,
                          hint="gguftools bench TARGET --json > report.json")  # fmt: skip
    report: BenchReport = from_json(BenchReport, value, where)
    return report


def read_json(path: Path) -> Mapping[str, Any]:
    """One JSON object from a file of bounded size."""
    try:
        with path.open("rb") as file:
            content = file.read(REPORT_BYTES_MAX + 1)
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path)) from err
    if len(content) > REPORT_BYTES_MAX:
        raise FormatError(f"larger than {REPORT_BYTES_MAX >> 20} MiB", where=str(path))
    try:
        value = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as err:
        raise FormatError(f"not JSON: {err}", where=str(path)) from err
    if not isinstance(value, dict):
        raise FormatError("must be a JSON object", where=str(path))
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
