"""`gguftools doctor`: the machine as it is, and every way in which it can be amiss."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gguftools.cli import main
from gguftools.pairing.machine import Gpu, Machine
from gguftools.speculative import doctor
from gguftools.speculative.doctor import Binding
from scripts.llama_server import llama_server
from tests.commands import parsed
from tests.test_launch import HELPS, NEW_HELP, OLD_HELP, WHY, program

GIB = 1 << 30
PLAIN = Machine(GIB, GIB)


def binding(*, system: str = "", gpu: bool = False, amx: bool = False, mtp: bool = True) -> Binding:
    """One that gguftools was tested with; it uses all of the CPU that it may."""
    name = doctor.BINDING.replace("==", " ")
    return Binding(name, "0.5.0", system or ALL, gpu=gpu, amx=amx, mtp=mtp, devices=())


ALL = "CPU : AVX2 = 1 | FMA = 1 | "


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(tmp_path / "absent"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_it_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = parsed(capsys.readouterr().out, "doctor")
    assert found["binding"]["mtp"]
    assert found["binding"]["build"].startswith("llama-cpp-python ")
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["binding"]["llama_cpp"])
    assert found["binding"]["kinds"] == ["draft-simple", "draft-mtp", "ngram"]
    assert 0 < found["machine"]["n_cores"] <= found["machine"]["n_cores_all"]
    assert 0 < found["machine"]["ram_free_bytes"] <= found["machine"]["ram_bytes"]
    assert found["server"] is None
    assert [p["code"] for p in found["problems"] if p["code"] == "server"] == ["server"]
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "drafts with draft model, MTP head, n-gram" in out
    assert "no llama-server was found" in out


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "ends the process with signal 6"),
        ("raise ImportError('libcuda.so.1 is missing')", "llama-cpp-python is not installed"),
        ("raise OSError('a wrong libllama')", "OSError: a wrong libllama"),
        ("print('not JSON'); raise SystemExit", "does not work here: exit code 0"),
    ],
)
def test_a_binding_that_does_not_load_is_an_error_with_its_fix(
    code: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "llama_cpp").mkdir()
    (tmp_path / "llama_cpp" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert said in out
    assert 'pip install "gguftools[run]"' in out


def fake(path: Path, help_text: str, version: str = "9 (abc)") -> Path:
    """A llama-server that only says what it is."""
    said = f'if [ "$1" = --version ]; then echo "version: {version}" >&2; exit; fi'
    return program(path, f'{said}\ncat <<"E"\n{help_text}E')


def problems(found: dict[str, Any], *starts: str) -> list[str]:
    """The codes of problems that begin so."""
    return [p["code"] for p in found["problems"] if p["code"].startswith(starts)]


@pytest.mark.parametrize(
    ("help_text", "types", "kinds", "codes"),
    [
        (NEW_HELP, ["draft-simple", "draft-mtp", "ngram-mod"],
         ["draft-simple", "draft-mtp", "ngram"], []),
        (OLD_HELP, [], ["draft-simple"], ["server-old"]),
    ],
)  # fmt: skip
def test_a_server_says_what_it_drafts_with(
    help_text: str,
    types: list[str],
    kinds: list[str],
    codes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(fake(tmp_path / "server", help_text)))
    assert main(["doctor", "--json"]) == 0
    found = parsed(capsys.readouterr().out, "doctor")
    server = found["server"]
    assert (server["version"], server["build"]) == ("9 (abc)", 9)
    assert (server["types"], server["kinds"], server["devices"]) == (types, kinds, [])
    assert problems(found, "server-old", "server-gpu") == codes


@pytest.mark.parametrize(
    ("version", "help_name", "bad"),
    [
        ("10752 (abc)", "llama.cpp-2026-08", True),
        ("0.6.0-dev (build 10752, commit abc)", "llama.cpp-2026-08", True),
        ("11434 (abc)", "llama.cpp-2026-08", False),
        ("4800 (abc)", "ik_llama.cpp-2026-08", False),  # it counts its builds otherwise
    ],
)
def test_a_build_that_is_known_to_be_bad_comes_with_what_it_does(
    version: str,
    help_name: str,
    bad: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = Machine(GIB, GIB, (Gpu("AMD Radeon RX 7900 XTX", GIB, GIB),))
    monkeypatch.setattr(doctor, "read_machine", lambda: machine)
    help_text = (HELPS / f"{help_name}.txt").read_text()
    monkeypatch.setenv("LLAMA_SERVER", str(fake(tmp_path / "server", help_text, version)))
    main(["doctor", "--json"])
    found = parsed(capsys.readouterr().out, "doctor")
    assert bool(problems(found, "server-bad")) is bad
    assert problems(found, "server-gpu") == ["server-gpu"]
    main(["doctor"])
    out = capsys.readouterr().out
    assert ("build 10752 sizes the draft's cache" in out) is bad
    assert ("ik_llama.cpp 4800 (abc)" in out) is help_name.startswith("ik")
    assert "drafts with draft model, MTP head, " in out


@pytest.mark.skipif(llama_server() is None, reason=WHY)
def test_the_real_server_is_shown_with_all_its_kinds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(llama_server()))
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "drafts with draft model, MTP head, EAGLE-3, DFlash, DSpark, n-gram" in out
    assert str(llama_server()) in out


def test_fewer_cores_than_there_are_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for n_all, codes in ((64, ["cores"]), (4, [])):
        monkeypatch.setattr("os.cpu_count", lambda n=n_all: n)
        found = doctor._machine_problems(Machine(GIB, GIB, n_cores=4))
        assert [p.code for p in found if p.code == "cores"] == codes


@pytest.mark.parametrize(
    ("cpu", "system", "unused"),
    [
        ("flags : fpu avx avx2 fma", "CPU : AVX = 1 | AVX2 = 1 | FMA = 1 | ", ""),
        ("flags : fpu avx avx2 fma", "CPU : SSE3 = 1 | ", "AVX2 and FMA"),
        ("flags : fpu avx", "CPU : SSE3 = 1 | ", ""),
        ("", "", ""),
    ],
)
def test_a_binding_that_leaves_the_cpu_unused_is_said(
    cpu: str, system: str, unused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_text", lambda path: cpu)
    found = [p.message for p in doctor._binding_problems(binding(system=system), "", PLAIN)]
    assert len(found) == bool(unused)
    assert all(f"this CPU has {unused}, and" in message for message in found)


def test_wsl2_is_known_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = "Linux version 6.6.87.2-microsoft-standard-WSL2"
    monkeypatch.setattr(doctor, "_text", lambda path: kernel)
    found = [p for p in doctor._machine_problems(PLAIN) if p.code == "wsl2"]
    assert "which Windows gives 1 GB of memory" in found[0].message
    assert ".wslconfig" in found[0].hint


@pytest.mark.parametrize(
    ("machine", "flag"),
    [
        (Machine(GIB, GIB, (Gpu("NVIDIA L4", GIB, GIB),)), "-DGGML_CUDA=on"),
        (Machine(GIB, GIB, (Gpu("AMD Radeon RX 7900 XTX", GIB, GIB),)), "-DGGML_VULKAN=on"),
        (Machine(GIB, GIB, unified=True), "-DGGML_METAL=on"),
        (Machine(GIB, GIB), None),
    ],
)
def test_a_gpu_that_the_binding_does_not_use_comes_with_the_command(
    machine: Machine, flag: str | None
) -> None:
    for gpu in (False, True):
        found = list(doctor._binding_problems(binding(gpu=gpu), "", machine))
        hints = [problem.hint for problem in found]
        wanted = f'CMAKE_ARGS="{flag}" pip install --force-reinstall --no-cache-dir '
        assert hints == ([wanted + doctor.BINDING] if flag and not gpu else [])


def test_a_binding_without_mtp_functions_is_an_error() -> None:
    found = list(doctor._binding_problems(binding(amx=True, mtp=False), "", PLAIN))
    assert [(p.code, p.severity) for p in found] == [
        ("binding-mtp", "error"), ("binding-amx", "info")
    ]  # fmt: skip


def test_another_version_than_the_tested_one_is_said() -> None:
    other = replace(binding(), build="llama-cpp-python 0.4.1")
    found = list(doctor._binding_problems(other, "", PLAIN))
    assert [p.code for p in found] == ["binding-version"]
    assert found[0].hint == f"pip install {doctor.BINDING}"
