"""Plain decoding: our loop beside `Llama(...)` of llama-cpp-python, same file, threads and prompt.

python -m scripts.bench_plain MODEL.gguf [--rounds 5] [--tokens 128] [--threads 2]

Greedy, interleaved rounds in one process; prints each round, then JSON with the medians and the
ratio of ours to theirs. Both count the tokens after the first and the time from the first on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

from llama_cpp import Llama

from gguftools.speculative.llama import build_name, has_amx
from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session

PROMPT = "Once upon a time there was a fox who"


def ours(session: Session, n: int) -> float:
    """Tokens per second of one reply; the prompt is decoded again each time."""
    session.target.clear()
    reply = session.reply(PROMPT, n, raw=True)
    for _ in reply:
        pass
    seconds = [s.seconds_verify for s in reply.steps]
    # Everything the reply's generator did, less the first round's share.
    return (len(reply.token_ids) - 1) / (reply.report.seconds_decode - seconds[0])


def theirs(llama: Llama, n: int) -> float:
    """The same through llama-cpp-python's own generator."""
    llama.reset()  # type: ignore[no-untyped-call]
    tokens = llama.generate(llama.tokenize(PROMPT.encode()), temp=0.0, top_k=1)
    next(tokens)
    started = perf_counter()
    n_tokens = sum(1 for _ in islice(tokens, n - 1))
    return n_tokens / (perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    llama = Llama(str(args.model), n_ctx=2048, n_threads=args.threads, verbose=False)
    settings = Settings(
        args.model, drafter="none", chain=Chain(temp=0), n_ctx=2048, n_threads=args.threads
    )
    speeds: dict[str, list[float]] = {"gguftools": [], "llama-cpp-python": []}
    with open_session(settings) as session:
        arms: dict[str, Callable[[], float]] = {
            "gguftools": lambda: ours(session, args.tokens),
            "llama-cpp-python": lambda: theirs(llama, args.tokens),
        }
        for run in arms.values():
            run()  # warm-up
        for i in range(args.rounds):
            for name, run in reversed(arms.items()) if i % 2 else arms.items():
                speeds[name].append(run())
            print("  ".join(f"{name} {values[-1]:.1f}" for name, values in speeds.items()))
    medians = {name: median(values) for name, values in speeds.items()}
    print(json.dumps({
        "build": build_name(), "amx": has_amx(), "threads": args.threads,
        "tokens_per_second": speeds, "median": medians,
        "ratio": medians["gguftools"] / medians["llama-cpp-python"],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
