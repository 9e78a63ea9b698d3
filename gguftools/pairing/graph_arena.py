"""The size of a compute buffer: ggml's graph allocator replayed on the outline of a graph. Pure.

llama.cpp plans a compute buffer by walking the graph: each tensor goes into the best fitting hole,
takes over the place of a parent that nothing else reads, and leaves a hole after its last reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ALIGNMENT = 32  # TENSOR_ALIGNMENT, ggml/src/ggml-backend.cpp, b11434
_ENDLESS = 1 << 62


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor of the graph; views share the storage of what they look at."""

    n_bytes: int
    n_readers: int = 0
    offset: int = -1  # -1: not in the buffer


@dataclass(slots=True)
class Graph:
    """Operations in the order in which they run, each with the tensors it reads."""

    inputs: list[Tensor] = field(default_factory=list)
    steps: list[tuple[Tensor | None, tuple[Tensor, ...], bool]] = field(default_factory=list)

    def input(self, n_bytes: int) -> Tensor:
        """A tensor filled from outside before the graph runs."""
        self.inputs.append(made := Tensor(n_bytes))
        return made

    def new(self, n_bytes: int, *sources: Tensor) -> Tensor:
        """An operation whose result needs a place of its own."""
        made = Tensor(n_bytes)
        self._add(made, sources, in_place=False)
        return made

    def over(self, *sources: Tensor) -> Tensor:
        """An operation whose result has the layout of its first source and may take its place."""
        made = Tensor(sources[0].n_bytes)
        self._add(made, sources, in_place=True)
        return made

    def read(self, *sources: Tensor) -> None:
        """An operation that writes elsewhere, such as into the KV cache."""
        self._add(None, sources, in_place=False)

    def _add(self, made: Tensor | None, sources: tuple[Tensor, ...], *, in_place: bool) -> None:
        for source in sources:
            source.n_readers += 1
        self.steps.append((made, sources, in_place))


class _Holes:
    """The free stretches of the buffer by address; the last one has no end."""

    def __init__(self) -> None:
        self.holes: list[list[int]] = [[0, _ENDLESS]]  # offset, size
        self.n_bytes = 0

    def take(self, size: int) -> int:
        fitting = [hole for hole in self.holes[:-1] if hole[1] >= size]
        # Of equally good holes ggml takes the last.
        hole = min(reversed(fitting), key=lambda h: h[1]) if fitting else self.holes[-1]
        offset = hole[0]
        hole[0], hole[1] = offset + size, hole[1] - size
        if hole[1] == 0:
            self.holes.remove(hole)
        self.n_bytes = max(self.n_bytes, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        place = sum(hole[0] < offset for hole in self.holes)
        self.holes.insert(place, [offset, size])
        for left in (place, place - 1):
            if 0 <= left < len(self.holes) - 1:
                hole, after = self.holes[left], self.holes[left + 1]
                if hole[0] + hole[1] == after[0]:
                    hole[1] += after[1]
                    del self.holes[left + 1]


def buffer_bytes(graph: Graph) -> int:
    """Bytes that the buffer needs so that every step has its tensors (ggml/src/ggml-alloc.c)."""
    holes = _Holes()
    for tensor in graph.inputs:
        tensor.offset = holes.take(_aligned(tensor.n_bytes))
    for made, sources, in_place in graph.steps:
        if made is not None:
            heir = next((s for s in sources if _can_inherit(made, s)), None) if in_place else None
            if heir is not None:
                made.offset, heir.offset = heir.offset, -1
            else:
                made.offset = holes.take(_aligned(made.n_bytes))
        for source in sources:
            source.n_readers -= 1
            if source.n_readers == 0 and source.offset >= 0:
                holes.give(source.offset, _aligned(source.n_bytes))
                source.offset = -1
    return holes.n_bytes


def _can_inherit(made: Tensor, source: Tensor) -> bool:
    return source.n_readers == 1 and source.offset >= 0 and source.n_bytes == made.n_bytes


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
