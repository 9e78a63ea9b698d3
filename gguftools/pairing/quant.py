"""Precision of target and draft: what it costs, what it brings, which file would be better. Pure.

The rule of thumb is that a draft keeps more precision than its target (a Q4 target wants a Q8_0
draft): a small file gains little from fewer bits. Where the cost model disagrees, cost decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gguftools.gguf.reader import Header
from gguftools.gguf.tensors import tensor_groups
from gguftools.pairing.launch import NGRAM
from gguftools.pairing.prediction import Prediction, predict
from gguftools.pairing.setup import Setup

Q8_0_BITS = 8.5
KEEP_HEAD = '--tensor-type "nextn=q8_0"'  # of llama-quantize, b11434
_ABOVE_Q8_0, _BELOW_Q8_0 = 10.0, 8.0
_SAME = 1.01  # a change of speed below this is none


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits per weight by group of tensors; None where a file has none of it.

    `type` is the one that holds most of the bytes of what drafts or writes.
    """

    type: str | None
    trunk: float | None
    head: float | None
    embedding: float | None
    output: float | None

    @property
    def drafting(self) -> float | None:
        """Of the part that drafts: the trunk, or a head alone."""
        return self.trunk if self.trunk is not None else self.head


def precision_of(header: Header) -> Precision:
    """From the tensor table, whatever the file is called."""
    groups = tensor_groups(header)
    main = groups.trunk if groups.trunk.n_tensors else groups.head
    return Precision(
        main.dominant_type,
        groups.trunk.bits_per_weight,
        groups.head.bits_per_weight,
        groups.embedding.bits_per_weight,
        groups.output.bits_per_weight,
    )


def precision_notes(setup: Setup, found: Prediction) -> Iterator[str]:
    """What the draft would bring as Q8_0, where it is not, and where that is no gain."""
    bits = setup.draft_bits
    if bits is None or setup.kind == NGRAM or _BELOW_Q8_0 <= bits <= _ABOVE_Q8_0:
        return
    other = predict(as_q8_0(setup)).speedup
    change = f"about {other:.2f}x instead of {found.speedup:.2f}x"
    if other > found.speedup * _SAME:
        yield f"the same draft as Q8_0 would bring {change}{_how(setup)}"
    elif bits < min(_BELOW_Q8_0, setup.target_bits - 0.25):
        yield (
            f"at {bits:.1f} bits per weight the draft is less precise than its target "
            f"({setup.target_bits:.1f}), against the rule of thumb; as Q8_0 it would bring {change}"
            f": it would read {Q8_0_BITS / bits:.1f} times the bytes and be accepted hardly more"
        )


def _how(setup: Setup) -> str:
    if setup.kind != "draft-mtp":
        return ""
    return f"; to keep the head in Q8_0, quantize with {KEEP_HEAD}"


def as_q8_0(setup: Setup) -> Setup:
    """The same with the draft in Q8_0."""
    bits = setup.draft_bits or Q8_0_BITS
    return replace(setup, draft_bits=Q8_0_BITS, draft_bytes=setup.draft_bytes * Q8_0_BITS / bits)
