"""Sessions with a real llama-server beside our own engine; faults by scripted answers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from gguftools.errors import EngineError, UsageError
from gguftools.server.client import Client
from gguftools.server.proof import prove
from gguftools.server.reply import ServerReply
from gguftools.server.session import N_PREDICT_UNLIMITED, Sampling, ServerSession
from gguftools.server.traps import Seen
from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session
from tests.fake_llama_server import (
    EVENTS,
    NORMAL,
    TIMINGS,
    FakeServer,
    Script,
    fails,
    says,
    streams,
)
from tests.models.markov import N_VOCAB, random_chain, write_llama
from tests.models.service import service
from tests.models.vocabulary import EOS, IM_END
from tests.running_server import BINARY, needs_llama_server, starter

GREEDY = Sampling(Chain(temp=0.0))
HELLO = [{"role": "user", "content": "abc"}]
ARMS: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "plain": ("target", None, ()),
    "draft": ("target", "draft", ("draft-simple",)),
    "mtp": ("hybrid-mtp", None, ("draft-mtp",)),
    "sidecar": ("hybrid", "mtp-sidecar", ("draft-mtp",)),
    "ngram": ("target", None, ("ngram",)),
}


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never ends a reply by itself, and takes its time."""
    chain = random_chain(N_VOCAB, 5)
    chain[:, [EOS, IM_END]] = 0
    chain /= chain.sum(axis=1, keepdims=True)
    path = tmp_path_factory.mktemp("endless") / "endless.gguf"
    return write_llama(path, chain, n_layer=8, n_ctx_train=1 << 15)


@contextmanager
def served(
    log: Path, files: dict[str, Path], arm: str = "draft", sampling: Sampling = GREEDY
) -> Iterator[ServerSession]:
    target, draft, kinds = ARMS[arm]
    start = starter(log / "log", files[target], files[draft] if draft else None, kinds)
    with ServerSession(sampling, start=start, kinds=kinds) as session:
        yield session


@contextmanager
def own(target: Path, sampling: Sampling = GREEDY) -> Iterator[Session]:
    settings = Settings(target, drafter="none", n_ctx=4096, n_threads=1, chain=sampling.chain)
    with open_session(settings) as session:
        yield session


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]
) -> Iterator[ServerSession]:
    if BINARY is None:
        pytest.skip("no llama-server was built")
    with served(tmp_path_factory.mktemp("server"), models) as running:
        yield running


def pids_of(session: ServerSession) -> int:
    running = session.running
    assert running is not None
    pid: int | None = getattr(running, "pid", None)
    assert pid is not None
    return pid


def is_idle(client: Client, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(slot.busy for slot in client.slots() or ()):
            return True
        time.sleep(0.05)
    return False


@needs_llama_server
@pytest.mark.parametrize("arm", ARMS)
def test_every_drafter_of_a_server_writes_the_greedy_text_of_our_engine(
    arm: str, models: dict[str, Path], tmp_path: Path
) -> None:
    with own(models[ARMS[arm][0]]) as ours, served(tmp_path, models, arm) as theirs:
        expected, reply = ours.reply(HELLO, 120), theirs.reply(HELLO, 120)
        pieces = [piece.text for piece in reply]
        list(expected)
        assert len(pieces) > 60
        assert "".join(pieces) == reply.text == expected.text
        assert reply.token_ids == expected.token_ids
        assert (reply.stop_reason, expected.stop_reason) == ("length", "length")
        report = reply.report
        assert (report.n_prompt, report.n_tokens) == (expected.report.n_prompt, 120)
        assert report.n_rounds == 120 - report.n_accepted
        assert theirs.proof.on == (arm != "plain")
        assert theirs.drafter_name == ("+".join(ARMS[arm][2]) or "none")
        if arm != "plain":
            share = report.by_drafter[theirs.drafter_name]
            assert (share.n_draft, share.n_accepted) == (report.n_draft, report.n_accepted)
            assert sum(report.accepted_by_position) == report.n_accepted > 0
            assert share.n_rounds is not None
            assert 0 < share.n_rounds <= report.n_rounds


@needs_llama_server
def test_the_chain_reaches_the_server(models: dict[str, Path], session: ServerSession) -> None:
    plain = session.reply("abc", 60, raw=True)
    list(plain)
    chains = (
        Chain(temp=0.0, penalty_repeat=1.3, penalty_last_n=16),
        Chain(temp=0.0, penalty_freq=0.5, penalty_present=0.7, penalty_last_n=200),
        Chain(temp=0.0, logit_bias=((plain.token_ids[0], -50.0),)),
        Chain(temp=5.0, top_k=1, top_p=1.0, min_p=0.0),
        Chain(temp=5.0, top_k=0, top_p=0.0, min_p=0.0),
        Chain(temp=5.0, top_k=0, top_p=1.0, min_p=1.0),
    )
    for i, chain in enumerate(chains):
        with own(models["target"], Sampling(chain)) as ours:
            expected = ours.reply("abc", 60, raw=True)
            list(expected)
        with ServerSession(Sampling(chain), url=session.client.url) as theirs:
            reply = theirs.reply("abc", 60, raw=True)
            list(reply)
        assert reply.text == expected.text
        assert (reply.text == plain.text) == (i > 2)


@needs_llama_server
def test_a_seed_repeats_a_conversation_and_not_a_reply(session: ServerSession) -> None:
    def texts(seed: int | None) -> list[str]:
        sampling = Sampling(Chain(temp=1.5, top_k=0, top_p=1.0, min_p=0.0), seed)
        with ServerSession(sampling, url=session.client.url) as talk:
            replies = [talk.reply("abc", 24, raw=True) for _ in range(2)]
            for reply in replies:
                list(reply)
            return [reply.text for reply in replies]

    assert texts(7) == texts(7)
    assert texts((1 << 32) - 2) == texts((1 << 32) - 2)
    assert texts(None) != texts(None)
    assert len(set(texts(7))) == 2


@needs_llama_server
def test_replies_end_as_ours_do(
    models: dict[str, Path], session: ServerSession, tmp_path: Path
) -> None:
    with own(models["target"]) as ours:
        whole = ours.reply("abc", 60, raw=True)
        list(whole)
        word = whole.text[7:10]
        expected = ours.reply("abc", 60, raw=True, stop=[word])
        list(expected)
    reply = session.reply("abc", 60, raw=True, stop=[word])
    assert "".join(piece.text for piece in reply) == expected.text
    assert reply.stop_reason == expected.stop_reason == "stop"

    ending = np.full((N_VOCAB, N_VOCAB), 1e-6)
    ending[:, EOS] = 1
    path = write_llama(tmp_path / "ending.gguf", ending / ending.sum(axis=1, keepdims=True))
    start = starter(tmp_path / "log", path, n_ctx=256)
    with ServerSession(GREEDY, start=start, kinds=()) as short:
        reply = short.reply("abc", N_PREDICT_UNLIMITED, raw=True)
        assert (list(reply), reply.stop_reason) == ([], "eog")
        with pytest.raises(UsageError, match="context"):
            list(short.reply("abc" * 400, 5, raw=True))
        list(reply := short.reply("abc", 5, raw=True))  # it still answers
        assert reply.stop_reason == "eog"


@needs_llama_server
def test_a_full_context_ends_a_reply(endless: Path, tmp_path: Path) -> None:
    start = starter(tmp_path / "log", endless, n_ctx=256)
    with ServerSession(GREEDY, start=start, kinds=()) as session:
        reply = session.reply("abc", N_PREDICT_UNLIMITED, raw=True)
        list(reply)
        assert reply.stop_reason == "context"
        assert 200 < reply.report.n_tokens <= 256 == reply.n_ctx


@needs_llama_server
def test_a_reply_cut_in_the_middle_frees_the_server(endless: Path, tmp_path: Path) -> None:
    start = starter(tmp_path / "log", endless, n_ctx=1 << 15)
    with ServerSession(GREEDY, start=start, kinds=()) as session:
        reply = session.reply("abc", N_PREDICT_UNLIMITED, raw=True)
        for n, _ in enumerate(reply, 1):
            if n == 20:
                reply.stop()
        assert reply.stop_reason == "cancelled"
        assert 20 <= len(reply.text) < 20_000
        assert reply.report.n_tokens >= 20
        assert is_idle(session.client)
        other = session.reply("abc", 30, raw=True)
        list(other)
        assert other.text[:20] == reply.text[:20]
        pieces = iter(session.reply("abc", N_PREDICT_UNLIMITED, raw=True))
        next(pieces)
        pieces.close()  # left without a word
        assert is_idle(session.client)


@needs_llama_server
def test_a_server_killed_in_a_reply_leaves_its_text_the_cause_and_a_way_on(
    endless: Path, tmp_path: Path
) -> None:
    start = starter(tmp_path / "log", endless, n_ctx=1 << 15)
    with ServerSession(GREEDY, start=start, kinds=()) as session:
        reply, pid = session.reply("abc", N_PREDICT_UNLIMITED, raw=True), pids_of(session)
        pieces = iter(reply)
        for _ in range(20):
            next(pieces)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineError, match=r"llama-server has ended: .*log"):
            list(pieces)
        assert reply.stop_reason == "error"
        assert len(reply.text) >= 20
        assert reply.report.n_tokens >= 20
        assert not session.alive
        with pytest.raises(EngineError, match="llama-server has ended"):
            session.reply(HELLO, 5)
        session.restart()
        list(session.reply(HELLO, 5))
        again = session.reply("abc", 20, raw=True)
        list(again)
        assert reply.text.startswith(again.text)
        pid = pids_of(session)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@needs_llama_server
def test_speculation_is_proven_or_said_to_be_off(models: dict[str, Path], tmp_path: Path) -> None:
    start = starter(tmp_path / "a", models["target"], models["draft"], ("draft-simple",), p_min=1.0)
    seen = Seen(p_min=1.0)
    with ServerSession(GREEDY, start=start, kinds=("draft-simple",), seen=seen) as starved:
        assert not starved.proof.on
        assert "without drafting any" in starved.proof.why
        assert starved.notes[0].startswith("speculation is OFF: ")
        assert starved.notes[0].endswith("as sure as p-min 1")
        assert starved.drafter_name == "none"
    start = starter(tmp_path / "b", models["target"])
    with ServerSession(GREEDY, start=start, kinds=()) as plain:
        assert plain.notes == []  # asked for and got
        with ServerSession(GREEDY, url=plain.client.url) as stranger:
            assert "none of its slots can speculate" in stranger.notes[0]
            with pytest.raises(UsageError, match="not started here"):
                stranger.restart()


@needs_llama_server
def test_lookup_in_a_server_of_others_is_found_out(models: dict[str, Path], tmp_path: Path) -> None:
    start = starter(tmp_path / "log", models["target"], None, ("ngram",))
    with start() as running, ServerSession(GREEDY, url=running.url) as session:
        assert session.proof.on, session.proof.why
        assert (session.drafter_name, session.notes) == ("ngram-mod", [])


@needs_llama_server
def test_a_server_that_drafted_before_needs_no_probe(session: ServerSession) -> None:
    before = session.client.metrics()
    proof = prove(session.client)
    after = session.client.metrics()
    assert before is not None
    assert after is not None
    assert (proof.on, proof.types) == (True, "draft-simple")
    assert (proof.n_draft, after.n_predicted) == (before.n_draft, before.n_predicted)


@needs_llama_server
def test_requests_of_others_blur_no_positions(session: ServerSession) -> None:
    reply = session.reply("abc", 200, raw=True)
    pieces = iter(reply)
    next(pieces)
    with ServerSession(GREEDY, url=session.client.url) as other:
        beside = threading.Thread(target=lambda: list(other.reply("def", 50, raw=True)))
        beside.start()
        list(pieces)
        beside.join()
    counted = reply.counted
    assert counted is None or counted.n_draft == reply.report.n_draft


def test_our_own_service_is_a_session_too(models: dict[str, Path], tmp_path: Path) -> None:
    drafting = {"drafter": "draft", "draft": models["draft"], "draft_min": 3, "draft_max": 3}
    bias = ((33, -5.0), (36, 1.5))
    chain = Chain(temp=0.0, penalty_repeat=1.2, penalty_last_n=8, logit_bias=bias)
    asked: list[tuple[list[dict[str, str]] | str, bool, list[str]]] = [
        (HELLO, False, []), ("abc", True, []), ("abc", True, ["#a"]),
    ]  # fmt: skip
    with (
        service(models["target"], tmp_path / "log", settings=drafting) as running,
        own(models["target"], Sampling(chain)) as ours,
        ServerSession(Sampling(chain), url=running.v1) as theirs,
    ):
        assert (theirs.notes, theirs.drafter_name) == ([], "draft")
        for messages, raw, stop in asked:
            expected = ours.reply(messages, 40, raw=raw, stop=stop)
            reply = theirs.reply(messages, 40, raw=raw, stop=stop)
            list(expected)
            assert "".join(piece.text for piece in reply) == expected.text
            assert reply.stop_reason == expected.stop_reason
            assert reply.report.n_prompt == expected.report.n_prompt
            assert reply.report.n_tokens == expected.report.n_tokens
        assert reply.report.by_drafter.keys() <= {"draft"}
        assert theirs.traps(reply) == []


def test_services_of_others_are_not_taken_for_ours() -> None:
    models = says({"data": [{"id": "gpt", "owned_by": "somebody", "meta": {}}, 5]})
    with (
        FakeServer({"/v1/models": models}) as server,
        pytest.raises(EngineError, match="it is no llama-server"),
    ):
        ServerSession(GREEDY, url=server.url)


CHUNKS: tuple[dict[str, object], ...] = (
    {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
    {"choices": [{"delta": {"content": "one"}, "finish_reason": None}]},
    {"choices": []},
    {"choices": 5},
    {"choices": [{"delta": {}, "finish_reason": "length"}], "timings": {"predicted_n": 50}},
)


@pytest.mark.parametrize("n", [len(CHUNKS), 3], ids=["whole", "cut"])
def test_chunks_of_our_service_are_read_with_care(n: int) -> None:
    meta = {"n_ctx": 512, "drafter": ["?"]}
    models = says({"data": [{"id": "m", "owned_by": "gguftools", "meta": meta}]})
    chat = {"/v1/models": models, "/v1/chat/completions": streams(*CHUNKS[:n])}
    with FakeServer(chat) as server, ServerSession(GREEDY, url=server.url) as session:
        reply = session.reply(HELLO, 50)
        if n < len(CHUNKS):
            with pytest.raises(EngineError, match="breaks off"):
                list(reply)
        else:
            list(reply)
            assert reply.stop_reason == "length"
        assert (reply.text, reply.n_ctx, session.drafter_name) == ("one", 512, "none")


def faulty(**scripts: Script) -> FakeServer:
    return FakeServer({**NORMAL, **{f"/{path}": s for path, s in scripts.items()}})


def asked(server: FakeServer) -> tuple[ServerSession, ServerReply]:
    session = ServerSession(GREEDY, url=server.url)
    return session, session.reply(HELLO, 50)


def test_a_scripted_reply_becomes_a_report() -> None:
    with FakeServer() as server, ServerSession(GREEDY, url=server.url) as session:
        reply = session.reply(HELLO, 50, stop=["end"])
        assert [piece.text for piece in reply] == ["one ", "two"]
        assert (reply.stop_reason, reply.token_ids, reply.n_ctx) == ("eog", [11, 12, 13], 4096)
        report = reply.report
        assert (report.n_prompt, report.n_tokens, report.n_rounds) == (7, 6, 3)
        assert report.seconds_prompt == 0.04
        assert report.tokens_per_second == pytest.approx(100)
        assert report.by_drafter["draft-simple"].n_rounds is None  # /metrics is off
        assert (report.accepted_by_position, report.seconds_draft) == ((), None)
        fields = server.seen[-1][1]
        assert (fields["prompt"], fields["stop"], fields["temperature"]) == (
            "<user>hello<reply>", ["end"], 0.0,
        )  # fmt: skip


@pytest.mark.parametrize("end", [True, False], ids=["end", "reset"])
def test_a_reply_that_breaks_off_keeps_what_came(end: bool) -> None:
    with faulty(completion=streams(*EVENTS[:3], end=end)) as server:
        # The probe breaks off too; a session that could not even start has no reply to keep.
        server.scripts["/metrics"] = says_drafts()
        session, reply = asked(server)
        with session, pytest.raises(EngineError, match=r"breaks off|connection broke"):
            list(reply)
        assert (reply.text, reply.stop_reason, reply.token_ids) == (
            "one two",
            "error",
            [11, 12, 13],
        )
        assert reply.report.n_tokens == 3


def says_drafts() -> Callable[[dict[str, object]], Iterator[bytes]]:
    """/metrics of a server that has drafted."""
    page = b"llamacpp:spec_decode_num_draft_tokens_total 9\n"

    def script(fields: dict[str, object]) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + page

    return script


def test_a_reply_without_timings_is_timed_here() -> None:
    old = [{k: v for k, v in event.items() if k != "timings"} for event in EVENTS]
    with faulty(completion=streams(*old), metrics=says_drafts()) as server:
        session, reply = asked(server)
        with session:
            list(reply)
        report = reply.report
        assert (report.n_prompt, report.n_tokens, report.n_draft) == (7, 3, 0)
        assert report.seconds_decode > 0


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ({"stop_type": "word"}, "stop"),
        ({"stop_type": "eos"}, "eog"),
        ({"stop_type": "limit", "timings": {**TIMINGS, "predicted_n": 50}}, "length"),
        ({"stop_type": "limit"}, "context"),
        ({"stop_type": ["?"]}, "context"),
    ],
)
def test_a_server_says_why_it_stopped(stop: dict[str, object], reason: str) -> None:
    last = {**EVENTS[-1], **stop}
    with faulty(completion=streams(*EVENTS[:-1], last), metrics=says_drafts()) as server:
        session, reply = asked(server)
        with session:
            list(reply)
        assert reply.stop_reason == reason


def test_what_is_no_llama_server_is_said_at_once() -> None:
    with (
        FakeServer({"/v1/models": NORMAL["/v1/models"]}) as server,
        pytest.raises(EngineError, match="it is no llama-server"),
    ):
        ServerSession(GREEDY, url=server.url)
    busy = says([{"id": 0, "speculative": True, "is_processing": True, "params": {}}])
    with faulty(slots=busy) as server, ServerSession(GREEDY, url=server.url) as session:
        assert session.notes == ["speculation is OFF: not proven: all its slots are busy"]
    small = fails("400 Bad Request", "the request exceeds the available context size")
    with faulty(completion=small) as server, ServerSession(GREEDY, url=server.url) as session:
        assert "does not fit into its context" in session.notes[0]
