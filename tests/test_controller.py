"""Laws of the adaptive draft length, held by replaying made-up drafts in virtual time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from random import Random

import pytest

from gguftools.speculative.controller import Controller
from gguftools.speculative.ledger import ALLOWANCE_MAX, ALLOWANCE_START
from gguftools.speculative.stats import Step
from scripts.replay import Trace, digest, load, replay, without_confidence

K = 16


def costs(draft: float, row: float, *, cliff: float = 1.0) -> tuple[list[float], list[float]]:
    """Seconds of 1, 2, ... rows, dearer from the 9th on, and of 1, 2, ... drafted tokens."""
    verify = [(1.0 + row * n) * (cliff if n >= 8 else 1.0) for n in range(K + 1)]
    return verify, [draft] * K


def text(
    kept: Sequence[float],
    *,
    draft: float = 0.1,
    row: float = 0.1,
    cliff: float = 1.0,
    calibrated: bool = True,
    seed: int = 1,
) -> Trace:
    """A text whose token i is guessed with chance kept[i], which the drafter knows or does not."""
    rng = Random(seed)
    hits = [rng.random() < p for p in kept] + [False]
    runs = [0] * len(hits)
    for i in range(len(kept) - 1, -1, -1):
        runs[i] = min(K, runs[i + 1] + 1) if hits[i] else 0
    confidence = [p if calibrated else rng.random() for p in kept] + [0.5] * K
    rows = [confidence[i : i + K] for i in range(len(kept))]
    return Trace(*costs(draft, row, cliff=cliff), runs[:-1], rows)


def uneven(n: int, seed: int = 3) -> list[float]:
    """Chances of a text in which most tokens are obvious and some are not."""
    rng = Random(seed)
    return [rng.choice((0.97, 0.97, 0.97, 0.15)) for _ in range(n)]


def seconds(trace: Trace, steps: Sequence[Step]) -> float:
    return sum(trace.seconds(s) for s in steps)


def excess(trace: Trace, steps: Sequence[Step]) -> float:
    """By how many plain decodes any prefix took longer than plain decoding and one percent."""
    spent, worst = 0.0, -math.inf
    n_tokens = 0
    for step in steps:
        spent += trace.seconds(step) / trace.verify[0]
        n_tokens += len(step.tokens)
        worst = max(worst, spent - 1.01 * n_tokens)
    return worst


def emitted(steps: Sequence[Step]) -> Iterator[tuple[int, Step]]:
    """Steps with the position at which each began."""
    position = 0
    for step in steps:
        yield position, step
        position += len(step.tokens)


def step(n_draft: int, n_verified: int, n_accepted: int, p: float | None = 0.9) -> Step:
    drafted = (0.1,) * n_draft
    confidence = (p,) * n_draft
    tokens = (0,) * (n_accepted + 1)
    return Step(tokens, n_draft, n_verified, n_accepted, confidence, 0.0, 0, drafted, 1.5)


def stalls(rng: Random, share: float) -> Callable[[float], float]:
    """A clock that sees this share of the durations 10 to 200 times too long."""
    return lambda s: s * (rng.uniform(10, 200) if rng.random() < share else rng.uniform(0.9, 1.1))


@pytest.mark.parametrize("draft", [0.0, 0.02, 0.1, 0.4, 0.8])
@pytest.mark.parametrize("row", [0.0, 0.02, 0.1, 0.25, 0.5])
def test_losing_every_draft_costs_four_decodes_and_one_percent(draft: float, row: float) -> None:
    for chance in (0.0, 0.4):
        for cliff in (1.0, 1.6):
            trace = text([chance] * 1500, draft=draft, row=row, cliff=cliff, calibrated=False)
            for seen in (trace, without_confidence(trace)):
                assert excess(trace, replay(seen, Controller(K))) <= ALLOWANCE_START


def test_a_fixed_length_keeps_no_such_promise() -> None:
    trace = text([0.4] * 1500, draft=0.1, row=0.25)
    assert excess(trace, replay(trace, Controller(3, 3))) > 300


def test_an_adversary_takes_back_at_most_what_the_allowance_holds() -> None:
    controller, trace = Controller(K), text([0.0] * 100, draft=0.1, row=0.25)
    best = lead = drop = 0.0
    good = True
    for _ in range(2000):
        allowance = controller.ledger.allowance
        good = allowance < 2 or (good and allowance < ALLOWANCE_MAX - 0.01)
        one = Trace(trace.verify, trace.draft, [K if good else 0] * (K + 1), [[]] * (K + 1))
        made = first_round(one, controller)
        lead += len(made.tokens) * 1.01 - one.seconds(made)
        best = max(best, lead)
        drop = max(drop, best - lead)
    assert 0.5 < drop <= ALLOWANCE_MAX + 0.3


def first_round(trace: Trace, controller: Controller) -> Step:
    n = controller.plan()
    drafted = 0
    while drafted < n and controller.proceed(drafted + 1, None):
        drafted += 1
    drafted += drafted < n
    n_verified = controller.n_verify() if drafted else 0
    kept = min(n_verified, trace.runs[0])
    made = replace(
        step(drafted, n_verified, kept, None),
        seconds_draft=tuple(trace.draft[:drafted]),
        seconds_verify=trace.verify[n_verified],
    )
    controller.observe(made)
    return made


@pytest.mark.parametrize("calibrated", [True, False])
def test_keeping_every_cheap_draft_reaches_draft_max(calibrated: bool) -> None:
    trace = text([1.0] * 1000, draft=0.02, row=0.02, calibrated=calibrated)
    for seen in (trace, without_confidence(trace)):
        steps = replay(seen, Controller(K))
        assert next(i for i, s in enumerate(steps) if s.n_accepted == K) < 20
        assert seconds(trace, steps) < 1.2 * seconds(trace, replay(seen, Controller(K, K)))


@pytest.mark.parametrize("unit", [1e-6, 0.0377, 1e4])
def test_decisions_do_not_depend_on_the_unit_of_time(unit: float) -> None:
    trace = text(uneven(800))
    scaled = replace(
        trace, verify=[unit * s for s in trace.verify], draft=[unit * s for s in trace.draft]
    )
    assert digest(replay(scaled, Controller(K))) == digest(replay(trace, Controller(K)))


@pytest.mark.parametrize("at", [0, 1, 5, 60, 301, 604])
@pytest.mark.parametrize("factor", [0.0, 0.005, 200.0, math.inf, math.nan])
def test_one_wrong_duration_changes_little(at: int, factor: float) -> None:
    trace = text([0.9] * 800, draft=0.05, row=0.05)
    n_measured = 0

    def measure(s: float) -> float:
        nonlocal n_measured
        n_measured += 1
        return s * factor if n_measured == at + 1 else s

    true = replay(trace, Controller(K))
    wrong = replay(trace, Controller(K), measure=measure)
    assert seconds(trace, wrong) <= seconds(trace, true) + 5.0


@pytest.mark.parametrize("until", [4, 8, 12, 16, 20, 24])
@pytest.mark.parametrize("factor", [3.0, 6.0, 20.0])
def test_a_bad_spell_at_the_beginning_does_not_end_drafting_for_ever(
    factor: float, until: int
) -> None:
    """What drafting costs is not measured while it is off: a lie about it would stay."""
    controller, n_seen = Controller(8, cost=0.05, acceptance=0.8), 0

    def slow_verifying(seconds: float) -> float:
        nonlocal n_seen
        n_seen += seconds >= 1.0
        return seconds * (factor if seconds > 1.0 and n_seen < until else 1.0)

    def replied(n: int, seed: int) -> Trace:
        return text([0.8] * n, draft=0.05, row=0.1, calibrated=False, seed=seed)

    replay(replied(64, 0), controller, measure=slow_verifying)
    for seed in range(1, 9):
        controller.new_reply()
        trace = replied(256, seed)
        steps = replay(trace, controller)
    assert seconds(trace, steps) < 0.8 * len(trace.runs)


@pytest.mark.parametrize("seed", range(4))
def test_a_new_graph_for_other_rows_is_no_reason_to_draft(seed: int) -> None:
    """llama.cpp reuses its graph where a pass has as many rows as the one before, and between
    drafts a plain decode never has: what it takes there is not what drafting has to beat."""
    rng, n_before, spent = Random(seed), 0, 0.0
    trace = text([0.1] * 1000, draft=0.1, row=0.03, calibrated=False, seed=seed)

    def clock(seconds: float) -> float:
        nonlocal n_before, spent
        if seconds >= 1.0:
            n = trace.verify.index(seconds)
            seconds *= 1.0 if n == n_before else 1.03 if n else 1.06
            n_before = n
        spent += seconds
        return seconds * rng.uniform(0.9, 1.1)

    controller = Controller(8, cost=0.1, acceptance=0.1)
    replay(trace, controller, measure=clock)
    assert spent < 1.02 * len(trace.runs) + ALLOWANCE_START


def test_frequent_stalls_neither_break_the_promise_nor_stop_drafting() -> None:
    good, bad = text([0.9] * 1500, draft=0.05, row=0.05), text([0.1] * 1500, row=0.25)
    for seed in range(4):
        clock = stalls(Random(seed), 0.03)
        assert excess(bad, replay(bad, Controller(K), measure=clock)) <= ALLOWANCE_START + 3.0
        steps = replay(good, Controller(K), measure=clock)
        assert seconds(good, steps) < 1.1 * seconds(good, replay(good, Controller(K)))


@pytest.mark.parametrize("factor", [3.0, 8.0])
def test_a_machine_that_slows_down_and_recovers_keeps_its_drafts(factor: float) -> None:
    good, bad = text([0.7] * 3000, draft=0.1, row=0.25), text([0.3] * 3000, draft=0.1, row=0.2)
    for trace in (good, bad):
        n_measured = 0

        def measure(s: float) -> float:
            nonlocal n_measured
            n_measured += 1
            return s * factor if n_measured // 400 % 2 else s

        steps = replay(trace, Controller(K), measure=measure)
        assert seconds(trace, steps) < 1.05 * seconds(trace, replay(trace, Controller(K)))
        assert excess(trace, steps) < ALLOWANCE_MAX


def test_tokens_after_the_first_refusal_teach_nothing() -> None:
    short, long = Controller(K), Controller(K)
    for controller, n_verified in ((short, 3), (long, 9)):
        controller.plan()
        for n in range(1, 10):
            controller.proceed(n, 0.9)
        controller.observe(step(9, n_verified, 2))
    assert short.history.level.now == long.history.level.now
    assert short.confidence.level.now == long.confidence.level.now


def test_a_reply_that_ends_inside_a_draft_refused_nothing() -> None:
    ended, refused = Controller(K), Controller(K)
    ended.observe(replace(step(4, 4, 2), tokens=(0, 0)))
    refused.observe(step(4, 4, 2))
    assert ended.history.level.now[-1] > refused.history.level.now[-1]


@pytest.mark.parametrize("calibrated", [True, False])
def test_a_switch_of_regime_is_followed(calibrated: bool) -> None:
    chances = ([0.97] * 300 + [0.02] * 300) * 2 + [0.97] * 300
    steps = replay(text(chances, calibrated=calibrated), Controller(K))
    after = [s.n_verified for p, s in emitted(steps) if p // 300 in (1, 3) and p % 300 > 20]
    assert sum(after) / len(after) < 0.2
    again = [s.n_draft for p, s in emitted(steps) if p % 600 > 60 and p % 600 < 300]
    assert sum(again) / len(again) > 3


def test_off_is_not_for_ever() -> None:
    trace = text([0.02] * 3000 + [0.95] * 400, calibrated=False)
    for seen in (trace, without_confidence(trace)):
        late = [s for p, s in emitted(replay(seen, Controller(K))) if p > 3100]
        assert sum(s.n_draft for s in late) / len(late) > 2


def test_a_wrong_prediction_is_corrected() -> None:
    trace = text([0.9] * 600, draft=0.05, row=0.05)
    best = min(seconds(trace, replay(trace, Controller(k, k))) for k in range(1, K + 1))
    for cost in (0.0, 0.05, 5.0):
        for acceptance in (0.02, 0.99):
            steps = replay(trace, Controller(K, cost=cost, acceptance=acceptance))
            assert seconds(trace, steps) < 1.12 * best


def test_adapting_beats_every_fixed_length_on_uneven_text() -> None:
    trace = text(uneven(2000), draft=0.15, row=0.2)
    best = min(seconds(trace, replay(trace, Controller(k, k))) for k in range(K + 1))
    blind = seconds(trace, replay(without_confidence(trace), Controller(K)))
    assert seconds(trace, replay(trace, Controller(K))) < 0.95 * min(best, blind)


def test_meaningless_confidence_does_no_harm() -> None:
    trace = text([0.8] * 2000, draft=0.1, row=0.1, calibrated=False)
    blind = seconds(trace, replay(without_confidence(trace), Controller(K)))
    assert seconds(trace, replay(trace, Controller(K))) < 1.03 * blind


@pytest.mark.parametrize("p", [None, math.nan, -1.0, 0.0, 1.0, 7.0, math.inf])
def test_any_confidence_is_taken(p: float | None) -> None:
    trace = text([0.7] * 300)
    odd = replace(trace, confidence=[[p] * K] * 300)
    mixed = replace(trace, confidence=[[0.8 if i % 3 == 2 else p for i in range(K)]] * 300)
    for seen in (odd, mixed):
        steps = replay(seen, Controller(K, 2))
        assert all(0 <= s.n_verified <= s.n_draft <= K for s in steps)
        assert any(s.n_draft for s in steps)


@pytest.mark.parametrize("seed", range(20))
def test_no_clock_and_no_drafter_can_break_the_state(seed: int) -> None:
    rng = Random(seed)
    odd = (0.0, -1.0, math.nan, math.inf, 1e300, 5e-324)
    draft_max = rng.choice([1, 2, 5, 16, 64])
    controller = Controller(draft_max, rng.randrange(draft_max), cost=rng.choice([None, 0.0, 1e9]))

    def clock(s: float) -> float:
        return rng.choice(odd) if rng.random() < 0.05 else s * rng.choice([1.0, 1.0, 1.1, 100.0])

    for _ in range(200):
        planned = rng.randrange(controller.plan() + 1)
        drafted: list[float | None] = []
        while len(drafted) < planned:
            drafted.append(rng.choice([None, 0.5, 0.9, 1.0, math.nan, -3.0]))
            if not controller.proceed(len(drafted), drafted[-1]):
                break
        n_verified = controller.n_verify() if drafted else 0
        made = step(len(drafted), n_verified, rng.randrange(n_verified + 1))
        controller.observe(
            replace(
                made,
                confidence=tuple(drafted),
                n_catch_up=rng.choice([0, 1, 100]),
                seconds_catch_up=clock(0.01),
                seconds_draft=tuple(clock(0.1) for _ in drafted),
                seconds_verify=clock(1.0 + 0.1 * n_verified),
            )
        )
        costs, drafting = controller.costs, controller.drafting
        assert controller.draft_min <= n_verified <= len(drafted) or n_verified == 0
        assert math.isfinite(drafting.first + drafting.next + drafting.catch_up)
        assert math.isfinite(controller.ledger.allowance)
        assert all(1.0 <= v < math.inf for v in costs.verify[1:])
        assert sum(controller.history.level.now) == pytest.approx(1.0)


def test_equal_bounds_fix_the_length() -> None:
    trace = text([0.0] * 200, draft=0.8, row=0.5)
    steps = replay(trace, Controller(5, 5), measure=lambda _: math.nan)
    assert {(s.n_draft, s.n_verified) for s in steps} == {(5, 5)}
    assert {s.n_draft for s in replay(trace, Controller(0))} == {0}


@pytest.mark.parametrize("draft_min", [1, 3, 8])
def test_a_draft_below_draft_min_is_not_sent(draft_min: int) -> None:
    trace = text(uneven(1500), draft=0.02, row=0.05)
    sent = {s.n_verified for s in replay(trace, Controller(10, draft_min))}
    assert sent > {0}
    assert draft_min <= min(sent - {0}) <= max(sent) <= 10


def test_a_drafter_that_falls_short_of_draft_min_is_ignored() -> None:
    controller = Controller(8, 4)
    for _ in range(2):
        controller.observe(replace(step(0, 0, 0), seconds_verify=1.0))
    assert controller.plan() >= 4
    assert controller.proceed(1, None)
    assert controller.proceed(2, None)
    assert controller.n_verify() == 0


def test_a_drafter_that_finds_nothing_costs_and_teaches_nothing() -> None:
    controller = Controller(K)
    before = controller.history.level.now
    for _ in range(100):
        controller.plan()
        controller.observe(replace(step(0, 0, 0), seconds_verify=1.0))
    assert controller.ledger.allowance == pytest.approx(ALLOWANCE_START + 1.0)
    controller.plan()
    assert controller.history.level.now == pytest.approx(before, abs=0.02)


def test_a_drafter_for_nothing_is_judged_by_its_rows_alone() -> None:
    free = text([0.5] * 1500, draft=0.0, row=0.02, calibrated=False)
    dear = text([0.5] * 1500, draft=0.0, row=0.9, calibrated=False)
    n_free = [s.n_draft for s in replay(without_confidence(free), Controller(K))]
    n_dear = [s.n_draft for s in replay(without_confidence(dear), Controller(K))]
    assert sum(n_free) / len(n_free) > 2.5
    assert sum(n_dear) / len(n_dear) < 0.2


@pytest.mark.parametrize("catch_up", [0.01, 0.05, 0.1])
def test_the_price_of_catching_up_does_not_make_off_last_for_ever(catch_up: float) -> None:
    trace = replace(text([0.02] * 3000 + [0.95] * 1500, row=0.2), catch_up=catch_up)
    steps = replay(trace, Controller(K))
    assert excess(trace, steps) <= ALLOWANCE_START
    late = [s for p, s in emitted(steps) if p > 4000]
    assert sum(s.n_draft for s in late) / len(late) > 2


def test_catching_up_with_all_of_a_text_would_make_off_last_for_ever() -> None:
    trace = replace(text([0.02] * 3000 + [0.95] * 1500, row=0.2), catch_up=0.05)
    steps = replay(trace, Controller(K, catch_up_max=1 << 20), catch_up_max=1 << 20)
    assert not any(s.n_draft for p, s in emitted(steps) if p > 3000)


def test_catching_up_is_charged() -> None:
    trace = replace(text([0.05] * 1500, row=0.25), catch_up=0.02)
    assert excess(trace, replay(trace, Controller(K))) <= ALLOWANCE_START


@pytest.mark.parametrize(("n_drafts", "charged"), [(0, False), (1, True)])
def test_catching_up_with_the_prompt_is_not_charged(n_drafts: int, charged: bool) -> None:
    controller = Controller(K)
    plain = replace(step(0, 0, 0), seconds_verify=1.0)
    for made in (plain, plain, *[step(1, 1, 1)] * n_drafts, *[plain] * 50):
        controller.observe(made)
    allowance = controller.ledger.allowance
    controller.observe(replace(step(2, 2, 2), n_catch_up=50, seconds_catch_up=5.0))
    assert (controller.ledger.allowance < allowance) == charged


def test_a_clock_that_never_works_means_plain_decoding() -> None:
    for wrong in (0.0, -1.0, math.nan, math.inf):
        controller = Controller(K)
        steps = replay(text([1.0] * 300), controller, measure=lambda _, w=wrong: w)  # type: ignore[misc]
        assert {s.n_draft for s in steps} == {0}
        assert controller.costs.n_bad == 300
        assert controller.ledger.allowance == pytest.approx(ALLOWANCE_START + 3.0)


def test_costs_are_remembered_while_off_and_over_replies() -> None:
    controller = Controller(K)
    replay(text([0.9] * 500, row=0.3), controller)
    replay(text([0.0] * 3000, row=0.3), controller)
    controller.new_reply()
    assert controller.costs.verify[4] == pytest.approx(1.9, rel=0.1)
    assert controller.drafting.first == pytest.approx(0.1, rel=0.1)
    assert controller.ledger.allowance <= ALLOWANCE_START
    assert [controller.plan(), controller.plan()] == [0, 0]


@pytest.mark.parametrize("factor", [1.0, 1.3, 3.0, 0.3])
def test_a_later_reply_begins_with_one_plain_decode_or_two_where_the_scale_moved(
    factor: float,
) -> None:
    controller = Controller(8)
    trace = text([0.95] * 300, draft=0.02, row=0.02)
    replay(trace, controller)
    controller.new_reply()
    moved = replace(trace, verify=[factor * s for s in trace.verify],
                    draft=[factor * s for s in trace.draft])  # fmt: skip
    lengths = [s.n_draft for s in replay(moved, controller)]
    n_plain = next(i for i, n in enumerate(lengths) if n)
    assert n_plain == (1 if factor < 1.5 and factor > 1 / 1.5 else 2)


def test_an_allowance_lost_in_one_reply_does_not_keep_the_next_ones_off() -> None:
    controller = Controller(8, acceptance=0.9)
    replay(text([0.0] * 60, draft=0.3, row=0.3), controller)
    spent = controller.ledger.allowance
    controller.new_reply()
    assert spent < 1.0 <= controller.ledger.allowance
    good = text([0.97] * 200, draft=0.02, row=0.02)
    steps = replay(good, controller)
    assert seconds(good, steps) < 0.7 * len(good.runs)


def test_what_one_reply_won_carries_the_next_one_over_a_hard_beginning() -> None:
    controller = Controller(8)
    trace = text([0.0] * 14 + [0.97] * 60, draft=0.11, row=0.15, calibrated=False)
    for _ in range(4):
        steps = replay(trace, controller)
        controller.new_reply()
    assert seconds(trace, steps) < 0.8 * len(trace.runs) * trace.verify[0]


def test_hopeless_replies_lose_less_and_less() -> None:
    controller = Controller(8, acceptance=0.9)
    hopeless = text([0.0] * 64, draft=0.3, row=0.3)
    lost = []
    for _ in range(12):
        lost.append(seconds(hopeless, replay(hopeless, controller)) - 64.0)
        controller.new_reply()
    assert max(lost) <= ALLOWANCE_START + 1.0
    assert sum(lost[4:]) / 8 < 0.03 * 64


def test_the_same_trace_gives_the_same_decisions() -> None:
    trace = text(uneven(600))
    assert digest(replay(trace, Controller(K))) == digest(replay(trace, Controller(K)))


def test_a_run_at_full_length_replays_shorter_ones() -> None:
    trace = text([0.7] * 400)
    full = replay(trace, Controller(K, K))
    head = {"seconds_verify": trace.verify, "seconds_draft": trace.draft}
    recorded = load(json.dumps(line) for line in (head, *map(asdict, full)))
    # The end of the recording cut its last draft short.
    assert list(recorded.runs)[:-K] == list(trace.runs)[:-K]
    for k in (0, 1, 2, 4):
        assert digest(replay(recorded, Controller(k, k))) == digest(replay(trace, Controller(k, k)))
