"""Speed of the engine: plain, every fixed length, adaptive, and native llama.cpp, side by side.

python -m scripts.bench_engine TARGET (--draft FILE | --mtp | --ngram) [--prompt TEXT]...
    [--lengths 1,2,3,5,8] [--rounds 5] [--tokens 128] [--threads 2] [--peer PYTHON] [--json FILE]

Greedy. Every round runs every arm once on every prompt, in an order that turns from round to round;
our arms share one loaded pair, and each reply starts with a fresh controller. PYTHON is an
interpreter with xllamacpp: its native server runs the same files without a draft and with n-max 3.
Prints medians with their range and the ratio to our plain decoding.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from gguftools.speculative.controller import Controller
from gguftools.speculative.llama import build_name
from gguftools.speculative.plan import DrafterName, Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session

PROMPTS = ("Once upon a time there was a fox who", "def quicksort(items):\n")
N_CTX = 2048
Run = dict[str, Any]


class Peer:
    """The native server in a process of its own."""

    def __init__(self, python: str, args: argparse.Namespace, n_max: int | None) -> None:
        want = {
            "target": str(args.target),
            "draft": str(args.draft) if args.draft and n_max is not None else None,
            "mtp": args.mtp and n_max is not None,
            "n_max": n_max or 0,
            "threads": args.threads,
            "ctx": N_CTX,
        }
        script = Path(__file__).with_name("peer_xllamacpp.py")
        self.process = subprocess.Popen(
            [python, str(script), json.dumps(want)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.build = self._line()["build"]

    def _line(self) -> Run:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def run(self, prompt: str, n: int) -> Run:
        assert self.process.stdin is not None
        print(json.dumps({"prompt": prompt, "n": n}), file=self.process.stdin, flush=True)
        return self._line()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def ours(session: Session, n_draft: int | None, prompt: str, n: int) -> Run:
    """One reply with a fixed length, 0 for plain, None for adaptive."""
    whole = session.engine
    most = session.settings.draft_max
    cost = session.predicted_cost()
    controller = Controller(most, cost=cost) if n_draft is None else Controller(n_draft, n_draft)
    drafter = None if n_draft == 0 else whole.drafter
    session.engine = replace(whole, controller=controller, drafter=drafter)
    session.target.clear()
    reply = session.reply(prompt, n, raw=True)
    for _ in reply:
        pass
    session.engine = whole
    report = reply.report
    return {
        "tokens_per_second": report.tokens_per_second,
        "n_tokens": report.n_tokens,
        "n_draft": report.n_draft,
        "n_accepted": report.n_accepted,
        "histogram": report.n_draft_histogram,
        "token_ids": reply.token_ids,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--mtp", action="store_true")
    parser.add_argument("--ngram", action="store_true")
    parser.add_argument("--prompt", action="append")
    parser.add_argument("--lengths", default="1,2,3,5,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def measure(arms: dict[str, Callable[[str], Run]], prompts: list[str], rounds: int) -> Run:
    """Runs by arm."""
    names = list(arms)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for prompt in prompts:
        for name in names:
            arms[name](prompt)  # warm-up
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            runs[name] += [arms[name](prompt) for prompt in prompts]
        print(f"round {i + 1} of {rounds}", file=sys.stderr)
    return runs


def summary(runs: dict[str, list[Run]]) -> dict[str, Run]:
    plain = median(r["tokens_per_second"] for r in runs["plain"])
    rows = {}
    for name, arm in runs.items():
        speeds = sorted(r["tokens_per_second"] for r in arm)
        drafted = sum(r["n_draft"] for r in arm)
        rows[name] = {
            "median": median(speeds),
            "low": speeds[0],
            "high": speeds[-1],
            "ratio_to_plain": median(speeds) / plain,
            "acceptance": sum(r["n_accepted"] for r in arm) / drafted if drafted else None,
        }
    return rows


def main() -> None:
    args = arguments()
    lengths = [int(n) for n in args.lengths.split(",")]
    kind: DrafterName = "draft" if args.draft else "mtp" if args.mtp else "ngram"
    settings = Settings(
        args.target, args.draft, kind, draft_max=max(lengths), n_ctx=N_CTX,
        n_threads=args.threads, chain=Chain(temp=0), seed=1,
    )  # fmt: skip
    prompts = args.prompt or list(PROMPTS)
    peers = {}
    if args.peer:
        peers["native plain"] = Peer(args.peer, args, None)
        if kind != "ngram":
            peers["native n-max 3"] = Peer(args.peer, args, 3)
    with open_session(settings) as session:
        arms: dict[str, Callable[[str], Run]] = {
            name: (lambda prompt, n=n: ours(session, n, prompt, args.tokens))  # type: ignore[misc]
            for name, n in [("plain", 0), *((f"fixed {n}", n) for n in lengths), ("adaptive", None)]
        }
        for name, peer in peers.items():
            arms[name] = lambda prompt, peer=peer: peer.run(prompt, args.tokens)  # type: ignore[misc]
        runs = measure(arms, prompts, args.rounds)
    for peer in peers.values():
        peer.close()
    rows = summary(runs)
    for name, row in rows.items():
        kept = "" if row["acceptance"] is None else f"{row['acceptance']:.0%} accepted"
        print(
            f"{name:<16}{row['median']:8.1f} tokens/s  [{row['low']:.1f}, {row['high']:.1f}]  "
            f"{row['ratio_to_plain']:.2f} of plain  {kept}"
        )
    if args.json:
        facts = {"build": build_name(), "cores": os.cpu_count(), "arguments": vars(args)}
        args.json.write_text(json.dumps({**facts, "summary": rows, "runs": runs}, default=str))


if __name__ == "__main__":
    main()
