"""The Hugging Face side: what the source has, what should arrive, where it was lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

from gguftools.gguf.checkpoint import Checkpoint, open_checkpoint
from gguftools.gguf.conversion import foretell
from gguftools.gguf.ggml_types import ggml_type
from gguftools.gguf.header import Header, Shard, TensorInfo
from gguftools.gguf.mtp_expected import expected_tensors
from gguftools.gguf.mtp_source import source_mtp
from gguftools.gguf.nextn_table import MTP_ARCHS
from gguftools.gguf.reference import ReferenceReport, compare
from gguftools.gguf.reference_table import ARCH_NAMES, BLOCK_NAMES, FAMILIES
from tests.models.checkpoint import (
    EMBD,
    HEADS,
    N_EXPERT,
    Shapes,
    config,
    head,
    trunk,
    write_checkpoint,
    write_model,
)

QWEN, GLM, DEEPSEEK = "Qwen3_5ForCausalLM", "Glm4MoeForCausalLM", "DeepseekV3ForCausalLM"
TRUNK, HEAD = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def model(folder: Path, model_class: str, **changes: Any) -> Checkpoint:
    """A whole checkpoint, read."""
    return open_checkpoint(str(write_model(folder / model_class, model_class, **changes)))


def damaged(
    folder: Path,
    model_class: str,
    tensors: Shapes | None = None,
    *,
    shard: str = HEAD,
    index: bool = True,
    **changes: Any,
) -> Checkpoint:
    """A checkpoint whose head or config is not what it should be."""
    mtp = head(model_class) if tensors is None else tensors
    shards = {TRUNK: trunk(model_class), shard: mtp}
    hidden = () if shard == HEAD else (shard,)
    place = write_checkpoint(folder / "damaged", config(model_class, **changes), shards,
                             unlisted=hidden, index=index)  # fmt: skip
    return open_checkpoint(str(place))


def gguf(checkpoint: Checkpoint, *, declared: int | None = 1, n_head: int = 1) -> Header:
    """The header of a faithful conversion; None: neither key nor head."""
    mtp = source_mtp(checkpoint)
    arch, n_trunk = mtp.arch or "", checkpoint.n_trunk or 0
    metadata: dict[str, Any] = {
        "general.architecture": arch,
        f"{arch}.block_count": n_trunk + (n_head if declared else 0),
    }
    rows: dict[str, TensorInfo] = {}
    if declared is not None:
        metadata[f"{arch}.nextn_predict_layers"] = declared
        for want in expected_tensors(checkpoint, mtp):
            assert want.name is not None
            rows[want.name] = TensorInfo(want.name, want.shape or (1,), ggml_type(8), 0)
    return Header(3, "<", 32, metadata, {}, rows, (Shard("model.gguf", 0, 0, len(rows)),))


def without(header: Header, *parts: str) -> Header:
    """The header without the tensors whose names hold one of the parts."""
    rows = {n: row for n, row in header.tensors.items() if not any(part in n for part in parts)}
    return replace(header, tensors=rows)


def ways(report: ReferenceReport) -> tuple[bool, str]:
    return report.lost, report.way


# The names that llama.cpp gives.


@pytest.mark.parametrize(
    "arch", sorted(set(MTP_ARCHS) & set(MODEL_ARCH_NAMES.values()) - {"nemotron_h"})
)
def test_every_name_is_that_of_gguf_py(arch: str) -> None:
    """gguf-py is the converter's own table; where it has a name, ours is the same."""
    kind = next(kind for kind, name in MODEL_ARCH_NAMES.items() if name == arch)
    table = get_tensor_name_map(kind, 4)
    n_compared = 0
    for stem, ours in (BLOCK_NAMES | ARCH_NAMES.get(arch, {})).items():
        prefix = "backbone" if stem.startswith("mixer.") or stem == "norm" else "model"
        theirs = table.get_name(f"{prefix}.layers.3.{stem}")
        if theirs is not None:
            assert ours == theirs.removeprefix("blk.3."), stem
            n_compared += 1
    assert n_compared >= 15


@pytest.mark.parametrize("model_class", sorted(HEADS))
def test_every_tensor_of_a_head_has_its_place(tmp_path: Path, model_class: str) -> None:
    checkpoint = model(tmp_path, model_class)
    wanted = expected_tensors(checkpoint, source_mtp(checkpoint))
    if FAMILIES[model_class].naming == "dropped":
        assert {want.name for want in wanted} == {None}
        return
    assert all(want.name for want in wanted)
    assert all(want.shape or want.name == "token_embd.weight" for want in wanted)
    assert len({want.name for want in wanted}) == len(wanted)


@pytest.mark.parametrize("model_class", sorted(HEADS))
def test_a_faithful_file_has_lost_nothing(tmp_path: Path, model_class: str) -> None:
    checkpoint = model(tmp_path, model_class)
    if FAMILIES[model_class].naming == "dropped":
        return
    n = source_mtp(checkpoint).promised or 1
    report = compare(gguf(checkpoint, declared=n, n_head=n), checkpoint)
    assert ways(report) == (False, "arrived")
    assert report.n_arrived == len(report.tensors)


def test_experts_halves_and_splits_take_their_shapes(tmp_path: Path) -> None:
    def shapes(model_class: str) -> dict[str | None, tuple[int, ...] | None]:
        checkpoint = model(tmp_path, model_class)
        wanted = expected_tensors(checkpoint, source_mtp(checkpoint))
        return {want.name: want.shape for want in wanted}

    lite = shapes("Glm4MoeLiteForCausalLM")
    assert lite["blk.2.ffn_down_exps.weight"] == (24, EMBD, N_EXPERT)
    assert lite["blk.2.attn_k_b.weight"] == (8, 16, 2)
    assert lite["blk.2.attn_v_b.weight"] == (16, 16, 2)
    assert "blk.2.attn_kv_b.weight" not in lite
    stacked = shapes("Qwen3_5MoeForCausalLM")
    assert stacked["blk.2.ffn_gate_exps.weight"] == (EMBD, 24, N_EXPERT)
    assert stacked["blk.2.ffn_up_exps.weight"] == (EMBD, 24, N_EXPERT)
    joined = shapes("Qwen4ExpForCausalLM")
    assert joined["blk.2.nextn.eh_proj.weight"] == (2 * EMBD, EMBD)
    assert joined["blk.2.indexer.q_proj.weight"] == (EMBD, 32)
    assert joined["blk.2.indexer.k_proj.weight"] == (EMBD, 16)
    folded = shapes("NemotronHForCausalLM")
    assert folded["blk.2.attn_norm.weight"] == folded["blk.2.post_attention_norm.weight"] == (EMBD,)


# The count in the config.


def test_a_count_is_found_in_text_config_and_null_counts_nothing(tmp_path: Path) -> None:
    nested = {"num_hidden_layers": 2, "mtp_num_hidden_layers": 1}
    changes = {"mtp_num_hidden_layers": ..., "num_hidden_layers": ..., "text_config": nested}
    mtp = source_mtp(model(tmp_path, QWEN, **changes))
    assert (mtp.key, mtp.declared) == ("text_config.mtp_num_hidden_layers", 1)
    assert (mtp.n_trunk, mtp.blocks) == (2, (2,))
    null = source_mtp(damaged(tmp_path, GLM, num_nextn_predict_layers=None))
    assert (null.declared, null.promised, null.is_null) == (None, 0, True)


def test_names_of_a_wrapped_model_are_read_as_the_converter_reads_them(tmp_path: Path) -> None:
    plain = head(QWEN)
    for prefix in ("model.", "language_model.", "model.language_model."):
        checkpoint = damaged(tmp_path, QWEN, {prefix + name: s for name, s in plain.items()})
        assert source_mtp(checkpoint).blocks == (2,), prefix
        wanted = expected_tensors(checkpoint, source_mtp(checkpoint))
        assert "blk.2.nextn.eh_proj.weight" in {want.name for want in wanted}


# What conversion will do, without a GGUF. scripts/oracle_reference.py compares with the converter.


@pytest.mark.parametrize(
    ("model_class", "changes", "outcome", "way"),
    [
        (QWEN, {}, "kept", "kept"),
        ("Qwen3NextForCausalLM", {}, "kept", "kept"),
        (DEEPSEEK, {}, "dropped", "by-design"),
        ("Ernie4_5_MoeForCausalLM", {}, "dropped", "by-design"),
        ("BailingMoeV2ForCausalLM", {}, "unusable", "no-graph"),
        (QWEN, {"mtp_num_hidden_layers": None}, "fails", "count-null"),
        (GLM, {"num_nextn_predict_layers": 0}, "fails", "count-missing"),
        ("Glm4MoeLiteForCausalLM", {"num_nextn_predict_layers": 0}, "dropped", "count-missing"),
        ("Step3p5ForCausalLM", {"num_nextn_predict_layers": 1}, "fails", "count-wrong"),
        ("NemotronHForCausalLM", {"num_nextn_predict_layers": 2}, "fails", "count-wrong"),
        (QWEN, {"architectures": ["Qwen9ForCausalLM"]}, "unknown", "class-unknown"),
    ],
)
def test_conversion_is_foretold(
    tmp_path: Path, model_class: str, changes: dict[str, Any], outcome: str, way: str
) -> None:
    found = foretell(damaged(tmp_path, model_class, **changes))
    assert (found.outcome, found.way) == (outcome, way)
    assert found.fix or found.outcome == "kept"


def test_conversion_of_a_model_without_a_head_is_foretold(tmp_path: Path) -> None:
    assert foretell(damaged(tmp_path, GLM, {}, num_nextn_predict_layers=0)).outcome == "none"
    qwen = foretell(damaged(tmp_path, QWEN, {}, mtp_num_hidden_layers=0))
    assert qwen.outcome == "fails"
    assert "AssertionError" in qwen.reason
    assert qwen.fix.endswith("--no-nextn")


def test_a_shard_that_the_index_names_and_that_is_missing_stops_conversion(tmp_path: Path) -> None:
    place = write_model(tmp_path / "m", QWEN)
    (place / HEAD).unlink()
    found = foretell(open_checkpoint(str(place)))
    assert (found.outcome, found.way) == ("fails", "shard-missing")


def test_deepseek_v4_needs_the_option_mtp(tmp_path: Path) -> None:
    tensors = {"mtp.0.e_proj.weight": (EMBD, EMBD), "mtp.0.h_proj.weight": (EMBD, EMBD),
               "mtp.0.attn.wq_a.weight": (16, EMBD), "mtp.0.ffn.gate.bias": (4,),
               "mtp.0.hc_head_fn": (4, 4 * EMBD)}  # fmt: skip
    told = config(GLM, architectures=["DeepseekV4ForCausalLM"])
    place = write_checkpoint(tmp_path / "v4", told, {TRUNK: trunk(GLM), HEAD: tensors})
    checkpoint = open_checkpoint(str(place))
    found = foretell(checkpoint)
    assert (found.outcome, found.way) == ("separate", "flag-needed")
    assert found.fix == f"python convert_hf_to_gguf.py {place} --mtp"
    named = {want.name: want.shape for want in found.tensors}
    assert named["blk.2.nextn.eh_proj.weight"] == (2 * EMBD, EMBD)
    assert {"blk.2.exp_probs_b.bias", "output_hc_fn.weight"} <= set(named)
    assert ways(compare(gguf(checkpoint, declared=None), checkpoint)) == (True, "flag-needed")


# Where it was lost.


def test_a_head_dropped_by_design_is_told(tmp_path: Path) -> None:
    checkpoint = model(tmp_path, DEEPSEEK)
    report = compare(gguf(checkpoint, declared=None), checkpoint)
    assert ways(report) == (True, "by-design")
    assert "the source has 33 MTP tensors such as" in report.reason


def test_a_file_without_key_and_head_was_converted_without_them(tmp_path: Path) -> None:
    checkpoint = model(tmp_path, GLM)
    report = compare(gguf(checkpoint, declared=None), checkpoint)
    assert ways(report) == (True, "not-converted")
    assert "--no-nextn" in report.reason
    assert {row.arrived for row in report.tensors} == {"no"}


def test_pruned_layers_and_stripped_heads_are_told_apart(tmp_path: Path) -> None:
    checkpoint = model(tmp_path, GLM)
    whole = gguf(checkpoint)
    stripped = without(whole, "blk.2.")
    assert ways(compare(stripped, checkpoint)) == (True, "stripped")
    metadata = {**whole.metadata, "glm4moe.block_count": 2}
    pruned = replace(stripped, metadata=metadata)
    assert ways(compare(pruned, checkpoint)) == (True, "pruned")


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    checkpoint = model(tmp_path, QWEN)
    whole = gguf(checkpoint)
    report = compare(without(whole, "eh_proj"), checkpoint)
    assert ways(report) == (True, "partial")
    assert "blk.2.nextn.eh_proj.weight" in report.reason
    name = "blk.2.nextn.eh_proj.weight"
    rows = {**whole.tensors, name: replace(whole.tensors[name], shape=(EMBD, EMBD))}
    report = compare(replace(whole, tensors=rows), checkpoint)
    assert ways(report) == (True, "wrong-shape")
    assert f"{name} [32, 32] where the source makes [64, 32]" in report.reason


def test_fused_tensors_have_arrived(tmp_path: Path) -> None:
    checkpoint = model(tmp_path, GLM)
    header = without(gguf(checkpoint), "attn_q.", "attn_k.", "attn_v.", "gate_exps", "up_exps")
    fused = {f"blk.2.{name}.weight": TensorInfo(name, (1,), ggml_type(0), 0)
             for name in ("attn_qkv", "ffn_gate_up_exps")}  # fmt: skip
    report = compare(replace(header, tensors=header.tensors | fused), checkpoint)
    assert ways(report) == (False, "arrived")


def test_another_model_is_no_reference(tmp_path: Path) -> None:
    qwen, glm = model(tmp_path, QWEN), model(tmp_path, GLM)
    assert ways(compare(gguf(qwen), glm)) == (True, "other-model")
    deeper = damaged(tmp_path, QWEN, num_hidden_layers=40)
    assert ways(compare(gguf(qwen), deeper)) == (True, "other-model")


def test_a_grafted_head_is_no_loss(tmp_path: Path) -> None:
    whole = gguf(model(tmp_path, QWEN))
    assert ways(compare(whole, damaged(tmp_path, QWEN, {}))) == (False, "none")


# Field reports, made to their facts.


def test_c20_declares_one_mtp_layer_and_holds_none(tmp_path: Path) -> None:
    checkpoint = damaged(tmp_path, QWEN, {})
    found = foretell(checkpoint)
    assert found.outcome == "will-not-load"
    assert found.reason == (
        "mtp_num_hidden_layers promises 1, the weights hold no MTP tensor: the converted file"
        " lacks blk.2.* and llama.cpp does not load it"
    )
    assert found.fix.endswith(f"python convert_hf_to_gguf.py {checkpoint.where} --no-nextn")
    report = compare(without(gguf(model(tmp_path, QWEN)), "blk.2."), checkpoint)
    assert ways(report) == (True, "weights-missing")
    assert "the head was lost before conversion" in report.reason
    assert report.reason.endswith("the file still says nextn_predict_layers = 1")


@pytest.mark.parametrize("index", [True, False])
def test_c22_the_head_lies_in_a_file_the_converter_never_reads(tmp_path: Path, index: bool) -> None:
    optional = ("embed_tokens", "shared_head.head")
    tensors = {n: s for n, s in head(GLM).items() if not any(part in n for part in optional)}
    checkpoint = damaged(tmp_path, GLM, tensors, shard="mtp.safetensors", index=index)
    found = foretell(checkpoint)
    assert (found.outcome, found.way) == ("plain", "shard-unlisted")
    why = "not listed in model.safetensors.index.json" if index else "not named model*.safetensors"
    assert f"27 MTP tensors lie in mtp.safetensors, {why}: never read" in found.reason
    assert found.fix.startswith("mv mtp.safetensors model-mtp.safetensors")
    report = compare(without(gguf(checkpoint), "blk.2."), checkpoint)
    assert ways(report) == (True, "shard-unlisted")
    # The remedy: do as told, and the head is kept, its optional tensors shared with the trunk.
    place = Path(checkpoint.where)
    (place / "mtp.safetensors").rename(place / "model-mtp.safetensors")
    if index:
        (place / "model.safetensors.index.json").rename(place / "index.off")
    assert foretell(open_checkpoint(str(place))).outcome == "kept"


def test_c23_weights_whose_config_lost_the_count(tmp_path: Path) -> None:
    checkpoint = damaged(tmp_path, QWEN, mtp_num_hidden_layers=...)
    report = compare(gguf(checkpoint, declared=None), checkpoint)
    assert ways(report) == (True, "count-missing")
    assert report.reason == (
        "the source has 15 MTP tensors such as mtp.fc.weight, the file has none:"
        " the config lacks mtp_num_hidden_layers"
    )
    assert report.fix.startswith('set "mtp_num_hidden_layers": 1 in config.json')
    # The converter of b11434 counts the layers itself.
    found = foretell(checkpoint)
    assert found.outcome == "kept"
    assert "older converters need" in found.reason


def test_c25_a_fine_tune_saved_without_its_head(tmp_path: Path) -> None:
    base, tuned = model(tmp_path, QWEN), damaged(tmp_path, QWEN, {})
    assert not source_mtp(tuned).parts
    assert len(source_mtp(base).parts) == 15
    assert "copy the MTP tensors of the base model in (its acceptance may fall)" in (
        foretell(tuned).fix
    )


def test_c26_count_stripped_and_tensors_kept(tmp_path: Path) -> None:
    found = foretell(damaged(tmp_path, QWEN, mtp_num_hidden_layers=...))
    assert found.fix == 'restore "mtp_num_hidden_layers": 1 in config.json'
    glm = foretell(damaged(tmp_path, GLM, num_nextn_predict_layers=...))
    assert glm.outcome == "fails"
    assert "conversion stops, Can not map tensor" in glm.reason
    assert glm.fix == 'set "num_nextn_predict_layers": 1 in config.json'


def test_c28_a_count_nested_in_text_config_is_found(tmp_path: Path) -> None:
    nested: dict[str, Any] = {"num_hidden_layers": 2, "mtp_num_hidden_layers": 1}
    changes: dict[str, Any] = {"mtp_num_hidden_layers": ..., "num_hidden_layers": ...}
    changes["text_config"] = nested
    assert foretell(model(tmp_path, QWEN, **changes)).outcome == "kept"
    null = nested | {"mtp_num_hidden_layers": None}
    found = foretell(damaged(tmp_path, QWEN, **(changes | {"text_config": null})))
    assert found.reason == (
        "text_config.mtp_num_hidden_layers is null: conversion stops with a TypeError"
    )


def test_c35_every_tensor_of_a_dropped_head_is_in_the_table(tmp_path: Path) -> None:
    checkpoint = model(tmp_path, "Qwen4ExpForCausalLM")
    report = compare(gguf(checkpoint, declared=None), checkpoint)
    assert (report.n_source, report.n_arrived) == (42, 0)
    assert ways(report) == (True, "not-converted")
