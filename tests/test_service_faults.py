"""Clients that leave, stall or send half, an engine that fails, signals."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.models.service import (
    ENDLESS,
    SECONDS_MAX,
    SHORT,
    SLOW,
    TEXT,
    Service,
    ask,
    asked,
    clients,
    n_waiting,
    rest_of,
    service,
    stream,
    wait_until,
)

Models = dict[str, Path]


# -- clients that go away


def test_a_killed_client_ends_its_reply_and_the_next_request_works(
    models: Models, tmp_path: Path
) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl")
    with service(models["target"], tmp_path / "log", **SLOW) as running:
        url, data = f"{running.v1}/completions", json.dumps(ENDLESS)
        command = [curl, "-sN", url, "-d", data, "-H", "Content-Type: application/json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline().startswith(b"data: {")
            client.kill()
        assert ask(running, TEXT, SHORT).status == 200
        assert running.end() == 0
        assert running.log.read_text() == ""


@pytest.mark.parametrize("body", [SHORT, {**SHORT, "stream": True}], ids=["whole", "stream"])
def test_a_client_that_leaves_the_queue_is_forgotten(
    models: Models, tmp_path: Path, body: object
) -> None:
    raw = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with service(models["target"], tmp_path / "log", **SLOW) as running:
        with stream(running, ENDLESS):
            with socket.create_connection(("127.0.0.1", running.port)) as leaving:
                leaving.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
                wait_until(lambda: n_waiting(running) == 1)
            wait_until(lambda: n_waiting(running) == 0)
        assert ask(running, TEXT, SHORT).status == 200
        assert running.log.read_text() == ""


def test_a_whole_reply_ends_too_when_its_client_leaves(models: Models, tmp_path: Path) -> None:
    with service(models["target"], tmp_path / "log", **SLOW) as running:
        raw = json.dumps({**ENDLESS, "stream": False}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", running.port)) as leaving:
            leaving.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
            with clients(1) as pool:
                waits = asked(pool, running)
                wait_until(lambda: n_waiting(running) == 1)
                leaving.close()
                assert waits.result().status == 200


def test_a_client_that_does_not_read_is_dropped(models: Models, tmp_path: Path) -> None:
    limits = {"seconds_unread": 0.3, "n_pieces": 8}
    endless = {"context_shift": True, "n_ctx": 256}
    with service(models["target"], tmp_path / "log", limits=limits, settings=endless) as running:
        with stream(running, ENDLESS, receive_buffer=4096) as deaf:
            assert ask(running, TEXT, SHORT).status == 200
            assert b"[DONE]" not in rest_of(deaf)
        assert running.log.read_text() == ""


def test_a_slow_reader_gets_everything(models: Models, tmp_path: Path) -> None:
    limits = {"n_pieces": 2}
    body = {"prompt": "abc", "max_tokens": 900, "stream": True, "timings_per_token": True}
    with service(models["target"], tmp_path / "log", limits=limits) as running:
        whole = ask(running, TEXT, {**body, "stream": False, "timings_per_token": False}).text
        received = b""
        with stream(running, body, receive_buffer=4096) as slow:
            while not received.endswith(b"0\r\n\r\n"):
                received += slow.recv(4096)
                time.sleep(0.0005)
    parts = [line[6:] for line in received.split(b"\n") if line.startswith(b"data: {")]
    assert "".join(json.loads(part)["choices"][0]["text"] for part in parts) == whole


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: local", b""),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b"Content-Length: 9\r\n\r\n{", b"HTTP/1.1 408"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000, b"HTTP/1.1 4"),
    ],
    ids=["silence", "half a head", "half a body", "TLS", "endless head"],
)  # fmt: skip
def test_a_client_that_does_not_send_is_dropped(
    impatient: Service, sent: bytes, answer: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as slow:
        slow.settimeout(SECONDS_MAX)
        slow.sendall(sent)
        received = rest_of(slow)
    assert received.startswith(answer)
    assert ask(impatient, "/health").status == 200


@pytest.fixture(scope="module")
def impatient(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = {"seconds_head": 0.3, "seconds_body": 0.3}
    log = tmp_path_factory.mktemp("impatient") / "log"
    with service(models["target"], log, limits=limits) as running:
        yield running


def test_a_second_request_on_a_connection_must_come_in_time_too(impatient: Service) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as slow:
        slow.settimeout(SECONDS_MAX)
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not slow.recv(1 << 16).endswith(b"}"):
            pass
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
        assert rest_of(slow) == b""


# -- the engine fails


def test_a_failing_engine_is_one_500_and_works_again(models: Models, tmp_path: Path) -> None:
    with service(models["target"], tmp_path / "log", fail_at=1) as running:
        answer = ask(running, TEXT, SHORT)
        assert (answer.status, answer.json["error"]["code"]) == (500, "engine_failure")
        assert "no memory" in answer.json["error"]["message"]
        assert b"secret" not in answer.raw
        assert ask(running, TEXT, SHORT).text == ask(running, TEXT, SHORT).text != ""


def test_a_stream_that_fails_says_so(models: Models, tmp_path: Path) -> None:
    with service(models["target"], tmp_path / "log", fail_at=6) as running:
        api = openai.OpenAI(base_url=running.v1, api_key="none", max_retries=0)
        how: dict[str, Any] = {"model": "tiny", "prompt": "abc", "max_tokens": 20}
        stream = api.completions.create(**how, stream=True)
        texts: list[str] = []
        with pytest.raises(openai.APIError, match="no memory"):
            texts.extend(chunk.choices[0].text for chunk in stream)
        whole = api.completions.create(**how).choices[0].text
        assert whole.startswith("".join(texts))
        assert 0 < len(texts) < len(whole)


# -- the end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_runs_and_frees_the_port(
    models: Models, tmp_path: Path, number: signal.Signals
) -> None:
    with service(models["target"], tmp_path / "log", **SLOW) as running, clients(1) as pool:
        with stream(running, ENDLESS) as cut:
            waits = asked(pool, running)
            wait_until(lambda: n_waiting(running) == 1)
            assert running.end(number) == 0
            assert waits.result().json["error"]["code"] == "stopping"
            rest = rest_of(cut)
        assert b'"code":"stopping"' in rest
        assert b"[DONE]" not in rest
        assert rest.endswith(b"0\r\n\r\n")
        assert running.process.stdout is not None
        assert running.process.stdout.read() == "closed\n"
        assert running.log.read_text() == ""
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", running.port))


def test_a_client_that_keeps_its_connection_does_not_keep_the_service(
    models: Models, tmp_path: Path
) -> None:
    with (
        service(models["target"], tmp_path / "log") as running,
        socket.create_connection(("127.0.0.1", running.port)) as idle,
    ):
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert running.end() == 0


def test_a_taken_port_is_one_clear_error(models: Models, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(AssertionError, match=f"127.0.0.1:{port}: cannot listen: .*--port 0"),
            service(models["target"], tmp_path / "log", port=port),
        ):
            pass
