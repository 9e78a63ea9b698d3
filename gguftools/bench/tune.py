"""`tune` on the real engine: candidates, search, report, and the recipe with its evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gguftools.bench.candidates import candidates
from gguftools.bench.lab import KINDS, Lab
from gguftools.bench.prompt_set import Prompt
from gguftools.bench.report import PLAIN, Arm, arm_of, ratios
from gguftools.bench.search import Axes, Search
from gguftools.bench.surroundings import machine_line, now, our_builds, this_machine
from gguftools.bench.transfer import Transfer
from gguftools.bench.tuning import Choice, TuneReport
from gguftools.bench.verdict import judge
from gguftools.gguf.header import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.machine import usable_cores
from gguftools.recipes import Measured, PlacedFile, Recipe, RecipeSettings
from gguftools.speculative.llama import build_name
from gguftools.speculative.plan import Settings

TUNED = "tuned"
_DRAFT_MAX = {"draft": 16, "ngram": 16, "mtp": 8}  # no published MTP curve gains beyond
_P_MIN = (0.3, 0.6)
_N_PREDICT, _N_PROMPTS = 512, 2  # of a recipe


@dataclass(frozen=True, slots=True)
class TuneAsked:
    """What is tuned: drafts that were named, the seconds it may take, and what stays as it is."""

    drafts: Sequence[Path]
    seconds: float
    prompts: Sequence[Prompt]
    prompts_name: str
    tasks: Sequence[str] = ()
    raw: bool = False
    keep_cache: bool = False  # the cache types were given


def tune_pair(
    base: Settings, asked: TuneAsked, said: Callable[[int, int], None] = lambda done, total: None
) -> TuneReport:
    """The best choice within the time, loading included. Ctrl-C ends it with what is known."""
    target = open_gguf(base.target)
    choices, notes = candidates(target, asked.drafts, base.drafter)
    longest = max(_DRAFT_MAX[choice.drafter] for choice in choices)
    lab = Lab(base, asked.prompts, raw=asked.raw, draft_max=longest)
    search = Search(lab, asked.seconds, _axes(base, asked, longest), said, notes=notes)
    started = lab.clock()
    complete = True
    try:
        search.run(choices)
    except KeyboardInterrupt:
        complete = False
    finally:
        lab.close()
    return _report(base, asked, search, lab, complete, lab.clock() - started)


def _axes(base: Settings, asked: TuneAsked, draft_max: int) -> Axes:
    cores = usable_cores()
    fewer = sorted({cores // 2, 3 * cores // 4} - {0, cores}, reverse=True)
    return Axes(
        draft_max=draft_max,
        p_min=_P_MIN,
        threads=tuple(fewer) if base.n_threads is None else (),
        cache=() if asked.keep_cache else ("q8_0",),
    )


def _report(
    base: Settings, asked: TuneAsked, search: Search, lab: Lab, complete: bool, spent: float
) -> TuneReport:
    verdict = judge({TUNED: ratios(search.tuned, search.plain)})
    greedy = base.chain.greedy
    plain = arm_of(PLAIN, 0, search.plain, search.plain)
    tuned = arm_of(TUNED, None, search.tuned, search.plain, comparable=greedy)
    return TuneReport(
        date=now(),
        machine=this_machine((search.choice and search.choice.n_threads) or lab.n_threads),
        builds={**our_builds(), "llama-cpp-python": build_name().rpartition(" ")[2]},
        target=str(base.target),
        prompts=asked.prompts_name,
        temp=base.chain.temp,
        seconds=asked.seconds,
        seconds_spent=spent,
        complete=complete,
        choice=search.choice,
        decisions=tuple(search.decisions),
        arms=(plain, tuned) if search.tuned else (),
        verdict=verdict.outcome if verdict else None,
        reason=verdict.reason if verdict else "nothing was compared with plain decoding",
        notes=tuple(search.notes),
    )


def tuned_recipe(name: str, report: TuneReport, asked: TuneAsked) -> Recipe:
    """The recipe of a gain, with the evidence for it."""
    choice = report.choice
    assert choice is not None
    return replace(
        _recipe(name, choice, open_gguf(Path(report.target)), report, asked),
        about=report.reason,
        measured=_measured(report),
        notes=tuple(f"{d.setting} {d.value}: {d.reason}" for d in report.decisions),
        tested_with={**report.builds, "machine": machine_line(report.machine)},
    )


def transferred_recipe(
    name: str, report: TuneReport, offered: Transfer, asked: TuneAsked
) -> Recipe:
    """The settings that carry over, for the larger model. Nothing of it is measured."""
    choice = report.choice
    assert choice is not None
    carried = Choice(choice.drafter, choice.draft, offered.draft_max, offered.draft_min,
                     offered.draft_p_min)  # fmt: skip
    return replace(
        _recipe(name, carried, offered.target, report, asked),
        about=f"settings tuned on {Path(report.target).name}, not measured on this model",
        notes=offered.caveats,
    )


def _recipe(
    name: str, choice: Choice, target: Header, report: TuneReport, asked: TuneAsked
) -> Recipe:
    draft = None if choice.draft is None else open_gguf(Path(choice.draft))
    return Recipe(
        name=name,
        about="",
        kind=KINDS[choice.drafter],
        target=_placed(target),
        draft=None if draft is None else _placed(draft),
        settings=RecipeSettings(
            choice.draft_max, choice.draft_min, choice.draft_p_min, report.temp, _N_PREDICT,
            n_threads=choice.n_threads, cache_type_k_draft=choice.cache_type_draft,
            cache_type_v_draft=choice.cache_type_draft,
        ),
        prompts=tuple(prompt.text for prompt in asked.prompts[:_N_PROMPTS]),
        tasks=tuple(asked.tasks),
        tested_with={},
    )  # fmt: skip


def _placed(header: Header) -> PlacedFile:
    place = str(Path(header.path).absolute())
    return PlacedFile(place, sum(shard.n_bytes for shard in header.shards))


def _measured(report: TuneReport) -> Measured:
    plain, tuned = (_arm(report, name) for name in (PLAIN, TUNED))
    assert plain.tokens_per_second is not None
    assert tuned.tokens_per_second is not None
    return Measured(
        machine=machine_line(report.machine),
        date=report.date[:10],
        builds=report.builds,
        tokens_per_second=round(tuned.tokens_per_second.median, 2),
        plain_tokens_per_second=round(plain.tokens_per_second.median, 2),
        low=round(tuned.tokens_per_second.low, 2),
        high=round(tuned.tokens_per_second.high, 2),
        acceptance=None if tuned.acceptance is None else round(tuned.acceptance, 4),
    )


def _arm(report: TuneReport, name: str) -> Arm:
    return next(arm for arm in report.arms if arm.name == name)
