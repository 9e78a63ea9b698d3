"""The words for where an MTP head is lost: at conversion, and between a source and its GGUF."""

from __future__ import annotations

from typing import Literal

# What conversion makes. "plain": a model without a head, its key may stay. "separate": only --mtp
# writes the head.
Outcome = Literal[
    "none", "kept", "unusable", "separate", "dropped", "plain", "will-not-load", "fails", "unknown"
]
# Why; "none" and "kept" are no loss.
Way = Literal[
    "none", "kept", "by-design", "flag-needed", "shard-unlisted", "shard-missing",
    "weights-missing", "count-missing", "count-null", "count-wrong", "name-unknown",
    "head-incomplete", "no-graph", "class-unknown",
]  # fmt: skip

# What became of one tensor; "unknown" where llama.cpp has no name for it.
Arrived = Literal["yes", "no", "wrong-shape", "unknown"]
# Where the head of a GGUF was lost; "arrived" and "none" are no loss.
LostWay = Literal[
    "arrived", "none", "other-model", "by-design", "flag-needed", "shard-unlisted",
    "weights-missing", "count-missing", "not-converted", "pruned", "stripped", "partial",
    "wrong-shape",
]  # fmt: skip
