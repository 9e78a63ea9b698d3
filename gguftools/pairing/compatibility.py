"""One target and one draft -> Pair: may they draft, why not, with which settings and commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.reader import Header
from gguftools.gguf.tensors import bytes_per_token, tensor_groups
from gguftools.gguf.tokenizer import read_vocab, vocab_problems
from gguftools.pairing.engines import OURS, SERVER, engine_notes, engines_of, rollback_notes
from gguftools.pairing.kinds import draft_kind, is_draft_only, is_head_only, why_no_text
from gguftools.pairing.launch import NGRAM, Settings, run_command, server_command, settings_for
from gguftools.pairing.memory import MemoryPlan
from gguftools.pairing.prediction import Prediction
from gguftools.pairing.quant import Precision, precision_of
from gguftools.pairing.sidecar import Finding, check_features, check_mtp, n_embedding_rows
from gguftools.pairing.vocab import VocabMatch, match_vocab

Verdict = Literal["works", "poor", "blocked"]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a pair takes, whether that is there, and the longest context that would fit if not."""

    plan: MemoryPlan
    fits: bool
    reason: str
    n_ctx_max: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """The verdict on a target and a draft.

    "works": llama.cpp drafts with it; "poor": it drafts, and a gain is not to be expected;
    "blocked": it fails, aborts or drafts nonsense, `rule` says by which check. `draft` is None for
    the target's own MTP head and for n-gram lookup. `n_bytes` is the size of the draft's file,
    `n_params` what its trunk holds. A command is None where that engine cannot run the pair.
    """

    target: str
    draft: str | None
    kind: str | None
    verdict: Verdict
    rule: str | None
    reason: str
    token_id: int | None = None
    target_text: str | None = None
    draft_text: str | None = None
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()  # which other file to get, by the prediction
    origin: str | None = None
    n_bytes: int | None = None
    n_params: int | None = None
    precision: Precision | None = None
    prediction: Prediction | None = None
    measured: bool = False  # whether the prediction rests on a measurement here
    memory: Memory | None = None
    settings: Settings | None = None
    commands: dict[str, str | None] = field(
        default_factory=lambda: {"llama-server": None, "gguftools": None}
    )


def check_pair(target: Header, draft: Header, *, build: int | None = None) -> Pair:
    """Whether this draft can draft for this target, in the order in which things fail.

    `build` names an older llama.cpp (11434 is b11434), whose rules are stricter.
    """
    kind = _kind(target, draft)
    pair = _described(Pair(target.path, draft.path, kind, "blocked", None, ""), draft)
    found = _check_model(target) or _check_load(target, "target") or _check_draft(draft, kind)
    if found is not None:
        return _blocked(pair, found)
    if kind == "draft-simple":
        return _check_simple(pair, target, draft, build)
    found = check_mtp(target, draft) if kind == "draft-mtp" else check_features(target, draft)
    if found is not None:
        return _blocked(pair, found)
    reason = f"the {_NAMES[kind or '']} was made for a model like this target"
    return _ready(pair, target, draft, reason, _head_notes(target, draft, kind))


def check_stranger(target: Header, draft: Header, *, build: int | None = None) -> Pair | None:
    """The verdict on a model of another vocabulary, None for all that needs a closer look.

    Most of the models that lie around are strangers to each other, and this costs a tenth of the
    other checks.
    """
    ours, theirs = read_vocab(target), read_vocab(draft)
    if draft_kind(draft) != "draft-simple" or ours is None or theirs is None:
        return None
    pair = Pair(target.path, draft.path, "draft-simple", "blocked", None, "")
    match = match_vocab(ours, theirs, build)
    return None if match.matches else _mismatched(_described(pair, draft), match)


def check_head(target: Header) -> Pair:
    """Whether the target drafts with the MTP head in its own file."""
    pair = Pair(target.path, None, "draft-mtp", "blocked", None, "")
    pair = replace(pair, precision=precision_of(target))
    report = mtp_report(target)
    found = _check_model(target)
    if found is None and report.state == "unsupported":
        found = Finding("architecture", report.reason)
    if found is None and not report.runnable:
        found = Finding("head", report.reason)
    found = found or _check_load(target, "target")
    return _blocked(pair, found) if found else _ready(pair, target, target, report.reason)


def check_ngram(target: Header) -> Pair:
    """Whether the target can draft by looking up what was written before: any model can."""
    pair = Pair(target.path, None, NGRAM, "blocked", None, "")
    found = _check_model(target) or _check_load(target, "target")
    reason = "needs no file: it repeats what already stands in the prompt or the reply"
    return _blocked(pair, found) if found else _ready(pair, target, target, reason)


def _described(pair: Pair, draft: Header) -> Pair:
    return replace(
        pair,
        n_bytes=sum(shard.n_bytes for shard in draft.shards),
        n_params=tensor_groups(draft).trunk.n_params,
        precision=precision_of(draft),
    )


_NAMES = {
    "draft-mtp": "MTP draft",
    "draft-eagle3": "EAGLE-3 draft",
    "draft-dflash": "DFlash draft",
    "draft-dspark": "DSpark draft",
}


def _kind(target: Header, draft: Header) -> str | None:
    """How the draft would draft for this target: another copy of the model lends its MTP block."""
    kind = draft_kind(draft)
    if kind != "draft-simple" or draft.architecture != target.architecture:
        return kind
    return "draft-mtp" if mtp_report(draft).runnable and check_mtp(target, draft) is None else kind


def _check_model(target: Header) -> Finding | None:
    """Whether the target is a model that writes text."""
    why = why_no_text(target)
    if why:
        return Finding("target", f"the target is no model to speed up: {why}")
    if is_draft_only(target):
        what = f"an MTP head without its trunk, of architecture {target.architecture!r}"
        if not is_head_only(target):
            what = f"a draft of architecture {target.architecture!r}"
        return Finding("target", f"the target is itself made for drafting: {what}")
    return None


def _check_draft(draft: Header, kind: str | None) -> Finding | None:
    if kind is None:
        return Finding("kind", f"it cannot draft: {why_no_text(draft)}")
    # The heads of other kinds are judged where they are compared with the target.
    return _check_load(draft, "draft") if kind == "draft-simple" else _check_vocab(draft, "draft")


def _check_load(header: Header, whose: str) -> Finding | None:
    """Whether llama.cpp loads the model, as far as a header tells."""
    report = mtp_report(header)
    if not report.loads:
        return Finding(whose, f"llama.cpp does not load the {whose}: {report.reason}")
    found = _check_vocab(header, whose)
    vocab, rows = read_vocab(header), n_embedding_rows(header)
    if found is None and vocab is not None and rows not in (None, vocab.n_tokens):
        found = Finding(whose, f"llama.cpp does not load the {whose}: it lists {vocab.n_tokens} "
                        f"tokens, and its embedding has {rows} rows")  # fmt: skip
    return found


def _check_vocab(header: Header, whose: str) -> Finding | None:
    if read_vocab(header) is None:
        return Finding(whose, f"the {whose} carries no token list (tokenizer.ggml.tokens)")
    for problem in vocab_problems(header):
        if problem.severity == "error":
            return Finding(whose, f"llama.cpp does not load the {whose}: {problem.message}")
    return None


def _check_simple(pair: Pair, target: Header, draft: Header, build: int | None) -> Pair:
    ours, theirs = read_vocab(target), read_vocab(draft)
    assert ours is not None
    assert theirs is not None
    match = match_vocab(ours, theirs, build)
    if not match.matches:
        return _mismatched(pair, match)
    notes = (*match.notes, *_engine_notes(target, draft))
    ready = _ready(pair, target, draft, match.reason, notes)
    n_target, n_draft = bytes_per_token(target), bytes_per_token(draft)
    if ready.verdict == "works" and n_draft >= n_target:
        reason = (
            "a drafted token costs as much as a written one: the draft reads "
            f"{n_draft} bytes for it, the target {n_target}"
        )
        return replace(ready, verdict="poor", rule="size", reason=reason)
    return ready


def _mismatched(pair: Pair, match: VocabMatch) -> Pair:
    assert match.rule is not None
    found = Finding(match.rule, match.reason, match.token_id, match.target_text, match.draft_text)
    return replace(_blocked(pair, found), notes=match.notes)


def _head_notes(target: Header, draft: Header, kind: str | None) -> Iterable[str]:
    if kind == "draft-mtp" and not is_draft_only(draft):
        yield "only the MTP block of the draft file drafts; llama-server loads all of it"
    if kind == "draft-mtp" and mtp_report(target).runnable:
        yield "the target holds an MTP head of its own, which needs no second file"


def _engine_notes(target: Header, draft: Header) -> Iterable[str]:
    n_target, n_draft = (read_hparams(h).n_ctx_train for h in (target, draft))
    if n_target and n_draft and n_draft < n_target:
        yield (f"the draft was trained on {n_draft} tokens of context, the target on {n_target}: "
               "beyond that it drafts worse")  # fmt: skip
    if draft.architecture != target.architecture:
        yield (f"architectures differ ({target.architecture!r} and {draft.architecture!r}), which "
               "llama.cpp does not mind; LM Studio and others hide such pairs")  # fmt: skip
    if mtp_report(draft).heads:
        yield ("the draft carries an MTP block of its own: without --spec-type draft-simple "
               "llama-server takes it for an MTP draft and aborts")  # fmt: skip


def _ready(
    pair: Pair, target: Header, head: Header, reason: str, notes: Iterable[str] = ()
) -> Pair:
    """A pair that passed every check on its files: settings, commands, and what to know."""
    assert pair.kind is not None
    settings = settings_for(pair.kind, head)
    archs = target.architecture, "" if pair.kind == NGRAM else head.architecture
    engines = engines_of(pair.kind, *archs)
    if not engines:
        why = " and ".join(engine_notes(pair.kind, *archs))
        return _blocked(pair, Finding("rollback", f"{why}"))
    return replace(
        pair,
        verdict="works",
        reason=reason,
        settings=settings,
        commands={
            "llama-server": server_command(pair.target, pair.draft, pair.kind, settings)
            if SERVER in engines
            else None,
            "gguftools": run_command(pair.target, pair.draft, pair.kind)
            if OURS in engines
            else None,
        },
        notes=(
            *notes,
            *rollback_notes(pair.kind, target.architecture),
            *engine_notes(pair.kind, *archs),
        ),
    )


def _blocked(pair: Pair, found: Finding) -> Pair:
    return replace(pair, rule=found.rule, reason=found.reason, token_id=found.token_id,
                   target_text=found.target_text, draft_text=found.draft_text)  # fmt: skip
