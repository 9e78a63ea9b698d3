"""What a file can be in a pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gguftools.gguf.nextn_table import MTP_ARCHS
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.engines import OURS, SERVER, engine_notes, engines_of, rollback_notes
from gguftools.pairing.kinds import draft_kind, is_draft_only, why_no_text
from tests.models.markov import write_standard_set
from tests.models.pair_models import F16, F32, built, feature_draft, model, mtp_header, sidecar
from tests.models.tiny import tiny


def test_every_file_of_the_standard_set_has_its_kind(tmp_path: Path) -> None:
    found = {k: draft_kind(open_gguf(p)) for k, p in write_standard_set(tmp_path).items()}
    assert found.pop("mtp-sidecar") == "draft-mtp"
    assert set(found.values()) == {"draft-simple"}


@pytest.mark.parametrize("arch", [a for a in MTP_ARCHS if a not in ("gemma4-assistant",)])
def test_a_model_with_an_mtp_head_can_draft_for_itself_and_its_head_alone_is_mtp(arch: str) -> None:
    whole = tiny(arch)
    assert draft_kind(mtp_header(whole)) == "draft-simple"
    alone = mtp_header(sidecar(whole))
    assert draft_kind(alone) == "draft-mtp"
    assert is_draft_only(alone)


def test_drafts_that_llama_cpp_does_not_detect_are_recognised() -> None:
    assert draft_kind(feature_draft("eagle3")) == "draft-eagle3"
    assert draft_kind(mtp_header(tiny("gemma4-assistant"))) == "draft-mtp"


def test_a_markov_head_tells_dspark_from_dflash() -> None:
    assert draft_kind(feature_draft("dflash")) == "draft-dflash"
    markov = feature_draft("dflash", extra={"markov_w1.weight": ((8, 40), F16)})
    assert draft_kind(markov) == "draft-dspark"


_CLIP = built("clip", {"clip.has_vision_encoder": True}, {"v.x": ((4,), F32)}, None, "mmproj.gguf")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (_CLIP, "multimodal projector"),
        (model(keys={"general.type": "adapter"}), "LoRA adapter"),
        (model(keys={"general.type": "mmproj"}), "multimodal projector"),
        (model(keys={"general.type": "imatrix"}), "importance matrix"),
        (
            built("", {}, {"a.in_sum2": ((4,), F32)}, None, "imatrix.gguf"),
            "no general.architecture",
        ),
        (built("llama", {}, {}, None, "vocab.gguf"), "no tensors"),
        (model("bert"), "embedding model"),
        (model("gemma-embedding"), "embedding model"),
        (model("qwen3", keys={"pooling_type": 3}), "embedding model"),
        (model("llama", keys={"attention.causal": False}), "both directions"),
        (model("llada"), "diffusion model"),
        (model("wavtokenizer-dec"), "writes sound"),
        (model("t5"), "has an encoder"),
        (model("qwen9"), "does not know the architecture 'qwen9'"),
    ],
)
def test_a_file_that_cannot_draft_says_why(made: Header, why: str) -> None:
    assert draft_kind(made) is None
    assert why in why_no_text(made)


@pytest.mark.parametrize("keys", [{"pooling_type": 0}, {"attention.causal": True}, {}])
def test_an_ordinary_model_drafts(keys: dict[str, Any]) -> None:
    assert draft_kind(model(keys=keys)) == "draft-simple"


@pytest.mark.parametrize(
    ("kind", "target", "draft", "engines"),
    [
        ("draft-simple", "llama", "llama", (SERVER, OURS)),
        ("draft-simple", "qwen35", "qwen35", (SERVER, OURS)),
        ("draft-simple", "qwen35", "llama", (SERVER, OURS)),
        ("draft-simple", "llama", "mamba", (OURS,)),
        ("draft-simple", "qwen4exp", "llama", (SERVER,)),
        ("draft-simple", "llama", "qwen4exp", ()),
        ("draft-mtp", "glm4moe", "glm4moe", (SERVER, OURS)),
        ("draft-mtp", "gemma4", "gemma4-assistant", (SERVER,)),
        ("draft-eagle3", "llama", "eagle3", (SERVER,)),
        ("ngram", "mamba", "", (SERVER, OURS)),
    ],
)
def test_each_pair_has_its_engines_and_a_reason_for_each_that_it_has_not(
    kind: str, target: str, draft: str, engines: tuple[str, ...]
) -> None:
    assert engines_of(kind, target, draft) == engines
    notes = engine_notes(kind, target, draft)
    assert len(notes) == 2 - len(engines)
    assert [SERVER in n or "gguftools run" in n for n in notes] == [True] * len(notes)


def test_only_a_recurrent_target_has_something_to_say_of_taking_back() -> None:
    assert rollback_notes("draft-simple", "llama") == ()
    assert "both engines copy it" in rollback_notes("draft-simple", "mamba")[0]
    assert "both engines keep a copy" in rollback_notes("draft-mtp", "qwen35")[0]
    assert "llama-server keeps a copy" in rollback_notes("draft-dflash", "qwen35")[0]
    assert "with a copy" in rollback_notes("draft-simple", "lfm2")[0]


def test_a_long_architecture_name_is_cut() -> None:
    assert len(why_no_text(model("x" * 10000))) < 120
