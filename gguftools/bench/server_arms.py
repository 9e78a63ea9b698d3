"""A llama-server as ways to decode: one launch for each draft length, or one that runs already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from gguftools.bench.measure import N_WARM_UP
from gguftools.bench.prompt_set import Prompt
from gguftools.bench.report import Run
from gguftools.bench.way import Answer, Way, run_of
from gguftools.server.session import ServerSession

Start = Callable[[], ServerSession]
_WARM_UP = Prompt("warm-up", "", (("user", "Count from one to twenty."),))


def launched(name: str, n_draft: int | None, start: Start, *, raw: bool) -> Way:
    """A server that is started for its turn, warmed up, and stopped after it."""

    @contextmanager
    def opened() -> Iterator[Answer]:
        with start() as session:
            answer = answering(session, raw=raw)
            answer(_WARM_UP, 0, N_WARM_UP)
            yield answer

    return Way(name, n_draft, opened)


def running(name: str, session: ServerSession, *, raw: bool) -> Way:
    """A server that stays up between its turns."""
    answer = answering(session, raw=raw)
    return Way(name, None, lambda: nullcontext(answer))


def answering(session: ServerSession, *, raw: bool) -> Answer:
    """Replies of a server. It numbers its seeds itself."""

    def answer(prompt: Prompt, round_: int, n_predict: int) -> Run:
        reply = session.reply(prompt.text if raw else prompt.messages, n_predict, raw=raw)
        for _ in reply:
            pass
        return run_of(reply, prompt, round_, session.drafter_name)

    return answer
