"""The options that name an engine: this process, a llama-server to start, or one that runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import click

from gguftools.cli.options import FILE, given
from gguftools.errors import UsageError

# What no llama-server tells or does.
_INPROCESS = ("trace", "show_drafts", "verify")
# What a llama-server takes at its start alone.
_AT_START = (
    "draft", "drafter", "mtp", "ngram", "no_draft", "draft_max", "draft_min", "draft_p_min",
    "n_ctx", "n_threads", "n_gpu_layers", "n_gpu_layers_draft", "device", "device_draft",
    "split_mode", "cache_type_k", "cache_type_v", "cache_type_k_draft", "cache_type_v_draft",
    "context_shift", "n_keep", "server", "target",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where to run: `url` means a server that runs already, and the engine is server then."""

    engine_name: Literal["inprocess", "server"] = "inprocess"
    server: Path | None = None
    url: str | None = None
    api_key: str | None = None


_OPTIONS = (
    click.option(
        "--engine", "engine_name", type=click.Choice(["inprocess", "server"]),
        help="What decodes: this process, or a llama-server.  [default: inprocess]",
    ),
    click.option(
        "--server", type=FILE, metavar="PATH",
        help="The llama-server to start.  [default: LLAMA_SERVER, PATH, installed packages]",
    ),
    click.option("--url", help="A llama-server that runs already, such as http://127.0.0.1:8080."),
    click.option(
        "--api-key", envvar="LLAMA_API_KEY",
        help="The key of the server at --url.  [default: LLAMA_API_KEY]",
    ),
)  # fmt: skip


def server_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--engine`, `--server`, `--url` and `--api-key`, handed over as `where`.

    Options that the chosen engine cannot honour are refused, whoever else reads them.
    """

    @functools.wraps(command)
    def wrapper(**values: Any) -> int:
        where = _where(**{f.name: values.pop(f.name) for f in fields(ServerOptions)})
        return command(where=where, **values)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper


def _where(
    engine_name: Literal["inprocess", "server"] | None,
    server: Path | None,
    url: str | None,
    api_key: str | None,
) -> ServerOptions:
    if engine_name == "inprocess" and (server is not None or url is not None):
        flag = "--server" if url is None else "--url"
        raise UsageError(f"{flag} and --engine inprocess contradict each other")
    if url is not None:
        _refuse((*_INPROCESS, *_AT_START), "--url", "it was settled when that server was started")
    elif engine_name == "server" or server is not None:
        _refuse(_INPROCESS, "--engine server", "only the engine of this process can do it")
    if given("api_key") and url is None:
        raise UsageError("--api-key is for --url")
    chosen = engine_name or ("inprocess" if server is None and url is None else "server")
    return ServerOptions(chosen, server, url, api_key)


def _refuse(names: tuple[str, ...], engine: str, why: str) -> None:
    """UsageError for the first of these options that was given."""
    params = {param.name: param for param in click.get_current_context().command.params}
    for name in names:
        if given(name):
            flag = next((o for o in params[name].opts if o.startswith("--")), name.upper())
            raise UsageError(f"{flag} does not go with {engine}: {why}")
