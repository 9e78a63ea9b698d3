"""Many turns with random cancels: memory stays flat and the text that of a fresh context.

python -m scripts.soak MODEL.gguf [--draft FILE] [--ngram] [--turns 1000] [--tokens 40]

Greedy. Turns go on from each other; some are stopped or abandoned at a random token or while their
prompt is read, and now and then the conversation starts anew. Exit code 1 when memory grows by more
than 2% after the first third, or when the last reply differs from a fresh session's.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session

N_CTX = 2048
Messages = list[dict[str, str]]


def rss_bytes() -> int:
    """Resident memory of this process (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kib) * 1024


def turn(session: Session, messages: Messages, n: int, rng: random.Random) -> str:
    """One reply, whole or left at a random token; what was shown of it."""
    reply = session.reply(messages, n)
    leave_at = rng.randrange(-n // 8, 2 * n)
    if leave_at < 0:
        reply.stop()
    pieces = iter(reply)
    for i, _ in enumerate(pieces):
        if i == leave_at and rng.random() < 0.5:
            reply.stop()
        elif i == leave_at:
            pieces.close()
            break
    return reply.text


def soak(settings: Settings, n_turns: int, n_tokens: int) -> tuple[float, bool]:
    """Growth of memory after the first third, and whether the last reply is a fresh one's."""
    rng = random.Random(1)
    messages: Messages = []
    settled = 0
    with open_session(settings) as session:
        for i in range(n_turns):
            if i == n_turns // 3:
                settled = rss_bytes()
            if sum(len(m["content"]) for m in messages) > N_CTX // 2:
                messages = []
            messages.append({"role": "user", "content": f"question {i}"})
            text = turn(session, messages, n_tokens, rng)
            if text:
                messages.append({"role": "assistant", "content": text})
            else:
                messages.pop()
        grown = rss_bytes() / settled - 1
        messages.append({"role": "user", "content": "the last one"})
        last = session.reply(messages, n_tokens)
        for _ in last:
            pass
    with open_session(settings) as fresh:
        again = fresh.reply(messages, n_tokens)
        for _ in again:
            pass
    return grown, last.text == again.text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--ngram", action="store_true")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=40)
    args = parser.parse_args()
    settings = Settings(
        args.model,
        args.draft,
        ngram_first=args.ngram,
        n_ctx=N_CTX,
        chain=Chain(temp=0),
        seed=1,
    )
    grown, equal = soak(settings, args.turns, args.tokens)
    print(f"{args.turns} turns: memory {grown:+.2%}, last reply equal to a fresh one: {equal}")
    return int(grown > 0.02 or not equal)


if __name__ == "__main__":
    raise SystemExit(main())
