"""`gguftools completion SHELL`: the script that completes verbs and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from gguftools.errors import UsageError


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    Examples:
      gguftools completion bash > ~/.local/share/bash-completion/completions/gguftools
      gguftools completion zsh > "${fpath[1]}/_gguftools"
      gguftools completion fish > ~/.config/fish/completions/gguftools.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this version of click has no completion for {shell}")
    root = ctx.find_root().command
    click.echo(kind(root, {}, "gguftools", "_GGUFTOOLS_COMPLETE").source())
