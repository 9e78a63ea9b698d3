"""Renders a model's chat template in a process of its own: sandboxed, with bounded time and memory.

A template is code from a stranger's file. Run as a script it reads one JSON object from stdin
({"template", "messages", "bos_token", "eos_token", "now"}) and writes {"text"} or {"error"}.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn

SECONDS_MAX = 10
MEMORY_BYTES_MAX = 512 << 20
TEXT_CHARS_MAX = 8 << 20


class TemplateError(ValueError):
    """The template cannot be rendered; the message says why."""


def render(
    template: str, messages: Sequence[dict[str, str]], *, bos_token: str = "", eos_token: str = ""
) -> str:
    """The prompt that the template makes of the messages, ready for the assistant's turn."""
    request = {"template": template, "messages": list(messages), "bos_token": bos_token,
               "eos_token": eos_token, "now": datetime.now().isoformat()}  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__],
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TemplateError(f"it does not finish within {SECONDS_MAX} seconds") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise TemplateError("it needs more memory than a template may") from None
    if "error" in answer:
        raise TemplateError(str(answer["error"]))
    return str(answer["text"])


def _render_here(request: dict[str, object]) -> str:
    from jinja2.exceptions import TemplateError as JinjaError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    now = datetime.fromisoformat(str(request["now"]))

    def raise_exception(message: str) -> NoReturn:
        raise JinjaError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, ensure_ascii=False, **options
    )
    environment.globals.update(raise_exception=raise_exception, strftime_now=now.strftime)
    text = environment.from_string(str(request["template"])).render(
        messages=request["messages"],
        add_generation_prompt=True,
        bos_token=request["bos_token"],
        eos_token=request["eos_token"],
    )
    if len(text) > TEXT_CHARS_MAX:
        raise JinjaError(f"it makes {len(text)} characters")
    return text


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))


def _main() -> None:
    _limit_memory()
    request = json.load(sys.stdin)
    try:
        answer = {"text": _render_here(request)}
    except Exception as err:  # noqa: BLE001  # whatever a stranger's template raises is its answer
        answer = {"error": f"{type(err).__name__}: {err}"[:500]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main()
