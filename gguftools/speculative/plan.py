"""What a session will load, decided from headers alone: settings -> files, drafter, refusals.

Files and pair pass our own check before llama.cpp sees them, so what it would abort on is a
RefusedError instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from gguftools.errors import RefusedError, UsageError
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.acceptance import expected_level, sigmoid
from gguftools.pairing.compatibility import check_pair
from gguftools.pairing.fit import context_advice, largest_context
from gguftools.pairing.kv_cache import CACHE_TYPES
from gguftools.pairing.layers import is_hybrid
from gguftools.pairing.machine import Machine, ram_bytes
from gguftools.pairing.memory import MemoryPlan, plan_memory
from gguftools.pairing.prediction import VALUES
from gguftools.pairing.setup import setup_of
from gguftools.speculative.cache_types import cache_refusal
from gguftools.speculative.sampling import Chain

DrafterName = Literal["auto", "draft", "mtp", "ngram", "none"]
DRAFT_MAX_LIMIT = 64
DRAFT_MAX = 16
DRAFT_MAX_STATE = 8  # of a recurrent target: for every row there is a copy of its state
_KINDS = {"draft": "draft-simple", "mtp": "draft-mtp", "ngram": "ngram"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run and how; llama.cpp's names. n_ctx 0 = the model's own, at most 8192."""

    target: Path
    draft: Path | None = None
    drafter: DrafterName = "auto"
    ngram_first: bool = False  # look up before the drafter drafts
    draft_max: int | None = None  # None: DRAFT_MAX or DRAFT_MAX_STATE
    draft_min: int = 0
    draft_p_min: float = 0.0
    n_ctx: int = 0
    context_shift: bool = False
    n_keep: int = 0  # tokens at the start that a context shift never forgets
    n_threads: int | None = None
    n_gpu_layers: int = -1
    n_gpu_layers_draft: int = -1
    device: tuple[str, ...] = ()  # none named: all
    device_draft: tuple[str, ...] = ()  # none named: those of the target
    split_mode: str = "layer"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    cache_type_k_draft: str = "f16"
    cache_type_v_draft: str = "f16"
    chain: Chain = field(default_factory=Chain)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be loaded: decided from headers alone. `ngram_first`: lookup beside the drafter."""

    target: Header
    drafter: Literal["draft", "mtp", "ngram", "none"]
    draft: Header | None  # a draft model, or the sidecar of an MTP head
    notes: tuple[str, ...]
    ngram_first: bool = False
    draft_max: int = DRAFT_MAX

    def expected(self, drafter: str, temp: float) -> tuple[float, float]:
        """What to expect of a drafter until it is measured.

        The cost of a drafted token in plain decodes, by the bytes that each reads, and the chance
        that the first one is kept.
        """
        setup = replace(setup_of(self.target, self.draft, _KINDS[drafter]), temperature=temp)
        return setup.draft_bytes / setup.target_bytes, sigmoid(expected_level(setup, VALUES))


def plan(settings: Settings) -> Plan:
    """Check the files and choose the drafters; RefusedError says which rule fails and where."""
    _check_values(settings)
    chosen = _plan(settings)
    chosen = replace(chosen, draft_max=_draft_max(settings, chosen.target))
    _refuse_cache(settings, chosen)
    _refuse_large_context(settings, chosen)
    both = settings.ngram_first and chosen.drafter in ("draft", "mtp")
    return replace(chosen, ngram_first=both)


def _draft_max(settings: Settings, target: Header) -> int:
    if settings.draft_max is not None:
        return settings.draft_max
    usual = DRAFT_MAX_STATE if is_hybrid(target.architecture) else DRAFT_MAX
    return max(usual, settings.draft_min)


def _check_values(settings: Settings) -> None:
    s = settings
    most = DRAFT_MAX_LIMIT if s.draft_max is None else s.draft_max
    if not 0 <= s.draft_min <= most <= DRAFT_MAX_LIMIT:
        raise UsageError(
            f"draft-min {s.draft_min} and draft-max {most} must be ordered "
            f"and at most {DRAFT_MAX_LIMIT}",
            where="--draft-max",
        )
    for flag, name in (
        ("--cache-type-k", s.cache_type_k),
        ("--cache-type-v", s.cache_type_v),
        ("--cache-type-k-draft", s.cache_type_k_draft),
        ("--cache-type-v-draft", s.cache_type_v_draft),
    ):
        if name not in CACHE_TYPES:
            raise UsageError(
                f"no such cache type: {name!r}; there are {', '.join(CACHE_TYPES)}", where=flag
            )


def _plan(settings: Settings) -> Plan:
    target = open_gguf(settings.target)
    _refuse_broken(target)
    report = mtp_report(target)
    if not report.loads:
        raise RefusedError(
            report.reason, where=target.path, hint=f"gguftools inspect {target.path}"
        )
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


def _refuse_large_context(settings: Settings, chosen: Plan) -> None:
    """llama.cpp does not fail on a context far beyond the memory: it was not done after minutes."""
    s, ram = settings, ram_bytes()

    def planned(n_ctx: int) -> MemoryPlan:
        return plan_memory(
            chosen.target, chosen.draft, _KINDS.get(chosen.drafter),
            n_ctx=n_ctx, n_batch=512, n_draft_max=chosen.draft_max, swa_full=True,
            cache_type_k=s.cache_type_k, cache_type_v=s.cache_type_v,
            cache_type_k_draft=s.cache_type_k_draft, cache_type_v_draft=s.cache_type_v_draft,
        )  # fmt: skip

    if ram is None or not s.n_ctx:
        return
    parts = planned(s.n_ctx).parts
    need = parts.total - parts.weights - parts.draft_weights  # those stay in their files
    if need > ram:
        best = largest_context(planned, Machine(ram, ram), s.n_ctx)
        raise RefusedError(
            f"a context of {s.n_ctx} tokens needs {need / 1e9:.1f} GB beside the weights, "
            f"this machine has {ram / 1e9:.1f} GB",
            where=chosen.target.path,
            hint=context_advice(best),
        )


def _refuse_cache(settings: Settings, chosen: Plan) -> None:
    s = settings
    caches = [(chosen.target, s.cache_type_k, s.cache_type_v, "-ctk and -ctv")]
    if chosen.drafter in ("draft", "mtp"):
        model = chosen.draft or chosen.target
        caches.append((model, s.cache_type_k_draft, s.cache_type_v_draft, "-ctkd and -ctvd"))
    for header, type_k, type_v, flags in caches:
        reason = cache_refusal(header, type_k, type_v)
        if reason is not None:
            raise RefusedError(reason, where=header.path, hint=f"other types for {flags}, or f16")
