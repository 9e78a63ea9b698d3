"""The JSON of `gguftools explain --json`, as types; see contract.py."""

from __future__ import annotations

from typing import Literal, TypedDict


class CountsJSON(TypedDict):
    """Sums over replies; position i: rounds whose draft reached, or kept, i + 1 tokens."""

    n_replies: int | None
    n_prompt: int | None
    n_tokens: int | None
    n_rounds: int | None
    n_rounds_drafted: int | None
    n_draft: int | None
    n_accepted: int | None
    drafted_by_position: list[int] | None
    accepted_by_position: list[int] | None
    seconds_prompt: float | None
    seconds_decode: float | None
    seconds_draft: float | None
    seconds_verify: float | None


class ArmJSON(TypedDict):
    """An arm of a bench: its ratio to plain; `draft_max` is null where the length adapts."""

    name: str
    draft_max: int | None
    speedup: float
    low: float | None
    high: float | None


class FactsJSON(TypedDict):
    """What the files say; `passes` has pairs of rows and seconds of a pass over them."""

    sources: list[str]
    engine: str | None
    build: str | None
    backend: str | None
    architecture: str | None
    target: str | None
    draft: str | None
    drafter: str | None
    temp: float | None
    draft_max: int | None
    draft_min: int | None
    draft_p_min: float | None
    drafted: CountsJSON | None
    plain: CountsJSON | None
    passes: list[list[float]] | None
    arms: list[ArmJSON] | None
    repetition: float | None
    failure: str | None
    failure_hint: str | None
    off: str | None
    stale: str | None
    speculative: bool | None
    n_slots: int | None
    n_layers_gpu: int | None
    n_layers_all: int | None
    n_draft_layers_gpu: int | None
    n_draft_layers_all: int | None
    n_cpu_experts: int | None
    n_head_unused: int | None
    draft_cache: str | None
    split_mode: str | None
    mtp_state: str | None
    mtp_reason: str | None
    pair_rule: str | None
    pair_reason: str | None
    memory_reason: str | None
    n_ctx_max: int | None
    predicted_speedup: float | None
    predicted_acceptance: float | None
    predicted_break_even: float | None


class CauseJSON(TypedDict):
    """Why it is not faster; `code` is stable, `hint` is what to try, `numbers` are in `message`."""

    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    hint: str
    numbers: dict[str, float | str]


class ExplainJSON(TypedDict):
    """`gguftools explain --json`. `speedup` is against plain decoding, an upper bound if `at_most`.

    Where it is `faster`, causes are what it still loses, all of severity info.
    """

    schema: Literal["gguftools.explain/1"]
    facts: FactsJSON
    verdict: Literal["faster", "no-gain", "slower", "unknown"]
    speedup: float | None
    at_most: bool
    causes: list[CauseJSON]
