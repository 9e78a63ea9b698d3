"""`gguftools doctor`: the machine as it is, and every way in which it can be amiss."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguftools.cli import main
from gguftools.pairing.machine import Gpu, Machine
from gguftools.speculative import doctor
from gguftools.speculative.doctor import Binding
from tests.commands import parsed
from tests.test_launch import NEW_HELP, OLD_HELP, program

GIB = 1 << 30


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(tmp_path / "absent"))


def test_it_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = parsed(capsys.readouterr().out, "doctor")
    assert found["binding"]["mtp"]
    assert found["binding"]["build"].startswith("llama-cpp-python ")
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


@pytest.mark.parametrize(
    ("help_text", "types", "codes"),
    [
        (NEW_HELP, ["draft-simple", "draft-mtp", "ngram-mod"], []),
        (OLD_HELP, [], ["server-old"]),
    ],
)
def test_a_server_says_what_it_drafts_with(
    help_text: str,
    types: list[str],
    codes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    version = 'if [ "$1" = --version ]; then echo "version: 9 (abc)" >&2; exit; fi'
    body = f'{version}\ncat <<"E"\n{help_text}E'
    monkeypatch.setenv("LLAMA_SERVER", str(program(tmp_path / "server", body)))
    assert main(["doctor", "--json"]) == 0
    found = parsed(capsys.readouterr().out, "doctor")
    assert (found["server"]["version"], found["server"]["types"]) == ("9 (abc)", types)
    assert [p["code"] for p in found["problems"] if p["code"].startswith("server")] == codes


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
        binding = Binding("llama-cpp-python 9", "", gpu=gpu, amx=False, mtp=True, devices=())
        found = list(doctor._binding_problems(binding, "", machine))
        hints = [problem.hint for problem in found]
        wanted = f'CMAKE_ARGS="{flag}" pip install --force-reinstall --no-cache-dir '
        assert hints == ([wanted + doctor.BINDING] if flag and not gpu else [])


def test_a_binding_without_mtp_functions_is_an_error() -> None:
    binding = Binding("llama-cpp-python 9", "", gpu=False, amx=True, mtp=False, devices=())
    found = list(doctor._binding_problems(binding, "", Machine(GIB, GIB)))
    assert [(p.code, p.severity) for p in found] == [
        ("binding-mtp", "error"), ("binding-amx", "info")
    ]  # fmt: skip
