"""What a round of drafting and verifying costs, in plain decodes. Pure.

A plain decode reads the weights once, and of the experts those in use. A verify pass reads the
experts that any of its rows uses, and computes for every row. All from bytes and bandwidth, so a
fixed cost per drafted token weighs more where a plain decode is short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gguftools.pairing.acceptance import Drafts
from gguftools.pairing.devices import RAM_BANDWIDTH, device_key, find_device
from gguftools.pairing.setup import ONE_PASS, Setup

N_FAST_ROWS = 8  # the most rows of llama.cpp's matrix-vector kernels: MMVQ_MAX_BATCH_SIZE, b11434
BITS = 4.8  # of Q4_K_M, to which the slopes refer
BALANCE_MIN = 0.4  # FP32 says little of the cards that compute in other formats
HIP_BUILD = 9300  # a step at 3 rows was seen in b9279, llama.cpp issue 23549, and not since
# One core of a server CPU (docs/log.md, 2026-11-30: 2 cores, F16, Q8_0 and Q4_0 files alike).
CORE_BANDWIDTH = 10e9  # bytes of weights per second
CORE_PARAMS = 20e9  # weights per second and row, once they are there


@dataclass(frozen=True, slots=True)
class Costs:
    """In plain decodes: verify[m] a target pass over m rows, a draft's start and each token."""

    verify: tuple[float, ...]
    draft_start: float
    draft_token: float

    def round(self, d: Drafts) -> float:
        """The mean cost of a round."""
        verify = sum(share * self.verify[n + 1] for n, share in enumerate(d.length) if share > 0.0)
        return verify + self.draft_start + self.draft_token * d.n_computed


def costs(setup: Setup, n_max: int, c: Mapping[str, float]) -> Costs:
    """The costs of rounds of up to n_max drafted tokens."""
    seconds = _Seconds(setup, c)
    n = max(setup.n_streams, 1)
    plain = seconds.verify(n)
    drag = math.exp(c.get(f"round.family.{setup.series}", 0.0))
    apart = c["streams.apart"] if n > 1 else 0.0

    def verify(rows: int) -> float:
        # Drafts of unequal length are verified partly one stream after the other.
        together = seconds.verify(rows * n) * (1.0 - apart)
        one_by_one = seconds.verify(rows) * n * apart if apart else 0.0
        return 1.0 + ((together + one_by_one) / plain - 1.0) * drag

    each = n if apart else 1
    token = seconds.draft_token() * each / plain * drag
    start = seconds.round_start() * each / plain * drag
    if setup.kind in ONE_PASS:
        start, token = start + token, 0.0
    return Costs((1.0, 1.0, *(verify(m) for m in range(2, n_max + 2))), start, token)


def experts_in_use(setup: Setup, rows: float, c: Mapping[str, float]) -> float:
    """Experts that a batch uses, in those of one token: neighbours share more than chance."""
    if not setup.is_moe:
        return 1.0
    apart = math.pow(max(rows, 1.0), c["experts.apart"])
    share = setup.n_expert_used / setup.n_expert
    return (1.0 - math.pow(1.0 - share, apart)) / share


class _Seconds:
    """Seconds of one setup, up to a factor that no ratio shows."""

    def __init__(self, setup: Setup, c: Mapping[str, float]) -> None:
        self.setup, self.c = setup, c
        self.slope: float
        device = find_device(setup.device, setup.backend)
        engine = device.engine
        self.bandwidth = device.bandwidth
        self.per_param = 0.0
        if engine == "cpu" and setup.n_cores:
            self.bandwidth = min(self.bandwidth, setup.n_cores * CORE_BANDWIDTH)
            self.per_param = 1.0 / (setup.n_cores * CORE_PARAMS)
        self.joint = self.bandwidth * (setup.n_devices if setup.tensor_split else 1)
        own = math.exp(c.get(f"slope.device.{device_key(setup.device, setup.backend)}", 0.0))
        own /= max(device.balance, BALANCE_MIN) ** c["slope.balance"]
        if engine == "metal":
            # Its k-quants have no kernel for few rows, and their bits matter less; mixtures keep
            # what is not an expert in Q8_0.
            plain = setup.is_moe or not is_k_quant(setup.quant)
            self.slope = c["slope.metal-plain" if plain else "slope.metal"] * own
        else:
            self.slope = c[f"slope.{engine}"] * own
            self.slope *= (BITS / max(setup.target_bits, 1.0)) ** c["slope.bits"]
        self.many = c[f"slope_many.{engine}"] * self.slope
        self.moe_slope = c["slope.experts"] * own
        self.engine = engine
        self.fixed = c["seconds.step"]
        if setup.tensor_split:
            self.fixed += c["seconds.split"] * (setup.n_devices - 1)

    def verify(self, rows: int) -> float:
        """A target pass over that many rows."""
        s = self.setup
        if self.per_param:
            return self._on_cores(rows)
        more = self._more(rows)
        experts = s.expert_bytes * experts_in_use(s, rows, self.c)
        extra = s.expert_bytes * self.moe_slope * (rows - 1)
        if s.experts_on_cpu:
            on_gpu, in_ram = (s.target_bytes - s.expert_bytes) * (1.0 + more), experts + extra
        else:
            weights = (s.target_bytes - s.expert_bytes) * (1.0 + more) + experts + extra
            on_gpu, in_ram = weights * (1.0 - s.cpu_share), weights * s.cpu_share
            if s.cpu_share:
                in_ram *= 1.0 + self.c["slope.cpu"] * (rows - 1) * (1.0 - s.cpu_share)
        context = s.kv_bytes * s.n_ctx_used * self.c["context.bytes"]
        context *= 1.0 + self.c["context.slope"] * (rows - 1)
        read: float = (on_gpu + context) / self.joint + in_ram / RAM_BANDWIDTH
        return read + self.fixed

    def _on_cores(self, rows: int) -> float:
        """A target pass on a CPU of known cores: bytes once, arithmetic for every row."""
        s = self.setup
        n_bytes = s.target_bytes - s.expert_bytes
        n_bytes += s.expert_bytes * experts_in_use(s, rows, self.c)
        n_params = 8.0 * s.target_bytes / max(s.target_bits, 1.0)
        context = s.kv_bytes * s.n_ctx_used
        return (n_bytes + context) / self.bandwidth + rows * n_params * self.per_param + self.fixed

    def _more(self, rows: int) -> float:
        """What further rows cost, in passes over one."""
        more: float = self.slope * (min(rows, N_FAST_ROWS) - 1)
        if rows > N_FAST_ROWS:
            more += self.many * (rows - N_FAST_ROWS)
            more += self.c["cliff.vulkan"] if self.engine == "vulkan" else 0.0
        build = self.setup.build
        if self.engine == "hip" and rows > 2 and build is not None and build < HIP_BUILD:
            more += self.c["cliff.hip"]
        return more

    def draft_token(self) -> float:
        """One drafted token, or one block where a block is drafted in one pass."""
        s = self.setup
        if s.kind == "ngram":
            return 0.0
        read = s.draft_bytes * self.c["draft.bytes"] / self.bandwidth
        n_params = 8.0 * s.draft_bytes / max(s.draft_bits or BITS, 1.0)
        return read + n_params * self.per_param + self.c[f"seconds.{s.kind}"]

    def round_start(self) -> float:
        """Bookkeeping of a round; a hybrid whose state is copied pays for the copy and a replay."""
        replay = self.c["replay"] * self.setup.target_bytes / self.bandwidth
        return self.c["seconds.round"] + (replay if copies_state(self.setup) else 0.0)


def copies_state(setup: Setup) -> bool:
    """Whether the target's state is copied before a draft: n_rs_seq stays 0 for draft-simple."""
    outside = setup.kind in ("draft-simple", "ngram")
    return setup.rollback == "FULL" or (setup.rollback == "RS" and outside)


def is_k_quant(quant: str) -> bool:
    """Whether a tensor type is one of the k- or i-quants, which is most often so."""
    return quant.startswith("IQ") or "_K" in quant or not quant
