"""Precision of target and draft, side by side. A rule of thumb with its sources, no prediction."""

from __future__ import annotations

from gguftools.gguf.reader import Header
from gguftools.gguf.tensors import tensor_groups

HIGH_BITS = 8.0  # Q8_0 has 8.5; above it more precision brings no more agreement worth its bytes
LOW_TARGET_BITS = 6.0
F16_BITS = 15.0


def quant_notes(target: Header, draft: Header) -> tuple[str, ...]:
    """What the bits per weight of the two files suggest; empty where they suggest nothing."""
    ours, theirs = (tensor_groups(h).bits_per_weight for h in (target, draft))
    if ours is None or theirs is None:
        return ()
    if theirs < HIGH_BITS and theirs < ours - 0.25:
        return (
            f"the draft has {theirs:.1f} bits per weight, fewer than the target's {ours:.1f}: as a "
            "rule of thumb a draft keeps more precision than its target (a Q4 target wants a Q8_0 "
            "draft), since a small file gains little from fewer bits",
        )
    if theirs >= F16_BITS and ours < LOW_TARGET_BITS:
        return (
            f"the draft has {theirs:.1f} bits per weight for a target of {ours:.1f}: f16 drafts of "
            "4- and 5-bit targets were slower than no draft in llama.cpp issue 10664; a Q8_0 draft "
            "reads half the bytes",
        )
    return ()
