"""This machine, or the one that --memory describes: RAM, GPUs, the cores we may use. I/O."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gguftools.errors import UsageError

_SMI_SECONDS = 5.0
_MIB = 1 << 20
_SIZE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_SYNTAX = "24G for one pool, 8G,8G for two GPUs, or ram=32G,vram=24G"
_SYS, _PROC = Path("/sys"), Path("/proc")
GPU_DEVICES = ("cuda", "vulkan", "hip", "rocm", "sycl")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU with memory of its own."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What models may take. None: the system does not say. `unified`: the GPU uses the RAM."""

    ram_bytes: int | None
    ram_free_bytes: int | None
    gpus: tuple[Gpu, ...] = ()
    unified: bool = False
    n_cores: int = 1

    @property
    def backend(self) -> Literal["cpu", "cuda", "metal", "vulkan"]:
        """What llama.cpp would compute with here, if it was built for it."""
        if self.unified:
            return "metal"
        if not self.gpus:
            return "cpu"
        return "cuda" if "nvidia" in self.gpus[0].name.lower() else "vulkan"


def read_machine() -> Machine:
    """This machine as it is now."""
    unified = sys.platform == "darwin" and os.uname().machine == "arm64"
    gpus = () if unified else (*_nvidia(), *_amd())
    return Machine(ram_bytes(), ram_free_bytes(), gpus, unified, usable_cores())


def ram_bytes() -> int | None:
    """Memory that this process may have at most: the machine's, or its container's."""
    whole = _psutil("total") or _sysconf_bytes()
    limits = [limit for limit, _ in _cgroups()]
    return min(limits if whole is None else [whole, *limits], default=None)


def ram_free_bytes() -> int | None:
    """Memory that a model could take now without pushing others out."""
    free = _psutil("available") or _meminfo("MemAvailable")
    rooms = [max(limit - used, 0) for limit, used in _cgroups()]
    return min([free, *rooms]) if free is not None else min(rooms, default=ram_bytes())


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_memory(text: str, machine: Machine, device: str = "cpu") -> Machine:
    """The machine with the memory that --memory gives it, all of it free.

    A size alone is that of the pool which `device` uses. G is 2^30 bytes, as memory is sold.
    """
    pools: dict[str, list[int]] = {}
    items = text.split(",")
    alone = "vram" if device in GPU_DEVICES or len(items) > 1 else "ram"
    key = alone
    for item in items:
        name, equals, size = item.rpartition("=")
        key = name.strip().lower() if equals else key
        if key not in ("ram", "vram"):
            raise UsageError(
                f"{name.strip()!r} is neither ram nor vram", where="--memory", hint=_SYNTAX
            )
        pools.setdefault(key, []).append(_size(size))
    if len(pools.get("ram", ())) > 1:
        raise UsageError("ram is given more than once", where="--memory", hint=_SYNTAX)
    if "vram" in pools:
        gpus = tuple(Gpu(f"GPU of {n / (1 << 30):g} GiB", n, n) for n in pools["vram"])
        machine = replace(machine, gpus=gpus, unified=False)
    elif device not in GPU_DEVICES or "=" not in text:
        machine = replace(machine, gpus=())
    if "ram" in pools:
        machine = replace(machine, ram_bytes=pools["ram"][0], ram_free_bytes=pools["ram"][0])
    return machine


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    n = float(match[1]) * 1024 ** ("KMGT".index(match[2].upper()) + 1) if match else 0.0
    if n < 1:
        raise UsageError(f"{text.strip()[:40]!r} is not a size", where="--memory", hint=_SYNTAX)
    return int(n)


def _psutil(name: str) -> int | None:
    """A figure of psutil's virtual_memory, None where psutil is not installed or has none."""
    try:
        import psutil

        value = int(getattr(psutil.virtual_memory(), name))
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError):
        return None
    return value if value > 0 else None


def _sysconf_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _meminfo(name: str) -> int | None:
    match = re.search(rf"^{name}:\s+(\d{{1,18}}) kB", _text(_PROC / "meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _cgroups() -> Iterator[tuple[int, int]]:
    """Limit and use of every memory cgroup above this process, page cache not counted as use."""
    for line in _text(_PROC / "self" / "cgroup").splitlines()[:64]:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        root = _SYS / "fs" / "cgroup"
        if number == "0" and not controllers:
            limit_name, use_name, cache_name = "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root /= "memory"
            limit_name, use_name = "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache_name = "total_inactive_file"
        else:
            continue
        here = root / path.strip("/") if ".." not in path else root
        for folder in (here, *here.parents):
            limit = _int(folder / limit_name)
            if limit is not None and 0 < limit < 1 << 60:
                use = _int(folder / use_name) or 0
                stat = _text(folder / "memory.stat")
                cache = re.search(rf"^{cache_name} (\d{{1,18}})$", stat, re.MULTILINE)
                yield limit, max(use - (int(cache[1]) if cache else 0), 0)
            if folder == root:
                break


def _nvidia() -> Iterator[Gpu]:
    """What nvidia-smi says, which is nothing where it is missing, slow or broken."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free",
               "--format=csv,noheader,nounits"]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_SMI_SECONDS, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return
    for line in done.stdout.decode("utf-8", "replace").splitlines()[:64]:
        name, *figures = (part.strip() for part in line.rsplit(",", 2))
        if len(figures) == 2 and all(re.fullmatch(r"\d{1,9}", figure) for figure in figures):
            total, free = (int(figure) * _MIB for figure in figures)
            yield Gpu(name[:80], total, min(free, total))


def _amd() -> Iterator[Gpu]:
    """What the amdgpu driver says; an APU's share of the RAM is no memory of its own."""
    for folder in sorted((_SYS / "class" / "drm").glob("card*"))[:64]:
        total = _int(folder / "device" / "mem_info_vram_total")
        used = _int(folder / "device" / "mem_info_vram_used")
        if total and used is not None and re.fullmatch(r"card\d+", folder.name):
            name = _text(folder / "device" / "product_name").strip()[:80] or f"AMD {folder.name}"
            yield Gpu(name, total, max(total - used, 0))


def _text(path: Path) -> str:
    """The first 64 KiB of a small file, empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _int(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if re.fullmatch(r"\d{1,20}", text) else None
