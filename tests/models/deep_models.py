"""Small models with an MTP head whose weights all differ, and ways to poison them in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from gguftools.gguf.source import open_gguf
from tests.models.chain import random_chain
from tests.models.markov import N_VOCAB, write_qwen35

EH_PROJ = "blk.4.nextn.eh_proj.weight"
HEAD_HEAD = "blk.4.nextn.shared_head_head.weight"


def write_random_qwen35(path: Path) -> Path:
    """A qwen35 file of F32 noise, its rows wide enough for every quant type."""
    chain = random_chain(N_VOCAB, 1)
    write_qwen35(path, chain, mtp_chain=chain, n_embd=256, n_ff=256, n_head=8)
    rng = np.random.default_rng(7)
    for name, row in open_gguf(path).tensors.items():
        noise = rng.standard_normal(row.n_elements, np.float32) / 20
        poke(path, name, noise + np.float32(len(row.shape) == 1))
    return path


def poke(path: Path, name: str, values: npt.NDArray[np.generic] | bytes, at: int = 0) -> None:
    """Write over the bytes of a tensor, from its byte `at` on."""
    header = open_gguf(path)
    row = header.tensors[name]
    shard = header.shards[row.shard]
    raw = values if isinstance(values, bytes) else values.tobytes()
    assert at + len(raw) <= (row.n_bytes or 0)
    with open(shard.path, "r+b") as file:
        file.seek(shard.data_offset + row.offset + at)
        file.write(raw)


def peek(path: Path, name: str) -> bytes:
    """The bytes of a tensor."""
    header = open_gguf(path)
    row = header.tensors[name]
    shard = header.shards[row.shard]
    with open(shard.path, "rb") as file:
        file.seek(shard.data_offset + row.offset)
        return file.read(row.n_bytes or 0)
