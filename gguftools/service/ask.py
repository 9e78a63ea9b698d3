"""A request's JSON -> what to ask of the session. Pure; a field is honoured or refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from gguftools.service.api_error import ApiError, bad_field
from gguftools.service.messages import chat_messages
from gguftools.speculative.sampling import Chain

Fields = dict[str, Any]

_N_STOP_MAX = 16
_STOP_CHARS_MAX = 1024
_N_BIAS_MAX = 1024
_SEED_MAX = (1 << 64) - 1
_N_PREDICT_MAX = 1 << 31

# API field -> field of the chain, type, lowest and highest value. The last four are llama.cpp's.
_SAMPLING: dict[str, tuple[str, type[int] | type[float], float, float]] = {
    "temperature": ("temp", float, 0, 1000),
    "top_p": ("top_p", float, 0, 1),
    "presence_penalty": ("penalty_present", float, -100, 100),
    "frequency_penalty": ("penalty_freq", float, -100, 100),
    "top_k": ("top_k", int, -1, 1 << 24),
    "min_p": ("min_p", float, 0, 1),
    "repeat_penalty": ("penalty_repeat", float, 0.01, 100),
    "repeat_last_n": ("penalty_last_n", int, 0, 1 << 20),
}
# They change nothing about the text, here as there.
_HINTS = (
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "cache_prompt", "parallel_tool_calls",
)  # fmt: skip
# What we cannot do, with the values that ask for nothing.
_NOTHING: dict[str, Sequence[Any]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What requests are checked against: the name clients use, and the engine's bounds."""

    name: str
    n_vocab: int
    n_ctx: int
    chain: Chain  # for what a request leaves open


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, checked. `prompt` is a raw text where the client sent no messages."""

    prompt: str | list[dict[str, str]]
    n_predict: int
    stop: tuple[str, ...]
    chain: Chain
    seed: int | None
    stream: bool
    include_usage: bool
    timings_per_token: bool

    @property
    def chat(self) -> bool:
        """Whether it is a conversation."""
        return not isinstance(self.prompt, str)


def parse_ask(body: bytes, model: ServedModel, *, chat: bool) -> Ask:
    """The body of a request for a chat completion, or for a completion."""
    fields = {k: v for k, v in _object(body).items() if v is not None}
    _check_model(fields.pop("model", model.name), model)
    prompt = (
        chat_messages(fields.pop("messages", None)) if chat else _prompt(fields.pop("prompt", None))
    )
    stream = _flag(fields, "stream")
    ask = Ask(
        prompt=prompt,
        n_predict=_n_predict(fields, model),
        stop=_stop(fields.pop("stop", ())),
        chain=_chain(fields, model),
        seed=_number(fields, "seed", int, -_SEED_MAX, _SEED_MAX),
        stream=stream,
        include_usage=_include_usage(fields.pop("stream_options", {}), stream),
        timings_per_token=_flag(fields, "timings_per_token"),
    )
    _refuse_rest(fields)
    return replace(ask, seed=None if ask.seed is None or ask.seed < 0 else ask.seed)


def _object(body: bytes) -> Fields:
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as err:
        reason = "nested too deeply" if isinstance(err, RecursionError) else str(err)
        raise ApiError(400, f"the body is not JSON: {reason}", code="invalid_json") from err
    if not isinstance(value, dict):
        raise ApiError(400, "the body is not a JSON object", code="invalid_json")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _check_model(name: Any, model: ServedModel) -> None:
    if name != model.name:
        raise ApiError(
            404,
            f"there is no such model here, only {model.name!r}",
            code="model_not_found",
            param="model",
        )


def _prompt(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise bad_field("prompt", "must be one text; token ids and several prompts are not read")
    if not value:
        raise bad_field("prompt", "is empty")
    return value


def _flag(fields: Fields, name: str) -> bool:
    value = fields.pop(name, False)
    if not isinstance(value, bool):
        raise bad_field(name, "must be true or false")
    return value


def _number(
    fields: Fields, name: str, kind: type[int] | type[float], low: float, high: float
) -> Any:
    """The field as a number within its bounds, None where it is absent."""
    value = fields.pop(name, None)
    if value is None:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole and not (kind is float and isinstance(value, float)):
        raise bad_field(name, "must be a whole number" if kind is int else "must be a number")
    if not low <= value <= high:
        raise bad_field(name, f"must be from {low} to {high}")
    return kind(value)


def _n_predict(fields: Fields, model: ServedModel) -> int:
    """Most tokens to write; without limit (-1 as well) it is what the context holds."""
    values = [
        _number(fields, name, int, -1, _N_PREDICT_MAX)
        for name in ("max_completion_tokens", "max_tokens")
    ]
    given: set[int] = {n for n in values if n is not None}
    if len(given) > 1:
        raise bad_field("max_tokens", "contradicts max_completion_tokens")
    if 0 in given:
        raise bad_field("max_tokens", "must be at least 1, or -1 for no limit")
    n = given.pop() if given else -1
    return n if n > 0 else model.n_ctx


def _stop(value: Any) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list | tuple) or len(strings) > _N_STOP_MAX:
        raise bad_field("stop", f"must be a text or a list of at most {_N_STOP_MAX} texts")
    for text in strings:
        if not isinstance(text, str) or not 0 < len(text) <= _STOP_CHARS_MAX:
            raise bad_field("stop", f"each must be a text of 1 to {_STOP_CHARS_MAX} characters")
    return tuple(strings)


def _chain(fields: Fields, model: ServedModel) -> Chain:
    given: dict[str, Any] = {}
    for name, (field, kind, low, high) in _SAMPLING.items():
        if (number := _number(fields, name, kind, low, high)) is not None:
            given[field] = number
    if "logit_bias" in fields:
        given["logit_bias"] = _logit_bias(fields.pop("logit_bias"), model.n_vocab)
    return replace(model.chain, **given)


def _logit_bias(value: Any, n_vocab: int) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, dict) or len(value) > _N_BIAS_MAX:
        raise bad_field("logit_bias", f"must be an object of at most {_N_BIAS_MAX} token ids")
    for token in value:
        if not (token.isascii() and token.isdigit() and len(token) < 10 and int(token) < n_vocab):
            raise bad_field("logit_bias", f"{token[:40]!r} is not a token id below {n_vocab}")
    return tuple(
        (int(token), _number({"logit_bias": bias}, "logit_bias", float, -100, 100) or 0.0)
        for token, bias in value.items()
    )


def _include_usage(value: Any, stream: bool) -> bool:
    if not isinstance(value, dict):
        raise bad_field("stream_options", "must be an object")
    if value and not stream:
        raise bad_field("stream_options", "only means something with stream: true")
    include = value.get("include_usage", False)
    if not isinstance(include, bool) or value.keys() - {"include_usage"}:
        raise bad_field("stream_options", "only include_usage, true or false, is known")
    return include


def _refuse_rest(fields: Fields) -> None:
    """Nothing is ignored silently but what cannot change the answer."""
    for name, value in fields.items():
        if name in _HINTS or any(value is x or _equal(value, x) for x in _NOTHING.get(name, ())):
            continue
        why = "is not supported here" if name in _NOTHING else "is not a field of this request"
        raise bad_field(name[:80], why, "unsupported_parameter")


def _equal(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)
