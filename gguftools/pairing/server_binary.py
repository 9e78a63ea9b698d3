"""The llama-server of this machine: where it is and which flags it knows. I/O."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TYPES = re.compile(r"^--spec-type (\S+)", re.MULTILINE)
_SECONDS_MAX = 10.0
_HELP_CHARS_MAX = 1 << 20


def find_server(environ: Mapping[str, str] = os.environ) -> Path | None:
    """LLAMA_SERVER, else llama-server on the PATH; None where there is none."""
    named = environ.get("LLAMA_SERVER") or "llama-server"
    found = shutil.which(named, path=environ.get("PATH"))
    return Path(found) if found is not None else None


@dataclass(frozen=True, slots=True)
class Server:
    """A llama-server: its version line, its flags, the values of --spec-type that it lists."""

    path: Path
    version: str
    flags: frozenset[str]
    types: tuple[str, ...]


def read_server(path: Path) -> Server | None:
    """What it says of itself, None where it does not answer as llama-server does."""
    text = _output(path, "--help")
    flags = flags_in(text)
    if flags is None:
        return None
    listed = _TYPES.search(text)
    types = tuple(t for t in listed[1].split(",") if t != "none") if listed else ()
    said = _output(path, "--version").splitlines()
    version = next((line for line in said if line.startswith("version:")), "")
    return Server(path, version.removeprefix("version:").strip(), flags, types)


def known_flags(server: Path) -> frozenset[str] | None:
    """The flags in its --help, None where it does not answer."""
    return flags_in(_output(server, "--help"))


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


def flags_in(help_text: str) -> frozenset[str] | None:
    """The flags that a --help lists, without removed ones; None if it is not llama-server's."""
    lines = help_text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("-")]
    flags: set[str] = set()
    for i, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        if "the argument has been removed" not in " ".join(lines[i:end]):
            flags.update(_names(lines[i]))
    return frozenset(flags) if {"-m", "-c"} <= flags else None


def _names(line: str) -> Iterator[str]:
    """`-m,    --model FNAME   path of the model` -> -m, --model."""
    for word in line.split():
        if not word.startswith("-"):
            return
        yield word.rstrip(",")
        if not word.endswith(","):
            return
