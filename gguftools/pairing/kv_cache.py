"""Bytes of the KV cache and of recurrent states, block by block, as llama.cpp allocates them. Pure.

Sources: src/llama-kv-cache*.cpp, src/llama-memory-recurrent.cpp, src/llama-context.cpp, b11434.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gguftools.errors import UsageError
from gguftools.gguf.ggml_types import GGMLType, ggml_type
from gguftools.gguf.header import Header
from gguftools.pairing.layers import ROLLS_BACK, Layer, Layers

_PAD = 256  # cells: n_ctx and the cache of a sliding window are rounded up to it
_F32_BYTES = 4
_CSA, _HCA = 4, 128  # tokens per compressed row of DeepSeek V4

# kv_cache_types, common/arg.cpp; by the names of -ctk and -ctv.
CACHE_TYPES = {
    t.name.lower(): t for t in map(ggml_type, (0, 1, 30, 8, 2, 3, 20, 6, 7))
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ContextShape:
    """The parameters of a context that decide its memory; llama.cpp's names.

    `n_outputs` is the most rows of logits that one batch asks for. `n_rs_seq` is how many tokens a
    recurrent state can be taken back. `mtp` is a context for the MTP blocks of the same file.
    """

    n_ctx: int
    n_ubatch: int = 512
    n_batch: int = 2048
    n_outputs: int = 1
    n_seq_max: int = 1
    n_rs_seq: int = 0
    type_k: str = "f16"
    type_v: str = "f16"
    swa_full: bool = False
    flash_attn: bool = True
    kv_unified: bool = False
    mtp: bool = False

    @property
    def n_ctx_seq(self) -> int:
        """Cells per sequence, or for all of them in a unified cache."""
        n_ctx = _padded(self.n_ctx)
        return n_ctx if self.kv_unified else _padded(n_ctx // max(self.n_seq_max, 1))

    @property
    def n_tokens(self) -> int:
        """Tokens of the largest batch that runs at once."""
        return max(min(self.n_ctx, self.n_batch, self.n_ubatch), 1)


@dataclass(frozen=True, slots=True)
class Cache:
    """Bytes by block."""

    kv: dict[int, int]
    recurrent: dict[int, int]


def cache_type(name: str) -> GGMLType:
    """The type of cached keys or values by its name for -ctk and -ctv; UsageError if none."""
    if (found := CACHE_TYPES.get(name.lower())) is None:
        raise UsageError(f"{name!r} is not a type of the KV cache", hint=", ".join(CACHE_TYPES))
    return found


def cache_bytes(header: Header, layers: Layers, shape: ContextShape) -> Cache:
    """What a context keeps of the text, by block."""
    kv: Counter[int] = Counter()
    recurrent: Counter[int] = Counter()
    for block, layer in layers.of(mtp=shape.mtp):
        kv[block] += sum(_kv_tensors(header, layers, layer, shape))
        if layer.state and not shape.mtp:
            n_rs_seq = shape.n_rs_seq if header.architecture in ROLLS_BACK else 0
            recurrent[block] += layer.state * _F32_BYTES * max(shape.n_seq_max, 1) * (1 + n_rs_seq)
        if layer.ratio and not shape.mtp and block < layers.n_trunk:
            recurrent[block] += _compressor_bytes(layer, shape)
    return Cache(+kv, +recurrent)


def window_cells(layers: Layers, shape: ContextShape) -> int:
    """Cells of the cache of blocks with a sliding window."""
    if shape.swa_full:
        return shape.n_ctx_seq
    n_seq = max(shape.n_seq_max, 1) if shape.kv_unified else 1
    return _padded(min(shape.n_ctx_seq, layers.n_swa * n_seq + shape.n_tokens))


def _kv_tensors(header: Header, layers: Layers, layer: Layer, shape: ContextShape) -> Iterator[int]:
    """Bytes of each tensor that a block has in the cache."""
    k_type, v_type = cache_type(shape.type_k), cache_type(shape.type_v)
    deepseek4 = header.architecture == "deepseek4" and not shape.mtp
    n_stream = 1 if shape.kv_unified and not deepseek4 else max(shape.n_seq_max, 1)
    cells = (window_cells(layers, shape) if layer.window else shape.n_ctx_seq) * n_stream
    v = layer.v
    if v and not shape.flash_attn:  # transposed values are padded to the widest block
        v = max(other.v for other in layers.blocks)
    yield _bytes(k_type, layer.k) * cells
    yield 0 if deepseek4 else _bytes(v_type, v) * cells
    if deepseek4 and layer.ratio in (_CSA, _HCA):
        cells = _padded(-(-shape.n_ctx_seq // layer.ratio)) * n_stream
        yield _bytes(k_type, layer.k) * cells
    else:
        cells = shape.n_ctx_seq * n_stream
    yield _bytes(k_type, layer.indexer) * cells
    yield _bytes(v_type, layer.indexer_v) * cells


def _compressor_bytes(layer: Layer, shape: ContextShape) -> int:
    """What DeepSeek V4 keeps of the tokens that make up the next compressed row: two tensors."""
    n_planes = max(shape.n_seq_max, 1) * (1 + shape.n_rs_seq)
    if layer.ratio == _CSA:
        return 2 * _F32_BYTES * n_planes * 2 * _CSA * 2 * (layer.k + layer.indexer)
    return 2 * _F32_BYTES * n_planes * _HCA * layer.k if layer.ratio == _HCA else 0


def _bytes(type_: GGMLType, n_elements: int) -> int:
    return -(-n_elements // type_.block_elements) * type_.block_bytes


def _padded(n: int) -> int:
    return -(-max(n, 1) // _PAD) * _PAD
