"""`gguftools pair`: what it finds, how it ranks, what it prints and writes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gguftools.cli import main
from gguftools.recipes import PlacedFile, load_recipe
from tests.commands import parsed
from tests.models.field_pairs import (
    head_of,
    qwen3_06b,
    qwen3_32b,
    qwen25_05b,
    qwen36_27b,
    qwen36_35b_a3b,
)
from tests.models.markov import N_VOCAB, random_chain, write_qwen35


@pytest.fixture(autouse=True)
def nobody_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stores of models, and no llama-server, but those of a test."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LLAMA_SERVER", str(home / "absent"))


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("broken") / "broken.gguf"
    chain = random_chain(N_VOCAB, 1)
    return write_qwen35(path, chain, drop=["blk.4.nextn.eh_proj.weight"])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of real shapes, for whom a draft pays; the weights are a hole in the file."""
    folder = tmp_path_factory.mktemp("large")
    return {
        "target": qwen3_32b().write(folder),
        "draft": qwen3_06b().write(folder),
        "coarse": qwen3_06b("Q4_0").write(folder),
        "stranger": qwen25_05b().write(folder),
        "mtp-sidecar": head_of(qwen36_27b(), "mtp", "Q8_0").write(folder),
        "hybrid-mtp": qwen36_27b().write(folder),
        "few-active": qwen36_35b_a3b(n_nextn=0).write(folder),
    }


def test_pair_lists_every_draft_with_its_reason(
    large: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    drafts = [large["stranger"], large["draft"], large["mtp-sidecar"], Path("absent.gguf")]
    args = ["pair", str(large["target"]), *map(str, drafts), "--device", "cuda", "-c", "8192"]
    assert main([*args, "--json"]) == 0
    found = parsed(capsys.readouterr().out, "pair")
    works, ngram, stranger, sidecar, absent = found["candidates"]
    assert (works["verdict"], works["rule"], works["kind"]) == ("works", None, "draft-simple")
    assert works["commands"]["gguftools"].startswith("gguftools run ")
    assert {"-ngl", "-ngld", "-c"} <= set(shlex.split(works["commands"]["llama-server"]))
    assert 1 < works["prediction"]["speedup_low"] < works["prediction"]["speedup"] < 4
    assert works["settings"]["draft_max"] == len(works["prediction"]["acceptance_by_position"])
    assert (ngram["kind"], ngram["draft"], ngram["origin"]) == ("ngram", None, None)
    assert (stranger["verdict"], stranger["rule"]) == ("blocked", "token-text")
    assert stranger["target_text"] != stranger["draft_text"]
    assert stranger["prediction"]["speedup"] is None
    assert (sidecar["verdict"], sidecar["rule"]) == ("blocked", "architecture")
    assert (absent["verdict"], absent["rule"]) == ("blocked", "file")
    assert main(args) == 0
    out = capsys.readouterr().out
    for candidate in (stranger, sidecar, absent):
        assert candidate["reason"] in out
    assert works["commands"]["llama-server"] in out
    assert f"Take {large['draft'].parent.name}/{large['draft'].name}: about" in out


def test_pair_finds_drafts_beside_the_target_and_in_folders(
    large: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (target := here / "big.gguf").hardlink_to(large["target"])
    (there := tmp_path / "there").mkdir()
    (there / "a.gguf").hardlink_to(large["coarse"])
    (here / "small.gguf").write_bytes(b"not a model")
    main(["pair", str(target), "--in", str(there), "--json", "--device", "cuda"])
    found = parsed(capsys.readouterr().out, "pair")["candidates"]
    assert {c["origin"] for c in found if c["draft"]} >= {"beside the target", f"--in {there}"}
    best = found[0]
    assert (best["draft"], best["verdict"]) == (str(there / "a.gguf"), "works")


def test_pair_checks_the_head_of_the_target(
    large: dict[str, Path], models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pair", str(large["hybrid-mtp"]), "absent.gguf", "--json", "--device", "cuda"])
    own = parsed(capsys.readouterr().out, "pair")["candidates"][0]
    assert (own["draft"], own["kind"], own["verdict"]) == (None, "draft-mtp", "works")
    main(["pair", str(models["hybrid"]), "absent.gguf", "--json"])
    kinds = [c["kind"] for c in parsed(capsys.readouterr().out, "pair")["candidates"]]
    assert kinds == ["ngram", None]


def test_pair_is_1_when_no_draft_pays_and_3_when_none_could_be_read(
    large: dict[str, Path], models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(large["target"])
    assert main(["pair", target, str(large["stranger"])]) == 1
    assert main(["pair", target, str(large["stranger"]), "absent.gguf"]) == 1
    assert main(["pair", target, target]) == 1
    assert main(["pair", target, "absent.gguf"]) == 3
    assert main(["pair", str(models["target"]), str(models["draft"])]) == 1
    assert "is expected to be faster than plain decoding" in capsys.readouterr().out


def test_the_best_pair_is_written_as_a_recipe(
    large: dict[str, Path],
    models: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "best.toml"
    files = [str(large["target"]), str(large["draft"])]
    words = ["--device", "cuda", "--task", "code", "-o", str(path)]
    assert main(["pair", *files, *words]) == 0
    recipe = load_recipe(path)
    assert isinstance(recipe.draft, PlacedFile)
    assert (recipe.kind, recipe.tasks) == ("draft-simple", ("code",))
    assert recipe.draft == PlacedFile(files[1], large["draft"].stat().st_size)
    words[-1], words[3] = str(tmp_path / "none.toml"), "prose"
    assert main(["pair", str(large["few-active"]), files[1], *words]) == 1
    assert not (tmp_path / "none.toml").exists()
    assert "no recipe is written: no draft pays" in capsys.readouterr().err


def test_pair_blocks_files_that_llama_cpp_does_not_load(
    models: dict[str, Path], broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(models["draft"].read_bytes()[:-1000])
    rules = []
    for target, draft in (
        (models["target"], short),
        (short, models["draft"]),
        (broken, models["draft"]),
    ):
        assert main(["pair", str(target), str(draft), "--json"]) == 1
        found = parsed(capsys.readouterr().out, "pair")["candidates"]
        rules += [c["rule"] for c in found if c["draft"] is not None]
    assert rules == ["draft", "target", "target"]
