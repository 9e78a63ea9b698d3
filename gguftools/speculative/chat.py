"""Turns -> prompt ids: the model's own template; the ids of earlier replies stay as they were."""

from __future__ import annotations

from collections.abc import Sequence

from gguftools.errors import RefusedError
from gguftools.gguf.reader import Header
from gguftools.speculative.llama import Model
from gguftools.speculative.render_template import TemplateError, render

# The template llama.cpp falls back to when a file brings none.
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)


class Prompter:
    """Renders conversations for one model.

    A text tokenizes differently in one piece than as it was generated. So where the rendered
    conversation begins with the prompt and reply before it, their ids stand and only the rest is
    tokenized: the cache of the conversation stays valid. A raw prompt is tokenized whole, because
    it may go on in the middle of a word.
    """

    def __init__(self, header: Header, model: Model) -> None:
        self.model = model
        self.path = header.path
        self.template = header.text("tokenizer.chat_template")
        self.bos, self.eos = model.text(model.bos), model.text(model.eos)
        self._text = ""
        self._ids: list[int] = []

    def prompt(self, messages: Sequence[dict[str, str]] | str, *, raw: bool) -> list[int]:
        """Token ids of the conversation up to where the reply begins."""
        if raw and isinstance(messages, str):
            text = messages
        else:
            turns = (
                [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
            )
            text = self._render(turns)
        if not raw and self._text and text.startswith(self._text):
            rest = text[len(self._text) :]
            ids = self._ids + self.model.tokenize(rest, add_special=False)
        else:
            bos_in_text = bool(self.bos) and text.startswith(self.bos)
            ids = self.model.tokenize(text, add_special=not bos_in_text)
        if not ids:
            raise RefusedError("the prompt has no tokens", where=self.path)
        self._text, self._ids = ("", []) if raw else (text, list(ids))
        return ids

    def replied(self, text: str, ids: Sequence[int]) -> None:
        """The reply to the last prompt, without the token that ended it."""
        if self._text:
            self._text += text
            self._ids.extend(ids)

    def _render(self, messages: Sequence[dict[str, str]]) -> str:
        try:
            return render(self.template or CHATML, messages, bos_token=self.bos, eos_token=self.eos)
        except TemplateError as err:
            raise RefusedError(
                f"its chat template cannot be rendered: {err}",
                where=self.path,
                hint="--raw sends the prompt without the template",
            ) from err
