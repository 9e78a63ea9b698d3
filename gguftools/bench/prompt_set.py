"""The prompts to measure with: our own by task, or a file of JSON lines. I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import get_args

from gguftools.errors import FormatError, SourceError, UsageError
from gguftools.pairing.ranking import Task

PROMPT_SET = "gguftools-prompts/1"  # the number changes with any of the prompts
TASKS: tuple[str, ...] = get_args(Task)
LINE_BYTES_MAX = 4 << 20
N_LINES_MAX = 1 << 16
_FOLDER = Path(__file__).with_name("prompts")
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked: (role, text) pairs that end with the user's."""

    name: str
    task: str
    turns: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The last turn alone."""
        return self.turns[-1][1]

    @property
    def messages(self) -> list[dict[str, str]]:
        """As a chat template takes them."""
        return [{"role": role, "content": text} for role, text in self.turns]


@cache
def builtin_prompts(tasks: tuple[str, ...] = TASKS) -> tuple[Prompt, ...]:
    """Our own prompts, the tasks taking turns."""
    if unknown := [task for task in tasks if task not in TASKS]:
        raise UsageError(f"no task is called {unknown[0]!r}", where="--task",
                         hint=f"there are: {', '.join(TASKS)}")  # fmt: skip
    return in_turns([p for task in dict.fromkeys(tasks) for p in _read(_FOLDER / f"{task}.jsonl")])


def task_texts(task: str) -> tuple[str, ...]:
    """The prompts of one task as they are."""
    return tuple(prompt.text for prompt in builtin_prompts((task,)))


def file_prompts(path: Path, tasks: Sequence[str] = ()) -> tuple[Prompt, ...]:
    """The prompts of a file, of these categories if any are named, the categories taking turns.

    A line is an object with a `prompt`, or with `turns` (SPEED-Bench and Spec-Bench: the user's
    texts, of which the first is asked), or with `messages`. `id` or `question_id` names it,
    `task` or `category` sorts it.
    """
    prompts = list(_read(path))
    known = list(dict.fromkeys(p.task for p in prompts))
    if unknown := [task for task in tasks if task not in known]:
        there = ", ".join(filter(None, known[:30])) or "none"
        raise UsageError(f"no prompt there is of category {unknown[0]!r}", where=str(path),
                         hint=f"there are: {there}")  # fmt: skip
    return in_turns([p for p in prompts if not tasks or p.task in tasks])


def in_turns(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """One of each task, then the next of each: any first few are a mix."""
    by_task: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_task.setdefault(prompt.task, []).append(prompt)
    return tuple(p for each in zip_longest(*by_task.values()) for p in each if p is not None)


def _read(path: Path) -> Iterator[Prompt]:
    empty = True
    for n, line in _lines(path):
        where = f"{path}, line {n}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as err:
            raise FormatError(f"not JSON: {err}", where=where,
                              hint="one object with a prompt per line") from err  # fmt: skip
        if not isinstance(value, dict):
            raise FormatError("must be an object", where=where)
        empty = False
        yield _prompt(value, n, where)
    if empty:
        raise FormatError("no prompts in it", where=str(path))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            n = 0
            while line := file.readline(LINE_BYTES_MAX + 1):
                n += 1
                if len(line) > LINE_BYTES_MAX:
                    raise FormatError(f"a line of more than {LINE_BYTES_MAX >> 20} MiB",
                                      where=f"{path}, line {n}")  # fmt: skip
                if n > N_LINES_MAX:
                    raise FormatError(f"more than {N_LINES_MAX} lines", where=str(path))
                if line.strip():
                    yield n, line
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=str(path)) from err


def _prompt(line: Mapping[str, object], n: int, where: str) -> Prompt:
    name = line.get("id", line.get("question_id", n))
    task = line.get("task", line.get("category"))
    if not isinstance(name, str | int) or not isinstance(task, str | None):
        raise FormatError("id and category must be texts", where=where)
    return Prompt(str(name), task or "", _turns(line, where))


def _turns(line: Mapping[str, object], where: str) -> tuple[tuple[str, str], ...]:
    if "messages" in line:
        return _messages(line["messages"], where)
    text = line.get("prompt")
    if "turns" in line and text is None:
        turns = line["turns"]
        text = turns[0] if isinstance(turns, list) and turns else None
    if not isinstance(text, str) or not text.strip():
        raise FormatError("needs a prompt, turns or messages with text in it", where=where)
    return (("user", text),)


def _messages(messages: object, where: str) -> tuple[tuple[str, str], ...]:
    turns = []
    for message in messages if isinstance(messages, list) else ():
        role = message.get("role") if isinstance(message, dict) else None
        text = message.get("content") if isinstance(message, dict) else None
        if role not in _ROLES or not isinstance(text, str):
            raise FormatError(f"each message needs a role ({', '.join(_ROLES)}) and a content text",
                              where=where)  # fmt: skip
        turns.append((str(role), text))
    if not turns or turns[-1][0] != "user":
        raise FormatError("the last message must be the user's", where=where)
    return tuple(turns)
