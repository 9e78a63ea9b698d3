"""The options of `gguftools serve`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import click

from gguftools.cli.engine_options import model_options
from gguftools.cli.options import FILE, Number
from gguftools.errors import UsageError

FEATURE_KINDS = ("draft-eagle3", "draft-dflash", "draft-dspark")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Which engine serves, where, for whom. `kind` is that of a draft only llama-server takes."""

    engine_name: Literal["server", "inprocess"]
    server: Path | None
    recipe: str | None
    kind: str | None
    n_parallel: int
    cpu_moe: bool
    host: str
    port: int
    api_key: str | None
    alias: str | None
    log_file: Path | None
    queue_max: int
    print_command: bool
    adapt: bool


_OPTIONS = (
    click.option(
        "--engine", "engine_name", type=click.Choice(["server", "inprocess"]), default="server",
        show_default=True, help="What decodes: a llama-server, or this process (one reply at a "
        "time, drafts of a length that adapts).",
    ),
    click.option(
        "--server", type=FILE, metavar="PATH",
        help="The llama-server to start.  [default: LLAMA_SERVER, PATH, installed packages]",
    ),
    click.option("--recipe", help="Serve the pair of a recipe, by its name or file."),
    click.option("--eagle3", is_flag=True, help="The --draft is an EAGLE-3 head."),
    click.option("--dflash", is_flag=True, help="The --draft is a DFlash draft."),
    click.option("--dspark", is_flag=True, help="The --draft is a DSpark draft."),
    click.option(
        "-np", "--parallel", "n_parallel", type=Number(int, 1, 1024), default=1, show_default=True,
        help="Replies at a time; drafts pay less with each.",
    ),
    click.option("-cmoe", "--cpu-moe", is_flag=True, help="The experts stay in RAM."),
    click.option(
        "--host", default="127.0.0.1", show_default=True, help="The address to listen on."
    ),
    click.option(
        "--port", type=Number(int, 0, 65535), default=0, help="The port.  [default: a free one]"
    ),
    click.option(
        "--api-key", envvar="LLAMA_API_KEY", metavar="KEY",
        help="Clients must send it.  [default: LLAMA_API_KEY]",
    ),
    click.option("-a", "--alias", help="The model's name for clients.  [default: the file's]"),
    click.option("--log-file", type=FILE, help="Append the log of llama-server to this file."),
    click.option(
        "--queue-max", type=Number(int, 1, 1 << 16), default=32, show_default=True,
        help="With --engine inprocess: requests that may wait; more get 503.",
    ),
    click.option(
        "--print-command", is_flag=True, help="Print the command that would be run, and stop."
    ),
    click.option(
        "--adapt", is_flag=True,
        help="Measure other draft lengths while nobody asks, and restart llama-server once if one "
        "is faster by 5 %.",
    ),
)  # fmt: skip


def serve_options(command: Callable[..., int]) -> Callable[..., int]:
    """Those of the engine, handed over as `engine`, and its own as `serving`."""

    @functools.wraps(command)
    def wrapper(**values: Any) -> int:
        kinds = [kind for kind in FEATURE_KINDS if values.pop(kind.removeprefix("draft-"))]
        flags = [f"--{kind.removeprefix('draft-')}" for kind in kinds]
        if len(kinds) > 1:
            raise UsageError(f"{' and '.join(flags)} contradict each other")
        values["kind"] = kinds[0] if kinds else None
        serving = ServeOptions(**{f.name: values.pop(f.name) for f in fields(ServeOptions)})
        engine = values["engine"]
        if kinds and (engine.draft is None or engine.drafter not in ("auto", "draft")):
            raise UsageError(f"{flags[0]} needs --draft FILE, and no other drafter")
        return command(serving=serving, **values)

    outer = model_options(wrapper)
    for option in reversed(_OPTIONS):
        outer = option(outer)
    return outer
