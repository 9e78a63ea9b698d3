"""What `pair` recommends: files of real shapes, made to the facts of cases people ask about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gguftools.gguf.source import open_gguf
from gguftools.pairing.candidates import Draft, judge
from gguftools.pairing.compatibility import Pair
from gguftools.pairing.launch import Launch
from gguftools.pairing.machine import Gpu, Machine
from gguftools.pairing.ranking import Question, ranked
from tests.models.field_pairs import (
    FieldModel,
    head_of,
    qwen3_06b,
    qwen3_4b,
    qwen3_17b,
    qwen3_32b,
    qwen15_05b,
    qwen15_7b,
    qwen25_05b,
    qwen35_08b,
    qwen36_27b,
    qwen36_35b_a3b,
)

GIB = 1 << 30
GPU = Gpu("NVIDIA GeForce RTX 3090", 24 * GIB, 24 * GIB)
CUDA = Question(backend="cuda", machine=Machine(64 * GIB, 64 * GIB, (GPU,)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recommend")


def _judge(
    folder: Path, target: FieldModel, drafts: Sequence[FieldModel], question: Question = CUDA
) -> list[Pair]:
    named = [Draft(str(draft.write(folder))) for draft in drafts]
    return judge(open_gguf(target.write(folder)), named, question)


def _named(pair: Pair) -> str:
    return Path(pair.draft).stem if pair.draft else pair.kind or ""


def _of(pairs: Sequence[Pair], name: str) -> Pair:
    return next(pair for pair in pairs if _named(pair).startswith(name))


def test_a_q4_target_gets_its_draft_in_q8_0_where_that_costs_nothing(folder: Path) -> None:
    drafts = [qwen3_06b("Q4_0"), qwen3_06b("F16"), qwen3_06b("Q8_0")]
    pairs = _judge(folder, qwen3_32b(), drafts)
    assert [_named(p) for p in pairs if p.draft] == [
        "Qwen3-0.6B-Q8_0", "Qwen3-0.6B-Q4_0", "Qwen3-0.6B-F16"
    ]  # fmt: skip
    assert any("the most precise that costs no speed" in note for note in pairs[0].advice)
    assert any("the same draft as Q8_0 would bring about" in n for n in pairs[2].advice)


def test_cost_overrules_the_rule_of_thumb_where_the_draft_is_a_large_part(folder: Path) -> None:
    gpu = Gpu("NVIDIA L40S", 48 * GIB, 48 * GIB)
    large = Question(backend="cuda", machine=Machine(64 * GIB, 64 * GIB, (gpu,)))
    pairs = _judge(folder, qwen3_32b(), [qwen3_4b("Q8_0"), qwen3_4b("Q4_0")], large)
    first = next(p for p in pairs if p.draft)
    assert _named(first) == "Qwen3-4B-Q4_0"
    assert any("which the rule of thumb prefers, and" in n for n in first.advice)


def test_padding_is_no_obstacle_and_four_other_texts_are_one(folder: Path) -> None:
    padded = _of(_judge(folder, qwen15_7b(), [qwen15_05b()]), "Qwen1.5")
    assert padded.verdict != "blocked"
    other = _of(_judge(folder, qwen3_17b(), [qwen25_05b()]), "Qwen2.5")
    assert (other.verdict, other.rule, other.token_id) == ("blocked", "token-text", 151665)
    assert "4 token texts differ" in other.reason


def test_a_classic_draft_loses_on_a_mixture_with_few_active_weights(folder: Path) -> None:
    pairs = _judge(folder, qwen36_35b_a3b(n_nextn=0), [qwen35_08b()])
    draft = _of(pairs, "Qwen3.5")
    assert (draft.verdict, draft.rule) == ("poor", "speed")
    assert "expected to be slower than no draft" in draft.reason
    assert draft.prediction is not None
    assert any("the experts of one" in reason for reason in draft.prediction.reasons)


def test_a_target_below_2b_is_left_alone(folder: Path) -> None:
    pairs = _judge(folder, qwen35_08b(n_nextn=1), [])
    own = _of(pairs, "draft-mtp")
    assert (own.verdict, own.rule) == ("poor", "speed")


def test_a_head_alone_drafts_for_the_trunk_that_lost_it(folder: Path) -> None:
    head = head_of(qwen36_27b(), "mtp-Qwen3.6-27B", "Q8_0")
    sidecar = _of(_judge(folder, qwen36_27b(n_nextn=0), [head]), "mtp-")
    assert (sidecar.kind, sidecar.verdict) == ("draft-mtp", "works")
    assert sidecar.prediction is not None
    assert sidecar.prediction.speedup_low > 1


def test_the_target_as_its_own_draft_is_poor(folder: Path) -> None:
    same = _of(_judge(folder, qwen3_4b(), [qwen3_4b()]), "Qwen3-4B")
    assert (same.verdict, same.rule) == ("poor", "size")
    assert same.prediction is not None
    assert same.prediction.speedup < 1


@pytest.mark.parametrize(
    ("ram", "vram", "verdict", "fits"),
    [(64, 24, "works", True), (64, 8, "blocked", False), (64, 16, "blocked", False)],
)
def test_a_pair_that_does_not_fit_the_gpu_is_blocked(
    folder: Path, ram: int, vram: int, verdict: str, fits: bool
) -> None:
    gpu = Gpu("NVIDIA GeForce RTX 3090", vram * GIB, vram * GIB)
    question = Question(backend="cuda", machine=Machine(ram * GIB, ram * GIB, (gpu,)))
    own = _of(_judge(folder, qwen36_27b(), [], question), "draft-mtp")
    assert (own.verdict, own.rule) == (verdict, None if fits else "memory")
    assert own.memory is not None
    assert own.memory.fits == fits
    if not fits:
        assert f"{vram * GIB / 1e9:.1f} GB free" in own.reason
        assert own.memory.n_ctx_max is not None


def test_a_context_that_is_too_long_comes_with_one_that_fits(folder: Path) -> None:
    question = Question(backend="cuda", machine=CUDA.machine, launch=Launch(n_ctx=262144, gpu=True))
    own = _of(_judge(folder, qwen36_27b(), [], question), "draft-mtp")
    assert own.memory is not None
    assert (own.rule, own.memory.fits) == ("memory", False)
    n_ctx = own.memory.n_ctx_max
    assert n_ctx is not None
    assert 8192 < n_ctx < 262144
    assert f"the largest context that fits is -c {n_ctx}" in own.reason
    launch = Launch(n_ctx=n_ctx, gpu=True)
    fitting = Question(backend="cuda", machine=CUDA.machine, launch=launch)
    assert _of(_judge(folder, qwen36_27b(), [], fitting), "draft-mtp").verdict == "works"


def test_too_little_ram_is_poor_because_weights_can_be_paged(folder: Path) -> None:
    question = Question(backend="cpu", machine=Machine(8 * GIB, 8 * GIB))
    own = _of(_judge(folder, qwen36_27b(), [], question), "draft-mtp")
    assert (own.verdict, own.rule) == ("poor", "memory")


def test_ngram_lookup_is_always_there_and_needs_nothing(folder: Path) -> None:
    pairs = _judge(folder, qwen3_32b(), [], Question(task="rewrite", backend="cuda"))
    assert [_named(p) for p in pairs] == ["ngram"]
    assert pairs[0].verdict == "works"
    assert pairs[0].memory is not None
    assert pairs[0].memory.plan.parts.draft_weights == 0


def test_what_works_comes_first_and_nothing_is_lost(folder: Path) -> None:
    drafts = [qwen25_05b(), qwen3_06b(), qwen35_08b(), qwen3_32b()]
    pairs = _judge(folder, qwen3_32b(), drafts)
    order = [("works", "poor", "blocked").index(pair.verdict) for pair in pairs]
    assert order == sorted(order)
    assert len(pairs) == len(drafts) + 1
    assert ranked(reversed(pairs))[0] == pairs[0]
