"""Which block lies on which device (load_tensors, src/llama-model.cpp, llama.cpp b11434). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from gguftools.pairing.machine import Gpu

CPU = "CPU"


@dataclass(frozen=True, slots=True)
class Placement:
    """The device of every block and of the output; the embedding stays with the CPU."""

    gpus: tuple[str, ...]
    blocks: tuple[str, ...]
    output: str

    def of(self, block: int) -> str:
        """The device of a block; what belongs to no block of the model goes with the output."""
        return self.blocks[block] if block < len(self.blocks) else self.output


def place(n_blocks: int, n_gpu_layers: int = -1, gpus: Sequence[Gpu] = ()) -> Placement:
    """The last `n_gpu_layers` of the blocks and the output go to the GPUs, -1: all of them.

    Several GPUs share them in proportion to their free memory.
    """
    names = tuple(f"GPU{i}" for i in range(len(gpus)))
    n_all = n_blocks + 1  # the output counts as a layer
    n_on_gpu = min(n_gpu_layers, n_all) if n_gpu_layers >= 0 else n_all
    first = n_all - n_on_gpu
    shares = list(accumulate(gpu.free_bytes for gpu in gpus))
    if shares and shares[-1] == 0:
        shares = list(range(1, len(gpus) + 1))

    def device(layer: int) -> str:
        if not gpus or layer < first:
            return CPU
        return names[bisect_right([s / shares[-1] for s in shares], (layer - first) / n_on_gpu)]

    return Placement(names, tuple(device(i) for i in range(n_blocks)), device(n_blocks))
