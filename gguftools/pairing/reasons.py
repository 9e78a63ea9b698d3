"""What drives a prediction, in short sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gguftools.pairing.acceptance import Drafts
from gguftools.pairing.cost import Costs, copies_state, is_k_quant
from gguftools.pairing.devices import device_name
from gguftools.pairing.setup import ONE_PASS, Setup

HEAVY = 0.15  # of a plain decode per drafted token
STEEP = 0.35  # of a plain decode per further row


def reasons(
    setup: Setup,
    d: Drafts,
    price: Costs,
    speedup: float,
    request_speedup: float,
    n_max: int,
    n_experts: float,
) -> tuple[str, ...]:
    """The sum first, then what makes it so."""
    cost = price.round(d)
    first = f"a round writes {d.tokens_per_round:.2f} tokens and costs {cost:.2f} plain decodes"
    if speedup <= 1.0:
        first += ": off is best"
    found = [first, *_target(setup, price, n_max, n_experts), *_draft(setup, price, speedup)]
    if request_speedup < 1.0 < speedup:
        found.append(
            f"it writes faster and yet a request of {setup.n_prompt} tokens with "
            f"{setup.n_output} written takes longer: the prompt is read by the draft too"
        )
    return tuple(found)


def _target(setup: Setup, price: Costs, n_max: int, n_experts: float) -> Iterator[str]:
    rows = n_max + 1
    if setup.is_moe:
        yield f"a verify batch of {rows} rows wakes {n_experts:.1f}x the experts of one"
    if setup.experts_on_cpu:
        yield "the experts are read from RAM, so every further row costs more"
    more = price.verify[rows] - 1.0
    if more / n_max > STEEP:
        yield f"a verify pass over {rows} rows takes {1.0 + more:.1f}x as long as one"
    if setup.backend == "metal" and is_k_quant(setup.quant) and not setup.is_moe:
        yield (
            "Metal has no kernels for few rows of k-quants: Q8_0 or Q4_0 would verify faster, and "
            "-b 512 -ub 512 keeps a small machine from running out of memory"
        )
    if setup.backend == "hip":
        yield "some builds lose on HIP with more than 1 (llama.cpp issue 23549): try that first"
    if setup.backend == "vulkan" and setup.n_max_limit > 7:
        yield "Vulkan takes a step at 9 rows, so drafts of 8 and more do not pay"
    if copies_state(setup):
        yield "the hybrid's state is copied before each draft, and replayed after a rejection"
    if not device_name(setup.device) and setup.backend != "cpu":
        yield "the card is not known: its backend's usual figures are taken"


def _draft(setup: Setup, price: Costs, speedup: float) -> Iterator[str]:
    if price.draft_token > HEAVY:
        yield f"a drafted token costs {price.draft_token:.0%} of a plain decode"
    if setup.kind in ONE_PASS:
        yield f"a block is drafted in one pass, for {price.draft_start:.0%} of a plain decode"
    if setup.target_params < 2e9 and speedup <= 1.0:
        yield "targets below 2B are too fast to be helped"
    if setup.acceptance is None:
        task = f" for {setup.task}" if setup.task else ""
        yield f"acceptance is what drafts of this kind usually reach{task}"
