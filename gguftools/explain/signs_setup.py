"""Signs of how a pair was set up and started: files, memory, devices, what a log says. Pure."""

from __future__ import annotations

from gguftools.explain.facts import Facts
from gguftools.explain.signs import GAIN, NGRAM, Numbers, slower


def partial_offload(f: Facts) -> Numbers | None:
    n, whole = f.n_layers_gpu, f.n_layers_all
    return {"n": n, "all": whole} if n is not None and whole and 0 < n < whole else None


def draft_on_cpu(f: Facts) -> Numbers | None:
    """The target has layers on a GPU, its draft has not all of its own there."""
    n, whole = f.n_draft_layers_gpu, f.n_draft_layers_all
    if not f.n_layers_gpu or n is None or not whole or n >= whole:
        return None
    return {"n": n, "all": whole}


def cpu_experts(f: Facts) -> Numbers | None:
    return {"n": f.n_cpu_experts} if f.n_cpu_experts else None


def several_slots(f: Facts) -> Numbers | None:
    return {"n": f.n_slots} if f.n_slots and f.n_slots > 1 and slower(f) is not False else None


def head_lost(f: Facts) -> Numbers | None:
    if f.mtp_state in ("none", "trunk-only", "broken", "unsupported"):
        return {"reason": f.mtp_reason or f.mtp_state}
    if f.failure is not None and ("MTP" in f.failure or "nextn" in f.failure):
        return {"reason": f.failure}
    return None


def head_idle(f: Facts) -> Numbers | None:
    return {"n": f.n_head_unused} if f.n_head_unused and f.drafted is None else None


def vocabularies_differ(f: Facts) -> Numbers | None:
    return {"reason": f.off} if f.off is not None and "tokenizer check" in f.off else None


def draft_refused(f: Facts) -> Numbers | None:
    return {"reason": f.off} if f.off is not None and not vocabularies_differ(f) else None


def failed_start(f: Facts) -> Numbers | None:
    if f.failure is None or head_lost(f):
        return None
    check = f"gguftools pair {f.target or 'TARGET'} {f.draft or ''}"
    return {"reason": f.failure, "next": f.failure_hint or check.strip()}


def never_drafted(f: Facts) -> Numbers | None:
    """A llama-server that wrote tokens and drafted none, and why is not known."""
    if f.engine != "llama-server" or f.drafted is not None or f.plain is None:
        return None
    if not f.plain.n_tokens or f.drafter in NGRAM or f.off or f.n_head_unused:
        return None
    return {"n_tokens": f.plain.n_tokens}


def stale_draft_cache(f: Facts) -> Numbers | None:
    return {"reason": f.stale} if f.stale is not None else None


def blocked_pair(f: Facts) -> Numbers | None:
    if f.pair_rule is None:
        return None
    return {"rule": f.pair_rule, "reason": f.pair_reason or f.pair_rule}


def no_memory(f: Facts) -> Numbers | None:
    if f.memory_reason is None:
        return None
    n = f.n_ctx_max
    return {"reason": f.memory_reason, "n_ctx": n or 0}


def predicted_loss(f: Facts) -> Numbers | None:
    s, a, need = f.predicted_speedup, f.predicted_acceptance, f.predicted_break_even
    if s is None or s >= GAIN or f.pair_rule is not None:
        return None
    known = a is not None and need is not None
    why = f"{a:.0%} accepted of {need:.0%} needed" if known else "by its costs"
    return {"speedup": s, "why": why}
