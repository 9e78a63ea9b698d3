"""What a session will load, decided from headers alone: settings -> files, drafter, refusals.

Files and pair pass our own check before llama.cpp sees them, so what it would abort on is a
RefusedError instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gguftools.errors import RefusedError, UsageError
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.machine import ram_bytes
from gguftools.pairing.memory import kv_bytes_per_token
from gguftools.pairing.ranking import check_pair
from gguftools.speculative.sampling import Chain

DrafterName = Literal["auto", "draft", "mtp", "ngram", "none"]
DRAFT_MAX_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run and how; llama.cpp's names. n_ctx 0 = the model's own, at most 8192."""

    target: Path
    draft: Path | None = None
    drafter: DrafterName = "auto"
    draft_max: int = 8
    draft_min: int = 0
    draft_p_min: float = 0.0
    n_ctx: int = 0
    n_threads: int | None = None
    n_gpu_layers: int = -1
    n_gpu_layers_draft: int = -1
    chain: Chain = field(default_factory=Chain)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be loaded: decided from headers alone."""

    target: Header
    drafter: Literal["draft", "mtp", "ngram", "none"]
    draft: Header | None  # a draft model, or the sidecar of an MTP head
    notes: tuple[str, ...]


def plan(settings: Settings) -> Plan:
    """Check the files and choose the drafter; RefusedError says which rule fails and where."""
    if not 0 <= settings.draft_min <= settings.draft_max <= DRAFT_MAX_LIMIT:
        raise UsageError(
            f"draft-min {settings.draft_min} and draft-max {settings.draft_max} must be ordered "
            f"and at most {DRAFT_MAX_LIMIT}",
            where="--draft-max",
        )
    target = open_gguf(settings.target)
    _refuse_broken(target)
    report = mtp_report(target)
    if not report.loads:
        raise RefusedError(
            report.reason, where=target.path, hint=f"gguftools inspect {target.path}"
        )
    _refuse_large_context(target, settings.n_ctx)
    draft = open_gguf(settings.draft) if settings.draft is not None else None
    if draft is not None:
        _refuse_broken(draft)
    if report.state == "head-only":
        raise RefusedError(
            "it holds an MTP head without its trunk, so it cannot be the target",
            where=target.path,
            hint="give it as --draft to the trunk's file",
        )
    match settings.drafter:
        case "none" | "ngram":
            return Plan(target, settings.drafter, None, ())
        case "mtp":
            return _plan_mtp(target, draft)
        case "draft":
            if draft is None:
                raise UsageError(
                    "no draft model given",
                    where="--drafter draft",
                    hint="name one with --draft FILE",
                )
            return _plan_draft(target, draft)
        case "auto":
            return _plan_auto(target, draft)


def _plan_auto(target: Header, draft: Header | None) -> Plan:
    """An MTP head if it runs, else the given draft, else n-gram lookup."""
    report = mtp_report(target)
    if report.runnable:
        unused = "the target's own MTP head drafts; --drafter draft takes the given file instead"
        return Plan(target, "mtp", None, (unused,) if draft is not None else ())
    if draft is not None:
        return _plan_draft(target, draft)
    notes: tuple[str, ...] = ()
    if report.state not in ("none", "trunk-only"):
        notes = (f"the MTP head is not used: {report.reason}",)
    return Plan(target, "ngram", None, notes)


def _plan_mtp(target: Header, sidecar: Header | None) -> Plan:
    if sidecar is not None:
        return _plan_draft(target, sidecar, kind="draft-mtp")
    report = mtp_report(target)
    if not report.runnable:
        raise RefusedError(
            f"no MTP head to draft with: {report.reason}",
            where=target.path,
            hint=f"gguftools inspect {target.path}",
        )
    return Plan(target, "mtp", None, ())


def _plan_draft(target: Header, draft: Header, kind: str | None = None) -> Plan:
    pair = check_pair(target, draft)
    if pair.verdict == "blocked":
        raise RefusedError(
            pair.reason, where=draft.path, hint=f"gguftools pair {target.path} {draft.path}"
        )
    if kind is not None and pair.kind != kind:
        raise RefusedError(
            f"it is a {pair.kind} file, not an MTP head",
            where=draft.path,
            hint="leave --mtp away to draft with it",
        )
    if pair.commands["gguftools"] is None:
        raise RefusedError(
            f"{pair.kind} runs in llama-server only",
            where=draft.path,
            hint=pair.commands["llama-server"] or "",
        )
    drafter: Literal["draft", "mtp"] = "mtp" if pair.kind == "draft-mtp" else "draft"
    return Plan(target, drafter, draft, (pair.reason,) if pair.verdict == "poor" else ())


def _refuse_broken(header: Header) -> None:
    errors = [p for p in check_integrity(header) if p.severity == "error"]
    if errors:
        raise RefusedError(errors[0].message, where=header.path, hint=errors[0].hint)


def _refuse_large_context(header: Header, n_ctx: int) -> None:
    """llama.cpp does not fail on a context far beyond the memory: it was not done after minutes."""
    need, ram = n_ctx * kv_bytes_per_token(header), ram_bytes()
    if ram is not None and need > ram:
        raise RefusedError(
            f"a context of {n_ctx} tokens needs {need / 1e9:.1f} GB for keys and values, "
            f"this machine has {ram / 1e9:.1f} GB",
            where=header.path,
            hint=f"-c {ram // 2 // max(kv_bytes_per_token(header), 1)} would fit",
        )
