"""Compares what we foretell of a conversion with what llama.cpp's converter really writes.

    python scripts/oracle_reference.py --llama-cpp TREE --python PYTHON

TREE is a llama.cpp source tree, PYTHON an interpreter with torch, transformers and safetensors (of
an environment of its own). Tiny checkpoints of every class with an MTP head are damaged in each way
a head is lost, and converted. Without tree or interpreter nothing is done.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gguftools.gguf.checkpoint import open_checkpoint
from gguftools.gguf.conversion import foretell
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.reference import compare
from gguftools.gguf.reference_table import FAMILIES
from gguftools.gguf.source import open_gguf
from tests.models.checkpoint import HEADS, VOCAB, Shapes, config, head, trunk, write_checkpoint

# Runs in the other interpreter: one fork for each checkpoint, its exit code on stdout. Only the
# tokenizer is left out; heads do not depend on it.
_DRIVER = """
import multiprocessing, sys
tree, *places = sys.argv[1:]
sys.path[:0] = [tree, tree + "/gguf-py"]
import convert_hf_to_gguf as converter
find = converter.get_model_class
def found(*args, **kwargs):
    model = find(*args, **kwargs)
    model.set_vocab = lambda self: self.gguf_writer.add_tokenizer_model("no_vocab")
    return model
converter.get_model_class = found
def convert(place):
    sys.argv = ["convert", place, "--outtype", "f32", "--outfile", place + ".gguf"]
    converter.main()
fork = multiprocessing.get_context("fork")
for place in places:
    child = fork.Process(target=convert, args=(place,))
    child.start()
    child.join()
    print("RESULT", place, child.exitcode, flush=True)
"""
HEAD_SHARD = "model-00002-of-00002.safetensors"


def main() -> int:
    """Print each disagreement and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-cpp", type=Path, help="source tree of llama.cpp")
    parser.add_argument("--python", type=Path, help="interpreter with torch and transformers")
    args = parser.parse_args()
    if not _ready(args.llama_cpp, args.python):
        print("skipped: --llama-cpp and --python (with torch, transformers) are needed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        cases = list(_write(Path(folder)))
        codes = _convert(args.llama_cpp, args.python, cases)
        found = [_judge(place, codes[place]) for place in cases]
    for foretold, real, text in found:
        if text:
            print(f"DISAGREE {text}: foretold {foretold}, real {real}")
    for (foretold, real), n in sorted(Counter((f, r) for f, r, _ in found).items()):
        print(f"{foretold:15} {real:15} {n}")
    n_wrong = sum(bool(text) for _, _, text in found)
    print(f"{len(found)} conversions of {len(HEADS)} classes, {n_wrong} disagreements")
    return 1 if n_wrong else 0


def _ready(tree: Path | None, python: Path | None) -> bool:
    if tree is None or python is None or not (tree / "convert_hf_to_gguf.py").is_file():
        return False
    check = [str(python), "-c", "import torch, transformers, safetensors"]
    return (
        python.is_file() and subprocess.run(check, capture_output=True, check=False).returncode == 0
    )


def _write(folder: Path) -> Iterator[Path]:
    """Every checkpoint."""
    for model_class in HEADS:
        for name, changes, tensors, unlisted in _variants(model_class):
            place = folder / f"{model_class}-{name}"
            shards = {"model-00001-of-00002.safetensors": trunk(model_class)}
            extra = "mtp.safetensors" if unlisted else HEAD_SHARD
            shards[extra] = tensors
            hidden = (extra,) if unlisted else ()
            write_checkpoint(place, config(model_class, **changes), shards, unlisted=hidden)
            # The Gemma converter cuts the embedding to the tokenizer.
            vocab = {"model": {"vocab": dict.fromkeys(map(str, range(VOCAB)))}, "added_tokens": []}
            (place / "tokenizer.json").write_text(json.dumps(vocab))
            yield place


def _variants(model_class: str) -> Iterator[tuple[str, dict[str, Any], Shapes, bool]]:
    whole = head(model_class)
    key = FAMILIES[model_class].key
    yield "whole", {}, whole, False
    yield "unlisted", {}, whole, True
    if FAMILIES[model_class].naming == "assistant":
        return
    yield "nothing", {}, {}, False
    if key:
        for name, value in (("zero", 0), ("absent", ...), ("null", None)):
            yield f"{name}", {key: value}, whole, False
            yield f"{name}-nothing", {key: value}, {}, False
        more = {name: shape for name, shape in whole.items() if "layers" in name}
        yield "counted-more", {key: 2}, whole, False
        yield "layers-only", {}, more, False
    for part in ("eh_proj", "fc.", "hnorm", "pre_fc_norm_hidden", "o_proj", "mlp.gate.weight",
                 "self_attn.k_norm", "e_score_correction_bias", "post_attention_layernorm",
                 "shared_head", "kv_b_proj"):  # fmt: skip
        less = {name: shape for name, shape in whole.items() if part not in name}
        if len(less) < len(whole):
            yield f"without-{part.strip('.')}", {}, less, False


def _convert(tree: Path, python: Path, cases: list[Path]) -> dict[Path, int]:
    command = [str(python), "-c", _DRIVER, str(tree), *map(str, cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    codes = {}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            _, place, code = line.split(" ")
            codes[Path(place)] = int(code)
    if len(codes) != len(cases):
        sys.exit(f"the converter did not run:\n{done.stderr[-2000:]}")
    return codes


def _judge(place: Path, code: int) -> tuple[str, str, str]:
    """What was foretold, what the file is, and the name of the case where they disagree."""
    checkpoint = open_checkpoint(str(place))
    foretold = foretell(checkpoint)
    if code != 0:
        agree = foretold.outcome == "fails"
        return foretold.outcome, "fails", "" if agree else place.name
    header = open_gguf(Path(f"{place}.gguf"))
    report, arrival = mtp_report(header), compare(header, checkpoint)
    has_head = any(".nextn." in name for name in header.tensors)
    if not report.loads:
        real = "will-not-load"
    elif report.runnable:
        real = "kept"
    else:
        real = "unusable" if has_head else "plain"
    same = {"none": "plain", "dropped": "plain", "separate": "plain"}
    agree = same.get(foretold.outcome, foretold.outcome) == real
    detail = ""
    if foretold.outcome == "kept" and arrival.way != "arrived":
        agree, detail = False, f" ({arrival.reason})"
    if not agree:
        detail += f" [{foretold.reason}] [{report.reason}]"
    return foretold.outcome, real, "" if agree else place.name + detail


if __name__ == "__main__":
    sys.exit(main())
