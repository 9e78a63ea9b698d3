"""Small whole files of every kind of target and draft: random weights, a real token list."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.models import bytes as raw
from tests.models.tiny import TinyModel, gemma4, tiny
from tests.models.tiny_vocab import TinyVocab, words

F32, I64 = 0, 27
ALIGNMENT = 32
N_EMBD, N_FF, N_HEAD, N_HEAD_KV, N_HEAD_DIM = 32, 48, 2, 1, 16
N_WORDS = 300  # more than the 128 by which two lists may differ
N_WORDS_MTP = 40  # of the tiny MTP models
_NOISE = np.random.default_rng(0).standard_normal(1 << 16, np.float32) / 8
_ROWS_OF_VOCAB = ("token_embd.weight", "output.weight", "embed_tokens.weight",
                  "shared_head_head.weight", "markov_w1.weight", "markov_w2.weight")  # fmt: skip

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PairFile:
    """A model, its vocabulary and its maps of token ids (I64 tensors), before they are written."""

    model: TinyModel
    vocab: TinyVocab | None
    maps: Mapping[str, Sequence[int]] = field(default_factory=dict)
    n_written: int = N_WORDS  # ids from here on are padding: they are never written

    def keys(self, **keys: Any) -> PairFile:
        """Keys by suffix set (`__` stands for a dot), or removed with None."""
        return replace(self, model=self.model.with_keys(**keys))

    def without(self, *names: str) -> PairFile:
        return replace(self, model=self.model.without(*names))

    def having(self, shapes: Mapping[str, Shape]) -> PairFile:
        return replace(self, model=self.model.having(**shapes))

    def speaking(self, vocab: TinyVocab | None) -> PairFile:
        """With another vocabulary; matrices with one row per token grow or shrink with it."""
        if vocab is None or self.vocab is None:
            return replace(self, vocab=vocab)
        old, new = len(self.vocab.tokens), len(vocab.tokens)
        tensors = {
            name: (*shape[:-1], new)
            if name.endswith(_ROWS_OF_VOCAB) and shape[-1] == old
            else shape
            for name, shape in self.model.tensors.items()
        }
        return replace(self, vocab=vocab, model=replace(self.model, tensors=tensors)).keys(
            vocab_size=new
        )

    def words(self, n: int, changes: Mapping[int, bytes] | None = None) -> PairFile:
        """With n words as vocabulary, some of them changed."""
        return self.speaking(wordy(n, changes))

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        path.write_bytes(_bytes(self))
        return path


def wordy(n: int, changes: Mapping[int, bytes] | None = None) -> TinyVocab:
    """n words, some of them changed."""
    texts = words(n)
    for i in range(N_WORDS, n):
        texts[i] = b"[PAD%d]" % i
    for i, text in (changes or {}).items():
        texts[i] = text
    return TinyVocab(texts)


def llama(
    arch: str = "llama",
    *,
    n_words: int = N_WORDS,
    n_embd: int = N_EMBD,
    n_layer: int = 2,
    extra: Sequence[str] = (),
) -> PairFile:
    """A dense transformer; `extra` names further norms of a head's width, as qwen3 has them."""
    tensors: dict[str, Shape] = {
        "token_embd.weight": (n_embd, n_words),
        "output_norm.weight": (n_embd,),
        "output.weight": (n_embd, n_words),
    }
    for i in range(n_layer):
        tensors |= _block(f"blk.{i}.", n_embd, n_embd)
        tensors |= {f"blk.{i}.{name}.weight": (N_HEAD_DIM,) for name in extra}
    return PairFile(TinyModel(arch, _dense_keys(n_embd, n_layer, n_words), tensors), wordy(n_words))


def qwen3(**sizes: int) -> PairFile:
    """A target whose attention norms its queries and keys."""
    return llama("qwen3", extra=("attn_q_norm", "attn_k_norm"), **sizes)


def qwen2(n_words: int = N_WORDS) -> PairFile:
    """A target that does not hand out the inputs of its layers."""
    made = llama("qwen2", n_words=n_words)
    width = {"q": N_HEAD * N_HEAD_DIM, "k": N_HEAD_DIM, "v": N_HEAD_DIM}
    return made.having({f"blk.{i}.attn_{x}.bias": (n,) for i in (0, 1) for x, n in width.items()})


def mamba(n_words: int = N_WORDS) -> PairFile:
    """A recurrent model."""
    inner, state, rank, conv = 2 * N_EMBD, 16, 2, 4
    keys = {
        **_dense_keys(N_EMBD, 2, n_words),
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "ssm.conv_kernel": conv,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
    }
    tensors: dict[str, Shape] = {
        "token_embd.weight": (N_EMBD, n_words),
        "output_norm.weight": (N_EMBD,),
    }
    for i in (0, 1):
        at = f"blk.{i}."
        tensors |= {
            f"{at}attn_norm.weight": (N_EMBD,),
            f"{at}ssm_in.weight": (N_EMBD, 2 * inner),
            f"{at}ssm_conv1d.weight": (conv, inner),
            f"{at}ssm_conv1d.bias": (inner,),
            f"{at}ssm_x.weight": (inner, rank + 2 * state),
            f"{at}ssm_dt.weight": (rank, inner),
            f"{at}ssm_dt.bias": (inner,),
            f"{at}ssm_a": (state, inner),
            f"{at}ssm_d": (inner,),
            f"{at}ssm_out.weight": (inner, N_EMBD),
        }
    return PairFile(TinyModel("mamba", keys, tensors), wordy(n_words))


def mtp(arch: str, **options: Any) -> PairFile:
    """A model with its MTP heads (`tiny`) and words for a vocabulary."""
    made = tiny(arch, fused=arch == "mimo2", **options)
    return PairFile(made, wordy(N_WORDS_MTP), n_written=N_WORDS_MTP).keys(context_length=512)


def assistant_target() -> PairFile:
    """The gemma4 of the tiny gemma4-assistant."""
    made = PairFile(gemma4(), wordy(N_WORDS_MTP), n_written=N_WORDS_MTP)
    return made.keys(context_length=512)


def sidecar(made: PairFile) -> PairFile:
    """The MTP blocks of a file alone."""
    model = made.model
    n_layer = model.n_layer_all - model.n_nextn
    return made.without(*(name for i in range(n_layer) for name in model.block(i)))


def eagle3(
    *, n_embd: int = N_EMBD, n_embd_target: int = N_EMBD, n_words: int = N_WORDS, n_layer: int = 1
) -> PairFile:
    """An EAGLE-3 draft with its own embedding and output."""
    keys = {
        **_dense_keys(n_embd, n_layer, n_words),
        "target_layers": [0, 1, 2],
        "target_hidden_size": n_embd_target,
    }
    tensors: dict[str, Shape] = {
        "fc.weight": (3 * n_embd_target, n_embd),
        "output_norm.weight": (n_embd,),
        "token_embd.weight": (n_embd, n_words),
        "output.weight": (n_embd, n_words),
    }
    for i in range(n_layer):
        tensors |= _block(f"blk.{i}.", n_embd, 2 * n_embd)
        tensors[f"blk.{i}.attn_norm_2.weight"] = (n_embd,)
    return PairFile(TinyModel("eagle3", keys, tensors), wordy(n_words))


def dflash(
    *, n_embd: int = N_EMBD, n_words: int = N_WORDS, layers: Sequence[int] = (0, 1)
) -> PairFile:
    """A DFlash draft with its own embedding and output."""
    keys = {**_dense_keys(n_embd, 1, n_words), "target_layers": list(layers), "block_size": 4}
    tensors: dict[str, Shape] = {
        "fc.weight": (len(layers) * n_embd, n_embd),
        "enc.output_norm.weight": (n_embd,),
        "output_norm.weight": (n_embd,),
        "token_embd.weight": (n_embd, n_words),
        "output.weight": (n_embd, n_words),
        **_block("blk.0.", n_embd, n_embd),
        "blk.0.attn_q_norm.weight": (N_HEAD_DIM,),
        "blk.0.attn_k_norm.weight": (N_HEAD_DIM,),
    }
    made = PairFile(TinyModel("dflash", keys, tensors), wordy(n_words))
    return made.speaking(masked(made.vocab))


def masked(vocab: TinyVocab | None) -> TinyVocab:
    """With its first token as the mask that a block draft fills in."""
    assert vocab is not None
    return replace(vocab, keys=(*vocab.keys, ("mask_token_id", raw.U32, 0)))


def dspark(rank: int = 8, **sizes: Any) -> PairFile:
    """A DFlash draft with a Markov head."""
    made = dflash(**sizes)
    assert made.vocab is not None
    n_words = len(made.vocab.tokens)
    return made.having({"markov_w1.weight": (rank, n_words), "markov_w2.weight": (rank, n_words)})


def reduced(draft: PairFile, ids: Sequence[int], *, d2t: bool = True) -> PairFile:
    """With an output of few rows, and the map from them to the target's ids."""
    n_embd = draft.model.tensors["output_norm.weight"][0]
    shapes: dict[str, Shape] = {"output.weight": (n_embd, len(ids))}
    if "markov_w2.weight" in draft.model.tensors:
        shapes["markov_w2.weight"] = (draft.model.tensors["markov_w2.weight"][0], len(ids))
    made = draft.having(shapes)
    return replace(made, maps={"d2t": tuple(ids)}) if d2t else made


def _dense_keys(n_embd: int, n_layer: int, n_words: int) -> dict[str, Any]:
    return {
        "context_length": 512,
        "embedding_length": n_embd,
        "block_count": n_layer,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEAD,
        "attention.head_count_kv": N_HEAD_KV,
        "attention.key_length": N_HEAD_DIM,
        "attention.value_length": N_HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": N_HEAD_DIM,
        "vocab_size": n_words,
    }


def _block(at: str, n_embd: int, n_input: int) -> dict[str, Shape]:
    """Attention over `n_input` wide rows, and a gated feed-forward."""
    return {
        f"{at}attn_norm.weight": (n_embd,),
        f"{at}attn_q.weight": (n_input, N_HEAD * N_HEAD_DIM),
        f"{at}attn_k.weight": (n_input, N_HEAD_KV * N_HEAD_DIM),
        f"{at}attn_v.weight": (n_input, N_HEAD_KV * N_HEAD_DIM),
        f"{at}attn_output.weight": (N_HEAD * N_HEAD_DIM, n_embd),
        f"{at}ffn_norm.weight": (n_embd,),
        f"{at}ffn_gate.weight": (n_embd, N_FF),
        f"{at}ffn_up.weight": (n_embd, N_FF),
        f"{at}ffn_down.weight": (N_FF, n_embd),
    }


def _bytes(made: PairFile) -> bytes:
    model, vocab = made.model, made.vocab
    entries = [raw.entry("general.architecture", raw.STRING, model.arch)]
    entries += vocab.entries()[1:] if vocab is not None else []
    for suffix, value in model.metadata.items():
        if not suffix.startswith("tokenizer.") or vocab is None:
            key = (
                suffix
                if suffix.startswith(("tokenizer.", "general."))
                else f"{model.arch}.{suffix}"
            )
            entries.append(_entry(key, value))
    rows, blobs, offset = [], [], 0
    for name, shape, type_id, blob in _tensors(made):
        rows.append(raw.tensor(name, shape, type_id, offset))
        blobs.append(raw.padded(blob, ALIGNMENT))
        offset += len(blobs[-1])
    return raw.padded(raw.header(entries, rows), ALIGNMENT) + b"".join(blobs)


def _tensors(made: PairFile) -> list[tuple[str, Shape, int, bytes]]:
    found = [
        (name, shape, F32, _weights(name, shape, made.n_written).tobytes())
        for name, shape in made.model.tensors.items()
    ]
    for name, ids in made.maps.items():
        found.append((name, (len(ids),), I64, struct.pack(f"<{len(ids)}q", *ids)))
    return found


def _weights(name: str, shape: Shape, n_written: int) -> npt.NDArray[np.float32]:
    n = int(np.prod(shape))
    if name.endswith(("norm.weight", "norm_2.weight", "scale")):
        return np.ones(n, np.float32)
    weights = np.resize(_NOISE, n).astype(np.float32).reshape(shape[::-1])
    if name.endswith(_ROWS_OF_VOCAB):
        weights[n_written:] = 0
    return weights


def _entry(key: str, value: Any) -> bytes:
    match value:
        case list():
            type_ids = {bool: raw.BOOL, int: raw.I32, float: raw.F32}
            return raw.array(key, type_ids[type(value[0])], value)
        case str():
            return raw.entry(key, raw.STRING, value)
        case bool():
            return raw.entry(key, raw.BOOL, value)
        case int():
            return raw.entry(key, raw.U32, value)
        case _:
            return raw.entry(key, raw.F32, value)
