"""Markov files: real GGUFs whose next-token distribution is a chain known exactly.

Embedding rows are one-hot, every block computes at full cost but adds nothing (its output
projections are zero), and `output` holds log probabilities, so llama.cpp's logits are log P.
`python -m tests.models.markov OUT_DIR` writes the standard set.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from gguf import GGUFWriter

from tests.models.blocks import (
    LOG_P_MIN,
    N_EMBD_HEAD,
    SSM_GROUPS,
    SSM_KERNEL,
    SSM_RANK,
    SSM_STATE,
    Weights,
    attention,
    default_embd,
    delta_net,
    ends,
    ffn,
    gated_attention,
    mtp_block,
)
from tests.models.chain import Chain, acceptance, disagreeing, perturbed, random_chain, stationary
from tests.models.vocabulary import N_VOCAB, add_vocabulary, token_bytes, vocabulary

__all__ = [
    "LOG_P_MIN",
    "N_VOCAB",
    "Chain",
    "acceptance",
    "disagreeing",
    "perturbed",
    "random_chain",
    "stationary",
    "token_bytes",
    "vocabulary",
    "write_llama",
    "write_qwen35",
    "write_qwen35_mtp_only",
    "write_standard_set",
]


def write_llama(
    path: Path,
    chain: Chain,
    *,
    n_layer: int = 2,
    n_embd: int | None = None,
    n_ff: int | None = None,
    n_head: int | None = None,
    n_ctx_train: int = 4096,
    texts: Sequence[str] | None = None,
    add_bos: bool = False,
    drop: Collection[str] = (),
) -> Path:
    """A llama file that speaks `chain`. Depth and widths set its cost, `texts` its token texts."""
    n_embd = n_embd or default_embd(chain)
    n_head = n_head or n_embd // N_EMBD_HEAD
    writer = _writer(path, "llama", n_layer, n_embd, n_ff or 2 * n_embd, n_head, n_ctx_train)
    writer.add_rope_dimension_count(n_embd // n_head)
    writer.add_vocab_size(len(chain))
    add_vocabulary(writer, texts or vocabulary(len(chain)), add_bos=add_bos)
    tensors = ends(chain, n_embd)
    for i in range(n_layer):
        tensors |= attention(f"blk.{i}.", n_embd, n_head, n_embd // n_head)
        tensors |= ffn(f"blk.{i}.", n_embd, n_ff or 2 * n_embd, norm="ffn_norm")
    return _write(writer, tensors, drop, path)


def write_qwen35(
    path: Path,
    chain: Chain,
    *,
    mtp: Literal["full"] | None = "full",
    mtp_chain: Chain | None = None,
    n_layer: int = 4,
    n_embd: int | None = None,
    n_ff: int | None = None,
    n_head: int | None = None,
    n_ctx_train: int = 4096,
    full_attention_interval: int = 4,
    texts: Sequence[str] | None = None,
    add_bos: bool = False,
    drop: Collection[str] = (),
) -> Path:
    """A hybrid qwen35 file that speaks `chain`; its MTP block, if any, speaks `mtp_chain`.

    `n_layer` counts the trunk. Without `mtp_chain` the block has no head of its own and llama.cpp
    uses the trunk's, so it speaks `chain`. `drop` leaves out tensors by name, to make broken files.
    """
    n_embd = n_embd or default_embd(chain)
    n_ff, n_head = n_ff or 2 * n_embd, n_head or n_embd // N_EMBD_HEAD
    writer = _qwen35_writer(
        path, n_layer, n_embd, n_ff, n_head, n_ctx_train, full_attention_interval, mtp is not None
    )
    add_vocabulary(writer, texts or vocabulary(len(chain)), add_bos=add_bos)
    tensors = ends(chain, n_embd)
    for i in range(n_layer):
        full = (i + 1) % full_attention_interval == 0
        block = f"blk.{i}."
        tensors |= gated_attention(block, n_embd, n_head) if full else delta_net(block, n_embd)
        tensors |= ffn(block, n_embd, n_ff, norm="post_attention_norm")
    if mtp is not None:
        tensors |= mtp_block(f"blk.{n_layer}.", n_embd, n_ff, n_head, mtp_chain)
    return _write(writer, tensors, drop, path)


def write_qwen35_mtp_only(
    path: Path,
    chain: Chain,
    *,
    mtp_chain: Chain | None = None,
    n_layer: int = 4,
    n_embd: int | None = None,
    n_ff: int | None = None,
    n_head: int | None = None,
    n_ctx_train: int = 4096,
    texts: Sequence[str] | None = None,
    add_bos: bool = False,
    drop: Collection[str] = (),
) -> Path:
    """The MTP sidecar of `write_qwen35` with the same arguments: no trunk blocks."""
    n_embd = n_embd or default_embd(chain)
    n_ff, n_head = n_ff or 2 * n_embd, n_head or n_embd // N_EMBD_HEAD
    writer = _qwen35_writer(path, n_layer, n_embd, n_ff, n_head, n_ctx_train, 4, True)
    add_vocabulary(writer, texts or vocabulary(len(chain)), add_bos=add_bos)
    tensors = ends(chain, n_embd) | mtp_block(f"blk.{n_layer}.", n_embd, n_ff, n_head, mtp_chain)
    return _write(writer, tensors, drop, path)


def write_standard_set(folder: Path) -> dict[str, Path]:
    """One file of every kind, small enough for a second of writing."""
    folder.mkdir(parents=True, exist_ok=True)
    p = random_chain(N_VOCAB, 1)
    q = perturbed(p, 0.2, 2)
    other = [text.swapcase() if i > 9 else text for i, text in enumerate(vocabulary())]
    return {
        "target": write_llama(folder / "target.gguf", p, n_layer=4),
        "draft": write_llama(folder / "draft.gguf", q, n_layer=1),
        "stranger": write_llama(folder / "stranger.gguf", q, n_layer=1, texts=other),
        "hybrid": write_qwen35(folder / "hybrid.gguf", p, mtp=None),
        "hybrid-mtp": write_qwen35(folder / "hybrid-mtp.gguf", p, mtp_chain=q),
        "hybrid-mtp-tied": write_qwen35(folder / "hybrid-mtp-tied.gguf", p),
        "mtp-sidecar": write_qwen35_mtp_only(folder / "mtp-sidecar.gguf", p, mtp_chain=q),
    }


def _writer(
    path: Path, arch: str, n_layer_all: int, n_embd: int, n_ff: int, n_head: int, n_ctx: int
) -> GGUFWriter:
    writer = GGUFWriter(path, arch)
    writer.add_name(f"markov {path.stem}")
    writer.add_file_type(0)
    writer.add_block_count(n_layer_all)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    return writer


def _qwen35_writer(
    path: Path,
    n_layer: int,
    n_embd: int,
    n_ff: int,
    n_head: int,
    n_ctx: int,
    interval: int,
    mtp: bool,
) -> GGUFWriter:
    writer = _writer(path, "qwen35", n_layer + mtp, n_embd, n_ff, n_head, n_ctx)
    writer.add_key_length(N_EMBD_HEAD)
    writer.add_value_length(N_EMBD_HEAD)
    writer.add_rope_dimension_count(N_EMBD_HEAD)
    writer.add_rope_dimension_sections([6, 5, 5, 0])
    writer.add_uint32("qwen35.full_attention_interval", interval)
    writer.add_ssm_conv_kernel(SSM_KERNEL)
    writer.add_ssm_inner_size(SSM_STATE * SSM_RANK)
    writer.add_ssm_state_size(SSM_STATE)
    writer.add_ssm_time_step_rank(SSM_RANK)
    writer.add_ssm_group_count(SSM_GROUPS)
    if mtp:
        writer.add_uint32("qwen35.nextn_predict_layers", 1)
    return writer


def _write(
    writer: GGUFWriter, tensors: dict[str, Weights], drop: Collection[str], path: Path
) -> Path:
    for name in drop:
        del tensors[name]
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


if __name__ == "__main__":
    for path in write_standard_set(Path(sys.argv[1])).values():
        print(path)
