"""Any place a model can be: what exists here first, then patterns, folders, the Hub, URLs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from gguftools.cli import main
from gguftools.errors import GGUFToolsError, SourceError
from gguftools.gguf import place
from gguftools.gguf.place import find_models, is_remote, open_model
from gguftools.gguf.repo_files import pick
from tests.commands import GGUFTOOLS
from tests.models.checkpoint import config, head, trunk, write_checkpoint
from tests.models.hub_server import SHA, Hub, Trick, serve
from tests.models.tiny import tiny, write

QWEN = "Qwen3_5ForCausalLM"
SPLIT = ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    write(tiny("qwen35"), path)
    return path


@pytest.fixture
def here(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with models; whoever asks the Hub from it fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no-cache"))
    for name in ("a-Q4_K_M.gguf", "a-Q8_0.gguf", "sub/deep/B.GGUF", "sub/notes.txt", *SPLIT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(model, tmp_path / name)
    return tmp_path


@pytest.fixture
def hub(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub whose repository user/model is the folder."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve(Hub(here)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        yield server
    close_session()


def failure(text: str) -> str:
    with pytest.raises(GGUFToolsError) as caught:
        open_model(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_is_itself(here: Path) -> None:
    assert find_models("a-Q8_0.gguf").places == ("a-Q8_0.gguf",)
    assert not find_models("a-Q8_0.gguf").many
    assert open_model("a-Q8_0.gguf").architecture == "qwen35"


def test_what_exists_here_wins_over_the_hub_and_over_patterns(here: Path, model: Path) -> None:
    for name in ("user/model", "user/model:Q8_0", "hf:/user/model/m.gguf", "x[1]*?.gguf"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(model, here / name)
        assert not is_remote(name)
        assert find_models(name).places == (name,)
        assert open_model(name).path == name


@pytest.mark.parametrize(
    "typo",
    ["absent.gguf", "./user/model", "/user/model", "../user/model", "~/user/model", "sub/absent",
     "sub/absent.gguf", "sub/deep/absent.gguf", "other/absent.gguf", "sub\\absent", "absent", "",
     "a b/c", "a-Q9-00001-of-00003.gguf", "sub/absent:Q8_0", "nul\0"],
)  # fmt: skip
def test_a_typo_never_goes_to_the_hub(here: Path, typo: str) -> None:
    assert not is_remote(typo)
    assert "HF_HUB_OFFLINE" not in failure(typo)


@pytest.mark.parametrize(
    "place",
    ["user/model", "user/model:Q8_0", "hf://user/model", "hf://sub/deep", "user/model/x.gguf",
     "user/model@v1:UD-Q4_K_XL", "user/model/", "hf://user/model@refs/pr/1/x.gguf",
     "https://127.0.0.1/x.gguf", "HTTP://127.0.0.1/x.gguf", "hf://other/absent.gguf"],
)  # fmt: skip
def test_what_is_not_here_and_looks_like_the_hub_is(here: Path, place: str) -> None:
    assert is_remote(place)
    assert "HF_HUB_OFFLINE is set" in failure(place)


@pytest.mark.parametrize(
    "odd", ["hf://", "hf://user", "hf://user/model:", "hf://../x", "hf://user/model/f.gguf:Q8_0",
            "hf://user/mo del", "hf://user/model@", "hf://user/..", "hf://-x/y?z"],
)  # fmt: skip
def test_what_no_place_can_be_is_misuse(here: Path, odd: str) -> None:
    with pytest.raises(GGUFToolsError) as caught:
        open_model(odd)
    assert caught.value.exit_code == 2


def test_a_folder_is_every_model_in_it_and_shards_count_once(here: Path) -> None:
    found = find_models(str(here))
    assert found.many
    names = [name.removeprefix(found.stem) for name in found.places]
    assert names == [
        "a-Q4_K_M.gguf",
        "a-Q8_0.gguf",
        SPLIT[0],
        os.path.join("sub", "deep", "B.GGUF"),
    ]
    (here / SPLIT[0]).unlink()
    assert SPLIT[1] in [os.path.basename(name) for name in find_models(".").places]
    (here / "empty").mkdir()
    assert failure("empty") == "empty: no *.gguf in this folder"
    assert "it holds 4 models: " in failure(".")


def test_a_pattern_is_every_file_it_matches(here: Path) -> None:
    assert find_models("a-*.gguf").places == ("a-Q4_K_M.gguf", "a-Q8_0.gguf")
    assert find_models("big-*").places == (SPLIT[0],)
    assert find_models("**/B*").places == (os.path.join("sub", "deep", "B.GGUF"),)
    assert find_models("a-Q[8]_0.gguf").many
    assert open_model("a-Q[8]_0.gguf").path == "a-Q8_0.gguf"
    assert failure("z*.gguf") == "z*.gguf: no file matches"


def test_a_folder_has_bounds(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "N_FOLDERS_MAX", 2)
    assert "it holds more than 10000 models or 2 folders" in failure(".")
    monkeypatch.setattr(place, "N_MODELS_MAX", 3)
    assert "it holds more than 3 models" in failure(".")
    assert failure("*.gguf") == "*.gguf: it matches more than 3 files"


def test_a_loop_of_links_does_not_catch_the_folder(here: Path) -> None:
    (here / "sub" / "loop").symlink_to(here)
    (here / "dangling.gguf").symlink_to(here / "nowhere")
    assert len(find_models(".").places) == 5


REPO = (
    "BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf", "m-Q2_K.gguf",
    "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-UD-Q4_K_M.gguf", "m-UD-Q4_K_XL.gguf", "m-q8_0.gguf",
    "mmproj-m-Q8_0.gguf", "mtp-m-Q8_0.gguf",
)  # fmt: skip


@pytest.mark.parametrize(
    ("quant", "name"),
    [
        (None, "m-Q4_K_M.gguf"), ("Q4_K_M", "m-Q4_K_M.gguf"), ("q4_k_s", "m-Q4_K_S.gguf"),
        ("UD-Q4_K_XL", "m-UD-Q4_K_XL.gguf"), ("UD-Q4_K_M", "m-UD-Q4_K_M.gguf"),
        ("Q4_K_XL", "m-UD-Q4_K_XL.gguf"), ("Q8_0", "m-q8_0.gguf"),
        ("BF16", "BF16/m-BF16-00001-of-00002.gguf"),
    ],
)  # fmt: skip
def test_a_quantization_picks_the_file_that_llama_cpp_takes(quant: str | None, name: str) -> None:
    assert pick(REPO, quant, "user/m") == name


def test_without_a_quantization_the_preferred_or_the_first_is_taken() -> None:
    assert pick(("m-F16.gguf", "m-Q8_0.gguf"), None, "user/m") == "m-Q8_0.gguf"
    assert pick(("m-F16.gguf", "m-Q2_K.gguf"), None, "user/m") == "m-F16.gguf"
    assert pick(("model.gguf",), None, "user/m") == "model.gguf"


def test_what_a_repository_lacks_is_one_line_with_what_it_has() -> None:
    with pytest.raises(SourceError) as caught:
        pick(REPO, "Q5_K_M", "user/m:Q5_K_M")
    said = "BF16, Q2_K, Q4_K_M, Q4_K_S, UD-Q4_K_M, UD-Q4_K_XL, Q8_0"
    assert str(caught.value) == f"user/m:Q5_K_M: no Q5_K_M there; it has {said}"
    for quant in ("Q4_K", "Q4", ".", "Q4.K.M"):
        with pytest.raises(SourceError, match=r"no .* there; it has"):
            pick(REPO, quant, "user/m")
    with pytest.raises(SourceError, match=r"Q8_0 is ambiguous: a-1B-Q8_0\.gguf, a-7B-Q8_0\.gguf"):
        pick(("a-1B-Q8_0.gguf", "a-7B-Q8_0.gguf"), "Q8_0", "user/m")
    with pytest.raises(SourceError, match=r"no model there; it has only mmproj-x\.gguf"):
        pick(("mmproj-x.gguf",), None, "user/m")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("user/model", "a-Q4_K_M.gguf"),
        ("user/model:q8_0", "a-Q8_0.gguf"),
        ("hf://user/model@main:Q8_0", "a-Q8_0.gguf"),
        ("user/model/sub/deep/B.GGUF", "sub/deep/B.GGUF"),
        ("user/model/sub/", "sub/deep/B.GGUF"),
        ("user/model/*Q8*", "a-Q8_0.gguf"),
        ("{url}/user/model", "a-Q4_K_M.gguf"),
        ("{url}/user/model?library=llama.cpp", "a-Q4_K_M.gguf"),
        ("{url}/user/model/tree/main/sub", "sub/deep/B.GGUF"),
        ("{url}/user/model/blob/main/a-Q8_0.gguf", "a-Q8_0.gguf"),
        ("{url}/user/model/resolve/main/a-Q8_0.gguf?download=true", "a-Q8_0.gguf"),
    ],
)
def test_a_place_on_the_hub_is_one_header(hub: Hub, place: str, name: str) -> None:
    found = open_model(place.format(url=hub.url))
    assert found.architecture == "qwen35"
    assert found.path.endswith(f"/{name}")
    asked = [path for path, wanted in hub.asked if wanted]
    assert len(asked) == 1
    assert "/resolve/" in asked[0]


def test_a_whole_repository_is_a_list(hub: Hub) -> None:
    found = find_models("user/model/")
    names = ["a-Q4_K_M.gguf", "a-Q8_0.gguf", SPLIT[0], "sub/deep/B.GGUF"]
    assert [name.removeprefix(found.stem) for name in found.places] == names
    assert found.stem == "hf://user/model/"
    assert all(open_model(place).path == place for place in found.places[:2])
    assert "it holds 4 models" in failure("user/model/")
    assert "no file matches; it has a-Q4_K_M.gguf" in failure("user/model/z*")
    assert "no Q3_K there; it has Q4_K_M, Q8_0, " in failure("user/model:Q3_K")
    assert "no such repository" in failure("user/other")
    assert "no such revision" in failure("user/model@v9:Q8_0")


def test_offline_the_hubs_cache_is_used(
    here: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = here / "cache" / "models--user--model"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text(SHA)
    (cache / "snapshots" / SHA / "q").mkdir(parents=True)
    shutil.copy(model, cache / "snapshots" / SHA / "q" / "m-Q8_0.gguf")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(here / "cache"))
    for text in ("user/model", "user/model:Q8_0", "hf://user/model/q/m-Q8_0.gguf", "user/model/"):
        assert open_model(text).path == str(cache / "snapshots" / SHA / "q" / "m-Q8_0.gguf")
    assert "no Q4_0 there; it has Q8_0" in failure("user/model:Q4_0")
    assert "HF_HUB_OFFLINE is set" in failure("user/model/absent.gguf")


def test_inspect_shows_a_line_for_every_model(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a-Q8_0.gguf").write_text("hello " * 100)
    assert main(["inspect", "."]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 models in ."
    assert lines[1].split() == ["model", "architecture", "parameters", "quant", "size", "MTP",
                                "head", "verdict"]  # fmt: skip
    assert lines[2].split()[:2] == ["a-Q4_K_M.gguf", "qwen35"]
    assert lines[2].endswith("sound")
    assert "unreadable: not a GGUF file" in lines[3]
    assert len(lines) == 6
    assert main(["inspect", "a-Q8*"]) == 3


def test_inspect_json_of_many_is_one_object(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "user/model/a-*", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "gguftools.inspect-list/1"
    assert [row["path"] for row in found["files"]] == [
        "hf://user/model/a-Q4_K_M.gguf", "hf://user/model/a-Q8_0.gguf"]  # fmt: skip
    assert {row["verdict"] for row in found["files"]} == {"sound"}
    assert {row["mtp"] for row in found["files"]} == {"complete"}


def test_a_repository_without_a_gguf_is_a_checkpoint_or_nothing(
    hub: Hub, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = write_checkpoint(
        here / "made", config(QWEN), {"model.safetensors": trunk(QWEN) | head(QWEN)}
    )
    (here / "none").mkdir()
    (here / "none" / "README.md").write_text("")
    hub.repos = {"user/made": made, "user/none": here / "none"}
    assert main(["inspect", "user/made", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "gguftools.checkpoint/1"
    assert "it holds a checkpoint and no *.gguf" in failure("user/made")
    assert main(["inspect", "user/made", "--deep"]) == 2
    assert failure("user/none:Q8_0") == "user/none:Q8_0: no *.gguf in this repository"


def test_a_folder_of_200_small_models_costs_15_ms_each_at_most(
    here: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "many").mkdir()
    for i in range(200):
        os.link(model, here / "many" / f"{i:03}.gguf")
    start = time.process_time()
    assert main(["inspect", "many"]) == 0
    assert (time.process_time() - start) / 200 < 0.015
    assert capsys.readouterr().out.count("sound") == 200


def test_the_environment_names_hub_token_and_offline(hub: Hub, here: Path) -> None:
    hub.token = "hf_secret"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    env = {**clean, "HF_ENDPOINT": hub.url, "HF_HOME": str(here / "home"), "HF_TOKEN": "hf_secret"}

    def run(**more: str) -> tuple[int, str]:
        done = subprocess.run(
            [*GGUFTOOLS, "inspect", "user/model:Q8_0"],
            check=False, env={**env, **more}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    code, shown = run()
    assert code == 0
    assert "hf://user/model/a-Q8_0.gguf" in shown
    assert set(hub.tokens) == {"Bearer hf_secret"}, hub.asked
    n_asked = len(hub.asked)
    assert run(HF_HUB_OFFLINE="1") == (
        3, "gguftools: error: hf://user/model: HF_HUB_OFFLINE is set "
        "(unset HF_HUB_OFFLINE, or name what is on this machine)\n",
    )  # fmt: skip
    assert len(hub.asked) == n_asked
    code, shown = run(HF_TOKEN="hf_wrong")
    assert (code, "hf_wrong" in shown, shown.count("\n")) == (3, False, 1)


def test_inspect_of_one_remote_model_says_what_it_says_of_the_file(
    hub: Hub, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "user/model:Q8_0", "--json"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert main(["inspect", "a-Q8_0.gguf", "--json"]) == 0
    local = json.loads(capsys.readouterr().out)
    assert there.pop("path") == "user/model:Q8_0"
    assert there.pop("files") == ["hf://user/model/a-Q8_0.gguf"]
    assert there == {k: v for k, v in local.items() if k not in ("path", "files")}
    assert main(["inspect", "user/model:Q8_0", "--deep"]) == 2
    assert main(["inspect", ".", "--deep"]) == 2
    hub.tricks = [Trick(404, body=b"")]
    assert main(["inspect", "user/model:Q8_0"]) == 3
    assert capsys.readouterr().err.count("\n") == 3
