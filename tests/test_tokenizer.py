"""Vocab against real llama.cpp: what it reads, and what it refuses."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from gguftools.gguf.reader import read_header
from gguftools.gguf.strings import RUN, StringArray
from gguftools.gguf.token_texts import N_TOKENS_CHECKED, first_duplicate
from gguftools.gguf.tokenizer import PRE_TOKENIZERS, Vocab, read_vocab, vocab_problems
from tests.models import bytes as raw
from tests.models.tiny_vocab import (
    TYPES,
    Facts,
    TinyVocab,
    ask_llama,
    with_byte_tokens,
    words,
)

MODELS = ("llama", "gpt2", "hybriddna", "whitespace", "gemma4", "bert", "t5", "rwkv", "test")
# Known to llama.cpp b11434 and not to the older one in llama-cpp-python 0.3.36.
NEWER_THAN_BINDING = {"mmbert"}


def _plamo2(**changes: object) -> TinyVocab:
    tokens, arrays = with_byte_tokens(words(40))
    return TinyVocab(tokens, model="plamo2", arrays=arrays, **changes)  # type: ignore[arg-type]


def _flags(add_bos: bool, add_eos: bool) -> tuple[tuple[str, int, bool], ...]:
    return ("add_bos_token", raw.BOOL, add_bos), ("add_eos_token", raw.BOOL, add_eos)


def _ids(bos: int, eos: int, kind: int = raw.U32) -> tuple[tuple[str, int, int], ...]:
    return ("bos_token_id", kind, bos), ("eos_token_id", kind, eos)


def _texts(**changes: bytes) -> list[bytes]:
    texts = words(40)
    for name, text in changes.items():
        texts[int(name[1:])] = text
    return texts


def _accepted() -> list[TinyVocab]:
    """Vocabularies that llama.cpp loads."""
    cases = [TinyVocab(words(40), model=model) for model in MODELS]
    cases += [TinyVocab(words(n), model=model) for model in MODELS for n in (9, 103)]
    cases += [
        TinyVocab(words(40), model=m, keys=_flags(bos, eos))
        for m in ("llama", "gpt2", "gemma4", "t5")
        for bos, eos in ((False, False), (True, False), (False, True), (True, True))
    ]
    cases += [TinyVocab(words(40), model=m, keys=_ids(7, 39)) for m in MODELS]
    cases += [TinyVocab(words(9), model=m, keys=_ids(9, 1 << 31)) for m in MODELS]
    cases += [TinyVocab(words(40), pre=pre) for pre in sorted(PRE_TOKENIZERS - NEWER_THAN_BINDING)]
    cases += [
        TinyVocab(words(40), pre=pre, keys=_flags(False, False))
        for pre in ("llama-bpe", "gemma4", "granite-embed-multi-311m", "glm4")
    ]
    cases += [TinyVocab(words(40), pre=None), TinyVocab(words(40), pre="kimi-k2", merges=None)]
    cases += [
        TinyVocab(_texts(_6=b"", _7=b"\0", _8=b"a\0b", _9=b"\xff\xfe", _10=b"[EMPTY_10]")),
        TinyVocab(
            _texts(_6=b"<oov>", _7=b"CCC\xee\x80\x80", _8=b"\xee\x80\x80"), model="hybriddna"
        ),
        TinyVocab(_texts(_7=b"CCC\xee\x80\x80"), model="hybriddna"),
        _plamo2(),
        _plamo2(keys=_flags(True, True)),
    ]
    return cases


REFUSED = {
    "an unknown model": TinyVocab(words(40), model="sentencepiece"),
    "no model": TinyVocab(words(40), model=""),
    "an unknown pre-tokenizer": TinyVocab(words(40), pre="qwen99"),
    "no merges": TinyVocab(words(40), merges=None),
    "no merges for gemma4": TinyVocab(words(40), model="gemma4", pre="kimi-k2", merges=None),
    "two equal texts": TinyVocab(_texts(_20=b"w9", _30=b"w9")),
    "texts equal up to a NUL": TinyVocab(_texts(_20=b"x\0a", _30=b"x\0b")),
    "the name of an empty token": TinyVocab(_texts(_20=b"", _21=b"[EMPTY_20]")),
    "a signed BOS id": TinyVocab(words(40), keys=_ids(1, 2, raw.I32)),
    "a wide EOT id": TinyVocab(words(40), keys=(("eot_token_id", raw.U64, 3),)),
    "a flag that is a number": TinyVocab(words(40), keys=(("add_bos_token", raw.U8, 1),)),
    "scores that are too few": TinyVocab(words(40), arrays={"scores": (raw.F32, [0.0] * 39)}),
    "scores of bytes": TinyVocab(words(40), arrays={"scores": (raw.U8, [0] * 40)}),
    "types that are too few": TinyVocab(words(40), arrays={"token_type": (raw.I32, [1] * 39)}),
    "unsigned types": TinyVocab(words(40), arrays={"token_type": (raw.U32, [1] * 40)}),
}


def _as_llama_says(vocab: Vocab) -> Facts:
    def or_null(token: int | None) -> int:
        return -1 if token is None else token

    return Facts(
        TYPES.index(vocab.type),
        vocab.add_bos,
        vocab.add_eos,
        or_null(vocab.bos),
        or_null(vocab.eos),
        tuple(vocab.texts()),
    )


def test_a_vocabulary_is_what_llama_cpp_reads(tmp_path: Path) -> None:
    cases = _accepted()
    for case, facts in zip(cases, ask_llama(tmp_path, cases), strict=True):
        vocab = read_vocab(case.header())
        assert vocab is not None
        assert _as_llama_says(vocab) == facts, case
        assert not [p for p in vocab_problems(case.header()) if p.severity == "error"], case


def test_what_llama_cpp_refuses_is_an_error_here(tmp_path: Path) -> None:
    for (name, case), facts in zip(
        REFUSED.items(), ask_llama(tmp_path, REFUSED.values()), strict=True
    ):
        assert facts is None, name
        assert [p for p in vocab_problems(case.header()) if p.severity == "error"], name


def test_a_model_without_vocabulary_has_none_in_both(tmp_path: Path) -> None:
    case = TinyVocab([], model="none", pre=None)
    (facts,) = ask_llama(tmp_path, [case])
    assert facts is not None
    assert (TYPES[facts.type], facts.texts) == ("NONE", ())
    vocab = read_vocab(case.header())
    assert vocab is not None
    assert vocab.type == "NONE"


def test_a_repaired_special_id_is_a_warning() -> None:
    problems = vocab_problems(TinyVocab(words(40), keys=_ids(40, 2)).header())
    assert [(p.code, p.severity) for p in problems] == [("special-token-range", "warning")]


def test_a_missing_pre_tokenizer_is_a_warning() -> None:
    problems = vocab_problems(TinyVocab(words(40), pre=None).header())
    assert [(p.code, p.severity) for p in problems] == [("pre-tokenizer-missing", "warning")]


def test_equal_token_lists_have_equal_fingerprints() -> None:
    one, same, other = (
        read_vocab(TinyVocab(texts).header()) for texts in (words(40), words(40), words(41))
    )
    assert one is not None
    assert same is not None
    assert other is not None
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


def test_big_endian_texts_are_read_alike() -> None:
    entries = [
        raw.entry("tokenizer.ggml.model", raw.STRING, "gpt2", order=">"),
        raw.array("tokenizer.ggml.tokens", raw.STRING, words(40), order=">"),
    ]
    data = raw.header(entries, order=">")
    vocab = read_vocab(read_header(io.BytesIO(data), "big-endian.gguf"))
    assert vocab is not None
    assert vocab.texts() == words(40)


@pytest.mark.parametrize("type_", ["adapter", "mmproj", "imatrix"])
def test_a_file_that_is_no_model_needs_no_tokenizer(type_: str) -> None:
    entries = [raw.entry("general.architecture", raw.STRING, "llama")]
    entries.append(raw.entry("general.type", raw.STRING, type_))
    assert vocab_problems(read_header(io.BytesIO(raw.header(entries)), "x.gguf")) == ()


def _array(texts: list[bytes], order: str = "<") -> StringArray:
    data = raw.header([raw.array("k", raw.STRING, texts, order=order)], order=order)
    value = read_header(io.BytesIO(data), "texts.gguf").metadata["k"]
    assert isinstance(value, StringArray)
    return value


def _as_read(texts: list[bytes]) -> list[bytes]:
    return [t.split(b"\0")[0] or b"[EMPTY_%d]" % i for i, t in enumerate(texts)]


def _first_duplicate_slowly(texts: list[bytes]) -> tuple[int, int] | None:
    seen: dict[bytes, int] = {}
    for i, text in enumerate(_as_read(texts)):
        if text in seen:
            return seen[text], i
        seen[text] = i
    return None


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_first_two_equal_texts_are_found_whatever_lies_between(order: str) -> None:
    rng, n_found = random.Random(3), 0
    for n in [*range(12), 63, 255, 256, 257, 511, 1200, 3000] * 3:
        texts = [b"%x" % i for i in range(n)]
        for _ in range(rng.choice((0, 1, 4))):
            at, other = (rng.randrange(n) if n else 0 for _ in range(2))
            odd = [b"", b"\0", b"a\0b", b"\6" + bytes(7), b"x" * 64, b"x" * 300, b"[EMPTY_7]"]
            texts[at : at + 1] = [rng.choice([*odd, *texts[other : other + 1]])]
        expected = _first_duplicate_slowly(texts)
        assert first_duplicate(_array(texts, order)) == expected
        assert first_duplicate(StringArray(_array(texts, order).raw, len(texts), order)) == expected  # type: ignore[arg-type]
        n_found += expected is not None
    assert 5 < n_found < 50


def test_a_length_that_hides_in_a_text_is_not_taken_for_one() -> None:
    """Runs that a search could split elsewhere than where the lengths say."""
    trap = b"q" * 70 + b"\3" + bytes(7) + b"abc" + b"\3" + bytes(7)
    texts = [trap, *(b"%03x" % i for i in range(RUN - 1))]
    assert first_duplicate(_array(texts)) is None
    assert first_duplicate(_array([*texts, b"00f"])) == (16, RUN)


def test_strings_of_every_length_are_walked_in_runs() -> None:
    rng = random.Random(5)
    for _ in range(20):
        top = rng.choice((8, 63, 66, 300))
        texts = [rng.randbytes(rng.randrange(top)) for _ in range(rng.randrange(4 * RUN))]
        array = _array(texts)
        assert list(array) == texts
        assert [n for n, _, _ in array.runs()] == [
            min(RUN, len(texts) - i) for i in range(0, len(texts), RUN)
        ] or not texts


def test_a_vocabulary_of_absurd_length_is_not_searched_and_says_so() -> None:
    n = N_TOKENS_CHECKED + 1
    entries = [
        raw.entry("tokenizer.ggml.model", raw.STRING, "llama"),
        raw.array("tokenizer.ggml.tokens", raw.STRING, [], count=n) + bytes(8 * n),
    ]
    found = vocab_problems(read_header(io.BytesIO(raw.header(entries)), "long.gguf"))
    assert [(p.code, p.severity) for p in found] == [("tokens-unchecked", "warning")]
