"""The messages of a chat request -> the turns that a session takes. Pure."""

from __future__ import annotations

from typing import Any

from gguftools.service.api_error import ApiError, bad_field

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def chat_messages(value: Any) -> list[dict[str, str]]:
    """Roles and texts; whatever is no text is refused."""
    if not isinstance(value, list) or not value:
        raise bad_field("messages", "must be a list of at least one message")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(value)]


def _message(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise bad_field(where, "must be an object with role and content")
    fields = {k: v for k, v in value.items() if v is not None and v != []}
    role = fields.pop("role", None)
    if not isinstance(role, str) or role not in _ROLES:
        raise bad_field(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
    turn = {"role": _ROLES[role], "content": _text(fields.pop("content", None), where)}
    if isinstance(name := fields.pop("name", ""), str) and name:
        turn["name"] = name  # for the templates that write it
    if fields:
        name = f"{where}.{next(iter(fields))[:80]}"
        raise bad_field(name, "is not supported here", "unsupported_parameter")
    return turn


def _text(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad_field(f"{where}.content", "must be a text or a list of text parts")
    return "".join(_part(part, f"{where}.content[{i}]") for i, part in enumerate(value))


def _part(value: Any, where: str) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind != "text":
        raise _unreadable(kind, where)
    text = value.get("text")
    if not isinstance(text, str):
        raise bad_field(f"{where}.text", "must be a text")
    return text


def _unreadable(kind: Any, where: str) -> ApiError:
    what = f"parts of type {kind[:40]!r}" if isinstance(kind, str) else "parts without a type"
    return bad_field(where, f"{what} are not supported, only text", "unsupported_content")
