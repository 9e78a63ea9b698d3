"""Options that several verbs share, and their checks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

# A Path that need not exist: a missing file is exit code 3 with the reader's own words.
FILE = click.Path(path_type=Path)
# Also a pattern, a folder, a Hub repository or a URL: see gguf/place.py.
PLACE = click.Path()

Command = TypeVar("Command", bound=Callable[..., Any])
PROMPT_BYTES_MAX = 16 << 20


class Number(click.ParamType[int | float]):
    """A whole or finite number from `low` to `high`."""

    name = "n"

    def __init__(self, kind: type[int] | type[float], low: float, high: float) -> None:
        self.kind, self.low, self.high = kind, low, high

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        try:
            number = self.kind(value)
        except ValueError:
            number = math.nan
        if not self.low <= number <= self.high:
            what = "a whole number" if self.kind is int else "a number"
            self.fail(f"{value!r} is not {what} from {self.low} to {self.high}.", param, ctx)
        return number


class DeviceList(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "dev,.."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} is not a list of devices, such as CUDA0,CUDA1.", param, ctx)
        return names


class LogitBias(click.ParamType[tuple[int, float]]):
    """A token id with a signed number, as llama.cpp writes it."""

    name = "id+n"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float]:
        match = re.fullmatch(r"(\d{1,9})([+-]\d{1,6}(?:\.\d{1,9})?)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a token id with a signed number.", param, ctx)
        return int(match[1]), float(match[2])


def given(*names: str) -> bool:
    """Whether one of these options stands on the command line."""
    ctx = click.get_current_context()
    return any(ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE for n in names)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def color_option(command: Command) -> Command:
    """`--color`, kept in the context, where the renderer looks."""

    def keep(ctx: click.Context, param: click.Parameter, value: str) -> None:
        ctx.color = {"on": True, "off": False}.get(value)

    return click.option(
        "--color",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        expose_value=False,
        callback=keep,
        help="Colour the output: auto means on a terminal without NO_COLOR.",
    )(command)
