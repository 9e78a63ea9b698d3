"""Pairs as the JSON of `gguftools pair --json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gguftools.pairing.compatibility import Memory, Pair
from gguftools.pairing.prediction import Prediction
from gguftools.pairing.ranking import Question

if TYPE_CHECKING:
    from gguftools.cli.contract_pair import BitsJSON, CandidateJSON, PairJSON, PredictionJSON


def pair_json(
    target: str, pairs: Sequence[Pair], question: Question, notes: Sequence[str]
) -> PairJSON:
    """All candidates, the best first."""
    return {
        "schema": "gguftools.pair/1",
        "target": target,
        "task": question.task,
        "device": question.backend,
        "candidates": [_candidate(pair) for pair in pairs],
        "notes": list(notes),
    }


def _candidate(pair: Pair) -> CandidateJSON:
    settings = pair.settings
    return {
        "draft": pair.draft,
        "origin": pair.origin,
        "kind": pair.kind,
        "quant": pair.precision.type if pair.precision else None,
        "n_bytes": pair.n_bytes,
        "bits_per_weight": _bits(pair),
        "verdict": pair.verdict,
        "rule": pair.rule,
        "token_id": pair.token_id,
        "target_text": pair.target_text,
        "draft_text": pair.draft_text,
        "reason": pair.reason,
        "notes": [*pair.notes, *pair.advice],
        "prediction": _prediction(pair.prediction),
        "measured": pair.measured,
        "settings": None if settings is None else {
            "draft_max": settings.draft_max,
            "draft_min": settings.draft_min,
            "draft_p_min": settings.draft_p_min,
        },
        "memory_bytes": _parts(pair.memory),
        "memory": None if pair.memory is None else {
            "n_ctx": pair.memory.plan.n_ctx,
            "fits": pair.memory.fits,
            "reason": pair.memory.reason,
            "n_ctx_max": pair.memory.n_ctx_max,
        },
        "commands": {
            "llama-server": pair.commands["llama-server"],
            "gguftools": pair.commands["gguftools"],
        },
    }  # fmt: skip


def _parts(memory: Memory | None) -> dict[str, int] | None:
    """Bytes by part, and their sum."""
    if memory is None:
        return None
    return {**memory.plan.parts.named(), "total": memory.plan.total}


def _bits(pair: Pair) -> BitsJSON | None:
    found = pair.precision
    if found is None:
        return None
    return {
        "trunk": found.trunk,
        "head": found.head,
        "embedding": found.embedding,
        "output": found.output,
    }


def _prediction(found: Prediction | None) -> PredictionJSON:
    return {
        "acceptance": found.acceptance if found else None,
        "acceptance_by_position": list(found.acceptance_by_position) if found else [],
        "tokens_per_round": found.tokens_per_round if found else None,
        "speedup": found.speedup if found else None,
        "speedup_low": found.speedup_low if found else None,
        "speedup_high": found.speedup_high if found else None,
        "request_speedup": found.request_speedup if found else None,
        "break_even_acceptance": found.break_even_acceptance if found else None,
        "reasons": list(found.reasons) if found else [],
    }
