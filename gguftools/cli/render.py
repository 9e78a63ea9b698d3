"""Everything a user sees: escaping of foreign text, numbers, tables, JSON."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Cell = tuple[str, str]  # text, style

# Default-ignorable code points that str.isprintable() lets through: they hide text.
_INVISIBLE = frozenset(
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0xE0100, 0xE01F0)]
)
# Marks that reorder a line: harmless in prose only as long as nobody means harm.
_BIDI = frozenset([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_TEXT_MAX = 4096  # characters of one foreign text shown on a terminal

STYLES = {
    "works": "green", "poor": "yellow", "blocked": "red",
    "error": "red", "warning": "yellow", "info": "cyan",
    "complete": "green", "none": "", "broken": "red", "unsupported": "yellow",
    "trunk-only": "yellow", "head-only": "yellow",
}  # fmt: skip


def printable(text: str) -> str:
    """`text` on one line with nothing in it that a terminal obeys or hides, cut if it is long."""
    shown = "".join(
        c if c.isprintable() and ord(c) not in _INVISIBLE else _escape(c) for c in text[:_TEXT_MAX]
    )
    return shown if len(text) <= _TEXT_MAX else f"{shown}... ({len(text)} characters)"


def stream_text(text: str) -> str:
    """A piece of a reply: lines and tabs stay, what a terminal would obey is made visible."""
    return "".join(_escape(c) if _is_control(c) else c for c in text)


def _is_control(c: str) -> bool:
    code = ord(c)
    control = code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000
    return (control and c not in "\n\t") or code in _BIDI


def _escape(c: str) -> str:
    return c.encode("unicode_escape").decode("ascii") if not 0x20 <= ord(c) < 0x7F else c


def make_streams_safe() -> None:
    """What the terminal's encoding lacks is escaped instead of being an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def json_object(value: Mapping[str, object]) -> None:
    """One object on stdout; ASCII, so that it can be looked at safely too."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def note(text: str) -> None:
    """A remark for the user: stderr."""
    click.echo(f"gguftools: {printable(text)}", err=True)


def wants_color(stream: TextIO | None = None) -> bool:
    """Whether to colour a stream (stdout): --color, else a terminal without NO_COLOR."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None and ctx.color is not None:
        return ctx.color
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return (stream or sys.stdout).isatty() and not plain


def console() -> Console:
    """A console on stdout that neither interprets markup nor cuts lines in a pipe."""
    from rich.console import Console

    color = wants_color()
    return Console(
        force_terminal=color,
        color_system="standard" if color else None,
        width=None if sys.stdout.isatty() else 4 * _TEXT_MAX,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


def facts(rows: Iterable[tuple[str, str | Cell]]) -> None:
    """Lines of `label  value`, values wrapped under themselves."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        text, style = value if isinstance(value, tuple) else (value, "")
        table.add_row(label, Text(printable(text), style=style))
    _show(table)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """A table without rules; the columns numbered in `right` are numbers."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for i, title in enumerate(head):
        grid.add_column(title, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    _show(grid)


def _show(table: Table) -> None:
    """Print a table without the spaces that pad its last column."""
    to = console()
    with to.capture() as captured:
        to.print(table)
    click.echo("\n".join(row.rstrip() for row in captured.get().splitlines()), color=True)


def line(text: str = "", style: str = "") -> None:
    """One line on stdout."""
    click.echo(styled(printable(text), style), color=True)


def aside(text: str) -> None:
    """A line beside the result: stderr, dim."""
    click.echo(styled(printable(text), "dim", sys.stderr), err=True, color=True)


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """`text` for direct output: bold, dim or in a colour where colours are wanted."""
    if not (text and style and wants_color(stream)):
        return text
    if style in ("bold", "dim"):
        return click.style(text, bold=style == "bold" or None, dim=style == "dim" or None)
    return click.style(text, fg=style)


def n_bytes(n: int | None) -> str:
    """A size in decimal units, as file browsers and model pages show it."""
    if n is None:
        return "?"
    for size, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if n >= size:
            return f"{n / size:.4g} {unit}"
    return f"{n} B"


def n_params(n: int) -> str:
    """A parameter count: 134.5 M, 30.5 B."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return str(n)


def count(n: int, noun: str) -> str:
    """`1 token`, `2 tokens`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def ratio(value: float | None) -> str:
    """A share in percent, `-` where there is none."""
    return "-" if value is None else f"{100 * value:.0f} %"


def rate(value: float | None, unit: str = "") -> str:
    """A number with a decimal, `-` where there is none."""
    return "-" if value is None else f"{value:.1f}{unit}"
