"""A tiny gpt2-style vocabulary: specials, bytes of multi-byte characters, printable ASCII."""

from __future__ import annotations

import string
from collections.abc import Sequence

from gguf import GGUFWriter

EOS, IM_START, IM_END = 0, 1, 2
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
N_SPECIAL = len(SPECIALS)
UTF8_BYTES = "\u20ac\U0001f600".encode()
EURO = (3, 4, 5)  # three tokens, together the euro sign
EMOJI = (6, 7, 8, 9)  # four tokens, together a grinning face
N_VOCAB = 107  # specials, UTF8_BYTES, newline, tab and all printable ASCII

_PLAIN = "\n " + string.ascii_lowercase + ".,:;!?'\"()-=" + string.digits
_ORDER = _PLAIN + "".join(c for c in map(chr, (9, *range(32, 127))) if c not in _PLAIN)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def vocabulary(n_vocab: int = N_VOCAB) -> list[str]:
    """Token texts in GPT-2's byte alphabet; past `N_VOCAB` invented words follow."""
    texts = [*SPECIALS, *map(_byte_text, UTF8_BYTES), *(_byte_text(ord(c)) for c in _ORDER)]
    texts += [f"{_byte_text(32)}w{i}" for i in range(len(texts), n_vocab)]
    return texts[:n_vocab]


def token_bytes(n_vocab: int = N_VOCAB) -> list[bytes]:
    """What each token detokenizes to; specials are their own text."""
    alphabet = {_byte_text(b): b for b in range(256)}
    return [
        text.encode() if i < N_SPECIAL else bytes(alphabet[c] for c in text)
        for i, text in enumerate(vocabulary(n_vocab))
    ]


def add_vocabulary(
    writer: GGUFWriter, texts: Sequence[str], *, add_bos: bool = False, pre: str = "gpt-2"
) -> None:
    """Write tokenizer and chat template keys."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(texts))
    writer.add_token_types([3] * N_SPECIAL + [1] * (len(texts) - N_SPECIAL))
    # BPE needs a merge; these two control bytes are in no text.
    writer.add_token_merges([f"{_byte_text(1)} {_byte_text(2)}"])
    writer.add_bos_token_id(EOS)
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(IM_END)
    writer.add_pad_token_id(EOS)
    writer.add_add_bos_token(add_bos)
    writer.add_chat_template(CHAT_TEMPLATE)


def _byte_text(byte: int) -> str:
    """GPT-2's printable stand-in for a byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in shown:
        return chr(byte)
    hidden = [b for b in range(256) if b not in shown]
    return chr(256 + hidden.index(byte))
