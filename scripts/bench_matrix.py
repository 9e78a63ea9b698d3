"""The engine on every workload, beside every fixed length and native llama.cpp; figures for docs.

python -m scripts.bench_matrix FOLDER [--peer PYTHON] [--only NAME]... [--draw]

Makes the files of the workloads in FOLDER once: Markov pairs (synthetic, of known acceptance and
depth), the widened SmolLM2 (synthetic: zero columns) with its Q4_0 original, and SmolLM2 itself.
Runs one workload after the other, each in a process of its own, and writes docs/benchmarks.json,
docs/benchmarks.md and docs/benchmarks.png. --draw only makes the last two from the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
N_LAYER, N_EMBD, N_FF, N_VOCAB = 32, 384, 1536, 384
COSTS = {"0.05": 1, "0.1": 3, "0.3": 9, "0.5": 16}  # layers of the draft
# Every cost and every acceptance twice; all sixteen pairs take half an hour more.
GRID = (("0.05", 0.2), ("0.05", 0.8), ("0.1", 0.5), ("0.1", 0.95), ("0.3", 0.2), ("0.3", 0.8),
        ("0.5", 0.5), ("0.5", 0.95))  # fmt: skip
PROMPTS = {
    "code": "Write a Python function that merges two sorted lists, with a docstring and a loop.",
    "prose": "Tell the story of a lighthouse keeper who finds a letter in a bottle.",
    "summary": "Repeat the key sentences of this text word for word. The tide tables of the harbour"
    " are printed every spring. The tide tables list the hour of high water for each day. Sailors"
    " copy the hour of high water into their log books before they leave the harbour.",
    "JSON": "List five fruits as a JSON array of objects with the keys name, colour and price.",
}
REWRITE = "Write this list again, word for word:\n" + "\n".join(
    f"- {what}, number {17 * i % 90 + 10}" for i, what in enumerate([
        "old ferry, river", "red tram, bridge", "slow barge, canal", "late train, valley",
        "grey heron, marsh", "small boat, bay", "young fox, field", "brown horse, road",
        "tired nurse, square", "quiet monk, garden", "tall clerk, market", "green bus, avenue",
        "loud crow, orchard", "thin cat, alley",
    ], 1)
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """What runs: files, prompt, sampling, how many tokens, and how often."""

    name: str
    group: str
    target: str
    draft: str | None
    kind: str
    prompt: str
    temp: float
    n_tokens: int
    lengths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 16)
    raw: bool = False
    rounds: int = 3


def workloads(folder: Path) -> list[Workload]:
    """All of them; their files are made when they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [_markov(folder, cost, accepted) for cost, accepted in GRID]
    found += [_switching(folder), _head(folder)]
    wide, half, coarse = _real(folder)
    found += _texts(wide, coarse, 0.0)
    found.append(Workload("SmolLM2 F16 with its Q4_0", "barely pays", half, coarse, "draft",
                          PROMPTS["prose"], 0.0, 256))  # fmt: skip
    found.append(Workload("rewrite by n-gram lookup", "n-gram", half, None, "ngram",
                          REWRITE, 0.0, 256))  # fmt: skip
    return found + _texts(wide, coarse, 0.8)


def _texts(target: str, draft: str, temp: float) -> list[Workload]:
    return [
        Workload(f"{name}, temp {temp:g}", "real text, widened target", target, draft, "draft",
                 prompt, temp, 96, rounds=2)
        for name, prompt in PROMPTS.items()
    ]  # fmt: skip


def _markov(folder: Path, cost: str, accepted: float) -> Workload:
    from tests.models.chain import random_chain
    from tests.models.markov import write_llama

    chain = random_chain(N_VOCAB, 1, predictable=0.0, concentration=0.05)
    target = folder / "markov.gguf"
    draft = folder / f"markov-{cost}-{accepted:g}.gguf"
    if not target.exists():
        write_llama(target, chain, n_layer=N_LAYER, n_embd=N_EMBD, n_ff=N_FF)
    if not draft.exists():
        write_llama(draft, _accepted(chain, accepted), n_layer=COSTS[cost], n_embd=N_EMBD,
                    n_ff=N_FF)  # fmt: skip
    name = f"cost {cost}, acceptance {accepted:g}"
    return Workload(name, "Markov", str(target), str(draft), "draft", "a", 1.0, 256, raw=True)


def _accepted(chain: Any, wanted: float) -> Any:
    """A draft of which the target keeps that share, by bisection."""
    from tests.models.chain import acceptance, perturbed, stationary

    low, high, share = 0.0, 1.0, stationary(chain)
    for _ in range(20):
        middle = (low + high) / 2
        kept = float(share @ acceptance(chain, perturbed(chain, middle, 2)))
        low, high = (middle, high) if kept > wanted else (low, middle)
    return perturbed(chain, (low + high) / 2, 2)


def _switching(folder: Path) -> Workload:
    """Half the tokens follow one another surely, half by chance, in stretches of about 50."""
    from tests.models.chain import perturbed, random_chain
    from tests.models.markov import write_llama

    chain = random_chain(N_VOCAB, 3, predictable=0.5, peak=0.98, concentration=0.3, p_switch=0.02)
    target, draft = folder / "switching.gguf", folder / "switching-draft.gguf"
    if not draft.exists():
        write_llama(target, chain, n_layer=N_LAYER, n_embd=N_EMBD, n_ff=N_FF)
        mixed = perturbed(chain, 0.8, 4)
        sure = chain.max(axis=1) > 0.9
        mixed[sure] = chain[sure]
        write_llama(draft, mixed, n_layer=3, n_embd=N_EMBD, n_ff=N_FF)
    return Workload("predictable and random stretches", "mixed", str(target), str(draft), "draft",
                    "a", 1.0, 512, raw=True)  # fmt: skip


def _head(folder: Path) -> Workload:
    from tests.models.chain import random_chain
    from tests.models.markov import write_qwen35

    target = folder / "mtp24.gguf"
    if not target.exists():
        chain = random_chain(N_VOCAB, 1, predictable=0.5, concentration=0.05)
        write_qwen35(target, chain, mtp_chain=_accepted(chain, 0.8), n_layer=24, n_embd=N_EMBD,
                     n_ff=N_FF)  # fmt: skip
    return Workload("MTP head, qwen35 of 24 layers", "MTP", str(target), None, "mtp", "a", 1.0,
                    256, raw=True)  # fmt: skip


def _real(folder: Path) -> tuple[str, str, str]:
    from tests.models.widen import write_pair

    names = ("smollm2-widened-f16.gguf", "smollm2-f16.gguf", "smollm2-q4_0.gguf")
    paths = [folder / name for name in names]
    if not all(path.exists() for path in paths):
        write_pair(folder)
    wide, half, coarse = (str(path) for path in paths)
    return wide, half, coarse


def run(workload: Workload, peer: str | None) -> dict[str, Any]:
    """One workload in a process of its own."""
    words = [sys.executable, "-m", "scripts.bench_engine", workload.target]
    words += ["--draft", workload.draft] if workload.draft else [f"--{workload.kind}"]
    words += ["--prompt", workload.prompt, "--temp", str(workload.temp), "--json", "-"]
    words += ["--rounds", str(workload.rounds), "--tokens", str(workload.n_tokens)]
    words += ["--lengths", ",".join(map(str, workload.lengths))]
    words += ["--raw"] if workload.raw else []
    words += ["--peer", peer] if peer else []
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    for reply in (reply for arm in found["runs"].values() for reply in arm):
        reply.pop("token_ids", None)
    return {"workload": asdict(workload), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer")
    parser.add_argument("--only", action="append")
    parser.add_argument("--draw", action="store_true")
    args = parser.parse_args()
    place = DOCS / "benchmarks.json"
    rows = json.loads(place.read_text())["workloads"] if place.exists() else []
    for workload in [] if args.draw else workloads(args.folder):
        if args.only and not any(name in workload.name for name in args.only):
            continue
        print(f"-- {workload.name}", file=sys.stderr)
        row = run(workload, args.peer)
        for key in ("target", "draft"):
            row["workload"][key] = row["workload"][key] and Path(row["workload"][key]).name
        rows = [old for old in rows if old["workload"]["name"] != workload.name] + [row]
        place.write_text(json.dumps({"cores": os.cpu_count(), "workloads": rows}, indent=1) + "\n")
    from scripts.bench_pages import write_pages

    write_pages(rows, DOCS)


if __name__ == "__main__":
    main()
