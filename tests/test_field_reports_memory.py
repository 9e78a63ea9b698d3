"""What pair counts in memory for the models of the field reports, made to their facts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from gguftools.gguf.reader import Header
from gguftools.pairing.machine import Gpu
from gguftools.pairing.memory import Parts, plan_memory
from tests.models import field_pairs as made

MIB = 1 << 20


def plan(target: Header, draft: Header | None = None, **shape: Any) -> Parts:
    kind = "draft-simple" if draft is not None else "draft-mtp"
    return plan_memory(target, draft, kind, **shape).parts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def target_27b(folder: Path) -> Header:
    return made.qwen36_27b().header(folder)


def test_the_cache_of_a_head_is_counted(target_27b: Header) -> None:
    """C74: one block, 544 MiB in q8_0 at 262144."""
    q8_0: dict[str, Any] = {"cache_type_k_draft": "q8_0", "cache_type_v_draft": "q8_0"}
    assert plan(target_27b, n_ctx=262144, **q8_0).draft_kv == 544 * MIB
    assert plan(target_27b, n_ctx=262144).draft_kv == 1024 * MIB


def test_each_drafted_token_costs_a_copy_of_the_recurrent_state(
    target_27b: Header, folder: Path
) -> None:
    """C80 and C134: about 150 MiB a step; of the 35B-A3B 62.8 MiB."""
    for target, mib in ((target_27b, 150), (made.qwen36_35b_a3b().header(folder), 62.8)):
        copies = [plan(target, n_ctx=16384, n_draft_max=n).recurrent for n in range(1, 7)]
        steps = {b - a for a, b in itertools.pairwise(copies)}
        assert steps == {copies[0] // 2}
        assert steps.pop() / MIB == pytest.approx(mib, abs=0.5)


def test_a_smaller_ubatch_takes_a_smaller_buffer(target_27b: Header) -> None:
    """C77: the draft's context takes over the ubatch of the target."""
    large, small = (plan(target_27b, n_ctx=1 << 20, n_ubatch=n) for n in (2048, 512))
    assert large.draft_compute == pytest.approx(4 * small.draft_compute, rel=0.01)


def test_16k_fits_a_card_of_10_gb_and_32k_does_not(folder: Path) -> None:
    """C79: the file has 9.01 GB, and the embedding stays in RAM."""
    target, card = made.qwen36_27b("UD-IQ2_XXS").header(folder), Gpu("RTX 3080", 10 << 30, 10 << 30)
    used = [
        plan_memory(target, None, "draft-mtp", n_ctx=n_ctx, n_draft_max=2, gpus=[card])
        .devices["GPU0"]
        .total
        for n_ctx in (16384, 32768)
    ]
    assert used[0] < card.total_bytes < used[1]


def test_an_assistant_and_a_projector_are_counted(folder: Path) -> None:
    """C82: from the files, without loading the assistant alone."""
    target, assistant = (model.header(folder) for model in made.gemma4_e2b())
    parts = plan_memory(target, assistant, "draft-mtp", n_ctx=8192, projector_bytes=99 * MIB).parts
    assert parts.draft_weights > 64 * MIB
    assert parts.projector == 99 * MIB


def test_the_draft_has_the_targets_context(folder: Path) -> None:
    """C83: 28 blocks, 8 heads of 128 for keys and for values, F16."""
    parts = plan(made.qwen3_32b().header(folder), made.qwen3_06b().header(folder), n_ctx=32768)
    assert parts.draft_kv == 28 * 8 * 2 * 128 * 2 * 32768
