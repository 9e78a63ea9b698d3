"""Reads the header of one GGUF file object: metadata and tensor table. Pure, bounded, no numpy.

The header is read in growing blocks into one buffer. Arrays stay spans of that buffer: walking the
lengths of a string array is all that happens to it until somebody asks for its elements.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, NamedTuple, NoReturn

from gguftools.errors import FormatError
from gguftools.gguf.ggml_types import ggml_type
from gguftools.gguf.header import (
    DEFAULT_ALIGNMENT,
    LONG_TEXT_BYTES,
    Array,
    Header,
    LongText,
    NumericArray,
    Shard,
    TensorInfo,
    Value,
)
from gguftools.gguf.lookalikes import looks_like
from gguftools.gguf.strings import RUN, ByteOrder, StringArray, short_run

__all__ = [
    "Array", "Header", "LongText", "NumericArray", "Shard", "StringArray", "TensorInfo", "Value",
    "read_header",
]  # fmt: skip

# Our own bounds, far above any model in use.
HEADER_BYTES_MAX = 64 << 20
N_METADATA_MAX = 1 << 16
N_TENSORS_MAX = 1 << 16
N_STRINGS_MAX = 1 << 21  # all string arrays together
KEY_BYTES_MAX = 1 << 16
N_DIMS_MAX = 4  # GGML_MAX_DIMS
TENSOR_NAME_BYTES_MAX = 63  # GGML_MAX_NAME - 1
N_ELEMENTS_MAX = (1 << 63) - 1
TEXT_BYTES_MAX = 16 << 20  # texts decoded at once, together; the rest when somebody asks
MESSAGE_CHARS_MAX = 400

_BLOCK = 1 << 20

# Value types by id (ggml/include/gguf.h): name, struct letter; string and array have none.
VALUE_TYPES: dict[int, tuple[str, str]] = {
    0: ("uint8", "B"), 1: ("int8", "b"), 2: ("uint16", "H"), 3: ("int16", "h"),
    4: ("uint32", "I"), 5: ("int32", "i"), 6: ("float32", "f"), 7: ("bool", "?"),
    8: ("string", ""), 9: ("array", ""), 10: ("uint64", "Q"), 11: ("int64", "q"),
    12: ("float64", "d"),
}  # fmt: skip
_STRING, _ARRAY = 8, 9


def read_header(file: BinaryIO, path: str) -> Header:
    """Read the header of a seekable binary file. FormatError names the path and the byte."""
    return _Parser(file, path).header()


class _Parser:
    """A cursor over the growing head of the file. `buf` always starts at byte 0 of the file."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.file, self.path = file, path
        self.n_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        self.buf = bytearray()
        self.pos = 0
        self.n_strings = self.n_text_bytes = 0
        self.order: ByteOrder = "<"

    def header(self) -> Header:
        version, n_tensors, n_metadata = self._prologue()
        values: dict[str, Value | _Place] = {}
        types: dict[str, str] = {}
        for i in range(n_metadata):
            key = self._key(i, n_metadata)
            if key in types:
                self._fail(f"metadata key {key!r} appears twice")
            values[key] = self._value(key, types)
        alignment = self._alignment(values, types)
        tensors: dict[str, TensorInfo] = {}
        for i in range(n_tensors):
            row = self._tensor(i, n_tensors)
            if row.name in tensors:
                self._fail(f"tensor {row.name!r} appears twice")
            tensors[row.name] = row
        del self.buf[self.pos :]
        view = memoryview(self.buf)
        data_offset = -(-self.pos // alignment) * alignment if tensors else self.pos
        return Header(
            version,
            self.order,
            alignment,
            {
                k: v.value(view, self.order) if isinstance(v, _Place) else v
                for k, v in values.items()
            },
            types,
            tensors,
            (Shard(self.path, self.n_bytes, data_offset, len(tensors), alignment),),
        )

    def _prologue(self) -> tuple[int, int, int]:
        if self.n_bytes < 24:
            self._fail(f"only {self.n_bytes} bytes, a GGUF header has at least 24")
        self._need(24)
        magic = bytes(self.buf[:4])
        if magic != b"GGUF":
            self._fail(f"not a GGUF file: it starts with {magic!r}{looks_like(self.buf)}")
        self.pos = 4
        version = self._number("I")
        if version & 0xFFFF == 0 and version:
            self.order, self.pos = ">", 4
            version = self._number("I")
        if version not in (2, 3):
            self._fail(f"GGUF version {version}; versions 2 and 3 can be read")
        n_tensors, n_metadata = self._number("Q"), self._number("Q")
        self._bound(n_metadata, "metadata entries", N_METADATA_MAX, 13)
        self._bound(n_tensors, "tensors", N_TENSORS_MAX, 25)
        return version, n_tensors, n_metadata

    def _bound(self, n: int, what: str, n_max: int, bytes_each: int) -> None:
        """Refuse a count that the limit or the rest of the file cannot hold."""
        if n > n_max:
            self._fail(f"{what}: {n} declared, at most {n_max} are read")
        if n * bytes_each > self.n_bytes - self.pos:
            rest = self.n_bytes - self.pos
            self._fail(f"{what}: {n} declared, but only {rest} bytes follow")

    def _need(self, end: int) -> None:
        """Have the bytes up to `end` in the buffer."""
        if end <= len(self.buf):
            return
        if end > self.n_bytes:
            self._fail(
                f"the header ends early: {end - self.n_bytes} more bytes are needed "
                f"than the {self.n_bytes} of the file",
                hint="is the download complete?",
            )
        if end > HEADER_BYTES_MAX:
            self._fail(f"the header is larger than {HEADER_BYTES_MAX >> 20} MiB")
        while len(self.buf) < end:
            block = self.file.read(min(_BLOCK, self.n_bytes - len(self.buf)))
            if not block:
                self._fail("the file became shorter while it was read")
            self.buf += block

    def _number(self, letter: str) -> int:
        form = struct.Struct(self.order + letter)
        self._need(self.pos + form.size)
        (value,) = form.unpack_from(self.buf, self.pos)
        self.pos += form.size
        return int(value)

    def _span(self, n_max: int, what: str) -> slice:
        """Where the string at the cursor lies; the cursor moves behind it."""
        n = self._number("Q")
        if n > n_max:
            self._fail(f"{what} declares a length of {n} bytes; at most {n_max} are read")
        self._need(self.pos + n)
        self.pos += n
        return slice(self.pos - n, self.pos)

    def _bytes(self, n_max: int, what: str) -> bytes:
        return bytes(self.buf[self._span(n_max, what)])

    def _text(self, what: str) -> str | _Place:
        span = self._span(HEADER_BYTES_MAX, what)
        n_bytes = span.stop - span.start
        self.n_text_bytes += n_bytes
        if n_bytes > LONG_TEXT_BYTES or self.n_text_bytes > TEXT_BYTES_MAX:
            return _Place(span.start, span.stop, n_bytes, "text", "")
        with memoryview(self.buf) as view, view[span] as text:
            return str(text, "utf-8", "replace")

    def _key(self, i: int, n: int) -> str:
        key = self._bytes(KEY_BYTES_MAX, f"metadata key {i + 1} of {n}")
        if not key:
            self._fail(f"metadata key {i + 1} of {n} is empty")
        return key.decode("utf-8", "backslashreplace")

    def _value(self, key: str, types: dict[str, str]) -> Value | _Place:
        type_id = self._number("I")
        if type_id not in VALUE_TYPES:
            self._fail(f"metadata key {key!r} has the unknown value type {type_id}")
        name, letter = VALUE_TYPES[type_id]
        types[key] = name
        if type_id == _ARRAY:
            place = self._array(key)
            types[key] = f"array[{place.type_name}]"
            return place
        if type_id == _STRING:
            return self._text(f"metadata key {key!r}")
        form = struct.Struct(self.order + letter)
        self._need(self.pos + form.size)
        value: int | float | bool = form.unpack_from(self.buf, self.pos)[0]
        self.pos += form.size
        return value

    def _array(self, key: str) -> _Place:
        type_id, n = self._number("I"), self._number("Q")
        if type_id == _ARRAY or type_id not in VALUE_TYPES:
            kind = "nested arrays" if type_id == _ARRAY else f"the unknown element type {type_id}"
            self._fail(f"metadata key {key!r} has {kind}")
        name, letter = VALUE_TYPES[type_id]
        start = self.pos
        if type_id == _STRING:
            self.n_strings += n
            self._bound(n, f"strings in {key!r}", N_STRINGS_MAX, 8)
            self._bound(self.n_strings, f"strings up to {key!r}", N_STRINGS_MAX, 0)
            marks = self._skip_strings(n)
            return _Place(start, self.pos, n, name, letter, marks)
        size = struct.calcsize("<" + letter)
        self._bound(n, f"elements in {key!r}", HEADER_BYTES_MAX, size)
        self.pos += n * size
        self._need(self.pos)
        return _Place(start, self.pos, n, name, letter)

    def _skip_strings(self, n: int) -> tuple[int, ...]:
        """Walk over n strings, which decides how fast a header is read, and mark each RUN-th."""
        start, marks = self.pos, []
        match = short_run().match if n >= RUN and self.order == "<" else None
        for i in range(0, n, RUN):
            marks.append(self.pos - start)
            found = match(self.buf, self.pos) if match is not None and i + RUN <= n else None
            if found is not None:
                self.pos = found.end()
            else:  # a long string, the end of the buffer, or the last few
                self._walk(min(RUN, n - i))
        return tuple(marks)

    def _walk(self, n: int) -> None:
        unpack, buf, pos = struct.Struct(f"{self.order}Q").unpack_from, self.buf, self.pos
        last = len(buf) - 8
        for _ in range(n):
            if pos > last:
                self.pos = pos
                self._need(pos + 8)
                last = len(buf) - 8
            pos += 8 + unpack(buf, pos)[0]
        self._need(pos)
        self.pos = pos

    def _alignment(self, values: dict[str, Value | _Place], types: dict[str, str]) -> int:
        value = values.get("general.alignment", DEFAULT_ALIGNMENT)
        kind = types.get("general.alignment", "uint32")
        if kind != "uint32" or not isinstance(value, int) or value < 1 or value & (value - 1):
            self._fail(f"general.alignment is {value!r} ({kind}); it must be a u32 power of two")
        return value

    def _tensor(self, i: int, n: int) -> TensorInfo:
        what = f"tensor {i + 1} of {n}"
        text = self._bytes(TENSOR_NAME_BYTES_MAX, f"the name of {what}")
        if not text:
            self._fail(f"{what} has an empty name")
        name = text.decode("utf-8", "backslashreplace")
        n_dims = self._number("I")
        if n_dims > N_DIMS_MAX:
            self._fail(f"tensor {name!r} has {n_dims} dimensions; at most {N_DIMS_MAX} are allowed")
        self._need(self.pos + 8 * n_dims + 12)
        shape = struct.unpack_from(f"{self.order}{n_dims}Q", self.buf, self.pos)
        self.pos += 8 * n_dims
        row = TensorInfo(name, shape, ggml_type(self._number("I")), self._number("Q"))
        if 0 in shape:
            self._fail(f"tensor {name!r} has a dimension of 0: {list(shape)}")
        if row.n_elements > N_ELEMENTS_MAX:
            self._fail(f"tensor {name!r} declares more than 2^63 elements: {list(shape)}")
        return row

    def _fail(self, what: str, hint: str = "") -> NoReturn:
        if len(what) > MESSAGE_CHARS_MAX:
            what = what[: MESSAGE_CHARS_MAX // 2] + "..." + what[-MESSAGE_CHARS_MAX // 2 :]
        raise FormatError(what, where=f"{self.path} at byte {self.pos}", hint=hint)


class _Place(NamedTuple):
    """Where an array or a long text lies in the buffer."""

    start: int
    end: int
    n: int
    type_name: str
    letter: str
    marks: tuple[int, ...] = ()

    def value(self, view: memoryview, order: ByteOrder) -> Array | LongText:
        raw = view[self.start : self.end]
        if self.letter:
            return NumericArray(raw, self.n, self.type_name, self.letter, order)
        if self.type_name == "text":
            return LongText(raw)
        return StringArray(raw, self.n, order, marks=self.marks)
