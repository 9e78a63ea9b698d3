"""Which tensors are the MTP head, how precisely they are stored, what is known of that. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.nextn_block import block_tensors
from gguftools.gguf.nextn_file import EH_PROJ, is_mtp_name
from gguftools.gguf.nextn_findings import HEAD_HEAD
from gguftools.gguf.problem import Problem
from gguftools.gguf.reader import Header, TensorInfo
from gguftools.gguf.tensors import group_of

BITS_MIN = 4.0  # of a Q4-class type: Q4_0, Q4_K and IQ4_XS have 4.25 and more, Q3_K has 3.44
_SAME = "http://204.152.198.140/PiehSoft/Qwen3.6-40B-Deckard-MTP/resolve/main/README.md"
_KEPT = "https://github.com/ollama/ollama/pull/16320"
_EVIDENCE = (
    f"unmeasured below 4 bits; heads in BF16, Q8 and Q4 were accepted alike ({_SAME}), "
    f"Ollama keeps the projection above 4 bits ({_KEPT}); to keep it in Q8_0, quantize with "
    '--tensor-type "nextn=q8_0"'
)


@dataclass(frozen=True, slots=True)
class HeadPrecision:
    """Where one MTP block meets the model: its projection in, and the output matrix it uses.

    `output` is the block's own, else the model's, else the tied embedding, as llama.cpp takes it.
    """

    block: int
    eh_proj: TensorInfo | None
    output: TensorInfo | None


@dataclass(frozen=True, slots=True)
class Imatrix:
    """What the metadata tells of the importance matrix a file was quantized with.

    `covers_head` is False where its entries do not go beyond the trunk, None where nothing tells.
    """

    file: str | None
    dataset: str | None
    n_entries: int | None
    n_chunks: int | None
    covers_head: bool | None


def head_tensors(header: Header) -> dict[str, TensorInfo]:
    """The tensors of the MTP blocks and what belongs to them, whatever the keys say of them."""
    n_layer = read_hparams(header).n_layer
    blocks = {block for block, name, _ in block_tensors(header) if name.startswith("nextn.")}
    starts = tuple(f"blk.{block}." for block in blocks)
    return {
        name: row
        for name, row in header.tensors.items()
        if is_mtp_name(name) or name.startswith(starts) or group_of(name, n_layer) == "head"
    }


def head_precision(header: Header) -> tuple[HeadPrecision, ...]:
    """The types of each MTP block that has a projection."""
    tensors = header.tensors
    shared = tensors.get("output.weight") or tensors.get("token_embd.weight")
    found = [
        HeadPrecision(block, row, tensors.get(f"blk.{block}.{HEAD_HEAD}") or shared)
        for block, name, row in block_tensors(header)
        if name == EH_PROJ
    ]
    if not found and (row := tensors.get("nextn.pre_projection.weight")):
        found = [HeadPrecision(0, row, shared)]
    return tuple(found)


def imatrix(header: Header) -> Imatrix | None:
    """What is known of the importance matrix, None where the metadata has none."""
    at = "quantize.imatrix."
    if not any(key.startswith(at) for key in header.metadata):
        return None
    head, n_entries = head_tensors(header), header.integer(f"{at}entries_count")
    n_trunk = sum(
        len(row.shape) > 1 and name.startswith("blk.") and "conv" not in name and name not in head
        for name, row in header.tensors.items()
    )
    beyond = not head or n_entries is None or n_entries > n_trunk
    return Imatrix(
        header.text(f"{at}file") or None,
        header.text(f"{at}dataset") or None,
        n_entries,
        header.integer(f"{at}chunks_count"),
        None if beyond else False,
    )


def precision_problems(header: Header) -> Iterator[Problem]:
    """A head below Q4-class, and a quantized head that its importance matrix passed by."""
    heads = head_precision(header)
    for head in heads:
        low = [row for row in (head.eh_proj, head.output) if row and _bits(row) < BITS_MIN]
        if low:
            named = " and ".join(f"{r.name} is {r.type.name} ({_bits(r):.2f} bits)" for r in low)
            yield Problem(
                "head-precision", "warning", f"MTP block {head.block}: {named}", _EVIDENCE
            )
    matrix = imatrix(header)
    quantized = any(row.type.block_elements > 1 for h in heads if (row := h.eh_proj))
    if matrix is not None and quantized and matrix.covers_head is False:
        what = (
            f"the importance matrix has {matrix.n_entries} entries, no more than the trunk has "
            "matrices; an ordinary one never sees the MTP head"
        )
        hint = "collect one that does with llama-imatrix --nextn"
        yield Problem("head-imatrix", "info", what, hint)


def _bits(row: TensorInfo) -> float:
    return row.type.bits_per_weight or BITS_MIN
