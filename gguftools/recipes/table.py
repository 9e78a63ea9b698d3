"""A TOML table whose wrong, missing or unknown keys are format errors with their place. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gguftools.errors import FormatError


class Table:
    """Each method takes a key and gives its value, checked; `opt_` ones None where it is absent."""

    def __init__(self, values: object, where: str, keys: frozenset[str] | None) -> None:
        if not isinstance(values, dict):
            raise FormatError("must be a table", where=where)
        self.values: Mapping[str, object] = values
        self.where = where
        if keys is not None and (unknown := sorted(set(values) - keys)):
            raise FormatError(f"unknown key {unknown[0]!r}", where=where,
                              hint=f"keys are: {', '.join(sorted(keys))}")  # fmt: skip

    def at(self, key: str) -> str:
        return f"{self.where}: {key}"

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            raise FormatError("must be a text that is not empty", where=self.at(key))
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise FormatError("must be a list of texts", where=self.at(key))
        return tuple(value)

    def number(self, key: str, low: float, high: float) -> float:
        value = self.values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise FormatError(f"must be a number from {low:g} to {high:g}", where=self.at(key))

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.number(key, low, high)
        if not isinstance(value, int):
            raise FormatError("must be a whole number", where=self.at(key))
        return value

    def opt_text(self, key: str) -> str | None:
        return self.text(key) if key in self.values else None

    def opt_texts(self, key: str) -> tuple[str, ...]:
        return self.texts(key) if key in self.values else ()

    def opt_number(self, key: str, low: float, high: float) -> float | None:
        return self.number(key, low, high) if key in self.values else None

    def opt_integer(self, key: str, low: int, high: int) -> int | None:
        return self.integer(key, low, high) if key in self.values else None

    def choice(self, key: str, choices: tuple[str, ...], what: str) -> str:
        value = self.text(key)
        if value not in choices:
            raise FormatError(f"no {what}", where=self.at(key),
                              hint=f"there are: {', '.join(choices)}")  # fmt: skip
        return value

    def table(self, key: str, keys: frozenset[str] | None) -> Table:
        return Table(self.values.get(key), self.at(key), keys)
