"""What a pair will bring: tokens per round, speedup with its spread, the best settings. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gguftools.pairing.acceptance import (
    LEVELS,
    Drafts,
    chances,
    drafts,
    expected_level,
    found,
    level_of,
)
from gguftools.pairing.calibration import CONSTANTS
from gguftools.pairing.cost import Costs, costs, experts_in_use
from gguftools.pairing.devices import device_key, find_device
from gguftools.pairing.launch import Settings
from gguftools.pairing.reasons import reasons
from gguftools.pairing.setup import Setup

WORTH = 1.01  # a longer or stranger setting has to gain a percent
P_MINS = (0.0, 0.5, 0.75)
N_MINS = (0, 2)
N_DEFAULT = 3  # --spec-draft-n-max, common/common.h, b11434
VALUES: Mapping[str, float] = {name: row.value for name, row in CONSTANTS.items()}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What to expect of decoding with a draft, relative to plain decoding.

    `acceptance` is accepted of drafted tokens; `acceptance_by_position[i]` the share of rounds in
    which the first i + 1 drafted tokens are kept, both as llama.cpp counts. The speedup lies
    between low and high in 80 of 100 cases. `request_speedup` counts reading the prompt too.
    `break_even_acceptance` is None where even a draft that is always right loses.
    """

    acceptance: float
    acceptance_by_position: tuple[float, ...]
    tokens_per_round: float
    speedup: float
    speedup_low: float
    speedup_high: float
    request_speedup: float
    break_even_acceptance: float | None
    draft_max: int
    draft_min: int
    draft_p_min: float
    reasons: tuple[str, ...]

    @property
    def pays(self) -> bool:
        """Whether drafting is expected to be faster than not drafting; else off is best."""
        return self.speedup > 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What drafts with these settings come to."""

    settings: Settings
    drafts: Drafts
    speedup: float


def predict(setup: Setup, constants: Mapping[str, float] = VALUES) -> Prediction:
    """The outcome with the settings given, or with the best where `n_max` is None."""
    level = _level(setup, constants)
    n_most = setup.n_max if setup.n_max is not None else setup.n_max_limit
    price = costs(setup, max(n_most, 1), constants)

    def at(settings: Settings, level: float) -> Outcome:
        return outcome(setup, settings, level, price, constants)

    best = simplest_best([at(settings, level) for settings in _settings(setup)])
    return prediction(
        setup,
        best,
        price,
        spread=constants[spread_key(setup, constants)],
        break_even=break_even(lambda level: at(best.settings, level)),
        constants=constants,
    )


def prediction(
    setup: Setup,
    best: Outcome,
    price: Costs,
    *,
    spread: float,
    break_even: float | None,
    constants: Mapping[str, float] = VALUES,
) -> Prediction:
    """An outcome in the words of a Prediction; `spread` is half the interval of the log."""
    n_max = best.settings.draft_max
    request = request_speedup(setup, best.speedup, constants)
    n_experts = experts_in_use(setup, n_max + 1, constants)
    return Prediction(
        acceptance=best.drafts.acceptance,
        acceptance_by_position=best.drafts.kept,
        tokens_per_round=best.drafts.tokens_per_round,
        speedup=best.speedup,
        speedup_low=best.speedup * math.exp(-spread),
        speedup_high=best.speedup * math.exp(spread),
        request_speedup=request,
        break_even_acceptance=break_even,
        draft_max=n_max,
        draft_min=best.settings.draft_min,
        draft_p_min=best.settings.draft_p_min,
        reasons=reasons(setup, best.drafts, price, best.speedup, request, n_max, n_experts),
    )


def speedup_of(setup: Setup, constants: Mapping[str, float] = VALUES) -> float:
    """The speedup alone, with the settings given."""
    settings = Settings(setup.n_max or N_DEFAULT, setup.n_min, setup.p_min or 0.0)
    price = costs(setup, settings.draft_max, constants)
    return outcome(setup, settings, _level(setup, constants), price, constants).speedup


def outcome(
    setup: Setup, settings: Settings, level: float, price: Costs, c: Mapping[str, float]
) -> Outcome:
    """What drafts of a level come to at a price."""
    p = chances(level, setup.kind, settings.draft_max, c[f"depth.{setup.kind}"])
    d = drafts(p, n_min=settings.draft_min, p_min=settings.draft_p_min, found=found(setup, c))
    return Outcome(settings, d, d.tokens_per_round / price.round(d))


def simplest_best(outcomes: list[Outcome]) -> Outcome:
    """The first that comes within a percent of the fastest; shorter and plainer ones lead."""
    enough = max(o.speedup for o in outcomes) / WORTH
    return next(o for o in outcomes if o.speedup >= enough)


def break_even(at: Callable[[float], Outcome]) -> float | None:
    """Accepted of drafted tokens from which on drafting pays."""
    low, high = LEVELS
    if at(high).speedup < 1.0:
        return None
    for _ in range(30):
        middle = (low + high) / 2.0
        low, high = (middle, high) if at(middle).speedup < 1.0 else (low, middle)
    return at(high).drafts.acceptance


def _settings(setup: Setup) -> Iterator[Settings]:
    """Every setting worth a try, plain ones first."""
    if setup.n_max is not None:
        yield Settings(max(setup.n_max, 1), setup.n_min, setup.p_min or 0.0)
        return
    p_mins = P_MINS if setup.p_min is None and setup.kind != "ngram" else (setup.p_min or 0.0,)
    for p_min in p_mins:
        for n_min in N_MINS if p_min > 0.0 else (setup.n_min,):
            for n_max in range(max(n_min, 1), setup.n_max_limit + 1):
                yield Settings(n_max, n_min, p_min)


def _level(setup: Setup, c: Mapping[str, float]) -> float:
    expected = expected_level(setup, c)
    if setup.acceptance is None:
        return expected
    n, p_min = setup.n_max or N_DEFAULT, setup.p_min or 0.0
    return level_of(setup.acceptance, expected, setup.kind, n, p_min, c[f"depth.{setup.kind}"])


def request_speedup(setup: Setup, speedup: float, c: Mapping[str, float] = VALUES) -> float:
    """Of the whole request: the draft reads the prompt too, which takes longer."""
    prompt = setup.n_prompt / c[f"prefill.{find_device(setup.device, setup.backend).engine}"]
    tax = 0.0 if setup.kind == "ngram" else c["prefill.tax"]
    if setup.kind == "draft-simple":
        tax = setup.draft_params / setup.target_params
    plain = prompt + setup.n_output
    return plain / (prompt * (1.0 + tax) + setup.n_output / speedup) if plain else speedup


def spread_key(setup: Setup, c: Mapping[str, float] = VALUES) -> str:
    """Which spread applies: that of devices seen or not, of MTP heads on dense models or others."""
    seen = f"slope.device.{device_key(setup.device, setup.backend)}" in c
    dense = setup.kind == "draft-mtp" and not setup.is_moe and setup.backend not in ("cpu", "metal")
    return f"spread.{'seen' if seen else 'new'}.{'mtp' if dense else 'other'}"
