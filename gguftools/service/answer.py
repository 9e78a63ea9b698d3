"""Replies as OpenAI's JSON objects, with llama-server's timings beside them. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gguftools.service.job import Ending, Heard, Progress
from gguftools.speculative.stats import Report
from gguftools.speculative.streaming import StopReason

Object = dict[str, Any]

DONE = b"data: [DONE]\n\n"
_FINISH: dict[StopReason, str] = {"eog": "stop", "stop": "stop"}  # else the length ended it


@dataclass(frozen=True, slots=True)
class Shape:
    """How one answer is written: a chat's or a completion's, under its id."""

    chat: bool
    id: str
    created: int
    model: str

    def whole(self, ending: Ending) -> Object:
        """The answer in one object."""
        choice: Object = {"message": {"role": "assistant", "content": ending.text}}
        if not self.chat:
            choice = {"text": ending.text}
        answer = self._object(choice, _finish(ending), chunk=False)
        return {**answer, "usage": usage(ending), "timings": timings(ending)}

    def opening(self) -> Object:
        """The chunk before the first text."""
        return self._object({"delta": {"role": "assistant", "content": ""}}, None)

    def piece(self, heard: Heard) -> Object:
        """A chunk with text, and whether a drafter proposed it."""
        choice: Object = {"delta": {"content": heard.text}} if self.chat else {"text": heard.text}
        chunk = self._object({**choice, "drafted": heard.drafted}, None)
        if heard.progress is not None:
            chunk["timings"] = _timings_so_far(heard.progress)
        return chunk

    def closing(self, ending: Ending) -> Object:
        """The chunk after the last text."""
        choice: Object = {"delta": {}} if self.chat else {"text": ""}
        return {**self._object(choice, _finish(ending)), "timings": timings(ending)}

    def usage_only(self, ending: Ending) -> Object:
        """The chunk that stream_options.include_usage asks for."""
        return {**self._object(None, None), "usage": usage(ending)}

    def _object(self, choice: Object | None, finish: str | None, *, chunk: bool = True) -> Object:
        kind = "chat.completion" if self.chat else "text_completion"
        rest = {"index": 0, "logprobs": None, "finish_reason": finish}
        return {
            "id": self.id,
            "object": f"{kind}.chunk" if self.chat and chunk else kind,
            "created": self.created,
            "model": self.model,
            "choices": [] if choice is None else [{**choice, **rest}],
        }


def event(value: Object) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def usage(ending: Ending) -> Object:
    """Tokens as OpenAI counts them; the end token is one of the reply's."""
    n_prompt, n_tokens = ending.report.n_prompt, ending.report.n_tokens
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_tokens,
        "total_tokens": n_prompt + n_tokens,
        "prompt_tokens_details": {"cached_tokens": ending.n_cached},
    }


def timings(ending: Ending) -> Object:
    """The names are llama-server's; draft_n is 0 where nothing was drafted."""
    report = ending.report
    return {
        "cache_n": ending.n_cached,
        "prompt_n": report.n_prompt - ending.n_cached,
        "prompt_ms": 1000 * report.seconds_prompt,
        **_timings_so_far(_totals(report)),
    }


def _totals(report: Report) -> Progress:
    return Progress(report.n_tokens, report.seconds_decode, report.n_draft, report.n_accepted)


def _timings_so_far(progress: Progress) -> Object:
    seconds = progress.seconds_decode
    return {
        "predicted_n": progress.n_tokens,
        "predicted_ms": 1000 * seconds,
        "predicted_per_second": progress.n_tokens / seconds if seconds > 0 else None,
        "draft_n": progress.n_draft,
        "draft_n_accepted": progress.n_accepted,
    }


def _finish(ending: Ending) -> str:
    return _FINISH.get(ending.reason, "length")
