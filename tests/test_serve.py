"""`gguftools serve`: with a real llama-server, what it says, proves, adapts, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from gguftools.cli import serve_server
from gguftools.cli.contract_serve import ServeJSON
from gguftools.server.adapt import Measured, better, lengths, measured_of, time_rounds
from gguftools.server.client import Client
from gguftools.server.command import Wanted, server_argv
from gguftools.server.known_bad import bad_builds
from gguftools.server.metrics import Counters
from gguftools.server.process import start
from gguftools.server.traps import Seen
from gguftools.server.watch import Watch, line
from scripts.docs import json_schema
from scripts.llama_server import llama_server
from tests.commands import GGUFTOOLS, gguftools
from tests.test_server_process import WHY, is_there, wait_for

BINARY = llama_server()
SECONDS = 60.0
QUICK = ("-c", "512", "-t", "1", "--", "--no-warmup", "--cache-ram", "0", "-b", "64", "-ub", "64")
PLAIN = {"n_predict": 8, "temperature": 0, "ignore_eos": True}
needs_server = pytest.mark.skipif(BINARY is None, reason=WHY)


@pytest.fixture(autouse=True)
def own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of servers that are killed stay; not beyond the tests."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@contextmanager
def serving(
    *args: object, env: Mapping[str, str] | None = None, quick: tuple[str, ...] = QUICK
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`gguftools serve ARGS --json`, ready; killed at the end if it still runs."""
    words = [*GGUFTOOLS, "serve", *map(str, args), "--json", *quick]
    with started(words, env) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.stderr and process.stderr.read()
        yield process, json.loads(first)


@contextmanager
def started(
    words: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program that finds the real llama-server, killed at the end if it still runs."""
    found = {"LLAMA_SERVER": str(BINARY)} if BINARY is not None else {}
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, **found, **(env or {})},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Exit code and stderr after a signal."""
    process.send_signal(number)
    _, said = process.communicate(timeout=SECONDS)
    return process.returncode, said


def server_pids(url: str) -> list[int]:
    """The processes with that port on their command line."""
    port = url.rpartition(":")[2]
    done = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True
    )
    found = [row for row in done.stdout.splitlines() if f"--port {port} " in row]
    return [int(row.split()[0]) for row in found]


@needs_server
def test_it_serves_with_the_draft_proven_until_it_is_interrupted(models: dict[str, Path]) -> None:
    with serving(models["target"], "--draft", models["draft"], "--draft-max", 3) as (process, told):
        jsonschema.validate(told, json_schema(ServeJSON))
        assert told["drafter"] == "draft-simple"
        assert told["draft"] == str(models["draft"])
        assert told["settings"] == {"draft_max": 3, "draft_min": 0, "draft_p_min": 0.0}
        assert told["proof"]["on"]
        assert 0 < told["proof"]["n_accepted"] <= told["proof"]["n_draft"]
        assert told["model"] == "target"
        answer = httpx2.post(f"{told['url']}/completion", json={"prompt": "abc", **PLAIN}).json()
        assert answer["timings"]["predicted_n"] == 8
        pids = server_pids(told["url"])
        assert len(pids) == 2  # the server and its guard
        code, said = ended(process, signal.SIGINT)
        assert code == 0
        assert "stopping llama-server" in said
        assert not any(map(is_there, pids))
        assert not Path(told["log"]).exists()


@needs_server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_no_server_is_left_when_it_is_ended_in_mid_reply(
    number: signal.Signals, models: dict[str, Path]
) -> None:
    long = {"prompt": "abc", "n_predict": 400, "ignore_eos": True, "stream": True}
    with serving(models["hybrid-mtp"], "--mtp") as (process, told):
        pids = server_pids(told["url"])
        assert told["drafter"] == "draft-mtp"
        assert told["proof"]["on"]
        with httpx2.stream("POST", f"{told['url']}/completion", json=long, timeout=9) as reply:
            next(reply.iter_lines())
            process.send_signal(number)
            process.wait(SECONDS)
        assert process.returncode == (-9 if number == signal.SIGKILL else 0)
        assert wait_for(lambda: not any(map(is_there, pids)))


@needs_server
def test_two_hundred_requests_of_eight_clients_each_get_their_own_reply(
    models: dict[str, Path],
) -> None:
    """And a client that is gone in mid-reply takes nothing with it."""
    asked = {"n_predict": 24, "temperature": 0, "ignore_eos": True}
    args = (models["target"], "--draft", models["draft"], "--draft-max", 3, "-np", 2)
    with serving(*args) as (process, told), httpx2.Client(timeout=SECONDS) as http:
        url = f"{told['url']}/completion"

        def reply(prompt: str) -> tuple[str, int]:
            answer = http.post(url, json={"prompt": prompt, **asked}).json()
            return answer["content"], answer["timings"]["predicted_n"]

        prompts = [chr(ord("a") + i) * (i + 1) for i in range(8)]
        alone = {prompt: reply(prompt) for prompt in prompts}
        assert len(set(alone.values())) > 1
        with ThreadPoolExecutor(8) as clients:
            found = list(clients.map(lambda i: (prompts[i % 8], reply(prompts[i % 8])), range(200)))
        assert [said for _, said in found] == [alone[prompt] for prompt, _ in found]
        long = {"prompt": "abc", **asked, "n_predict": 400, "stream": True}
        with http.stream("POST", url, json=long) as stream:
            next(stream.iter_lines())
        assert reply(prompts[0]) == alone[prompts[0]]
        assert ended(process, signal.SIGINT)[0] == 0


@needs_server
def test_a_key_a_port_and_an_environment_that_would_break_it(models: dict[str, Path]) -> None:
    env = {"LLAMA_ARG_DRAFT_MAX": "16", "LLAMA_ARG_PORT": "1", "LLAMA_API_KEY": "secret"}
    with serving(models["target"], "--no-draft", env=env) as (process, told):
        assert "LLAMA_ARG_DRAFT_MAX, LLAMA_ARG_PORT" in told["notes"][0]
        assert told["proof"]["on"] is False
        assert told["drafter"] == "none"
        assert "secret" not in json.dumps(told)
        url = f"{told['url']}/v1/completions"
        body = {"prompt": "a", "max_tokens": 2}
        assert httpx2.post(url, json=body).status_code == 401
        key = {"Authorization": "Bearer secret"}
        assert httpx2.post(url, json=body, headers=key).status_code == 200
        port = told["url"].rpartition(":")[2]
        again = gguftools("serve", models["target"], "--no-draft", "--port", port, "--server",
                          str(BINARY))  # fmt: skip
        assert again.returncode == 3
        assert "cannot be listened on" in again.stderr
        assert ended(process, signal.SIGTERM)[0] == 0


@needs_server
def test_a_server_that_dies_in_service_is_said_with_its_cause(models: dict[str, Path]) -> None:
    with serving(models["target"], "--no-draft") as (process, told):
        real = [pid for pid in server_pids(told["url"]) if os.getpgid(pid) == pid][-1]
        os.kill(real, signal.SIGSEGV)
        _, said = process.communicate(timeout=SECONDS)
        assert process.returncode == 3
        assert "llama-server has ended: it crashed (segmentation fault)" in said
        assert Path(told["log"]).exists()


@needs_server
def test_a_draft_that_is_not_used_is_off_and_why(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own check refuses such a pair, so it is put past it."""
    from contextlib import ExitStack

    from gguftools.cli.serve_options import ServeOptions
    from gguftools.cli.serve_server import Served
    from gguftools.cli.server_start import ServerPlan
    from gguftools.gguf.source import open_gguf
    from gguftools.pairing.launch import Settings
    from gguftools.pairing.machine import Machine
    from gguftools.server.choose import Choice
    from gguftools.server.command import at_hand

    kinds = ("draft-simple",)
    wanted = Wanted(models["target"], models["stranger"], kinds, Settings(3, 0, 0.0), 512)
    choice = Choice(open_gguf(models["target"]), open_gguf(models["stranger"]), kinds,
                    wanted.settings, 512, None)  # fmt: skip
    plan = ServerPlan(choice, server_argv(wanted, at_hand(str(BINARY))), Machine(None, None))
    options = ServeOptions("server", None, None, None, 1, False, "127.0.0.1", 0, None, None, None,
                           32, False, False)  # fmt: skip
    with ExitStack() as stack:
        served = Served(plan, options, stack)
        served.start()
        assert not served.proof.on
        assert "the draft is not used" in served.proof.why
        assert served._verdict()[0].startswith("OFF: ")


@needs_server
def test_the_page_for_people_says_on(models: dict[str, Path]) -> None:
    files = (str(models["hybrid"]), "--draft", str(models["mtp-sidecar"]))
    words = [*GGUFTOOLS, "serve", *files, *QUICK]
    with started(words) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(6)]
        assert any("Ctrl-C stops it" in each for each in iter(process.stderr.readline, ""))
        code, _ = ended(process, signal.SIGINT)
    assert code == 0
    page = "".join(lines)
    assert re.search(r"^url +http://127\.0\.0\.1:\d+/v1$", page, re.MULTILINE)
    assert f"draft-mtp, {models['mtp-sidecar']}" in page
    assert re.search(r"^speculation +ON: \d+ of \d+ drafted tokens accepted", page, re.MULTILINE)


@needs_server
def test_a_recipe_brings_files_kind_and_lengths(models: dict[str, Path], tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    target, draft = (models[name] for name in ("target", "draft"))
    recipe.write_text(f"""
name = "mine"
about = "a test"
kind = "draft-simple"
tasks = []
prompts = []
[target]
place = "{target}"
n_bytes = {target.stat().st_size}
[draft]
place = "{draft}"
n_bytes = {draft.stat().st_size}
[settings]
draft_max = 5
draft_min = 1
draft_p_min = 0.25
temp = 0.5
n_predict = 64
[tested-with]
""")
    shown = gguftools("serve", "--recipe", recipe, "--server", BINARY, "--print-command", "--",
                      "--no-warmup")  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert f"-m {target} --spec-type draft-simple -c 4096 -md {draft} --spec-draft-n-max 5" in (
        shown.stdout
    )
    assert "--spec-draft-n-min 1 --spec-draft-p-min 0.25 -np 1" in shown.stdout
    assert shown.stdout.endswith("--temp 0.5 --no-warmup\n")
    assert "-a mine " in shown.stdout
    other = gguftools("serve", "--recipe", recipe, "--server", BINARY, "--print-command",
                      "--draft-max", "2", "--temp", "0")  # fmt: skip
    assert "--spec-draft-n-max 2 --spec-draft-n-min 1" in other.stdout
    assert "--temp 0 " in other.stdout
    assert "0.5" not in other.stdout
    recipe.write_text(recipe.read_text() + '[needs]\nengine = "gguftools"\n')
    refused = gguftools("serve", "--recipe", recipe, "--server", BINARY, "--print-command")
    assert refused.returncode == 2
    assert "this recipe needs --engine inprocess" in refused.stderr


def test_our_own_engine_serves_too(models: dict[str, Path]) -> None:
    args = (models["target"], "--draft", models["draft"], "--engine", "inprocess", "-c", "512")
    with serving(*args, quick=()) as (process, told):
        jsonschema.validate(told, json_schema(ServeJSON))
        assert (told["engine"], told["drafter"], told["n_ctx"]) == ("inprocess", "draft", 512)
        assert told["proof"] is None
        listed = httpx2.get(f"{told['url']}/v1/models").json()
        assert [model["id"] for model in listed["data"]] == ["target"]
        answer = httpx2.post(f"{told['url']}/v1/completions", timeout=SECONDS,
                            json={"model": "target", "prompt": "ab", "max_tokens": 4})  # fmt: skip
        assert answer.json()["usage"]["completion_tokens"] <= 4
        assert ended(process, signal.SIGTERM)[0] == 0


COUNTED = Counters(10, 0.1, 100, 2.0, 60, 30, 20, (15, 10, 5))


def test_a_line_says_how_the_drafts_fare() -> None:
    assert line(COUNTED) == (
        "100 tokens at 50.0 tokens/s, 50% of 60 drafted tokens accepted, 1.4 tokens per pass"
    )
    plain = Counters(10, 0.1, 100, 0.0, 0, 0, 0, ())
    assert line(plain) == "100 tokens, nothing drafted"


class Page:
    """A server's /metrics, one after the other."""

    def __init__(self, *pages: Counters | None) -> None:
        self.pages = list(pages)

    def metrics(self) -> Counters | None:
        return self.pages.pop(0)

    def slots(self) -> None:
        return None


def counted(n: int) -> Counters:
    """After n rounds of 8 tokens drafted and none accepted."""
    return Counters(0, 0.0, n, n / 10, 8 * n, 0, n, (0,))


def test_each_trap_is_said_once_and_silence_is_not_said() -> None:
    seen = Seen(kind="draft-simple", n_max=8, p_min=0.0)
    page = Page(counted(0), counted(0), counted(50), counted(100), None)
    watch = Watch(page, seen)  # type: ignore[arg-type]
    assert list(watch.look()) == []
    said = list(watch.look())
    assert (
        said[0]
        == "50 tokens at 10.0 tokens/s, 0% of 400 drafted tokens accepted, 1.0 tokens per pass"
    )
    assert any("n-max 8 with p-min 0" in each for each in said)
    assert [each[:9] for each in watch.look()] == ["50 tokens"]
    assert list(watch.look()) == []


def test_what_is_skipped_is_not_said() -> None:
    page = Page(counted(0), counted(90), counted(90), counted(100))
    watch = Watch(page, Seen())  # type: ignore[arg-type]
    watch.skip()
    assert list(watch.look()) == []
    assert next(iter(watch.look())).startswith("10 tokens")


def test_a_restarted_server_is_no_negative_speed() -> None:
    watch = Watch(Page(counted(50), counted(10)), Seen())  # type: ignore[arg-type]
    assert list(watch.look()) == []


SECONDS_OF = {0: 1.0, 1: 1.2, 2: 1.4, 4: 2.4}


def test_a_shorter_draft_wins_where_the_last_tokens_cost_more_than_they_bring() -> None:
    measured = Measured(4, SECONDS_OF, (0.8, 0.6, 0.1, 0.05), 4.0)
    assert measured.speed(0) == 1.0
    assert measured.speed(2) == pytest.approx(2.4 / 1.4)
    assert measured.speed(4) == pytest.approx(2.55 / 2.4)
    assert better(measured) == 2


def test_plain_decoding_wins_where_nothing_is_kept() -> None:
    assert better(Measured(4, SECONDS_OF, (0.1, 0.01), 4.0)) == 0
    assert better(Measured(4, SECONDS_OF, (), 4.0)) == 0


def test_a_gain_of_less_than_five_percent_is_not_worth_a_restart() -> None:
    measured = Measured(2, {0: 1.0, 1: 1.0, 2: 1.04}, (0.5, 0.0), 2.0)
    assert measured.speed(1) / measured.speed(2) == pytest.approx(1.04)
    assert better(measured) is None
    assert better(Measured(2, {0: 1.0, 1: 1.0, 2: 1.06}, (0.5, 0.0), 2.0)) == 1


def test_drafts_that_stop_by_themselves_cost_what_they_are_long() -> None:
    """At n-max 4 with drafts of 1.5 tokens on average a round costs as one of 1.5."""
    measured = Measured(4, SECONDS_OF, (0.8, 0.3, 0.1, 0.1), 1.5)
    assert measured.speed(4) == pytest.approx(2.3 / 1.3)
    assert better(measured) is None


def test_the_lengths_that_are_measured_are_few_and_hold_both_ends() -> None:
    assert [lengths(n) for n in (1, 2, 3, 8)] == [(0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 2, 5, 8)]


def test_too_few_rounds_decide_nothing() -> None:
    few = Counters(0, 0.0, 99, 1.0, 99, 0, 99, ())
    enough = Counters(0, 0.0, 100, 1.0, 150, 75, 100, (50, 25))
    assert measured_of(2, {0: 1.0, 2: 1.5}, few) is None
    assert measured_of(2, {0: 1.0}, enough) is None  # its own length could not be timed
    found = measured_of(2, {0: 1.0, 2: 1.5}, enough)
    assert found == Measured(2, {0: 1.0, 2: 1.5}, (0.5, 0.25), 1.5)


@needs_server
def test_rounds_of_every_length_are_timed_on_a_running_server(models: dict[str, Path]) -> None:
    from gguftools.pairing.launch import Settings
    from gguftools.server.command import at_hand

    extra = QUICK[QUICK.index("--") + 1 :]
    wanted = Wanted(models["target"], models["target"], ("draft-simple",), Settings(3, 0, 0.0), 512,
                    n_threads=1, extra=extra)  # fmt: skip
    asked = iter([False] * 3 + [True] * 9)
    made = server_argv(wanted, at_hand(str(BINARY)))
    with start(made, say=lambda text: None) as running, Client(running.url) as client:
        seconds = time_rounds(client, 3, lambda: False)
        assert seconds is not None
        assert set(seconds) == {0, 1, 2, 3}
        assert all(value > 0 for value in seconds.values())
        assert time_rounds(client, 3, lambda: next(asked)) is None  # somebody else asked


@needs_server
def test_adapt_restarts_once_at_a_better_length(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A draft as large as its target never pays: plain decoding is better."""
    program = (
        "import sys\nfrom gguftools.cli import main, serve_server\n"
        "serve_server.SECONDS_BETWEEN_LOOKS = 0.3\nsys.exit(main(sys.argv[1:]))\n"
    )
    words = [sys.executable, "-c", program, "serve", str(models["target"]), "--draft",
             str(models["draft"]), "--adapt", "--json", "--draft-max", "6", *QUICK]  # fmt: skip
    body = {"prompt": "abc", "n_predict": 150, "temperature": 1.0, "ignore_eos": True}
    with started(words) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = json.loads(process.stdout.readline())["url"]
        for seed in range(8):
            httpx2.post(f"{url}/completion", json={**body, "seed": seed}, timeout=SECONDS)
        said: list[str] = []
        while not said or not said[-1].endswith((" again\n", " stays\n")):
            said.append(process.stderr.readline())
            assert said[-1], "".join(said)
        text = "".join(said)
        assert "--adapt: tokens/s by draft length: plain" in text, text
        assert text.count("restarting llama-server") <= 1
        answer = httpx2.post(f"{url}/completion", json={"prompt": "abc", **PLAIN}, timeout=SECONDS)
        assert answer.json()["timings"]["predicted_n"] == 8  # on the port it had before
        assert ended(process, signal.SIGINT)[0] == 0
    assert server_pids(url) == []


def test_bad_builds_are_known_by_number_and_backend() -> None:
    assert any("b10428" in what for what in bad_builds(10432, "cuda"))
    assert not any("b10428" in what for what in bad_builds(10432, "vulkan"))
    assert not any("b10428" in what for what in bad_builds(11434, "cuda"))
    assert list(bad_builds(11434, "cpu")) == []


def test_looks_are_not_too_close() -> None:
    assert serve_server.SECONDS_BETWEEN_LOOKS >= 10
