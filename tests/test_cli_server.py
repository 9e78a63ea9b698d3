"""`run` and `chat` with a llama-server: one that they start, and one that runs already."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.commands import ENTERED, GGUFTOOLS, PROMPT, Terminal, gguftools, parsed, python
from tests.fake_llama_server import (
    EVENTS,
    NORMAL,
    FakeServer,
    Fields,
    fails,
    head,
    says,
    sends,
    streams,
)
from tests.models.markov import N_VOCAB, random_chain, write_llama
from tests.models.vocabulary import EOS, IM_END
from tests.running_server import BINARY, needs_llama_server, starter

QUICK = ["-t", "1", "--temp", "0"]
SERVED = ["--engine", "server", "--server", str(BINARY)]
DRAFTED = sends(head(kind="text/plain") + b"llamacpp:spec_decode_num_draft_tokens_total 9\n")
BROKEN = {**NORMAL, "/metrics": DRAFTED, "/completion": streams(*EVENTS[:3], end=False)}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> Iterator[str]:
    """A llama-server that drafts and wants a key."""
    if BINARY is None:
        pytest.skip("no llama-server was built")
    log = tmp_path_factory.mktemp("server") / "log"
    start = starter(log, models["target"], models["draft"], ("draft-simple",), api_key="k3y")
    with start() as running:
        yield running.url


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never ends a reply by itself."""
    chain = random_chain(N_VOCAB, 5)
    chain[:, [EOS, IM_END]] = 0
    chain /= chain.sum(axis=1, keepdims=True)
    path = tmp_path_factory.mktemp("endless") / "endless.gguf"
    return write_llama(path, np.asarray(chain), n_layer=8, n_ctx_train=1 << 15)


def servers_of(pid: int) -> list[psutil.Process]:
    """The llama-servers below a process."""
    try:
        below = psutil.Process(pid).children(recursive=True)
        return [p for p in below if p.name() == "llama-server"]
    except psutil.NoSuchProcess:
        return []


def all_end(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return not alive


@needs_llama_server
def test_a_run_starts_proves_and_stops_a_server(models: dict[str, Path]) -> None:
    run = ["run", models["target"], "--draft", models["draft"], *QUICK, "-p", "abc", "-n", "40"]
    own, theirs = (gguftools(*run, *more, "--json") for more in ([], SERVED))
    assert theirs.returncode == 0, theirs.stderr
    assert "llama-server drafts with draft-simple, up to " in theirs.stderr
    mine, answer = parsed(own.stdout, "run"), parsed(theirs.stdout, "run")
    assert answer["text"] == mine["text"]
    assert answer["token_ids"] == mine["token_ids"]
    assert (answer["drafter"], answer["n_draft"] > 0) == ("draft-simple", True)
    assert (answer["seconds_draft"], answer["n_draft_histogram"]) == (None, {})
    assert servers_of(os.getpid()) == []


@needs_llama_server
def test_a_run_reaches_a_server_that_runs(url: str, models: dict[str, Path]) -> None:
    common = [*QUICK[2:], "-p", "abc", "-n", "40"]
    own = gguftools("run", models["target"], "-t", "1", "--no-draft", *common)
    theirs = gguftools("run", "--url", url, "--api-key", "k3y", *common, "--stats")
    assert (theirs.returncode, theirs.stdout) == (0, own.stdout)
    assert "draft-simple: " in theirs.stderr
    for key in ([], ["--api-key", "other"]):
        done = gguftools("run", "--url", url, *key, *common, "--json")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(f"gguftools: error: {url}: it refuses the request: ")
        assert "--api-key" in done.stderr


@needs_llama_server
def test_a_chat_with_a_server_prints_its_turns(url: str) -> None:
    lines = "abc\n/regen\n/stats\ndef\n/restart\n"
    common = ["chat", "--url", url, "--api-key", "k3y", "--temp", "0", "-n", "10"]
    shown = gguftools(*common, stdin=lines)
    assert shown.returncode == 2  # /restart of what was not started here
    assert "drafting      -" in shown.stdout
    assert shown.stderr.count("tokens/s") == 3
    done = gguftools(*common, "--json", stdin="abc\n/regen\ndef\n")
    value = parsed(done.stdout, "chat")
    turns = value["turns"]
    assert (value["target"], len(turns)) == (url, 3)
    assert turns[0]["text"] == turns[1]["text"]
    assert turns[2]["n_prompt"] > turns[0]["n_prompt"]


@needs_llama_server
def test_ctrl_c_ends_the_reply_and_the_server(endless: Path) -> None:
    run = [*GGUFTOOLS, "run", str(endless), "--no-draft", *SERVED, "-t", "1", "-p", "abc"]
    with Terminal(run) as terminal:
        terminal.wait_for("e")
        started = servers_of(terminal.pid)
        assert len(started) == 1
        terminal.interrupt()
        assert terminal.end() == 130
        assert b"tokens/s" in terminal.shown
        assert b"Traceback" not in terminal.shown
    assert all_end(started)


@needs_llama_server
def test_a_chat_survives_its_server(endless: Path) -> None:
    chat = [*GGUFTOOLS, "chat", str(endless), "--no-draft", *SERVED, *QUICK, "-c", "32768"]
    with Terminal(chat) as terminal:
        seen = terminal.wait_for(PROMPT)
        terminal.send("abc\r")
        seen = terminal.wait_for("e", after=terminal.wait_for(ENTERED, after=seen))
        time.sleep(0.2)
        [server] = servers_of(terminal.pid)
        server.send_signal(signal.SIGKILL)
        seen = terminal.wait_for("llama-server has ended", after=seen)
        seen = terminal.wait_for("/restart starts the server again", after=seen)
        seen = terminal.wait_for(PROMPT, after=seen)
        terminal.send("/restart\r")
        seen = terminal.wait_for(PROMPT, after=seen)
        terminal.send("/regen\r")
        seen = terminal.wait_for("e", after=terminal.wait_for(ENTERED, after=seen))
        time.sleep(0.2)
        terminal.interrupt()
        seen = terminal.wait_for("tokens/s", after=seen)
        seen = terminal.wait_for(PROMPT, after=seen)
        [server] = servers_of(terminal.pid)
        terminal.send("/exit\r")
        assert terminal.end() == 0
        assert b"Traceback" not in terminal.shown
    assert all_end([server])


def test_a_run_in_this_process_needs_no_http_client() -> None:
    heavy = "{'httpx2', 'numpy', 'llama_cpp', 'gguftools.server.client'} & {*sys.modules}"
    code = f"import sys, gguftools.cli.run, gguftools.cli.chat; sys.exit(str({heavy} or 0))"
    done = python("-c", code)
    assert done.stderr == "0\n"


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--draft-max", "4"], "--draft-max does not go with --url"),
        (["--mtp"], "--mtp does not go with --url"),
        (["-c", "100"], "--ctx-size does not go with --url"),
        (["--trace", "t.jsonl"], "--trace does not go with --url"),
        (["--show-drafts"], "--show-drafts does not go with --url"),
        (["--verify", "--temp", "0"], "--verify does not go with --url"),
        (["--server", "x"], "--server does not go with --url"),
        (["--engine", "inprocess"], "--url and --engine inprocess contradict"),
        (["model.gguf"], "TARGET does not go with --url"),
    ],
)
def test_what_a_running_server_cannot_honour_is_misuse(args: list[str], what: str) -> None:
    done = gguftools("run", "--url", "http://127.0.0.1:9", "-p", "x", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["x.gguf", "--engine", "server", "--show-drafts"], "--show-drafts does not go with"),
        (["x.gguf", "--engine", "server", "--verify"], "--verify does not go with --engine server"),
        (["x.gguf", "--api-key", "k"], "--api-key is for --url"),
        (["x.gguf", "--engine", "inprocess", "--server", "s"], "--server and --engine inprocess"),
        ([], "no TARGET given"),
        (["--url", "ftp://host"], "not the address of a server"),
    ],
)
def test_options_of_engines_that_contradict_each_other_are_misuse(
    args: list[str], what: str
) -> None:
    done = gguftools("run", *args, "-p", "x", "--temp", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr


def test_a_server_that_is_not_there_is_one_line(models: dict[str, Path], tmp_path: Path) -> None:
    for args in (
        ["run", "--url", "127.0.0.1:9", "-p", "x"],
        ["chat", "--url", "127.0.0.1:9"],
        ["run", models["target"], "--engine", "server", "--server", tmp_path / "no", "-p", "x"],
    ):
        done = gguftools(*args)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("gguftools: error: ")
        assert done.stderr.count("\n") == 1


def test_a_reply_that_breaks_off_is_printed_as_far_as_it_came() -> None:
    with FakeServer(BROKEN) as server:
        run = ["run", "--url", server.url, "-p", "x"]
        plain, answer = gguftools(*run), gguftools(*run, "--json")
        talk = gguftools("chat", "--url", server.url, "--json", stdin="x\ny\n")
    assert (plain.returncode, plain.stdout) == (3, "one two\n")
    assert plain.stderr.count("gguftools: error: ") == 1
    assert answer.returncode == 3
    value = parsed(answer.stdout, "run")
    assert (value["text"], value["stop_reason"]) == ("one two", "error")
    assert talk.returncode == 3
    assert [turn["text"] for turn in parsed(talk.stdout, "chat")["turns"]] == ["one two"]


def test_a_model_that_is_still_loading_is_waited_for_and_said() -> None:
    loading, ready = fails("503 Service Unavailable", "Loading model"), says({"status": "ok"})
    end = time.monotonic() + 1.6

    def health(fields: Fields) -> Iterator[bytes | None]:
        return ready(fields) if time.monotonic() > end else loading(fields)

    with FakeServer({**NORMAL, "/health": health}) as server:
        done = gguftools("run", "--url", server.url, "-p", "x")
    assert (done.returncode, done.stdout) == (0, "one two\n")
    assert done.stderr.count("the server is loading its model") == 1


def test_what_a_server_writes_cannot_command_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\u202e"
    event = {**EVENTS[1], "content": evil}
    scripts = {**BROKEN, "/completion": streams(event, EVENTS[-1])}
    with FakeServer(scripts) as server:
        done = gguftools("run", "--url", server.url, "-p", "x")
        server.scripts["/completion"] = fails("500 Oops", evil)
        failed = gguftools("run", "--url", server.url, "-p", "x")
    assert (done.returncode, failed.returncode) == (0, 3)
    assert not set(done.stdout + failed.stderr) & set(evil[:1] + evil[-2:])


def test_the_first_reply_says_when_nothing_drafts() -> None:
    plain = says([{"id": 0, "speculative": False, "is_processing": False}])
    with FakeServer({**NORMAL, "/slots": plain}) as server:
        done = gguftools("run", "--url", server.url, "-p", "x")
    assert done.stderr.startswith("gguftools: speculation is OFF: /slots says")
