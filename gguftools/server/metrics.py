"""What a llama-server measured: timings, counters, slots, build; read from its answers. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gguftools.speculative.stats import Report, Share

_TEXT_CHARS_MAX = 4096
_N_MAX = 1 << 53
_POSITIONS_MAX = 1 << 10
_PREFIX = "llamacpp:"
# Totals have six digits in /metrics (server-task.cpp, b11434: a double in a stream).
_EXACT_BELOW = 1_000_000
_LINE = re.compile(r'([a-zA-Z_:]+)(?:\{position="(\d{1,4})"\})? (\S{1,32})')
_BUILD = re.compile(r"b(\d{1,9})\b")


@dataclass(frozen=True, slots=True)
class Timings:
    """What one reply took: tokens and seconds. `n_prompt` leaves out those in the cache."""

    n_cached: int
    n_prompt: int
    seconds_prompt: float
    n_predicted: int
    seconds_predicted: float
    n_draft: int
    n_accepted: int


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the server started, or between two readings.

    `n_rounds` are passes that verified a draft. Position i of `accepted_by_position` counts those
    in which the first i + 1 drafted tokens were kept.
    """

    n_prompt: int
    seconds_prompt: float
    n_predicted: int
    seconds_predicted: float
    n_draft: int
    n_accepted: int
    n_rounds: int
    accepted_by_position: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Props:
    """What a server says of itself; `build` is empty where it does not say."""

    build: str
    model: str
    n_ctx: int
    n_slots: int


@dataclass(frozen=True, slots=True)
class Slot:
    """One place for a request; `speculative` None where the build does not tell."""

    id: int
    n_ctx: int
    busy: bool
    speculative: bool | None
    types: str  # what drafts in it, known after its first request


def read_timings(value: object) -> Timings | None:
    """The `timings` of an event, None where it has none."""
    if not isinstance(value, dict):
        return None
    return Timings(
        n_cached=count(value.get("cache_n")),
        n_prompt=count(value.get("prompt_n")),
        seconds_prompt=_seconds(value.get("prompt_ms")),
        n_predicted=count(value.get("predicted_n")),
        seconds_predicted=_seconds(value.get("predicted_ms")),
        n_draft=count(value.get("draft_n")),
        n_accepted=count(value.get("draft_n_accepted")),
    )


def read_counters(text: str) -> Counters | None:
    """The page /metrics, None where it counts no drafts."""
    totals: dict[str, float] = {}
    positions: dict[int, int] = {}
    for line in text.splitlines():
        if (match := _LINE.fullmatch(line)) is None:
            continue
        name, position, value = match.groups()
        if position is None:
            totals[name.removeprefix(_PREFIX)] = _number(value)
        elif name.endswith("accepted_tokens_per_pos_total") and int(position) < _POSITIONS_MAX:
            positions[int(position)] = count(_number(value))
    if "spec_decode_num_draft_tokens_total" not in totals:
        return None
    return Counters(
        n_prompt=count(totals.get("prompt_tokens_total")),
        seconds_prompt=totals.get("prompt_seconds_total", 0.0),
        n_predicted=count(totals.get("tokens_predicted_total")),
        seconds_predicted=totals.get("tokens_predicted_seconds_total", 0.0),
        n_draft=count(totals["spec_decode_num_draft_tokens_total"]),
        n_accepted=count(totals.get("spec_decode_num_accepted_tokens_total")),
        n_rounds=count(totals.get("spec_decode_num_drafts_total")),
        accepted_by_position=tuple(
            positions.get(i, 0) for i in range(max(positions, default=-1) + 1)
        ),
    )


def between(before: Counters, after: Counters) -> Counters | None:
    """What happened between two readings, None where the server was started anew."""
    old = before.accepted_by_position
    old += (0,) * (len(after.accepted_by_position) - len(old))
    found = Counters(
        n_prompt=after.n_prompt - before.n_prompt,
        seconds_prompt=after.seconds_prompt - before.seconds_prompt,
        n_predicted=after.n_predicted - before.n_predicted,
        seconds_predicted=after.seconds_predicted - before.seconds_predicted,
        n_draft=after.n_draft - before.n_draft,
        n_accepted=after.n_accepted - before.n_accepted,
        n_rounds=after.n_rounds - before.n_rounds,
        accepted_by_position=tuple(
            b - a for a, b in zip(old, after.accepted_by_position, strict=False)
        ),
    )
    shrank = len(old) > len(after.accepted_by_position)
    totals = (found.n_predicted, found.n_draft, found.n_accepted, found.n_rounds)
    return None if shrank or min(*totals, *found.accepted_by_position, 0) < 0 else _trimmed(found)


def _trimmed(counters: Counters) -> Counters:
    """Without the positions at the end that nothing reached."""
    kept = counters.accepted_by_position
    n = max((i for i, n_kept in enumerate(kept, 1) if n_kept), default=0)
    return replace(counters, accepted_by_position=kept[:n])


def of_reply(timings: Timings, counted: Counters | None, total: Counters | None) -> Counters | None:
    """`counted` if it is of that reply alone: nobody else's came between, all digits are there."""
    if counted is None or total is None or total.n_draft >= _EXACT_BELOW:
        return None
    alone = (counted.n_draft, counted.n_accepted) == (timings.n_draft, timings.n_accepted)
    return counted if alone and sum(counted.accepted_by_position) == timings.n_accepted else None


def report_of(timings: Timings, drafter: str, counted: Counters | None) -> Report:
    """A reply in the terms of our own engine; what a server keeps to itself is None or empty.

    Rounds are passes of the target: each yields its accepted tokens and one of its own.
    """
    t, seconds = timings, timings.seconds_predicted
    share = Share(counted.n_rounds if counted else None, t.n_draft, t.n_accepted)
    return Report(
        n_prompt=t.n_cached + t.n_prompt,
        n_tokens=t.n_predicted,
        seconds_prompt=t.seconds_prompt,
        seconds_decode=seconds,
        tokens_per_second=t.n_predicted / seconds if seconds > 0 else None,
        n_draft=t.n_draft,
        n_accepted=t.n_accepted,
        n_rounds=max(t.n_predicted - t.n_accepted, 0),
        drafted_by_position=(),
        accepted_by_position=counted.accepted_by_position if counted else (),
        n_draft_histogram={},
        seconds_draft=None,
        seconds_verify=None,
        by_drafter={drafter: share} if t.n_draft else {},
    )


def read_props(value: Mapping[str, Any]) -> Props:
    """The answer of /props; whatever has another type than it should is left out."""
    settings = value.get("default_generation_settings")
    settings = settings if isinstance(settings, dict) else {}
    return Props(
        build=_text(value.get("build_info")),
        model=_text(value.get("model_path")) or _text(value.get("model_alias")),
        n_ctx=count(settings.get("n_ctx")),
        n_slots=count(value.get("total_slots")),
    )


def read_slots(value: object) -> tuple[Slot, ...]:
    """The answer of /slots."""
    slots = [slot for slot in value if isinstance(slot, dict)] if isinstance(value, list) else []
    return tuple(
        Slot(
            id=count(slot.get("id")),
            n_ctx=count(slot.get("n_ctx")),
            busy=slot.get("is_processing") is True,
            speculative=s if isinstance(s := slot.get("speculative"), bool) else None,
            types=_types(slot.get("params")),
        )
        for slot in slots
    )


def _types(params: object) -> str:
    """`draft-simple` of `none,draft-simple`, as b11434 writes it."""
    listed = _text(params.get("speculative.types")) if isinstance(params, dict) else ""
    return ",".join(t for t in listed.split(",") if t != "none")


def build_number(build: str) -> int | None:
    """11434 of `b11434-c0ffee`, None where there is none."""
    match = _BUILD.match(build)
    return int(match[1]) if match else None


def count(value: object) -> int:
    """A count, 0 for whatever is none."""
    number = _number(value)
    return int(number) if number <= _N_MAX else 0


def _seconds(milliseconds: object) -> float:
    return _number(milliseconds) / 1e3


def _number(value: object) -> float:
    """A finite number from 0 on, 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) and number >= 0 else 0.0


def _text(value: object) -> str:
    return value[:_TEXT_CHARS_MAX] if isinstance(value, str) else ""
