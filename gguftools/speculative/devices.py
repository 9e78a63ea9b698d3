"""The GPUs and other accelerators that this build of llama.cpp sees."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gguftools.errors import UsageError
from gguftools.speculative.llama import ggml_device_function, start_backend

_TYPE_CPU = 0  # GGML_BACKEND_DEVICE_TYPE_CPU
NONE = "none"
SPLIT_MODES = ("none", "layer", "row", "tensor")  # in the order of enum llama_split_mode


@dataclass(frozen=True, slots=True)
class Device:
    """`name` is what `--device` takes, e.g. CUDA0."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int
    ptr: int


def list_devices() -> tuple[Device, ...]:
    """All devices but the CPU, in llama.cpp's order."""
    start_backend()
    count = ggml_device_function("count", ctypes.c_size_t)
    get = ggml_device_function("get", ctypes.c_void_p, ctypes.c_size_t)
    kind = ggml_device_function("type", ctypes.c_int, ctypes.c_void_p)
    found = [get(i) for i in range(count())]
    return tuple(_device(ptr) for ptr in found if kind(ptr) != _TYPE_CPU)


def _device(ptr: int) -> Device:
    def text(what: str) -> str:
        raw: bytes = ggml_device_function(what, ctypes.c_char_p, ctypes.c_void_p)(ptr) or b""
        return raw.decode("utf-8", "replace")

    size = ctypes.POINTER(ctypes.c_size_t)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    memory = ggml_device_function("memory", None, ctypes.c_void_p, size, size)
    memory(ptr, ctypes.byref(free), ctypes.byref(total))
    return Device(text("name"), text("description"), free.value, total.value, ptr)


def split_mode_id(mode: str, names: Sequence[str]) -> int:
    """llama.cpp's number of the mode; UsageError where there is nothing to split over."""
    if mode not in SPLIT_MODES:
        raise UsageError(
            f"no such split mode: {mode!r}; there are {', '.join(SPLIT_MODES)}",
            where="--split-mode",
        )
    if mode == "tensor" and (tuple(names) == (NONE,) or not list_devices()):
        raise UsageError("a tensor split needs a GPU", where="--split-mode", hint="layer is usual")
    return SPLIT_MODES.index(mode)


def device_array(names: Sequence[str]) -> Any:
    """llama.cpp's list of the devices to use, ended by NULL; None, for all, if none is named."""
    if not names:
        return None
    known = {device.name: device for device in list_devices()}
    unknown = [name for name in names if name not in known]
    if unknown and tuple(names) != (NONE,):
        seen = ", ".join(known) or "no device beside the CPU"
        raise UsageError(
            f"no device {unknown[0]!r}: this build of llama.cpp sees {seen}",
            where="--device",
            hint=f"{NONE} keeps everything on the CPU",
        )
    chosen = [known[name].ptr for name in names if name in known]
    return (ctypes.c_void_p * (len(chosen) + 1))(*chosen, None)
