"""`gguftools run TARGET -p PROMPT`: one answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from gguftools.cli import render
from gguftools.cli.contract import RunJSON, RunSettingsJSON
from gguftools.cli.engine import opened_engine, traps
from gguftools.cli.engine_options import EngineOptions, ReplyOptions, engine_options
from gguftools.cli.options import FILE, PROMPT_BYTES_MAX, color_option, given, json_option
from gguftools.cli.reply import (
    compared,
    equality_json,
    equality_line,
    reply_json,
    stats_line,
    stream,
    system_turn,
)
from gguftools.cli.server_options import ServerOptions, server_options
from gguftools.errors import EngineError, SourceError, UsageError

if TYPE_CHECKING:
    from gguftools.speculative.equality import Equality
    from gguftools.speculative.streaming import AnyReply, AnySession


@click.command(short_help="Answer one prompt.")
@click.argument("target", type=FILE, required=False)
@click.option("-p", "--prompt", help="What to answer.  [default: what is piped in]")
@click.option("-f", "--file", "prompt_file", type=FILE, help="A file to take it from; - is stdin.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without chat template.")
@click.option(
    "--verify", is_flag=True, help="Decode again without drafts and compare the texts (--temp 0)."
)
@engine_options
@server_options
@click.option(
    "--stats/--no-stats", default=None, help="End with a line of numbers.  [default: on a terminal]"
)
@json_option
@color_option
def run(
    target: Path | None,
    prompt: str | None,
    prompt_file: Path | None,
    raw: bool,
    verify: bool,
    how: ReplyOptions,
    engine: EngineOptions,
    where: ServerOptions,
    stats: bool | None,
    as_json: bool,
) -> int:
    """Answer one prompt with the model TARGET, drafting where that is faster.

    The draft changes the speed, not what is written: the text has the distribution of plain
    decoding. At --temp 0 it is the same text but for near ties, which --verify shows.

    \b
    Examples:
      gguftools run model.gguf -p "Why is the sky blue?"
      gguftools run model.gguf --draft small.gguf -p "Why?" --stats
      gguftools run model.gguf --mtp --temp 0 -n 200 -f question.txt
      gguftools run model.gguf --draft small.gguf --temp 0 --verify -p "Why?"
      git diff | gguftools run model.gguf --system "Review this patch." --ngram
      gguftools run model.gguf --raw -p "def fib(n):" -n 64 --json
      gguftools run model.gguf --mtp --engine server -p "Why?"
      gguftools run --url http://127.0.0.1:8080 -p "Why?" --stats
    """
    if verify and engine.sampling["temp"] > 0:
        raise UsageError("--verify compares greedy texts: add --temp 0")
    if target is None and where.url is None:
        raise UsageError("no TARGET given", hint="a GGUF file, or --url of a server")
    if raw and how.system is not None:
        raise UsageError("--raw leaves no place for --system")
    text = _prompt(prompt, prompt_file)
    with opened_engine(target, engine, where) as session:
        settings = _settings(target, engine, where, session)
        messages = [*system_turn(how), {"role": "user", "content": text}]
        reply = session.reply(text if raw else messages, how.n_predict, raw=raw, stop=how.stop)
        try:
            stream(reply, how, show=not as_json)
        except EngineError:
            if as_json and reply.text:
                _print_json(reply, session.drafter_name, settings, None)
            raise
        equality, model = compared(session, reply) if verify else (None, None)
        if as_json:
            _print_json(reply, session.drafter_name, settings, equality)
        if sys.stderr.isatty() if stats is None else stats:
            render.aside(stats_line(reply.report, session.drafter_name))
        if equality is not None and model is not None:
            render.aside(equality_line(equality, model))
        for trap in traps(session, reply, where):
            render.note(trap)
    if reply.stop_reason == "cancelled":
        return 130
    return 0 if equality is None or equality.holds else 1


def _settings(
    target: Path | None, engine: EngineOptions, where: ServerOptions, session: AnySession
) -> RunSettingsJSON:
    ours = where.engine_name == "inprocess"  # a server gets what pair predicts, else what is given
    return RunSettingsJSON(
        engine=where.engine_name,
        target=str(target) if target is not None else None,
        draft=str(engine.draft) if engine.draft is not None else None,
        temp=engine.sampling["temp"],
        draft_max=session.draft_max or (engine.draft_max if given("draft_max") else None),
        draft_min=engine.draft_min if ours or given("draft_min") else None,
        draft_p_min=engine.draft_p_min if ours or given("draft_p_min") else None,
    )


def _print_json(
    reply: AnyReply, drafter: str, settings: RunSettingsJSON, equality: Equality | None
) -> None:
    verdict, answer = equality_json(equality), reply_json(reply, drafter)
    render.json_object(
        RunJSON(schema="gguftools.run/1", settings=settings, verify=verdict, **answer)
    )


def _prompt(prompt: str | None, file: Path | None) -> str:
    """The prompt from the one place that was named, else from a pipe."""
    if prompt is not None and file is not None:
        raise UsageError("--prompt and --file contradict each other")
    if prompt is None and file is None and sys.stdin.isatty():
        raise UsageError("no prompt: give --prompt, --file or pipe one in")
    if prompt is None:
        prompt = _read_prompt(file)
    if not prompt.strip():
        raise UsageError("the prompt is empty")
    return prompt


def _read_prompt(file: Path | None) -> str:
    if file is None or str(file) == "-":
        return _decode(sys.stdin.buffer, "stdin")
    try:
        with file.open("rb") as opened:
            return _decode(opened, str(file))
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(file)) from err


def _decode(file: BinaryIO, where: str) -> str:
    content = file.read(PROMPT_BYTES_MAX + 1)
    if len(content) > PROMPT_BYTES_MAX:
        raise UsageError(f"the prompt is larger than {PROMPT_BYTES_MAX >> 20} MiB", where=where)
    try:
        return content.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as err:
        raise SourceError(f"not UTF-8 text: {err.reason} at byte {err.start}", where=where) from err
