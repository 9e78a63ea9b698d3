"""The JSON of `gguftools pair --json`, as types; see contract.py."""

from __future__ import annotations

from typing import Literal, TypedDict


class SettingsJSON(TypedDict):
    """What to start with; gguftools adapts the length up to `draft_max` as it runs."""

    draft_max: int
    draft_min: int
    draft_p_min: float


CommandsJSON = TypedDict("CommandsJSON", {"llama-server": str | None, "gguftools": str | None})


class PredictionJSON(TypedDict):
    """What the pair should bring; all null where nothing can be said, as of a blocked one.

    `speedup` is of decoding, with 80 of 100 cases between low and high; `request_speedup` counts
    reading the prompt too. Position i of `acceptance_by_position`: the share of rounds in which the
    first i + 1 drafted tokens are kept.
    """

    acceptance: float | None
    acceptance_by_position: list[float]
    tokens_per_round: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    request_speedup: float | None
    break_even_acceptance: float | None
    reasons: list[str]


class BitsJSON(TypedDict):
    """Bits per weight by group of tensors; null where the file has none of it."""

    trunk: float | None
    head: float | None
    embedding: float | None
    output: float | None


class MemoryJSON(TypedDict):
    """Whether it fits the machine with that context; `n_ctx_max` would, null where `n_ctx` does."""

    n_ctx: int
    fits: bool
    reason: str
    n_ctx_max: int | None


class CandidateJSON(TypedDict):
    """The verdict on one draft; `draft` is null for the target's own MTP head and for ngram.

    `measured`: the prediction rests on a measurement here (--measure).
    """

    draft: str | None
    origin: str | None
    kind: str | None
    quant: str | None
    n_bytes: int | None
    bits_per_weight: BitsJSON | None
    verdict: Literal["works", "poor", "blocked"]
    rule: str | None
    token_id: int | None
    target_text: str | None
    draft_text: str | None
    reason: str
    notes: list[str]
    prediction: PredictionJSON
    measured: bool
    settings: SettingsJSON | None
    memory_bytes: dict[str, int] | None
    memory: MemoryJSON | None
    commands: CommandsJSON


class PairJSON(TypedDict):
    """`gguftools pair --json`: the best candidate first; `notes` says what was not looked at."""

    schema: Literal["gguftools.pair/1"]
    target: str
    task: str | None
    device: str
    candidates: list[CandidateJSON]
    notes: list[str]
