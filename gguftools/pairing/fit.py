"""Whether a memory plan fits a machine, and the longest context that would. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gguftools.pairing.machine import Machine
from gguftools.pairing.memory import MemoryPlan
from gguftools.pairing.placement import CPU

# --fit-target, common/common.h, b11434: what llama.cpp leaves free on each GPU.
GPU_MARGIN_BYTES = 1 << 30
_STEP = 256  # cells: n_ctx is rounded up to it


@dataclass(frozen=True, slots=True)
class Room:
    """One pool of memory: what the plan needs of it and what it has free (None: not known)."""

    name: str
    need_bytes: int
    free_bytes: int | None
    margin_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether it is enough, as far as that is known."""
        return self.free_bytes is None or self.need_bytes <= self.free_bytes

    @property
    def tight(self) -> bool:
        """Whether less is left over than llama.cpp itself would leave."""
        return self.free_bytes is not None and self.need_bytes + self.margin_bytes > self.free_bytes


@dataclass(frozen=True, slots=True)
class Fit:
    """Every pool of the machine; `reason` is one sentence."""

    rooms: tuple[Room, ...]
    reason: str

    @property
    def fits(self) -> bool:
        """Whether every pool is large enough."""
        return all(room.fits for room in self.rooms)

    @property
    def tight(self) -> bool:
        """Whether it fits, but with less to spare than is wise on a GPU."""
        return self.fits and any(room.tight for room in self.rooms)


def fits(plan: MemoryPlan, machine: Machine) -> Fit:
    """Whether the memory of the machine holds the plan."""
    rooms = []
    for name, parts in plan.devices.items():
        if name == CPU:
            rooms.append(Room("RAM", parts.total, machine.ram_free_bytes))
            continue
        number = int(name.removeprefix("GPU"))
        gpu = machine.gpus[number] if number < len(machine.gpus) else None
        shown = f"{name} ({gpu.name})" if gpu else name
        free = gpu.free_bytes if gpu else None
        rooms.append(Room(shown, parts.total, free, GPU_MARGIN_BYTES))
    return Fit(tuple(rooms), _reason(rooms))


def largest_context(plan: Callable[[int], MemoryPlan], machine: Machine, n_ctx_max: int) -> int:
    """The longest context up to `n_ctx_max` whose plan fits, in steps of 256; 0 if none does."""
    good, bad = 0, max(n_ctx_max, 0) // _STEP + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(plan(middle * _STEP), machine).fits:
            good = middle
        else:
            bad = middle
    return good * _STEP


def context_advice(n_ctx: int) -> str:
    """What to do with the answer of `largest_context`."""
    if n_ctx == 0:
        return "no context fits: take a smaller quantization, or another draft"
    return f"the largest context that fits is -c {n_ctx}"


def _reason(rooms: list[Room]) -> str:
    short = [room for room in rooms if not room.fits]
    tight = [room for room in rooms if room.tight]
    room = max(short or tight or rooms, key=lambda room: room.need_bytes)
    need = f"needs {_gb(room.need_bytes)} of {room.name}"
    if room.free_bytes is None:
        return f"{need}, how much is free is not known"
    if short:
        return f"{need}, which has {_gb(room.free_bytes)} free"
    if tight:
        left = _gb(room.free_bytes - room.need_bytes)
        return f"{need} and leaves {left}: the driver may then swap weights out without a word"
    return f"{need}, which has {_gb(room.free_bytes)} free"


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
