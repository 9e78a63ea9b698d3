"""match_vocab against llama.cpp's own rules, and against what users ran into."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gguftools.gguf.reader import StringArray
from gguftools.gguf.tokenizer import Vocab, read_vocab
from gguftools.pairing.vocab import (
    FIRST_ID_CHECKED,
    VocabMatch,
    match_vocab,
    printable,
)
from gguftools.pairing.vocab_rules import (
    FIRST_NEW_FLAGS,
    FIRST_NEW_LIMIT,
    LAST_OLD_FLAGS,
    LAST_OLD_LIMIT,
    N_VOCAB_DIFF_MAX,
    N_VOCAB_DIFF_MAX_OLD,
    Rules,
    rules_of,
)
from tests.models.tiny_vocab import TinyVocab, ask_llama
from tests.models.vocab_pairs import random_pair, upstream_rule

RULES = {None, "vocab-type", "bos", "eos", "vocab-size", "token-text"}


def _vocab(vocab: TinyVocab) -> Vocab:
    found = read_vocab(vocab.header())
    assert found is not None
    return found


def _named(
    texts: list[bytes],
    *,
    pre: str = "qwen2",
    bos: int | None = None,
    eos: int | None = None,
    add_bos: bool = False,
    add_eos: bool = False,
) -> Vocab:
    packed = b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    tokens = StringArray(memoryview(packed), len(texts))
    return Vocab("gpt2", "BPE", pre, tokens, bos, eos, add_bos, add_eos)


def _words(n: int, n_named: int | None = None, changes: dict[int, bytes] | None = None) -> Vocab:
    """n tokens, those from n_named on as a converter pads them, with some texts changed."""
    return _named(_texts(n, n_named, changes))


def _texts(
    n: int, n_named: int | None = None, changes: dict[int, bytes] | None = None
) -> list[bytes]:
    n_named = n if n_named is None else n_named
    texts = [b"w%d" % i for i in range(n_named)] + [b"[PAD%d]" % i for i in range(n_named, n)]
    for i, text in (changes or {}).items():
        texts[i] = text
    return texts


def test_the_verdict_is_llama_cpps_on_random_pairs(tmp_path: Path) -> None:
    rng = random.Random(11)
    pairs = [random_pair(rng) for _ in range(90)]
    facts = ask_llama(tmp_path, [vocab for pair in pairs for vocab in pair])
    seen: Counter[str | None] = Counter()
    for (target, draft), ours, theirs in zip(pairs, facts[::2], facts[1::2], strict=True):
        if ours is None or theirs is None:
            continue  # two tokens of one text: llama.cpp loads no such file
        match = match_vocab(_vocab(target), _vocab(draft))
        rule, token_id = upstream_rule(ours, theirs)
        assert match.rule == rule, (target, draft)
        assert (match.token_id if rule == "token-text" else None) == token_id, (target, draft)
        seen[rule] += 1
    assert set(seen) == RULES
    assert seen.total() >= 60


def test_a_vocabulary_matches_itself() -> None:
    vocab = _words(300)
    match = match_vocab(vocab, vocab)
    assert match.matches
    assert match.n_checked == 300 - FIRST_ID_CHECKED
    assert match.notes == ()


def test_whether_a_pair_matches_does_not_depend_on_who_drafts() -> None:
    rng = random.Random(5)
    for _ in range(60):
        a, b = map(_vocab, random_pair(rng))
        one, other = match_vocab(a, b), match_vocab(b, a)
        assert (one.rule, one.n_different) == (other.rule, other.n_different)
        if one.rule == "token-text":
            assert (one.token_id, one.target_text, one.draft_text) == (
                other.token_id,
                other.draft_text,
                other.target_text,
            )


@pytest.mark.parametrize("n_more", [0, 1, N_VOCAB_DIFF_MAX, N_VOCAB_DIFF_MAX + 1])
def test_the_size_may_differ_by_128(n_more: int) -> None:
    match = match_vocab(_words(500 + n_more, 500), _words(500))
    assert match.rule == (None if n_more <= N_VOCAB_DIFF_MAX else "vocab-size")


@pytest.mark.parametrize("token_id", range(FIRST_ID_CHECKED))
def test_the_first_five_texts_are_free(token_id: int) -> None:
    assert match_vocab(_words(300), _words(300, changes={token_id: b"other"})).matches


def test_an_empty_token_equals_its_name() -> None:
    assert (
        match_vocab(_words(50, changes={20: b""}), _words(50, changes={20: b"[EMPTY_20]"})).rule
        is None
    )


def test_texts_are_compared_up_to_a_nul() -> None:
    assert match_vocab(_words(50, changes={20: b"a\0b"}), _words(50, changes={20: b"a"})).matches


def test_byte_order_does_not_matter() -> None:
    texts = _texts(50)
    packed = b"".join(struct.pack(">Q", len(text)) + text for text in texts)
    big = Vocab(
        "gpt2", "BPE", "qwen2", StringArray(memoryview(packed), 50, ">"), None, None, False, False
    )
    assert match_vocab(_named(texts), big).matches


# Older builds.


@pytest.mark.parametrize("n_more", [99, 100, 101, 128, 129])
def test_older_builds_allow_a_difference_of_100(n_more: int) -> None:
    target, draft = _words(500 + n_more, 500), _words(500)
    old = match_vocab(target, draft, LAST_OLD_LIMIT)
    assert old.rule == (None if n_more <= N_VOCAB_DIFF_MAX_OLD else "vocab-size")
    if old.rule:
        assert f"{n_more} apart, llama.cpp up to b{LAST_OLD_LIMIT} allows 100" in old.reason
    for build in (FIRST_NEW_LIMIT, 11434, None):
        assert match_vocab(target, draft, build).matches == (n_more <= N_VOCAB_DIFF_MAX)


@pytest.mark.parametrize("which", ["bos", "eos"])
def test_older_builds_compare_special_ids_that_nobody_adds(which: str) -> None:
    texts = _texts(300)
    sides = [_named(texts, bos=i) if which == "bos" else _named(texts, eos=i) for i in (1, 3)]
    target, draft = sides
    old = match_vocab(target, draft, LAST_OLD_FLAGS)
    assert (old.rule, old.token_id) == (which, 1)
    assert old.reason.endswith("compare it although neither adds it")
    for build in (FIRST_NEW_FLAGS, 11434, None):
        new = match_vocab(target, draft, build)
        assert new.matches
    assert f"builds of llama.cpp up to b{LAST_OLD_FLAGS} refuse this pair" in new.notes[0]
    assert match_vocab(target, target, LAST_OLD_FLAGS).matches


def test_older_builds_do_not_compare_the_type() -> None:
    target, draft = _named(_texts(300)), replace(_named(_texts(300)), model="llama", type="SPM")
    assert match_vocab(target, draft, LAST_OLD_FLAGS).matches
    assert match_vocab(target, draft).rule == "vocab-type"
    none = replace(draft, model="no_vocab", type="NONE")
    assert match_vocab(target, none, LAST_OLD_FLAGS).rule == "vocab-type"


def test_a_build_that_is_not_known_gets_the_stricter_rules() -> None:
    assert rules_of(LAST_OLD_LIMIT + 1).n_diff_max == N_VOCAB_DIFF_MAX_OLD
    assert rules_of(LAST_OLD_FLAGS + 1) == Rules(types=True, unused_ids=True)
    assert rules_of(None) == rules_of(FIRST_NEW_FLAGS) == Rules()


# What users ran into.


def test_a_named_tail_is_told_from_padding() -> None:
    tails = [b"<pad12>", b"<unused7>", b"<|reserved_special_token_3|>", b"<|extra_9|>", b"[PAD301]"]
    target = _named(_texts(300) + tails)
    assert match_vocab(target, _words(300)).notes[0].endswith(": tail padding")
    named = _named([*_texts(300), *tails, b"<tool>", b"<end>"])
    (note,) = match_vocab(named, _words(300)).notes
    assert "2 of them with a name of their own, the first '<tool>' at id 305" in note
    assert note.endswith("llama-server b11434 aborts when the target reads or writes one")
    (note,) = match_vocab(_words(300), named).notes
    assert note.endswith("llama-server b11434 aborts when the draft drafts one")


def test_qwen_sizes_that_differ_by_padding_match() -> None:  # QwenLM/Qwen3 issues 326 and 466
    match = match_vocab(_words(152064, 151646), _words(151936, 151646))
    assert match.matches
    assert match.n_checked == 151936 - FIRST_ID_CHECKED
    padding, old_builds = match.notes
    assert "128 more tokens" in padding
    assert "152064 in the target, 151936 in the draft" in padding
    assert "only 100" in old_builds


def test_a_longer_tail_counts_only_behind_an_equal_beginning() -> None:  # vllm pull 42775
    assert match_vocab(_words(152064, 151665), _words(151936, 151665)).matches
    match = match_vocab(_words(152064, 151665), _words(151936, 151665, {151643: b"<bos>"}))
    assert (match.rule, match.token_id) == ("token-text", 151643)


def test_equal_sizes_with_other_texts_do_not_match() -> None:  # xllama pull 200
    changes = {
        151665: b"[PAD151665]", 151666: b"[PAD151666]", 151667: b"[PAD151667]",
        151668: b"[PAD151668]",
    }  # fmt: skip
    target = _words(151936, changes={151665: b"<tool_response>"})
    match = match_vocab(target, _words(151936, changes=changes))
    assert match == VocabMatch(
        "token-text",
        "4 token texts differ, the first at id 151665: '<tool_response>' in the target, "
        "'[PAD151665]' in the draft",
        151665,
        "<tool_response>",
        "[PAD151665]",
        n_checked=151660,
        n_different=4,
        notes=match.notes,
    )
    assert "take a draft of the target's own series" in match.notes[0]


def test_one_family_may_have_two_vocabularies() -> None:  # xllama pull 200
    draft = _named([b"x%d" % i for i in range(65536)])
    match = match_vocab(_words(128000), draft)
    assert match.rule == "vocab-size"
    assert "128000 tokens and the draft 65536" in match.reason
    assert "first at id 5: 'w5' in the target, 'x5' in the draft" in match.notes[0]


def test_special_ids_count_only_where_they_are_added() -> None:  # llama.cpp pull 22358
    texts = _texts(300)
    assert match_vocab(_named(texts, bos=1, eos=2), _named(texts, bos=3, eos=4)).matches
    match = match_vocab(_named(texts, bos=1, add_bos=True), _named(texts, bos=3, add_bos=True))
    assert (match.rule, match.token_id) == ("bos", 1)
    assert match.reason == (
        "BOS is id 1, 'w1' in the target and id 3, 'w3' in the draft, and both add it"
    )


def test_a_flag_alone_is_enough_to_fail() -> None:
    texts = _texts(300)
    match = match_vocab(_named(texts, bos=1, add_bos=True), _named(texts, bos=1))
    assert match.rule == "bos"
    assert match.reason == "the target adds BOS (id 1, 'w1') to every prompt, the draft does not"
    match = match_vocab(_named(texts), _named(texts, eos=2, add_eos=True))
    assert match.rule == "eos"
    assert match.reason == "the draft adds EOS (id 2, 'w2') to every prompt, the target does not"


def test_one_token_converted_otherwise_is_named() -> None:  # lmstudio-bug-tracker issue 481
    match = match_vocab(_words(256000), _words(256000, changes={139: b"\xe2\x96\x81\xe2\x96\x81"}))
    assert match.reason == (
        "1 token text differs, at id 139: 'w139' in the target, '\u2581\u2581' in the draft"
    )
    assert "try a draft converted like the target" in match.notes[0]


def test_another_pre_tokenizer_is_a_note() -> None:  # arcee-ai/mergekit issue 513
    texts = _texts(300)
    match = match_vocab(_named(texts, pre="deepseek-r1-qwen"), _named(texts))
    assert match.matches
    assert "'deepseek-r1-qwen' in the target and 'qwen2' in the draft" in match.notes[0]


def test_texts_are_shown_without_control_characters() -> None:
    hostile = b"\x1b[2J\n\r\xe2\x80\xae\xff" + b"y" * 1000
    match = match_vocab(_words(50), _words(50, changes={20: hostile}))
    assert match.draft_text is not None
    assert match.draft_text.isprintable()
    assert len(match.draft_text) < 80
    assert printable(b"\x1b[2J\n") == "\\x1b[2J\\n"
    assert printable("\u20ac".encode()) == "\u20ac"


@pytest.mark.parametrize(("changed", "seconds_max"), [(None, 0.08), (5, 0.35), (262000, 0.17)])
def test_large_vocabularies_are_compared_in_a_blink(
    changed: int | None, seconds_max: float
) -> None:
    target = _words(262144)
    draft = _words(262144, changes={} if changed is None else {changed: b"other"})
    seconds = []
    for _ in range(3):
        started = time.process_time()
        match = match_vocab(target, draft)
        seconds.append(time.process_time() - started)
    assert match.token_id == changed
    assert min(seconds) <= seconds_max
