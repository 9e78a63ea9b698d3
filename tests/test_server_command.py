"""The command that starts a llama-server: checked files, its own words, a clean environment."""

from __future__ import annotations

import shlex
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gguftools.errors import EngineError, RefusedError, UsageError
from gguftools.pairing.launch import Launch, Settings
from gguftools.pairing.machine import Machine
from gguftools.pairing.ranking import Question
from gguftools.pairing.server_binary import Server
from gguftools.server.choose import AUTO, NONE, choose
from gguftools.server.command import (
    Wanted,
    at_hand,
    check_port,
    free_port,
    server_argv,
    with_draft_max,
)
from tests.commands import gguftools, python
from tests.test_launch import HELPS, OLD_HELP, dialect_of, program

SETTINGS = Settings(4, 1, 0.5)
WANTED = Wanted(Path("t.gguf"), Path("d.gguf"), ("draft-simple",), SETTINGS, 4096, port=8123)
GIB = 1 << 30


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("gguftools.server.command.usable_cores", lambda: 1 << 20)


def server(build: str = "llama.cpp-2026-08") -> Server:
    return Server(Path("llama-server"), "9 (abc)", dialect_of(build))


def words(wanted: Wanted, build: str = "llama.cpp-2026-08") -> str:
    return shlex.join(server_argv(wanted, server(build), environ={}).argv)


def test_the_whole_command_is_explicit() -> None:
    assert words(WANTED) == (
        "llama-server -m t.gguf --spec-type draft-simple -c 4096 -md d.gguf "
        "--spec-draft-n-max 4 --spec-draft-n-min 1 --spec-draft-p-min 0.5 -np 1 "
        "--host 127.0.0.1 --port 8123 -a t --metrics --slots"
    )
    assert words(replace(WANTED, draft=None, kinds=("draft-mtp",)), "ik_llama.cpp-2026-08") == (
        "llama-server -m t.gguf --spec-type mtp:n_max=4,n_min=1,p_min=0.5 -c 4096 -np 1 "
        "--host 127.0.0.1 --port 8123 --metrics"
    )


def test_both_models_are_placed() -> None:
    gpu = words(replace(WANTED, gpu=True, n_gpu_layers_draft=7, device_draft=("CUDA1",)))
    assert "-ngl 99 -md d.gguf -ngld 99" in gpu
    assert gpu.index("-ngld 7") > gpu.index("-ngld 99")  # the last one counts
    assert "-devd CUDA1" in gpu
    assert "-ngl 5 -ngld 5" in words(replace(WANTED, gpu=True, n_gpu_layers=5))
    assert "-ngl" not in words(WANTED)


def test_threads_are_said_only_where_not_all_cores_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert " -t " not in words(WANTED)
    monkeypatch.setattr("gguftools.server.command.usable_cores", lambda: 3)
    assert " -t 3 " in words(WANTED)
    assert " -t 5 " in words(replace(WANTED, n_threads=5))


@pytest.mark.parametrize(
    ("build", "change", "flag"),
    [
        ("llama.cpp-2026-08", {"extra": ("--draft-max", "4")}, "--draft-max"),
        ("llama.cpp-2026-08", {"extra": ("--cache-reuse", "4")}, "--cache-reuse"),
        ("ik_llama.cpp-2026-08", {"alias": "name"}, "--alias"),
        ("OLD", {"cpu_moe": True}, "--cpu-moe"),
        ("OLD", {"cache_type_k_draft": "q8_0"}, "--cache-type-k-draft"),
    ],
)
def test_an_option_that_the_build_lacks_is_named(
    build: str, change: dict[str, object], flag: str, tmp_path: Path
) -> None:
    found = (
        at_hand(str(program(tmp_path / "server", f"cat <<'E'\n{OLD_HELP}--host H\n--port P\nE")))
        if build == "OLD"
        else server(build)
    )
    with pytest.raises(UsageError, match="has no such option") as caught:
        server_argv(replace(WANTED, **change), found, environ={})  # type: ignore[arg-type]
    assert caught.value.where == flag


@pytest.mark.parametrize("kind", ["draft-eagle3", "draft-mtp", "ngram"])
def test_a_kind_that_the_build_lacks_is_named_with_those_that_it_has(kind: str) -> None:
    with pytest.raises(UsageError, match=f"does not draft with {kind}") as caught:
        server_argv(replace(WANTED, kinds=(kind,)), server("llama.cpp-2025"), environ={})
    assert caught.value.hint == "it drafts with draft-simple"


@pytest.mark.parametrize(
    "word", ["-m", "--model", "--port", "--host", "--spec-type", "-md", "--api-prefix"]
)
def test_what_we_set_ourselves_is_not_taken_after_the_dashes(word: str) -> None:
    with pytest.raises(UsageError, match="set by gguftools itself"):
        server_argv(replace(WANTED, extra=(word, "x")), server(), environ={})


def test_the_environment_neither_changes_nor_breaks_the_launch() -> None:
    environ = {
        "LLAMA_ARG_DRAFT_MAX": "16", "LLAMA_LOG_FILE": "x", "PATH": "/bin", "HF_TOKEN": "secret"
    }  # fmt: skip
    command = server_argv(WANTED, server(), environ=environ)
    assert command.environ == {"PATH": "/bin", "HF_TOKEN": "secret"}
    assert command.notes == (
        "not handed on from the environment: LLAMA_ARG_DRAFT_MAX, LLAMA_LOG_FILE",
    )
    assert server_argv(WANTED, server(), environ={"PATH": "/bin"}).notes == ()


def test_a_key_is_kept_off_the_command_line_where_the_build_allows() -> None:
    keyed = replace(WANTED, api_key="top secret")
    command = server_argv(keyed, server(), environ={"LLAMA_API_KEY": "old"})
    assert "secret" not in " ".join(command.argv)
    assert command.environ == {"LLAMA_API_KEY": "top secret"}
    assert command.line.startswith("LLAMA_API_KEY='top secret' llama-server -m ")
    without = server_argv(WANTED, server(), environ={"LLAMA_API_KEY": "old"})
    assert without.environ == {}
    ik = server_argv(keyed, server("ik_llama.cpp-2026-08"), environ={})
    assert ik.argv[-2:] == ("--api-key", "top secret")
    assert ik.environ == {}


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8123"), ("0.0.0.0", "http://127.0.0.1:8123"),
     ("::1", "http://[::1]:8123"), ("::", "http://[::1]:8123"),
     ("localhost", "http://localhost:8123")],
)  # fmt: skip
def test_the_url_is_one_that_answers_from_here(host: str, url: str) -> None:
    assert server_argv(replace(WANTED, host=host), server(), environ={}).url == url


def test_a_file_called_like_an_option_is_none() -> None:
    assert "-m ./-x.gguf " in words(replace(WANTED, target=Path("-x.gguf")))


def test_a_longer_or_shorter_draft_changes_nothing_else() -> None:
    command = server_argv(WANTED, server(), environ={"PATH": "/bin"})
    longer = with_draft_max(command, 6)
    assert longer.line == command.line.replace("n-max 4", "n-max 6")
    shorter = with_draft_max(command, 1)
    assert "--spec-draft-n-max 1 --spec-draft-n-min 1" in shorter.line
    plain = with_draft_max(longer, 0)
    assert plain.line == (
        "llama-server -m t.gguf --spec-type none -c 4096 -np 1 --host 127.0.0.1 --port 8123 "
        "-a t --metrics --slots"
    )
    assert plain.environ == command.environ


def test_a_free_port_is_free_and_a_taken_one_is_said() -> None:
    port = free_port("127.0.0.1")
    check_port("127.0.0.1", port)
    taken = pytest.raises(EngineError, match="cannot be listened on")
    with socket.create_server(("127.0.0.1", port)), taken:
        check_port("127.0.0.1", port)


@pytest.mark.parametrize("host", ["a.sock", "/tmp/x", "1.2.3.4,::1", "two words"])
def test_what_is_not_one_address_is_misuse(host: str) -> None:
    with pytest.raises(UsageError, match="not one address"):
        free_port(host)


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(EngineError, match="cannot be listened on"):
        free_port("192.0.2.1")


def test_no_server_and_a_wrong_one_are_errors_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"no llama-server was found \(put it on the PATH"):
        at_hand()
    with pytest.raises(EngineError, match="absent: there is no such program"):
        at_hand(str(tmp_path / "absent"))
    with pytest.raises(EngineError, match="does not answer --help"):
        at_hand(str(program(tmp_path / "other", "echo hello")))


def test_a_server_in_this_folder_is_found_by_its_bare_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = program(tmp_path / "mine", f"cat <<'E'\n{OLD_HELP}E")
    monkeypatch.chdir(tmp_path)
    assert at_hand("mine").path == here


QUESTION = Question(machine=Machine(64 * GIB, 64 * GIB, n_cores=8), launch=Launch())


def test_a_pair_that_our_check_refuses_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(RefusedError, match="token texts differ") as caught:
        choose(models["target"], models["stranger"], AUTO, QUESTION, server())
    assert caught.value.hint.startswith("gguftools pair ")
    with pytest.raises(RefusedError, match="no MTP head"):
        choose(models["target"], None, "draft-mtp", QUESTION, server())
    with pytest.raises(RefusedError, match="it is a draft-simple file, not draft-eagle3"):
        choose(models["target"], models["draft"], "draft-eagle3", QUESTION, server())
    with pytest.raises(RefusedError, match="itself made for drafting"):
        choose(models["mtp-sidecar"], None, NONE, QUESTION, server())
    with pytest.raises(UsageError, match="drafts with a file of its own"):
        choose(models["target"], None, "draft-dflash", QUESTION, server())


def test_a_cut_file_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(models["target"].read_bytes()[:-1000])
    with pytest.raises(RefusedError, match="does not load the target"):
        choose(cut, None, NONE, QUESTION, server())
    with pytest.raises(RefusedError, match="does not load the draft"):
        choose(models["target"], cut, AUTO, QUESTION, server())


def test_settings_are_those_of_the_prediction(models: dict[str, Path]) -> None:
    chosen = choose(models["hybrid-mtp"], None, "draft-mtp", QUESTION, server())
    assert chosen.pair is not None
    assert chosen.pair.prediction is not None
    assert chosen.settings is not None
    assert chosen.settings.draft_max == chosen.pair.prediction.draft_max
    assert chosen.kinds == ("draft-mtp",)
    assert chosen.draft is None
    side = choose(models["hybrid"], models["mtp-sidecar"], AUTO, QUESTION, server())
    assert side.kinds == ("draft-mtp",)
    assert side.draft is not None
    both = choose(models["target"], models["draft"], AUTO, QUESTION, server(), ngram_too=True)
    assert both.kinds == ("ngram", "draft-simple")


def test_nothing_drafts_where_nothing_is_expected_to_pay(models: dict[str, Path]) -> None:
    chosen = choose(models["hybrid-mtp"], None, AUTO, QUESTION, server())
    assert chosen.kinds == ()
    assert chosen.settings is None
    assert "nothing drafts: expected to be slower" in chosen.notes[0]
    old = choose(models["hybrid-mtp"], None, AUTO, QUESTION, server("llama.cpp-2025"))
    assert "nothing drafts, as 9 (abc) cannot" in old.notes[0]


def test_the_context_is_the_models_own_for_each_slot(models: dict[str, Path]) -> None:
    for n_parallel in (1, 3):
        launch = Launch(n_parallel=n_parallel)
        chosen = choose(models["target"], None, NONE, replace(QUESTION, launch=launch), server())
        assert chosen.n_ctx == 4096 * n_parallel
    asked = replace(QUESTION, launch=Launch(512))
    assert choose(models["target"], None, NONE, asked, server()).n_ctx == 512


@pytest.mark.parametrize("build", sorted(path.stem for path in HELPS.glob("*.txt")))
def test_print_command_spells_for_the_build_and_starts_nothing(
    build: str, models: dict[str, Path], tmp_path: Path
) -> None:
    help_text = (HELPS / f"{build}.txt").read_text()
    asked = '[ "$1" = --version ] && exit; [ "$1" = --help ] && cat <<"E" && exit'
    body = f'{asked}\n{help_text}E\ntouch "{tmp_path}/started"'
    fake = program(tmp_path / "llama-server", body)
    done = gguftools(
        "serve", models["target"], "--draft", models["draft"], "--server", fake, "--draft-max", 5,
        "--print-command",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    argv = shlex.split(done.stdout)
    assert argv[:3] == [str(fake), "-m", str(models["target"])]
    length = {"ik_llama.cpp-2026-08": "n_max=5", "llama.cpp-2026-08": "--spec-draft-n-max 5"}
    assert length.get(build, "--draft-max 5") in done.stdout
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--eagle3",), 2, "--eagle3 needs --draft FILE"),
        (("--draft", "DRAFT", "--eagle3", "--dflash"), 2, "contradict each other"),
        (("--draft", "DRAFT", "--eagle3", "--mtp"), 2, "no other drafter"),
        (("--no-draft", "--draft-max", "3"), 2, "nothing drafts"),
        (("--no-draft", "--adapt"), 2, "--adapt needs a draft"),
        (("--draft", "DRAFT", "--draft-min", "3", "--draft-max", "2"), 2, "must not be above"),
        (("--draft", "STRANGER"), 1, "token texts differ"),
        (("--recipe", "none-such"), 2, "--recipe names target and draft itself"),
        (("second.gguf",), 2, "one TARGET only"),
        (("--engine", "inprocess", "--print-command"), 2, "--print-command is for --engine server"),
        (("--engine", "inprocess", "--", "--mlock"), 2, "options after -- are for llama-server"),
        (("--port", "70000"), 2, "70000"),
    ],
)
def test_misuse_is_one_line(
    args: tuple[str, ...], code: int, said: str, models: dict[str, Path], tmp_path: Path
) -> None:
    help_text = (HELPS / "llama.cpp-2026-08.txt").read_text()
    fake = program(tmp_path / "llama-server", f"cat <<'E'\n{help_text}E")
    files = {"DRAFT": models["draft"], "STRANGER": models["stranger"]}
    named = [] if "inprocess" in args else ["--server", fake]
    done = gguftools("serve", models["target"], *named, *(files.get(a, a) for a in args))
    assert done.returncode == code
    assert said in done.stderr.splitlines()[-1]
    assert not done.stdout


def test_without_a_target_there_is_nothing_to_serve() -> None:
    done = gguftools("serve")
    assert done.returncode == 2
    assert "no TARGET given" in done.stderr


def test_the_verb_starts_without_heavy_imports() -> None:
    code = (
        "import sys, gguftools.cli.serve, gguftools.server.command, gguftools.server.process;"
        "print(sorted({'numpy','llama_cpp','httpx2','starlette','jinja2'} & set(sys.modules)))"
    )
    assert python("-c", code).stdout == "[]\n"
