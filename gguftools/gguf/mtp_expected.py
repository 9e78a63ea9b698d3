"""The GGUF tensors that the MTP head of a checkpoint should become, by name and shape. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gguftools.gguf.checkpoint import Checkpoint
from gguftools.gguf.mtp_source import COMPANIONS, Part, SourceMtp
from gguftools.gguf.reference_table import ARCH_NAMES, BLOCK_NAMES, EH_HALVES, MODEL_NAMES
from gguftools.gguf.safetensors import SourceTensor

Shape = tuple[int, ...]  # ggml order
_EXPERT = re.compile(r"\.experts\.([0-9]{1,6})\.")
_STACKED = ("gate_up_proj", "gate_up_proj.weight")


@dataclass(frozen=True, slots=True)
class Expected:
    """One tensor of the GGUF with what it is made of; `name` None where llama.cpp has no place.

    `source` is one name, with `*` for the number of an expert or for the half of a pair.
    """

    source: str
    n_sources: int
    dtype: str
    name: str | None
    shape: Shape | None
    listed: bool


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one source tensor gives to one GGUF tensor."""

    label: str
    tensor: SourceTensor
    name: str | None
    shape: Shape | None
    how: str = ""  # "experts": stacked; "halves": joined along the first dimension


def expected_tensors(checkpoint: Checkpoint, mtp: SourceMtp) -> tuple[Expected, ...]:
    """What each MTP tensor of the source should become; experts and halves as one."""
    groups: dict[tuple[str, bool], list[_Piece]] = {}
    for part in mtp.parts:
        if part.tensor.name.endswith(COMPANIONS):
            continue
        for piece in _pieces(checkpoint, mtp, part):
            key = piece.name or piece.label
            groups.setdefault((key, part.tensor.listed), []).append(piece)
    return tuple(_joined(pieces, listed) for (_, listed), pieces in groups.items())


def _joined(pieces: list[_Piece], listed: bool) -> Expected:
    first, shape = pieces[0], pieces[0].shape
    if any(piece.shape is None or shape is None or piece.shape[1:] != shape[1:]
           for piece in pieces):  # fmt: skip
        shape = None
    elif shape is not None and first.how == "experts":
        shape = (*shape, len(pieces))
    elif shape is not None and first.how == "halves":
        shape = (sum(piece.shape[0] for piece in pieces if piece.shape), *shape[1:])
    return Expected(first.label, len(pieces), first.tensor.dtype, first.name, shape, listed)


def _pieces(checkpoint: Checkpoint, mtp: SourceMtp, part: Part) -> Iterator[_Piece]:
    tensor, naming = part.tensor, mtp.family.naming if mtp.family else ""
    shape = None if tensor.shape is None or tensor.packed else tuple(reversed(tensor.shape))
    if part.blocks is None:
        stem, suffix = _split(part.rest)
        to = MODEL_NAMES.get(naming, {}).get(stem) if naming != "qwen" else None
        if to == "token_embd":
            shape = None  # cut to the tokenizer's length (conversion/gemma.py:162)
        yield _Piece(tensor.name, tensor, to and to + (suffix or ".weight"), shape)
        return
    for block in part.blocks:
        for rest, piece_shape, how in _forms(checkpoint, mtp, part.rest, shape):
            name = _block_name(mtp.arch or "", rest)
            label = tensor.name
            if how == "experts":
                label = _EXPERT.sub(".experts.*.", label)
            elif how == "halves":
                label = re.sub(r"\b(fc|e|h)(_embedding|_hidden|_proj)\b",
                               lambda m: "fc_*" if m[1] == "fc" else "*_proj", label)  # fmt: skip
            yield _Piece(label, tensor, name and f"blk.{block}.{name}", piece_shape, how)


def _forms(
    checkpoint: Checkpoint, mtp: SourceMtp, rest: str, shape: Shape | None
) -> Iterator[tuple[str, Shape | None, str]]:
    """A tensor as the converter has it before naming: split, numbered or as it is."""
    stem, suffix = _split(rest)
    last = stem.rpartition(".")[2]
    if _EXPERT.search(rest):
        yield _EXPERT.sub(".experts.", rest), shape, "experts"
    elif last in EH_HALVES:
        yield f"eh_proj{suffix}", shape, "halves"
    elif last == "kv_b_proj":
        for name, piece in zip(("k_b", "v_b"), _kv_b(checkpoint, mtp, shape), strict=True):
            yield f"attn_{name}{suffix}", piece, ""
    elif rest.endswith(_STACKED) and ".experts." in rest:
        half = None if shape is None or len(shape) != 3 else (shape[0], shape[1] // 2, shape[2])
        for name in ("gate_proj", "up_proj"):
            yield f"mlp.experts.{name}", half, ""
    elif last == "index_qk_proj":
        n_q = (checkpoint.integer("indexer_n_heads") or 0) * (
            checkpoint.integer("indexer_head_dim") or 0
        )
        q = k = None
        if shape is not None and len(shape) == 2 and 0 < n_q < shape[1]:
            q, k = (shape[0], n_q), (shape[0], shape[1] - n_q)
        yield "indexer.q_proj.weight", q, ""
        yield "indexer.k_proj.weight", k, ""
    else:
        yield rest, shape, ""


def _kv_b(
    checkpoint: Checkpoint, mtp: SourceMtp, shape: Shape | None
) -> tuple[Shape | None, Shape | None]:
    """k_b transposed per head, and v_b (deepseek.py:441)."""
    swa = "swa_" if mtp.arch == "dots3note" else ""
    nope = checkpoint.integer(f"{swa}qk_nope_head_dim") or 0
    v = checkpoint.integer(f"{swa}v_head_dim") or 0
    if shape is None or len(shape) != 2 or not v or shape[1] % (nope + v):
        return None, None
    n_head = shape[1] // (nope + v)
    return (nope, shape[0], n_head), (shape[0], v, n_head)


def _split(rest: str) -> tuple[str, str]:
    for suffix in (".weight", ".bias"):
        if rest.endswith(suffix):
            return rest.removesuffix(suffix), suffix
    for suffix in (".weight_packed", ".qweight"):
        if rest.endswith(suffix):
            return rest.removesuffix(suffix), ".weight"
    return rest, ""


def _block_name(arch: str, rest: str) -> str | None:
    """The name inside `blk.N.`, None where llama.cpp has none for it."""
    names = ARCH_NAMES.get(arch, {})
    if arch != "deepseek4":
        names = BLOCK_NAMES | names
    if to := names.get(rest):
        return to + _bare_suffix(arch, to)
    stem, suffix = _split(rest)
    to = names.get(stem)
    return to and to + suffix


def _bare_suffix(arch: str, to: str) -> str:
    """What the converter adds to a name that has no suffix; hy_v3 keeps exp_probs_b without."""
    if to == "exp_probs_b":
        return "" if arch == "hy_v3" else ".bias"
    return "" if to.endswith((".bias", ".weight")) else ".weight"
