"""What this machine can run a pair with: the binding, llama-server, memory, GPUs, what is amiss."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguftools.gguf.problem import Problem
from gguftools.pairing.machine import Machine, read_machine
from gguftools.pairing.server_binary import Server, find_server, read_server

BINDING = "llama-cpp-python==0.3.36"
_PROBE_SECONDS = 60.0
_GPU_FLAGS = {"cuda": "GGML_CUDA", "metal": "GGML_METAL", "vulkan": "GGML_VULKAN"}


@dataclass(frozen=True, slots=True)
class BindingDevice:
    """An accelerator as llama.cpp names it; bytes of its memory."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Binding:
    """The llama-cpp-python at hand. `system` is llama.cpp's own line of CPU features."""

    build: str
    system: str
    gpu: bool
    amx: bool
    mtp: bool
    devices: tuple[BindingDevice, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """All of it; None for what is not there."""

    machine: Machine
    binding: Binding | None
    server: Server | None
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """Whether `gguftools run` works here."""
        return all(problem.severity != "error" for problem in self.problems)


def examine() -> Health:
    """Look at everything; takes a second or two."""
    machine, path = read_machine(), find_server()
    binding, why = _probe()
    server = read_server(path) if path is not None else None
    found = [*_binding_problems(binding, why, machine), *_server_problems(path, server)]
    return Health(machine, binding, server, (*found, *_machine_problems(machine)))


def _probe() -> tuple[Binding | None, str]:
    command = [sys.executable, "-m", "gguftools.speculative.probe"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as err:
        return None, f"it cannot be started ({err})"
    if done.returncode < 0:
        return None, f"it ends the process with signal {-done.returncode}"
    try:
        return _binding(json.loads(done.stdout.splitlines()[-1])), ""
    except (IndexError, ValueError, KeyError, TypeError):
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return None, last[0].removeprefix("gguftools.errors.EngineError: ")


def _binding(facts: dict[str, Any]) -> Binding:
    devices = tuple(BindingDevice(**device) for device in facts.pop("devices"))
    return Binding(**facts, devices=devices)


def _binding_problems(binding: Binding | None, why: str, machine: Machine) -> Iterator[Problem]:
    if binding is None:
        hint = 'pip install "gguftools[run]"'
        yield Problem("binding", "error", f"llama-cpp-python does not work here: {why}", hint)
        return
    if not binding.mtp:
        yield Problem(
            "binding-mtp", "error",
            f"{binding.build} has no MTP functions, so that --mtp cannot draft",
            f"pip install {BINDING}",
        )  # fmt: skip
    if binding.amx:
        yield Problem(
            "binding-amx", "info",
            "this build has AMX kernels, which crash when GCC 12 compiled them: they are not used",
            "to build without: CMAKE_ARGS=-DGGML_NATIVE=OFF",
        )  # fmt: skip
    kind = machine.backend
    if kind != "cpu" and not binding.gpu:
        flag = _GPU_FLAGS[kind]
        yield Problem(
            "binding-gpu", "warning",
            f"there is a GPU, and {binding.build} was built without {kind}: models run on the CPU",
            f'CMAKE_ARGS="-D{flag}=on" pip install --force-reinstall --no-cache-dir {BINDING}',
        )  # fmt: skip


def _server_problems(path: Path | None, server: Server | None) -> Iterator[Problem]:
    if path is None:
        yield Problem(
            "server", "info", "no llama-server was found: EAGLE-3, DFlash and DSpark need one",
            "put it on the PATH, or name it in LLAMA_SERVER",
        )  # fmt: skip
    elif server is None:
        yield Problem(
            "server", "warning", f"{path} does not answer --help as llama-server does", ""
        )
    elif not server.types:
        yield Problem(
            "server-old", "warning",
            f"{path} has no --spec-type: it drafts with a draft model only",
            "take a build of llama.cpp from b11434 on",
        )  # fmt: skip


def _machine_problems(machine: Machine) -> Iterator[Problem]:
    if re.search("microsoft", _first_line("/proc/version"), re.IGNORECASE):
        ram = machine.ram_bytes or 0
        yield Problem(
            "wsl2", "info", f"this is WSL2, to which Windows gives {ram / 1e9:.0f} GB of memory",
            "set memory= under [wsl2] in .wslconfig, then: wsl --shutdown",
        )  # fmt: skip


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")[:400]
    except OSError:
        return ""
