"""What a request's JSON asks for: every field is honoured or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gguftools.service.api_error import ApiError
from gguftools.service.ask import Ask, ServedModel, parse_ask
from gguftools.speculative.sampling import Chain

MODEL = ServedModel("tiny", n_vocab=107, n_ctx=1024, chain=Chain(temp=0.3, top_k=7))
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields: Any) -> Ask:
    return parse_ask(json.dumps({"messages": HELLO, **fields}).encode(), MODEL, chat=True)


def completion(**fields: Any) -> Ask:
    return parse_ask(json.dumps({"prompt": "hello", **fields}).encode(), MODEL, chat=False)


def refusal(*, raw: bytes | None = None, text: bool = False, **fields: Any) -> ApiError:
    whole = {**({"prompt": "hello"} if text else {"messages": HELLO}), **fields}
    with pytest.raises(ApiError) as caught:
        parse_ask(json.dumps(whole).encode() if raw is None else raw, MODEL, chat=not text)
    return caught.value


def test_what_a_request_leaves_open_is_the_services_own() -> None:
    assert chat() == Ask(HELLO, 1024, (), MODEL.chain, None, False, False, False)
    assert completion().prompt == "hello"


def test_sampling_fields_are_those_of_openai_and_llama_cpp() -> None:
    ask = chat(
        temperature=1, top_p=0.5, presence_penalty=-1, frequency_penalty=0.5, top_k=0, min_p=0.1,
        repeat_penalty=1.1, repeat_last_n=32, logit_bias={"5": -100, "6": 2}, seed=7,
    )  # fmt: skip
    assert ask.chain == Chain(1.0, 0, 0.5, 0.1, 32, 1.1, 0.5, -1.0, ((5, -100.0), (6, 2.0)))
    assert ask.seed == 7
    assert chat(seed=-1).seed is None


def test_null_is_the_same_as_absent() -> None:
    names = ("temperature", "stop", "max_tokens", "tools", "seed", "stream_options", "whatever")
    assert chat(**dict.fromkeys(names)) == chat()


def test_both_names_of_the_longest_reply_are_read() -> None:
    assert chat(max_tokens=5).n_predict == chat(max_completion_tokens=5).n_predict == 5
    assert chat(max_tokens=5, max_completion_tokens=5).n_predict == 5
    assert chat(max_tokens=-1).n_predict == MODEL.n_ctx
    assert refusal(max_tokens=5, max_completion_tokens=6).param == "max_tokens"


def test_stop_is_one_text_or_several() -> None:
    assert chat(stop="a").stop == ("a",)
    assert chat(stop=["a", "b"]).stop == ("a", "b")


def test_contents_may_be_lists_of_text_parts() -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    assert chat(messages=[{"role": "user", "content": parts}]).prompt == HELLO


def test_the_messages_that_clients_send_back_are_taken() -> None:
    said = {"role": "assistant", "content": "hi"}
    nothing: dict[str, Any] = {
        "refusal": None,
        "tool_calls": None,
        "annotations": [],
        "audio": None,
    }
    reply = {**said, **nothing}
    orders = {"role": "developer", "content": "be short"}
    assert chat(messages=[orders, *HELLO, reply, *HELLO]).prompt == [
        {"role": "system", "content": "be short"},
        *HELLO,
        said,
        *HELLO,
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1}, {"tools": []}, {"tool_choice": "none"}, {"response_format": {"type": "text"}},
        {"logprobs": False}, {"user": "me"}, {"metadata": {"a": "b"}}, {"store": False},
        {"parallel_tool_calls": True}, {"cache_prompt": True},
    ],
    ids=str,
)  # fmt: skip
def test_fields_that_ask_for_nothing_are_taken(fields: dict[str, Any]) -> None:
    assert chat(**fields) == chat()


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2}, {"n": True}, {"tools": [{"type": "function"}]}, {"functions": [{}]},
        {"logprobs": True}, {"top_logprobs": 3}, {"response_format": {"type": "json_object"}},
        {"modalities": ["audio"]}, {"audio": {}}, {"reasoning_effort": "high"}, {"grammar": "x"},
        {"tempurature": 1},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any]) -> None:
    error = refusal(**fields)
    assert error.status == 400
    assert error.code == "unsupported_parameter"
    assert error.param in fields


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": "1"}, {"temperature": True}, {"temperature": -0.1}, {"temperature": [1]},
        {"top_p": 1.1}, {"top_k": 1.5}, {"top_k": 10**30}, {"min_p": -1}, {"repeat_penalty": 0},
        {"seed": 1.5}, {"seed": 1 << 65}, {"max_tokens": 0}, {"max_tokens": -2},
        {"max_tokens": "5"}, {"max_tokens": 10**400}, {"stop": ""}, {"stop": [""]}, {"stop": 3},
        {"stop": ["a"] * 17}, {"stop": "a" * 2000}, {"stream": 1}, {"stream": "true"},
        {"logit_bias": [1]}, {"logit_bias": {"107": 1}}, {"logit_bias": {"-1": 1}},
        {"logit_bias": {"x": 1}}, {"logit_bias": {"5": "a"}}, {"logit_bias": {"5": 101}},
        {"logit_bias": {str(i): 1 for i in range(2000)}}, {"logit_bias": {"\u0665": 1}},
        {"stream_options": {"include_usage": True}}, {"stream": True, "stream_options": {"x": 1}},
        {"stream": True, "stream_options": {"include_usage": 1}},
        {"messages": []}, {"messages": "hello"}, {"messages": ["hello"]}, {"messages": [{}]},
        {"messages": [{"role": "user"}]}, {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": [], "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        {"messages": [{"role": "user", "content": ["hello"]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]},
    ],
    ids=lambda fields: str(fields)[:60],
)  # fmt: skip
def test_a_value_that_cannot_be_meant_is_refused_with_its_field(fields: dict[str, Any]) -> None:
    error = refusal(**fields)
    assert error.status == 400
    assert error.param is not None
    assert error.param.split("[")[0].split(".")[0] in fields
    assert json.dumps(error.body)


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [1, 2], [[1]], {}, 5], ids=repr)
def test_a_prompt_that_is_not_one_text_is_refused(prompt: object) -> None:
    assert refusal(text=True, prompt=prompt).param == "prompt"


def test_another_models_name_is_not_found() -> None:
    assert chat(model="tiny") == chat()
    for name in ("gpt-4", "", 5, ["tiny"]):
        error = refusal(model=name)
        assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b"null", b"3", b'"x"', b"\xff\xfe", b"{'a': 1}", b'{"messages": NaN}',
        b'{"temperature": Infinity}', b"[" * 100_000, b'{"a":' * 100_000,
        b'{"seed": ' + b"9" * 5000,
        b'{"seed": ' + b"9" * 5000 + b"}", b'{"messages": []} trailing',
    ],
    ids=lambda raw: repr(raw[:30]),
)  # fmt: skip
def test_a_hostile_body_is_one_clear_line(raw: bytes) -> None:
    error = refusal(raw=raw)
    assert (error.status, error.code) == (400, "invalid_json")
    assert "\n" not in error.what
    assert len(error.what) < 200


def test_a_number_beyond_all_bounds_is_refused() -> None:
    error = refusal(raw=b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}')
    assert (error.status, error.param) == (400, "temperature")
