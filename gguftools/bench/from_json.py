"""A frozen dataclass from parsed JSON, by its annotations; what does not fit is an error."""

from __future__ import annotations

import math
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gguftools.errors import FormatError

_PLAIN: dict[Any, str] = {str: "a text", bool: "true or false", int: "a whole number",
                          float: "a number", type(None): "null"}  # fmt: skip


def from_json(kind: Any, value: Any, where: str) -> Any:
    """The value as that type; keys that the type does not know are left out."""
    origin, args = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _fields(kind, value, where)
    if origin in (Union, types.UnionType):
        some = [arg for arg in args if arg is not type(None)]
        assert len(some) == 1, kind
        return None if value is None and len(args) > 1 else from_json(some[0], value, where)
    if origin is Literal:
        if value not in args:
            raise FormatError(f"must be one of {', '.join(map(str, args))}", where=where)
        return value
    if origin is tuple:
        items = _checked(list, value, "a list", where)
        return tuple(from_json(args[0], item, f"{where}[{i}]") for i, item in enumerate(items))
    if origin is dict:
        table = _checked(dict, value, "an object", where)
        return {_key(args[0], k, where): from_json(args[1], v, f"{where}.{k}")
                for k, v in table.items()}  # fmt: skip
    return _plain(kind, value, where)


def _fields(kind: Any, value: Any, where: str) -> Any:
    table = _checked(dict, value, "an object", where)
    found = {}
    for field in fields(kind):
        if field.name in table:
            place = f"{where}.{field.name}"
            found[field.name] = from_json(_hints(kind)[field.name], table[field.name], place)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise FormatError(f"{field.name!r} is missing", where=where)
    return kind(**found)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) is int and abs(value) < 1 << 62:
        value = float(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise FormatError(f"must be {_PLAIN[kind]}", where=where)
    return value


def _key(kind: Any, key: str, where: str) -> Any:
    if kind is str:
        return key
    if not (key.isascii() and key.isdigit() and len(key) < 10):
        raise FormatError("its keys must be whole numbers", where=where)
    return int(key)


def _checked(kind: type, value: Any, what: str, where: str) -> Any:
    if not isinstance(value, kind):
        raise FormatError(f"must be {what}", where=where)
    return value
