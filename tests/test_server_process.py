"""A llama-server of ours starts or says why not, and ends with us, however we end."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gguftools.errors import EngineError
from gguftools.pairing.dialect import Dialect
from gguftools.pairing.launch import Settings
from gguftools.pairing.server_binary import Server
from gguftools.server import failure as failures
from gguftools.server import guard
from gguftools.server.command import Command, Wanted, free_port, server_argv
from gguftools.server.failure import failure, why_off
from gguftools.server.process import RunningServer, is_healthy, start
from scripts.llama_server import llama_server
from tests.test_launch import program

WHY = "no llama-server here: python -m scripts.llama_server builds one"
SECONDS = 20.0
LOCAL = "127.0.0.1"

# A server that does the least: answers /health on the port after --port.
HEALTHY = f"""#!{sys.executable}
import http.server, signal, sys, os, time
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
port = int(sys.argv[sys.argv.index("--port") + 1])
print("main: loading model", flush=True)
"""
SERVE = 'http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()\n'


def script(path: Path, *lines: str) -> Path:
    path.write_text(HEALTHY + "".join(f"{line}\n" for line in lines) + SERVE)
    path.chmod(0o755)
    return path


def command(path: Path, port: int = 0) -> Command:
    """The command for a fake that takes everything."""
    wanted = Wanted(Path("t.gguf"), None, (), None, 512, port=port)
    return server_argv(wanted, Server(path, "", Dialect()), environ=dict(os.environ))


def wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not (done := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return done


def is_there(pid: int) -> bool:
    """Whether a process is still running; one that nobody has waited for yet is not."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False)
    return done.stdout.strip() not in (b"",) and not done.stdout.startswith(b"Z")


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The guard is a file run by itself: a copy of it has less patience."""
    text = Path(guard.__file__).read_text()
    assert "SECONDS_GRACE = 10.0" in text
    copy = tmp_path / "guard.py"
    copy.write_text(text.replace("SECONDS_GRACE = 10.0", "SECONDS_GRACE = 0.5"))
    monkeypatch.setattr(guard, "__file__", str(copy))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def silent(text: str) -> None:
    """Nothing to say."""


def test_it_answers_when_start_returns_and_is_gone_after_close(tmp_path: Path) -> None:
    with start(command(script(tmp_path / "s")), log=tmp_path / "log", say=silent) as running:
        assert is_healthy(running.command)
        alive = [running.alive]
        assert running.pid is not None
        assert is_there(running.pid)
        assert "loading model" in running.log_text()
    assert [*alive, running.alive] == [True, False]
    assert running.exit_code == -signal.SIGTERM
    assert running.pid is not None
    assert not is_there(running.pid)
    assert (tmp_path / "log").exists()


def test_its_private_log_goes_with_it_and_stays_after_a_failure(tmp_path: Path) -> None:
    with start(command(script(tmp_path / "s")), say=silent) as running:
        folder = running.log.parent
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()
    with pytest.raises(EngineError) as caught:
        start(command(program(tmp_path / "f", "echo why; exit 3")), say=silent)
    log = Path(str(caught.value).rpartition("its log: ")[2].rstrip(")"))
    assert log.read_text() == "why\n"


LOGS = [
    ("check_tensor_dims: tensor 'blk.4.nextn.eh_proj.weight' not found", 1,
     "the file lacks the tensor blk.4.nextn.eh_proj.weight"),
    ("llama_init_from_model: context type MTP requested but model doesn't contain MTP layers\n"
     "srv    load_model: failed to create MTP context", 1, "the file has no MTP layers"),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc "
     "failed: out of memory\nllama_model_load: error loading model: unable to allocate CUDA0 "
     "buffer", 1, "out of memory on the GPU"),
    ("ggml_aligned_malloc: insufficient memory\nllama_kv_cache: failed to allocate buffer for kv "
     "cache", 1, "out of memory"),
    ("start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", 1,
     "its port is taken"),
    ('error while handling argument "--draft-max": the argument has been removed. use '
     "--spec-draft-n-max or --spec-ngram-mod-n-max", 1, "has removed the option --draft-max"),
    ('error while handling environment variable "LLAMA_ARG_DRAFT_MAX": the argument has been '
     "removed", 1, "the environment variable LLAMA_ARG_DRAFT_MAX"),
    ("error: invalid argument: --made-up", 1, "does not know the option --made-up"),
    ("llama_model_load: error loading model: unknown model architecture: 'qwen9'", 1,
     "does not know the architecture qwen9"),
    ("x/llama-model.cpp:12: GGML_ASSERT(layer.nextn.eh_proj && \"MTP block missing nextn.eh_proj\""
     ") failed", -6, "has no nextn.eh_proj"),
    ("a.cpp:9: GGML_ASSERT(n_tokens_all <= cparams.n_batch) failed", -6,
     "llama.cpp aborted: n_tokens_all <= cparams.n_batch"),
    ("llama_model_load: error loading model: tensor 'blk.0.ffn_up.weight' data is not within the "
     "file bounds, model is corrupted or incomplete", 1, "cut short at blk.0.ffn_up.weight"),
    ("srv    load_model: failed to load draft model, 'd.gguf'", 1, "cannot load the draft d.gguf"),
    ("", -11, "segmentation fault"),
    ("", -4, "instructions that this CPU lacks"),
    ("", -9, "it was killed"),
    ("0.00.123.456 I something\n\n", 7, "exit code 7, its last line is: something"),
    ("", 7, "exit code 7"),
    ("", -62, "signal 62 ended it"),
]  # fmt: skip


@pytest.mark.parametrize(("log", "code", "said"), LOGS)
def test_the_log_tells_the_cause(log: str, code: int, said: str) -> None:
    noise = "load_tensors: loading model tensors, this can take a while...\n" * 3
    assert said in failure(f"{noise}{log}\n{noise}" if log else "", code).what or (
        said in failure(log, code).what
    )


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("the target and draft vocabs are not compatible", "the draft is not used"),
        ("failed to initialize speculative decoding context: draft model vocab type must match "
         "target model to use speculation", "its tokenizer check refuses the draft"),
        ("speculative decoding not supported by this context", "takes no rejected tokens back"),
        ("failed to initialize speculative decoding context: no reason",
         "the draft is not used: no reason"),
        ("all is well", ""),
    ],
)  # fmt: skip
def test_the_log_tells_why_a_server_runs_without_a_draft(log: str, said: str) -> None:
    found = why_off(f"I spec x: {log}\nmodel loaded\n")
    assert said in found
    assert bool(said) == bool(found)


def test_every_cause_is_a_pattern_with_at_most_one_place_for_what_it_found() -> None:
    for pattern, what, _hint in failures._CAUSES:
        assert what.count("{}") <= 1
        assert ("{}" in what) == (re.compile(pattern).groups > 0), pattern


def test_a_server_that_dies_at_the_start_is_one_line_with_the_cause(tmp_path: Path) -> None:
    body = "echo \"check_tensor_dims: tensor 'blk.0.x' not found\" >&2; exit 1"
    with pytest.raises(EngineError, match=r"start: the file lacks the tensor blk\.0\.x") as e:
        start(command(program(tmp_path / "s", body)), log=tmp_path / "log", say=silent)
    assert "\n" not in str(e.value)
    assert str(tmp_path / "log") in str(e.value)


def test_a_server_that_a_signal_ends_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="segmentation fault"):
        start(command(program(tmp_path / "s", "kill -SEGV $$")), log=tmp_path / "l", say=silent)


@pytest.mark.parametrize("kind", ["absent", "no program"])
def test_what_cannot_be_started_is_said(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    if kind != "absent":
        path.write_text("no program")
    with pytest.raises(EngineError, match="it cannot be started"):
        start(command(path), log=tmp_path / "log", say=silent)


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    n_open = len(os.listdir("/dev/fd"))
    with pytest.raises(EngineError, match=r"absent/log: No such file"):
        start(command(script(tmp_path / "s")), log=tmp_path / "absent" / "log", say=silent)
    assert len(os.listdir("/dev/fd")) == n_open


def test_a_server_that_hangs_without_a_word_is_stopped(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    hang = program(tmp_path / "s", f"echo $$ > {pids}; echo loading; exec sleep 60")
    with pytest.raises(EngineError, match=r"has said nothing for 0\.5 s"):
        start(command(hang), log=tmp_path / "log", say=silent, seconds_quiet=0.5)
    assert not is_there(int(pids.read_text()))


def test_the_time_limit_starts_anew_with_every_line_of_the_log(tmp_path: Path) -> None:
    slow = script(
        tmp_path / "s", "for i in range(12): print('loading', i, flush=True); time.sleep(0.15)"
    )
    with start(command(slow), log=tmp_path / "log", say=silent, seconds_quiet=1.2) as running:
        assert "loading 11" in running.log_text()


def test_a_long_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gguftools.server.process._SECONDS_SAID", 0.2)
    said: list[str] = []
    start(command(script(tmp_path / "s", "time.sleep(0.7)")), log=tmp_path / "l", say=said.append
          ).close()  # fmt: skip
    assert said
    assert said[0].startswith("llama-server is loading, ")


def test_a_taken_port_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match="cannot be listened on"):
            start(command(tmp_path / "absent", port), log=tmp_path / "log", say=silent)


def test_another_server_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    """It bound the port between our check and our server's start, and answers /health."""
    port = free_port(LOCAL)
    ours = program(tmp_path / "s", f"echo couldnt; {tmp_path / 'other'} --port {port} & sleep 1;"
                   f"echo \"couldn't bind HTTP server socket\"; exit 1")  # fmt: skip
    script(tmp_path / "other")
    running = RunningServer(command(ours, port), tmp_path / "log")
    try:
        assert wait_for(lambda: not running.alive)
        assert running.cause().startswith("its port is taken (--port 0 takes a free one; its log: ")
    finally:
        running.close()
    assert wait_for(lambda: not is_healthy(running.command))  # the other one was in its group


def test_a_server_that_ignores_sigterm_is_killed_after_a_grace(tmp_path: Path) -> None:
    stubborn = script(tmp_path / "s", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    running = start(command(stubborn), log=tmp_path / "log", say=silent)
    running.close()
    assert running.exit_code == -signal.SIGKILL
    assert not is_healthy(running.command)


def test_what_the_server_started_itself_ends_too(tmp_path: Path) -> None:
    child = tmp_path / "child"
    lines = f"import subprocess; p = subprocess.Popen(['sleep', '60']); open({str(child)!r}, 'w')"
    with start(command(script(tmp_path / "s", f"{lines}.write(str(p.pid))")), log=tmp_path / "log",
               say=silent):  # fmt: skip
        assert wait_for(lambda: child.exists() and child.read_text() != "")
        pid = int(child.read_text())
        assert is_there(pid)
    assert wait_for(lambda: not is_there(pid))


def test_the_cause_of_a_death_in_service_is_known(tmp_path: Path) -> None:
    with start(command(script(tmp_path / "s")), log=tmp_path / "log", say=silent) as running:
        assert running.pid is not None
        os.kill(running.pid, signal.SIGABRT)
        assert wait_for(lambda: not running.alive)
        assert running.cause().startswith("it aborted (its log: ")
    assert not is_healthy(running.command)


def test_a_killed_guard_does_not_leave_a_server(tmp_path: Path) -> None:
    running = start(command(script(tmp_path / "s")), log=tmp_path / "log", say=silent)
    running._guard.kill()
    assert wait_for(lambda: not running.alive)
    assert running.pid is not None
    pid = running.pid
    assert wait_for(lambda: not is_there(pid))
    running.close()


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    running = start(command(script(tmp_path / "s")), log=tmp_path / "log", say=silent)
    n_open = len(os.listdir("/dev/fd"))
    running.close()
    running.close()
    assert len(os.listdir("/dev/fd")) == n_open - 2  # the ends of two pipes


def test_a_huge_log_is_read_at_both_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start(command(script(tmp_path / "s")), log=log, say=silent) as running:
        with log.open("ab") as file:
            file.write(b"x" * (2 << 20) + b"\nthe end\n")
        text = running.log_text()
    assert len(text) < 1 << 20
    assert text.startswith("main: loading model")
    assert text.endswith("the end\n")


PARENT = """
import sys, time
from pathlib import Path
from tests.test_server_process import command, script, silent
from gguftools.server import guard, process
guard.__file__ = sys.argv[3]
running = process.start(command(Path(sys.argv[1]), int(sys.argv[2])), say=silent)
print(running.pid, running._guard.pid, flush=True)
try:
    time.sleep(60)
finally:
    running.close()
    print("closed", flush=True)
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], int, int]]]:
    """A program of its own that has started a server."""
    started: list[subprocess.Popen[str]] = []

    def run(fake: Path, port: int) -> tuple[subprocess.Popen[str], int, int]:
        words = [sys.executable, "-c", PARENT, str(fake), str(port), guard.__file__]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        pid, guard_pid = map(int, line.split())
        return process, pid, guard_pid

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_when_our_program_is_ended_by(
    number: signal.Signals,
    parent: Callable[..., tuple[subprocess.Popen[str], int, int]],
    tmp_path: Path,
) -> None:
    port = free_port(LOCAL)
    process, pid, guard_pid = parent(script(tmp_path / "s"), port)
    assert is_there(pid)
    process.send_signal(number)
    process.wait(SECONDS)
    assert wait_for(lambda: not is_there(pid) and not is_there(guard_pid))
    with socket.create_server((LOCAL, port)):  # the port is free again
        pass


def test_the_whole_session_of_our_program_may_be_killed(
    parent: Callable[..., tuple[subprocess.Popen[str], int, int]], tmp_path: Path
) -> None:
    """A closed terminal window."""
    process, pid, guard_pid = parent(script(tmp_path / "s"), free_port(LOCAL))
    os.killpg(process.pid, signal.SIGKILL)
    assert wait_for(lambda: not is_there(pid) and not is_there(guard_pid))


def test_a_second_interrupt_does_not_wait_for_a_stubborn_server(
    parent: Callable[..., tuple[subprocess.Popen[str], int, int]], tmp_path: Path
) -> None:
    text = Path(guard.__file__).read_text()
    Path(guard.__file__).write_text(text.replace("GRACE = 0.5", "GRACE = 50.0"))
    stubborn = script(tmp_path / "s", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    process, pid, _ = parent(stubborn, free_port(LOCAL))
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert is_there(pid)
    process.send_signal(signal.SIGINT)
    process.wait(SECONDS)
    assert wait_for(lambda: not is_there(pid))


def test_a_guard_that_wakes_up_late_still_hears_two_requests(
    parent: Callable[..., tuple[subprocess.Popen[str], int, int]], tmp_path: Path
) -> None:
    """While it does not run, all the signals that it gets are one."""
    text = Path(guard.__file__).read_text()
    Path(guard.__file__).write_text(text.replace("GRACE = 0.5", "GRACE = 50.0"))
    stubborn = script(tmp_path / "s", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    process, pid, guard_pid = parent(stubborn, free_port(LOCAL))
    os.kill(guard_pid, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(2.5)
    os.kill(guard_pid, signal.SIGCONT)
    process.wait(SECONDS)
    assert wait_for(lambda: not is_there(pid))


@pytest.fixture
def real() -> Server:
    from gguftools.pairing.server_binary import read_server

    binary = llama_server()
    if binary is None:
        pytest.skip(WHY)
    server = read_server(binary)
    assert server is not None
    return server


def real_command(real: Server, wanted: Wanted) -> Command:
    extra = ("--no-warmup", "--cache-ram", "0", "-b", "64", "-ub", "64")
    return server_argv(replace(wanted, n_ctx=512, n_threads=1, extra=extra), real)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_real_server_loads_answers_and_ends(
    number: signal.Signals, real: Server, models: dict[str, Path], tmp_path: Path
) -> None:
    wanted = Wanted(models["hybrid-mtp"], None, ("draft-mtp",), Settings(2, 0, 0.0))
    with start(real_command(real, wanted), log=tmp_path / "log", say=silent) as running:
        connection = http.client.HTTPConnection(LOCAL, running.command.port, timeout=SECONDS)
        connection.request("GET", "/slots")
        assert b'"speculative":true' in connection.getresponse().read().replace(b" ", b"")
        connection.close()
        assert running.why_off() == ""
        if number == signal.SIGKILL:
            assert running.pid is not None
            os.kill(running.pid, number)
            assert wait_for(lambda: not running.alive)
            assert running.cause().startswith("it was killed")
    assert not is_healthy(running.command)


def test_the_real_servers_own_words_are_understood(
    real: Server, models: dict[str, Path], tmp_path: Path
) -> None:
    """What our check refuses is sent past it here, to see what the server makes of it."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(models["target"].read_bytes()[:-1000])
    mtp = ("draft-mtp",)
    cases = (
        (Wanted(models["target"], None, mtp, Settings(2, 0, 0.0)), (), "has no MTP layers"),
        (Wanted(cut), (), "the file is cut short at "),
        (Wanted(models["target"], cut, ("draft-simple",), Settings(2, 0, 0.0)), (),
         "the file is cut short at "),
        (Wanted(models["target"]), ("--draft-max", "4"), "has removed the option --draft-max"),
        (Wanted(models["target"]), ("--made-up",), "does not know the option --made-up"),
        (Wanted(models["target"]), ("-ngl", "many"), "does not take the value of -ngl"),
    )  # fmt: skip
    for wanted, words, said in cases:
        made = real_command(real, wanted)
        made = replace(made, argv=(*made.argv, *words))
        with pytest.raises(EngineError) as caught:
            start(made, log=tmp_path / "log", say=silent)
        assert said in str(caught.value), (said, str(caught.value))
        (tmp_path / "log").unlink()


def test_the_real_server_says_why_it_does_not_draft(
    real: Server, models: dict[str, Path], tmp_path: Path
) -> None:
    stranger = Wanted(models["target"], models["stranger"], ("draft-simple",), Settings(2, 0, 0.0))
    with start(real_command(real, stranger), log=tmp_path / "log", say=silent) as running:
        assert "the draft is not used" in running.why_off()
