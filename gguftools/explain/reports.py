"""Our own `--json` reports as facts: run, chat, bench, pair, inspect. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gguftools.bench.report import parse_report
from gguftools.explain.bench import bench_facts
from gguftools.explain.facts import Counts, Facts, add, repetition
from gguftools.explain.record import Record

N_TOKENS_READ = 1 << 16  # of a reply, to see whether it loops


def read_report(record: Record) -> Facts | None:
    """The facts of a report by its schema, None where it has none that we know."""
    schema = record.text("schema") or ""
    reader = READERS.get(schema)
    return reader(record) if reader else None


def _run(record: Record) -> Facts:
    facts = _reply(record)
    return replace(facts, sources=("run report",))


def _chat(record: Record) -> Facts:
    turns = [_reply(turn) for turn in record.many("turns")]
    first = next((t for t in turns if t.drafted), turns[0] if turns else Facts())
    return replace(
        first,
        sources=("chat report",),
        target=record.text("target"),
        drafted=add(t.drafted for t in turns if t.drafted is not None),
        plain=add(t.plain for t in turns if t.plain is not None),
        repetition=max((t.repetition for t in turns if t.repetition is not None), default=None),
    )


def _reply(record: Record) -> Facts:
    drafter, settings = record.text("drafter"), record.one("settings")
    counts = reply_counts(record)
    server = settings.text("engine") == "server"
    # Our own engine may have chosen not to draft; a server that drafts nothing is off.
    plain = drafter == "none" or (server and not counts.n_draft)
    tokens = (record.counts("token_ids") or ())[:N_TOKENS_READ]
    return Facts(
        engine="llama-server" if server else "gguftools",
        target=settings.text("target"),
        draft=settings.text("draft"),
        drafter=drafter,
        temp=settings.seconds("temp"),
        draft_max=settings.count("draft_max"),
        draft_min=settings.count("draft_min"),
        draft_p_min=settings.seconds("draft_p_min"),
        drafted=None if plain else counts,
        plain=counts if plain else None,
        repetition=repetition(tokens),
    )


def reply_counts(record: Record) -> Counts:
    """The counts of a reply. Engines that do not tell drafting from verifying have both at 0."""
    n_rounds = record.count("n_rounds")
    histogram = record.one("n_draft_histogram")
    n_plain = histogram.count("0") or 0 if histogram.values else None
    drafting, verifying = record.seconds("seconds_draft"), record.seconds("seconds_verify")
    return Counts(
        n_replies=1,
        n_prompt=record.count("n_prompt"),
        n_tokens=record.count("n_tokens"),
        n_rounds=n_rounds,
        n_rounds_drafted=None if n_plain is None or n_rounds is None else n_rounds - n_plain,
        n_draft=record.count("n_draft"),
        n_accepted=record.count("n_accepted"),
        drafted_by_position=record.counts("drafted_by_position"),
        accepted_by_position=record.counts("accepted_by_position"),
        seconds_prompt=record.seconds("seconds_prompt"),
        seconds_decode=record.seconds("seconds_decode"),
        seconds_draft=drafting if verifying else None,
        seconds_verify=verifying or None,
    )


def _bench(record: Record) -> Facts:
    return bench_facts(parse_report(record.values, record.where))


def _pair(record: Record) -> Facts:
    """The best candidate's prospects."""
    best = next(record.many("candidates"), Record({}, record.where))
    prediction, memory, settings = (best.one(k) for k in ("prediction", "memory", "settings"))
    blocked = best.text("verdict") == "blocked"
    return Facts(
        sources=("pair report",),
        target=record.text("target"),
        draft=best.text("draft"),
        drafter=best.text("kind"),
        draft_max=settings.count("draft_max"),
        draft_p_min=settings.seconds("draft_p_min"),
        pair_rule=(best.text("rule") or "unknown") if blocked else None,
        pair_reason=best.text("reason"),
        memory_reason=memory.text("reason") if memory.flag("fits") is False else None,
        n_ctx_max=memory.count("n_ctx_max"),
        predicted_speedup=prediction.seconds("speedup"),
        predicted_acceptance=prediction.seconds("acceptance"),
        predicted_break_even=prediction.seconds("break_even_acceptance"),
    )


def _inspect(record: Record) -> Facts:
    mtp = record.one("mtp")
    return Facts(
        sources=("inspect report",),
        target=record.text("path"),
        mtp_state=mtp.text("state"),
        mtp_reason=mtp.text("reason"),
    )


READERS: dict[str, Callable[[Record], Facts]] = {
    "gguftools.run/1": _run,
    "gguftools.chat/1": _chat,
    "gguftools.bench/1": _bench,
    "gguftools.pair/1": _pair,
    "gguftools.inspect/1": _inspect,
}
