"""What this machine can run a pair with: the binding, llama-server, memory, GPUs, what is amiss."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguftools.gguf.problem import Problem
from gguftools.pairing.dialect import NGRAM
from gguftools.pairing.machine import Machine, read_machine
from gguftools.pairing.server_binary import Server, find_server, list_devices, read_server

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
    llama_cpp: str
    system: str
    gpu: bool
    amx: bool
    mtp: bool
    devices: tuple[BindingDevice, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it drafts with; by the names that llama-server has for it."""
        return ("draft-simple", *(("draft-mtp",) if self.mtp else ()), NGRAM)

    @property
    def features(self) -> tuple[str, ...]:
        """What of the CPU it uses, in llama.cpp's names."""
        return tuple(re.findall(r"(\w+) = 1", self.system))


@dataclass(frozen=True, slots=True)
class Health:
    """All of it; None for what is not there."""

    machine: Machine
    binding: Binding | None
    server: Server | None
    server_devices: tuple[str, ...]
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
    devices = list_devices(server) if server is not None else ()
    found = [*_binding_problems(binding, why, machine),
             *_server_problems(path, server, devices, machine)]  # fmt: skip
    return Health(machine, binding, server, devices, (*found, *_machine_problems(machine)))


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
    if unused := sorted(_cpu_features() - set(binding.features)):
        yield Problem(
            "binding-cpu", "warning",
            f"this CPU has {' and '.join(unused)}, and {binding.build} was built without: it is "
            "several times slower",
            f"CMAKE_ARGS=-DGGML_NATIVE=on pip install --force-reinstall --no-cache-dir {BINDING}",
        )  # fmt: skip
    if binding.build.rpartition(" ")[2] != BINDING.rpartition("=")[2]:
        yield Problem(
            "binding-version", "info", f"gguftools was tested with {BINDING}, not {binding.build}",
            f"pip install {BINDING}",
        )  # fmt: skip
    kind = machine.backend
    if kind != "cpu" and not binding.gpu:
        flag = _GPU_FLAGS[kind]
        yield Problem(
            "binding-gpu", "warning",
            f"there is a GPU, and {binding.build} was built without {kind}: models run on the CPU",
            f'CMAKE_ARGS="-D{flag}=on" pip install --force-reinstall --no-cache-dir {BINDING}',
        )  # fmt: skip


def _cpu_features() -> set[str]:
    """Those of this CPU without which llama.cpp crawls; empty where the system does not say."""
    flags = set(re.findall(r"\b(avx2|fma)\b", _text("/proc/cpuinfo")))
    return {flag.upper() for flag in flags}


def _server_problems(
    path: Path | None, server: Server | None, devices: Sequence[str], machine: Machine
) -> Iterator[Problem]:
    if path is None:
        yield Problem(
            "server", "info", "no llama-server was found: EAGLE-3, DFlash and DSpark need one",
            "put it on the PATH, or name it in LLAMA_SERVER",
        )  # fmt: skip
    elif server is None:
        yield Problem(
            "server", "warning", f"{path} does not answer --help as llama-server does", ""
        )
    elif not server.dialect.types:
        yield Problem(
            "server-old", "warning",
            f"{path} has no --spec-type: it drafts with a draft model only",
            "take a build of llama.cpp from b11434 on",
        )  # fmt: skip
    if server is not None and machine.backend != "cpu" and not devices:
        yield Problem(
            "server-gpu", "warning",
            f"there is a GPU, and {path} finds none: it was built without {machine.backend}, or "
            "its driver is missing",
            f"take a build for {machine.backend}",
        )  # fmt: skip


def _machine_problems(machine: Machine) -> Iterator[Problem]:
    if machine.n_cores < (n_all := os.cpu_count() or 1):
        yield Problem(
            "cores", "info",
            f"{machine.n_cores} of {n_all} cores may be used; more threads than that stall",
            "gguftools takes so many; give other programs -t",
        )  # fmt: skip
    if re.search("microsoft", _text("/proc/version"), re.IGNORECASE):
        ram = machine.ram_bytes or 0
        yield Problem(
            "wsl2", "info", f"this is WSL2, to which Windows gives {ram / 1e9:.0f} GB of memory",
            "set memory= under [wsl2] in .wslconfig, then: wsl --shutdown",
        )  # fmt: skip


def _text(path: str) -> str:
    """The start of a small file of the system's, empty where there is none."""
    try:
        with Path(path).open("rb") as file:
            return file.read(1 << 13).decode("utf-8", "replace")
    except OSError:
        return ""
