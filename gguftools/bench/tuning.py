"""What `tune` decides, why, and its report. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Literal

from gguftools.bench.report import Arm, Machine
from gguftools.bench.verdict import Outcome, Spread


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting of everything that is tuned. `draft_min` equal to `draft_max`: a fixed length."""

    drafter: str  # draft, mtp or ngram
    draft: str | None  # its file
    draft_max: int
    draft_min: int = 0
    draft_p_min: float = 0.0
    n_threads: int | None = None  # None: as many as the session takes
    cache_type_draft: str | None = None  # None: that of the session

    @property
    def name(self) -> str:
        """The drafter: its file or its kind."""
        return PurePath(self.draft).name if self.draft else self.drafter

    @property
    def length(self) -> str:
        """The bounds in words."""
        if self.draft_min == self.draft_max:
            return f"always {self.draft_max}"
        return f"adaptive up to {self.draft_max}"


@dataclass(frozen=True, slots=True)
class Tried:
    """A value that was tried: its ratio to the value it was to beat, tokens/s, replies."""

    value: str
    ratio: float | None
    tokens_per_second: Spread | None
    n_runs: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A setting, the value it got, and why."""

    setting: str
    value: str
    reason: str
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The whole of it. `arms`: plain and tuned on fresh prompts, which the verdict is about.

    `choice` is None where nothing could be tuned. `recipe` is the file that was written.
    """

    date: str
    machine: Machine
    builds: dict[str, str]
    target: str
    prompts: str
    temp: float
    seconds: float
    seconds_spent: float
    complete: bool
    choice: Choice | None
    decisions: tuple[Decision, ...]
    arms: tuple[Arm, ...]
    verdict: Outcome | None
    reason: str
    notes: tuple[str, ...] = ()
    recipe: str | None = None
    schema: Literal["gguftools.tune/1"] = "gguftools.tune/1"


def tune_json(report: TuneReport) -> dict[str, Any]:
    """The object for `--json`."""
    return {"schema": report.schema, **asdict(report)}
