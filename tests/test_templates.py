"""Chat templates: what is found in hostile ones, and that ordinary ones pass."""

from __future__ import annotations

import io
import time

import pytest

from gguftools.gguf.reader import Header, read_header
from gguftools.gguf.templates import (
    N_CHARS_SCANNED,
    ChatTemplate,
    chat_templates,
    dangers,
    template_problems,
)
from tests.models import bytes as raw
from tests.models.vocabulary import CHAT_TEMPLATE

# The idioms of templates in use: tools, macros, loops, braces in strings, special tokens.
ORDINARY = [
    CHAT_TEMPLATE,
    "{%- set ns = namespace(found=false) %}{% for m in messages[::-1] %}"
    "{% set ns.found = true %}{% endfor %}",
    '{{- \'{"name": "\' + tool.name + \'", "arguments": {}}\' }}',
    "{{- \"dict[str, \" + json_to_python_type(spec.items) + ']' }}",
    "{%- macro render(x) %}{{ x | tojson(indent=4) | trim }}{% endmacro %}",
    "{{ messages | selectattr('role', 'equalto', 'tool') | map(attribute='content') | join }}",
    "{{ raise_exception('Only user and assistant roles are supported: ' ~ message['role']) }}",
    "{{ ']~!b[' ~ ']~b]system' ~ '\\n' }}",
    "{% if tools is defined and tools | length > 0 %}{{ strftime_now('%d %B %Y') }}{% endif %}",
    "def __init__(self): the system prompt may quote Python{# and so may __comments__ #}",
    "{{ param_list + [name + '=' + value] }}{{ content.split('</think>')[-1].lstrip('\\n') }}",
]

HOSTILE = {
    "template-dunder": [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ x['__cl' ~ 'ass__'] }}",
        "{{ x['__cl' + 'ass__'] }}",
        "{{ x['__cl' 'ass__'] }}",
        "{{ x['\\x5f\\x5fclass\\x5f\\x5f'] }}",
        "{{ x['\\u005f_globals__'] }}",
        "{{ '{0.__class__}'.format(x) }}",
        "{% set a = cycler.__init__.__globals__.os.popen('id') %}",
        "{{ '}}' }}{{ x.__init__ }}",
    ],
    "template-internals": ["{{ (x for y in z).gi_frame.f_back }}", "{{ x['m' ~ 'ro'] }}"],
    "template-attr": ["{{ x|attr('a') }}", "{{ x | attr(name) }}"],
    "template-gadget": [
        "{{ lipsum.x }}",
        "{{ self._context }}",
        "{{ cycler['x'] }}",
        "{{ joiner }}",
    ],
    "template-file": ["{% include 'x' %}", "{%- import 'x' as y %}", "{% extends x %}"],
    "template-import": ["{{ os.popen('id') }}", "{{ x.subprocess.run }}", "{{ importlib }}"],
    "template-built-name": ["{{ x['a' ~ b] }}", "{{ x[b ~ 'a'] }}", "{{ f(x)[y + 'z'] }}"],
    "template-format": ["{{ '%s%s' | format('a', 'b') }}", "{{ '{0}'.format(x) }}"],
    "template-escape": ["{{ '\\x61\\x62' }}", "{{ '\\u0061' }}"],
    "template-loop": ["{% for i in range(100000000) %}{% endfor %}", "{{ 'a' * 100000000 }}"],
    "template-hidden": ["hello \u202eworld", "{{ x }}\U000e0041"],
}


def _header(*entries: bytes) -> Header:
    return read_header(io.BytesIO(raw.header(entries)), "model.gguf")


def _codes(text: str) -> set[str]:
    return {problem.code for problem in dangers(ChatTemplate("", text))}


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_template_has_no_danger(text: str) -> None:
    assert _codes(text) == set()


@pytest.mark.parametrize(("code", "text"), [(c, t) for c, texts in HOSTILE.items() for t in texts])
def test_a_hostile_template_is_found(code: str, text: str) -> None:
    assert code in _codes(text)
    assert code in _codes(CHAT_TEMPLATE + "\n" + text)


def test_named_templates_are_read_and_searched_too() -> None:
    header = _header(
        raw.entry("tokenizer.chat_template.tool_use", raw.STRING, "{{ x.__class__ }}"),
        raw.entry("tokenizer.chat_template", raw.STRING, CHAT_TEMPLATE),
        raw.array("tokenizer.chat_templates", raw.STRING, ["tool_use"]),
    )
    assert [t.name for t in chat_templates(header)] == ["", "tool_use"]
    (problem,) = template_problems(header)
    assert problem.severity == "error"
    assert problem.message.startswith("tokenizer.chat_template.tool_use reaches for Python")
    assert "x.__class__" in problem.message


def test_a_model_without_template_has_none() -> None:
    assert chat_templates(_header()) == ()
    assert template_problems(_header()) == []


def test_a_template_that_is_no_string_is_a_warning() -> None:
    header = _header(raw.entry("tokenizer.chat_template", raw.U32, 1))
    assert [p.code for p in template_problems(header)] == ["template-type"]


def test_messages_are_printable() -> None:
    (problem,) = dangers(ChatTemplate("", "{{ \x1b[2J.__class__\x00 }}"))
    assert problem.message.isprintable()


def test_a_huge_template_is_searched_at_its_beginning() -> None:
    codes = _codes("{{ x.__class__ }}" + "x" * N_CHARS_SCANNED)
    assert codes == {"template-size", "template-dunder"}


@pytest.mark.parametrize(
    "part", ["{{ '", "{{", "{{ '''", "{# ", "{{ 'a' ~ ", "'\\", "{{ [", "{{a['", "{{ range(", "__"]
)
def test_no_text_makes_the_search_slow(part: str) -> None:
    text = part * (N_CHARS_SCANNED // len(part))
    started = time.process_time()
    dangers(ChatTemplate("", text))
    assert time.process_time() - started < 2
