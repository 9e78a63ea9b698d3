"""The vocabulary as llama.cpp would load it: type, flags and special ids with their defaults."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from gguftools.gguf.reader import Header, StringArray

# tokenizer.ggml.model -> type, default BOS, EOS, add_bos, add_eos; src/llama-vocab.cpp, b11434.
_MODELS: dict[str, tuple[str, int | None, int | None, bool, bool]] = {
    "llama": ("SPM", 1, 2, True, False),
    "gpt2": ("BPE", 11, 11, False, False),
    "hybriddna": ("BPE", 11, 11, False, False),
    "whitespace": ("BPE", 11, 11, False, False),
    "gemma4": ("BPE", None, None, True, False),
    "bert": ("WPM", 101, None, True, False),
    "t5": ("UGM", None, 1, False, True),
    "rwkv": ("RWKV", None, None, False, False),
    "plamo2": ("PLAMO2", 1, 2, False, False),
    "none": ("NONE", None, None, False, False),
    "no_vocab": ("NONE", None, None, False, False),
}

# BPE pre-tokenizers that switch add_bos on by default; src/llama-vocab.cpp:2204-2367, b11434.
_PRE_ADDS_BOS = frozenset(
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken "
    "chameleon".split()
)


@dataclass(frozen=True, slots=True)
class Vocab:
    """A tokenizer's identity. `tokens` are raw bytes as in the file; ids count from 0."""

    model: str  # tokenizer.ggml.model
    type: str  # SPM, BPE, WPM, UGM, RWKV, PLAMO2, NONE or "" for a model llama.cpp does not know
    pre: str
    tokens: StringArray
    bos: int | None
    eos: int | None
    add_bos: bool
    add_eos: bool

    @property
    def n_tokens(self) -> int:
        """Length of the token list, padding entries included."""
        return len(self.tokens)

    def fingerprint(self) -> str:
        """sha256 of the token list as it lies in the file: equal lists, equal fingerprints."""
        return hashlib.sha256(self.tokens.raw).hexdigest()


def read_vocab(header: Header) -> Vocab | None:
    """The vocabulary of a model, None if it carries no token list."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, StringArray):
        return None
    model, pre = header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")
    type_, bos, eos, add_bos, add_eos = _MODELS.get(model, ("", None, None, False, False))
    if type_ == "BPE" and pre in _PRE_ADDS_BOS:
        add_bos = True

    def flag(key: str, default: bool) -> bool:
        value = header.metadata.get(f"tokenizer.ggml.{key}")
        return value if isinstance(value, bool) else default

    def token(key: str, default: int | None) -> int | None:
        value = header.integer(f"tokenizer.ggml.{key}")
        # llama.cpp warns "bad special token" and keeps the default.
        return value if value is not None and 0 <= value < len(tokens) else default

    return Vocab(
        model=model,
        type=type_,
        pre=pre,
        tokens=tokens,
        bos=token("bos_token_id", bos),
        eos=token("eos_token_id", eos),
        add_bos=True if model == "gemma4" else flag("add_bos_token", add_bos),
        add_eos=flag("add_eos_token", add_eos),
    )
