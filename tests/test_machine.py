"""What the machine has: real files and processes, odd answers, and --memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gguftools.errors import UsageError
from gguftools.pairing import machine as machine_module
from gguftools.pairing.machine import (
    Gpu,
    Machine,
    parse_memory,
    ram_bytes,
    ram_free_bytes,
    read_machine,
    usable_cores,
)

GIB = 1 << 30
HERE = Machine(64 * GIB, 50 * GIB, (Gpu("RTX", 8 * GIB, 7 * GIB),))


def test_this_machine_has_memory_and_cores() -> None:
    here = read_machine()
    assert here.ram_bytes is not None
    assert here.ram_free_bytes is not None
    assert 1 << 28 < here.ram_free_bytes <= here.ram_bytes
    assert 1 <= here.n_cores == usable_cores() <= (os.cpu_count() or 1)


# -- --memory


@pytest.mark.parametrize(
    ("text", "device", "ram", "vram"),
    [
        ("24G", "cpu", 24, ()),
        ("24GiB", "metal", 24, ()),
        (" 24 gb ", "cuda", None, (24,)),
        ("8G,8G", "cpu", None, (8, 8)),
        ("8G, 16G", "vulkan", None, (8, 16)),
        ("ram=32G,vram=24G", "cpu", 32, (24,)),
        ("vram=24G,8G,ram=32G", "cuda", 32, (24, 8)),
        ("VRAM=0.5T", "cuda", None, (512,)),
        ("ram=16384M", "cpu", 16, ()),
    ],
)
def test_memory_stands_in_for_this_machine(
    text: str, device: str, ram: int | None, vram: tuple[int, ...]
) -> None:
    made = parse_memory(text, HERE, device)
    if ram is not None:
        assert (made.ram_bytes, made.ram_free_bytes) == (ram * GIB, ram * GIB)
    else:
        assert (made.ram_bytes, made.ram_free_bytes) == (64 * GIB, 50 * GIB)
    assert tuple(gpu.free_bytes for gpu in made.gpus) == tuple(n * GIB for n in vram)


def test_ram_alone_leaves_the_gpus_of_a_gpu_run() -> None:
    assert parse_memory("ram=16G", HERE, "cuda").gpus == HERE.gpus


@pytest.mark.parametrize(
    "text",
    ["", ",", "24", "G", "-8G", "0G", "nanG", "infG", "1e9G", "8G,", "disk=8G", "ram=8G,ram=8G",
     "8 X", "24G RAM", "vram=", "=8G", "9" * 400 + "G", "\x1b[31m8G", "8G\n8G"],
)  # fmt: skip
def test_nonsense_is_misuse(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_memory(text, HERE, "cuda")
    assert caught.value.where == "--memory"


# -- nvidia-smi, as a real process


def _nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Gpu, ...]:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(machine_module, "_SYS", folder / "sys")
    return read_machine().gpus


def test_nvidia_smi_lists_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "echo 'NVIDIA H200, 143771, 143100'; echo 'Odd, name, 8192, 9000'"
    assert _nvidia_smi(tmp_path, script, monkeypatch) == (
        Gpu("NVIDIA H200", 143771 << 20, 143100 << 20),
        Gpu("Odd, name", 8192 << 20, 8192 << 20),
    )


@pytest.mark.parametrize(
    "script",
    ["exit 9", "echo 'NVIDIA-SMI has failed'", "echo 'GB10, [N/A], [N/A]'", "echo 'a, -1, 5'",
     "printf '\\377\\000, 1'", "kill -9 $$", "echo"],
)  # fmt: skip
def test_a_broken_nvidia_smi_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    assert _nvidia_smi(tmp_path, script, monkeypatch) == ()


def test_nvidia_smi_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "_SMI_SECONDS", 0.2)
    started = time.monotonic()
    assert _nvidia_smi(tmp_path, "exec sleep 60", monkeypatch) == ()
    assert time.monotonic() - started < 20


# -- files of the kernel


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def test_amdgpu_says_what_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, {
        "class/drm/card0/device/mem_info_vram_total": f"{24 * GIB}\n",
        "class/drm/card0/device/mem_info_vram_used": f"{3 * GIB}\n",
        "class/drm/card0/device/product_name": "Radeon RX 7900 XTX\n",
        "class/drm/card0-HDMI-A-1/device/mem_info_vram_total": f"{24 * GIB}\n",
        "class/drm/card0-HDMI-A-1/device/mem_info_vram_used": "0\n",
        "class/drm/card1/device/mem_info_vram_total": "nonsense",
    })  # fmt: skip
    monkeypatch.setattr(machine_module, "_SYS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_machine().gpus == (Gpu("Radeon RX 7900 XTX", 24 * GIB, 21 * GIB),)


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_has_its_limit_and_page_cache_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    if version == 2:
        _write(tmp_path, {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
            "sys/fs/cgroup/a/memory.max": f"{200 << 20}\n",
            "sys/fs/cgroup/a/memory.current": f"{150 << 20}\n",
            "sys/fs/cgroup/a/memory.stat": f"anon 1\ninactive_file {50 << 20}\nfile 9\n",
        })  # fmt: skip
    else:
        folder = "sys/fs/cgroup/memory/box"
        _write(tmp_path, {
            "proc/self/cgroup": "9:cpu:/box\n4:memory:/box\n",
            f"{folder}/memory.limit_in_bytes": f"{200 << 20}\n",
            f"{folder}/memory.usage_in_bytes": f"{150 << 20}\n",
            f"{folder}/memory.stat": f"total_inactive_file {50 << 20}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        })  # fmt: skip
    monkeypatch.setattr(machine_module, "_SYS", tmp_path / "sys")
    monkeypatch.setattr(machine_module, "_PROC", tmp_path / "proc")
    assert ram_bytes() == 200 << 20
    assert ram_free_bytes() == 100 << 20


@pytest.mark.parametrize("text", ["", "\x00", "0::/../../..", "4:memory", "::::", "9" * 5000])
def test_a_broken_cgroup_file_is_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    whole = ram_bytes()
    _write(tmp_path, {"self/cgroup": text, "fs/cgroup/memory.max": "-5"})
    monkeypatch.setattr(machine_module, "_SYS", tmp_path)
    monkeypatch.setattr(machine_module, "_PROC", tmp_path)
    assert (ram_bytes() or 0) >= (whole or 0) > 0
