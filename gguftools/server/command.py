"""What to serve -> the exact llama-server command: checked, spelled for the build at hand."""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gguftools.errors import EngineError, UsageError
from gguftools.pairing.dialect import NAMES, unknown_flag
from gguftools.pairing.launch import Launch, Settings, server_words
from gguftools.pairing.machine import usable_cores
from gguftools.pairing.server_binary import Server, find_server, read_server

LOCAL = "127.0.0.1"
# What a launch must not inherit: values that change it, and removed names that end it (arg.cpp).
_SCRUBBED = ("LLAMA_ARG_", "LLAMA_LOG_")
_KEY = "LLAMA_API_KEY"
# Of the words after --, those that we set ourselves, and one that moves /health away.
_OURS = ("target", "draft", "type", "host", "port", "api-key")
_OURS_TOO = ("--model", "--spec-draft-model", "--api-prefix")
_ANY = {"0.0.0.0": LOCAL, "::": "::1", "": LOCAL}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to serve and how. No kinds: plain decoding. None: as llama-server thinks best."""

    target: Path
    draft: Path | None = None
    kinds: tuple[str, ...] = ()
    settings: Settings | None = None
    n_ctx: int | None = None
    n_parallel: int = 1
    gpu: bool = False
    cpu_moe: bool = False
    n_threads: int | None = None
    n_gpu_layers: int | None = None
    n_gpu_layers_draft: int | None = None
    device: tuple[str, ...] = ()
    device_draft: tuple[str, ...] = ()
    split_mode: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    cache_type_k_draft: str | None = None
    cache_type_v_draft: str | None = None
    alias: str | None = None
    host: str = LOCAL
    port: int = 0  # 0: a free one
    api_key: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A llama-server as it will be started. `environ` is all of its environment."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    host: str
    port: int
    wanted: Wanted
    server: Server
    notes: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Where to reach it from here."""
        return _ANY.get(self.host, self.host)

    @property
    def url(self) -> str:
        """The same as a URL."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"

    @property
    def line(self) -> str:
        """What a shell needs to start the same."""
        key = self.wanted.api_key
        before = [f"{_KEY}={shlex.quote(key)}"] if key and _KEY in self.environ else []
        return " ".join([*before, shlex.join(self.argv)])


def at_hand(named: str | None = None) -> Server:
    """The llama-server that is named, else the one that is found; EngineError if there is none."""
    if named and os.path.isfile(named):
        named = os.path.abspath(named)  # a file here goes before one of that name on the PATH
    environ = {**os.environ, "LLAMA_SERVER": named} if named else os.environ
    path = find_server(environ)
    if path is None:
        where = named or os.environ.get("LLAMA_SERVER", "")
        raise EngineError(
            "there is no such program" if where else "no llama-server was found", where=where,
            hint="put it on the PATH, or name it with --server or in LLAMA_SERVER",
        )  # fmt: skip
    server = read_server(path)
    if server is None:
        raise EngineError(
            "it does not answer --help as llama-server does", where=str(path),
            hint="run it by hand to see why",
        )  # fmt: skip
    return server


def server_argv(
    wanted: Wanted, server: Server, *, environ: Mapping[str, str] = os.environ
) -> Command:
    """Its whole command line; UsageError names what this build has no option for."""
    launch = Launch(
        wanted.n_ctx, gpu=wanted.gpu and wanted.n_gpu_layers is None, cpu_moe=wanted.cpu_moe,
        n_parallel=wanted.n_parallel, dialect=server.dialect,
    )  # fmt: skip
    _refuse_unknown(wanted, server)
    draft = None if wanted.draft is None else str(wanted.draft)
    words = server_words(str(wanted.target), draft, wanted.kinds, wanted.settings, launch)
    if words is None:
        raise UsageError(
            f"this build ({server.version}) does not draft with {' and '.join(wanted.kinds)}",
            where=str(server.path), hint=f"it drafts with {', '.join(server.dialect.kinds)}",
        )  # fmt: skip
    port = wanted.port or free_port(wanted.host)
    for option, value in _options(wanted, port):
        name = server.dialect.name(option)
        assert name is not None
        words += [name, value]
    if wanted.alias is None and (name := server.dialect.name("alias")):
        words += [name, wanted.target.stem]  # else clients see the path
    words += [n for n in map(server.dialect.name, ("metrics", "slots")) if n]
    kept, notes = _environment(wanted, server, environ)
    if wanted.api_key and _KEY not in kept:
        words += ["--api-key", wanted.api_key]
    argv = (str(server.path), *words, *wanted.extra)
    return Command(argv, kept, wanted.host, port, wanted, server, notes)


def with_draft_max(command: Command, draft_max: int) -> Command:
    """The same with another length; 0 is plain decoding."""
    wanted = replace(command.wanted, port=command.port)
    if draft_max == 0:
        wanted = replace(wanted, kinds=(), draft=None)
    elif wanted.settings is not None:
        n_min = min(wanted.settings.draft_min, draft_max)
        settings = replace(wanted.settings, draft_max=draft_max, draft_min=n_min)
        wanted = replace(wanted, settings=settings)
    return server_argv(wanted, command.server, environ=command.environ)


def _options(wanted: Wanted, port: int) -> Iterator[tuple[str, str]]:
    """Each option that has a value, as NAMES calls it."""
    w = wanted
    layers, layers_draft = w.n_gpu_layers, w.n_gpu_layers_draft
    if layers_draft is None and w.draft is not None:
        layers_draft = layers
    n_threads = w.n_threads
    if n_threads is None and usable_cores() < (os.cpu_count() or 1):
        n_threads = usable_cores()  # more threads than cores stall each other
    values: Mapping[str, object] = {
        "threads": n_threads,
        "gpu-layers": 99 if layers == -1 else layers,
        "gpu-layers-draft": 99 if layers_draft == -1 else layers_draft,
        "device": ",".join(w.device) or None,
        "device-draft": ",".join(w.device_draft) or None,
        "split-mode": w.split_mode,
        "cache-type-k": w.cache_type_k,
        "cache-type-v": w.cache_type_v,
        "cache-type-k-draft": w.cache_type_k_draft,
        "cache-type-v-draft": w.cache_type_v_draft,
        "alias": w.alias,
        "host": w.host,
        "port": port,
    }
    yield from ((name, str(value)) for name, value in values.items() if value is not None)


def _refuse_unknown(wanted: Wanted, server: Server) -> None:
    """What was asked for and this build has no option for."""
    asked = [name for name, _ in _options(wanted, wanted.port)]
    asked += ["cpu-moe"] if wanted.cpu_moe else []
    asked += ["draft"] if wanted.draft is not None else []
    missing = [NAMES[name][-1] for name in asked if server.dialect.name(name) is None]
    reserved = {name for option in _OURS for name in NAMES[option]} | {*_OURS_TOO}
    if ours := [word for word in wanted.extra if word in reserved]:
        raise UsageError("is set by gguftools itself", where=ours[0],
                         hint="give it before --")  # fmt: skip
    if (word := unknown_flag(wanted.extra, server.dialect)) is not None:
        missing.append(word)
    if missing:
        raise UsageError(
            f"this llama-server ({server.version or server.path}) has no such option",
            where=missing[0], hint="an older or newer build names it otherwise, or lacks it",
        )  # fmt: skip


def _environment(
    wanted: Wanted, server: Server, environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment without what would change the launch, and a note on what was left out."""
    scrubbed = sorted(name for name in environ if name.startswith(_SCRUBBED))
    kept = {k: v for k, v in environ.items() if k not in scrubbed and k != _KEY}
    if wanted.api_key and server.dialect.key_by_environment:
        kept[_KEY] = wanted.api_key  # `ps` shows arguments to everybody
    notes = [f"not handed on from the environment: {', '.join(scrubbed)}"] if scrubbed else []
    return kept, tuple(notes)


def free_port(host: str) -> int:
    """A port that nobody listens on now."""
    with _bound(host, 0) as probe:
        port: int = probe.getsockname()[1]
        return port


def check_port(host: str, port: int) -> None:
    """EngineError where it cannot be listened on."""
    _bound(host, port).close()


def _bound(host: str, port: int) -> socket.socket:
    where = f"{host}:{port}" if port else host
    if re.search(r"[,/\s]|\.sock$", host):
        raise UsageError("not one address", where="--host", hint="such as 127.0.0.1")
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        probe = socket.socket(family, kind, number)
    except OSError as err:
        raise EngineError(f"no address to listen on: {err.strerror or err}", where=where) from err
    try:
        # As the server does; without it a port stays taken for a minute after its last use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
    except OSError as err:
        probe.close()
        raise EngineError(
            f"its port cannot be listened on: {err.strerror or err}", where=where,
            hint="--port 0 takes a free one",
        )  from err  # fmt: skip
    return probe
