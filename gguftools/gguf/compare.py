"""What differs between two models by their headers, the MTP head first. Pure.

Made for "before and after": A is the model as it was, B what became of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gguftools.gguf.header import (
    Header,
    LongText,
    NumericArray,
    StringArray,
    TensorInfo,
    Value,
)
from gguftools.gguf.nextn import MtpReport, mtp_report
from gguftools.gguf.precision import head_tensors
from gguftools.gguf.tensors import TensorGroups, tensor_groups

HeadVerdict = Literal["none", "intact", "changed", "gained", "lost", "broken", "still-broken"]
Scalar = int | float | bool | str

_TEXT_BEFORE, _TEXT_SHOWN = 20, 80  # characters shown of a long text: ahead of a difference, in all
_STEP = 1 << 16  # bytes compared at a time
_KEYS_FIRST = ("nextn_predict_layers", "block_count", "general.architecture", "general.file_type")


@dataclass(frozen=True, slots=True)
class Side:
    """One value: its type, the elements or characters it has, and what is shown of it."""

    type: str
    n: int | None  # None for a number
    shown: Scalar | None  # None past the end of the shorter array


@dataclass(frozen=True, slots=True)
class _Place:
    """An element or character, and for an array the byte where it starts."""

    index: int
    byte: int


_START = _Place(0, 0)


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A key that only one file has, or whose values differ: `index` is the first place they do."""

    key: str
    before: Side | None
    after: Side | None
    index: int | None


@dataclass(frozen=True, slots=True)
class TensorPair:
    """One tensor in both files, None where one lacks it."""

    name: str
    before: TensorInfo | None
    after: TensorInfo | None

    @property
    def same(self) -> bool:
        """Whether both have it, in one type and shape."""
        a, b = self.before, self.after
        return a is not None and b is not None and (a.type, a.shape) == (b.type, b.shape)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that differs; `head` has every tensor of an MTP head, `tensors` those that differ.

    Headers only: two tensors of one type and shape may still hold other values.
    """

    verdict: HeadVerdict
    reason: str
    mtp_before: MtpReport
    mtp_after: MtpReport
    head: tuple[TensorPair, ...]
    tensors: tuple[TensorPair, ...]
    metadata: tuple[MetadataChange, ...]
    groups_before: TensorGroups
    groups_after: TensorGroups

    @property
    def same(self) -> bool:
        """Whether no header fact differs."""
        return not self.tensors and not self.metadata

    @property
    def survived(self) -> bool:
        """Whether the head is no worse off than it was."""
        return self.verdict not in ("lost", "broken")


def compare(a: Header, b: Header) -> Comparison:
    """Compare two models."""
    names = dict.fromkeys([*a.tensors, *b.tensors])
    pairs = [TensorPair(name, a.tensors.get(name), b.tensors.get(name)) for name in names]
    in_head = head_tensors(a).keys() | head_tensors(b).keys()
    head = tuple(
        sorted(
            (pair for pair in pairs if pair.name in in_head), key=lambda p: "nextn." not in p.name
        )
    )
    before, after = mtp_report(a), mtp_report(b)
    verdict, reason = _verdict(before, after, head)
    differing = [pair for pair in pairs if not pair.same]
    differing.sort(key=lambda pair: pair.name not in in_head)
    return Comparison(
        verdict=verdict,
        reason=reason,
        mtp_before=before,
        mtp_after=after,
        head=head,
        tensors=tuple(differing),
        metadata=tuple(sorted(_metadata(a, b), key=_importance)),
        groups_before=tensor_groups(a),
        groups_after=tensor_groups(b),
    )


def _verdict(
    before: MtpReport, after: MtpReport, head: tuple[TensorPair, ...]
) -> tuple[HeadVerdict, str]:
    """What became of the head, and why."""
    had, has = any(pair.before for pair in head), any(pair.after for pair in head)
    lost = [pair.name for pair in head if pair.after is None]
    if had and not has:
        why = "" if after.state == "none" else f": {after.reason}"
        return "lost", f"all {len(lost)} head tensors are gone{why}"
    if _rank(after) < _rank(before):
        return "broken", after.reason
    if after.state == "broken":
        return "still-broken", after.reason
    if not had:
        return ("gained" if has else "none"), after.reason
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        return "changed", f"{after.reason}, without {lost[0]}{more}"
    return "intact", after.reason


def _rank(mtp: MtpReport) -> tuple[bool, bool, bool]:
    """How well off a head is."""
    return mtp.loads, mtp.runnable, mtp.state != "broken"


def _metadata(a: Header, b: Header) -> Iterator[MetadataChange]:
    for key in dict.fromkeys([*a.metadata, *b.metadata]):
        x, y = a.metadata.get(key), b.metadata.get(key)
        type_a, type_b = a.types.get(key, ""), b.types.get(key, "")
        if x is None or y is None:
            before = None if x is None else _side(x, type_a, _START)
            after = None if y is None else _side(y, type_b, _START)
            yield MetadataChange(key, before, after, None)
        elif type_a != type_b or not _equal(x, y):
            at = _parting(x, y)
            before, after = _side(x, type_a, at or _START), _side(y, type_b, at or _START)
            yield MetadataChange(key, before, after, at.index if at else None)


def _importance(change: MetadataChange) -> tuple[int, bool]:
    """What the head hangs on first, what merely names the model last."""
    place = next((i for i, end in enumerate(_KEYS_FIRST) if change.key.endswith(end)), 9)
    return place, change.key.startswith("general.")


def _equal(x: Value, y: Value) -> bool:
    """Whether two values of one type are the same; NaN is."""
    if isinstance(x, StringArray) and isinstance(y, StringArray):
        return x.same_as(y)
    if isinstance(x, NumericArray) and isinstance(y, NumericArray):
        return (x.letter, x.order) == (y.letter, y.order) and x.raw == y.raw
    return x == y or (x != x and y != y)


def _parting(x: Value, y: Value) -> _Place | None:
    """Where two values part; None for numbers, and where they cannot be laid side by side."""
    if isinstance(x, LongText | str) and isinstance(y, LongText | str):
        pairs = enumerate(zip(_text(x), _text(y), strict=False))
        index = next((i for i, (p, q) in pairs if p != q), min(len(_text(x)), len(_text(y))))
        return _Place(index, 0)
    if isinstance(x, StringArray) and isinstance(y, StringArray) and x.order == y.order:
        return _string_at(x, _first_byte(x.raw, y.raw))
    if not isinstance(x, NumericArray) or not isinstance(y, NumericArray):
        return None
    if (x.letter, x.order) != (y.letter, y.order):
        return None
    size = struct.calcsize(f"<{x.letter}")
    index = _first_byte(x.raw, y.raw) // size
    return _Place(index, index * size)


def _first_byte(a: memoryview, b: memoryview) -> int:
    """The first byte that differs, else the length of the shorter."""
    n = min(len(a), len(b))
    for start in range(0, n, _STEP):
        x, y = a[start : start + _STEP], b[start : start + _STEP]
        if x[: n - start] != y[: n - start]:
            return start + next(i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q)
    return n


def _string_at(array: StringArray, byte: int) -> _Place:
    """The string that a byte belongs to. No copy of the array is made."""
    unpack, raw, pos = struct.Struct(f"{array.order}Q").unpack_from, array.raw, 0
    for index in range(len(array)):
        end = pos + 8 + unpack(raw, pos)[0]
        if end > byte:
            return _Place(index, pos)
        pos = end
    return _Place(len(array), pos)


def _text(value: LongText | str) -> str:
    return value.head if isinstance(value, LongText) else value


def _side(value: Value, type_name: str, at: _Place) -> Side:
    if isinstance(value, StringArray | NumericArray):
        inside = at.index < len(value)
        return Side(type_name, len(value), _element(value, at.byte) if inside else None)
    if isinstance(value, LongText | str):
        text = _text(value)
        start = max(at.index - _TEXT_BEFORE, 0) if len(text) > _TEXT_SHOWN else 0
        return Side(type_name, len(text), text[start : start + _TEXT_SHOWN])
    return Side(type_name, None, value)


def _element(array: StringArray | NumericArray, byte: int) -> Scalar:
    if isinstance(array, NumericArray):
        value: Scalar = struct.unpack_from(f"{array.order}{array.letter}", array.raw, byte)[0]
        return value
    n: int = struct.unpack_from(f"{array.order}Q", array.raw, byte)[0]
    text = bytes(array.raw[byte + 8 : byte + 8 + min(n, _TEXT_SHOWN)])
    return text.decode("utf-8", "backslashreplace")
