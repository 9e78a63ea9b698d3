"""Every row of the table of causes: what it looks like, and what only looks like it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from gguftools.explain import Finding, explain
from gguftools.explain.causes import CAUSES
from gguftools.explain.explanation import judge
from gguftools.explain.facts import KINDS, Arm, Counts, Facts, combine, repetition
from gguftools.explain.rates import Round, expected, mean_round, speeds_by_length, speedup

PLAIN = Counts(n_replies=1, n_prompt=100, n_tokens=100, n_rounds=100, n_draft=0, n_accepted=0,
               seconds_prompt=1.0, seconds_decode=1.0)  # fmt: skip


def counts(
    *, n: float = 3, a: float = 0.8, draft: float = 0.05, row: float = 0.05, rounds: int = 100,
    **known: Any,
) -> Counts:  # fmt: skip
    """Rounds of n tokens, a share kept; costs in plain decodes of 10 ms."""
    n_draft = round(n * rounds)
    drafting, verifying = n_draft * draft / 100, rounds * (1 + row * n) / 100
    made = Counts(
        n_replies=1, n_prompt=100, n_tokens=rounds + round(a * n_draft), n_rounds=rounds,
        n_rounds_drafted=rounds, n_draft=n_draft, n_accepted=round(a * n_draft), seconds_prompt=1.0,
        seconds_decode=drafting + verifying, seconds_draft=drafting, seconds_verify=verifying,
    )  # fmt: skip
    return replace(made, **known)


def run(drafted: Counts | None = None, *, plain: Counts | None = PLAIN, **known: Any) -> Facts:
    """Facts of our engine with a draft of fixed length."""
    fixed: dict[str, Any] = {
        "draft_max": 3,
        "draft_min": 3,
        "drafter": "draft",
        "engine": "gguftools",
    }
    return Facts(sources=("run report",), drafted=drafted, plain=plain, **(fixed | known))


def server(drafted: Counts | None = None, *, plain: Counts | None = None, **known: Any) -> Facts:
    """Facts of a llama-server, which does not tell drafting from verifying."""
    if drafted is not None:
        drafted = replace(drafted, seconds_draft=None, seconds_verify=None)
    engine = {"engine": "llama-server", "drafter": "draft-simple"}
    return Facts(sources=("server log",), drafted=drafted, plain=plain, **(engine | known))


LOSS = counts(a=0.1, draft=0.4, row=0.2)
ROWS = ((1, 0.01), (2, 0.011), (3, 0.012))
BENCH = (Arm("adaptive", None, 1.2, 1.1, 1.3), Arm("fixed-2", 2, 1.5, 1.4, 1.6),
         Arm("fixed-8", 8, 0.9, 0.8, 1.0))  # fmt: skip

# Code: facts in which the cause is there, and facts near by in which it is not.
CASES: dict[str, tuple[Facts, Facts]] = {
    "pair-blocked": (
        run(plain=None, pair_rule="token-text", pair_reason="id 139 differs"),
        run(plain=None, pair_reason="it works"),
    ),
    "vocabulary": (
        server(plain=PLAIN, off="its tokenizer check refuses the draft, so the draft is not used"),
        server(plain=PLAIN, off="the draft is no EAGLE-3 head of this kind (expected 3)"),
    ),
    "draft-refused": (
        server(plain=PLAIN, off="the draft is no EAGLE-3 head of this kind (expected 3)"),
        server(plain=PLAIN),
    ),
    "head-lost": (
        server(failure="the file lacks the tensor blk.8.nextn.eh_proj.weight"),
        server(failure="the file lacks the tensor blk.8.attn_norm.weight"),
    ),
    "start-failed": (
        server(failure="it cannot load the draft x.gguf"),
        server(failure="the file has no MTP layers"),
    ),
    "memory": (
        Facts(("pair report",), memory_reason="needs 30 GB of 24", n_ctx_max=4096),
        Facts(("pair report",), n_ctx_max=4096),
    ),
    "head-idle": (server(plain=PLAIN, n_head_unused=15), server(counts(), n_head_unused=15)),
    "speculation-off": (server(plain=PLAIN), server(counts(), plain=PLAIN)),
    "plain": (run(drafter="none"), run(counts())),
    "paging": (
        run(counts(a=0.7, row=1.2)),
        run(counts(a=0.7, row=0.9)),
    ),
    "acceptance": (run(counts(a=0.2, draft=0.2, row=0.2)), run(counts(a=0.8, draft=0.1, row=0.1))),
    "round-cost": (run(counts(a=0.9, draft=0.9, row=0.3)), run(counts(a=0.1, draft=0.5, row=0.3))),
    "acceptance-low": (server(counts(a=0.2)), server(counts(a=0.2), plain=PLAIN)),
    "temperature": (
        run(replace(LOSS), temp=1.0), run(counts(a=0.55, draft=0.01, row=0.01), temp=1.0),
    ),
    "draft-heavy": (run(counts(a=0.3, draft=0.5, row=0.1)), run(counts(a=0.05, draft=0.1))),
    "verify-slope": (run(counts(a=0.3, draft=0.05, row=0.5)), run(counts(a=0.0, row=0.1))),
    "no-length-pays": (
        run(counts(a=0.3, draft=0.5, drafted_by_position=(100,), accepted_by_position=(40,))),
        run(counts(a=0.3, draft=0.3, drafted_by_position=(100,), accepted_by_position=(90,))),
    ),
    "n-max": (
        run(counts(n=8, a=0.2, drafted_by_position=(100,) * 8, draft=0.15, row=0.1,
                   accepted_by_position=(90, 50, 12, 5, 3, 0, 0, 0))),
        run(counts(n=2, a=0.7, drafted_by_position=(100, 100), draft=0.15, row=0.1,
                   accepted_by_position=(90, 50))),
    ),
    "n-max-deep": (
        server(counts(n=8, accepted_by_position=(90, 50, 12, 5, 3, 0, 0, 0), a=0.2)),
        server(counts(n=8, accepted_by_position=(90, 80, 70, 60, 50, 40, 30, 20), a=0.55)),
    ),
    "p-min": (
        server(counts(n=0.8, a=0.95), draft_p_min=0.9),
        server(counts(n=0.8, a=0.95), draft_p_min=0.0),
    ),
    "empty-drafts": (
        server(counts(n=1, a=0.5, n_rounds_drafted=40)),
        server(counts(n=1, a=0.5, n_rounds_drafted=90)),
    ),
    "no-repetition": (
        run(counts(n=0.2, a=0.2, n_rounds_drafted=5, row=0.8), drafter="ngram"),
        run(counts(n=0.2, a=0.2, n_rounds_drafted=60, row=0.8), drafter="ngram"),
    ),
    "controller-off": (
        run(counts(n=0.1, n_rounds_drafted=5), draft_min=0),
        run(counts(n=0.1, n_rounds_drafted=5), draft_min=3),
    ),
    "prefill-tax": (run(counts(seconds_prompt=1.5)), run(counts(seconds_prompt=1.05))),
    "prompt-bound": (run(counts(seconds_prompt=9.0)), run(counts(seconds_prompt=0.9))),
    "experts-on-cpu": (server(counts(), n_cpu_experts=48), server(counts(), n_cpu_experts=None)),
    "partial-offload": (
        server(counts(), n_layers_gpu=60, n_layers_all=65),
        server(counts(), n_layers_gpu=65, n_layers_all=65),
    ),
    "draft-on-cpu": (
        server(counts(), n_layers_gpu=65, n_draft_layers_gpu=0, n_draft_layers_all=29),
        server(counts(), n_layers_gpu=0, n_draft_layers_gpu=0, n_draft_layers_all=29),
    ),
    "draft-cache-stale": (
        server(counts(), stale="process() did not run on every prefill ubatch"),
        server(counts()),
    ),
    "slots": (server(counts(), n_slots=4), server(counts(), n_slots=1)),
    "predicted-loss": (
        Facts(("pair report",), predicted_speedup=0.8, predicted_acceptance=0.3,
              predicted_break_even=0.5),
        Facts(("pair report",), predicted_speedup=1.8, predicted_acceptance=0.6,
              predicted_break_even=0.3),
    ),
    "own-time": (run(counts(seconds_decode=9.0)), run(counts())),
    "looping": (run(counts(), repetition=0.8), run(counts(), repetition=0.1)),
    "short": (run(counts(rounds=5)), run(counts(rounds=50))),
}  # fmt: skip


def codes(*facts: Facts) -> set[str]:
    return {cause.code for cause in explain(facts).causes}


@pytest.mark.parametrize("code", [cause.code for cause in CAUSES])
def test_each_cause_is_found_where_it_is_and_not_where_it_only_seems_to_be(code: str) -> None:
    there, absent = CASES[code]
    assert code in codes(there)
    assert code not in codes(absent)


@pytest.mark.parametrize("code", [cause.code for cause in CAUSES])
def test_each_sentence_has_its_numbers_and_something_to_try(code: str) -> None:
    finding = next(f for f in explain([CASES[code][0]]).causes if f.code == code)
    assert "{" not in finding.message + finding.hint
    assert finding.hint
    numbers = [value for value in finding.numbers.values() if isinstance(value, int | float)]
    assert all(-1e9 < value < 1e9 for value in numbers)


def test_every_code_is_there_once() -> None:
    assert sorted(CASES) == sorted(cause.code for cause in CAUSES)


def test_a_good_pair_has_nothing_to_explain() -> None:
    found = explain([run(counts())])
    assert (found.verdict, found.causes, found.guilty) == ("faster", (), False)


def test_what_a_fast_pair_still_loses_is_no_fault() -> None:
    found = explain([run(counts(seconds_prompt=1.2))])
    assert [(c.code, c.severity) for c in found.causes] == [("prefill-tax", "info")]
    assert not found.guilty


def test_the_break_even_is_where_drafting_is_as_fast_as_plain() -> None:
    """An acceptance of exactly break_even makes a speedup of exactly 1."""
    r = mean_round(run(counts(a=0.5, draft=0.2, row=0.1)))
    assert r is not None
    assert r.break_even == pytest.approx((3 * 0.2 + 3 * 0.1) / 3)
    assert (1 + r.break_even * r.n_draft) / r.cost == pytest.approx(1.0)


def test_without_a_plain_run_the_speedup_is_bounded_from_above() -> None:
    """The verify pass is no shorter than a plain decode."""
    alone, beside = run(counts(a=0.2), plain=None), run(counts(a=0.2))
    bound, true = mean_round(alone), mean_round(beside)
    assert bound is not None
    assert true is not None
    assert not bound.exact
    assert bound.speedup >= true.speedup
    assert explain([alone]).at_most
    assert judge(1.5, at_most=True) == "unknown"
    assert judge(0.9, at_most=True) == "slower"


def test_a_plain_run_beside_a_drafted_one_is_its_baseline() -> None:
    drafted = run(counts(a=0.2, draft=0.2, row=0.2), plain=None)
    plain = run(plain=PLAIN, drafter="none", draft="x.gguf")
    for order in ([drafted, plain], [plain, drafted]):
        whole = combine(order)
        assert (whole.drafter, whole.plain) == ("draft", PLAIN)
        assert speedup(whole) == pytest.approx(1.6 / 2.2)


def test_counts_of_the_same_kind_add_up_and_of_another_kind_do_not() -> None:
    one = run(counts(), plain=None)
    log = server(counts(rounds=7), n_slots=4)
    both = combine([one, one, log])
    assert both.drafted is not None
    assert both.drafted.n_rounds == 200
    assert both.n_slots == 4
    assert both.sources == ("run report", "run report", "server log")


def test_what_one_reply_does_not_know_is_not_known_of_the_sum() -> None:
    whole = combine([server(counts()), server(counts(n_rounds_drafted=None))])
    assert whole.drafted is not None
    assert whole.drafted.n_rounds_drafted is None


def test_the_bench_names_a_better_fixed_length() -> None:
    found = explain([run(counts(), arms=BENCH)])
    best = next(c for c in found.causes if c.code == "n-max")
    assert best.numbers["n_best"] == 2
    assert found.verdict == "faster"


def test_passes_that_double_from_one_row_to_the_next_are_a_memory_matter() -> None:
    smooth = run(counts(a=0.2), passes=ROWS)
    jump = run(counts(a=0.2), passes=(*ROWS, (4, 0.1)))
    assert "paging" not in codes(smooth)
    assert "paging" in codes(jump)


@pytest.mark.parametrize("a", [0.0, 0.3, 0.9])
def test_expected_tokens_are_those_of_the_geometric_series(a: float) -> None:
    """1 + a + ... + a^n = (1 - a^(n+1)) / (1 - a); behind what was seen the last step goes on."""
    n = 6
    kept = [a ** (i + 1) for i in range(2)]
    assert expected(kept, n) == pytest.approx((1 - a ** (n + 1)) / (1 - a))


def test_the_best_length_falls_as_rows_get_dearer() -> None:
    kept: dict[str, Any] = {"drafted_by_position": (100,) * 3, "accepted_by_position": (90, 80, 70)}
    best = []
    for row in (0.01, 0.1, 0.3):
        speeds = speeds_by_length(run(counts(row=row, **kept)))
        best.append(max(speeds, key=lambda n: speeds[n]))
    assert best[0] > best[1] > best[2]


def test_a_loop_repeats_and_prose_does_not() -> None:
    assert repetition([1, 2, 3] * 30) == pytest.approx(1 - 3 / 83)
    assert repetition(list(range(90))) == 0.0
    assert repetition([1] * 10) is None


def test_traps_of_llama_server_are_told_too() -> None:
    """Its own table: gguftools.server.traps."""
    bad = server(counts(), build="b10432-abc", backend="cuda", drafter="draft-mtp")
    assert "bad-build" in codes(bad)
    assert "p-min-unset" in codes(server(counts(), draft_max=16, draft_p_min=0.0))


def test_no_trap_is_told_twice() -> None:
    starved = counts(n=0.5, a=0.5, n_rounds_drafted=5)
    found = codes(server(starved, draft_p_min=0.9))
    assert "empty-drafts" in found
    assert "p-min-starves" not in found


def test_the_worst_comes_first() -> None:
    found = explain([server(counts(a=0.2, rounds=9), failure="it aborted")]).causes
    order = ("error", "warning", "info")
    ranks = [order.index(finding.severity) for finding in found]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) > 1


def test_facts_that_say_nothing_explain_nothing() -> None:
    for kind in KINDS:
        found = explain([Facts(sources=(kind,))])
        assert (found.verdict, found.causes) == ("unknown", ())
    assert {f.default for f in fields(Facts)} == {(), None}
    assert {f.name for f in fields(Finding)} >= {"code", "severity", "message", "hint", "numbers"}
    assert Round(1, 1, 2, 1, None, None, exact=True).slope is None
