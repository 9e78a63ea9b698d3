"""`gguftools pair TARGET [DRAFT...]`: which draft to use, what it brings, why not the others."""

from __future__ import annotations

from pathlib import Path

import click

from gguftools.cli import render
from gguftools.cli.fetch import fetch
from gguftools.cli.options import PLACE, color_option, json_option
from gguftools.cli.pair_json import pair_json
from gguftools.cli.pair_options import N_MEASURED, PairOptions, pair_options
from gguftools.cli.pair_text import name_of, print_pairs
from gguftools.cli.progress import progress
from gguftools.errors import GGUFToolsError, RefusedError
from gguftools.gguf.place import is_remote
from gguftools.gguf.reader import Header
from gguftools.pairing.candidates import NAMED, UNREADABLE, Draft, judge
from gguftools.pairing.compatibility import Pair
from gguftools.pairing.ranking import Question, measured, ranked, setup_for
from gguftools.recipes import predicted_recipe, write_recipe

SECONDS_MEASURED = 30


@click.command(short_help="Which draft to use, and what will it bring?")
@click.argument("target", type=PLACE)
@click.argument("drafts", metavar="[DRAFT]...", type=PLACE, nargs=-1)
@pair_options
@json_option
@color_option
def pair(target: str, drafts: tuple[str, ...], asked: PairOptions, as_json: bool) -> int:
    """Say which DRAFT speeds up TARGET, by how much, with which settings, and why not the others.

    A DRAFT is a smaller model with the same vocabulary, or a head made for TARGET: MTP, EAGLE-3,
    DFlash or DSpark. Without one, drafts are looked for beside TARGET and where Hugging Face,
    llama.cpp, LM Studio and Ollama keep models. The MTP head inside TARGET and n-gram lookup are
    always among the candidates. TARGET and DRAFT may be files, URLs or user/repo[:QUANT] on the
    Hub; only headers are read. Speed is predicted, or with --measure
    measured.

    Exit code 0 if a draft pays (one of those named, if any is), 1 if none does.

    \b
    Examples:
      gguftools pair model.gguf
      gguftools pair model.gguf small-Q8_0.gguf small-Q4_0.gguf --task code
      gguftools pair model.gguf small.gguf --measure
      gguftools pair model.gguf --in ~/models --device cuda -c 16384
      gguftools pair bartowski/Qwen2.5-32B-Instruct-GGUF:Q4_K_M --hub
      gguftools pair model.gguf small.gguf --json | jq -r '.candidates[0].commands.gguftools'
    """
    header, question = fetch(target), asked.question()
    found, notes = _drafts(header, target, drafts, asked)
    with progress("reading headers") as opened:
        pairs = judge(header, found, question, opened=opened)
    if asked.measure:
        pairs = _measured(pairs, header, question)
    if as_json:
        render.json_object(pair_json(target, pairs, question, notes))
    else:
        print_pairs(header, pairs, notes)
    if asked.output is not None:
        _write(asked.output, header, pairs[0], asked)
    named = [p for p in pairs if p.origin == NAMED] if drafts else pairs
    if any(p.verdict == "works" for p in named):
        return 0
    return 3 if all(p.rule == UNREADABLE for p in named) else 1


def _measured(pairs: list[Pair], target: Header, question: Question) -> list[Pair]:
    """The pairs with the first few of them measured, in their new order."""
    from gguftools.bench.prompt_set import task_texts
    from gguftools.speculative.measure import measure_pair

    done: list[Pair] = []
    for pair in pairs:
        if pair.kind is None or not pair.commands["gguftools"]:
            continue
        if len(done) == N_MEASURED:
            break
        draft = None if pair.draft is None else fetch(pair.draft)
        setup = setup_for(pair.kind, target, draft, question)
        render.note(f"measuring {name_of(pair)}, about {SECONDS_MEASURED} seconds")
        try:
            found = measure_pair(
                pair, setup, task_texts(setup.task or "chat"), seconds=SECONDS_MEASURED,
                n_ctx=question.launch.n_ctx,
            )  # fmt: skip
        except GGUFToolsError as err:
            render.note(f"{name_of(pair)} is not measured: {err}")
        else:
            done.append(measured(pair, found, question.launch))
    names = {(pair.draft, pair.kind) for pair in done}
    return ranked([*done, *(p for p in pairs if (p.draft, p.kind) not in names)])


def _write(path: Path, target: Header, best: Pair, asked: PairOptions) -> None:
    if best.verdict != "works":
        raise RefusedError("no recipe is written: no draft pays", where=str(path))
    n_bytes = sum(shard.n_bytes for shard in target.shards)
    write_recipe(predicted_recipe(path.stem, best, n_bytes, task=asked.task, temp=asked.temp), path)


def _drafts(
    target: Header, place: str, named: tuple[str, ...], asked: PairOptions
) -> tuple[list[Draft], list[str]]:
    """What was named; else what lies beside the target and in known places."""
    found = [Draft(name) for name in named]
    notes: list[str] = []
    if asked.folders or not named:
        from gguftools.pairing.discover import discover

        here = None if is_remote(place) or named else Path(place)
        discovery = discover(here, folders=asked.folders, stores=not named)
        found += [Draft(str(c.path), c.origin) for c in discovery.candidates]
        notes += discovery.notes
    if asked.hub:
        from gguftools.pairing.hub_search import search_hub

        try:
            found += [Draft(each, "the Hub") for each in search_hub(target)]
        except GGUFToolsError as err:
            notes.append(f"the Hub was not searched: {err}")
    return found, notes
