"""One reply of a llama-server as it streams: pieces of text, then its own timings as a report."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from time import perf_counter
from typing import Any

from gguftools.errors import EngineError, GGUFToolsError
from gguftools.server.answers import LostError
from gguftools.server.client import Client
from gguftools.server.metrics import (
    Counters,
    Timings,
    between,
    count,
    of_reply,
    read_timings,
    report_of,
)
from gguftools.speculative.stats import Report, Step
from gguftools.speculative.streaming import Piece, StopReason

# The last event would repeat the prompt and all settings.
_FIELDS = (
    "content", "tokens", "stop", "stop_type", "tokens_evaluated", "tokens_predicted", "timings",
)  # fmt: skip
_STREAMED = {
    "return_tokens": True,
    "timings_per_token": True,
    "return_progress": True,  # a sign of life from each batch of the prompt
    "cache_prompt": True,
    "response_fields": list(_FIELDS),
}


class ServerReply:
    """Iterate it once for Pieces; `stop()` from a signal handler cuts it, and the server stops.

    `before` is what the server had counted until now: with it, acceptance is known by position.
    `explain` says what an error in the reply comes from.
    """

    def __init__(
        self,
        client: Client,
        fields: Mapping[str, object],
        *,
        n_ctx: int,
        drafter: str,
        before: Counters | None,
        explain: Callable[[EngineError], EngineError],
    ) -> None:
        self._client, self._stream = client, client.complete({**fields, **_STREAMED})
        self._n_predict = count(fields.get("n_predict"))
        self._drafter, self._before, self._explain = drafter, before, explain
        self.n_ctx = n_ctx
        self.stop_reason: StopReason = "cancelled"
        self.token_ids: list[int] = []
        self.steps: list[Step] = []
        self.counted: Counters | None = None  # what /metrics counted in this reply alone
        self._texts: list[str] = []
        self._timings: object = None
        self._n_prompt = 0
        self._first = 0.0

    def stop(self) -> None:
        """End the reply now; what was written stays."""
        self._stream.stop()

    @property
    def text(self) -> str:
        """What was yielded so far."""
        return "".join(self._texts)

    @property
    def report(self) -> Report:
        """Counts and seconds by the server's clock."""
        return report_of(self._measured(), self._drafter, self.counted)

    def __iter__(self) -> Generator[Piece, None, None]:
        self._first = perf_counter()
        try:
            yield from self._pieces()
        except GGUFToolsError as err:
            self.stop_reason = "error"
            if isinstance(err, EngineError):
                raise self._explain(err) from err
            raise
        if self._before is not None and self.stop_reason != "cancelled":
            self._count(self._before)

    def _pieces(self) -> Generator[Piece, None, None]:
        for event in self._stream:
            if text := self._taken(event):
                self._texts.append(text)
                yield Piece(text, False)
            if event.get("stop") is True:
                self.stop_reason = self._reason(event.get("stop_type"))
                return
        if not self._stream.stopped:
            raise LostError("its reply breaks off", where=self._client.url)

    def _taken(self, event: Mapping[str, Any]) -> str:
        """The text of an event; its numbers are kept."""
        if not self.token_ids:
            self._first = perf_counter()
        ids, text = event.get("tokens"), event.get("content")
        if isinstance(ids, list) and "prompt_progress" not in event:  # its one token is none
            self.token_ids += map(count, ids)
        self._timings = event.get("timings") or self._timings
        self._n_prompt = count(event.get("tokens_evaluated")) or self._n_prompt
        return text if isinstance(text, str) else ""

    def _reason(self, stop_type: object) -> StopReason:
        if stop_type == "eos":
            return "eog"
        if stop_type == "word":
            return "stop"
        n_max = self._n_predict  # -1, no limit, was counted as 0
        return "length" if n_max and self._measured().n_predicted >= n_max else "context"

    def _measured(self) -> Timings:
        """The server's timings, else our own clock's."""
        if (found := read_timings(self._timings)) is not None:
            return found
        seconds = perf_counter() - self._first if self.token_ids else 0.0
        return Timings(0, self._n_prompt, 0.0, len(self.token_ids), seconds, 0, 0)

    def _count(self, before: Counters) -> None:
        try:
            total = self._client.metrics()
        except EngineError:  # the reply is whole; only its positions stay unknown
            return
        counted = between(before, total) if total is not None else None
        self.counted = of_reply(self._measured(), counted, total)
