"""One recipe for every system: right commands, safe words, and reasons where a system cannot."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gguftools.errors import GGUFToolsError, RefusedError, SourceError, UsageError
from gguftools.pairing.dialect import Dialect, unknown_flag
from gguftools.pairing.server_binary import read_server
from gguftools.recipes import (
    Converted,
    HfModels,
    HubFile,
    Needs,
    PackageFile,
    PlacedFile,
    Recipe,
    RecipeSettings,
    Requantized,
    load_recipe,
    recipe_paths,
)
from gguftools.recipes.export import SYSTEMS, export_recipe
from gguftools.recipes.exported import Deployment, Export
from scripts.llama_server import llama_server

SHIPPED = {
    name: load_recipe(path)
    for name, path in recipe_paths().items()
    if path.parent.name == "recipes" and path.parent.parent == Path(__file__).parents[1]
}
# Names of vllm/config/speculative.py at 002e77c1f.
VLLM_KEYS = {"method", "model", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"}
VLLM_METHODS = {"mtp", "draft_model", "eagle3", "dflash", "dspark", "ngram"}
VLLM_FLAGS = {
    "--tensor-parallel-size", "--max-model-len", "--gpu-memory-utilization",
    "--speculative-config", "--distributed-executor-backend",
}  # fmt: skip
# python/sglang/srt/server_args.py at 001067fff.
SGLANG = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK"}
# api/types.go of Ollama 0.33.0-rc2.
OLLAMA_PARAMETERS = {
    "draft_num_predict", "temperature", "num_predict", "num_ctx", "num_thread", "num_gpu",
}  # fmt: skip
ALL_SETTINGS = RecipeSettings(4, 1, 0.5, 0.25, 99, 4096, 9, 2, "q8_0", "q8_0", "q8_0", "q8_0")
NO_SERVER = "no llama-server here: python -m scripts.llama_server builds one"
HOSTILE = [
    "a b", "it's", 'say "hi"', "$(touch pwned)", "`touch pwned`", "a;touch pwned", "-rf", "$PWD",
    "$HEAD", "a\\b", "*", "~", "#x", "a --b", "é",
]  # fmt: skip


def pair(
    kind: str = "draft-simple", target: str = "t.gguf", draft: str | None = "d.gguf"
) -> Recipe:
    """A recipe of two files here."""
    return Recipe(
        "pair", "about", kind,
        PlacedFile(target, 1), None if draft is None else PlacedFile(draft, 1),
        RecipeSettings(4, 1, 0.5, 0.25, 99), ("Why?",), (), {},
        HfModels("org/target", "org/draft" if draft else None),
    )  # fmt: skip


def exported(recipe: Recipe, system: str) -> Export | GGUFToolsError:
    """The export, or why there is none."""
    try:
        return export_recipe(recipe, system, Deployment())
    except GGUFToolsError as err:
        return err


def words(recipe: Recipe, system: str, deployment: Deployment | None = None) -> list[str]:
    """The words of the last command that the export names."""
    text = export_recipe(recipe, system, deployment or Deployment()).text
    return shlex.split(text.replace("\\\n", "").splitlines()[-1])


def options(command: list[str]) -> dict[str, str]:
    """Flags and the words behind them."""
    return {
        word: following
        for word, following in zip(command, [*command[1:], ""], strict=True)
        if word.startswith("-")
    }


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_shipped_recipe_is_exported_or_refused_with_a_reason(name: str, system: str) -> None:
    made = exported(SHIPPED[name], system)
    if isinstance(made, RefusedError):
        assert len(str(made)) > 40
        assert system in ("gguftools", "vllm", "sglang", "ollama", "lmstudio")
    elif isinstance(made, GGUFToolsError):
        assert name == "smollm2-demo"  # its package is not installed
    else:
        assert made.text.strip()
        comments = made.full.removesuffix(made.text).splitlines()
        assert all(line.startswith("# ") for line in comments)
        assert made.version in comments[0]


@pytest.fixture(scope="module")
def dialect(tmp_path_factory: pytest.TempPathFactory) -> Dialect:
    """The flags of the real llama-server."""
    path = llama_server()
    if path is None:
        pytest.skip(NO_SERVER)
    server = read_server(path, cache=tmp_path_factory.mktemp("server") / "known.json")
    assert server is not None
    return server.dialect


@pytest.mark.parametrize("name", SHIPPED)
def test_llama_server_knows_every_flag(name: str, dialect: Dialect) -> None:
    recipe = replace(SHIPPED[name], settings=ALL_SETTINGS)
    if name == "smollm2-demo":  # its package need not be installed
        recipe = pair()
    line = words(recipe, "llama-server", Deployment(gpus=2, rpc=("h:1",), n_ctx=4096))
    assert unknown_flag(line[1:], dialect) is None
    for deployment in (Deployment(gpus=2), Deployment(gpus=0)):
        line = words(recipe, "llama-server", deployment)
        assert unknown_flag(line[1:], dialect) is None


@pytest.mark.parametrize(
    ("target", "draft", "kind"),
    [("target", "draft", "draft-simple"), ("hybrid-mtp", None, "draft-mtp"),
     ("hybrid", "mtp-sidecar", "draft-mtp")],
)  # fmt: skip
def test_what_is_exported_drafts_in_the_real_server(
    models: dict[str, Path], target: str, draft: str | None, kind: str, tmp_path: Path
) -> None:
    path = llama_server()
    if path is None:
        pytest.skip(NO_SERVER)
    recipe = pair(kind, str(models[target]), None if draft is None else str(models[draft]))
    recipe = replace(recipe, settings=RecipeSettings(4, 0, 0.0, 0.0, 12, n_ctx=512, n_threads=1))
    text = export_recipe(recipe, "llama-server", Deployment()).text
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {"PATH": f"{path.parent}{os.pathsep}{os.environ['PATH']}"}
    with (tmp_path / "log").open("wb") as log:
        command = ["sh", "-c", f"exec {text} --port {port}"]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    try:
        ask = b'{"prompt": "a b c a b", "n_predict": 24, "temperature": 0}'
        answer = json.loads(_answer(f"http://127.0.0.1:{port}/completion", ask, server))
    finally:
        server.kill()
        server.wait()
    assert answer["timings"]["draft_n"] > 0, (tmp_path / "log").read_text()


def _answer(url: str, body: bytes, server: subprocess.Popen[bytes]) -> bytes:
    """The answer of a server that may still be loading."""
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, body, timeout=30) as answer:
                return bytes(answer.read())
        except OSError:
            time.sleep(0.05)
    return b'{"timings": {"draft_n": 0}}'


def test_llama_server_gets_all_settings() -> None:
    settings = replace(pair().settings, n_ctx=2048, cache_type_k="q8_0", n_threads=3)
    line = words(replace(pair(), settings=settings), "llama-server")
    found = options(line)
    assert line[0] == "llama-server"
    expected = {
        "-m": "t.gguf", "-md": "d.gguf", "--spec-type": "draft-simple", "-c": "2048",
        "--spec-draft-n-max": "4", "--spec-draft-n-min": "1", "--spec-draft-p-min": "0.5",
        "-ctk": "q8_0", "-t": "3", "--temp": "0.25", "-np": "1",
    }  # fmt: skip
    assert found == expected
    assert options(words(replace(pair(), settings=settings), "llama-cli"))["-n"] == "99"


def test_several_gpus_and_machines_go_to_the_engines_that_have_them() -> None:
    found = options(words(pair(), "llama-server", Deployment(gpus=3)))
    assert (found["-sm"], found["-ts"]) == ("layer", "1,1,1")
    far = Deployment(gpus=2, nodes=2, rpc=("a:1", "b:2"))
    assert options(words(pair(), "llama-server", far))["--rpc"] == "a:1,b:2"
    with pytest.raises(RefusedError, match="--rpc"):
        export_recipe(pair(), "llama-server", Deployment(nodes=2))
    two = Deployment(gpus=4, nodes=2, memory_fraction=0.8, n_ctx=1000)
    vllm = options(words(pair(), "vllm", two))
    assert (vllm["--tensor-parallel-size"], vllm["--gpu-memory-utilization"]) == ("8", "0.8")
    assert (vllm["--max-model-len"], vllm["--distributed-executor-backend"]) == ("1000", "ray")
    assert "--pipeline-parallel-size" not in vllm
    sglang = options(words(pair(), "sglang", two))
    assert (sglang["--tp-size"], sglang["--nnodes"], sglang["--mem-fraction-static"]) == (
        "8", "2", "0.8",
    )  # fmt: skip
    for system in ("gguftools", "ollama", "lmstudio", "wsl2"):
        with pytest.raises(RefusedError, match="over machines"):
            export_recipe(pair("draft-mtp", draft=None), system, Deployment(nodes=2))
    for system in ("vllm", "sglang"):
        with pytest.raises(RefusedError, match="rpc-server"):
            export_recipe(pair(), system, Deployment(rpc=("a:1",)))


@pytest.mark.parametrize(
    ("system", "deployment", "option"),
    [
        ("ollama", Deployment(gpus=2), "--gpus"),
        ("gguftools", Deployment(gpus=2), "--gpus"),
        ("lmstudio", Deployment(gpus=1), "--gpus"),
        ("llama-server", Deployment(memory_fraction=0.5), "--memory-fraction"),
        ("docker", Deployment(memory_fraction=0.5), "--memory-fraction"),
        ("vllm", Deployment(gpus=0), "--gpus 0"),
    ],
)
def test_an_option_that_a_system_cannot_honour_is_misuse(
    system: str, deployment: Deployment, option: str
) -> None:
    with pytest.raises(UsageError, match=f"^{option}: "):
        export_recipe(pair("draft-mtp", draft=None), system, deployment)


def test_no_gpus_leaves_all_on_the_cpu() -> None:
    assert options(words(pair(), "llama-server", Deployment(gpus=0)))["-dev"] == "none"


def speculative_config(recipe: Recipe) -> dict[str, Any]:
    """What vLLM is told."""
    line = words(recipe, "vllm")
    assert set(options(line)) <= VLLM_FLAGS
    said: dict[str, Any] = json.loads(options(line)["--speculative-config"])
    assert said.keys() <= VLLM_KEYS
    assert said["method"] in VLLM_METHODS
    return said


@pytest.mark.parametrize(
    ("kind", "method"),
    [("draft-simple", "draft_model"), ("draft-eagle3", "eagle3"), ("draft-dflash", "dflash"),
     ("draft-dspark", "dspark"), ("draft-mtp", "mtp")],
)  # fmt: skip
def test_vllm_is_told_the_method_and_the_draft(kind: str, method: str) -> None:
    assert speculative_config(pair(kind)) == {
        "method": method, "num_speculative_tokens": 4, "model": "org/draft",
    }  # fmt: skip


def test_vllm_drafts_with_heads_of_the_checkpoint_and_looks_up() -> None:
    own = replace(pair("draft-mtp", draft=None), hf=HfModels("org/target", None, 1))
    assert speculative_config(own) == {"method": "mtp", "num_speculative_tokens": 4}
    lookup = speculative_config(pair("ngram", draft=None))
    assert lookup["method"] == "ngram"
    assert lookup["prompt_lookup_min"] <= lookup["prompt_lookup_max"]


def test_vllm_gets_a_multiple_of_the_heads() -> None:
    three = replace(pair("draft-mtp", draft=None), hf=HfModels("org/target", None, 3))
    assert speculative_config(three)["num_speculative_tokens"] == 3
    assert "a multiple of 3" in export_recipe(three, "vllm", Deployment()).full


@pytest.mark.parametrize("system", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("kind", "hf", "why"),
    [
        ("draft-mtp", HfModels(), "reads no MTP head from a GGUF file"),
        ("draft-mtp", HfModels("org/target", None, 0), "org/target holds no MTP layers"),
        ("draft-simple", HfModels(), "does not draft from GGUF files"),
        ("draft-simple", HfModels("org/target"), "needs the draft's own checkpoint"),
        ("draft-eagle3", HfModels("org/target"), "needs the draft's own checkpoint"),
    ],
)
def test_what_runs_checkpoints_refuses_what_they_do_not_have(
    system: str, kind: str, hf: HfModels, why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        export_recipe(replace(pair(kind), hf=hf), system, Deployment())


@pytest.mark.parametrize(
    ("kind", "algorithm", "flag", "value"),
    [
        ("draft-simple", "STANDALONE", "--speculative-num-draft-tokens", "5"),
        ("draft-eagle3", "EAGLE3", "--speculative-num-steps", "4"),
        ("draft-dflash", "DFLASH", "--speculative-dflash-block-size", "5"),
        ("draft-dspark", "DSPARK", "--speculative-dspark-block-size", "4"),
    ],
)
def test_sglang_is_told_the_algorithm(kind: str, algorithm: str, flag: str, value: str) -> None:
    found = options(words(pair(kind), "sglang"))
    assert algorithm in SGLANG
    assert found["--speculative-algorithm"] == algorithm
    assert found["--speculative-draft-model-path"] == "org/draft"
    assert found[flag] == value


def test_sglang_takes_heads_of_the_checkpoint_only() -> None:
    own = replace(pair("draft-mtp", draft=None), hf=HfModels("org/target", None, 1))
    assert options(words(own, "sglang"))["--speculative-algorithm"] == "NEXTN"
    with pytest.raises(RefusedError, match="of its own"):
        export_recipe(pair("draft-mtp"), "sglang", Deployment())


def modelfile(recipe: Recipe, deployment: Deployment | None = None) -> dict[str, str]:
    """The instructions of a Modelfile by their names."""
    made = export_recipe(recipe, "ollama", deployment or Deployment())
    found = {}
    for line in made.text.splitlines():
        match = re.fullmatch(r"(FROM|DRAFT|PARAMETER (\w+)) (\S.*)", line)
        assert match is not None, line
        assert match[2] is None or match[2] in OLLAMA_PARAMETERS
        found[match[1]] = match[3]
    return found


def test_ollama_drafts_with_heads_and_dflash() -> None:
    found = modelfile(pair("draft-mtp", draft=None))
    assert found["FROM"] == "./t.gguf"
    assert found["PARAMETER draft_num_predict"] == "4"
    assert "DRAFT" not in found
    assert modelfile(pair("draft-dflash"))["DRAFT"] == "./d.gguf"
    assert "0.30.0" in export_recipe(pair("draft-mtp"), "ollama", Deployment()).full
    for kind in ("draft-simple", "draft-eagle3", "draft-dspark", "ngram"):
        with pytest.raises(RefusedError, match="Ollama cannot"):
            export_recipe(pair(kind), "ollama", Deployment())


def test_ollama_takes_a_split_model_as_a_folder() -> None:
    assert modelfile(pair("draft-mtp", "a/t-00001-of-00002.gguf", None))["FROM"] == "./a"
    with pytest.raises(RefusedError, match="folder of its own"):
        export_recipe(pair("draft-mtp", "t-00001-of-00002.gguf", None), "ollama", Deployment())


def test_lmstudio_takes_models_of_the_hub() -> None:
    target, draft = HubFile("u/t", "t.gguf"), HubFile("u/d", "d.gguf")
    both = replace(pair(), target=target, draft=draft)
    made = export_recipe(both, "lmstudio", Deployment(n_ctx=512)).text
    assert made.startswith("lms get https://huggingface.co/u/t --gguf\n")
    found = options(shlex.split(made.replace("\\\n", "").splitlines()[-1]))
    assert found["--speculative-draft-model"] == "u/d/d.gguf"
    assert found["--context-length"] == "512"
    inside = words(replace(both, kind="draft-mtp", draft=None), "lmstudio")
    assert "--speculative-draft-mtp" in inside
    for recipe, why in (
        (replace(both, kind="draft-mtp"), "inside the model's file only"),
        (replace(both, kind="draft-eagle3"), "has no EAGLE-3"),
        (replace(both, kind="ngram"), "no lookup"),
        (pair(), "models from the Hub"),
    ):
        with pytest.raises(RefusedError, match=why):
            export_recipe(recipe, "lmstudio", Deployment())


def test_docker_mounts_the_folders_and_pins_the_image() -> None:
    recipe = pair(target="/models here/t.gguf", draft="sub/d.gguf")
    line = words(recipe, "docker", Deployment(gpus=2))
    assert line[line.index("--gpus") + 1] == "2"
    assert "/models here:/models/0:ro" in line
    assert "$PWD/sub:/models/1:ro" in line  # the shell expands it
    assert line[line.index("-m") + 1] == "/models/0/t.gguf"
    assert line[line.index("-md") + 1] == "/models/1/d.gguf"
    assert "ghcr.io/ggml-org/llama.cpp:server-cuda13-b11434" in line
    assert "--gpus" not in words(recipe, "docker", Deployment(gpus=0))
    with pytest.raises(RefusedError, match="colon"):
        export_recipe(pair(target="/a:b/t.gguf"), "docker", Deployment())


def test_wsl_gets_memory_for_the_files() -> None:
    made = export_recipe(pair(), "wsl2", Deployment(n_bytes=10 << 30))
    assert made.text.splitlines()[:2] == ["[wsl2]", "memory=14GB"]
    assert "llama-server -m t.gguf" in made.full
    unknown = export_recipe(pair(), "wsl2", Deployment())
    assert "memory=" not in unknown.text
    assert "size of the files" in unknown.full


def test_our_own_engine_refuses_what_it_cannot() -> None:
    line = words(pair("draft-mtp", draft=None), "gguftools")
    assert line[:4] == ["gguftools", "run", "t.gguf", "--mtp"]
    assert line[-2:] == ["-p", "Why?"]
    for recipe in (pair("draft-eagle3"), replace(pair(), needs=Needs(engine="llama-server"))):
        with pytest.raises(RefusedError, match="llama-server only"):
            export_recipe(recipe, "gguftools", Deployment())


def test_a_file_of_the_hub_is_downloaded_by_its_name() -> None:
    hub = HubFile("u/r", "q/m-00001-of-00002.gguf", "v1")
    made = export_recipe(replace(pair(), target=hub), "llama-server", Deployment()).text
    first = made.splitlines()[0]
    assert first == (
        "hf download u/r q/m-00001-of-00002.gguf q/m-00002-of-00002.gguf --revision v1 "
        "--local-dir ."
    )
    placed = PlacedFile("hf://u/r@v1/q/m.gguf", 1)
    again = export_recipe(replace(pair(), target=placed), "llama-server", Deployment()).text
    assert again.startswith("hf download u/r q/m.gguf --revision v1 --local-dir .\n")


@pytest.mark.parametrize(
    ("kind", "flag"), [("draft-eagle3", "--target-model-dir target"), ("draft-mtp", "--mtp")]
)
def test_what_nobody_published_is_converted(kind: str, flag: str) -> None:
    recipe = replace(pair(kind), draft=Converted("org/head", "head.gguf"))
    lines = export_recipe(recipe, "llama-server", Deployment()).text.splitlines()
    assert lines[0] == "hf download org/head --local-dir head"
    converting = next(line for line in lines if "convert_hf_to_gguf.py" in line)
    assert converting.endswith(flag)
    assert "--outfile head.gguf" in converting


def test_what_is_not_here_has_no_name() -> None:
    absent = PackageFile("no_such_package", "x.gguf", "0" * 64)
    for recipe in (
        replace(pair(), draft=absent),
        replace(pair(), target=Requantized("draft", "F16"), draft=absent),
    ):
        with pytest.raises(SourceError, match=r"not installed|not here"):
            export_recipe(recipe, "llama-server", Deployment())


def _shell(text: str, program: str, folder: Path) -> list[str]:
    """The words that a shell gives `program` when it runs the text."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    stub = bin_folder / program
    stub.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {shlex.quote(str(folder / 'words'))}\n")
    stub.chmod(0o755)
    run = folder / "run"
    run.mkdir()
    env = {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", text], cwd=run, env=env, check=True)
    assert list(run.iterdir()) == []
    return (folder / "words").read_text().split("\0")[:-1]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("system", ["llama-server", "llama-cli", "gguftools"])
def test_a_shell_gets_hostile_names_as_they_are(system: str, name: str, tmp_path: Path) -> None:
    recipe = replace(pair(target=f"{name}.gguf"), prompts=(f"say {name}\nnow",), name=name)
    made = export_recipe(recipe, system, Deployment())
    given = _shell(made.full, system, tmp_path)
    assert f"{name}.gguf" in given or f"./{name}.gguf" in given
    if system == "gguftools":
        assert given[-1] == f"say {name}\nnow"


@pytest.mark.parametrize("name", HOSTILE)
def test_docker_gets_hostile_names_as_they_are(name: str, tmp_path: Path) -> None:
    recipe = pair(target=f"/{name}/t.gguf", draft=None, kind="ngram")
    if '"' in name:
        with pytest.raises(UsageError):
            export_recipe(recipe, "docker", Deployment())
        return
    given = _shell(export_recipe(recipe, "docker", Deployment()).full, "docker", tmp_path)
    assert f"/{name}:/models/0:ro" in given


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "a\u202eb", "a\rDRAFT x"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_no_format_holds_what_a_terminal_obeys(system: str, name: str) -> None:
    recipe = replace(pair("draft-mtp", target=f"{name}.gguf", draft=None), notes=(name,))
    made = exported(recipe, system)
    # These two name checkpoints of the Hub and no files.
    assert isinstance(made, Export) == (system in ("vllm", "sglang"))
    assert name not in (made.full if isinstance(made, Export) else "")


@pytest.mark.parametrize("name", ['a" b', ' "a', "a #b", "FROM x"])
def test_a_modelfile_cannot_be_broken_out_of(name: str) -> None:
    recipe = pair("draft-mtp", target=f"{name}.gguf", draft=None)
    if '"' in name:
        with pytest.raises(UsageError, match="cannot hold"):
            export_recipe(recipe, "ollama", Deployment())
    else:
        assert modelfile(recipe)["FROM"] == f"./{name}.gguf"


def test_an_unknown_system_is_misuse() -> None:
    with pytest.raises(UsageError, match="there are: llama-server"):
        export_recipe(pair(), "emacs", Deployment())
