"""`gguftools pair TARGET DRAFT...`: which drafts llama.cpp takes, and how to start them."""

from __future__ import annotations

from pathlib import Path

import click

from gguftools.cli import render
from gguftools.cli.contract import (
    CandidateJSON,
    CommandsJSON,
    PairJSON,
    PredictionJSON,
    SettingsJSON,
)
from gguftools.cli.options import FILE, color_option, json_option
from gguftools.errors import GGUFToolsError, UsageError
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.launch import Settings
from gguftools.pairing.ranking import Pair, check_head, check_pair

UNREADABLE = "file"  # the rule of a draft whose header cannot be read


@click.command(short_help="Will llama.cpp draft with these files?")
@click.argument("target", type=FILE)
@click.argument("drafts", metavar="DRAFT...", type=FILE, nargs=-1)
@click.option("--mtp", is_flag=True, help="Check the target's own MTP head too.")
@json_option
@color_option
def pair(target: Path, drafts: tuple[Path, ...], mtp: bool, as_json: bool) -> int:
    """Say for each DRAFT whether llama.cpp will use it to draft for TARGET, and how to start it.

    A DRAFT is a smaller model with the same vocabulary, or a head made for TARGET: MTP, EAGLE-3,
    DFlash or DSpark. Exit code 0 if one of them works, 1 if none does.

    \b
    Examples:
      gguftools pair model.gguf small.gguf
      gguftools pair model.gguf drafts/*.gguf
      gguftools pair model.gguf --mtp           the MTP head inside model.gguf
      gguftools pair model.gguf small.gguf --json | jq -r '.candidates[0].commands."llama-server"'
    """
    if not drafts and not mtp:
        raise UsageError("name a DRAFT, or check the target's own head with --mtp")
    pairs = _pairs(open_gguf(target), drafts, mtp=mtp)
    if as_json:
        candidates = [_json(p) for p in pairs]
        render.json_object(
            PairJSON(schema="gguftools.pair/1", target=str(target), candidates=candidates)
        )
    else:
        render.line(f"target   {target}")
        for p in pairs:
            _print(p)
    if any(p.verdict != "blocked" for p in pairs):
        return 0
    return 3 if all(p.rule == UNREADABLE for p in pairs) else 1


def _pairs(target: Header, drafts: tuple[Path, ...], *, mtp: bool) -> list[Pair]:
    """The target with its own head, if asked, and with each draft."""
    paths: list[Path | None] = [None] if mtp else []
    why = _broken(target)
    if why:
        reason = f"llama.cpp does not load the target: {why}"
        return [_blocked(target, path, "target", reason) for path in (*paths, *drafts)]
    return [
        check_head(target) if path is None else _candidate(target, path)
        for path in (*paths, *drafts)
    ]


def _candidate(target: Header, path: Path) -> Pair:
    """One draft; a file that cannot be read is blocked and does not stop the others."""
    try:
        draft = open_gguf(path)
    except GGUFToolsError as err:
        return _blocked(target, path, UNREADABLE, str(err).removeprefix(f"{path}: "))
    if why := _broken(draft):
        return _blocked(target, path, "draft", f"llama.cpp does not load the draft: {why}")
    return check_pair(target, draft)


def _blocked(target: Header, draft: Path | None, rule: str, reason: str) -> Pair:
    path = str(draft) if draft is not None else None
    kind = "draft-mtp" if draft is None else None
    return Pair(target.path, path, kind, "blocked", rule, reason)


def _broken(header: Header) -> str:
    """What is wrong with the file itself, empty for an intact one."""
    problems = check_integrity(header)
    return next((p.message for p in problems if p.severity == "error"), "")


def _json(pair: Pair) -> CandidateJSON:
    expected = pair.prediction
    return CandidateJSON(
        draft=pair.draft,
        kind=pair.kind,
        verdict=pair.verdict,
        rule=pair.rule,
        token_id=pair.token_id,
        target_text=pair.target_text,
        draft_text=pair.draft_text,
        reason=pair.reason,
        notes=list(pair.notes),
        prediction=PredictionJSON(
            acceptance=expected.acceptance,
            tokens_per_round=expected.tokens_per_round,
            speedup=expected.speedup,
            speedup_low=expected.speedup_low,
            speedup_high=expected.speedup_high,
        ),
        settings=_settings(pair.settings) if pair.settings is not None else None,
        memory_bytes=None,
        commands=CommandsJSON(
            {
                "llama-server": pair.commands["llama-server"],
                "gguftools": pair.commands["gguftools"],
            }
        ),
    )


def _settings(settings: Settings) -> SettingsJSON:
    return SettingsJSON(
        draft_max=settings.draft_max,
        draft_min=settings.draft_min,
        draft_p_min=settings.draft_p_min,
    )


def _print(pair: Pair) -> None:
    render.line()
    name = pair.draft or "the target's own MTP head"
    kind = f"  ({pair.kind})" if pair.kind else ""
    render.line(f"{pair.verdict:<9}{name}{kind}", style=render.STYLES[pair.verdict])
    rule = f"{pair.rule}: " if pair.rule else ""
    render.line(f"         {rule}{pair.reason}")
    for note in pair.notes:
        render.line(f"         note: {note}")
    for engine in ("llama-server", "gguftools"):
        if command := pair.commands[engine]:
            render.line(f"         $ {command}")
