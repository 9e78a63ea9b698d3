"""Tensors of Markov files: one-hot ends, and blocks that compute at full cost and add nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tests.models.chain import Chain

# Logit of a token that cannot follow: finite, and e^-60 is below any sum of a million of them.
LOG_P_MIN = -60.0

Weights = npt.NDArray[np.float32]

SSM_STATE, SSM_GROUPS, SSM_RANK, SSM_KERNEL = 32, 1, 2, 4
N_EMBD_HEAD = 32


def default_embd(chain: Chain) -> int:
    return -(-len(chain) // 64) * 64


def ends(chain: Chain, n_embd: int) -> dict[str, Weights]:
    """Embeddings, final norm and output. Rows of length sqrt(n_embd) pass an RMS norm unchanged."""
    embedding = np.zeros((len(chain), n_embd), np.float32)
    np.fill_diagonal(embedding, np.sqrt(n_embd))
    return {
        "token_embd.weight": embedding,
        "output_norm.weight": _ones(n_embd),
        "output.weight": _head(chain, n_embd),
    }


def _head(chain: Chain, n_embd: int) -> Weights:
    """The matrix that maps sqrt(n_embd) times one-hot i to log P(.|i)."""
    log_p = np.log(np.maximum(chain, np.exp(LOG_P_MIN)))
    head = np.zeros((len(chain), n_embd), np.float32)
    head[:, : len(chain)] = log_p.T / np.sqrt(n_embd)
    return head


def attention(block: str, n_embd: int, n_head: int, n_head_dim: int) -> dict[str, Weights]:
    width = n_head * n_head_dim
    return {
        f"{block}attn_norm.weight": _ones(n_embd),
        f"{block}attn_q.weight": _noise(width, n_embd),
        f"{block}attn_k.weight": _noise(width, n_embd),
        f"{block}attn_v.weight": _noise(width, n_embd),
        f"{block}attn_output.weight": _zeros(n_embd, width),
    }


def gated_attention(block: str, n_embd: int, n_head: int) -> dict[str, Weights]:
    return {
        **attention(block, n_embd, n_head, N_EMBD_HEAD),
        f"{block}attn_q.weight": _noise(2 * n_head * N_EMBD_HEAD, n_embd),
        f"{block}attn_q_norm.weight": _ones(N_EMBD_HEAD),
        f"{block}attn_k_norm.weight": _ones(N_EMBD_HEAD),
    }


def delta_net(block: str, n_embd: int) -> dict[str, Weights]:
    inner = SSM_STATE * SSM_RANK
    mixed = 2 * SSM_STATE * SSM_GROUPS + inner
    return {
        f"{block}attn_norm.weight": _ones(n_embd),
        f"{block}attn_qkv.weight": _noise(mixed, n_embd),
        f"{block}attn_gate.weight": _noise(inner, n_embd),
        f"{block}ssm_conv1d.weight": _noise(mixed, SSM_KERNEL),
        f"{block}ssm_dt.bias": _zeros(SSM_RANK),
        f"{block}ssm_a": -_ones(SSM_RANK),
        f"{block}ssm_beta.weight": _noise(SSM_RANK, n_embd),
        f"{block}ssm_alpha.weight": _noise(SSM_RANK, n_embd),
        f"{block}ssm_norm.weight": _ones(SSM_STATE),
        f"{block}ssm_out.weight": _zeros(n_embd, inner),
    }


def ffn(block: str, n_embd: int, n_ff: int, *, norm: str) -> dict[str, Weights]:
    return {
        f"{block}{norm}.weight": _ones(n_embd),
        f"{block}ffn_gate.weight": _noise(n_ff, n_embd),
        f"{block}ffn_up.weight": _noise(n_ff, n_embd),
        f"{block}ffn_down.weight": _zeros(n_embd, n_ff),
    }


def mtp_block(
    block: str, n_embd: int, n_ff: int, n_head: int, chain: Chain | None
) -> dict[str, Weights]:
    """An MTP block whose eh_proj keeps the token embedding and ignores the hidden row."""
    nextn = {
        f"{block}nextn.eh_proj.weight": np.eye(n_embd, 2 * n_embd, dtype=np.float32),
        f"{block}nextn.enorm.weight": _ones(n_embd),
        f"{block}nextn.hnorm.weight": _ones(n_embd),
        f"{block}nextn.shared_head_norm.weight": _ones(n_embd),
    }
    if chain is not None:
        nextn[f"{block}nextn.shared_head_head.weight"] = _head(chain, n_embd)
    attention_and_norms = gated_attention(block, n_embd, n_head)
    return attention_and_norms | ffn(block, n_embd, n_ff, norm="post_attention_norm") | nextn


def _ones(n: int) -> Weights:
    return np.ones(n, np.float32)


def _zeros(*shape: int) -> Weights:
    return np.zeros(shape, np.float32)


def _noise(*shape: int) -> Weights:
    """Weights that cost time and change nothing; the seed only has to be the same every time."""
    noise = np.random.default_rng(shape[0]).standard_normal(shape, np.float32)
    return noise * np.float32(0.05)
