"""The header reader agrees with gguf-py, and with what was written, wherever its blocks end."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGUFReader, GGUFValueType, ReaderField

from gguftools.errors import FormatError, SourceError
from gguftools.gguf import reader
from gguftools.gguf.header import Header, NumericArray, StringArray, Value
from gguftools.gguf.reader import read_header
from gguftools.gguf.source import open_gguf, shard_paths
from tests.models import bytes as raw
from tests.models.real import gemma3_270m, smollm2

NUMBERS: dict[int, tuple[str, int | float | bool]] = {
    raw.U8: ("uint8", 200), raw.I8: ("int8", -100), raw.U16: ("uint16", 60_000),
    raw.I16: ("int16", -30_000), raw.U32: ("uint32", 4_000_000_000),
    raw.I32: ("int32", -2_000_000_000), raw.F32: ("float32", 0.5), raw.BOOL: ("bool", True),
    raw.U64: ("uint64", 2**63 + 1), raw.I64: ("int64", -(2**62)), raw.F64: ("float64", 1e300),
}  # fmt: skip
TEXTS = ["", "plain", "\u20ac", "\U0001f600 " * 9]


def every_kind(order: str, version: int = 3) -> bytes:
    """A header with every value type, alone and in an array."""
    entries = [raw.entry("general.architecture", raw.STRING, "llama", order=order)]
    for type_id, (name, value) in NUMBERS.items():
        entries.append(raw.entry(f"one.{name}", type_id, value, order=order))
        entries.append(raw.array(f"many.{name}", type_id, [value] * 3, order=order))
    entries.append(raw.entry("one.string", raw.STRING, TEXTS[3], order=order))
    entries.append(raw.array("many.string", raw.STRING, TEXTS, order=order))
    entries.append(raw.array("none", raw.STRING, [], order=order))
    tensors = [
        raw.tensor("token_embd.weight", [32, 7], 8, 0, order=order),
        raw.tensor("output_norm.weight", [32], 0, 256, order=order),
        raw.tensor("one", [], 30, 384, order=order),
    ]
    return raw.header(entries, tensors, version=version, order=order)


def read(content: bytes) -> Header:
    return read_header(io.BytesIO(content), "model.gguf")


def assert_every_kind(header: Header, order: str) -> None:
    assert header.architecture == "llama"
    for name, value in NUMBERS.values():
        assert header.types[f"one.{name}"] == name
        assert header.metadata[f"one.{name}"] == value
        many = header.metadata[f"many.{name}"]
        assert isinstance(many, NumericArray)
        assert (many.type_name, many.values()) == (name, (value,) * 3)
        assert header.types[f"many.{name}"] == f"array[{name}]"
    assert header.metadata["one.string"] == TEXTS[3]
    many_texts = header.metadata["many.string"]
    assert isinstance(many_texts, StringArray)
    assert [text.decode() for text in many_texts] == TEXTS
    assert len(many_texts) == len(TEXTS)
    none = header.metadata["none"]
    assert isinstance(none, StringArray)
    assert list(none) == []
    rows = [(row.name, row.shape, row.type.name, row.offset) for row in header.tensors.values()]
    assert rows == [
        ("token_embd.weight", (32, 7), "Q8_0", 0),
        ("output_norm.weight", (32,), "F32", 256),
        ("one", (), "BF16", 384),
    ]
    assert [row.n_bytes for row in header.tensors.values()] == [7 * 34, 128, 2]
    assert header.order == order


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type_comes_back_in_both_versions_and_byte_orders(
    order: str, version: int
) -> None:
    header = read(every_kind(order, version))
    assert header.version == version
    assert_every_kind(header, order)


def test_no_value_minds_where_a_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    content = every_kind("<")
    for size in range(1, len(content) + 1):
        monkeypatch.setattr(reader, "_BLOCK", size)
        assert_every_kind(read(content), "<")


def test_the_data_starts_at_the_next_multiple_of_the_alignment() -> None:
    for alignment in (1, 32, 64, 4096):
        entries = [raw.entry("general.alignment", raw.U32, alignment)]
        content = raw.header(entries, [raw.tensor("t", [8])])
        shard = read(content).shards[0]
        assert shard.data_offset == len(raw.padded(content, alignment))
        assert shard.alignment == alignment


def test_an_unknown_tensor_type_is_kept_and_named() -> None:
    header = read(raw.header([], [raw.tensor("a", [256], 156), raw.tensor("b", [8], 0)]))
    assert header.tensors["a"].type.name == "type 156"
    assert header.tensors["a"].n_bytes is None
    assert header.tensors["b"].n_bytes == 32


def test_text_that_is_not_utf8_is_shown_not_refused() -> None:
    entries = [raw.entry(b"k\xff", raw.STRING, b"v\xff")]
    header = read(raw.header(entries, [raw.tensor(b"t\xff", [8])]))
    assert header.metadata == {"k\\xff": "v\ufffd"}
    assert list(header.tensors) == ["t\\xff"]


def test_arrays_of_equal_text_compare_equal_and_others_do_not() -> None:
    def tokens(texts: list[str]) -> StringArray:
        value = read(raw.header([raw.array("k", raw.STRING, texts)])).metadata["k"]
        assert isinstance(value, StringArray)
        return value

    assert tokens(["a", "bc"]).same_as(tokens(["a", "bc"]))
    assert not tokens(["a", "bc"]).same_as(tokens(["ab", "c"]))


def shard(no: int, count: int, names: list[str], *, total: int, order: str = "<") -> bytes:
    entries = [
        raw.entry("split.no", raw.U16, no, order=order),
        raw.entry("split.count", raw.U16, count, order=order),
        raw.entry("split.tensors.count", raw.I32, total, order=order),
    ]
    if no == 0:
        entries.append(raw.entry("general.architecture", raw.STRING, "llama", order=order))
    rows = [raw.tensor(name, [8], 0, 32 * i, order=order) for i, name in enumerate(names)]
    return raw.padded(raw.header(entries, rows, order=order)) + bytes(32 * len(names))


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = shard_paths(tmp_path / "m-00001-of-00003.gguf", 3)
    for no, (path, names) in enumerate(zip(paths, [["a", "b"], [], ["c"]], strict=True)):
        path.write_bytes(shard(no, 3, names, total=3))
    return paths


@pytest.mark.parametrize("named", [0, 1, 2])
def test_a_split_model_is_one_model_whichever_shard_is_named(
    shards: list[Path], named: int
) -> None:
    header = open_gguf(shards[named])
    assert header.architecture == "llama"
    assert {row.name: row.shard for row in header.tensors.values()} == {"a": 0, "b": 0, "c": 2}
    assert [s.path for s in header.shards] == [str(path) for path in shards]
    assert [s.n_tensors for s in header.shards] == [2, 0, 1]


Damage = Callable[[list[Path]], object]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda paths: paths[1].unlink(), "shard 2 of 3 is missing"),
        (lambda paths: paths[2].write_bytes(b""), "00003-of-00003.gguf at byte 0: only 0 bytes"),
        (lambda paths: paths[2].write_bytes(shard(1, 3, ["c"], total=3)), "split.no is 1"),
        (lambda paths: paths[2].write_bytes(shard(2, 3, ["a"], total=3)), "'a' is in two shards"),
        (lambda paths: paths[2].write_bytes(shard(2, 3, ["c", "d"], total=3)), "hold 4"),
        (lambda paths: paths[2].write_bytes(shard(2, 3, ["c"], total=3, order=">")), "byte order"),
        (lambda paths: paths[0].write_bytes(shard(0, 4, ["a"], total=3)), "does not end in"),
        (lambda paths: paths[0].write_bytes(raw.header()), "split.no is None"),
    ],
)
def test_a_damaged_split_names_its_shard(shards: list[Path], damage: Damage, words: str) -> None:
    damage(shards)
    with pytest.raises((FormatError, SourceError)) as caught:
        open_gguf(shards[0] if "None" not in words else shards[1])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shard_under_another_name_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(shard(0, 3, ["a"], total=3))
    with pytest.raises(FormatError, match="give the shards back their own names"):
        open_gguf(path)


def oracle_value(field: ReaderField) -> object:
    """A gguf-py field in the form that ours has."""
    if GGUFValueType.STRING in field.types:
        texts = [bytes(field.parts[i]) for i in field.data]
        return texts if GGUFValueType.ARRAY in field.types else texts[0].decode()
    numbers = tuple(field.parts[i][0].item() for i in field.data)
    return numbers if GGUFValueType.ARRAY in field.types else numbers[0]


def our_value(value: Value) -> object:
    if isinstance(value, StringArray):
        return list(value)
    return value.values() if isinstance(value, NumericArray) else value


@pytest.mark.parametrize("find", [smollm2, gemma3_270m])
def test_header_equals_gguf_py(find: Callable[[], Path | None]) -> None:
    path = find()
    if path is None:
        pytest.skip("the model is not here: python -m tests.models.real")
    ours, theirs = open_gguf(path), GGUFReader(path)
    fields = {k: f for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    for key, field in fields.items():
        assert our_value(ours.metadata[key]) == oracle_value(field), key
        names = [kind.name.lower() for kind in field.types]
        assert ours.types[key] == (f"array[{names[1]}]" if names[1:] else names[0])
    assert ours.shards[0].data_offset == theirs.data_offset
    rows = [
        (row.name, row.shape, row.type.name, row.n_bytes, row.offset + theirs.data_offset)
        for row in ours.tensors.values()
    ]
    assert rows == [
        (t.name, tuple(map(int, t.shape)), t.tensor_type.name, t.n_bytes, t.data_offset)
        for t in theirs.tensors
    ]
