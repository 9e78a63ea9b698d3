"""Small files that hold a vocabulary and no weights, and what real llama.cpp reads from them.

`python -m tests.models.tiny_vocab` reads one path per line and answers with one JSON line. Some
vocabularies abort llama.cpp, so each file is loaded in a fork of a process that has only imported
the library.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gguftools.gguf.reader import Header, read_header
from tests.models import bytes as raw

SECONDS_MAX = 20  # for one file; they take milliseconds
KEY = "tokenizer.ggml."
BPE_MODELS = ("gpt2", "hybriddna", "whitespace", "gemma4")
TYPES = ("NONE", "SPM", "BPE", "WPM", "UGM", "RWKV", "PLAMO2", "TEST")  # enum llama_vocab_type
TOKEN_NORMAL, TOKEN_BYTE = 1, 6


def words(n: int) -> list[bytes]:
    """n different token texts; rwkv wants the newline, which it spells with a backslash."""
    texts = [b"<unk>", b"<s>", b"</s>", b"\xc4\x8a", b"\\n"]
    return (texts + [b"w%d" % i for i in range(n)])[:n]


def with_byte_tokens(texts: list[bytes]) -> tuple[list[bytes], dict[str, tuple[int, list[int]]]]:
    """The texts and the 256 byte tokens that plamo2 wants, with the token types."""
    n_words, byte_tokens = len(texts), [b"<0x%02X>" % i for i in range(256)]
    types = [TOKEN_NORMAL] * n_words + [TOKEN_BYTE] * 256
    return texts + byte_tokens, {"token_type": (raw.I32, types)}


@dataclass(frozen=True)
class TinyVocab:
    """Tokenizer keys of one file. `keys` are further entries as (suffix, value type, value)."""

    tokens: Sequence[bytes]
    model: str = "gpt2"
    pre: str | None = "gpt-2"
    merges: Sequence[str] | None = ("w1 w2",)
    keys: tuple[tuple[str, int, raw.Scalar | str], ...] = ()
    arrays: Mapping[str, tuple[int, Sequence[raw.Scalar]]] = field(default_factory=dict)
    arch: str = "llama"

    def entries(self) -> list[bytes]:
        """The metadata entries of the file."""
        found = [raw.entry("general.architecture", raw.STRING, self.arch)]
        found.append(raw.entry(KEY + "model", raw.STRING, self.model))
        found.append(raw.array(KEY + "tokens", raw.STRING, self.tokens))
        if self.pre is not None:
            found.append(raw.entry(KEY + "pre", raw.STRING, self.pre))
        if self.merges is not None and self.model in BPE_MODELS:
            found.append(raw.array(KEY + "merges", raw.STRING, self.merges))
        if self.model == "t5" and "precompiled_charsmap" not in self.arrays:
            found.append(raw.array(KEY + "precompiled_charsmap", raw.U8, [0] * 8))
        found += [raw.array(KEY + k, kind, values) for k, (kind, values) in self.arrays.items()]
        return found + [raw.entry(KEY + k, kind, value) for k, kind, value in self.keys]

    def bytes(self) -> bytes:
        """The whole file."""
        return raw.header(self.entries())

    def header(self, path: str = "tiny.gguf") -> Header:
        """The file as gguftools reads it."""
        return read_header(io.BytesIO(self.bytes()), path)


@dataclass(frozen=True)
class Facts:
    """The vocabulary as llama.cpp's C API shows it; -1 is LLAMA_TOKEN_NULL."""

    type: int
    add_bos: bool
    add_eos: bool
    bos: int
    eos: int
    texts: tuple[bytes, ...]


def ask_llama(folder: Path, vocabs: Iterable[TinyVocab]) -> list[Facts | None]:
    """What llama.cpp reads from each vocabulary, None where it refuses or aborts."""
    paths = []
    for i, vocab in enumerate(vocabs):
        path = folder / f"vocab-{i}.gguf"
        path.write_bytes(vocab.bytes())
        paths.append(path)
    return ask_llama_about(paths)


def ask_llama_about(paths: Iterable[Path]) -> list[Facts | None]:
    """What llama.cpp reads from each file, None where it refuses or aborts."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.models.tiny_vocab"],
        input="".join(f"{path.resolve()}\n" for path in paths),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "GGML_NO_BACKTRACE": "1", "OMP_NUM_THREADS": "1"},
    )
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    return [_facts(answer) if answer else None for answer in answers]


def _facts(answer: list[object]) -> Facts:
    type_, add_bos, add_eos, bos, eos, texts = answer
    assert isinstance(type_, int)
    assert isinstance(bos, int)
    assert isinstance(eos, int)
    assert isinstance(texts, list)
    return Facts(type_, bool(add_bos), bool(add_eos), bos, eos, tuple(map(bytes.fromhex, texts)))


def _serve() -> None:
    import llama_cpp

    llama_cpp.llama_backend_init()
    for line in sys.stdin:
        print(_in_fork(line.rstrip("\n")) or "null", flush=True)


def _in_fork(path: str) -> str:
    """One JSON line, empty if the load failed or killed the child."""
    answer_end, child_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(SECONDS_MAX)
        with open(child_end, "w", encoding="ascii") as pipe:
            pipe.write(_load(path))
        os._exit(0)
    os.close(child_end)
    with open(answer_end, encoding="ascii") as pipe:
        answer = pipe.read()
    return answer if os.waitpid(pid, 0)[1] == 0 else ""


def _load(path: str) -> str:
    import llama_cpp as lib

    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        return ""
    vocab = lib.llama_model_get_vocab(model)
    type_, n = lib.llama_vocab_type(vocab), lib.llama_vocab_n_tokens(vocab)
    n = n if type_ else 0  # llama_vocab_get_text asserts that there is a vocabulary
    texts = [lib.llama_vocab_get_text(vocab, i).hex() for i in range(n)]
    flags = [lib.llama_vocab_get_add_bos(vocab), lib.llama_vocab_get_add_eos(vocab)]
    ids = [lib.llama_vocab_bos(vocab), lib.llama_vocab_eos(vocab)]
    return json.dumps([type_, *flags, *ids, texts])


if __name__ == "__main__":
    _serve()
