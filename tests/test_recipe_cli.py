"""`gguftools recipe`: list, show, check, run and export, with files here and on a Hub here."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from huggingface_hub import close_session, constants

from gguftools.cli.contract import RunJSON
from gguftools.cli.contract_recipe import (
    RecipeCheckJSON,
    RecipeExportJSON,
    RecipeJSON,
    RecipeListJSON,
)
from gguftools.recipes import (
    HfModels,
    HubFile,
    PackageFile,
    PlacedFile,
    Recipe,
    RecipeSettings,
    Requantized,
    Source,
    write_recipe,
)
from scripts.docs import json_schema
from tests.commands import GGUFTOOLS, Terminal, gguftools
from tests.models.checkpoint import write_model
from tests.models.hub_server import Hub, serve

SETTINGS = RecipeSettings(4, 0, 0.0, 0.0, 12)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No recipes and no cache but those of the test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.fixture
def hub(home: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with the Markov models in user/model."""
    folder = home / "served"
    folder.mkdir()
    for path in models.values():
        shutil.copy(path, folder)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve(Hub(folder)) as server:
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server
    close_session()


def pair(target: Source, draft: Source | None, kind: str = "draft-simple") -> Recipe:
    unverified = tuple(
        f"{key}.sha256"
        for key, source in (("target", target), ("draft", draft))
        if isinstance(source, HubFile) and not source.sha256
    )
    return Recipe("pair", "a pair", kind, target, draft, SETTINGS, ("Hello",), (), {},
                  unverified=unverified)  # fmt: skip


def written(recipe: Recipe, folder: Path) -> Path:
    path = folder / f"{recipe.name}.toml"
    write_recipe(recipe, path)
    return path


def on_hub(name: str, *sha256: str) -> HubFile:
    return HubFile("user/model", f"{name}.gguf", None, sha256)


def here(path: Path) -> PlacedFile:
    return PlacedFile(str(path), path.stat().st_size)


def valid(output: str, kind: Any) -> dict[str, Any]:
    """One JSON object that fits its type."""
    value: dict[str, Any] = json.loads(output)
    jsonschema.validate(value, json_schema(kind))
    return value


def findings(*args: object, code: int) -> dict[str, tuple[str, str]]:
    """Of one recipe: what was looked at, with verdict and reason."""
    done = gguftools("recipe", "check", *args, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    (found,) = valid(done.stdout, RecipeCheckJSON)["recipes"]
    return {f["what"]: (f["verdict"], f["reason"]) for f in found["findings"]}


def test_list_names_the_shipped_ones_ones_own_and_what_is_broken(home: Path) -> None:
    own = home / "config" / "gguftools" / "recipes"
    own.mkdir(parents=True)
    written(replace(pair(PlacedFile("t.gguf", 1), PlacedFile("d.gguf", 1)), name="mine"), own)
    (own / "broken.toml").write_text("name = 3")
    done = gguftools("recipe", "list", "--json")
    assert done.returncode == 0
    found = valid(done.stdout, RecipeListJSON)
    rows = {row["name"]: row for row in found["recipes"]}
    assert rows["mine"]["own"]
    assert not rows["smollm2-demo"]["own"]
    assert rows["qwen3.6-27b-mtp"]["speedup_low"] < rows["qwen3.6-27b-mtp"]["speedup_high"]
    assert list(found["broken"]) == [str(own / "broken.toml")]
    shown = gguftools("recipe", "list")
    assert "smollm2-demo" in shown.stdout
    assert "broken.toml" in shown.stderr


def test_show_says_all_of_one(home: Path) -> None:
    found = valid(gguftools("recipe", "show", "qwen3.8-27b-mtp", "--json").stdout, RecipeJSON)
    assert found["target"]["repo"] == "ggml-org/Qwen3.8-27B-GGUF"
    assert len(found["target"]["sha256"]) == 1
    assert found["hf"]["target"] == "Qwen/Qwen3.8-27B"
    text = gguftools("recipe", "show", "qwen3.8-27b-mtp").stdout
    assert all(each["source"] in text for each in found["expected"])
    assert "not verified" in text
    demo = valid(gguftools("recipe", "show", "smollm2-demo", "--json").stdout, RecipeJSON)
    assert (demo["target"]["type"], demo["draft"]["type"]) == ("requantized", "package")


def test_a_name_that_does_not_exist_is_misuse() -> None:
    for verb in ("show", "run", "check"):
        done = gguftools("recipe", verb, "no-such-recipe")
        assert done.returncode == 2
        assert "there are: " in done.stderr
    assert gguftools("recipe", "show", "no/such.toml").returncode == 3


def test_a_right_pair_on_the_hub_is_checked_by_its_headers(hub: Hub, home: Path) -> None:
    path = written(pair(on_hub("target"), on_hub("draft")), home)
    found = findings(path, code=0)
    assert found["pair"][0] == "ok"
    assert "its header on the Hub" in found["target"][1]
    n_bytes = sum(p.stat().st_size for p in hub.folder.glob("*.gguf"))
    assert hub.n_sent < n_bytes


@pytest.mark.parametrize(
    ("target", "draft", "kind", "what", "said"),
    [
        ("target", "stranger", "draft-simple", "pair", "token"),
        ("hybrid", None, "draft-mtp", "pair", "MTP"),
        ("hybrid-mtp", "mtp-sidecar", "draft-eagle3", "pair", "it drafts as draft-mtp"),
        ("target", "absent", "draft-simple", "draft", "no such"),
    ],
)
def test_what_is_wrong_with_a_pair_on_the_hub_is_said(
    hub: Hub, home: Path, target: str, draft: str | None, kind: str, what: str, said: str
) -> None:
    recipe = pair(on_hub(target), None if draft is None else on_hub(draft), kind)
    verdict, reason = findings(written(recipe, home), code=1)[what]
    assert verdict == "wrong"
    assert said in reason


@pytest.mark.parametrize(
    ("target", "draft", "kind"),
    [("hybrid-mtp", None, "draft-mtp"), ("target", None, "ngram"),
     ("hybrid", "mtp-sidecar", "draft-mtp")],
)  # fmt: skip
def test_heads_and_lookup_are_right_where_they_are_there(
    hub: Hub, home: Path, target: str, draft: str | None, kind: str
) -> None:
    recipe = pair(on_hub(target), None if draft is None else on_hub(draft), kind)
    assert findings(written(recipe, home), code=0)["pair"][0] == "ok"


@pytest.mark.parametrize(
    ("n_mtp", "code", "verdict"), [(1, 0, "ok"), (0, 1, "wrong"), (2, 1, "wrong")]
)
def test_the_checkpoint_is_asked_for_its_mtp_layers(
    hub: Hub, home: Path, n_mtp: int, code: int, verdict: str
) -> None:
    hub.repos["org/model"] = write_model(home / "checkpoint", "Qwen3_5ForCausalLM")
    recipe = replace(pair(on_hub("hybrid-mtp"), None, "draft-mtp"),
                     hf=HfModels("org/model", None, n_mtp))  # fmt: skip
    found = findings(written(recipe, home), code=code)["checkpoint"]
    assert found[0] == verdict
    assert "org/model holds 1 MTP layers" in found[1]


def test_offline_the_text_is_checked_and_the_rest_is_said_not_to_be(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(pair(on_hub("target"), on_hub("draft")), home)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    found = findings(path, code=3)
    assert found["schema"][0] == "ok"
    assert found["target"] == ("not checked", "offline: HF_HUB_OFFLINE is set")
    assert found["pair"][0] == "not checked"
    assert hub.asked == []


def test_a_hub_that_cannot_be_reached_is_asked_once(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    path = written(pair(on_hub("target"), on_hub("draft")), home)
    found = findings(path, code=3)
    assert found["target"] == found["draft"]
    assert found["target"][1].startswith("offline: cannot reach the Hub")


def test_files_here_are_compared_with_what_the_recipe_says(
    home: Path, models: dict[str, Path]
) -> None:
    target, draft = here(models["target"]), here(models["draft"])
    assert findings(written(pair(target, draft), home), code=0)["target"][0] == "ok"
    other = replace(target, n_bytes=target.n_bytes + 1)
    assert "another file" in findings(written(pair(other, draft), home), code=1)["target"][1]
    absent = PlacedFile(str(home / "absent.gguf"), 1)
    found = findings(written(pair(absent, draft), home), code=1)
    assert found["target"][0] == "wrong"


def test_a_package_with_another_file_is_wrong(home: Path) -> None:
    packed = PackageFile("tests", "commands.py", "0" * 64)
    found = findings(written(pair(packed, Requantized("target", "Q8_0")), home), code=1)
    assert found["target"][1].startswith("sha256 of commands.py is ")
    absent = PackageFile("no_such_package", "x.gguf", "0" * 64)
    found = findings(written(pair(absent, Requantized("target", "Q8_0")), home), code=3)
    assert found["target"] == ("not checked", "the package no_such_package is not installed")


def test_text_that_is_no_recipe_is_wrong_and_none_is_no_answer(home: Path) -> None:
    (home / "bad.toml").write_text("kind = 3")
    assert findings(home / "bad.toml", code=1)["schema"][0] == "wrong"
    assert findings(home / "absent.toml", code=3)["schema"][0] == "not checked"
    own = home / "config" / "gguftools" / "recipes"
    own.mkdir(parents=True)
    path = written(pair(PlacedFile("t.gguf", 1), None, "ngram"), own)
    path.rename(own / "renamed.toml")
    assert "the file is 'renamed.toml'" in findings("renamed", code=1)["schema"][1]


def test_all_recipes_are_checked_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    done = gguftools("recipe", "check")
    assert done.returncode == 3
    rows = done.stdout.splitlines()[1:]
    assert len(rows) >= 16
    assert not any(" wrong " in row for row in rows), done.stdout


def test_run_downloads_the_files_checks_them_and_answers(hub: Hub, home: Path) -> None:
    digests = {
        name: hashlib.sha256((hub.folder / f"{name}.gguf").read_bytes()).hexdigest()
        for name in ("target", "draft")
    }
    target, draft = (on_hub(name, digest) for name, digest in digests.items())
    recipe = pair(target, draft)
    path = written(recipe, home)
    done = gguftools("recipe", "run", path, "--json")
    assert done.returncode == 0, done.stderr
    answer = valid(done.stdout, RunJSON)
    assert answer["settings"]["draft_max"] == 4
    assert answer["n_tokens"] <= 12
    assert answer["drafter"] == "draft"
    assert answer["n_draft"] > 0
    assert done.stderr.splitlines()[:2] == [
        "gguftools: downloading target.gguf", "gguftools: downloading draft.gguf",
    ]  # fmt: skip
    n_asked = len(hub.asked)
    again = gguftools("recipe", "run", path, "-n", "3", "-p", "Why?", "--stats")
    assert again.returncode == 0
    assert "downloading" not in again.stderr
    assert "tokens/s" in again.stderr
    assert len(hub.asked) == n_asked
    assert findings(path, code=0)["target"] == ("ok", "here, sha256 is right")


def test_run_refuses_a_download_with_another_digest(hub: Hub, home: Path) -> None:
    path = written(pair(on_hub("target", "0" * 64), None, "ngram"), home)
    done = gguftools("recipe", "run", path)
    assert done.returncode == 3
    assert "the recipe says 000000" in done.stderr
    assert done.stdout == ""
    again = gguftools("recipe", "run", path)
    assert again.returncode == 3
    assert "not the file of the recipe: sha256 of target.gguf is " in again.stderr


def test_a_broken_download_is_removed(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = hub.folder / "target.gguf"
    digest = hashlib.sha256(served.read_bytes()).hexdigest()
    path = written(pair(on_hub("target", digest), None, "ngram"), home)
    with monkeypatch.context() as broken:
        broken.setattr("gguftools.recipes.files.sha256_of", lambda *_: "0" * 64)
        done = gguftools("recipe", "run", path)
    assert done.returncode == 3
    assert "the download was broken" in done.stderr
    again = gguftools("recipe", "run", path)
    assert again.returncode == 0, again.stderr
    assert "downloading" in again.stderr


def test_run_refuses_a_file_of_another_size(home: Path, models: dict[str, Path]) -> None:
    other = replace(here(models["target"]), n_bytes=7)
    done = gguftools("recipe", "run", written(pair(other, None, "ngram"), home))
    assert done.returncode == 3
    assert "bytes, not 7: another file" in done.stderr


def test_run_says_what_cannot_be_downloaded(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(pair(on_hub("absent"), None, "ngram"), home)
    done = gguftools("recipe", "run", path)
    assert done.returncode == 3
    assert "no such file in the repository" in done.stderr
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    done = gguftools("recipe", "run", path)
    assert done.returncode == 3
    assert "cannot reach the Hub" in done.stderr
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    done = gguftools("recipe", "run", path)
    assert done.returncode == 3
    assert "HF_HUB_OFFLINE is set" in done.stderr


def test_run_takes_heads_and_makes_copies(home: Path, models: dict[str, Path]) -> None:
    own = written(pair(here(models["hybrid-mtp"]), None, "draft-mtp"), home)
    answer = valid(gguftools("recipe", "run", own, "--json").stdout, RunJSON)
    assert answer["drafter"] == "mtp"
    made = pair(here(models["target"]), Requantized("target", "Q8_0"))
    path = written(made, home)
    assert "one is made from the other" in findings(path, code=0)["pair"][1]
    done = gguftools("recipe", "run", path, "--json")
    assert done.returncode == 0, done.stderr
    assert "writing target.Q8_0.gguf" in done.stderr
    assert len(list((home / "cache").rglob("target.Q8_0.gguf"))) == 1
    again = gguftools("recipe", "run", home / "pair.toml", "--json")
    assert "writing" not in again.stderr
    assert json.loads(again.stdout)["text"] == json.loads(done.stdout)["text"]


def test_run_refuses_what_it_cannot_before_any_download(hub: Hub, home: Path) -> None:
    path = written(pair(on_hub("target"), on_hub("draft"), "draft-eagle3"), home)
    done = gguftools("recipe", "run", path)
    assert done.returncode == 1
    assert "llama-server only" in done.stderr
    assert hub.asked == []
    silent = written(replace(pair(on_hub("target"), None, "ngram"), prompts=()), home)
    assert gguftools("recipe", "run", silent).returncode == 2
    assert gguftools("recipe", "run", silent, "-p", " ").returncode == 2


def test_export_prints_a_command_or_an_object(home: Path) -> None:
    done = gguftools("recipe", "export", "qwen3.6-27b-mtp", "--for", "vllm", "--gpus", "2")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("    --speculative-config '{")
    args = ("qwen3.6-27b-mtp", "--for", "ollama", "--json")
    found = valid(gguftools("recipe", "export", *args).stdout, RecipeExportJSON)
    assert found["text"].startswith("FROM ./Qwen3.6-27B-Q4_K_M.gguf\n")
    assert found["version"] == "Ollama 0.33.0-rc2"


def test_export_refuses_with_the_reason() -> None:
    done = gguftools("recipe", "export", "gemma-4-31b-assistant", "--for", "lmstudio")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "inside the model's file only" in done.stderr


@pytest.mark.parametrize(
    "args",
    [("--for", "emacs"), (), ("--for", "vllm", "--gpus", "-1"),
     ("--for", "llama-server", "--rpc", "host"), ("--for", "llama-server", "--rpc", "a b:1"),
     ("--for", "vllm", "--memory-fraction", "2")],
)  # fmt: skip
def test_export_knows_misuse(args: tuple[str, ...]) -> None:
    assert gguftools("recipe", "export", "smollm2-demo", *args).returncode == 2


def test_export_sizes_wsl_by_the_files(home: Path, models: dict[str, Path]) -> None:
    path = written(pair(here(models["target"]), here(models["draft"])), home)
    assert "memory=5GB" in gguftools("recipe", "export", path, "--for", "wsl2").stdout


@pytest.mark.parametrize("verb", ["list", "show", "check", "run", "export"])
def test_help_has_examples(verb: str) -> None:
    done = gguftools("recipe", verb, "--help")
    assert done.returncode == 0
    assert f"gguftools recipe {verb}" in done.stdout.partition("Examples:")[2]


def test_a_hostile_recipe_cannot_reach_the_terminal(home: Path) -> None:
    evil = "\x1b[2J\x1b]0;gone\x07"
    recipe = replace(pair(PlacedFile(f"{evil}.gguf", 1), None, "ngram"), name=evil, about=evil,
                     notes=(evil,))  # fmt: skip
    path = home / "evil.toml"
    write_recipe(recipe, path)
    for args in (("show",), ("check",), ("run",), ("export", "--for", "vllm")):
        with Terminal([*GGUFTOOLS, "recipe", args[0], str(path), *args[1:]]) as terminal:
            terminal.end()
            assert b"\x1b[2J" not in terminal.shown
            assert b"\x1b]0" not in terminal.shown
