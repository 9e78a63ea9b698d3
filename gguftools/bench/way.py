"""One way to decode that is measured, and a reply of it as a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from gguftools.bench.prompt_set import Prompt
from gguftools.bench.report import Run
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
    report = reply.report
    return Run(
        prompt=prompt.name,
        task=prompt.task,
        round=round_,
        text=reply.text,
        token_ids=tuple(reply.token_ids),
        stop_reason=reply.stop_reason,
        n_prompt=report.n_prompt,
        n_tokens=report.n_tokens,
        seconds_prompt=report.seconds_prompt,
        seconds_decode=report.seconds_decode,
        tokens_per_second=report.tokens_per_second,
        drafter=drafter,
        n_draft=report.n_draft,
        n_accepted=report.n_accepted,
        n_rounds=report.n_rounds,
        drafted_by_position=tuple(report.drafted_by_position),
        accepted_by_position=tuple(report.accepted_by_position),
        n_draft_histogram=dict(report.n_draft_histogram),
        seconds_draft=report.seconds_draft,
        seconds_verify=report.seconds_verify,
        by_drafter=dict(report.by_drafter),
    )
