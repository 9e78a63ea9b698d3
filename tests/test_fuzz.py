"""Whatever the bytes, reading them ends in a report or in one clear line, and sound ones come back.

scripts/fuzz_reader.py does the same for as long as one likes, guided by coverage.
"""

from __future__ import annotations

import io
import math
import random
import struct
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gguftools.gguf import reader
from gguftools.gguf.header import LongText, NumericArray, StringArray, Value
from gguftools.gguf.reader import VALUE_TYPES, read_header
from tests.models import bytes as raw
from tests.models.damage import EXTREMES, check_answer, damaged, seeds

quick = settings(
    max_examples=150,
    deadline=1000,
    derandomize=True,  # CI looks at the same files each time; scripts/fuzz_reader.py at new ones
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

_INTEGERS = {t: struct.calcsize(letter) for t, letter in raw.LETTERS.items() if letter not in "fd?"}
_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=24)
_texts = st.text(st.characters(codec="utf-8"), max_size=70)


def _numbers(type_id: int) -> st.SearchStrategy[int | float | bool]:
    letter = raw.LETTERS[type_id]
    if letter == "?":
        return st.booleans()
    if letter in "fd":
        return st.floats(width=32 if letter == "f" else 64, allow_nan=False)
    bits = 8 * _INTEGERS[type_id]
    return st.integers(0, 2**bits - 1) if letter.isupper() else st.integers(
        -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    )  # fmt: skip


Written = tuple[int, bool, object]  # type id, whether an array, value
Row = tuple[list[int], int, int]  # shape, type id, offset


@st.composite
def _values(draw: st.DrawFn) -> Written:
    type_id = draw(st.sampled_from([t for t in VALUE_TYPES if t != raw.ARRAY]))
    one = _texts if type_id == raw.STRING else _numbers(type_id)
    if draw(st.booleans()):
        # More strings than a run has, in few draws.
        values = draw(st.lists(one, max_size=5)) * draw(st.sampled_from((1, 1, 1, 80)))
        return type_id, True, values
    return type_id, False, draw(one)


_metadata = st.dictionaries(
    _names.filter(lambda name: name != "general.alignment"), _values(), max_size=6
)
_tensors = st.dictionaries(
    _names.filter(lambda name: len(name.encode()) < 64),
    st.tuples(
        st.lists(st.integers(1, 2**15), max_size=4), st.integers(0, 160), st.integers(0, 2**64 - 1)
    ),
    max_size=4,
)


def _written(order: str, metadata: dict[str, Written], tensors: dict[str, Row]) -> bytes:
    entries = [
        raw.array(key, type_id, value, order=order)  # type: ignore[arg-type]
        if is_array
        else raw.entry(key, type_id, value, order=order)  # type: ignore[arg-type]
        for key, (type_id, is_array, value) in metadata.items()
    ]
    rows = [
        raw.tensor(name, shape, type_id, offset, order=order)
        for name, (shape, type_id, offset) in tensors.items()
    ]
    return raw.header(entries, rows, order=order)


def _plain(value: Value) -> object:
    if isinstance(value, StringArray):
        return [text.decode() for text in value]
    if isinstance(value, NumericArray):
        return list(value.values())
    return value.raw.tobytes().decode() if isinstance(value, LongText) else value


@quick
@given(order=st.sampled_from("<>"), metadata=_metadata, tensors=_tensors)
def test_what_was_written_is_read(
    order: str, metadata: dict[str, Written], tensors: dict[str, Row]
) -> None:
    content = _written(order, metadata, tensors)
    header = read_header(io.BytesIO(content), "model.gguf")
    assert {k: _plain(v) for k, v in header.metadata.items()} == {
        k: value for k, (_, _, value) in metadata.items()
    }
    assert header.types == {
        k: f"array[{VALUE_TYPES[t][0]}]" if is_array else VALUE_TYPES[t][0]
        for k, (t, is_array, _) in metadata.items()
    }
    rows = header.tensors.values()
    assert {r.name: (list(r.shape), r.type.id, r.offset) for r in rows} == tensors
    assert [r.n_elements for r in rows] == [math.prod(r.shape) for r in rows]
    assert header.order == order
    check_answer(content)


@quick
@given(metadata=_metadata, block=st.integers(1, 40))
def test_blocks_and_runs_may_end_anywhere(metadata: dict[str, Written], block: int) -> None:
    content = _written("<", metadata, {})
    whole = read_header(io.BytesIO(content), "model.gguf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_BLOCK", block)
        patch.setattr(reader, "TEXT_BYTES_MAX", 8)
        pieces = read_header(io.BytesIO(content), "model.gguf")
    assert {k: _plain(v) for k, v in pieces.metadata.items()} == {
        k: _plain(v) for k, v in whole.metadata.items()
    }


@cache
def _seeds() -> list[bytes]:
    return [content for content in seeds() if len(content) < 1 << 14]


@quick
@given(st.integers(0, 2**32), st.data())
def test_a_damaged_file_is_answered_in_clear_lines(seed: int, data: st.DataObject) -> None:
    rng = random.Random(seed)
    content = bytearray(damaged(rng.choice(_seeds()), rng, _seeds()))
    if content and data.draw(st.booleans()):
        at, value = data.draw(st.integers(0, len(content))), data.draw(st.sampled_from(EXTREMES))
        content[at : at + 8] = struct.pack("<Q", value)
    check_answer(bytes(content))


@pytest.mark.parametrize("position", range(24))
def test_any_extreme_in_the_counts_is_answered(position: int) -> None:
    for value in EXTREMES:
        content = bytearray(_seeds()[0])
        content[position : position + 8] = struct.pack("<Q", value)
        check_answer(bytes(content))


def test_seeds_are_sound() -> None:
    for content in _seeds():
        header = read_header(io.BytesIO(content), "model.gguf")
        assert header.tensors
        assert all(" at byte " not in line for line in check_answer(content))
