"""What a running llama-server answers, as facts: the timings of a reply, and /metrics. Pure."""

from __future__ import annotations

import re

from gguftools.errors import SourceError
from gguftools.explain.facts import Counts, Facts
from gguftools.explain.record import Record
from gguftools.server.metrics import read_counters, read_timings

_KINDS = re.compile(r"(?:draft|ngram)-[a-z0-9-]{1,32}")


def read_reply(record: Record) -> Facts:
    """A completion reply with `timings`; /completion also has the settings it was made with."""
    timings, settings = (
        read_timings(record.values.get("timings")),
        record.one("generation_settings"),
    )
    if timings is None or not timings.n_predicted:
        raise SourceError("its timings say nothing of tokens written", where=record.where)
    counts = Counts(
        n_replies=1,
        n_prompt=timings.n_prompt,
        n_tokens=timings.n_predicted,
        n_rounds=rounds(timings.n_predicted, timings.n_accepted),
        n_draft=timings.n_draft,
        n_accepted=timings.n_accepted,
        seconds_prompt=timings.seconds_prompt,
        seconds_decode=timings.seconds_predicted,
    )
    kinds = _KINDS.findall(settings.text("speculative.types") or "")
    return Facts(
        sources=("server reply",),
        engine="llama-server",
        build=record.text("system_fingerprint"),
        target=record.text("model"),
        drafter=kinds[0] if kinds else None,
        temp=settings.seconds("temperature"),
        drafted=counts if timings.n_draft else None,
        plain=None if timings.n_draft else counts,
    )


def read_metrics(text: str, where: str) -> Facts:
    """/metrics of a llama-server: sums since it was started."""
    counted = read_counters(text)
    if counted is None:
        raise SourceError(
            "these metrics count no drafts", where=where,
            hint="an older llama-server, or another engine",
        )  # fmt: skip
    counts = Counts(
        n_prompt=counted.n_prompt,
        n_tokens=counted.n_predicted,
        n_rounds=rounds(counted.n_predicted, counted.n_accepted),
        n_rounds_drafted=counted.n_rounds,
        n_draft=counted.n_draft,
        n_accepted=counted.n_accepted,
        accepted_by_position=counted.accepted_by_position or None,
        seconds_prompt=counted.seconds_prompt,
        seconds_decode=counted.seconds_predicted,
    )
    return Facts(
        sources=("server metrics",),
        engine="llama-server",
        drafted=counts if counted.n_rounds else None,
        plain=None if counted.n_rounds else counts,
    )


def rounds(n_tokens: int | None, n_accepted: int | None) -> int | None:
    """Passes of the target: each wrote what it accepted and one token of its own."""
    if n_tokens is None or (n_accepted or 0) >= n_tokens:
        return None
    return n_tokens - (n_accepted or 0)
