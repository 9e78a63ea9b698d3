"""`gguftools doctor`: what can this machine run a pair with, and what is amiss."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gguftools import __version__
from gguftools.cli import render
from gguftools.cli.options import color_option, json_option
from gguftools.speculative.doctor import Binding, BindingDevice, Health, examine

if TYPE_CHECKING:
    from gguftools.cli.contract_doctor import BindingJSON, DoctorJSON, GpuJSON, MachineJSON
    from gguftools.pairing.machine import Gpu, Machine


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
    health = examine()
    if as_json:
        render.json_object(_json(health))
    else:
        _print(health)
    return 0 if health.sound else 1


def _print(health: Health) -> None:
    machine, server = health.machine, health.server
    free = f"{render.n_bytes(machine.ram_free_bytes)} free of {render.n_bytes(machine.ram_bytes)}"
    rows: list[tuple[str, str | render.Cell]] = [
        ("gguftools", f"{__version__}, Python {platform.python_version()}"),
        ("machine", f"{platform.system()} {platform.machine()}, {machine.n_cores} cores"),
        ("memory", f"{free}{', shared with the GPU' if machine.unified else ''}"),
        *((f"GPU {i}", f"{gpu.name}, {render.n_bytes(gpu.free_bytes)} free of "
           f"{render.n_bytes(gpu.total_bytes)}") for i, gpu in enumerate(machine.gpus)),
        ("binding", _binding(health.binding)),
        ("llama-server", f"{server.path}, {server.version}" if server else "none"),
        ("", f"drafts with {', '.join(server.types)}" if server and server.types else ""),
    ]  # fmt: skip
    render.facts((label, value) for label, value in rows if value)
    for problem in health.problems:
        render.line()
        render.line(f"{problem.severity}: {problem.message}", style=render.STYLES[problem.severity])
        if problem.hint:
            render.line(f"  {problem.hint}")


def _binding(binding: Binding | None) -> str:
    if binding is None:
        return "none that works"
    names = ", ".join(f"{d.name} ({d.description})" for d in binding.devices)
    kinds = "draft model, MTP head, n-gram" if binding.mtp else "draft model, n-gram"
    return f"{binding.build}, on {names or 'the CPU'}; drafts with {kinds}"


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
            "types": list(server.types),
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
        "unified": machine.unified,
        "gpus": _devices_json(machine.gpus),
    }


def _binding_json(binding: Binding | None) -> BindingJSON | None:
    if binding is None:
        return None
    return {
        "build": binding.build,
        "system": binding.system,
        "gpu": binding.gpu,
        "mtp": binding.mtp,
        "devices": _devices_json(binding.devices),
    }


def _devices_json(devices: Sequence[Gpu | BindingDevice]) -> list[GpuJSON]:
    return [
        {"name": d.name, "total_bytes": d.total_bytes, "free_bytes": d.free_bytes} for d in devices
    ]
