"""What `gguftools pair` prints: the table, the choice in words, why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from gguftools.cli import render
from gguftools.gguf.reader import Header
from gguftools.pairing.compatibility import Pair
from gguftools.pairing.launch import NGRAM, Settings
from gguftools.pairing.quant import precision_of

_N_SHOWN_MAX = 40  # of the blocked ones; --json has them all
_HEAD = ("", "draft", "kind", "quant", "size", "verdict", "accepted", "speed", "memory",
         "settings")  # fmt: skip


def print_pairs(target: Header, pairs: Sequence[Pair], notes: Sequence[str]) -> None:
    """The answer for a terminal or a pipe."""
    _target(target)
    shown = pairs[: sum(p.verdict != "blocked" for p in pairs) + _N_SHOWN_MAX]
    rows = [_row(no, pair) for no, pair in enumerate(shown, 1)]
    render.table(_HEAD, rows, right=(0, 4, 6, 8))
    best = pairs[0] if pairs and pairs[0].verdict == "works" else None
    render.line()
    render.line(_choice(best, pairs), style="bold")
    if best is not None:
        for note in _notes(best):
            render.line(f"   {note}")
        for engine in ("gguftools", "llama-server"):
            if command := best.commands[engine]:
                render.line(f"   $ {command}")
    for no, pair in enumerate(shown, 1):
        if pair is not best:
            render.line()
            render.line(f"{no}  {name_of(pair)}: {pair.verdict}", style=render.STYLES[pair.verdict])
            render.line(f"   {_why_not(pair, best)}")
            for note in (*pair.notes, *pair.advice):
                render.line(f"   {note}")
    if len(shown) < len(pairs):
        notes = (*notes, f"{len(pairs) - len(shown)} more are blocked; --json lists them")
    for note in notes:
        render.note(note)


def _target(target: Header) -> None:
    precision = precision_of(target)
    size = render.n_bytes(sum(shard.n_bytes for shard in target.shards))
    quant = f", {precision.type}" if precision.type else ""
    render.line(f"target   {target.path}")
    render.line(f"         {target.architecture}{quant}, {size}", style="dim")
    render.line()


def _row(no: int, pair: Pair) -> Sequence[str]:
    found = pair.prediction
    return (
        str(no),
        name_of(pair),
        pair.kind or "-",
        pair.precision.type or "-" if pair.precision and pair.kind != NGRAM else "-",
        render.n_bytes(pair.n_bytes) if pair.n_bytes is not None else "-",
        pair.verdict,
        f"{found.acceptance:.0%}" if found else "-",
        f"{found.speedup:.2f}x ({found.speedup_low:.2f} to {found.speedup_high:.2f})"
        if found
        else "-",
        render.n_bytes(pair.memory.plan.total) if pair.memory else "-",
        _settings(pair.settings) if pair.settings else "-",
    )


def name_of(pair: Pair) -> str:
    """The file's name with its folder, which in many stores is the model's name."""
    if pair.draft is None:
        return "n-gram lookup" if pair.kind == NGRAM else "the target's MTP head"
    return "/".join(PurePath(pair.draft).parts[-2:])


def _settings(settings: Settings) -> str:
    words = [f"max {settings.draft_max}"]
    if settings.draft_min:
        words.append(f"min {settings.draft_min}")
    if settings.draft_p_min:
        words.append(f"p-min {settings.draft_p_min:g}")
    return ", ".join(words)


def _choice(best: Pair | None, pairs: Sequence[Pair]) -> str:
    if best is None:
        if any(p.verdict == "poor" for p in pairs):
            return "Take no draft: none is expected to be faster than plain decoding."
        return "Take no draft: llama.cpp drafts with none of these."
    found = best.prediction
    if found is None:
        return f"Take {name_of(best)}."
    if best.measured:
        speed = f"{found.speedup:.2f}x ({found.speedup_low:.2f} to {found.speedup_high:.2f})"
        return f"Take {name_of(best)}: measured here, {speed} the speed of plain decoding."
    may_lose = "; it may lose, so measure it" if found.speedup_low < 1.0 else ""
    return (
        f"Take {name_of(best)}: about {found.speedup:.2f}x the speed of plain decoding, in 80 of "
        f"100 cases {found.speedup_low:.2f}x to {found.speedup_high:.2f}x{may_lose}."
    )


def _why_not(pair: Pair, best: Pair | None) -> str:
    """Why this one was not chosen."""
    found = pair.prediction
    if pair.rule is not None or found is None or best is None or best.prediction is None:
        return f"{pair.rule}: {pair.reason}" if pair.rule else pair.reason
    if found.speedup > best.prediction.speedup:
        return f"as fast within what can be predicted, {found.speedup:.2f}x, and less precise"
    return f"llama.cpp drafts with it too, expected {found.speedup:.2f}x: less than the choice"


def _notes(pair: Pair) -> Iterator[str]:
    if (found := pair.prediction) is not None:
        yield from found.reasons
        if found.request_speedup < found.speedup - 0.05:
            yield f"{found.request_speedup:.2f}x for a whole request, with reading the prompt"
    if pair.memory is not None:
        yield f"memory with a context of {pair.memory.plan.n_ctx}: {pair.memory.reason}"
    yield from pair.notes
    yield from pair.advice
