"""Real llama.cpp as the judge of `gguftools pair`: random pairs of vocabularies, or your own files.

    python -m scripts.oracle_pair [--pairs 300] [--seed 1] [MODEL.gguf ...]

llama.cpp loads every vocabulary; its five rules are then applied to what its C API says, and the
answer is compared with match_vocab's. Exit code 1 if any pair disagrees.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gguftools.gguf.source import open_gguf
from gguftools.gguf.tokenizer import Vocab, read_vocab
from gguftools.pairing.vocab import match_vocab
from tests.models.tiny_vocab import Facts, ask_llama, ask_llama_about
from tests.models.vocab_pairs import random_pair, upstream_rule

Answer = tuple[str | None, int | None]
Side = tuple[str, Vocab | None, Facts | None]


def main() -> int:
    """Ask, compare, print one line per rule and per disagreement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sides = _files(args.models) if args.models else _random(args.pairs, args.seed)
    seen: Counter[str] = Counter()
    n_wrong = 0
    for (name, target, ours), (draft_name, draft, theirs) in sides:
        if ours is None or theirs is None or target is None or draft is None:
            seen["not loaded by llama.cpp"] += 1
            continue
        match = match_vocab(target, draft)
        mine: Answer = (match.rule, match.token_id if match.rule == "token-text" else None)
        upstream = upstream_rule(ours, theirs)
        seen[upstream[0] or "compatible"] += 1
        if mine != upstream:
            n_wrong += 1
            print(f"{name} + {draft_name}: llama.cpp {upstream}, gguftools {mine}")
    for rule, n in seen.most_common():
        print(f"{n:6} {rule}")
    print(f"{n_wrong:6} disagreements")
    return 1 if n_wrong else 0


def _random(n_pairs: int, seed: int) -> Iterable[tuple[Side, Side]]:
    rng = random.Random(seed)
    pairs = [random_pair(rng) for _ in range(n_pairs)]
    vocabs = [vocab for pair in pairs for vocab in pair]
    with tempfile.TemporaryDirectory() as folder:
        facts = ask_llama(Path(folder), vocabs)
    sides = [
        (f"pair {i // 2}", read_vocab(vocab.header()), answer)
        for i, (vocab, answer) in enumerate(zip(vocabs, facts, strict=True))
    ]
    return zip(sides[::2], sides[1::2], strict=True)


def _files(paths: list[Path]) -> Iterable[tuple[Side, Side]]:
    facts = ask_llama_about(paths)
    sides = [
        (path.name, read_vocab(open_gguf(path)), answer)
        for path, answer in zip(paths, facts, strict=True)
    ]
    return [(target, draft) for target in sides for draft in sides]


if __name__ == "__main__":
    sys.exit(main())
