"""Which draft a llama-server gets and how long its drafts are: our check and our prediction."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from gguftools.errors import RefusedError, UsageError
from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.candidates import broken
from gguftools.pairing.compatibility import Pair, check_head, check_ngram, check_pair
from gguftools.pairing.engines import SERVER
from gguftools.pairing.launch import NGRAM, Settings
from gguftools.pairing.ranking import N_CTX_DEFAULT, Question, expect, ranked
from gguftools.pairing.server_binary import Server

AUTO, NONE = "auto", "none"  # may be asked for beside the kinds of drafts


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen. `pair` is None for plain decoding; `kinds` may name lookup beside it."""

    target: Header
    draft: Header | None
    kinds: tuple[str, ...]
    settings: Settings | None
    n_ctx: int
    pair: Pair | None
    notes: tuple[str, ...] = ()


def choose(
    target: Path,
    draft: Path | None,
    kind: str,
    question: Question,
    server: Server,
    *,
    ngram_too: bool = False,
) -> Choice:
    """Check target and draft as `pair` does; RefusedError where llama-server would fail."""
    model = _opened(target, "target")
    head = None if draft is None else _opened(draft, "draft")
    n_train = read_hparams(model).n_ctx_train or N_CTX_DEFAULT
    n_ctx = question.launch.n_ctx or min(n_train, N_CTX_DEFAULT) * question.launch.n_parallel
    asked = replace(question, launch=replace(question.launch, n_ctx=n_ctx))
    pair: Pair | None
    if kind == AUTO and head is None:
        pair, notes = _best(model, asked, server)
    else:
        named = _pair(model, head, NGRAM if kind == NONE else kind, asked)
        _refuse(named, server)
        pair = None if kind == NONE else named
        tells = named.verdict == "poor" and (pair is not None or named.rule == "memory")
        notes = (named.reason,) if tells else ()
    if pair is None or pair.kind is None:
        return Choice(model, None, (), None, n_ctx, None, notes)
    lookup = (NGRAM,) if ngram_too and pair.kind != NGRAM else ()
    used = head if pair.draft is not None else None
    return Choice(model, used, (*lookup, pair.kind), pair.settings, n_ctx, pair, notes)


def _opened(path: Path, whose: str) -> Header:
    header = open_gguf(path)
    if why := broken(header):
        raise RefusedError(f"llama.cpp does not load the {whose}: {why}", where=str(path))
    return header


def _pair(target: Header, draft: Header | None, kind: str, question: Question) -> Pair:
    """The pair that was asked for, whatever it is worth."""
    if kind == NGRAM:
        return expect(check_ngram(target), target, None, question)
    if draft is None:
        if kind != "draft-mtp":
            raise UsageError(f"{kind} drafts with a file of its own", hint="name it with --draft")
        return expect(check_head(target), target, None, question)
    pair = expect(check_pair(target, draft, build=question.build), target, draft, question)
    if kind not in (AUTO, pair.kind) and pair.verdict != "blocked":
        raise RefusedError(f"it is a {pair.kind} file, not {kind}", where=draft.path)
    return pair


def _best(
    target: Header, question: Question, server: Server
) -> tuple[Pair | None, tuple[str, ...]]:
    """The target's own head or lookup, whichever is expected to pay here; else no draft."""
    pairs = [expect(check_ngram(target), target, None, question)]
    _refuse(pairs[0], server)
    if mtp_report(target).state != "none":
        pairs.append(expect(check_head(target), target, None, question))
    best = ranked([p for p in pairs if p.kind in server.dialect.kinds])
    if best and best[0].verdict == "works" and best[0].commands[SERVER] is not None:
        return best[0], ()
    why = f": {best[0].reason}" if best else f", as {server.version or server.path} cannot"
    return None, (f"nothing drafts{why}; --draft names a draft, --mtp or --ngram insist",)


def _refuse(pair: Pair, server: Server) -> None:
    """What our check refuses never reaches llama-server."""
    where = pair.draft or pair.target
    if pair.verdict == "blocked":
        files = [pair.target, *([pair.draft] if pair.draft else [])]
        raise RefusedError(pair.reason, where=where, hint=shlex.join(["gguftools", "pair", *files]))
    if pair.kind in server.dialect.kinds and pair.commands[SERVER] is None:
        why = (note for note in pair.notes if note.startswith(SERVER))
        raise RefusedError(next(why, "llama-server does not run this pair"), where=where)
