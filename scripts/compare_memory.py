"""What we say a model takes in memory beside what llama.cpp logs when it allocates it.

python -m scripts.compare_memory [MODEL.gguf...] [--widened] [--json]

Without models: the real ones in the environment, the Markov set and a tiny file of every MTP
architecture. Each context is made in a child process on the CPU. MiB; the error is that of the
total. llama.cpp's figures come rounded to 0.01 MiB, so sums within that count as equal. Exit code
1 if a total is off by more than 5 %, or a cache or state at all.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.nextn_table import MTP_ARCHS
from gguftools.gguf.source import open_gguf
from gguftools.pairing.kv_cache import ContextShape, cache_type
from gguftools.pairing.memory import Parts, estimate
from tests.models import real, tiny
from tests.models.markov import write_standard_set
from tests.models.widen import write_pair

ERROR_MAX = 0.05
_MIB = 1 << 20
_ROUNDING = 0.005 * _MIB
_SIZES = {
    "weights": re.compile(r"model buffer size = +([\d.]+) MiB"),
    "kv": re.compile(r"KV buffer size = +([\d.]+) MiB"),
    "recurrent": re.compile(r"(?:RS|state) buffer size = +([\d.]+) MiB"),
    "compute": re.compile(r"compute buffer size = +([\d.]+) MiB"),
    "output": re.compile(r"output buffer size = +([\d.]+) MiB"),
}
_MARK = "the context of the MTP blocks"

SHAPES = (
    ContextShape(4096, 512, 512),
    ContextShape(16384, 512, 512, n_outputs=9, n_rs_seq=3),
    ContextShape(4096, 512, 512, n_outputs=512),
    ContextShape(8192, 128, 128, swa_full=True),
    ContextShape(8192, 256, 512, type_k="q8_0", type_v="q8_0"),
    ContextShape(6000, 512, 512, n_outputs=3, n_seq_max=3),
    ContextShape(4096, 512, 512, flash_attn=False),
)
_TINY_SHAPES = (SHAPES[0], SHAPES[3], SHAPES[5])  # heads too narrow for Q8_0


@dataclass(frozen=True)
class Row:
    """One context of one model; None where llama.cpp did not get as far."""

    model: str
    shape: ContextShape
    ours: Parts
    theirs: Parts
    n_lines: int
    made: bool  # whether llama.cpp got as far as its compute buffer

    @property
    def error(self) -> float | None:
        """Relative error of the total, beyond rounding."""
        if not self.made:
            return None
        off = self.ours.total - self.theirs.total
        return 0.0 if abs(off) <= self.n_lines * _ROUNDING else off / self.theirs.total

    @property
    def cache_equal(self) -> bool:
        """Whether cache and states are those of llama.cpp, as far as its log shows."""
        ours, theirs = self.ours, self.theirs
        off = max(abs(ours.kv - theirs.kv), abs(ours.recurrent - theirs.recurrent))
        return off <= self.n_lines * _ROUNDING or not (theirs.kv or theirs.recurrent)


def compare(path: Path, shape: ContextShape, *, with_mtp: bool) -> Iterator[Row]:
    """Rows for the trunk's context and, `with_mtp`, that of the MTP blocks."""
    header = open_gguf(path)
    log = _run(path, shape, with_mtp=with_mtp)
    for is_mtp, part in enumerate(log.split(_MARK)[: 1 + with_mtp]):
        here = replace(shape, n_outputs=shape.n_seq_max, n_rs_seq=0, mtp=True) if is_mtp else shape
        theirs, n_lines = _read(part, weights=not is_mtp)
        if not is_mtp and theirs.weights == 0:
            return
        parts = estimate(header, here, with_weights=not is_mtp, with_heads=with_mtp)["CPU"]
        # At first the output buffer holds one row per sequence, and no hidden rows.
        first = replace(here, n_outputs=here.n_seq_max, mtp=False)
        output = estimate(header, first, with_weights=False)["CPU"].output
        parts = replace(parts, output=output)
        yield Row(path.name, here, parts, theirs, n_lines, theirs.compute > 0)


def _read(log: str, *, weights: bool) -> tuple[Parts, int]:
    found = {name: [float(n) for n in size.findall(log)] for name, size in _SIZES.items()}
    if not weights:
        found["weights"] = []
    # Reserving again repeats the line of a compute buffer.
    found["compute"] = found["compute"][-1:]
    parts = Parts(**{name: round(sum(sizes) * _MIB) for name, sizes in found.items()})
    return parts, sum(len(sizes) for sizes in found.values())


def _run(path: Path, shape: ContextShape, *, with_mtp: bool) -> str:
    """What llama.cpp logs, as far as it gets."""
    question = json.dumps([str(path), asdict(shape), with_mtp])
    command = [sys.executable, "-m", "scripts.compare_memory", "--child", question]
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    return done.stdout.decode("utf-8", "replace")


def _child(question: str) -> None:
    """Load the model and make its contexts; llama.cpp's log goes to stdout as it comes."""
    from llama_cpp import llama_cpp as lib

    path, fields, with_mtp = json.loads(question)
    shape = ContextShape(**fields)
    keep = lib.llama_log_callback(lambda _level, text, _data: os.write(1, text) and None)
    lib.llama_log_set(keep, ctypes.c_void_p(0))
    lib.llama_backend_init()
    model_params = lib.llama_model_default_params()
    model_params.n_gpu_layers, model_params.load_mtp = 0, with_mtp
    model_params.use_extra_bufts = False
    model = lib.llama_model_load_from_file(path.encode(), model_params)
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = shape.n_ctx, shape.n_batch, shape.n_ubatch
    params.n_outputs_max, params.n_seq_max = shape.n_outputs, shape.n_seq_max
    params.n_rs_seq, params.swa_full = shape.n_rs_seq, shape.swa_full
    params.flash_attn_type = 1 if shape.flash_attn else 0
    params.type_k, params.type_v = cache_type(shape.type_k).id, cache_type(shape.type_v).id
    if not model or not (context := lib.llama_init_from_model(model, params)):
        sys.exit(1)
    if with_mtp:
        os.write(1, f"\n{_MARK}\n".encode())
        params.ctx_type, params.ctx_other = 1, context
        params.n_rs_seq, params.n_outputs_max = 0, shape.n_seq_max
        if not lib.llama_init_from_model(model, params):
            sys.exit(1)
    os._exit(0)


def _models(folder: Path, *, widened: bool) -> Iterator[Path]:
    for found in (real.smollm2(), real.gemma3_270m()):
        if found is not None:
            yield found
    if widened:
        yield from write_pair(folder).values()
    markov = write_standard_set(folder)
    yield from (markov[name] for name in ("target", "hybrid-mtp"))
    for arch in MTP_ARCHS:
        tiny.write(tiny.tiny(arch), path := folder / f"tiny-{arch}.gguf")
        yield path
    tiny.write(tiny.gemma4(), path := folder / "tiny-gemma4.gguf")
    yield path


def _show(row: Row) -> str:
    shape = row.shape
    words = [f"-c {shape.n_ctx} -ub {shape.n_ubatch}", f"outputs {shape.n_outputs}"]
    words += [f"rs {shape.n_rs_seq}"] * bool(shape.n_rs_seq) + ["mtp"] * shape.mtp
    words += [f"-np {shape.n_seq_max}"] * (shape.n_seq_max > 1) + ["swa-full"] * shape.swa_full
    words += [f"-ctk {shape.type_k}"] * (shape.type_k != "f16") + ["no fa"] * (not shape.flash_attn)
    error = "not made" if row.error is None else f"{row.error:+7.2%}"
    if not row.cache_equal:
        error += " cache differs"
    pairs = zip(row.ours.named().values(), row.theirs.named().values(), strict=True)
    sizes = "".join(f" {a / _MIB:9.2f} {b / _MIB:9.2f}" for a, b in list(pairs)[:5])
    return f"{row.model[:26]:26} {' '.join(words)[:40]:40}{sizes}  {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--widened", action="store_true", help="with a 692M model, written first")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return _child(args.child)
    rows: list[Row] = []
    head = "".join(f" {name:>9} {'llama':>9}" for name in _SIZES)
    print(f"{'model':26} {'context':40}{head}  error of the total", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for path in args.models or _models(Path(folder), widened=args.widened):
            runnable = mtp_report(open_gguf(path)).runnable
            for shape in _TINY_SHAPES if path.name.startswith("tiny-") else SHAPES:
                with_mtp = runnable and shape in SHAPES[:2]
                for row in compare(path, shape, with_mtp=with_mtp):
                    rows.append(row)
                    print(_show(row), file=sys.stderr, flush=True)
    errors = [abs(row.error) for row in rows if row.error is not None]
    summary = {
        "contexts": len(rows),
        "made": len(errors),
        "worst_error": round(max(errors, default=0.0), 4),
        "over_5_percent": sum(error > ERROR_MAX for error in errors),
        "cache_differs": sum(not row.cache_equal for row in rows),
    }
    print(json.dumps(summary) if args.json else summary)
    sys.exit(bool(summary["over_5_percent"] or summary["cache_differs"]))


if __name__ == "__main__":
    main()
