"""Where and with what a measurement is made: machine, builds, date. I/O."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime

from gguftools import __version__
from gguftools.bench.report import Machine
from gguftools.pairing.machine import read_machine

_CPUINFO_BYTES = 1 << 16


def this_machine(n_threads: int | None) -> Machine:
    """This one; `n_threads` are those that decode."""
    machine = read_machine()
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu(),
        n_cores=machine.n_cores,
        n_threads=n_threads,
        ram_bytes=machine.ram_bytes,
        gpus=tuple(gpu.name for gpu in machine.gpus),
    )


def machine_line(machine: Machine) -> str:
    """`Linux x86_64, Some CPU, 2 cores, 2 threads`."""
    parts = [machine.system, machine.cpu, _count(machine.n_cores, "core"), *machine.gpus]
    if machine.n_threads is not None:
        parts.append(_count(machine.n_threads, "thread"))
    return ", ".join(filter(None, parts))


def our_builds() -> dict[str, str]:
    """gguftools and Python; the engine adds its own."""
    return {"gguftools": __version__, "python": platform.python_version()}


def now() -> str:
    """The time as reports have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _cpu() -> str:
    """The name that the CPU gives itself, empty where the system does not tell."""
    if sys.platform != "linux":
        return platform.processor()[:80]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(_CPUINFO_BYTES).splitlines()
    except OSError:
        return ""
    names = (line.partition(":")[2] for line in lines if line.startswith("model name"))
    return " ".join(next(names, "").split())[:80]
