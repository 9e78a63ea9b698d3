"""The answer: is it faster, and if not, which causes are there, with their numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gguftools.explain.causes import CAUSES, Severity, words
from gguftools.explain.facts import Counts, Facts, combine
from gguftools.explain.rates import mean_round, rate, speedup
from gguftools.explain.signs import GAIN, Numbers
from gguftools.server.traps import Seen, find_traps

Verdict = Literal["faster", "no-gain", "slower", "unknown"]
LOSS = 0.97


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that is there. Where it is faster all the same it is `info`: what it still costs."""

    code: str
    severity: Severity
    message: str
    hint: str
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Explanation:
    """`speedup` is against plain decoding; with `at_most` the most that it can have been."""

    facts: Facts
    verdict: Verdict
    speedup: float | None
    at_most: bool
    causes: tuple[Finding, ...]

    @property
    def guilty(self) -> bool:
        """Whether something was found that makes it slower."""
        return any(c.severity != "info" for c in self.causes)


def explain(parts: Sequence[Facts]) -> Explanation:
    """The answer to what some files say together."""
    facts = combine(parts)
    measured, at_most = speedup(facts), False
    if measured is None and (r := mean_round(facts)) is not None:
        measured, at_most = r.speedup, True
    verdict = judge(measured, at_most=at_most)
    return Explanation(facts, verdict, measured, at_most, tuple(find(facts, verdict)))


def judge(speed: float | None, *, at_most: bool) -> Verdict:
    """The verdict on a speedup; a bound from above can only show a loss."""
    if speed is None or (at_most and speed >= 1.0):
        return "unknown"
    if speed >= GAIN:
        return "faster"
    return "slower" if speed < LOSS else "no-gain"


def find(facts: Facts, verdict: Verdict) -> list[Finding]:
    """The rows of the tables that apply, the worst first."""
    said = words(facts)
    found = [
        Finding(c.code, c.severity, c.message.format(**said, **n), c.hint.format(**said, **n), n)
        for c in CAUSES
        if (n := c.sign(facts)) is not None
    ]
    codes = {finding.code for finding in found}
    found += [
        Finding(trap.code, "warning", trap.text, trap.hint, {})
        for trap in find_traps(seen_by(facts))
        if SAME_AS.get(trap.code, trap.code) not in codes
    ]
    if verdict == "faster":
        found = [replace(finding, severity="info") for finding in found]
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))


def seen_by(f: Facts) -> Seen:
    """What the traps of llama-server look at; only counts of a server are taken."""
    d = f.drafted if f.engine == "llama-server" and f.drafted else Counts()
    return Seen(
        build=f.build or "",
        backend=f.backend or "",
        architecture=f.architecture or "",
        kind=f.drafter or "",
        n_max=f.draft_max,
        p_min=f.draft_p_min,
        cache_types_draft=(f.draft_cache,) if f.draft_cache else (),
        split_mode=f.split_mode or "",
        n_draft=d.n_draft or 0,
        n_accepted=d.n_accepted or 0,
        n_rounds=d.n_rounds or 0,
        n_rounds_drafted=d.n_rounds_drafted,
        accepted_by_position=d.accepted_by_position or (),
        tokens_per_second=rate(d),
        plain_per_second=rate(f.plain),
    )


# Traps that a row of CAUSES sees too, by other numbers.
SAME_AS = {"p-min-starves": "empty-drafts", "parallel": "slots"}
_ORDER: tuple[Severity, ...] = ("error", "warning", "info")
