"""Measuring a pair: what is counted, and that a chain's known acceptance is found."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from gguftools.bench.prompt_set import task_texts
from gguftools.cli import main, pair
from gguftools.errors import EngineError
from gguftools.gguf.source import open_gguf
from gguftools.pairing.compatibility import check_ngram, check_pair
from gguftools.pairing.setup import setup_of
from gguftools.speculative.measure import (
    LENGTHS,
    Measured,
    measure,
    measure_pair,
    predicted,
    summary,
)
from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import open_session
from gguftools.speculative.stats import Step
from tests.commands import parsed
from tests.models.chain import acceptance, stationary
from tests.models.markov import N_VOCAB, perturbed, random_chain

ALL = Chain(temp=1, top_k=0, top_p=1, min_p=0)


def _step(n: int, n_accepted: int, seconds: float, draft: float = 0.5) -> Step:
    return Step(tuple(range(n_accepted + 1)), n, n, n_accepted, (None,) * n, 0.0, 0, (draft,) * n,
                seconds)  # fmt: skip


def test_rounds_add_up_to_medians_and_shares() -> None:
    steps = [_step(0, 0, 1.0), _step(1, 1, 1.25), _step(1, 0, 1.25), _step(2, 2, 2.0),
             _step(2, 0, 9.0), _step(2, 1, 2.2), _step(0, 0, 1.0)]  # fmt: skip
    wanted = [0, 1, 1, 2, 2, 2, 2]  # the last one found nothing
    found = summary(steps, wanted)
    assert found == Measured(
        verify={1: 1.0, 2: 1.25, 3: 2.2},
        draft_token=0.5,
        n_tried=(5, 2),
        n_kept=(3, 1),
        found=5 / 6,
        n_rounds=7,
        n_tokens=sum(len(step.tokens) for step in steps),
    )


def test_nothing_drafted_is_no_answer() -> None:
    with pytest.raises(EngineError, match="too little was drafted"):
        summary([_step(0, 0, 1.0)], [4])


def test_the_acceptance_of_a_chain_is_measured(models: dict[str, Path]) -> None:
    p = random_chain(N_VOCAB, 1)
    q = perturbed(p, 0.2, 2)
    on_paper = float(stationary(p) @ acceptance(p, q))
    settings = Settings(models["target"], models["draft"], "draft", n_ctx=2048, chain=ALL, seed=3)
    ticks = count()
    with open_session(settings) as session:
        engine = session.engine
        found = measure(session, task_texts("chat"), 2500, lambda: float(next(ticks)))
        assert session.engine is engine
    assert set(found.verify) >= {n + 1 for n in LENGTHS}  # and shorter ones where a reply ends
    assert found.n_kept[0] / found.n_tried[0] == pytest.approx(on_paper, abs=0.06)
    assert found.found > 0.98  # the last round of a reply has no room for a draft


def test_a_measured_pair_is_predicted_from_what_was_seen(models: dict[str, Path]) -> None:
    target, draft = open_gguf(models["target"]), open_gguf(models["draft"])
    setup = replace(setup_of(target, draft, "draft-simple"), temperature=1.0)
    costs = {1: 1.0, 2: 1.1, 3: 1.2, 5: 1.4, 9: 2.0}
    found = Measured(costs, 0.05, (100, 90, 81, 73), (90, 81, 73, 66), 1.0, 200, 600)
    fast = predicted(found, setup)
    assert fast.speedup == pytest.approx(
        (1 + 0.9 + 0.81 + 0.729 + 0.659) / (1.4 + 4 * 0.05), rel=0.01
    )
    assert fast.draft_max == 4
    rare = predicted(Measured(costs, 0.0, (50,), (25,), 0.1, 200, 210), setup)
    assert rare.speedup == pytest.approx(1.05 / 1.01, rel=0.01)


@pytest.mark.parametrize("kind", ["draft-simple", "draft-mtp", "ngram"])
def test_every_kind_that_runs_here_can_be_measured(models: dict[str, Path], kind: str) -> None:
    name = "hybrid-mtp" if kind == "draft-mtp" else "target"
    target = open_gguf(models[name])
    if kind == "draft-simple":
        draft = open_gguf(models["draft"])
        one = check_pair(target, draft)
    else:
        from gguftools.pairing.compatibility import check_head

        draft, one = None, check_head(target) if kind == "draft-mtp" else check_ngram(target)
    setup = replace(setup_of(target, draft, kind), task="rewrite", temperature=0.0)
    found = measure_pair(one, setup, task_texts("rewrite"), seconds=0.6, n_ctx=1024)
    assert 0 < found.speedup_low < found.speedup < found.speedup_high
    assert 0 <= found.acceptance <= 1


def test_pair_measures_what_it_ranks_first(
    models: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(pair, "SECONDS_MEASURED", 0.5)
    monkeypatch.setenv("LLAMA_SERVER", str(tmp_path / "absent"))
    files = [str(models["target"]), str(models["draft"]), str(models["stranger"])]
    main(["pair", *files, "--measure", "--json", "-c", "1024", "--temp", "0"])
    out, err = capsys.readouterr()
    found = {c["kind"]: c for c in parsed(out, "pair")["candidates"] if c["verdict"] != "blocked"}
    assert found["draft-simple"]["measured"]
    assert "measuring" in err
    assert not [
        c for c in parsed(out, "pair")["candidates"] if c["measured"] and c["rule"] == "token-text"
    ]
