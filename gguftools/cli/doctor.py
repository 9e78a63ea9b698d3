"""`gguftools doctor`: what can this machine run a pair with, and what is amiss."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gguftools import __version__
from gguftools.cli import render
from gguftools.cli.options import color_option, json_option
from gguftools.gguf.problem import Problem
from gguftools.speculative.doctor import Binding, BindingDevice, Health, examine

if TYPE_CHECKING:
    from gguftools.cli.contract_doctor import BindingJSON, DoctorJSON, GpuJSON, MachineJSON
    from gguftools.pairing.machine import Gpu, Machine
    from gguftools.pairing.server_binary import Server


@click.command(short_help="What can this machine draft with, and what is amiss?")
@json_option
@color_option
def doctor(as_json: bool) -> int:
    """Say what is here to run models with: memory, GPUs, llama-cpp-python, llama-server.

    Every problem comes with its fix. Exit code 0 if `gguftools run` works, 1 if it does not.

    \b
    Examples:
      gguftools doctor
      gguftools doctor --json | jq -r '.binding.devices[].name'
    """
    health = _with_bad_builds(examine())
    if as_json:
        render.json_object(_json(health))
    else:
        _print(health)
    return 0 if health.sound else 1


def _with_bad_builds(health: Health) -> Health:
    """With a problem for everything that the llama-server's build is known to do wrong."""
    from gguftools.server.known_bad import bad_builds

    server = health.server
    if server is None or server.build is None or server.is_ik:
        return health
    found = tuple(
        Problem("server-bad", "warning", f"build {server.build} {what}", "take another build")
        for what in bad_builds(server.build, health.machine.backend)
    )
    return replace(health, problems=(*health.problems, *found))


def _print(health: Health) -> None:
    machine, server = health.machine, health.server
    free = f"{render.n_bytes(machine.ram_free_bytes)} free of {render.n_bytes(machine.ram_bytes)}"
    rows: list[tuple[str, str | render.Cell]] = [
        ("gguftools", f"{__version__}, Python {platform.python_version()}"),
        ("machine", f"{platform.system()} {platform.machine()}, {_cores(machine)}"),
        ("memory", f"{free}{', shared with the GPU' if machine.unified else ''}"),
        *((f"GPU {i}", f"{gpu.name}, {render.n_bytes(gpu.free_bytes)} free of "
           f"{render.n_bytes(gpu.total_bytes)}") for i, gpu in enumerate(machine.gpus)),
        ("binding", _binding(health.binding)),
        ("", _features(health.binding)),
        ("llama-server", _server(server, health.server_devices)),
        ("", f"drafts with {_kinds(server.dialect.kinds)}" if server else ""),
    ]  # fmt: skip
    render.facts((label, value) for label, value in rows if value)
    for problem in health.problems:
        render.line()
        render.line(f"{problem.severity}: {problem.message}", style=render.STYLES[problem.severity])
        if problem.hint:
            render.line(f"  {problem.hint}")


def _cores(machine: Machine) -> str:
    """Those that may be used, of how many."""
    n_all = os.cpu_count() or machine.n_cores
    of_all = f"{machine.n_cores} of {n_all} cores may be used"
    return f"{machine.n_cores} cores" if machine.n_cores == n_all else of_all


def _binding(binding: Binding | None) -> str:
    if binding is None:
        return "none that works"
    names = ", ".join(f"{d.name} ({d.description})" for d in binding.devices)
    version = f" with llama.cpp {binding.llama_cpp}" if binding.llama_cpp else ""
    kinds = _kinds(binding.kinds)
    return f"{binding.build}{version}, on {names or 'the CPU'}; drafts with {kinds}"


def _features(binding: Binding | None) -> str:
    found = binding.features if binding is not None else ()
    return f"uses {', '.join(found)}" if found else ""


def _server(server: Server | None, devices: Sequence[str]) -> str:
    if server is None:
        return "none"
    fork = "ik_llama.cpp " if server.is_ik else ""
    return f"{server.path}, {fork}{server.version}, on {', '.join(devices) or 'the CPU'}"


_KINDS = {
    "draft-simple": "draft model", "draft-mtp": "MTP head", "draft-eagle3": "EAGLE-3",
    "draft-dflash": "DFlash", "draft-dspark": "DSpark", "ngram": "n-gram",
}  # fmt: skip


def _kinds(kinds: Sequence[str]) -> str:
    return ", ".join(_KINDS[kind] for kind in kinds)


def _json(health: Health) -> DoctorJSON:
    server = health.server
    return {
        "schema": "gguftools.doctor/1",
        "gguftools": __version__,
        "python": platform.python_version(),
        "machine": _machine_json(health.machine),
        "binding": _binding_json(health.binding),
        "server": None if server is None else {
            "path": str(server.path),
            "version": server.version,
            "build": server.build,
            "types": list(server.dialect.types),
            "kinds": list(server.dialect.kinds),
            "devices": list(health.server_devices),
        },
        "problems": [
            {"code": p.code, "severity": p.severity, "message": p.message, "hint": p.hint}
            for p in health.problems
        ],
    }  # fmt: skip


def _machine_json(machine: Machine) -> MachineJSON:
    return {
        "ram_bytes": machine.ram_bytes,
        "ram_free_bytes": machine.ram_free_bytes,
        "n_cores": machine.n_cores,
        "n_cores_all": os.cpu_count() or machine.n_cores,
        "unified": machine.unified,
        "gpus": _devices_json(machine.gpus),
    }


def _binding_json(binding: Binding | None) -> BindingJSON | None:
    if binding is None:
        return None
    return {
        "build": binding.build,
        "llama_cpp": binding.llama_cpp,
        "kinds": list(binding.kinds),
        "system": binding.system,
        "gpu": binding.gpu,
        "mtp": binding.mtp,
        "devices": _devices_json(binding.devices),
    }


def _devices_json(devices: Sequence[Gpu | BindingDevice]) -> list[GpuJSON]:
    return [
        {"name": d.name, "total_bytes": d.total_bytes, "free_bytes": d.free_bytes} for d in devices
    ]
