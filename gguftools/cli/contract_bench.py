"""The JSON of `gguftools bench --json` and `tune --json`, as types; see contract.py."""

from __future__ import annotations

from typing import Literal, TypedDict

from gguftools.cli.contract import ReplyJSON


class SpreadJSON(TypedDict):
    """The middle value and the outermost ones."""

    median: float
    low: float
    high: float


class BenchRunJSON(ReplyJSON):
    """One reply to a prompt. All arms answer the prompt of a round; `task` may be empty."""

    prompt: str
    task: str
    round: int


class TimeSplitJSON(TypedDict):
    """Seconds of decoding; other is what lies between passes and drafts."""

    draft: float
    verify: float
    other: float


class ArmJSON(TypedDict):
    """One way to decode: `plain`, `fixed-3`, `adaptive`, or a server by its address.

    Ratios are to plain on the same prompts. `request_*` counts reading the prompt too.
    `accepted_by_position` has the share of drafts kept up to there. `n_draft` is 0 for plain and
    null where it adapts or is not known. `cold` is the first reply of an arm that learns, apart
    from its runs. `n_same` counts replies with the text of plain's (greedy ones, else null).
    """

    name: str
    n_draft: int | None
    runs: list[BenchRunJSON]
    cold: BenchRunJSON | None
    tokens_per_second: SpreadJSON | None
    ratio_to_plain: SpreadJSON | None
    request_per_second: SpreadJSON | None
    request_ratio_to_plain: SpreadJSON | None
    acceptance: float | None
    tokens_per_round: float | None
    accepted_by_position: list[float]
    time: TimeSplitJSON | None
    n_same: int | None


class BenchMachineJSON(TypedDict):
    """Where it ran."""

    system: str
    cpu: str
    n_cores: int
    n_threads: int | None
    ram_bytes: int | None
    gpus: list[str]


class BenchJSON(TypedDict):
    """`gguftools bench --json`. `verdict` is null where nothing was compared with plain.

    `best` is the fastest arm that is shown to gain, else `plain`. `complete` is false after Ctrl-C.
    """

    schema: Literal["gguftools.bench/1"]
    date: str
    machine: BenchMachineJSON
    builds: dict[str, str]
    target: str
    draft: str | None
    drafter: str
    prompts: str
    n_predict: int
    temp: float | None
    complete: bool
    arms: list[ArmJSON]
    verdict: Literal["gain", "no-gain", "loss"] | None
    best: str | None
    reason: str
    notes: list[str]


class ChoiceJSON(TypedDict):
    """The settings that were found; null leaves one to the engine."""

    drafter: str
    draft: str | None
    draft_max: int
    draft_min: int
    draft_p_min: float
    n_threads: int | None
    cache_type_draft: str | None


class TriedJSON(TypedDict):
    """A value that was tried; `ratio` to the value that it was to beat."""

    value: str
    ratio: float | None
    tokens_per_second: SpreadJSON | None
    n_runs: int


class DecisionJSON(TypedDict):
    """A setting, the value it got, and why."""

    setting: str
    value: str
    reason: str
    tried: list[TriedJSON]


class TuneJSON(TypedDict):
    """`gguftools tune --json`. `arms` compare plain and tuned on prompts that had no part in it.

    `recipe` is the file that was written.
    """

    schema: Literal["gguftools.tune/1"]
    date: str
    machine: BenchMachineJSON
    builds: dict[str, str]
    target: str
    prompts: str
    temp: float
    seconds: float
    seconds_spent: float
    complete: bool
    choice: ChoiceJSON | None
    decisions: list[DecisionJSON]
    arms: list[ArmJSON]
    verdict: Literal["gain", "no-gain", "loss"] | None
    reason: str
    notes: list[str]
    recipe: str | None
