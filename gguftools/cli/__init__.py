"""The command line: one module per verb. Here errors become one line and an exit code.

0 done or yes, 1 the answer is no, 2 misuse, 3 no answer could be given, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from gguftools import __version__
from gguftools.cli import render
from gguftools.errors import GGUFToolsError

__all__ = ["commands", "main"]

INTERRUPTED = 130  # 128 + SIGINT
_REMOTE = ("hf://", "http://", "https://")
PIPE_CLOSED = 141  # 128 + SIGPIPE
# Each is a command of that name in the module of that name, imported when it is asked for.
VERBS = (
    "inspect", "diff", "pair", "run", "chat", "serve", "bench", "tune", "recipe", "explain",
    "doctor", "completion",
)  # fmt: skip


class Verbs(click.Group):
    """The verbs; a path where a verb is expected means `inspect`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        first = args[0]
        is_place = first.endswith(".gguf") or first.startswith(_REMOTE) or os.path.exists(first)
        if first not in VERBS and is_place:
            args = ["inspect", *args]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `| head` has seen enough; what is still buffered goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return PIPE_CLOSED

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"gguftools.cli.{cmd_name}"), cmd_name)
        return command


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "--version", message="gguftools %(version)s")
def commands() -> None:
    """Inspect GGUF files, pair a target with a draft, run them faster and losslessly.

    \b
    Examples:
      gguftools model.gguf                      what is in it, did its MTP head survive
      gguftools diff before.gguf after.gguf     what did quantizing it change
      gguftools pair model.gguf draft.gguf      will llama.cpp draft with this pair
      gguftools run model.gguf -p "Why?"        one answer, drafted when that is faster
      gguftools chat model.gguf                 a conversation
      gguftools doctor                          what can this machine draft with

    Results go to stdout, notes and errors to stderr; every verb that has a result prints it
    as one JSON object with --json.

    Exit codes: 0 done or yes, 1 the answer is no, 2 misuse, 3 no answer could be given,
    130 interrupted.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's own) and return its exit code."""
    render.make_streams_safe()
    try:
        arguments = None if args is None else list(args)
        code = commands.main(arguments, prog_name="gguftools", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as err:
        err.show()
        return err.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as err:
        return _report(err.format_message() + _help_hint(err), code=err.exit_code)
    except GGUFToolsError as err:
        return _report(str(err), code=err.exit_code)
    except Exception as err:  # noqa: BLE001  the process's edge: a bug must exit 3, not 1 ("no")
        return _report(f"unexpected {type(err).__name__}: {err}; this is a bug", code=3)
    return code if isinstance(code, int) else 0


def _report(message: str, *, code: int) -> int:
    """One line on stderr; the traceback only for those who ask for it."""
    if os.environ.get("GGUFTOOLS_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    click.echo(f"gguftools: error: {render.printable(message)}", err=True)
    return code


def _help_hint(err: click.ClickException) -> str:
    """Where to read on after a misuse."""
    ctx = err.ctx if isinstance(err, click.UsageError) else None
    return f" (see {ctx.command_path} --help)" if ctx is not None else ""
