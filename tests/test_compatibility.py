"""check_pair and check_head: verdict, rule, reason, notes, settings and commands."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from gguftools.gguf.nextn_table import MTP_ARCHS, NO_MTP_IN_LIBLLAMA_0_5
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.compatibility import (
    Pair,
    check_head,
    check_ngram,
    check_pair,
    check_stranger,
)
from gguftools.pairing.launch import Settings
from gguftools.pairing.quant import precision_of
from tests.models import bytes as raw
from tests.models.chain import random_chain
from tests.models.markov import write_llama, write_qwen35, write_qwen35_mtp_only
from tests.models.oracle import loads, mtp_logits
from tests.models.pair_models import (
    F16,
    F32,
    I64,
    Tensors,
    built,
    feature_draft,
    model,
    mtp_header,
    sidecar,
)
from tests.models.tiny import TinyModel, tiny
from tests.models.tiny_vocab import TinyVocab, words
from tests.models.vocabulary import vocabulary

OTHER_WORDS = [*words(40)[:39], b"changed"]


def _small(arch: str = "llama", **changes: object) -> Header:
    return model(arch, n_layer=1, path="small.gguf", **changes)  # type: ignore[arg-type]


def _ruled(pair: Pair) -> tuple[str, str | None]:
    return pair.verdict, pair.rule


# N-gram lookup.


def test_ngram_lookup_drafts_for_every_model_that_writes_text() -> None:
    pair = check_ngram(model(path="big.gguf"))
    assert (pair.draft, pair.kind, *_ruled(pair)) == (None, "ngram", "works", None)
    assert pair.commands == {
        "llama-server": "llama-server -m big.gguf --spec-type ngram-mod -np 1",
        "gguftools": "gguftools run big.gguf --ngram -p 'Once upon a time'",
    }
    assert _ruled(check_ngram(feature_draft("eagle3"))) == ("blocked", "target")


# Draft models.


def test_a_smaller_model_of_the_same_vocabulary_works() -> None:
    small = _small()
    pair = check_pair(model(path="big.gguf"), small)
    assert pair == Pair(
        "big.gguf",
        "small.gguf",
        "draft-simple",
        "works",
        None,
        "35 token texts are equal and BOS and EOS are handled alike",
        n_bytes=small.shards[0].n_bytes,
        n_params=64 + 64 * 256,
        precision=precision_of(small),
        settings=Settings(8, 0, 0.5),
        commands={
            "llama-server": "llama-server -m big.gguf --spec-type draft-simple -md small.gguf "
            "--spec-draft-n-max 8 --spec-draft-n-min 0 --spec-draft-p-min 0.5 -np 1",
            "gguftools": "gguftools run big.gguf --draft small.gguf -p 'Once upon a time'",
        },
    )


def test_paths_are_quoted_and_never_options() -> None:
    target, draft = model(path="-m my model.gguf"), _small()
    pair = check_pair(target, replace(draft, shards=(replace(draft.shards[0], path="a;b.gguf"),)))
    for command in pair.commands.values():
        assert command is not None
        assert "./-m my model.gguf" in shlex.split(command)
        assert "a;b.gguf" in shlex.split(command)
        assert "'a;b.gguf'" in command


@pytest.mark.parametrize("target", ["qwen35moe", "llama", "gemma3", "glm4moe"])
def test_architectures_may_differ(target: str) -> None:  # lmstudio-bug-tracker issue 1597
    pair = check_pair(model(target), _small("qwen35"))
    assert _ruled(pair) == ("works", None)
    assert any("LM Studio and others hide such pairs" in note for note in pair.notes)


def test_the_first_failing_rule_is_the_verdict() -> None:
    pair = check_pair(model(), _small(tokens=OTHER_WORDS))
    assert _ruled(pair) == ("blocked", "token-text")
    assert (pair.token_id, pair.target_text, pair.draft_text) == (39, "w34", "changed")
    assert (
        pair.reason == "1 token text differs, at id 39: 'w34' in the target, 'changed' in the draft"
    )
    assert pair.settings is None
    assert pair.commands == {"llama-server": None, "gguftools": None}


def test_a_padded_draft_is_not_a_trimmed_one() -> None:  # vllm pull 55133
    texts = [b"w%d" % i for i in range(200058)]
    padded = texts + [b"[PAD%d]" % i for i in range(200058, 201024)]
    pair = check_pair(model(tokens=texts), _small(tokens=padded))
    assert _ruled(pair) == ("blocked", "vocab-size")
    assert "200058 tokens and the draft 201024: 966 apart" in pair.reason
    assert "reduced" not in pair.reason
    assert pair.notes == ("the first 200058 token texts are equal: the longer list only goes on",)
    pair = check_pair(model(tokens=texts, rows=201024), _small(tokens=padded))
    assert _ruled(pair) == ("blocked", "target")
    assert "lists 200058 tokens, and its embedding has 201024 rows" in pair.reason


def test_a_distill_with_its_own_special_tokens_is_refused_and_the_ids_named() -> (
    None
):  # arcee-ai/mergekit issue 513
    texts = words(300)
    distill = TinyVocab(
        [*texts[:290], *(b"<r1-%d>" % i for i in range(10))], pre="deepseek-r1-qwen"
    )
    pair = check_pair(model(tokens=texts), _small(vocab=distill))
    assert _ruled(pair) == ("blocked", "token-text")
    assert pair.reason.startswith("10 token texts differ, the first at id 290: ")
    assert "'deepseek-r1-qwen' in the draft" in pair.notes[0]
    same = TinyVocab(texts, pre="deepseek-r1-qwen")
    pair = check_pair(model(tokens=texts), _small(vocab=same))
    assert _ruled(pair) == ("works", None)
    assert "'deepseek-r1-qwen' in the draft" in pair.notes[0]


def test_a_draft_as_large_as_its_target_is_poor() -> None:
    pair = check_pair(model(), model(path="copy.gguf"))
    assert _ruled(pair) == ("poor", "size")
    assert "the draft reads" in pair.reason
    assert pair.commands["gguftools"] is not None


def test_a_dense_draft_larger_than_the_active_experts_is_poor() -> None:
    experts: Tensors = {"blk.0.ffn_up_exps.weight": ((64, 64, 64), F16)}
    keys = {"expert_count": 64, "expert_used_count": 1}
    target = model("qwen3moe", extra=experts, keys=keys)
    assert _ruled(check_pair(target, model("qwen3", n_layer=6))) == ("poor", "size")
    assert _ruled(check_pair(target, model("qwen3", n_layer=2))) == ("works", None)


def test_a_draft_of_a_shorter_context_is_noted() -> None:
    pair = check_pair(model(), _small(keys={"context_length": 2048}))
    assert "2048 tokens of context, the target on 4096" in pair.notes[0]


def test_a_small_model_with_an_mtp_head_drafts_as_a_model() -> None:
    big = model("qwen35", n_layer=8, n_embd=256)
    pair = check_pair(big, mtp_header(tiny("qwen35")))
    assert (pair.kind, pair.verdict) == ("draft-simple", "works")
    assert "--spec-type draft-simple" in (pair.commands["llama-server"] or "")
    assert any("takes it for an MTP draft and aborts" in note for note in pair.notes)


@pytest.mark.parametrize("arch", ["mamba", "granitehybrid", "falcon-h1", "qwen3next"])
def test_a_target_that_needs_checkpoints_is_noted(arch: str) -> None:
    pair = check_pair(model(arch), _small())
    assert pair.verdict == "works"
    assert any("both engines copy it" in note for note in pair.notes)


def test_a_hybrid_target_costs_the_server_copies_with_a_draft_model_only() -> None:
    assert any("llama-server copies" in n for n in check_pair(model("qwen35"), _small()).notes)
    own = check_head(mtp_header(tiny("qwen35")))
    assert not any("llama-server copies" in n for n in own.notes)
    assert any("both engines keep a copy of it" in n for n in own.notes)


# Files that cannot take part.


def test_a_projector_is_no_draft() -> None:
    clip = built("clip", {"clip.has_vision_encoder": True}, {"v.x": ((4,), F32)}, None, "m.gguf")
    pair = check_pair(model(), clip)
    assert (*_ruled(pair), pair.kind) == ("blocked", "kind", None)
    pair = check_pair(clip, _small())
    assert _ruled(pair) == ("blocked", "target")


@pytest.mark.parametrize("arch", ["eagle3", "dflash"])
def test_a_draft_is_no_target(arch: str) -> None:
    pair = check_pair(feature_draft(arch), _small())
    assert _ruled(pair) == ("blocked", "target")
    assert "made for drafting" in pair.reason
    assert _ruled(check_head(feature_draft(arch))) == ("blocked", "target")


def test_a_target_that_does_not_load_is_blocked_as_llama_cpp_blocks_it(tmp_path: Path) -> None:
    chain = random_chain(40, 1)
    good = write_llama(tmp_path / "good.gguf", chain)
    longer = write_llama(tmp_path / "longer.gguf", chain, texts=vocabulary(41))
    double = write_llama(tmp_path / "double.gguf", chain, texts=[*vocabulary(39), "a"])
    for path, why in ((longer, "41 tokens, and its embedding has 40 rows"), (double, "same text")):
        assert not loads(path)[0]
        pair = check_pair(open_gguf(path), open_gguf(good))
        assert _ruled(pair) == ("blocked", "target")
        assert why in pair.reason
        pair = check_pair(open_gguf(good), open_gguf(path))
        assert _ruled(pair) == ("blocked", "draft")
        assert why in pair.reason


def test_a_file_without_tokens_is_blocked() -> None:
    bare = built(
        "llama", {"block_count": 1}, {"blk.0.attn_norm.weight": ((4,), F32)}, None, "b.gguf"
    )
    assert _ruled(check_pair(bare, _small())) == ("blocked", "target")
    assert _ruled(check_pair(model(), bare)) == ("blocked", "draft")


# MTP heads.


@pytest.mark.parametrize("arch", MTP_ARCHS)
def test_a_complete_head_works_where_an_mtp_graph_exists(arch: str) -> None:
    pair = check_head(mtp_header(tiny(arch)))
    assert pair.draft is None
    if arch == "gemma4-assistant":
        assert _ruled(pair) == ("blocked", "target")
    elif MTP_ARCHS[arch].no_graph:
        assert _ruled(pair) == ("blocked", "architecture")
        assert pair.settings is None
    else:
        assert _ruled(pair) == ("works", None), pair.reason
        assert pair.settings is not None
        assert pair.commands["llama-server"] == (
            f"llama-server -m {arch}.gguf --spec-type draft-mtp "
            f"--spec-draft-n-max {pair.settings.draft_max} --spec-draft-n-min 0 "
            "--spec-draft-p-min 0 -np 1"
        )
        run = f"gguftools run {arch}.gguf --mtp -p 'Once upon a time'"
        assert pair.commands["gguftools"] == (None if arch in NO_MTP_IN_LIBLLAMA_0_5 else run)


def test_one_head_drafts_three_and_a_chain_at_most_one_token_per_head() -> None:
    assert check_head(mtp_header(tiny("qwen35"))).settings == Settings(3, 0, 0.0)
    assert check_head(mtp_header(tiny("step35"))).settings == Settings(2, 0, 0.0)


def test_a_model_without_head_is_blocked() -> None:
    assert _ruled(check_head(model())) == ("blocked", "head")


def test_a_broken_head_is_named() -> None:
    whole = tiny("qwen35")
    block = whole.n_layer_all - 1
    pair = check_head(mtp_header(whole.without(f"blk.{block}.nextn.eh_proj.weight")))
    assert _ruled(pair) == ("blocked", "head")
    assert "eh_proj" in pair.reason
    pair = check_pair(mtp_header(whole.without(f"blk.{block}.nextn.eh_proj.weight")), _small())
    assert _ruled(pair) == ("blocked", "target")


def test_a_sidecar_fits_its_target_as_llama_cpp_finds(tmp_path: Path) -> None:
    chain = random_chain(40, 1)
    target = write_qwen35(tmp_path / "t.gguf", chain, mtp=None)
    alone = write_qwen35_mtp_only(tmp_path / "s.gguf", chain)
    assert mtp_logits(target, [12, 13, 14], alone).shape == (2, 40)
    pair = check_pair(open_gguf(target), open_gguf(alone))
    assert (pair.kind, *_ruled(pair)) == ("draft-mtp", "works", None)
    assert pair.settings == Settings(3, 0, 0.0)
    assert f"-md {alone}" in (pair.commands["llama-server"] or "")
    assert f"--draft {alone}" in (pair.commands["gguftools"] or "")


def _pair_of(model: TinyModel, alone: TinyModel, vocab: TinyVocab | None = None) -> Pair:
    return check_pair(mtp_header(model), mtp_header(alone, vocab))


@pytest.mark.parametrize("arch", ["qwen35", "glm4moe", "step35", "deepseek4", "qwen4exp"])
def test_a_sidecar_of_every_family_fits(arch: str) -> None:
    whole = tiny(arch)
    pair = _pair_of(whole, sidecar(whole))
    assert _ruled(pair) == ("works", None), pair.reason
    assert "the target holds an MTP head of its own" in pair.notes[0]


def test_another_copy_of_the_model_lends_its_head() -> None:
    whole = mtp_header(tiny("qwen35"))
    pair = check_pair(whole, whole)
    assert (pair.kind, *_ruled(pair)) == ("draft-mtp", "works", None)
    assert "only the MTP block" in pair.notes[0]


def test_a_sidecar_of_another_architecture_is_blocked() -> None:
    pair = _pair_of(tiny("qwen35moe"), sidecar(tiny("qwen35")))
    assert _ruled(pair) == ("blocked", "architecture")


def test_a_sidecar_of_another_width_is_blocked_before_llama_cpp_aborts() -> None:
    wide = model("qwen35", n_embd=64)
    pair = check_pair(wide, mtp_header(sidecar(tiny("qwen35"))))
    assert _ruled(pair) == ("blocked", "width")
    assert "64 wide, the MTP draft reads 32: llama.cpp aborts" in pair.reason


def test_hidden_rows_of_several_streams_are_wider_than_the_embedding() -> None:
    two, four = (tiny("deepseek4").with_keys(hyper_connection__count=n) for n in (2, 4))
    assert _ruled(_pair_of(four, sidecar(four))) == ("works", None)
    pair = check_pair(mtp_header(four), mtp_header(sidecar(two)))
    assert _ruled(pair) == ("blocked", "width")
    assert "128 wide, the MTP draft reads 64" in pair.reason


def test_a_sidecar_of_a_deeper_model_is_blocked() -> None:
    deeper = model("qwen35", n_embd=32, n_layer=5)
    pair = check_pair(deeper, mtp_header(sidecar(tiny("qwen35"))))
    assert _ruled(pair) == ("blocked", "block")
    assert "trunk of 2 blocks; the target's has 5" in pair.reason


def test_a_sidecar_of_equal_width_and_other_tokens_is_blocked() -> None:  # pocketpal-ai issue 876
    whole = tiny("qwen35")
    pair = _pair_of(whole, sidecar(whole), TinyVocab(OTHER_WORDS))
    assert _ruled(pair) == ("blocked", "token-text")
    assert (pair.token_id, pair.target_text, pair.draft_text) == (39, "w34", "changed")
    assert "llama.cpp does not compare them here" in pair.reason


def test_other_special_tokens_hide_no_other_text_of_a_sidecar() -> None:
    whole, adds_bos = tiny("qwen35"), (("add_bos_token", raw.BOOL, True),)
    own_bos = TinyVocab(words(40), keys=adds_bos)
    assert _ruled(_pair_of(whole, sidecar(whole), own_bos)) == ("works", None)
    both = TinyVocab(OTHER_WORDS, keys=adds_bos)
    assert _ruled(_pair_of(whole, sidecar(whole), both)) == ("blocked", "token-text")


@pytest.mark.parametrize("has_map", [False, True])
def test_a_trimmed_sidecar_is_blocked_with_and_without_its_map(
    has_map: bool,
) -> None:  # unslothai/llama.cpp pull 225
    whole = tiny("qwen35")
    block = whole.n_layer_all - 1
    trimmed = sidecar(whole).reshaped(f"blk.{block}.nextn.shared_head_head.weight", (32, 8))
    if has_map:
        trimmed = trimmed.reshaped("d2t", (8,))
    pair = _pair_of(whole, trimmed)
    assert _ruled(pair) == ("blocked", "vocab-size")
    with_or_without = "with" if has_map else "without"
    assert f"8 of 40 tokens, {with_or_without} a d2t map" in pair.reason


def test_an_incomplete_sidecar_is_blocked() -> None:
    whole = tiny("qwen35")
    block = whole.n_layer_all - 1
    pair = _pair_of(whole, sidecar(whole).without(f"blk.{block}.attn_output.weight"))
    assert _ruled(pair) == ("blocked", "head")
    assert "attn_output" in pair.reason


def test_a_gemma_assistant_drafts_for_gemma4_in_the_server_only() -> None:
    assistant = mtp_header(tiny("gemma4-assistant"))
    pair = check_pair(model("gemma4", n_embd=48), assistant)
    assert (pair.kind, *_ruled(pair)) == ("draft-mtp", "works", None)
    assert pair.commands["gguftools"] is None
    assert "--spec-type draft-mtp -md gemma4-assistant.gguf" in (
        pair.commands["llama-server"] or ""
    )
    assert _ruled(check_pair(model("gemma3", n_embd=48), assistant)) == ("blocked", "architecture")
    assert _ruled(check_pair(model("gemma4", n_embd=64), assistant)) == ("blocked", "width")


# EAGLE-3, DFlash, DSpark.


@pytest.mark.parametrize(
    ("arch", "kind", "draft_max"),
    [("eagle3", "draft-eagle3", 3), ("dflash", "draft-dflash", 15)],
)
def test_a_feature_draft_works_in_the_server_only(arch: str, kind: str, draft_max: int) -> None:
    pair = check_pair(model(), feature_draft(arch))
    assert (pair.kind, *_ruled(pair)) == (kind, "works", None)
    assert pair.settings == Settings(draft_max, 0, 0.0)
    assert pair.commands == {
        "llama-server": f"llama-server -m llama.gguf --spec-type {kind} -md {arch}.gguf "
        f"--spec-draft-n-max {draft_max} --spec-draft-n-min 0 --spec-draft-p-min 0 -np 1",
        "gguftools": None,
    }
    assert f"gguftools run cannot draft with this pair: {kind} is not in it" in pair.notes[-1]


@pytest.mark.parametrize(("anchor", "draft_max"), [(None, 7), (True, 7), (False, 6)])
def test_dspark_drafts_its_whole_block(anchor: bool | None, draft_max: int) -> None:
    keys = {"block_size": 7, "sample_from_anchor": anchor}
    draft = feature_draft("dflash", keys=keys, extra={"markov_w1.weight": ((8, 40), F16)})
    pair = check_pair(model(), draft)
    assert pair.kind == "draft-dspark"
    assert pair.settings == Settings(draft_max, 0, 0.0)


@pytest.mark.parametrize(
    ("arch", "keys", "rule"),
    [
        ("eagle3", {"target_layers": [1, 2, 5]}, "block"),
        ("eagle3", {"target_layers": [-1, 2, 3]}, "block"),
        ("eagle3", {"target_layers": [1, 2]}, "head"),
        ("eagle3", {"target_layers": None}, "head"),
        ("eagle3", {"target_hidden_size": 128}, "width"),
        ("eagle3", {"target_hidden_size": None}, "width"),
        ("dflash", {"target_layers": [4]}, "block"),
        ("dflash", {"target_layers": None}, "head"),
        ("dflash", {"embedding_length": 128}, "width"),
    ],
)
def test_a_feature_draft_of_another_target_is_blocked(
    arch: str, keys: dict[str, object], rule: str
) -> None:
    assert _ruled(check_pair(model(), feature_draft(arch, keys=keys))) == ("blocked", rule)


def test_eagle3_may_read_the_last_hidden_row_where_the_target_gives_it() -> None:
    draft = feature_draft("eagle3", keys={"target_layers": [1, 2, 4]})
    assert _ruled(check_pair(model("qwen35"), draft)) == ("works", None)
    assert _ruled(check_pair(model("llama"), draft)) == ("blocked", "block")


def test_a_target_that_gives_no_layers_is_blocked() -> None:
    pair = check_pair(model("qwen2"), feature_draft("eagle3"))
    assert _ruled(pair) == ("blocked", "architecture")


def test_a_feature_draft_of_other_tokens_is_blocked() -> None:
    pair = check_pair(model(), feature_draft("eagle3", tokens=OTHER_WORDS))
    assert _ruled(pair) == ("blocked", "token-text")


@pytest.mark.parametrize(
    ("rows", "d2t", "rule"),
    [
        (40, None, None),
        (48, None, "head"),
        (8, None, "vocab-size"),
        (8, ((8,), I64), None),
        (8, ((9,), I64), "head"),
        (8, ((8,), F32), "head"),
    ],
)
def test_only_fewer_rows_than_tokens_need_a_map(
    rows: int, d2t: tuple[tuple[int, ...], int] | None, rule: str | None
) -> None:
    extra: Tensors = {"output.weight": ((64, rows), F16)}
    if d2t is not None:
        extra["d2t"] = d2t
    pair = check_pair(model(), feature_draft("eagle3", extra=extra))
    assert pair.rule == rule


def test_a_pair_that_no_engine_takes_is_blocked() -> None:
    pair = check_pair(mtp_header(tiny("glm4moe")), mtp_header(tiny("qwen4exp")))
    assert _ruled(pair) == ("blocked", "rollback")
    assert "gguftools run cannot draft with this pair" in pair.reason


# Laws.


def test_a_stranger_is_refused_as_the_whole_check_refuses_it() -> None:
    target = model()
    for draft in (_small(tokens=OTHER_WORDS), _small(tokens=words(300)), _small()):
        whole, quick = check_pair(target, draft), check_stranger(target, draft)
        assert quick == (whole if whole.verdict == "blocked" else None)
    assert check_stranger(target, feature_draft("eagle3", tokens=OTHER_WORDS)) is None
    assert check_stranger(target, built("llama", {}, {}, None, "bare.gguf")) is None


def _files() -> list[Header]:
    whole = tiny("qwen35")
    return [
        model(), _small(), _small(tokens=OTHER_WORDS), model("bert"), model("qwen35"),
        mtp_header(whole), mtp_header(sidecar(whole)),
        feature_draft("eagle3"), feature_draft("dflash"),
        built("", {}, {}, None, "empty.gguf"),
        model(vocab=TinyVocab(words(40), keys=(("bos_token_id", raw.I32, 1),))),
        mtp_header(tiny("gemma4-assistant")),
    ]  # fmt: skip


def test_every_pair_of_files_has_a_verdict_in_one_sentence() -> None:
    for target in _files():
        for pair in (check_head(target), *(check_pair(target, draft) for draft in _files())):
            assert pair.verdict in ("works", "poor", "blocked")
            assert (pair.rule is None) == (pair.verdict == "works")
            assert pair.reason
            assert "\n" not in pair.reason
            assert (pair.settings is None) == (pair.verdict == "blocked")
            runs = [command for command in pair.commands.values() if command is not None]
            assert bool(runs) == (pair.verdict != "blocked")
