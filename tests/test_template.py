"""Chat templates run in a sandbox of their own: right texts, and no way out."""

from __future__ import annotations

import time

import pytest

from gguftools.speculative import render_template
from gguftools.speculative.chat import CHATML
from gguftools.speculative.render_template import TemplateError, render

TURNS = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi \u20ac"}]


def test_chatml() -> None:
    assert render(CHATML, TURNS) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi \u20ac<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_what_templates_in_use_need() -> None:
    template = (
        "{{ bos_token }}{%- for m in messages %}\n    {%- if m['role'] == 'system' %}S:"
        "{{ m['content'] | trim }}\n    {%- continue %}\n    {%- endif %}\n"
        "{{ m | tojson }}{% endfor %}{{ strftime_now('%Y') | length }}"
        "{% if add_generation_prompt %}A:{% endif %}"
    )
    text = render(template, TURNS, bos_token="<s>")
    assert text.startswith("<s>S:Be kind.")
    assert '"content": "Hi \u20ac"' in text
    assert text.endswith("4A:")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ lipsum.__globals__['os'].system('id') }}",
        "{% set x = messages.append(1) %}",
        "{{ raise_exception('only user turns') }}",
        "{% for m in messages %}",
        "{{ 1 / 0 }}",
        "{% include '/etc/passwd' %}",
        "{{ 'x' * 10 ** 10 }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_hostile_and_broken_templates_are_one_error(template: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(template, TURNS)
    assert "uid=" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_attributes_of_the_interpreter_are_not_there() -> None:
    assert render("[{{ messages|attr('__class__')|attr('__base__') }}]", TURNS) == "[]"


def test_a_template_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_template, "SECONDS_MAX", 1)
    nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    started = time.monotonic()
    with pytest.raises(TemplateError, match="1 seconds"):
        render(nested, TURNS)
    assert time.monotonic() - started < 5
