"""Asks real llama.cpp, in a child process, what it makes of a file.

`python -m tests.models.oracle rows|mtp|load MODEL [HEAD]` is that child.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]


def next_token_logits(path: Path, tokens: list[int]) -> Rows:
    """Logits after each of the tokens, decoded as one batch."""
    return _ask("rows", tokens, path)


def mtp_logits(path: Path, tokens: list[int], head: Path | None = None) -> Rows:
    """Logits of the MTP head at each token but the first; `head` is a sidecar file, if any."""
    return _ask("mtp", tokens, path, *([head] if head else []))


def loads(path: Path, *, load_mtp: bool = False) -> tuple[bool, str]:
    """Whether llama.cpp loads the file without refusing, aborting or hanging; and its log."""
    child = _child("load-mtp" if load_mtp else "load", "", path)
    if child.returncode:
        raise RuntimeError(child.stderr.decode(errors="replace")[-2000:])
    return json.loads(child.stdout)[0] == 0, child.stderr.decode(errors="replace")


def loads_each(paths: Sequence[Path], *, load_mtp: bool = False) -> list[bool]:
    """`loads` for many files, at the price of one start."""
    child = _child("load-mtp" if load_mtp else "load", "", *paths)
    return [status == 0 for status in json.loads(child.stdout)]


def _ask(question: Literal["rows", "mtp"], tokens: list[int], *paths: Path) -> Rows:
    child = _child(question, json.dumps(tokens), *paths)
    if child.returncode:
        raise RuntimeError(child.stderr.decode(errors="replace")[-2000:])
    n_rows = len(tokens) - (question == "mtp")
    return np.frombuffer(child.stdout, np.float32).reshape(n_rows, -1)


def _child(question: str, text: str, *paths: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tests.models.oracle", question, *map(str, paths)]
    # An abort would start a debugger for its backtrace.
    environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
    return subprocess.run(
        command, input=text.encode(), capture_output=True, timeout=120, check=False,
        cwd=Path(__file__).parents[2], env=environment,
    )  # fmt: skip


def _model(path: str, load_mtp: bool) -> Any:
    import llama_cpp

    params = llama_cpp.llama_model_default_params()
    params.load_mtp = load_mtp
    return llama_cpp.llama_model_load_from_file(path.encode(), params)


def _context(model: Any, *, mtp_of: Any = None) -> Any:
    import llama_cpp

    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.n_threads = params.n_threads_batch = 1
    params.n_rs_seq = 0 if mtp_of else 4
    if mtp_of:
        params.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
        params.ctx_other = mtp_of
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("no context")
    return context


def _decode(context: Any, tokens: list[int], first: int, rows: Rows | None = None) -> None:
    """Decode tokens at positions from `first`, with hidden rows where an MTP context wants them."""
    import llama_cpp

    n = len(tokens)
    ids, where = (ctypes.c_int32 * n)(*tokens), (ctypes.c_int32 * n)(*range(first, first + n))
    sequence = ctypes.pointer(ctypes.c_int32(0))
    sequences = (ctypes.POINTER(ctypes.c_int32) * n)(*[sequence] * n)
    batch = llama_cpp.llama_batch(
        n_tokens=n, token=ids, pos=where, n_seq_id=(ctypes.c_int32 * n)(*[1] * n),
        seq_id=sequences, logits=(ctypes.c_int8 * n)(*[1] * n),
    )  # fmt: skip
    if rows is not None:
        batch.embd = (ctypes.c_float * rows.size).from_buffer(rows.data)
    if llama_cpp.llama_decode(context, batch):
        raise SystemExit("decode failed")


def _logits(context: Any, model: Any, n: int) -> Rows:
    import llama_cpp

    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = [llama_cpp.llama_get_logits_ith(context, i)[:n_vocab] for i in range(n)]
    return np.array(rows, np.float32)


def _mtp_rows(model: Any, head: Any, tokens: list[int]) -> Rows:
    """Hidden row of position p goes with token p + 1, as in llama.cpp's own driver."""
    import llama_cpp
    from llama_cpp import llama_cpp_ext as nextn

    context = _context(model)
    nextn.llama_set_embeddings_nextn(context, True, False)
    mtp = _context(head, mtp_of=context)
    nextn.llama_set_embeddings_nextn(mtp, True, True)
    _decode(context, tokens, 0)
    width = llama_cpp.llama_model_n_embd_out(model)
    hidden = [nextn.llama_get_embeddings_nextn_ith(context, i)[:width] for i in range(len(tokens))]
    _decode(mtp, tokens[1:], 1, np.array(hidden[:-1], np.float32))
    return _logits(mtp, head, len(tokens) - 1)


def _load_status(path: str, load_mtp: bool) -> int:
    """0 if the file loads; each file has a process of its own, since a load may abort."""
    if child := os.fork():
        return os.waitpid(child, 0)[1]
    os._exit(0 if _model(path, load_mtp) else 1)


def _answer(question: str, paths: list[str]) -> None:
    if question.startswith("load"):
        importlib.import_module("llama_cpp")  # once, before the forks
        print(json.dumps([_load_status(path, question == "load-mtp") for path in paths]))
        return
    model = _model(paths[0], load_mtp=question == "mtp")
    if not model:
        raise SystemExit("refused")
    tokens = json.load(sys.stdin)
    if question == "rows":
        context = _context(model)
        _decode(context, tokens, 0)
        rows = _logits(context, model, len(tokens))
    else:
        rows = _mtp_rows(model, _model(paths[1], True) if paths[1:] else model, tokens)
    sys.stdout.buffer.write(rows.tobytes())


if __name__ == "__main__":
    _answer(sys.argv[1], sys.argv[2:])
