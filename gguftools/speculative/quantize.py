"""Writes a copy of a model in another file type, by llama.cpp's own quantizer."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gguftools.errors import EngineError, RefusedError, UsageError
from gguftools.gguf.ggml_types import FILE_TYPES
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.source import open_gguf

_ERROR = 4  # GGML_LOG_LEVEL_ERROR, ggml/include/ggml.h, b11434


def requantize(source: Path, destination: Path, file_type: str) -> None:
    """Write `source` to `destination` as e.g. "Q4_0". An existing destination is replaced.

    Types that need an importance matrix fail with llama.cpp's own words.
    """
    ids = {name: number for number, name in FILE_TYPES.items()}
    if file_type not in ids:
        raise UsageError(f"unknown file type {file_type!r}", hint=f"one of {', '.join(ids)}")
    _check(source)
    # A name of its own: an interrupted run never leaves half a model under the real one.
    unfinished = destination.with_name(f"{destination.name}.{os.getpid()}.part")
    try:
        _quantize(source, unfinished, ids[file_type])
        unfinished.replace(destination)
    except OSError as err:
        raise EngineError(err.strerror or str(err), where=str(destination)) from err
    finally:
        unfinished.unlink(missing_ok=True)


def _check(source: Path) -> None:
    """Refuse what llama.cpp would refuse or abort on."""
    errors = [p for p in check_integrity(open_gguf(source)) if p.severity == "error"]
    if errors:
        raise RefusedError(errors[0].message, where=str(source), hint=errors[0].hint)


def _quantize(source: Path, destination: Path, file_type_id: int) -> None:
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type_id
    params.allow_requantize = True
    params.nthread = _n_cores()
    with _log(llama_cpp) as errors:
        failed = llama_cpp.llama_model_quantize(
            os.fsencode(source), os.fsencode(destination), ctypes.byref(params)
        )
    if failed:
        raise EngineError(f"llama.cpp could not quantize it: {_reason(errors)}", where=str(source))


@contextmanager
def _log(llama_cpp: Any) -> Iterator[list[str]]:
    """Collect llama.cpp's error lines instead of printing anything, then restore its logger."""
    errors: list[str] = []

    def keep(level: int, text: bytes, _: object) -> None:
        if level == _ERROR:
            errors.append(text.decode("utf-8", "replace").strip())

    before, its_argument = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(before), ctypes.byref(its_argument))
    callback = llama_cpp.llama_log_callback(keep)
    llama_cpp.llama_log_set(callback, None)
    try:
        yield errors
    finally:
        llama_cpp.llama_log_set(before, its_argument)


def _reason(errors: list[str]) -> str:
    """The last error line without the name of the C function."""
    return errors[-1].split(": ", 1)[-1] if errors else "no reason given"


def _n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
