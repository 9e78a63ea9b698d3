"""Records what drafts of every length would have brought in a real reply, for scripts/replay.py.

python -m scripts.record_trace TARGET.gguf OUT.jsonl [--draft FILE] [--mtp] [--ngram]
    [--prompt TEXT] [--tokens 200] [--length 8]

Greedy, with drafts of the full length throughout. Durations are the lower quartile of several:
what else runs on the machine only adds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from gguftools.speculative.plan import DrafterName, Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session
from gguftools.speculative.stats import Step
from scripts.replay import positions

N_REPEATS = 12


def record(settings: Settings, prompt: str, n: int) -> list[dict[str, Any]]:
    """The lines of the trace: first what things cost, then one line per token of the reply."""
    with open_session(settings) as session:
        reply = session.reply(prompt, n)
        for _ in reply:
            pass
        head = {
            "seconds_verify": verify_seconds(session, session.draft_max),
            "seconds_draft": draft_seconds(reply.steps, session.draft_max),
        }
    rows = [row for step in reply.steps for row in positions(step)]
    lines = [{"run": run, "confidence": rounded(confidence)} for run, confidence in rows]
    return [head, *lines]


def rounded(confidence: Sequence[float | None]) -> list[float | None]:
    """Enough digits to decide by."""
    return [p if p is None else round(p, 4) for p in confidence]


def quartile(seconds: Sequence[float]) -> float:
    """The lower one, to the microsecond."""
    return round(sorted(seconds)[len(seconds) // 4], 6)


def draft_seconds(steps: Sequence[Step], length: int) -> list[float]:
    """Of the first, second, ... drafted token."""
    columns = [[s.seconds_draft[i] for s in steps if s.n_draft > i] for i in range(length)]
    return [quartile(column) for column in columns if column]


def verify_seconds(session: Session, length: int) -> list[float]:
    """Of a pass over 1, 2, ... rows, where the reply ended."""
    target, token = session.target, session.target.tokens[-1]
    columns: list[list[float]] = [[] for _ in range(length + 1)]
    for _ in range(N_REPEATS):
        for n, column in enumerate(columns, 1):
            started = perf_counter()
            target.decode([token] * n, n)
            column.append(perf_counter() - started)
    return [quartile(column) for column in columns]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--mtp", action="store_true")
    parser.add_argument("--ngram", action="store_true")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--length", type=int, default=8)
    args = parser.parse_args()
    drafter: DrafterName = "mtp" if args.mtp else "ngram" if args.ngram else "draft"
    settings = Settings(
        args.target,
        args.draft,
        drafter=drafter,
        draft_max=args.length,
        draft_min=args.length,
        n_ctx=4096,
        chain=Chain(temp=0),
        seed=1,
    )
    lines = record(settings, args.prompt, args.tokens)
    args.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{args.out}: {len(lines) - 1} tokens")


if __name__ == "__main__":
    main()
