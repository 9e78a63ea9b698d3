"""One way to decode that is measured, and a reply of it as a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields

from gguftools.bench.prompt_set import Prompt
from gguftools.bench.report import Run
from gguftools.speculative.stats import Report
from gguftools.speculative.streaming import AnyReply

Answer = Callable[[Prompt, int, int], Run]  # prompt, round, n_predict


@dataclass(frozen=True, slots=True)
class Way:
    """A way to decode, opened before it answers. `learns`: its first reply is unlike the rest."""

    name: str
    n_draft: int | None
    open: Callable[[], AbstractContextManager[Answer]]
    learns: bool = False


def run_of(reply: AnyReply, prompt: Prompt, round_: int, drafter: str) -> Run:
    """A finished reply as a run."""
    report = {field.name: getattr(reply.report, field.name) for field in fields(Report)}
    return Run(
        **report,
        prompt=prompt.name,
        task=prompt.task,
        round=round_,
        text=reply.text,
        token_ids=tuple(reply.token_ids),
        stop_reason=reply.stop_reason,
        drafter=drafter,
    )
