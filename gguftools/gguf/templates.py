"""Chat templates: what is there, and what in them no chat template needs. Never executed here.

A template is a Jinja program from a stranger. The patterns below are those by which one reaches
Python objects, files or endless loops; a finding says what was seen, not that it works.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from gguftools.gguf.problem import Problem, Severity
from gguftools.gguf.reader import Header

N_CHARS_SCANNED = 1 << 20  # the largest template in use has some 20,000 characters
N_TEMPLATES_SEARCHED = 32  # of one file; in use are up to four
_KEY = "tokenizer.chat_template"
_SNIPPET_CHARS = 60
_VISIBLE_JOINERS = frozenset({"\u200c", "\u200d", "\u00ad"})  # scripts and emoji need them


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """One template; `name` is empty for the default one."""

    name: str
    text: str

    @property
    def key(self) -> str:
        """Its metadata key."""
        return f"{_KEY}.{self.name}" if self.name else _KEY


@dataclass(frozen=True, slots=True)
class _Danger:
    """A pattern; `where` is the code with its strings, or the skeleton without them."""

    code: str
    severity: Severity
    where: Literal["code", "skeleton"]
    pattern: re.Pattern[str]
    what: str


_RULES: tuple[tuple[str, Severity, Literal["code", "skeleton"], str, str], ...] = (
    ("template-dunder", "error", "code", r"__[A-Za-z][A-Za-z_]{0,40}__",
     "reaches for Python internals"),
    ("template-internals", "error", "code",
     r"\b(?:mro|f_globals|f_builtins|f_locals|f_back|gi_frame|gi_code|cr_frame|cr_code|ag_frame|"
     r"tb_frame|func_globals|func_code|co_code)\b", "reaches for Python internals"),
    ("template-attr", "error", "skeleton", r"\|\s{0,9}attr\b",
     "takes attributes by a computed name (the attr filter)"),
    ("template-gadget", "error", "skeleton",
     r"\b(?:lipsum|cycler|joiner|dict|range|namespace|self)\s{0,9}(?:\.\s{0,9}\w|\[)",
     "looks inside a built-in of the template language"),
    ("template-gadget", "warning", "skeleton", r"\b(?:lipsum|cycler|joiner)\b",
     "uses a helper that has no use in a chat template"),
    ("template-file", "error", "skeleton", r"\{%[-+]?\s{0,9}(?:include|import|extends|from)\b",
     "loads other templates"),
    ("template-import", "error", "skeleton",
     r"\b(?:os\s{0,9}\.\s{0,9}(?:system|popen|environ)|subprocess|popen|importlib|builtins)\b",
     "names Python modules that run commands"),
    ("template-built-name", "warning", "skeleton",
     r"[\w)\]]\[(?:[^\]\[\n]{0,200}?''\s{0,9}[~+]|[^\]\[\n]{0,200}?[~+]\s{0,9}'')",
     "takes items by a name pieced together"),
    ("template-format", "info", "skeleton", r"\.\s{0,9}format(?:_map)?\s{0,9}\(|\|\s{0,9}format\b",
     "builds text with format strings, which can read attributes"),
    ("template-escape", "warning", "code", r"\\(?:x[2-7][0-9A-Fa-f]|u00[2-7][0-9A-Fa-f]|N\{)",
     "spells plain characters as escapes, which hides words"),
    ("template-loop", "warning", "skeleton",
     r"\brange\s{0,9}\(\s{0,9}(?:[^(),\n]{1,40},\s{0,9})?\d{7,}|\*\*\s{0,9}\d{3,}|\*\s{0,9}\d{7,}",
     "asks for a very long loop or text"),
)  # fmt: skip
# Quantifiers are bounded, so that no text makes the search slow.
_DANGERS = tuple(_Danger(c, s, w, re.compile(p), what) for c, s, w, p, what in _RULES)
_JOINED = re.compile(r"(['\"])\s{0,9}(?:[~+]\s{0,9})?\1")  # 'a' ~ 'b' and 'a' 'b'
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})")
_OPEN = re.compile(r"\{[{%#]")
_STOP = re.compile(r"['\"]|[}%]\}")
_STRING_ENDS = {q: re.compile(rf"[^{q}\\]*(?:\\.[^{q}\\]*)*{q}", re.DOTALL) for q in "'\""}


def chat_templates(header: Header) -> tuple[ChatTemplate, ...]:
    """The templates of a model, the default one first."""
    found = [ChatTemplate("", text)] if (text := header.text(_KEY)) else []
    for key in header.metadata:
        if key.startswith(_KEY + ".") and (text := header.text(key)):
            found.append(ChatTemplate(key.removeprefix(_KEY + "."), text))
    return tuple(found)


def template_problems(header: Header) -> list[Problem]:
    """What a reader should look at before trusting the templates of this file."""
    kind = header.types.get(_KEY, "string")
    found = []
    if kind != "string":
        found.append(Problem("template-type", "warning", f"{_KEY} is {kind}, not a string: "
                             "llama.cpp does not use it"))  # fmt: skip
    n_left = N_CHARS_SCANNED
    for i, template in enumerate(chat_templates(header)):
        if i == N_TEMPLATES_SEARCHED or n_left <= 0:
            found.append(Problem("template-count", "warning", f"{template.key} and what follows it "
                                 "was not searched: so many templates are not usual"))  # fmt: skip
            break
        found += dangers(template)
        n_left -= len(template.text)
    return found


def dangers(template: ChatTemplate) -> list[Problem]:
    """The findings in one template, at most one for each thing that can be wrong."""
    text = template.text[:N_CHARS_SCANNED]
    found: dict[str, Problem] = {}
    if len(template.text) > N_CHARS_SCANNED:
        found["template-size"] = Problem("template-size", "warning", f"{template.key} has "
                                         f"{len(template.text)} characters, of which the first "
                                         f"{N_CHARS_SCANNED} were searched")  # fmt: skip
    code, skeleton = _lex(text)
    pieced = _JOINED.sub("", _ESCAPED.sub(lambda m: chr(int(m[1] or m[2], 16)), code))
    for danger in _DANGERS:
        if danger.code in found:
            continue
        match = danger.pattern.search(code if danger.where == "code" else skeleton)
        how = ""
        if match is None and danger.where == "code":
            match, how = danger.pattern.search(pieced), " once its strings are joined"
        if match is not None:
            found[danger.code] = _problem(template, danger, match, how)
    if (hidden := _hidden(text)) is not None:
        found["template-hidden"] = _hidden_problem(template, hidden)
    return list(found.values())


def _lex(text: str) -> tuple[str, str]:
    """The Jinja code of a template, with its strings and without; text between it is only text."""
    code, skeleton, pos = [], [], 0
    while (start := _OPEN.search(text, pos)) is not None:
        pos = start.end()
        if start[0] == "{#":
            pos = text.find("#}", pos) + 2
            if pos < 2:
                break
            continue
        code.append(start[0])
        skeleton.append(start[0])
        pos = _lex_tag(text, pos, code, skeleton)
    return "".join(code), "".join(skeleton)


def _lex_tag(text: str, pos: int, code: list[str], skeleton: list[str]) -> int:
    """Take one tag from behind its opening to behind its end; where it ends, scanning goes on."""
    while (stop := _STOP.search(text, pos)) is not None:
        code.append(text[pos : stop.start()])
        skeleton.append(text[pos : stop.start()])
        pos = stop.end()
        if len(stop[0]) == 2:
            code.append(stop[0] + "\n")
            skeleton.append(stop[0] + "\n")
            return pos
        end = _STRING_ENDS[stop[0]].match(text, pos)
        if end is None:
            break
        code.append(stop[0] + end[0])
        skeleton.append("''")
        pos = end.end()
    code.append(text[pos:])
    skeleton.append(text[pos:])
    return len(text)


def _problem(template: ChatTemplate, danger: _Danger, match: re.Match[str], how: str) -> Problem:
    start = max(match.start() - 12, 0)
    snippet = " ".join(match.string[start : start + _SNIPPET_CHARS].split())
    shown = "".join(c if c.isprintable() else "?" for c in snippet)
    return Problem(
        danger.code,
        danger.severity,
        f"{template.key} {danger.what}{how}: ...{shown}...",
        "read the template before you use it, or pass another one",
    )


def _hidden(text: str) -> str | None:
    """The first kind of character that is not seen: overrides, tags, zero-width ones."""
    unseen = {c for c in set(text) if not c.isascii() and unicodedata.category(c) == "Cf"}
    return min(unseen - _VISIBLE_JOINERS, default=None)


def _hidden_problem(template: ChatTemplate, char: str) -> Problem:
    """Invisible characters make a template read differently from what it does."""
    name = unicodedata.name(char, "unnamed")
    return Problem(
        "template-hidden",
        "warning",
        f"{template.key} holds invisible characters (U+{ord(char):04X} {name})",
        "look at it in an editor that shows them",
    )
