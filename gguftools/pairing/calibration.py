"""The constants of the prediction, fitted by scripts/calibrate.py, which writes this. Data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """A value, what was believed before the fit, and how many published figures bear on it.

    With 0 figures it was set: no published figure tells.
    """

    value: float
    prior: float
    n_rows: int


CONSTANTS: dict[str, Constant] = {
    # Cost of each further row of a verify pass, in passes over one row, at 4.8 bits per weight and
    # the usual balance of computing and reading. Before: batch-8 curves of a 0.6B model on CUDA
    # (Q4_K_M 2.1 and BF16 1.4 passes) and Metal, a 3B model on a CPU (0.43 per row).
    "slope.cuda": Constant(0.1395, 0.12, 92),
    "slope.cuda-old": Constant(0.2828, 0.3, 14),
    "slope.hip": Constant(0.2178, 0.2, 15),
    "slope.vulkan": Constant(0.2009, 0.15, 17),
    "slope.metal": Constant(0.7739, 0.9, 7),
    "slope.metal-plain": Constant(0.2648, 0.4, 7),
    "slope.npu": Constant(0.271, 0.3, 1),
    "slope.cpu": Constant(0.3504, 0.4, 4),
    "slope.bits": Constant(1.133, 1.0, 148),
    "slope.balance": Constant(0.6168, 0.5, 148),
    "slope.experts": Constant(0.1263, 0.1, 28),
    "experts.apart": Constant(0.8476, 0.85, 28),
    # Rows beyond eight, relative to the slope, where matrix kernels take over; steps of llama.cpp
    # issues 25356 (Vulkan, 9 rows) and 23549 (HIP, 3 rows, old builds); drafts of several requests
    # verified apart (pull 3261 of Tanguille/cluster).
    "slope_many.cuda": Constant(0.4, 0.4, 0),
    "slope_many.cuda-old": Constant(0.5, 0.5, 0),
    "slope_many.hip": Constant(0.4, 0.4, 0),
    "slope_many.vulkan": Constant(0.5, 0.5, 0),
    "slope_many.metal": Constant(0.2, 0.2, 0),
    "slope_many.npu": Constant(0.5, 0.5, 0),
    "slope_many.cpu": Constant(1.0, 1.0, 0),
    "cliff.vulkan": Constant(1.5, 1.5, 0),
    "cliff.hip": Constant(4.0, 4.0, 0),
    "streams.apart": Constant(0.5, 0.5, 0),
    # Seconds that no byte explains: per pass, per device of a tensor split, per drafted token or
    # block, per round; bytes of a draft and of keys and values count by a factor; copy and replay
    # of a hybrid's state in plain decodes.
    "seconds.step": Constant(0.0004934, 0.0008, 148),
    "seconds.split": Constant(0.002633, 0.004, 13),
    "seconds.draft-mtp": Constant(0.00045, 0.0007, 130),
    "seconds.draft-simple": Constant(0.002229, 0.002, 13),
    "seconds.draft-eagle3": Constant(0.001, 0.001, 0),
    "seconds.draft-dflash": Constant(0.004057, 0.003, 1),
    "seconds.draft-dspark": Constant(0.003107, 0.003, 2),
    "seconds.round": Constant(0.0004305, 0.0005, 148),
    "replay": Constant(0.5172, 0.5, 1),
    "draft.bytes": Constant(0.8345, 1.2, 148),
    "context.bytes": Constant(3.157, 2.0, 13),
    "context.slope": Constant(0.09843, 0.1, 13),
    # Log odds that the first drafted token is kept, by kind; what later positions lose; what task,
    # temperature, size (per e-fold of the ratio beyond 30) and lost bits change.
    "accept.draft-mtp": Constant(1.963, 1.75, 130),
    "accept.draft-simple": Constant(1.609, 0.9, 13),
    "accept.draft-eagle3": Constant(1.2, 1.2, 0),
    "accept.draft-dflash": Constant(0.8682, 1.4, 1),
    "accept.draft-dspark": Constant(1.496, 1.6, 2),
    "accept.ngram": Constant(0.5439, 0.5, 2),
    "depth.draft-mtp": Constant(0.5436, 0.6, 130),
    "depth.draft-simple": Constant(0.05532, 0.1, 13),
    "depth.draft-eagle3": Constant(0.5, 0.5, 0),
    "depth.draft-dflash": Constant(0.556, 0.5, 1),
    "depth.draft-dspark": Constant(0.5156, 0.5, 2),
    "depth.ngram": Constant(0.0, 0.0, 0),
    "task.code": Constant(0.7107, 0.6, 1),
    "task.prose": Constant(-0.5197, -0.4, 1),
    "task.chat": Constant(0.08849, 0.0, 2),
    "task.json": Constant(0.7, 0.7, 0),
    "task.rewrite": Constant(1.245, 1.2, 1),
    "accept.temperature": Constant(0.4, 0.4, 0),
    "accept.size": Constant(0.2602, 0.25, 11),
    "accept.bits": Constant(0.09643, 0.1, 87),
    "found.ngram": Constant(0.4, 0.4, 0),
    "found.ngram.rewrite": Constant(0.8, 0.8, 0),
    # A prompt token against a plain decode, and the share that a head adds to it: 972 and 812
    # against 48.2 tokens/s in one report (35B-A3B, Vulkan), 6 to 17% in others.
    "prefill.cuda": Constant(35.0, 35.0, 0),
    "prefill.cuda-old": Constant(15.0, 15.0, 0),
    "prefill.hip": Constant(25.0, 25.0, 0),
    "prefill.vulkan": Constant(20.0, 20.0, 0),
    "prefill.metal": Constant(12.0, 12.0, 0),
    "prefill.npu": Constant(10.0, 10.0, 0),
    "prefill.cpu": Constant(4.0, 4.0, 0),
    "prefill.tax": Constant(0.12, 0.12, 0),
    # What a device adds to the logarithm of its engine's slope, drawn to 0.
    "slope.device.3080 ti laptop cuda": Constant(-0.1962, 0.0, 1),
    "slope.device.3090 ti cuda": Constant(0.4785, 0.0, 2),
    "slope.device.4060 ti cuda": Constant(-0.185, 0.0, 1),
    "slope.device.5060 ti cuda": Constant(0.2207, 0.0, 18),
    "slope.device.5070 ti cuda": Constant(-0.1044, 0.0, 1),
    "slope.device.7800 xt vulkan": Constant(0.2106, 0.0, 1),
    "slope.device.780m vulkan": Constant(-0.2124, 0.0, 1),
    "slope.device.7900 xtx hip": Constant(0.26, 0.0, 4),
    "slope.device.7900 xtx vulkan": Constant(-0.4311, 0.0, 3),
    "slope.device.a100 cuda": Constant(0.2884, 0.0, 4),
    "slope.device.apple m4 metal": Constant(-0.04623, 0.0, 1),
    "slope.device.b200 cuda": Constant(0.6378, 0.0, 2),
    "slope.device.cmp 170hx cuda": Constant(-0.2318, 0.0, 1),
    "slope.device.m2 pro metal": Constant(-0.3217, 0.0, 2),
    "slope.device.m3 ultra metal": Constant(0.1289, 0.0, 2),
    "slope.device.m4 pro metal": Constant(-0.5019, 0.0, 1),
    "slope.device.m5 pro metal": Constant(-0.1146, 0.0, 1),
    "slope.device.p40 cuda": Constant(0.04906, 0.0, 8),
    "slope.device.r9700 hip": Constant(0.1401, 0.0, 2),
    "slope.device.r9700 vulkan": Constant(1.656, 0.0, 2),
    "slope.device.rtx 3060 cuda": Constant(-0.09251, 0.0, 1),
    "slope.device.rtx 3080 cuda": Constant(-0.1846, 0.0, 1),
    "slope.device.rtx 3090 cuda": Constant(0.1767, 0.0, 14),
    "slope.device.rtx 4090 cuda": Constant(0.0618, 0.0, 4),
    "slope.device.rtx 5090 cuda": Constant(-0.2266, 0.0, 20),
    "slope.device.rtx a6000 cuda": Constant(0.03952, 0.0, 3),
    "slope.device.rtx pro 3000 cuda": Constant(-0.2895, 0.0, 1),
    "slope.device.rtx pro 6000 cuda": Constant(0.3554, 0.0, 7),
    "slope.device.rx 9070 hip": Constant(-0.3137, 0.0, 1),
    "slope.device.strix halo hip": Constant(0.1048, 0.0, 8),
    "slope.device.strix halo vulkan": Constant(0.01435, 0.0, 9),
    "slope.device.v100 cuda": Constant(0.03472, 0.0, 5),
    "slope.device.x2 elite npu": Constant(-0.3455, 0.0, 1),
    # What a series of models adds to the log odds of its first drafted token (accept) and to the
    # logarithm of what a round costs beyond a plain decode (round), drawn to 0.
    "accept.family.codellama": Constant(0.2626, 0.0, 2),
    "accept.family.gemma4": Constant(0.01746, 0.0, 1),
    "accept.family.gemma4 moe": Constant(-3.444e-18, 0.0, 0),
    "accept.family.glm-5.2 moe": Constant(2.27e-18, 0.0, 0),
    "accept.family.hy3 moe": Constant(0.005202, 0.0, 1),
    "accept.family.llama-3.1": Constant(0.09238, 0.0, 1),
    "accept.family.model": Constant(6.823e-18, 0.0, 0),
    "accept.family.nemotron": Constant(-0.1431, 0.0, 1),
    "accept.family.qwen2.5": Constant(0.006914, 0.0, 8),
    "accept.family.qwen3.5": Constant(-0.07611, 0.0, 3),
    "accept.family.qwen3.5 moe": Constant(-0.06871, 0.0, 1),
    "accept.family.qwen3.6": Constant(0.005179, 0.0, 4),
    "accept.family.qwen3.6 moe": Constant(0.05972, 0.0, 16),
    "accept.family.qwen3.8": Constant(-0.1073, 0.0, 46),
    "accept.family.qwen3.8 moe": Constant(0.1154, 0.0, 2),
    "round.family.codellama": Constant(-0.1282, 0.0, 2),
    "round.family.gemma4": Constant(-0.08213, 0.0, 4),
    "round.family.gemma4 moe": Constant(-0.09803, 0.0, 1),
    "round.family.glm-5.2 moe": Constant(0.129, 0.0, 1),
    "round.family.hy3 moe": Constant(-0.125, 0.0, 2),
    "round.family.llama-3.1": Constant(-0.03818, 0.0, 1),
    "round.family.model": Constant(0.02409, 0.0, 1),
    "round.family.nemotron": Constant(0.05592, 0.0, 1),
    "round.family.qwen2.5": Constant(0.04878, 0.0, 9),
    "round.family.qwen3.5": Constant(0.08342, 0.0, 3),
    "round.family.qwen3.5 moe": Constant(0.07441, 0.0, 1),
    "round.family.qwen3.6": Constant(0.1901, 0.0, 9),
    "round.family.qwen3.6 moe": Constant(-0.2405, 0.0, 19),
    "round.family.qwen3.8": Constant(-0.09838, 0.0, 88),
    "round.family.qwen3.8 moe": Constant(0.06704, 0.0, 4),
    # Half the 80% interval of the log of the speedup: by device (seen or new) and kind (MTP heads
    # of dense models on GPUs, or others); the 80% quantile of the errors in cross-validation.
    "spread.new.mtp": Constant(0.212, 0.0, 106),
    "spread.new.other": Constant(0.299, 0.0, 83),
    "spread.seen.mtp": Constant(0.192, 0.0, 294),
    "spread.seen.other": Constant(0.33, 0.0, 109),
}
