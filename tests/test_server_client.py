"""The client of a llama-server against scripted answers, good and hostile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from gguftools.errors import EngineError, GGUFToolsError, UsageError
from gguftools.server import answers
from gguftools.server.answers import LoadingError, LostError, lines
from gguftools.server.client import Client, server_url
from gguftools.server.metrics import (
    Counters,
    Timings,
    between,
    build_number,
    of_reply,
    read_counters,
    read_props,
    read_slots,
    read_timings,
)
from tests.fake_llama_server import (
    EVENTS,
    NORMAL,
    FakeServer,
    Script,
    fails,
    forever,
    head,
    says,
    sends,
    streams,
)

PAGE = """# HELP llamacpp:tokens_predicted_total Number of generation tokens processed
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 140
llamacpp:prompt_tokens_total 20
llamacpp:spec_decode_num_draft_tokens_total 90
llamacpp:spec_decode_num_accepted_tokens_total 60
llamacpp:spec_decode_num_drafts_total 30
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 28
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 20
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 12
"""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(server.url, seconds_quiet=5) as talking:
        yield talking


def answering(path: str, script: Script) -> FakeServer:
    return FakeServer({**NORMAL, path: script})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://host:8080/", "http://host:8080"),
        ("https://host/llama/v1/", "https://host/llama"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
    ],
)
def test_an_address_may_be_written_as_people_write_it(text: str, url: str) -> None:
    assert server_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "http://", "ftp://host", "http://host:port", "http://[::1", "http://a?b=c",
     "http://me:secret@host", "http://host:99999"],
)  # fmt: skip
def test_what_is_no_address_is_misuse(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        server_url(text)
    assert "secret" not in str(caught.value)


def test_each_endpoint_is_read(client: Client, server: FakeServer) -> None:
    assert client.ready()
    props = client.props()
    assert (props.build, props.n_ctx, props.n_slots) == ("b11434-0a1b2c3", 4096, 1)
    slots = client.slots()
    assert slots is not None
    assert (slots[0].speculative, slots[0].types, slots[0].busy) == (True, "draft-simple", False)
    assert client.metrics() is None  # 501: switched off is not an error
    assert client.models() == ("target",)
    assert client.prompt([{"role": "user", "content": "hello"}]) == "<user>hello<reply>"
    assert client.tokenize("abc") == [1, 2, 3]
    assert list(client.complete({"prompt": "x"})) == list(EVENTS)
    path, fields, _ = server.seen[-1]
    assert (path, fields) == ("/completion", {"prompt": "x", "stream": True})


def test_the_key_goes_with_each_request_and_into_no_message(server: FakeServer) -> None:
    server.scripts["/props"] = fails("401 Unauthorized", "Invalid API Key")
    with Client(server.url, api_key="s3cret") as client, pytest.raises(EngineError) as caught:
        client.props()
    assert b"Bearer s3cret" in server.seen[0][2]
    assert "Invalid API Key" in str(caught.value)
    assert "--api-key" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(UsageError):
        Client(server.url, api_key="line\nbreak")


def test_a_text_that_is_not_unicode_still_arrives(client: Client, server: FakeServer) -> None:
    client.tokenize("\ud800 \N{SNOWMAN}")
    assert server.seen[-1][1]["content"] == "\ud800 \N{SNOWMAN}"


HTML = sends(head(kind="text/html") + b"<!DOCTYPE html><title>hi</title>")


@pytest.mark.parametrize(
    ("script", "says_so"),
    [
        (HTML, "a web page"),
        (sends(head() + b"[1, 2]"), "no object"),
        (sends(head() + b'{"half": '), "not JSON"),
        (sends(head() + b"[" * 100_000), "not JSON"),
        (sends(head() + b"\xff\xfe"), "not JSON"),
        (sends(b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n"), "elsewhere"),
        (sends(b"SSH-2.0-OpenSSH_9\r\n"), "connection broke"),
        (sends(None), "connection broke"),
        (sends(b""), "connection broke"),
        (fails("500 Internal Server Error", "out of luck"), "out of luck"),
        (sends(head("500 Oops") + b"<html>"), "HTTP 500"),
        (sends(head("418 Teapot") + b'{"error": {"message": 5}}'), "HTTP 418"),
        (forever(head("500 Oops"), b"x" * 4096), "HTTP 500"),
    ],
)
def test_a_wrong_answer_is_one_line_with_the_address(script: Script, says_so: str) -> None:
    with answering("/props", script) as server, Client(server.url) as client:
        with pytest.raises(EngineError) as caught:
            client.props()
        assert says_so in str(caught.value)
        assert server.url in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_answer_without_end_is_cut(client: Client, server: FakeServer) -> None:
    server.scripts["/metrics"] = forever(head(kind="text/plain"), b"llamacpp:x 1\n" * 1000)
    with pytest.raises(EngineError, match="longer than 1024 KiB"):
        client.metrics()


def test_an_answer_that_trickles_ends() -> None:
    def drops() -> Iterator[bytes]:
        while True:
            time.sleep(0.01)
            yield b"x"

    with pytest.raises(EngineError, match=r"takes longer than 0 s"):
        answers.bounded(drops(), 1 << 20, "http://host", seconds_max=0.1)


def test_values_of_a_wrong_type_are_unknown() -> None:
    props = read_props({"build_info": 5, "default_generation_settings": [], "total_slots": "x"})
    assert (props.build, props.model, props.n_ctx, props.n_slots) == ("", "", 0, 0)
    assert read_slots({"id": 0}) == ()
    [slot] = read_slots([7, {"id": -1, "speculative": "yes", "params": []}])
    assert (slot.id, slot.speculative, slot.types) == (0, None, "")
    assert read_timings([]) is None
    odd = read_timings({"predicted_n": 1e400, "predicted_ms": -1, "draft_n": True, "cache_n": None})
    assert odd == Timings(0, 0, 0.0, 0, 0.0, 0, 0)


def test_nothing_there_and_a_model_still_loading_are_told_apart(server: FakeServer) -> None:
    n_left = 3

    def health(fields: dict[str, object]) -> Iterator[bytes | None]:
        nonlocal n_left
        n_left -= 1
        loading = fails("503 Service Unavailable", "Loading model")
        return (loading if n_left else says({"status": "ok"}))(fields)

    server.scripts["/health"] = health
    waited: list[float] = []
    with Client(server.url) as client:
        client.wait(waited.append)
    assert len(waited) == 2
    server.scripts["/health"] = fails("503 Service Unavailable", "Loading model")
    with Client(server.url) as client, pytest.raises(EngineError, match="loading its model for"):
        client.wait(waited.append, seconds_max=0)
    with Client("http://127.0.0.1:9") as client, pytest.raises(LostError, match="nothing answers"):
        client.wait(waited.append)


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with Client(server.url) as client:
        assert client.ready()


def read(*parts: bytes, end: bool = True) -> list[object]:
    """The events of a reply of these bytes."""
    script = sends(head(kind="text/event-stream"), *parts, *(() if end else (None,)))
    with answering("/completion", script) as server, Client(server.url) as client:
        return list(client.complete({}))


def test_events_come_however_the_bytes_are_cut() -> None:
    whole = b'data: {"content": "a\\u00e9"}\r\n\r\n: ping\n\nevent: x\n\ndata:{"stop":true}\n\n'
    expected = [{"content": "a\u00e9"}, {"stop": True}]
    assert read(whole) == expected
    assert read(*(whole[i : i + 1] for i in range(len(whole)))) == expected
    assert read(whole + b"data: [DONE]\n\ndata: {}\n\n") == expected


@pytest.mark.parametrize(
    ("parts", "says_so"),
    [
        ([b"data: {nonsense}\n\n"], "not JSON"),
        ([b"data: 5\n\n"], "no object"),
        ([b'data: {"error": {"message": "no more memory"}}\n\n'], "no more memory"),
        ([b'error: {"message": "old words"}\n\n'], "old words"),
        ([b'data: {"error": "plain"}\n\n'], "plain"),
        ([b'data: {"error": [1]}\n\n'], "no reason given"),
    ],
)
def test_an_event_that_is_none_ends_the_reply_with_its_reason(
    parts: list[bytes], says_so: str
) -> None:
    with pytest.raises(EngineError, match=says_so):
        read(*parts)


def test_a_line_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LINE_BYTES_MAX", 1 << 16)
    script = forever(head(kind="text/event-stream") + b"data: ", b"x" * 4096)
    with (
        answering("/completion", script) as server,
        Client(server.url) as client,
        pytest.raises(EngineError, match="a line of it exceeds"),
    ):
        list(client.complete({}))
    assert list(lines([b"a\nb", b"c\n", b"d"], "")) == [b"a", b"bc"]


def test_a_server_that_falls_silent_is_given_up() -> None:
    script = forever(head(kind="text/event-stream") + b'data: {"content": "a"}\n\n', b"", 0.05)
    with (
        answering("/completion", script) as server,
        Client(server.url, seconds_quiet=0.3) as client,
    ):
        came: list[object] = []
        with pytest.raises(EngineError, match="stopped answering in time"):
            came.extend(client.complete({}))
        assert came == [{"content": "a"}]


def test_signs_of_life_keep_a_long_wait_open() -> None:
    def script(fields: dict[str, object]) -> Iterator[bytes]:
        yield head(kind="text/event-stream")
        for _ in range(8):
            time.sleep(0.1)
            yield b": ping\n\n"
        yield b'data: {"stop": true}\n\n'

    with (
        answering("/completion", script) as server,
        Client(server.url, seconds_quiet=0.5) as client,
    ):
        assert list(client.complete({})) == [{"stop": True}]


@pytest.mark.parametrize("answered", [False, True], ids=["before the head", "in the reply"])
def test_a_reply_is_cut_from_another_thread_at_any_moment(answered: bool) -> None:
    start = head(kind="text/event-stream") + b'data: {"content": "a"}\n\n' if answered else b""
    script = forever(start, b"", 0.02)
    with answering("/completion", script) as server, Client(server.url) as client:
        stream = client.complete({})
        timer = threading.Timer(0.2, stream.stop)
        timer.start()
        came = list(stream)
        timer.join()
        assert came == ([{"content": "a"}] if answered else [])
        assert client.ready()  # the next request works


def test_a_reply_stopped_before_it_began_sends_nothing(client: Client, server: FakeServer) -> None:
    stream = client.complete({})
    stream.stop()
    assert list(stream) == []
    assert server.seen == []


def test_a_reply_left_in_the_middle_closes_its_connection() -> None:
    script = forever(head(kind="text/event-stream"), b'data: {"content": "a"}\n\n' * 100, 0.01)
    with answering("/completion", script) as server, Client(server.url) as client:
        for _ in client.complete({}):
            break
        end = time.monotonic() + 5
        while not server.n_cut and time.monotonic() < end:
            time.sleep(0.01)
        assert server.n_cut == 1


def test_a_prompt_beyond_the_context_is_misuse(client: Client, server: FakeServer) -> None:
    what = "the request exceeds the available context size (256 tokens), try increasing it"
    server.scripts["/completion"] = fails("400 Bad Request", what)
    with pytest.raises(UsageError, match="256 tokens"):
        list(client.complete({}))
    server.scripts["/completion"] = fails("400 Bad Request", '"prompt" must be a string')
    with pytest.raises(EngineError, match="must be a string"):
        list(client.complete({}))
    server.scripts["/completion"] = fails("503 Service Unavailable", "Loading model")
    with pytest.raises(LoadingError):
        list(client.complete({}))


def test_counters_are_read_by_position() -> None:
    counters = read_counters(PAGE)
    assert counters is not None
    assert (counters.n_draft, counters.n_accepted, counters.n_rounds) == (90, 60, 30)
    assert counters.accepted_by_position == (28, 20, 12)
    assert read_counters("llamacpp:tokens_predicted_total 5\n") is None  # an old build
    assert read_counters("\x00\nspec 1 2 3\n" + "{" * 1000) is None
    odd = read_counters(
        "llamacpp:spec_decode_num_draft_tokens_total NaN\n"
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="9999"} 1'
    )
    assert odd == Counters(0, 0.0, 0, 0.0, 0, 0, 0, ())


def counters(n: int, positions: tuple[int, ...]) -> Counters:
    return Counters(10 * n, 1.0 * n, 20 * n, 2.0 * n, 3 * n, sum(positions), n, positions)


def test_two_readings_make_what_happened_between_them() -> None:
    found = between(counters(10, (6, 2)), counters(30, (16, 5, 1)))
    assert found is not None
    assert (found.n_draft, found.n_rounds, found.n_accepted) == (60, 20, 14)
    assert found.accepted_by_position == (10, 3, 1)
    assert between(counters(30, (16, 5, 1)), counters(2, (1,))) is None  # started anew
    assert between(counters(30, (16, 5, 1)), counters(31, (1, 1, 1))) is None


def test_positions_are_known_only_where_nobody_else_came_between() -> None:
    counted, total = counters(20, (10, 3, 1)), counters(30, (16, 5, 1))
    mine = Timings(0, 9, 0.1, 40, 1.0, n_draft=60, n_accepted=14)
    assert of_reply(mine, counted, total) == counted
    other = Timings(0, 9, 0.1, 40, 1.0, n_draft=57, n_accepted=14)
    assert of_reply(other, counted, total) is None
    assert of_reply(mine, counted, counters(400_000, (5, 4, 3))) is None  # digits are cut off


def test_builds_are_numbers_where_they_name_one() -> None:
    assert build_number("b11434-0a1b2c3") == 11434
    assert build_number("11434") is None
    assert build_number("") is None


@pytest.mark.parametrize("path", sorted(NORMAL))
def test_no_answer_of_any_endpoint_escapes_as_a_foreign_error(path: str) -> None:
    garbage = (
        sends(b"\x00" * 100),
        sends(head() + b"null"),
        sends(head() + b'{"data": 5, "prompt": 5, "tokens": 5, "stop": 5}'),
        sends(head() + b'{"data": [[]], "tokens": [[]], "default_generation_settings": 1}'),
        sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        sends(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip"),
        sends(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000),
        fails("404 Not Found", "File Not Found"),
        streams({"stop": False}, end=False),
    )
    for script in garbage:
        with answering(path, script) as server, Client(server.url) as client:
            for ask in (client.ready, client.props, client.slots, client.metrics, client.models):
                _quietly(ask)
            _quietly(lambda: client.prompt([]))
            _quietly(lambda: client.tokenize(""))
            _quietly(lambda: list(client.complete({})))


def _quietly(ask: Callable[[], object]) -> None:
    with suppress(GGUFToolsError):
        ask()
