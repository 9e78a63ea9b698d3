"""What the engine costs beside llama.cpp: Python's share of a step, and the prompt with a head.

python -m scripts.bench_overheads SMOLLM2 DRAFT BIG_VOCABULARY MTP [--json]

SMOLLM2 with DRAFT and by itself, greedy and sampled; a model of 262144 tokens greedy; MTP a model
with a head. A step's own time is what it takes outside llama.cpp; medians over steps.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from gguftools.speculative.llama import lib
from gguftools.speculative.plan import DrafterName, Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session

CALLS = ("llama_get_logits", "llama_token_to_piece", "llama_vocab_is_eog")
PROMPT = "Tell a story about a lighthouse keeper who finds a letter in a bottle."
N_TOKENS = 96
Figures = dict[str, float]


class Stopwatch:
    """Seconds spent inside some functions, wrapped where they are looked up."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += perf_counter() - start

        return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("smollm2", "draft", "big_vocabulary", "mtp"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    watches = Stopwatch(), Stopwatch()
    for name, watch in (("llama_decode", watches[0]), *((name, watches[1]) for name in CALLS)):
        setattr(lib, name, watch.around(getattr(lib, name)))
    sampled = Chain(temp=0.8)
    found = {
        "SmolLM2 plain, greedy": steps(watches, args.smollm2, None, "none", Chain(temp=0)),
        "SmolLM2 plain, temp 0.8": steps(watches, args.smollm2, None, "none", sampled),
        "SmolLM2 drafting 3, greedy": steps(
            watches, args.smollm2, args.draft, "draft", Chain(temp=0), n_draft=3
        ),
        "SmolLM2 n-gram, greedy": steps(watches, args.smollm2, None, "ngram", Chain(temp=0)),
        "262144 tokens plain, greedy": steps(
            watches, args.big_vocabulary, None, "none", Chain(temp=0)
        ),
        "262144 tokens plain, temp 0.8": steps(watches, args.big_vocabulary, None, "none", sampled),
        "prompt": prompt(args.mtp),
    }
    if args.json:
        print(json.dumps(found, indent=1))
        return
    for name, figures in found.items():
        print(f"{name:<32}", *(f"{key} {value:.4g}" for key, value in figures.items()), sep="  ")


def steps(
    watches: tuple[Stopwatch, Stopwatch], target: Path, draft: Path | None, kind: DrafterName,
    chain: Chain, *, n_draft: int = 0,
) -> Figures:  # fmt: skip
    """Milliseconds of a step: all of it, outside llama.cpp or its decode, and in the controller."""
    settings = Settings(
        target, draft, kind, draft_max=n_draft or 8, draft_min=n_draft, chain=chain, n_ctx=2048,
        seed=1,
    )  # fmt: skip
    decode, calls = watches
    judge = Stopwatch()
    rounds: list[tuple[float, ...]] = []
    with open_session(settings) as session:
        controller = session.engine.controller
        for name in ("plan", "proceed", "n_verify", "observe"):
            setattr(controller, name, judge.around(getattr(controller, name)))
        reply = session.reply([{"role": "user", "content": PROMPT}], N_TOKENS)
        n_seen, before = 0, (perf_counter(), decode.seconds, calls.seconds, judge.seconds)
        for _ in reply:
            if len(reply.steps) == n_seen:
                continue
            now = perf_counter(), decode.seconds, calls.seconds, judge.seconds
            n_new, n_seen = len(reply.steps) - n_seen, len(reply.steps)
            if n_seen > 8:  # after the prompt and the first few
                rounds.append(tuple((b - a) / n_new for a, b in zip(before, now, strict=True)))
            before = now
    own = median(total - inside - other for total, inside, other, _ in rounds)
    whole = median(total for total, *_ in rounds)
    return {
        "step_ms": 1e3 * whole,
        "own_ms": 1e3 * own,
        "share": own / whole,
        "outside_decode_ms": 1e3 * median(total - inside for total, inside, *_ in rounds),
        "controller_ms": 1e3 * median(judging for *_, judging in rounds),
    }


def prompt(target: Path, n_tokens: int = 1500, rounds: int = 5) -> Figures:
    """Seconds to read a prompt with the model's own head and without it."""
    times: dict[str, list[float]] = {"mtp": [], "none": []}
    sessions: dict[str, Session] = {}
    kinds: tuple[DrafterName, ...] = ("mtp", "none")
    for kind in kinds:
        sessions[kind] = open_session(Settings(target, None, kind, n_ctx=2048, seed=1))
    for _ in range(rounds):
        for name, session in sessions.items():
            session.target.clear()
            reply = session.reply("a" * n_tokens, 8, raw=True)
            for _ in reply:
                pass
            times[name].append(reply.report.seconds_prompt)
    for session in sessions.values():
        session.close()
    plain, drafting = median(times["none"]), median(times["mtp"])
    return {"plain_s": plain, "mtp_s": drafting, "speed_of_plain": plain / drafting}


if __name__ == "__main__":
    main()
