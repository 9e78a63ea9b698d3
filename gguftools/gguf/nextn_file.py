"""The facts of one file that its MTP verdict rests on. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gguftools.gguf.nextn_block import BlockCheck
from gguftools.gguf.nextn_table import LEGACY_NAMES, MtpArch
from gguftools.gguf.reader import Header, NumericArray, StringArray, TensorInfo
from gguftools.gguf.shapes import Names

EH_PROJ = "nextn.eh_proj.weight"


@dataclass(frozen=True, slots=True)
class MtpFile:
    """The facts of one file, gathered once; `blocks` holds its tensors without `blk.N.`."""

    header: Header
    arch: str
    spec: MtpArch
    declared: int
    n_layer_all: int
    blocks: dict[int, dict[str, TensorInfo]]

    @property
    def alone(self) -> bool:
        """Whether the architecture is nothing but a head (gemma4-assistant)."""
        return not self.spec.trunk_probe

    @property
    def first(self) -> int:
        """The first MTP block by key and block_count."""
        return 0 if self.alone else self.n_layer_all - self.declared

    @property
    def head_blocks(self) -> list[int]:
        """Blocks to judge as heads: those declared, else those that hold nextn tensors."""
        if self.declared:
            return list(range(self.first, self.first + self.declared))
        return [block for block in sorted(self.blocks) if self.has_nextn(block)]

    @property
    def stripped(self) -> bool:
        """Whether the key promises heads and no block holds a nextn tensor."""
        return self.declared > 0 and not any(self.has_nextn(block) for block in self.blocks)

    @property
    def probed(self) -> bool:
        """Whether nextn.eh_proj lies where the loader looks for it."""
        return EH_PROJ in self.blocks.get(self.first, {})

    @property
    def zeroed(self) -> bool:
        """Whether the loader drops the key, because the probe fails (deepseek4)."""
        return self.spec.probe_zeroes and self.declared > 0 and not self.probed

    @property
    def trunk(self) -> bool:
        """Whether the loader takes the file as one with a trunk."""
        return self.spec.trunk_probe in self.header.tensors

    def has_nextn(self, block: int) -> bool:
        """Whether a block holds any nextn tensor (any at all where its table row has none)."""
        names = self.blocks.get(block, {})
        return any(name.startswith("nextn.") for name in names) or (self.alone and bool(names))

    @property
    def counts_by_tensors(self) -> tuple[int, int]:
        """Blocks, and heads at their end, as the tensors have it."""
        n_blocks = max(self.blocks, default=-1) + 1
        first = n_blocks
        while first > 0 and self.has_nextn(first - 1):
            first -= 1
        return n_blocks, n_blocks - first

    def arrays(self, *suffixes: str) -> Iterator[tuple[str, NumericArray | StringArray]]:
        """Those of the keys that hold an array."""
        for suffix in suffixes:
            value = self.header.metadata.get(self.key(suffix))
            if isinstance(value, NumericArray | StringArray):
                yield suffix, value

    def key(self, suffix: str) -> str:
        """The key `{arch}.{suffix}`."""
        return f"{self.arch}.{suffix}"


@dataclass(frozen=True, slots=True)
class Head:
    """One MTP block compared with the table."""

    block: int
    names: Names
    check: BlockCheck


def is_mtp_name(name: str) -> bool:
    """Whether a tensor name speaks of MTP, in llama.cpp's or another spelling."""
    return ".nextn." in name or name.startswith(("nextn.", *LEGACY_NAMES)) or name == "d2t"
