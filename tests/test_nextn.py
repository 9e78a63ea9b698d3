"""The MTP verdict on headers: every architecture, whole and broken. No file, no llama.cpp."""

from __future__ import annotations

import dataclasses
import random
import time
from pathlib import Path

import pytest

from gguftools.gguf.nextn import MtpReport, mtp_report
from gguftools.gguf.nextn_table import MTP_ARCHS, Tensor, rollback_class
from gguftools.gguf.shapes import evaluate
from gguftools.gguf.source import open_gguf
from tests.models.mtp_mutations import mutations
from tests.models.tiny import TinyModel, header, tiny, write
from tests.models.tiny_archs import METADATA

ARCHS = sorted(MTP_ARCHS)
WITH_GRAPH = [arch for arch in ARCHS if not MTP_ARCHS[arch].no_graph]
TOLERANT = [arch for arch in ARCHS if MTP_ARCHS[arch].trunk_only]
PLAIN_LLAMA = TinyModel(
    "llama",
    {"block_count": 2, "embedding_length": 32, "attention.head_count": 2, "vocab_size": 40},
    {
        "token_embd.weight": (32, 40),
        "blk.0.attn_norm.weight": (32,),
        "blk.1.attn_norm.weight": (32,),
    },
)


def report(model: TinyModel) -> MtpReport:
    return mtp_report(header(model))


def codes(found: MtpReport) -> set[str]:
    return {problem.code for problem in found.problems}


def last_block(model: TinyModel) -> int:
    return model.n_layer_all - 1


def test_every_architecture_of_the_table_has_a_tiny_model() -> None:
    assert sorted(METADATA) == ARCHS


@pytest.mark.parametrize("arch", ["qwen35", "deepseek4", "step35", "gemma4-assistant"])
def test_an_in_memory_header_equals_that_of_the_written_file(arch: str, tmp_path: Path) -> None:
    model = tiny(arch, optional=True)
    write(model, tmp_path / "m.gguf")
    read, made = open_gguf(tmp_path / "m.gguf"), header(model)
    assert {k: v.shape for k, v in read.tensors.items()} == model.tensors
    assert set(made.types.items()) <= set(read.types.items())
    assert mtp_report(read) == mtp_report(made)


@pytest.mark.parametrize("arch", WITH_GRAPH)
@pytest.mark.parametrize("optional", [False, True])
def test_a_whole_model_loads_and_runs(arch: str, optional: bool) -> None:
    found = report(tiny(arch, optional=optional))
    assert found.state == ("head-only" if arch == "gemma4-assistant" else "complete")
    assert found.loads
    assert found.runnable
    assert not found.problems
    assert all(not head.missing and not head.wrong_shape for head in found.heads)
    assert all(head.n_bytes > 0 for head in found.heads)


@pytest.mark.parametrize("arch", sorted(set(ARCHS) - set(WITH_GRAPH)))
def test_an_architecture_without_an_mtp_graph_is_unsupported_but_loads(arch: str) -> None:
    found = report(tiny(arch))
    assert (found.state, found.loads, found.runnable) == ("unsupported", True, False)
    assert codes(found) == {"mtp-no-graph"}


@pytest.mark.parametrize("arch", ARCHS)
def test_each_required_tensor_that_is_missing_is_named(arch: str) -> None:
    model, spec = tiny(arch), MTP_ARCHS[arch]
    block = last_block(model)
    required = [
        row.name for row in spec.block if isinstance(row, Tensor) and row.need == "required"
    ]
    for name in required:
        full = f"blk.{block}.{name}"
        if full not in model.tensors or name == "nextn.eh_proj.weight":
            continue
        found = report(model.without(full))
        if spec.all_optional:
            assert found.loads
        else:
            assert not found.loads, full
            assert found.state == "broken"
            assert full in found.heads[-1].missing
            assert full in found.reason


@pytest.mark.parametrize("arch", ARCHS)
def test_each_wrong_shape_is_named(arch: str) -> None:
    model = tiny(arch, optional=True)
    for name in model.block(last_block(model)):
        shape = model.tensors[name]
        found = report(model.reshaped(name, (*shape[:-1], shape[-1] + 1)))
        assert not found.loads, name
        assert found.heads[-1].wrong_shape == (name,)
        assert f"expects [{shape[0]}" in found.reason


@pytest.mark.parametrize("arch", ARCHS)
def test_tensors_without_the_key_are_broken_and_the_hint_says_the_key(arch: str) -> None:
    model = tiny(arch)
    found = report(model.with_keys(nextn_predict_layers=None))
    assert (found.state, found.loads, found.declared) == ("broken", False, 0)
    assert "mtp-key-missing" in codes(found)
    hint = next(p.hint for p in found.problems if p.code == "mtp-key-missing")
    assert f"--override-kv {arch}.nextn_predict_layers=int:{model.n_nextn}" in hint


@pytest.mark.parametrize("arch", ARCHS)
def test_a_key_without_tensors_loads_only_where_llama_cpp_is_tolerant(arch: str) -> None:
    model = tiny(arch)
    heads = [n for b in range(model.n_layer_all - model.n_nextn, model.n_layer_all)
             for n in model.block(b)]  # fmt: skip
    found = report(model.without(*heads))
    assert "mtp-tensors-missing" in codes(found)
    assert not found.runnable
    assert found.loads == (arch in TOLERANT)
    assert found.state == ("trunk-only" if arch in TOLERANT else "broken")


@pytest.mark.parametrize("arch", [a for a in WITH_GRAPH if a != "gemma4-assistant"])
def test_a_head_alone_is_head_only(arch: str) -> None:
    model = tiny(arch)
    trunk = [name for block in (0, 1) for name in model.block(block)]
    found = report(model.without(*trunk))
    assert (found.state, found.loads, found.runnable) == ("head-only", True, True)


@pytest.mark.parametrize("arch", sorted(set(ARCHS) - set(WITH_GRAPH) - {"nemotron_h"}))
def test_a_head_alone_does_not_load_where_nothing_could_use_it(arch: str) -> None:
    model = tiny(arch)
    found = report(model.without(*model.block(0), *model.block(1)))
    assert not found.loads
    assert "mtp-no-trunk" in codes(found)


@pytest.mark.parametrize("arch", ARCHS)
def test_two_declared_and_one_present(arch: str) -> None:
    model = tiny(arch, n_heads=2) if arch != "gemma4-assistant" else tiny(arch)
    second = last_block(model)
    found = report(model.without(*model.block(second)))
    assert found.declared == 2
    assert not found.runnable
    if not MTP_ARCHS[arch].all_optional:
        assert not found.loads
        assert len(found.heads[1].missing) > len(found.heads[0].missing)


@pytest.mark.parametrize("arch", ["qwen35", "glm4moe", "deepseek4", "bailingmoe3"])
def test_two_complete_heads_load_but_only_one_can_run(arch: str) -> None:
    found = report(tiny(arch, n_heads=2))
    assert (found.state, found.loads, found.runnable) == ("unsupported", True, False)
    assert codes(found) == {"mtp-many-heads"}


@pytest.mark.parametrize("arch", ["step35", "mimo2", "hy_v3"])
def test_chained_heads_run_as_many_as_are_declared(arch: str) -> None:
    found = report(tiny(arch, n_heads=2))
    assert (found.state, found.runnable, len(found.heads)) == ("complete", True, 2)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["nextn.unheard_of.weight", "unheard_of.weight"])
def test_an_extra_tensor_in_the_block_stops_the_load(arch: str, name: str) -> None:
    model = tiny(arch)
    full = f"blk.{last_block(model)}.{name}"
    found = report(model.reshaped(full, (32,)))
    assert not found.loads
    assert codes(found) >= {"mtp-tensor-unknown"}
    assert full in found.reason


@pytest.mark.parametrize("arch", ARCHS)
def test_a_per_layer_array_of_the_wrong_length_stops_the_load(arch: str) -> None:
    model = tiny(arch)
    value = model.metadata["attention.head_count"]
    heads = value if isinstance(value, list) else [value] * model.n_layer_all
    assert report(model.with_keys(attention__head_count=heads)).loads
    found = report(model.with_keys(attention__head_count=heads[:-1]))
    assert not found.loads
    assert codes(found) == {"mtp-array-length"}


@pytest.mark.parametrize("arch", ARCHS)
def test_model_level_tensors_are_required_in_every_file(arch: str) -> None:
    found = report(tiny(arch).without("token_embd.weight"))
    assert not found.loads
    assert "mtp-model-tensor" in codes(found)


def test_mimo2_runs_only_with_the_fused_qkv_and_a_dense_feed_forward() -> None:
    model = tiny("mimo2")
    split = model
    for block in (2, 3):
        n_embd, n = model.tensors[f"blk.{block}.attn_qkv.weight"]
        split = split.without(f"blk.{block}.attn_qkv.weight").having(
            **{
                f"blk.{block}.attn_q.weight": (n_embd, n - 32),
                f"blk.{block}.attn_k.weight": (n_embd, 16),
                f"blk.{block}.attn_v.weight": (n_embd, 16),
            }
        )
    found = report(split)
    assert (found.state, found.loads, found.runnable) == ("broken", True, False)
    assert found.heads[0].missing == ("blk.2.attn_qkv.weight",)
    found = report(model.without("blk.3.ffn_up.weight"))
    assert (found.loads, found.runnable) == (True, False)


def test_qwen4exp_runs_only_with_split_qkv() -> None:
    found = report(tiny("qwen4exp", fused=True))
    assert (found.loads, found.runnable) == (True, False)
    assert "blk.2.attn_q.weight" in found.heads[0].missing


def test_deepseek4_takes_every_block_as_trunk_when_the_probe_is_missing() -> None:
    model = tiny("deepseek4")
    stripped = model.without(*model.block(2))
    assert not report(stripped).loads
    excluded = stripped.with_keys(block_count=2)
    found = report(excluded)
    assert (found.state, found.loads, found.runnable) == ("trunk-only", True, False)


def test_deepseek2_lite_ignores_its_q_lora_rank() -> None:
    model = tiny("deepseek2").with_keys(block_count=28)
    head = {n.replace("blk.2.", "blk.27."): s for n, s in model.tensors.items() if "blk.2." in n}
    found = report(model.without(*model.block(2)).having(**head))
    assert "blk.27.attn_q.weight" in found.heads[0].missing


def test_step35_head_without_any_output_matrix_loads_and_aborts() -> None:
    model = tiny("step35")
    alone = model.without(*model.block(0), *model.block(1), "output.weight")
    found = report(alone)
    assert (found.loads, found.runnable) == (True, False)
    assert "output.weight" in found.reason


def test_a_head_without_feed_forward_is_broken_though_it_decodes() -> None:
    model = tiny("hy_v3")
    lost = [n for n in model.block(2) if "ffn_" in n and "norm" not in n]
    found = report(model.without(*lost))
    assert (found.state, found.loads, found.runnable) == ("broken", True, True)
    assert codes(found) == {"mtp-ffn"}


def test_scale_companions_are_known_with_the_right_length_only() -> None:
    model, name = tiny("qwen35moe"), "blk.2.ffn_down_exps.scale"
    assert report(model.reshaped(name, (4,))).state == "complete"
    assert report(model.reshaped(name, (1,))).heads[0].wrong_shape == (name,)
    assert not report(model.reshaped("blk.2.attn_q_norm.scale", (1,))).loads


def test_a_reduced_vocabulary_head_is_told_apart_from_a_wrong_shape() -> None:
    found = report(tiny("qwen35").reshaped("blk.2.nextn.shared_head_head.weight", (32, 20)))
    assert codes(found) == {"mtp-reduced-vocab"}
    assert "mtp-d2t" in codes(report(tiny("qwen35").reshaped("d2t", (20,))))


@pytest.mark.parametrize("name", ["mtp.fc.weight", "model.mtp.layers.0.enorm.weight",
                                  "blk.2.nextn.shared_head.norm.weight"])  # fmt: skip
def test_legacy_names_are_called_so(name: str) -> None:
    found = report(tiny("qwen35").reshaped(name, (32,)))
    assert codes(found) == {"mtp-legacy-name"}
    assert not found.loads


def test_block_count_off_by_one_names_the_block_and_the_count() -> None:
    low = report(tiny("qwen35").with_keys(block_count=2))
    assert "mtp-block-count" in codes(low)
    assert any("gguf-set-metadata FILE qwen35.block_count 3" in p.hint for p in low.problems)
    model = tiny("qwen35")
    high = report(model.without(*model.block(2)).with_keys(nextn_predict_layers=None))
    assert codes(high) == {"mtp-block-count"}
    assert not high.loads


@pytest.mark.parametrize("kind", ["uint64", "int32", "uint8"])
def test_the_key_must_be_uint32(kind: str) -> None:
    found = report(tiny("qwen35").with_keys(nextn_predict_layers=(kind, 1)))
    assert codes(found) == {"mtp-key-type"}
    assert not found.loads


def test_more_declared_than_blocks() -> None:
    found = report(tiny("qwen35").with_keys(nextn_predict_layers=4))
    assert codes(found) == {"mtp-count"}
    assert not found.loads


@pytest.mark.parametrize("arch", ["graniteswitch", "eagle3", "dflash"])
def test_drafts_and_routers_are_not_mtp(arch: str) -> None:
    model = dataclasses.replace(PLAIN_LLAMA, arch=arch).with_keys(nextn_predict_layers=1)
    assert (report(model).state, report(model).loads) == ("none", True)


def test_a_file_without_mtp_is_none_and_loads() -> None:
    for model in (PLAIN_LLAMA, PLAIN_LLAMA.with_keys(nextn_predict_layers=0)):
        assert (report(model).state, report(model).loads, report(model).problems) == (
            "none",
            True,
            (),
        )


def test_an_architecture_without_mtp_in_llama_cpp_is_unsupported() -> None:
    strange = report(PLAIN_LLAMA.reshaped("blk.1.nextn.eh_proj.weight", (64, 32)))
    assert (strange.state, strange.loads) == ("unsupported", False)
    assert not report(PLAIN_LLAMA.with_keys(nextn_predict_layers=1)).loads
    assert report(PLAIN_LLAMA.with_keys(nextn_predict_layers=1, block_count=3)).loads


def test_an_empty_header_is_none() -> None:
    found = report(TinyModel("", {}, {}))
    assert (found.state, found.loads) == ("none", True)
    assert not report(TinyModel("qwen35", {}, {})).loads


def test_hostile_counts_end_quickly() -> None:
    start = time.perf_counter()
    base = tiny("step35")
    for keys in (
        {"block_count": 512, "nextn_predict_layers": 512},
        {"block_count": 4_000_000_000, "nextn_predict_layers": 4_000_000_000},
        {"attention__sliding_window_pattern": [True] * 1_000_000},
        {"attention__head_count": [1] * 1_000_000},
    ):
        assert not report(base.with_keys(**keys)).runnable
    assert not report(base.reshaped("blk.99999999999999999999.nextn.enorm.weight", (32,))).loads
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("name", ["blk.\u00b2.nextn.eh_proj.weight", "blk.02.nextn.eh_proj.weight",
                                  "blk..nextn.", ".nextn.", "blk.2.", "nextn."])  # fmt: skip
def test_odd_names_get_a_verdict(name: str) -> None:
    assert isinstance(report(tiny("qwen35").reshaped(name, (64, 32))), MtpReport)


def test_any_subset_of_a_model_gets_a_verdict() -> None:
    dice = random.Random(0)
    for _ in range(300):
        model = tiny(dice.choice(ARCHS), optional=dice.random() < 0.5)
        lost = [name for name in model.tensors if dice.random() < 0.1]
        gone = [key for key in model.metadata if dice.random() < 0.1]
        model = model.without(*lost).with_keys(**dict.fromkeys(gone))
        found = report(model)
        assert found.loads or not found.runnable
        assert bool(found.problems) == (found.state not in ("none", "complete", "head-only"))


def test_every_problem_of_every_mutation_tells_the_next_step() -> None:
    for arch in ("qwen35", "step35", "glm4"):
        for label, model in mutations(arch):
            for problem in report(model).problems:
                assert problem.hint, (label, problem)
                assert problem.message
                assert "\n" not in problem.message + problem.hint


def test_rollback_classes() -> None:
    assert rollback_class("qwen35") == rollback_class("lfm2") == "RS"
    assert rollback_class("qwen3next") == rollback_class("mamba") == "FULL"
    assert rollback_class("llama") == rollback_class("glm4moe") == "PART"


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        ("2*a", 14), ("a + b*2", 13), ("(a - b)*2", 8), ("a // 2", 3), ("a // zero", None),
        ("zero or a", 7), ("b or a", 3), ("a and zero", 0), ("not zero", 1), ("a == 7", 1),
        ("a in (1, 7)", 1), ("b if a > 9 else a", 7), ("unknown + 1", None),
        ("a >= 7 and b < 3", 0),
    ],
)  # fmt: skip
def test_shape_expressions(expr: str, value: int | None) -> None:
    assert evaluate(expr, {"a": 7, "b": 3, "zero": 0, "unknown": None}) == value


def test_a_stripped_file_with_per_layer_arrays_is_not_told_the_same_twice() -> None:
    """An array of the wrong length cannot be mended in the file: only converting again helps."""
    whole = tiny("qwen35")
    bare = whole.without(*whole.block(whole.n_layer_all - 1))
    report = mtp_report(header(bare.with_keys(attention__head_count_kv=[2] * whole.n_layer_all)))
    (hint,) = [p.hint for p in report.problems if p.code == "mtp-tensors-missing"]
    assert "plain model: convert it again with --no-nextn" in hint
    assert hint.count("without --no-nextn") == 1
