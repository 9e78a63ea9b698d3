"""Machines by name: what they read and compute per second, and which kernels they run. Data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

RAM_BANDWIDTH = 60e9  # bytes/s, two channels of DDR5


@dataclass(frozen=True, slots=True)
class Device:
    """`engine` names the kernels: cuda from Turing on, cuda-old before it, or the backend."""

    name: str
    engine: str
    bandwidth: float  # bytes/s
    balance: float  # operations per byte, relative to what is usual for the engine


# GB/s and FP32 TFLOPS of the vendors' data sheets. Of two names
# that begin alike the longer comes first.
_DEVICES: dict[str, tuple[float, float]] = {
    "rtx 5090": (1792, 104.8), "rtx 5080": (960, 56.3), "5070 ti": (896, 43.9),
    "rtx 5070": (672, 30.9), "5060 ti": (448, 23.7), "rtx 5060": (448, 19.2),
    "rtx 4090": (1008, 82.6), "rtx 4080": (717, 48.7), "4070 ti": (504, 40.1),
    "rtx 4070": (504, 29.1), "4060 ti": (288, 22.1), "rtx 4060": (272, 15.1),
    "3090 ti": (1008, 40.0), "rtx 3090": (936, 35.6), "3080 ti laptop": (512, 23.6),
    "3080 ti": (912, 34.1), "rtx 3080": (760, 29.8), "3070 ti": (608, 21.7),
    "rtx 3070": (448, 20.3), "3060 ti": (448, 16.2), "rtx 3060": (360, 12.7),
    "rtx 3050": (224, 9.1), "rtx 2080": (616, 13.4), "rtx 2070": (448, 7.5),
    "rtx 2060": (336, 6.5), "gtx 1080": (484, 11.3), "gtx 1070": (256, 6.5),
    "gtx 1060": (192, 4.4), "rtx a6000": (768, 38.7), "rtx a5000": (768, 27.8),
    "rtx a4000": (448, 19.2), "rtx pro 6000": (1792, 125.0), "rtx pro 5000": (1344, 73.7),
    "rtx pro 4000": (672, 46.9), "rtx pro 3000": (576, 30.0), "rtx pro 2000": (288, 17.0),
    "l40s": (864, 91.6), "l40": (864, 90.5), "l4": (300, 30.3), "a10": (600, 31.2),
    "b300": (8000, 77.0), "b200": (8000, 75.0), "h200": (4800, 67.0), "h100": (3350, 67.0),
    "a100": (1935, 19.5), "a40": (696, 37.4), "cmp 170hx": (1493, 12.6), "v100": (900, 15.7),
    "p100": (732, 10.6), "p40": (347, 11.8), "t4": (320, 8.1), "dgx spark": (273, 31.0),
    "gb10": (273, 31.0), "7900 xtx": (960, 61.4), "7900 xt": (800, 51.5), "7800 xt": (624, 37.3),
    "7700 xt": (432, 35.2), "6900 xt": (512, 23.0), "6800 xt": (512, 20.7),
    "9070 xt": (640, 48.7), "rx 9070": (640, 36.1), "9060 xt": (320, 25.6),
    "r9700": (640, 47.8), "w7900": (864, 61.3), "mi300x": (5300, 163.4), "mi250": (3200, 45.3),
    "mi210": (1600, 22.6), "mi100": (1228, 23.1), "mi60": (1024, 14.7), "mi50": (1024, 13.4),
    "strix halo": (256, 29.7), "8060s": (256, 29.7), "780m": (90, 8.3), "890m": (120, 11.9),
    "680m": (77, 3.7), "arc b580": (456, 13.7), "arc a770": (560, 19.7),
    "m3 ultra": (819, 28.2), "m2 ultra": (800, 27.2), "m1 ultra": (800, 21.0),
    "m5 max": (614, 18.0), "m4 max": (546, 18.4), "m3 max": (400, 14.2), "m2 max": (400, 13.5),
    "m1 max": (400, 10.4), "m5 pro": (307, 9.0), "m4 pro": (273, 9.2), "m3 pro": (150, 7.4),
    "m2 pro": (200, 6.8), "m1 pro": (200, 5.3), "apple m5": (153, 4.5), "apple m4": (120, 4.3),
    "apple m3": (100, 3.5), "apple m2": (100, 3.6), "apple m1": (68, 2.6),
    "x2 elite": (228, 8.0), "x elite": (135, 4.6),
}  # fmt: skip
_OLD = ("v100", "p100", "p40", "gtx", "cmp 170hx")
_USUAL: dict[str, tuple[float, float]] = {
    "cuda": (900, 43.0), "cuda-old": (700, 17.0), "hip": (700, 49.0), "vulkan": (500, 35.0),
    "metal": (300, 10.2), "npu": (150, 5.3),
}  # fmt: skip
ENGINES = (*_USUAL, "cpu")


@lru_cache(maxsize=1024)
def find_device(text: str, backend: str) -> Device:
    """The machine that a name speaks of; where it is not known, one usual for the backend."""
    name = device_name(text)
    if backend == "cpu":
        return Device(name, "cpu", RAM_BANDWIDTH, 1.0)
    engine = backend if backend in _USUAL else "vulkan"
    if backend == "cuda" and name.startswith(_OLD):
        engine = "cuda-old"
    usual = _USUAL[engine]
    reads, computes = _DEVICES.get(name, usual)
    return Device(name, engine, reads * 1e9, computes / reads * usual[0] / usual[1])


@lru_cache(maxsize=1024)
def device_name(text: str) -> str:
    """The name of a known device in a text, empty if there is none."""
    found = _PATTERN.search(_bare(re.sub(r"[^a-z0-9]+", " ", text.lower())))
    return _NAMES[found[0]] if found else ""


def _bare(text: str) -> str:
    """Without the words that some drivers leave out."""
    return re.sub(r"\b(rtx|rx|gtx|geforce|nvidia|amd|radeon|tesla|ai pro|apple) *", "", text)


_NAMES = {_bare(name): name for name in _DEVICES}
_PATTERN = re.compile(rf"\b({'|'.join(_NAMES)})\b")


@lru_cache(maxsize=1024)
def device_key(text: str, backend: str) -> str:
    """Under which a device's own slope is kept, empty for one that is not known."""
    name = device_name(text)
    return f"{name} {backend}" if name else ""
