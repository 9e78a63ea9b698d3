"""Where weights and caches lie: devices, splits and cache types reach llama.cpp, or are refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from gguftools.errors import EngineError, RefusedError, UsageError
from gguftools.gguf.source import open_gguf
from gguftools.pairing.kv_cache import CACHE_TYPES, cache_type
from gguftools.pairing.memory import kv_bytes_per_token, plan_memory
from gguftools.speculative.cache_types import cache_refusal
from gguftools.speculative.context import Context
from gguftools.speculative.devices import device_array, list_devices
from gguftools.speculative.drafters import ModelDrafter, MtpDrafter
from gguftools.speculative.llama import Model, lib
from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import open_session
from tests.commands import gguftools
from tests.models.chain import random_chain
from tests.models.markov import N_VOCAB, write_llama
from tests.models.tiny import tiny, write

N_PROMPT = 96


def settings(path: Path, **changes: object) -> Settings:
    fixed: dict[str, object] = {"n_ctx": 512, "n_threads": 1, "seed": 1, "chain": Chain(temp=0)}
    return Settings(path, **fixed | changes)  # type: ignore[arg-type]


def cached_bytes(context: Context) -> int:
    """Bytes of what the cache holds, as llama.cpp would save it."""
    return int(lib.llama_state_seq_get_size(context.ptr, 0))


@pytest.mark.parametrize("name", CACHE_TYPES)
def test_every_cache_type_runs_and_takes_the_room_it_should(
    models: dict[str, Path], name: str
) -> None:
    """A Markov file says the same whatever its attention holds."""
    texts, sizes = [], []
    for kind in ("f16", name):
        one = settings(models["target"], drafter="none", cache_type_k=kind, cache_type_v=kind)
        with open_session(one) as session:
            reply = session.reply("abc " * (N_PROMPT // 4), 40, raw=True)
            for _ in reply:
                pass
            texts.append(reply.token_ids)
            sizes.append(cached_bytes(session.target))
            n = session.target.n_past
    header = open_gguf(models["target"])
    bits = [cache_type(kind).bits_per_weight or 0 for kind in ("f16", name)]
    expected = [kv_bytes_per_token(header) * each / 16 * n for each in bits]
    assert texts[0] == texts[1]
    assert sizes[1] - sizes[0] == pytest.approx(expected[1] - expected[0], rel=0.02)


@pytest.mark.parametrize(
    ("target", "options"),
    [("target", {"drafter": "draft", "draft": "draft"}), ("hybrid-mtp", {"drafter": "mtp"})],
)
def test_the_drafts_cache_has_types_of_its_own(
    models: dict[str, Path], target: str, options: dict[str, str]
) -> None:
    changes = {k: models[v] if k == "draft" else v for k, v in options.items()}
    sizes: list[tuple[int, int]] = []
    for k, v in (("f16", "f16"), ("q8_0", "q4_0")):
        one = settings(
            models[target], cache_type_k_draft=k, cache_type_v_draft=v, draft_min=8, **changes
        )
        with open_session(one) as session:
            for _ in session.reply("abc " * (N_PROMPT // 4), 20, raw=True):
                pass
            drafter = session.engine.drafter
            assert isinstance(drafter, ModelDrafter | MtpDrafter)
            sizes.append((cached_bytes(session.target), cached_bytes(drafter.context)))
    assert sizes[0][0] == sizes[1][0]
    assert sizes[1][1] < 0.6 * sizes[0][1]


@pytest.fixture(scope="module")
def odd_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Heads of 16 and of 32 values, and one that caches keys and values together."""
    folder = tmp_path_factory.mktemp("odd")
    chain = random_chain(N_VOCAB, 1)
    write(tiny("deepseek2"), folder / "mla.gguf")
    return {
        "narrow": write_llama(folder / "narrow.gguf", chain, n_layer=1, n_embd=128, n_head=8),
        "usual": write_llama(folder / "usual.gguf", chain, n_layer=1),
        "mla": folder / "mla.gguf",
    }


@pytest.mark.parametrize("name", ["narrow", "usual", "mla"])
def test_what_is_refused_is_what_llama_cpp_refuses(odd_models: dict[str, Path], name: str) -> None:
    path = odd_models[name]
    header, model = open_gguf(path), Model(path, n_gpu_layers=0, load_mtp=False)
    refused = 0
    for k, v in product(("f16", "bf16", "q8_0", "q4_1", "iq4_nl"), repeat=2):
        ours = cache_refusal(header, k, v)
        try:
            types = CACHE_TYPES[k].id, CACHE_TYPES[v].id
            Context(model, n_ctx=256, n_threads=1, types_kv=types).close()
            theirs = None
        except EngineError as err:
            theirs = str(err)
        assert (ours is None) == (theirs is None), (k, v, ours, theirs)
        refused += ours is not None
    model.close()
    assert (refused > 0) == (name != "usual")


def test_a_cache_that_cannot_be_is_refused_before_loading(odd_models: dict[str, Path]) -> None:
    narrow = odd_models["narrow"]
    with pytest.raises(RefusedError, match="blocks of 32"):
        open_session(settings(narrow, drafter="none", cache_type_v="q8_0"))
    with pytest.raises(RefusedError, match="blocks of 32"):
        open_session(
            settings(odd_models["usual"], draft=narrow, drafter="draft", cache_type_k_draft="q4_0")
        )
    with pytest.raises(UsageError, match="q9_9"):
        open_session(settings(narrow, cache_type_k="q9_9"))


def test_a_quantized_cache_lets_a_larger_context_fit(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    header, needs = open_gguf(models["target"]), []
    for kind in ("f16", "q8_0"):
        parts = plan_memory(
            header, None, None, n_ctx=512, n_batch=512, cache_type_k=kind, cache_type_v=kind
        ).parts
        needs.append(parts.total - parts.weights)
    monkeypatch.setattr("gguftools.speculative.plan.ram_bytes", lambda: sum(needs) // 2)
    one = settings(models["target"], drafter="none")
    with pytest.raises(RefusedError, match="512 tokens"):
        open_session(one)
    open_session(
        settings(models["target"], drafter="none", cache_type_k="q8_0", cache_type_v="q8_0")
    ).close()


# -- devices


def test_devices_are_listed_without_the_cpu() -> None:
    found = list_devices()
    assert all(device.name and device.ptr for device in found)
    assert not any(device.name == "CPU" for device in found)
    assert bool(found) <= bool(lib.llama_supports_gpu_offload())


def test_an_unknown_device_is_a_usage_error_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="Warp9") as err:
        device_array(["Warp9"])
    assert all(device.name in str(err.value) for device in list_devices())
    with pytest.raises(UsageError, match="none"):
        device_array(["none", "none"])
    assert device_array([]) is None
    assert list(device_array(["none"])) == [None]


@pytest.mark.parametrize(
    "options",
    [
        ["--device", "none"],
        ["-dev", "none", "-devd", "none", "-sm", "none", "-ngl", "0", "-ngld", "0"],
        ["--split-mode", "row", "-ctk", "q8_0", "-ctv", "q8_0", "-ctkd", "q4_0", "-ctvd", "q4_0"],
    ],
)
def test_the_flags_reach_llama_cpp(models: dict[str, Path], options: list[str]) -> None:
    run = ["run", models["target"], "--draft", models["draft"], "-p", "abc", "-n", "20"]
    run += ["-t", "1", "--temp", "0", "-c", "256"]
    plain = gguftools(*run)
    done = gguftools(*run, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == plain.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-ctk", "q3_k"], "q8_0"),
        (["--cache-type-v-draft", "int4"], "iq4_nl"),
        (["--device", "Warp9"], "Warp9"),
        (["--device", "none,none"], "none"),
        (["--device", ","], "CUDA0"),
        (["--device-draft", "Warp9", "--ngram", "--draft", "draft"], "Warp9"),
        (["-sm", "column"], "row"),
    ],
)
def test_bad_values_are_misuse_and_say_which_are_good(
    models: dict[str, Path], options: list[str], said: str
) -> None:
    words = [str(models.get(word, word)) for word in options]
    done = gguftools("run", models["target"], "-p", "abc", "-n", "4", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_split_over_nothing_is_misuse(models: dict[str, Path]) -> None:
    none = {"drafter": "none", "device": ("none",)}
    for mode in ("tensor", "column"):
        with pytest.raises(UsageError, match=mode):
            open_session(settings(models["target"], split_mode=mode, **none))
