"""Opens the engine, streams one reply to the screen, and says what it cost."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from gguftools.cli import render
from gguftools.cli.contract import EqualityJSON, ReplyJSON, ShareJSON
from gguftools.cli.engine_options import EngineOptions, ReplyOptions
from gguftools.errors import EngineError, SourceError
from gguftools.speculative.stats import Report
from gguftools.speculative.streaming import AnyReply, AnySession

if TYPE_CHECKING:
    from gguftools.speculative.equality import Equality
    from gguftools.speculative.llama import Model
    from gguftools.speculative.plan import Settings
    from gguftools.speculative.session import Session

_RUN_EXTRA = frozenset({"jinja2", "llama_cpp", "prompt_toolkit"})


@contextmanager
def run_extra() -> Iterator[None]:
    """Imports in here may fail where only the base of gguftools is installed."""
    try:
        yield
    except ModuleNotFoundError as err:
        if err.name not in _RUN_EXTRA:
            raise
        hint = 'pip install "gguftools[run]"'
        raise EngineError(f"{err.name} is not installed", hint=hint) from err


def settings_of(target: Path, options: EngineOptions) -> Settings:
    """What a session is made from."""
    from gguftools.speculative.plan import Settings
    from gguftools.speculative.sampling import Chain

    return Settings(
        target=target,
        draft=options.draft,
        drafter=options.drafter,
        ngram_first=options.ngram_first,
        draft_max=options.draft_max,
        draft_min=options.draft_min,
        draft_p_min=options.draft_p_min,
        n_ctx=options.n_ctx,
        n_threads=options.n_threads,
        n_gpu_layers=options.n_gpu_layers,
        n_gpu_layers_draft=options.n_gpu_layers_draft,
        device=options.device,
        device_draft=options.device_draft,
        split_mode=options.split_mode,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        cache_type_k_draft=options.cache_type_k_draft,
        cache_type_v_draft=options.cache_type_v_draft,
        context_shift=options.context_shift,
        n_keep=options.n_keep,
        chain=Chain(**options.sampling),
        seed=options.seed,
    )


@contextmanager
def opened_session(target: Path, options: EngineOptions) -> Iterator[Session]:
    """The engine with its models loaded. llama.cpp is imported here and not before."""
    with run_extra():
        from gguftools.speculative.session import open_session
    with open_session(settings_of(target, options)) as session:
        for remark in session.notes:
            render.note(remark)
        yield session


def system_turn(how: ReplyOptions) -> list[dict[str, str]]:
    """The system message, if one was given."""
    return [{"role": "system", "content": how.system}] if how.system is not None else []


def stream(reply: AnyReply, how: ReplyOptions, *, show: bool) -> None:
    """Take the whole reply, writing it as it comes; Ctrl-C ends the reply, not the program."""
    ends_line = True
    try:
        with _stopped_by_interrupt(reply):
            for piece in reply:
                if not (show and piece.text):
                    continue
                text = render.stream_text(piece.text)
                style = "cyan" if how.show_drafts and piece.drafted else ""
                click.echo(render.styled(text, style), nl=False, color=True)
                ends_line = text.endswith("\n")
    finally:
        if not ends_line:
            click.echo()
        if how.trace is not None:
            _write_trace(how.trace, reply)
    if reply.stop_reason == "context":
        render.note(
            f"the context of {reply.n_ctx} tokens is full: -c makes it larger, --context-shift "
            "forgets its older half and goes on"
        )


def _write_trace(path: Path, reply: AnyReply) -> None:
    """Append the rounds of a reply."""
    try:
        with path.open("a", encoding="utf-8") as file:
            for step in reply.steps:
                file.write(json.dumps(asdict(step)) + "\n")
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path)) from err


@contextmanager
def _stopped_by_interrupt(reply: AnyReply) -> Iterator[None]:
    """The first Ctrl-C asks the reply to stop; a second one is KeyboardInterrupt as usual."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        reply.stop()

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def reply_json(reply: AnyReply, drafter: str) -> ReplyJSON:
    """The reply for `--json`."""
    report = reply.report
    return ReplyJSON(
        text=reply.text,
        token_ids=list(reply.token_ids),
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
        drafted_by_position=list(report.drafted_by_position),
        accepted_by_position=list(report.accepted_by_position),
        n_draft_histogram={str(n): rounds for n, rounds in report.n_draft_histogram.items()},
        seconds_draft=report.seconds_draft,
        seconds_verify=report.seconds_verify,
        by_drafter={
            name: ShareJSON(
                n_rounds=share.n_rounds, n_draft=share.n_draft, n_accepted=share.n_accepted
            )
            for name, share in report.by_drafter.items()
        },
    )


def compared(session: AnySession, reply: AnyReply) -> tuple[Equality, Model]:
    """A greedy reply of our own engine beside plain decoding, and the model that both are of."""
    from gguftools.speculative.reply import Reply
    from gguftools.speculative.session import Session

    assert isinstance(session, Session)
    assert isinstance(reply, Reply)
    return session.compare_with_plain(reply), session.model


def equality_json(equality: Equality | None) -> EqualityJSON | None:
    """The comparison for `--json`."""
    if equality is None:
        return None
    return EqualityJSON(
        holds=equality.holds,
        n_tokens=equality.n_tokens,
        position=equality.position,
        plain=equality.plain,
        drafted=equality.drafted,
        gap=equality.gap,
        noise=equality.noise,
    )


def equality_line(equality: Equality, model: Model) -> str:
    """The comparison in one line."""
    if equality.plain is None or equality.drafted is None:
        return f"verify: the same {equality.n_tokens} tokens as plain decoding"
    plain, drafted = (model.text(t) for t in (equality.plain, equality.drafted))
    verdict = "a tie for this file" if equality.holds else "more than a tie: please report it"
    return (
        f"verify: token {equality.position} is {drafted!r}, {plain!r} in plain decoding; their "
        f"logits are {equality.gap:.2g} apart, batches alone move logits by {equality.noise:.2g}: "
        f"{verdict}"
    )


def stats_line(report: Report, drafter: str) -> str:
    """What a reply cost, in one line."""
    parts = [
        f"{render.rate(report.tokens_per_second)} tokens/s",
        f"{render.count(report.n_tokens, 'token')} in {render.count(report.n_rounds, 'round')}",
    ]
    if report.n_draft:
        parts += [
            f"{name}: {share.n_accepted} of {share.n_draft} drafted accepted "
            f"({render.ratio(share.n_accepted / share.n_draft)})"
            for name, share in report.by_drafter.items()
            if share.n_draft
        ]
        if report.n_draft_histogram:
            parts.append(f"draft lengths {_lengths(report.n_draft_histogram)}")
    elif drafter != "none":
        parts.append(f"{drafter}: nothing drafted")
    return ", ".join(parts)


def stats_table(report: Report) -> None:
    """The last reply in full: acceptance by position, lengths used, where the time went."""
    render.facts(
        [
            ("prompt", f"{report.n_prompt} tokens in {report.seconds_prompt:.2f} s"),
            ("reply", f"{report.n_tokens} tokens in {report.seconds_decode:.2f} s"),
            ("drafting", _seconds(report.seconds_draft)),
            ("verifying", _seconds(report.seconds_verify)),
            ("tokens/round", render.rate(report.tokens_per_round)),
        ]
    )
    positions = zip_longest(report.drafted_by_position, report.accepted_by_position)
    rows = [
        (
            str(i),
            "-" if drafted is None else str(drafted),
            str(accepted),
            render.ratio(accepted / drafted if drafted else None),
        )
        for i, (drafted, accepted) in enumerate(positions, 1)
    ]
    if rows:
        render.table(("position", "drafted", "accepted", ""), rows, right=(0, 1, 2, 3))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _lengths(histogram: dict[int, int]) -> str:
    """`0-5, mostly 3`."""
    low, high = min(histogram), max(histogram)
    if low == high:
        return str(low)
    return f"{low}-{high}, mostly {max(histogram, key=lambda n: histogram[n])}"
