"""Writes a copy of a model in another file type, by llama.cpp's own quantizer."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from gguftools.errors import EngineError, RefusedError, UsageError
from gguftools.gguf.ggml_types import FILE_TYPES
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.source import open_gguf
from gguftools.pairing.machine import usable_cores
from gguftools.speculative.llama import last_log, lib, start_backend


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
    start_backend()
    params = lib.llama_model_quantize_default_params()
    params.ftype = file_type_id
    params.allow_requantize = True
    params.nthread = usable_cores()
    failed = lib.llama_model_quantize(
        os.fsencode(source), os.fsencode(destination), ctypes.byref(params)
    )
    if failed:
        raise EngineError(f"llama.cpp could not quantize it: {last_log()}", where=str(source))
