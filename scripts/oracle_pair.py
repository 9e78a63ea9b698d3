"""Real llama.cpp as the judge of `gguftools pair`: its rules, its llama-server and our own engine.

    python -m scripts.oracle_pair rules [--pairs 300] [--seed 1] [MODEL.gguf ...]
    python -m scripts.oracle_pair server [--family NAME ...] [--seed 1]
    python -m scripts.oracle_pair engine [--family NAME ...] [--seed 1]

`rules` applies the five vocabulary rules to what llama.cpp's C API says of random vocabularies, or
of your files. `server` starts llama-server (scripts.llama_server builds it) on pairs of small files
of every kind. `engine` drafts with those that we say `gguftools run` can. Exit code 1 if any pair
disagrees.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from gguftools.gguf.source import open_gguf
from gguftools.gguf.tokenizer import Vocab, read_vocab
from gguftools.pairing.vocab import match_vocab
from scripts.llama_server import llama_server
from tests.models.pair_cases import FAMILIES, Case, cases
from tests.models.pair_judge import Judgement, judge_engine, judge_server
from tests.models.tiny_vocab import Facts, ask_llama, ask_llama_about
from tests.models.vocab_pairs import random_pair, upstream_rule

Answer = tuple[str | None, int | None]
Side = tuple[str, Vocab | None, Facts | None]


def main() -> int:
    """Ask, compare, print a table and every disagreement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("judge", choices=("rules", "server", "engine"))
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", nargs="*", choices=FAMILIES, default=FAMILIES)
    args = parser.parse_args()
    if args.judge == "rules":
        return _rules(_files(args.models) if args.models else _random(args.pairs, args.seed))
    wanted = (case for case in cases(args.seed) if case.family in args.family)
    return _table(_judged(args.judge, wanted))


def _judged(judge: str, wanted: Iterable[Case]) -> Iterator[Judgement]:
    server = llama_server()
    if judge == "server" and server is None:
        raise SystemExit("error: no llama-server; python -m scripts.llama_server builds one")
    with tempfile.TemporaryDirectory() as folder:
        for case in wanted:
            if judge == "engine":
                found = judge_engine(case, Path(folder))
            else:
                assert server is not None
                found = judge_server(server, case, Path(folder))
            if found is not None:
                yield found


def _table(judgements: Iterable[Judgement]) -> int:
    """Ours across theirs, a line per kind of draft."""
    seen: Counter[tuple[str, str, str]] = Counter()
    n_wrong = 0
    for found in judgements:
        seen[found.kind, found.ours, found.theirs] += 1
        if found.disagreement:
            n_wrong += 1
            print(f"{found.case.family}, {found.case.label}: {found.disagreement}", flush=True)
    print(f"{'kind':14} {'we say':9} {'llama.cpp':22} pairs")
    for (kind, ours, theirs), n in sorted(seen.items()):
        print(f"{kind:14} {ours:9} {theirs:22} {n:5}")
    print(f"{seen.total()} pairs, {n_wrong} disagreements")
    return 1 if n_wrong else 0


def _rules(sides: Iterable[tuple[Side, Side]]) -> int:
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
