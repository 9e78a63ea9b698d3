"""Runs every way on every prompt, taking turns, and adds up. I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gguftools.bench.prompt_set import Prompt
from gguftools.bench.report import PLAIN, Arm, BenchReport, Run, arm_of, ratios
from gguftools.bench.surroundings import now, this_machine
from gguftools.bench.verdict import Verdict, judge
from gguftools.bench.way import Answer, Way

N_WARM_UP = 16  # tokens
Turn = tuple[Way, list[tuple[int, Prompt]]]  # a way with its rounds


@dataclass(frozen=True, slots=True)
class Measuring:
    """How: prompts in their order, runs of each way, tokens, runs of a way before the next's turn.

    `said(done, total)` hears of every finished reply.
    """

    prompts: Sequence[Prompt]
    n_runs: int
    n_predict: int
    said: Callable[[int, int], None]
    n_in_turn: int = 1
    comparable: bool = False


@dataclass(slots=True)
class Found:
    """The runs so far by way; `complete` once all were made."""

    runs: dict[str, list[Run]]
    cold: dict[str, Run] = field(default_factory=dict)
    complete: bool = False

    def plain(self) -> list[Run]:
        """What the others are compared with."""
        return self.runs.get(PLAIN, [])


def measure(ways: Sequence[Way], how: Measuring) -> Found:
    """All runs. Ctrl-C ends it with those that were finished."""
    found = Found({way.name: [] for way in ways})
    n_all = len(ways) * (how.n_runs + 1)
    n_done = 0
    try:
        for way, rounds in turns(ways, how):
            with way.open() as answer:
                if not found.runs[way.name]:
                    _warm_up(way, answer, found, how)
                    n_done += 1
                for i, prompt in rounds:
                    found.runs[way.name].append(answer(prompt, i, how.n_predict))
                    n_done += 1
                    how.said(n_done, n_all)
    except KeyboardInterrupt:
        return found
    found.complete = True
    return found


def turns(ways: Sequence[Way], how: Measuring) -> Iterator[Turn]:
    """Every way in turn with the next few prompts; who begins moves on from turn to turn."""
    n = how.n_in_turn
    for turn, start in enumerate(range(0, how.n_runs, n)):
        rounds = range(start, min(start + n, how.n_runs))
        asked = [(i + 1, how.prompts[i % len(how.prompts)]) for i in rounds]
        first = turn % len(ways)
        for way in (*ways[first:], *ways[:first]):
            yield way, asked


def _warm_up(way: Way, answer: Answer, found: Found, how: Measuring) -> None:
    """Memory is touched and code is paged in; what learns has its first reply here."""
    prompt = how.prompts[-1]
    if way.learns:
        answer(prompt, 0, 1)
        found.cold[way.name] = answer(prompt, 0, how.n_predict)
    else:
        answer(prompt, 0, min(N_WARM_UP, how.n_predict))


def add_up(ways: Sequence[Way], found: Found, *, comparable: bool) -> tuple[Arm, ...]:
    """The arms in the order of the ways."""
    return tuple(
        arm_of(way.name, way.n_draft, found.runs[way.name], found.plain(),
               cold=found.cold.get(way.name), comparable=comparable)
        for way in ways
    )  # fmt: skip


def verdict_of(found: Found) -> Verdict | None:
    """Whether any way is faster than plain."""
    return judge({
        name: ratios(runs, found.plain()) for name, runs in found.runs.items() if name != PLAIN
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured, with what."""

    target: str
    draft: str | None
    drafter: str
    temp: float | None
    prompts: str
    builds: Mapping[str, str]
    n_threads: int | None
    notes: tuple[str, ...] = ()


def report_of(ways: Sequence[Way], found: Found, how: Measuring, subject: Subject) -> BenchReport:
    """What was found, judged."""
    verdict = verdict_of(found)
    return BenchReport(
        date=now(),
        machine=this_machine(subject.n_threads),
        builds=dict(subject.builds),
        target=subject.target,
        draft=subject.draft,
        drafter=subject.drafter,
        prompts=subject.prompts,
        n_predict=how.n_predict,
        temp=subject.temp,
        complete=found.complete,
        arms=add_up(ways, found, comparable=how.comparable),
        verdict=verdict.outcome if verdict else None,
        best=verdict.best if verdict else PLAIN if found.plain() else None,
        reason=verdict.reason if verdict else "nothing was compared with plain decoding",
        notes=subject.notes,
    )
