"""A bar on stderr for what takes over a second; nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

SECONDS_UNSHOWN = 1.0
Progress = Callable[[int, int], None]  # done, of how many


@contextmanager
def progress(what: str, *, in_bytes: bool = False) -> Iterator[Progress]:
    """A function to call with how much is done; the bar vanishes at the end."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    start = time.monotonic()
    with ExitStack() as stack:
        shown = cache(lambda: _bar(what, stack, in_bytes=in_bytes))

        def report(done: int, total: int) -> None:
            if time.monotonic() - start >= SECONDS_UNSHOWN:
                shown()(done, total)

        yield report


def _bar(what: str, stack: ExitStack, *, in_bytes: bool) -> Progress:
    from rich import progress as bars
    from rich.console import Console

    amount = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    columns = (what, bars.BarColumn(), amount, bars.TimeRemainingColumn())
    bar = bars.Progress(*columns, console=Console(stderr=True), transient=True)
    stack.enter_context(bar)
    task = bar.add_task("", total=None)
    return lambda done, total: bar.update(task, completed=done, total=total)
