"""Lookup before a model: both draft in one text, judged apart, and lose no more than one may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest

from gguftools.speculative.controller import Controller
from gguftools.speculative.drafting import NOTHING, Draft
from gguftools.speculative.ledger import ALLOWANCE_START, Ledger
from gguftools.speculative.loop import Arm, Generation
from gguftools.speculative.plan import Settings
from gguftools.speculative.reply import Reply
from gguftools.speculative.sampling import Chain, Floats
from gguftools.speculative.session import open_session
from gguftools.speculative.stats import Step
from tests.models.chain import disagreeing, perturbed, random_chain
from tests.models.markov import N_VOCAB, write_llama, write_qwen35
from tests.test_lossless import SAMPLERS, p_value_of_transitions, sampled_rows

K = 8
N_TOKENS = 1200
WRONG = 1  # tokens of the made-up texts are 2 .. 9


@dataclass
class Clock:
    """Time that passes only when something is decoded."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class ScriptedTarget:
    """Knows its text by heart; a pass over n rows takes 1 + row * (n - 1)."""

    text: Sequence[int]
    clock: Clock
    row: float
    n_ctx: int = 1 << 20
    n_past: int = 0

    def decode(self, tokens: Sequence[int], n_logits: int = 0) -> list[Floats]:
        self.n_past += len(tokens)
        if n_logits:
            self.clock.now += 1 + self.row * (n_logits - 1)
        rows = np.zeros((n_logits, 10), np.float32)
        rows[range(n_logits), self.text[self.n_past - n_logits + 1 : self.n_past + 1]] = 1
        return list(rows)

    def mark(self) -> None: ...

    def rewind(self, n: int) -> int:
        self.n_past = min(self.n_past, n)
        return self.n_past

    def shift(self, n_keep: int, n_discard: int) -> None:
        raise AssertionError


@dataclass
class ScriptedDrafter:
    """Guesses token i of the text with chance kept[i], None where it has nothing to say."""

    name: str
    text: Sequence[int]
    kept: Sequence[float | None]
    clock: Clock
    cost: float
    knows: bool = True
    n_max: int = 1 << 10
    rng: Random = field(default_factory=lambda: Random(3))

    def reset(self, history: Sequence[int], *_: object) -> None: ...

    def shift(self, n_keep: int, n_discard: int) -> None: ...

    def draft(
        self, history: Sequence[int], n_max: int, proceed: Callable[[int, float | None], bool]
    ) -> Draft:
        start = len(history)
        tokens: list[int] = []
        confidence: list[float | None] = []
        for i in range(start, min(start + n_max, len(self.kept))):
            kept = self.kept[i]
            if kept is None:
                break
            self.clock.now += self.cost
            hit = Random(i * 31 + len(self.name)).random() < kept
            tokens.append(self.text[i] if hit else WRONG)
            confidence.append(kept if self.knows else self.rng.random())
            if not proceed(len(tokens), confidence[-1]):
                break
        if not tokens:
            return NOTHING
        return Draft(tuple(tokens), None, tuple(confidence), (self.cost,) * len(tokens))


Kept = Sequence[float | None]


def run(
    model: Kept | None,
    lookup: Kept | None,
    *,
    cost: float = 0.1,
    row: float = 0.1,
    n_min: int = 0,
    knows: bool = True,
    n_tokens: int = N_TOKENS,
) -> tuple[float, float, list[Step]]:
    """Seconds of the whole text, the most by which a prefix exceeded plain and 1%, and steps."""
    text = [Random(7 * i).randrange(2, 10) for i in range(n_tokens + K + 2)]
    clock = Clock()
    ledger = Ledger(K + 1)

    def arm(name: str, kept: Kept, price: float) -> Arm:
        drafter = ScriptedDrafter(name, text, kept, clock, price, knows)
        return Arm(drafter, Controller(K, n_min, cost=price, ledger=ledger))

    main = arm("draft", model, cost) if model is not None else None
    generation = Generation(
        target=ScriptedTarget(text, clock, row),
        drafter=main.drafter if main else None,
        controller=main.controller if main else Controller(0, ledger=ledger),
        chain=Chain(temp=0),
        history=text[:1],
        n_predict=n_tokens,
        is_eog=lambda token: False,
        rng=Random(1),
        clock=clock,
        before=() if lookup is None else (arm("ngram", lookup, 0.0),),
    )
    steps: list[Step] = []
    excess = 0.0
    for step in generation.steps():
        steps.append(step)
        excess = max(excess, clock.now - 1.01 * (len(generation.history) - 1))
    assert generation.history == text[: n_tokens + 1]
    return clock.now, excess, steps


def copying(n: int, chance: float, usual: float | None) -> Kept:
    """Stretches of `n` tokens that are copied, then as many that are not."""
    return [(chance if i // n % 2 else usual) for i in range(N_TOKENS + K + 2)]


def steady(chance: float) -> Kept:
    return [chance] * (N_TOKENS + K + 2)


@pytest.mark.parametrize("cost", [0.05, 0.3])
@pytest.mark.parametrize("n", [40, 150])
def test_together_they_beat_either_alone_where_each_has_its_stretches(n: int, cost: float) -> None:
    lookup, model = copying(n, 0.97, None), steady(0.75)
    together, _, steps = run(model, lookup, cost=cost)
    alone = min(run(model, None, cost=cost)[0], run(None, lookup, cost=cost)[0])
    assert together < 0.97 * alone
    assert {s.drafter for s in steps} >= {"draft", "ngram"}


@pytest.mark.parametrize("knows", [True, False])
def test_a_lookup_that_misleads_is_left_alone(knows: bool) -> None:
    """It has something to say at every token, and is wrong."""
    together, _, steps = run(steady(0.85), steady(0.05), knows=knows)
    assert together < 1.03 * run(steady(0.85), None, knows=knows)[0]
    late = [s for s in steps[len(steps) // 2 :] if s.drafter == "ngram"]
    assert len(late) < 0.05 * len(steps)


@pytest.mark.parametrize("knows", [True, False])
def test_a_model_that_guesses_badly_does_not_hold_the_lookup_back(knows: bool) -> None:
    lookup = copying(60, 0.97, None)
    together, _, _ = run(steady(0.05), lookup, cost=0.3, knows=knows)
    assert together < 1.03 * run(None, lookup, cost=0.3, knows=knows)[0]


def test_the_better_of_two_good_drafters_drafts() -> None:
    """A lookup that pays, but less than the model beside it."""
    model, lookup = steady(0.95), steady(0.5)
    together, _, _ = run(model, lookup, cost=0.02, row=0.02)
    assert together < 1.05 * run(model, None, cost=0.02, row=0.02)[0]


@pytest.mark.parametrize("cost", [0.0, 0.1, 0.8])
@pytest.mark.parametrize("row", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("chance", [0.0, 0.4])
def test_two_drafters_that_fail_lose_no_more_than_one_may(
    cost: float, row: float, chance: float
) -> None:
    for knows in (True, False):
        for lookup in (steady(0.02), copying(30, 0.1, None)):
            _, excess, _ = run(
                steady(chance), lookup, cost=cost, row=row, knows=knows, n_tokens=500
            )
            assert excess <= ALLOWANCE_START


def test_equal_bounds_fix_the_length_of_both() -> None:
    _, _, steps = run(steady(0.5), copying(50, 0.5, None), n_min=K)
    full = [s for s in steps[:-K] if s.n_verified == K]
    assert len(full) > 0.9 * (len(steps) - K)  # a stretch's end cuts a lookup short
    assert {s.drafter for s in full} == {"draft", "ngram"}


@pytest.mark.parametrize("n_min", [0, 3])
def test_no_draft_is_shorter_than_draft_min(n_min: int) -> None:
    _, _, steps = run(steady(0.8), copying(50, 0.95, None), n_min=n_min)
    assert {s.drafter for s in steps} >= {"draft", "ngram"}
    assert all(s.n_verified >= n_min for s in steps[:-K] if s.n_verified)


# -- on llama.cpp

CYCLE = random_chain(N_VOCAB, 5, predictable=1.0, peak=0.9)  # through all tokens, again and again
# Few successors each: what was written before comes again, but not always.
MIXED = random_chain(N_VOCAB, 7, predictable=0.0, concentration=0.03)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("arms")
    made: dict[str, Path] = {}
    for name, p, q in (
        ("cycle", CYCLE, disagreeing(CYCLE, 0.3, 6)),
        ("mixed", MIXED, perturbed(MIXED, 0.3, 8)),
    ):
        made[name] = write_llama(folder / f"{name}.gguf", p)
        made[f"{name}-draft"] = write_llama(folder / f"{name}-draft.gguf", q, n_layer=1)
        made[f"{name}-mtp"] = write_qwen35(folder / f"{name}-mtp.gguf", p, mtp="full", mtp_chain=q)
        made[f"{name}-hybrid"] = write_qwen35(folder / f"{name}-hybrid.gguf", p, mtp=None)
    return made


PAIRS = {
    "draft": ("", "draft", "-draft"),
    "mtp": ("-mtp", "mtp", None),
    "draft on hybrid": ("-hybrid", "draft", "-draft"),
}


def reply(
    files: dict[str, Path], name: str, pair: str, n: int, chain: Chain, n_draft: int | None = None
) -> Reply:
    target, drafter, draft = PAIRS[pair]
    settings = Settings(
        files[name + target],
        files[name + draft] if draft else None,
        drafter=drafter,  # type: ignore[arg-type]
        ngram_first=True,
        n_ctx=4096,
        n_threads=1,
        chain=chain,
        seed=1,
        draft_max=n_draft or K,
        draft_min=n_draft or 0,
    )
    with open_session(settings) as session:
        assert session.drafter_name == f"{drafter}+ngram"
        made = session.reply("abc", n, raw=True)
        for _ in made:
            pass
        return made


def plain(files: dict[str, Path], name: str, n: int) -> list[int]:
    one = Settings(files[name], drafter="none", n_ctx=4096, n_threads=1, chain=Chain(temp=0))
    with open_session(one) as session:
        made = session.reply("abc", n, raw=True)
        for _ in made:
            pass
        return made.token_ids


@pytest.mark.parametrize("n_draft", [1, 3, 8])
@pytest.mark.parametrize("pair", PAIRS)
def test_greedy_text_is_the_plain_one_with_both(
    files: dict[str, Path], pair: str, n_draft: int
) -> None:
    made = reply(files, "cycle", pair, 300, Chain(temp=0), n_draft)
    assert made.token_ids == plain(files, "cycle", 300)
    shares = made.report.by_drafter
    assert set(shares) == {PAIRS[pair][1], "ngram"}
    assert all(s.n_accepted > 0 for s in shares.values())
    assert sum(s.n_draft for s in shares.values()) == made.report.n_draft


@pytest.mark.parametrize("pair", PAIRS)
def test_greedy_text_is_the_plain_one_with_both_at_adaptive_lengths(
    files: dict[str, Path], pair: str
) -> None:
    made = reply(files, "cycle", pair, 400, Chain(temp=0))
    assert made.token_ids == plain(files, "cycle", 400)


@pytest.mark.parametrize("sampler", ["temp 1", "llama.cpp's defaults"])
@pytest.mark.parametrize("pair", PAIRS)
def test_sampled_frequencies_are_the_targets_with_both(
    files: dict[str, Path], pair: str, sampler: str
) -> None:
    made = reply(files, "mixed", pair, 1500, SAMPLERS[sampler], 3)
    shares = made.report.by_drafter
    assert set(shares) == {PAIRS[pair][1], "ngram"}
    assert all(s.n_accepted > 20 for s in shares.values())
    rows = sampled_rows(MIXED, SAMPLERS[sampler])
    assert p_value_of_transitions(made.token_ids, rows) > 1e-4
