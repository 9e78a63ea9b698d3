"""Typed, bounded access to a JSON object that somebody else wrote. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gguftools.errors import SourceError

NUMBER_MAX = 1e15  # tokens, bytes and seconds beyond it are no measurement
ITEMS_MAX = 1 << 20
TEXT_MAX = 4096


@dataclass(frozen=True, slots=True)
class Record:
    """An object; what is absent or null is None, what is of another type is an error with `where`.

    Numbers are finite and not negative.
    """

    values: Mapping[str, Any]
    where: str

    def seconds(self, key: str) -> float | None:
        """A number."""
        value = self.values.get(key)
        return None if value is None else self._number(value, key)

    def count(self, key: str) -> int | None:
        """A whole number."""
        value = self.seconds(key)
        if value is not None and value != int(value):
            raise self._wrong(key, "a whole number")
        return None if value is None else int(value)

    def text(self, key: str) -> str | None:
        """A string, cut where it is longer than anything that is shown."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value[:TEXT_MAX]

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(key, "true or false")

    def counts(self, key: str) -> tuple[int, ...] | None:
        """Whole numbers in a row."""
        row = self.numbers(key)
        return None if row is None else tuple(int(v) for v in row)

    def numbers(self, key: str) -> tuple[float, ...] | None:
        """Numbers in a row."""
        row = self._list(key)
        return None if row is None else tuple(self._number(v, key) for v in row)

    def one(self, key: str) -> Record:
        """An object inside; empty where it is absent."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return Record(value or {}, f"{self.where}, {key}")

    def many(self, key: str) -> Iterator[Record]:
        """Objects in a row."""
        for i, value in enumerate(self._list(key) or ()):
            if not isinstance(value, dict):
                raise self._wrong(key, "a list of objects")
            yield Record(value, f"{self.where}, {key}[{i}]")

    def _list(self, key: str) -> list[Any] | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self._wrong(key, "a list")
        if value is not None and len(value) > ITEMS_MAX:
            raise self._wrong(key, f"a list of up to {ITEMS_MAX} items")
        return value

    def _number(self, value: Any, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number")
        if not (math.isfinite(value) and 0 <= value <= NUMBER_MAX):
            raise self._wrong(key, f"a number from 0 to {NUMBER_MAX:.0e}")
        return float(value)

    def _wrong(self, key: str, wanted: str) -> SourceError:
        return SourceError(f"{key} is not {wanted}", where=self.where)
