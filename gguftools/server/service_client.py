"""A client of `gguftools serve --engine inprocess`: OpenAI's endpoints, not llama-server's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gguftools.server.client import Client
from gguftools.server.metrics import Counters, Props, Slot, count
from gguftools.server.stream import Stream

OWNER = "gguftools"
# What both call by the same name.
_SAME = (
    "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n",
    "frequency_penalty", "presence_penalty", "seed", "stop", "timings_per_token",
)  # fmt: skip
_STOP_TYPES = {"length": "limit", "stop": "word"}


class ServiceClient(Client):
    """The same questions, as far as such a service answers them."""

    def served(self) -> tuple[Props, str] | None:
        """What it serves and its drafter; None if this is somebody else's service."""
        for model in self.listed():
            meta = model.get("meta")
            if model.get("owned_by") == OWNER and isinstance(meta, dict):
                name, drafter = str(model.get("id", "")), meta.get("drafter")
                props = Props("", name, count(meta.get("n_ctx")), 1)
                return props, drafter if isinstance(drafter, str) else "none"
        return None

    def slots(self) -> tuple[Slot, ...] | None:
        """Unknown."""
        return None

    def metrics(self) -> Counters | None:
        """Unknown."""
        return None

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> str | list[Mapping[str, str]]:
        """The conversation as it is: the service renders it."""
        return list(messages)

    def complete(self, fields: Mapping[str, object]) -> Stream:
        """The events of a reply, in llama-server's words."""
        prompt = fields["prompt"]
        asked = {name: fields[name] for name in _SAME if name in fields}
        bias = fields.get("logit_bias")
        if isinstance(bias, list) and bias:
            asked["logit_bias"] = {str(token): value for token, value in bias}
        asked |= {"max_tokens": fields["n_predict"], "stream": True}
        asked |= {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
        path = "/v1/completions" if isinstance(prompt, str) else "/v1/chat/completions"
        return _Translated(self._http, path, asked, self._quiet)


class _Translated(Stream):
    """Chunks as OpenAI words them, as events of llama-server."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for chunk in super().__iter__():
            choices = chunk.get("choices")
            choice = choices[0] if isinstance(choices, list) and choices else None
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
            event = {"content": text, "timings": chunk.get("timings"), "stop": False}
            if isinstance(why := choice.get("finish_reason"), str):
                stopped = "eos" if why == "stop" and not self.fields["stop"] else None
                event |= {"stop": True, "stop_type": stopped or _STOP_TYPES.get(why)}
            yield event
