"""Real llama.cpp as the judge of many MTP files: does one load, make an MTP context, decode?

`python -m tests.models.mtp_judge` reads one JSON line per file and answers in kind. llama.cpp
aborts on some files, so each is judged in a fork of a process that has only imported the library.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_MAX = 20  # for one file; they take milliseconds
_STAGES = ("nothing", "loads", "context", "decodes")


@dataclass(frozen=True)
class Verdict:
    """How far llama.cpp came, and its last words."""

    loads: bool
    context: bool
    decodes: bool
    log: str


def judge(files: Iterable[tuple[Path, int]], target: Path | None = None) -> list[Verdict]:
    """Verdicts on (path, number of heads to run); an assistant runs beside its target."""
    beside = str(target) if target else ""
    lines = "".join(json.dumps([str(path), n, beside]) + "\n" for path, n in files)
    child = subprocess.run(
        [sys.executable, "-m", "tests.models.mtp_judge"],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "GGML_NO_BACKTRACE": "1", "OMP_NUM_THREADS": "1"},
    )
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    return [Verdict(stage >= 1, stage >= 2, stage >= 3, log) for stage, log in answers]


def _serve() -> None:
    # Imported here once: the forks below start with everything loaded.
    import llama_cpp
    import llama_cpp.llama_cpp_ext
    import numpy as np

    np.zeros(1)
    llama_cpp.llama_backend_init()
    for line in sys.stdin:
        print(json.dumps(_in_fork(*json.loads(line))), flush=True)


def _in_fork(path: str, n_heads: int, target: str) -> tuple[int, str]:
    """The stage reached, and the end of what llama.cpp logged."""
    stage_end, stage_out = os.pipe()
    with open(os.memfd_create("log"), "w+b") as log:
        pid = os.fork()
        if pid == 0:
            os.dup2(log.fileno(), 2)
            signal.alarm(SECONDS_MAX)
            _try(path, n_heads, target, stage_out)
            os._exit(0)
        os.close(stage_out)
        os.waitpid(pid, 0)
        with open(stage_end, "rb") as stages:
            stage = len(stages.read())
        log.seek(0)
        return stage, log.read().decode(errors="replace")[-600:]


def _try(path: str, n_heads: int, target: str, stage_out: int) -> None:
    import llama_cpp

    model = _model(path)
    if not model:
        return
    os.write(stage_out, b".")
    beside = None
    if target:
        target_model = _model(target)
        beside = llama_cpp.llama_init_from_model(target_model, _settings())
        batch = llama_cpp.llama_batch_get_one((ctypes.c_int32 * 2)(1, 2), 2)
        if llama_cpp.llama_decode(beside, batch):
            raise SystemExit("the target does not decode")
    settings = _settings()
    settings.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
    settings.ctx_other = beside
    context = llama_cpp.llama_init_from_model(model, settings)
    if not context:
        return
    os.write(stage_out, b".")
    if all(_decodes(model, context, offset, first=2 if target else 0) for offset in range(n_heads)):
        os.write(stage_out, b".")


def _model(path: str) -> Any:
    import llama_cpp

    params = llama_cpp.llama_model_default_params()
    params.load_mtp = True
    return llama_cpp.llama_model_load_from_file(path.encode(), params)


def _settings() -> Any:
    import llama_cpp

    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = 32
    settings.n_threads = settings.n_threads_batch = 1
    return settings


def _decodes(model: Any, context: Any, offset: int, first: int) -> bool:
    """Whether one head turns tokens and made-up hidden rows into finite logits that depend on both.

    A graph that ignores the rows is the trunk's: no MTP, whatever the context is called.
    """
    import numpy as np
    from llama_cpp import llama_cpp_ext as nextn

    nextn.llama_set_embeddings_nextn(context, True, True)
    nextn.llama_set_nextn_layer_offset(context, offset)
    one, other = (_logits(model, context, row, first) for row in ((0.5, -0.25), (0.25, 0.75)))
    return bool(np.isfinite(one).all() and np.isfinite(other).all() and (one != other).any())


def _logits(model: Any, context: Any, row: tuple[float, float], first: int) -> Any:
    """Logits after two tokens whose hidden rows repeat two numbers; NaN if decoding fails."""
    import llama_cpp
    import numpy as np

    if not first:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    n = 2
    width = llama_cpp.llama_model_n_embd_out(model)
    rows = (ctypes.c_float * (n * width))(*(row * (n * width // 2)))
    sequence = ctypes.pointer(ctypes.c_int32(0))
    batch = llama_cpp.llama_batch(
        n_tokens=n,
        token=(ctypes.c_int32 * n)(1, 2),
        embd=rows,
        pos=(ctypes.c_int32 * n)(first, first + 1),
        n_seq_id=(ctypes.c_int32 * n)(1, 1),
        seq_id=(ctypes.POINTER(ctypes.c_int32) * n)(sequence, sequence),
        logits=(ctypes.c_int8 * n)(1, 1),
    )
    if llama_cpp.llama_decode(context, batch):
        return np.array([np.nan])
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    return np.array(llama_cpp.llama_get_logits_ith(context, n - 1)[:n_vocab])


if __name__ == "__main__":
    _serve()
