"""Pairs of vocabularies that break llama.cpp's rules one by one, and its rules once more.

`upstream_rule` judges from what the C API of real llama.cpp says about two loaded files; it shares
nothing with gguftools.pairing.vocab but the names of the rules.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.models import bytes as raw
from tests.models.tiny_vocab import Facts, TinyVocab, words

PRES = ("gpt-2", "qwen2", "deepseek-r1-qwen", "llama-bpe", "glm4", "gemma4", "tekken")
MODELS = ("llama", "gpt2", "gemma4", "bert", "t5", "rwkv", "whitespace")


def upstream_rule(target: Facts, draft: Facts) -> tuple[str | None, int | None]:
    """The first rule that common_speculative_are_compatible fails, and the token id of the last."""
    if target.type != draft.type:
        return "vocab-type", None
    if target.add_bos != draft.add_bos or (target.add_bos and target.bos != draft.bos):
        return "bos", None
    if target.add_eos != draft.add_eos or (target.add_eos and target.eos != draft.eos):
        return "eos", None
    n_target, n_draft = len(target.texts), len(draft.texts)
    if max(n_target, n_draft) - min(n_target, n_draft) > 128:
        return "vocab-size", None
    i = 5
    while i < n_target and i < n_draft:
        if target.texts[i] != draft.texts[i]:
            return "token-text", i
        i += 1
    return None, None


def random_vocab(rng: random.Random) -> TinyVocab:
    """A vocabulary of 150 to 300 tokens with some of the things that files have."""
    texts = words(rng.randrange(150, 300))
    if rng.random() < 0.3:
        texts[rng.randrange(5, len(texts))] = rng.choice([b"", b"\0tail"])
    vocab = TinyVocab(texts, model="gpt2", pre=rng.choice(PRES))
    if rng.random() < 0.4:
        vocab = replace(vocab, model=rng.choice(MODELS))
    return _flagged(vocab, rng)


def variation(vocab: TinyVocab, rng: random.Random) -> TinyVocab:
    """The same vocabulary with one thing changed, which may or may not matter."""
    texts, n = list(vocab.tokens), len(vocab.tokens)
    match rng.randrange(9):
        case 0:
            return replace(vocab, model=rng.choice(MODELS))
        case 1:
            return replace(vocab, pre=rng.choice(PRES))
        case 2:
            return _flagged(vocab, rng)
        case 3:
            more = [b"[PAD%d]" % i for i in range(n, n + rng.choice([1, 127, 128, 129, 200]))]
            return replace(vocab, tokens=texts + more)
        case 4:
            return replace(vocab, tokens=texts[: max(n - rng.choice([1, 100, 128, 129]), 6)])
        case 5:
            texts[rng.randrange(5)] += b"x"
            return replace(vocab, tokens=texts)
        case 6:
            texts[rng.choice([5, 6, n // 2, n - 1])] = b"changed"
            return replace(vocab, tokens=texts)
        case 7:
            # What llama.cpp calls an empty token, and what hides behind a NUL.
            i = rng.randrange(5, n)
            texts[i] = rng.choice([b"", b"[EMPTY_%d]" % i, texts[i] + b"\0hidden"])
            return replace(vocab, tokens=texts)
        case _:
            return vocab


def random_pair(rng: random.Random) -> tuple[TinyVocab, TinyVocab]:
    """A target and a draft: a variation of it, or of a variation."""
    target = random_vocab(rng)
    draft = variation(target, rng)
    return (target, draft) if rng.random() < 0.7 else (target, variation(draft, rng))


def _flagged(vocab: TinyVocab, rng: random.Random) -> TinyVocab:
    keys: list[tuple[str, int, int | bool]] = []
    for which in ("bos", "eos"):
        if rng.random() < 0.5:
            keys.append((f"add_{which}_token", raw.BOOL, rng.random() < 0.6))
        if rng.random() < 0.5:
            keys.append((f"{which}_token_id", raw.U32, rng.choice([1, 2, 7, 5000])))
    return replace(vocab, keys=tuple(keys))
