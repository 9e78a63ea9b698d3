"""What is believed of each constant before any published speedup is looked at, and why. Data.

The spread is that of the logarithm for positive constants; 0 means that nothing published can
tell, so the constant is set and not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prior:
    """A value, its spread, and whether the constant is positive."""

    value: float
    spread: float
    positive: bool = True


def _set(value: float) -> Prior:
    return Prior(value, 0.0)


def _signed(value: float, spread: float) -> Prior:
    return Prior(value, spread, positive=False)


# Group -> where the values come from -> constants.
GROUPS: tuple[tuple[str, dict[str, Prior]], ...] = (
    (
        "Cost of each further row of a verify pass, in passes over one row, at 4.8 bits per weight "
        "and the usual balance of computing and reading. Before: batch-8 curves of a 0.6B model on "
        "CUDA (Q4_K_M 2.1 and BF16 1.4 passes) and Metal, a 3B model on a CPU (0.43 per row)",
        {
            "slope.cuda": Prior(0.12, 0.3),
            "slope.cuda-old": Prior(0.3, 0.3),
            "slope.hip": Prior(0.2, 0.3),
            "slope.vulkan": Prior(0.15, 0.3),
            "slope.metal": Prior(0.9, 0.3),
            "slope.metal-plain": Prior(0.4, 0.5),
            "slope.npu": Prior(0.3, 0.3),
            "slope.cpu": Prior(0.4, 0.3),
            "slope.bits": _signed(1.0, 0.4),
            "slope.balance": _signed(0.5, 0.25),
            "slope.experts": Prior(0.1, 0.5),
            "experts.apart": _signed(0.85, 0.05),
        },
    ),
    (
        "Rows beyond eight, relative to the slope, where matrix kernels take over; steps of "
        "llama.cpp issues 25356 (Vulkan, 9 rows) and 23549 (HIP, 3 rows, old builds); drafts of "
        "several requests verified apart (pull 3261 of Tanguille/cluster)",
        {
            "slope_many.cuda": _set(0.4),
            "slope_many.cuda-old": _set(0.5),
            "slope_many.hip": _set(0.4),
            "slope_many.vulkan": _set(0.5),
            "slope_many.metal": _set(0.2),
            "slope_many.npu": _set(0.5),
            "slope_many.cpu": _set(1.0),
            "cliff.vulkan": _set(1.5),
            "cliff.hip": _set(4.0),
            "streams.apart": _set(0.5),
        },
    ),
    (
        "Seconds that no byte explains: per pass, per device of a tensor split, per drafted token "
        "or block, per round; bytes of a draft and of keys and values count by a factor; copy and "
        "replay of a hybrid's state in plain decodes",
        {
            "seconds.step": Prior(0.0008, 0.6),
            "seconds.split": Prior(0.004, 0.6),
            "seconds.draft-mtp": Prior(0.0007, 0.5),
            "seconds.draft-simple": Prior(0.002, 0.5),
            "seconds.draft-eagle3": Prior(0.001, 0.5),
            "seconds.draft-dflash": Prior(0.003, 0.5),
            "seconds.draft-dspark": Prior(0.003, 0.5),
            "seconds.round": Prior(0.0005, 0.5),
            "replay": Prior(0.5, 0.5),
            "draft.bytes": Prior(1.2, 0.2),
            "context.bytes": Prior(2.0, 0.6),
            "context.slope": Prior(0.1, 0.6),
        },
    ),
    (
        "Log odds that the first drafted token is kept, by kind; what later positions lose; what "
        "task, temperature, size (per e-fold of the ratio beyond 30) and lost bits change",
        {
            "accept.draft-mtp": _signed(1.75, 0.3),
            "accept.draft-simple": _signed(0.9, 0.5),
            "accept.draft-eagle3": _signed(1.2, 0.5),
            "accept.draft-dflash": _signed(1.4, 0.5),
            "accept.draft-dspark": _signed(1.6, 0.4),
            "accept.ngram": _signed(0.5, 0.5),
            "depth.draft-mtp": _signed(0.6, 0.2),
            "depth.draft-simple": _signed(0.1, 0.1),
            "depth.draft-eagle3": _signed(0.5, 0.2),
            "depth.draft-dflash": _signed(0.5, 0.2),
            "depth.draft-dspark": _signed(0.5, 0.2),
            "depth.ngram": _set(0.0),
            "task.code": _signed(0.6, 0.3),
            "task.prose": _signed(-0.4, 0.3),
            "task.chat": _signed(0.0, 0.2),
            "task.json": _set(0.7),
            "task.rewrite": _signed(1.2, 0.4),
            "accept.temperature": _set(0.4),
            "accept.size": Prior(0.25, 0.1),
            "accept.bits": Prior(0.1, 0.5),
            "found.ngram": _set(0.4),
            "found.ngram.rewrite": _set(0.8),
        },
    ),
    (
        "A prompt token against a plain decode, and the share that a head adds to it: 972 and 812 "
        "against 48.2 tokens/s in one report (35B-A3B, Vulkan), 6 to 17% in others",
        {
            "prefill.cuda": _set(35.0),
            "prefill.cuda-old": _set(15.0),
            "prefill.hip": _set(25.0),
            "prefill.vulkan": _set(20.0),
            "prefill.metal": _set(12.0),
            "prefill.npu": _set(10.0),
            "prefill.cpu": _set(4.0),
            "prefill.tax": _set(0.12),
        },
    ),
)
PRIORS: dict[str, Prior] = {name: row for _, group in GROUPS for name, row in group.items()}
DEVICE = "What a device adds to the logarithm of its engine's slope, drawn to 0"
FAMILY = (
    "What a series of models adds to the log odds of its first drafted token (accept) and to the "
    "logarithm of what a round costs beyond a plain decode (round), drawn to 0"
)
SPREAD_DEVICE = 0.5
SPREAD_ACCEPT = 0.25
SPREAD_ROUND = 0.15
