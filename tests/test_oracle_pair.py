"""Our verdicts on pairs beside the real llama-server: a sample of scripts/oracle_pair.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguftools.gguf.source import open_gguf
from gguftools.pairing.compatibility import check_pair
from gguftools.pairing.engines import rollback_notes
from scripts.llama_server import VARIABLE, build, llama_server
from tests.models import pair_files as files
from tests.models import server
from tests.models.pair_cases import FAMILIES, Case, cases
from tests.models.pair_files import N_WORDS, PairFile
from tests.models.pair_judge import judge_engine, judge_server

WHY = "no llama-server here: python -m scripts.llama_server builds one"
needs_server = pytest.mark.skipif(llama_server() is None, reason=WHY)
SAMPLE = {
    "texts": ("id 4", "id 5"),
    "sizes": ("draft +128", "draft +129"),
    "flags": ("bos None True (7, 7)",),
    "archs": ("qwen3next + llama",),
    "own": ("qwen35", "glm4moe no eh_proj"),
    "sidecar": ("qwen35 text 20", "qwen35 wide head"),
    "assistant": ("fits",),
    "eagle3": ("reduced", "map beyond"),
    "dflash": ("block size 3",),
    "dspark": ("shares both",),
    "mixed": ("glm4moe without a head + whole",),
}  # fmt: skip


@pytest.fixture(scope="module")
def binary() -> Path:
    found = llama_server()
    assert found is not None
    return found


def test_every_family_has_cases_and_every_label_is_one_case() -> None:
    labels = [(case.family, case.label) for case in cases()]
    assert {family for family, _ in labels} == set(FAMILIES)
    assert len(labels) == len(set(labels)) >= 300


def _sample() -> list[Case]:
    return [case for case in cases() if case.label in SAMPLE.get(case.family, ())]


@needs_server
def test_the_verdict_is_what_llama_server_does(binary: Path, tmp_path: Path) -> None:
    found = [judge_server(binary, case, tmp_path) for case in _sample()]
    assert len(found) == sum(map(len, SAMPLE.values()))
    assert [f"{f.case.label}: {f.disagreement}" for f in found if f.disagreement] == []
    assert {f.theirs for f in found} >= {"drafts", "plain", "aborts", "drafts nonsense"}


def test_our_engine_drafts_where_we_say_so(tmp_path: Path) -> None:
    found = [judge_engine(case, tmp_path) for case in _sample()]
    judged = [f for f in found if f is not None]
    assert [f"{f.case.label}: {f.disagreement}" for f in judged if f.disagreement] == []
    assert {f.theirs for f in judged} == {"drafts", "refuses"}


def _ask(
    binary: Path, folder: Path, target: PairFile, draft: PairFile | None, kind: str, n_max: int = 3
) -> server.Outcome:
    path = target.write(folder / "target.gguf")
    other = draft.write(folder / "draft.gguf") if draft else None
    return server.ask(binary, path, *server.pair_options(kind, other, n_max))


@needs_server
@pytest.mark.parametrize(("size", "dspark"), [(3, False), (3, True), (8, False)])
def test_the_block_size_bounds_the_draft_as_the_settings_say(
    binary: Path, tmp_path: Path, size: int, dspark: bool
) -> None:
    make = files.dspark if dspark else files.dflash
    target, draft = files.qwen3(n_layer=4), make().keys(block_size=size)
    found = _ask(binary, tmp_path, target, draft, "draft-dspark" if dspark else "draft-dflash", 99)
    pair = check_pair(open_gguf(tmp_path / "target.gguf"), open_gguf(tmp_path / "draft.gguf"))
    assert pair.settings is not None
    assert found.says("exceeds the trained block size").endswith(
        f"clamping to {pair.settings.draft_max}"
    )


# Hybrid and recurrent targets: (target, kind, how llama-server takes back what is rejected).
SNAPSHOTS, CHECKPOINTS = "snapshots", "checkpoints"
STATES = [
    ("qwen35", "draft-simple", CHECKPOINTS),
    ("qwen35", "draft-mtp", SNAPSHOTS),
    ("nemotron_h_moe", "draft-mtp", SNAPSHOTS),
    ("qwen3next", "draft-simple", CHECKPOINTS),
    ("qwen3next", "draft-mtp", CHECKPOINTS),
    ("mamba", "draft-simple", CHECKPOINTS),
    ("qwen35", "draft-dflash", SNAPSHOTS),
    ("qwen3next", "draft-dflash", CHECKPOINTS),
    ("glm4moe", "draft-mtp", ""),
]


@needs_server
@pytest.mark.parametrize(("arch", "kind", "how"), STATES)
def test_hybrid_and_recurrent_targets_draft_and_take_back_as_the_notes_say(
    binary: Path, tmp_path: Path, arch: str, kind: str, how: str
) -> None:
    target = files.mamba() if arch == "mamba" else files.mtp(arch)
    assert target.vocab is not None
    n_words = len(target.vocab.tokens)
    draft = {
        "draft-simple": files.llama(n_words=n_words),
        "draft-dflash": files.dflash(n_words=n_words),
    }.get(kind)
    found = _ask(binary, tmp_path, target, draft, kind)
    assert found.what == "drafts"
    assert ("restoring speculative checkpoint" in found.log) == (how == CHECKPOINTS)
    assert ("supports bounded partial sequence removal" in found.log) == (how == SNAPSHOTS)
    notes = " ".join(rollback_notes(kind, arch))
    assert ("replay" in notes) == (how == CHECKPOINTS)
    assert ("a copy of it for every drafted token" in notes) == (how == SNAPSHOTS)


@needs_server
@pytest.mark.parametrize("arch", ["qwen35", "qwen3next", "mamba"])
def test_lookup_drafts_on_hybrid_and_recurrent_targets(
    binary: Path, tmp_path: Path, arch: str
) -> None:
    """A random model writes in circles after a while, which lookup finds."""
    target = files.mamba() if arch == "mamba" else files.mtp(arch)
    path = target.write(tmp_path / "target.gguf")
    size = ("--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", "3")
    found = server.ask(binary, path, "--spec-type", "ngram-simple", *size, n_predict=200)
    assert found.what == "drafts"
    assert "created speculative checkpoint" in found.log
    assert "replay" in rollback_notes("ngram", arch)[0]


@needs_server
def test_a_token_that_only_the_target_has_ends_the_server(binary: Path, tmp_path: Path) -> None:
    """As a prompt may hold one: the pair is fine until then, which a note must say."""
    target = files.llama().words(N_WORDS + 3, {N_WORDS: b"<tool>"})
    path = target.write(tmp_path / "target.gguf")
    draft = files.llama().write(tmp_path / "draft.gguf")
    options = server.pair_options("draft-simple", draft, 3)
    assert server.ask(binary, path, *options).what == "drafts"
    assert server.ask(binary, path, *options, prompt=(5, 9, N_WORDS)).what == "aborts"
    pair = check_pair(open_gguf(path), open_gguf(draft))
    assert any("'<tool>'" in note and "aborts" in note for note in pair.notes)


def test_a_named_llama_server_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama-server").write_bytes(b"")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "llama-server"))
    assert llama_server() == build() == tmp_path / "llama-server"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "absent"))
    assert llama_server() is None
