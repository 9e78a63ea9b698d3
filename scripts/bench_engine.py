"""Speed of the engine: plain, every fixed length, adaptive, and native llama.cpp, side by side.

python -m scripts.bench_engine TARGET (--draft FILE | --mtp | --ngram) [--prompt TEXT]... [--raw]
    [--temp 0] [--lengths 1,2,3,5,8] [--rounds 5] [--tokens 128] [--threads 2] [--peer PYTHON]
    [--json FILE]

Every round gets a reply of every arm to every prompt. Our arms take turns, a sixteenth of its reply
each, because a machine that is shared changes its speed for seconds at a time and differently for
plain decoding and for drafts (docs/log.md); each has a session of its own. "adaptive" keeps its
controller from reply to reply, as a chat does, and "adaptive, cold" begins each with a new one, as
a run does. PYTHON is an interpreter with xllamacpp: its native server runs the same files without a
draft and with n-max 3. Prints medians with their range and the ratio to our plain decoding.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from gguftools.speculative.llama import build_name, lib
from gguftools.speculative.plan import DrafterName, Settings
from gguftools.speculative.reply import Reply
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import open_session
from gguftools.speculative.streaming import Piece

PROMPTS = ("Once upon a time there was a fox who", "def quicksort(items):\n")
N_CTX = 2048
N_TURNS = 16  # in which a reply is written
LIBGOMP_SPINS = 300_000  # libgomp's own default, which ours lowers for itself (docs/log.md)
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
            env=os.environ | {"GOMP_SPINCOUNT": str(LIBGOMP_SPINS)},
        )
        self.build = self._line()["build"]

    def _line(self) -> Run:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def run(self, prompt: list[int], n: int, chain: Chain, seed: int) -> Run:
        assert self.process.stdin is not None
        sampling = {"temperature": chain.temp, "top_k": chain.top_k, "top_p": chain.top_p,
                    "min_p": chain.min_p, "seed": seed}  # fmt: skip
        asked = {"prompt": prompt, "n": n, "sampling": sampling}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return self._line()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Arm:
    """One way to write a reply, in a session of its own."""

    def __init__(self, settings: Settings, *, cold: bool = False) -> None:
        self.session = open_session(settings)
        self._cold = cold

    def start(self, prompt: str, n: int, seed: int, *, raw: bool) -> Reply:
        """A reply whose prompt is read anew."""
        session = self.session
        if self._cold:
            draft_min = session.settings.draft_min
            session.engine = session.unlearned(session.engine, session.draft_max, draft_min)
        session.target.clear()
        messages = prompt if raw else [{"role": "user", "content": prompt}]
        return session.reply(messages, n, raw=raw, seed=seed)


def arms_of(settings: Settings, lengths: list[int]) -> dict[str, Arm]:
    """Plain, every fixed length, and the adaptive one as a user has it."""
    arms = {"plain": Arm(replace(settings, draft=None, drafter="none"))}
    for n in lengths:
        arms[f"fixed {n}"] = Arm(replace(settings, draft_max=n, draft_min=n))
    return arms | {"adaptive": Arm(settings), "adaptive, cold": Arm(settings, cold=True)}


def take_turns(replies: list[Reply], n_slice: int, rng: Random) -> None:
    """Writes all of them, n_slice tokens of each in turn."""
    waiting = [(reply, iter(reply)) for reply in replies]
    while waiting:
        rng.shuffle(waiting)
        waiting = [each for each in waiting if _go_on(*each, n_slice)]


def _go_on(reply: Reply, pieces: Iterator[Piece], n_slice: int) -> bool:
    """Writes a slice; whether the reply goes on."""
    stop = len(reply.token_ids) + n_slice
    return any(len(reply.token_ids) >= stop for _ in pieces)


def run_of(reply: Reply) -> Run:
    """What is kept of a reply."""
    report = reply.report
    return {
        "tokens_per_second": report.tokens_per_second,
        "seconds": report.seconds_prompt + report.seconds_decode,
        "seconds_prompt": report.seconds_prompt,
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
    parser.add_argument("--raw", action="store_true", help="no chat template")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--lengths", default="1,2,3,5,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer")
    parser.add_argument("--json", help="a file, or - for stdout")
    return parser.parse_args()


def measure(arms: dict[str, Arm], peers: dict[str, Peer], args: argparse.Namespace) -> Run:
    """Runs by arm; all of a round sample with the same seed. A short round warms up."""
    runs: dict[str, list[Run]] = {name: [] for name in [*arms, *peers]}
    chain = arms["plain"].session.settings.chain
    rng = Random(1)
    for i in range(args.rounds + 1):
        n = args.tokens if i else args.tokens // 4
        for prompt in args.prompt or PROMPTS:
            replies = {name: arm.start(prompt, n, i, raw=args.raw) for name, arm in arms.items()}
            take_turns(list(replies.values()), n // N_TURNS, rng)
            found = {name: run_of(reply) for name, reply in replies.items()}
            ids = replies["plain"].prompt_ids
            found |= {name: peer.run(ids, n, chain, i) for name, peer in peers.items()}
            for name, run in found.items():
                runs[name] += [run] if i else []
        print(f"round {i} of {args.rounds}", file=sys.stderr)
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
            "n_equal": _n_equal(arm, runs["plain"]),
        }
    return rows


def _n_equal(arm: list[Run], plain: list[Run]) -> int | None:
    """How many replies have plain decoding's tokens; None for peers, which do not say theirs."""
    if "token_ids" not in arm[0]:
        return None
    return sum(bool(a["token_ids"] == b["token_ids"]) for a, b in zip(arm, plain, strict=True))


def main() -> None:
    args = arguments()
    lengths = [int(n) for n in args.lengths.split(",")]
    kind: DrafterName = "draft" if args.draft else "mtp" if args.mtp else "ngram"
    # A Markov file (--raw) is a distribution to sample from as it is.
    chain = Chain(temp=args.temp, top_k=0, top_p=1, min_p=0) if args.raw else Chain(temp=args.temp)
    settings = Settings(
        args.target, args.draft, kind, n_ctx=N_CTX, n_threads=args.threads, chain=chain, seed=1
    )
    peers = {}
    if args.peer:
        peers["native plain"] = Peer(args.peer, args, None)
        if kind != "ngram":
            peers["native n-max 3"] = Peer(args.peer, args, 3)
    arms = arms_of(settings, lengths)
    runs = measure(arms, peers, args)
    for arm in arms.values():
        arm.session.close()
    for peer in peers.values():
        peer.close()
    rows = summary(runs)
    _print(rows)
    if args.json:
        builds = {
            "ours": f"{build_name()} {_vectors()}",
            **{name: peer.build for name, peer in peers.items()},
        }
        found = {"builds": builds, "summary": rows, "runs": runs}
        text = json.dumps(found, default=str)
        print(text) if args.json == "-" else Path(args.json).write_text(text)


def _vectors() -> str:
    """Which of its kernels this build takes: with AVX-512, F32 can be slower (docs/log.md)."""
    return f"{'with' if b'AVX512 = 1' in lib.llama_print_system_info() else 'without'} AVX-512"


def _print(rows: dict[str, Run]) -> None:
    for name, row in rows.items():
        kept = "" if row["acceptance"] is None else f"{row['acceptance']:.0%} accepted"
        print(
            f"{name:<16}{row['median']:8.1f} tokens/s  [{row['low']:.1f}, {row['high']:.1f}]  "
            f"{row['ratio_to_plain']:.2f} of plain  {kept}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
