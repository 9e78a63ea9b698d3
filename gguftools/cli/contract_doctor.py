"""The JSON of `gguftools doctor --json`, as types; see contract.py."""

from __future__ import annotations

from typing import Literal, TypedDict

from gguftools.cli.contract import ProblemJSON


class GpuJSON(TypedDict):
    """A device with memory of its own."""

    name: str
    total_bytes: int
    free_bytes: int


class MachineJSON(TypedDict):
    """`unified`: the GPU uses the RAM. `n_cores` are those that this process may use, of all."""

    ram_bytes: int | None
    ram_free_bytes: int | None
    n_cores: int
    n_cores_all: int
    unified: bool
    gpus: list[GpuJSON]


class BindingJSON(TypedDict):
    """llama-cpp-python: can it offload to a GPU, draft with an MTP head, and on which devices.

    `llama_cpp` is the version of its library, empty if not known.
    """

    build: str
    llama_cpp: str
    kinds: list[str]
    system: str
    gpu: bool
    mtp: bool
    devices: list[GpuJSON]


class ServerJSON(TypedDict):
    """llama-server: `types` are the values of its --spec-type, `kinds` what it drafts with.

    `build` is null where it does not say, `devices` are the accelerators that it finds.
    """

    path: str
    version: str
    build: int | None
    types: list[str]
    kinds: list[str]
    devices: list[str]


class DoctorJSON(TypedDict):
    """`gguftools doctor --json`; null is what was not found."""

    schema: Literal["gguftools.doctor/1"]
    gguftools: str
    python: str
    machine: MachineJSON
    binding: BindingJSON | None
    server: ServerJSON | None
    problems: list[ProblemJSON]
