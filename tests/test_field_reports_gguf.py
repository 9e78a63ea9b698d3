"""The line that inspect prints for each damaged, hostile or odd file of the field reports.

field_reports_gguf.txt holds the lines; `python -m tests.test_field_reports_gguf` prints it anew.
C130 (NaN scales) is in test_deep.py, C139 (a value across the end of a block) in test_reader.py.
"""

from __future__ import annotations

import math
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.source import open_gguf
from tests.commands import gguftools
from tests.models import bytes as raw
from tests.test_integrity import Model, Row, put, put_array, sound

HUGE = 2**63
ARCH = raw.entry("general.architecture", raw.STRING, "llama")


def entry_of(value: bytes) -> bytes:
    return raw.header([value], n_entries=1)


def rows(*tensors: bytes) -> bytes:
    return raw.header([ARCH], tensors)


def alignment(type_id: int, value: float | str) -> bytes:
    return raw.header([raw.entry("general.alignment", type_id, value)], [raw.tensor("t", [8])])


def unknown_type(type_id: int) -> Model:
    model = sound()
    model.rows[2].type_id = type_id
    return model


def of_type(type_id: int, n_bytes: int) -> Model:
    """The last tensor, 64 x 20, in a newer type."""
    model = sound()
    model.rows[0] = Row(model.rows[0].name, model.rows[0].shape, bytes(n_bytes), type_id)
    return model


def short_regions(n_reserved: int) -> bytes:
    """C118: three expert tensors in less room than their rows need; nothing but a header."""
    model = sound()
    entries, shape = [*model.entries.values()], [4096, 2048, 256]
    names = [f"blk.0.ffn_{part}_exps.weight" for part in ("gate", "up", "down")]
    tensors = [raw.tensor(name, shape, 2, i * n_reserved) for i, name in enumerate(names)]
    return raw.padded(raw.header(entries, tensors))


def name_of(text: str) -> Model:
    model = sound()
    model.rows[3].name, model.rows[3].shift = text, 32
    return model


def split(folder: Path, damage: Callable[[list[bytes]], None]) -> Path:
    """Three shards, the MTP-less tail in the last; `damage` changes their bytes."""
    pieces = []
    for no in range(3):
        model = sound()
        model.rows = model.rows[4 * no : 4 * no + 4]
        if no:
            model.entries = {}
        model.put("split.no", raw.U16, no)
        model.put("split.count", raw.U16, 3)
        model.put("split.tensors.count", raw.I32, len(sound().rows))
        pieces.append(model.content())
    damage(pieces)
    for i, content in enumerate(pieces, 1):
        if content != b"missing":
            (folder / f"m-{i:05}-of-00003.gguf").write_bytes(content)
    return folder / "m-00001-of-00003.gguf"


def stale() -> Model:
    model = put("split.count", raw.U16, 0)
    model.put("split.no", raw.U16, 0)
    model.put("split.tensors.count", raw.I32, 999)
    return model


def experts_cut() -> bytes:
    """C121: the header of 9.5 GB, of which the file has 50 MB."""
    model = sound()
    sizes = [row.shape for row in model.rows] + [[4096, 4096, 142]]
    tensors, offset = [], 0
    for i, shape in enumerate(sizes):
        tensors.append(raw.tensor(f"blk.0.ffn_{i}.weight", shape, 0, offset))
        n_bytes = 4 * math.prod(shape)
        offset += n_bytes + -n_bytes % 32
    return raw.padded(raw.header([*model.entries.values()], tensors))


def template(text: str) -> bytes:
    return put("tokenizer.chat_template", raw.STRING, text).content()


Lines = tuple[str, ...]
NOTHING = "    (nothing)"
LINES = Path(__file__).with_name("field_reports_gguf.txt")
CUT_BYTES = 50_000_000  # of C121

CASES: dict[str, Callable[[], bytes]] = {
    "C109 a million dimensions": lambda: rows(raw.tensor("t", [1], n_dims=1_000_000)),
    "C109 2^32 - 1 dimensions": lambda: rows(raw.tensor("t", [1], n_dims=2**32 - 1)),
    "C109 a product that is 4 modulo 2^64": lambda: rows(
        raw.tensor("t", [4194305, 4194305, 211106198978564])
    ),
    "C110 an array of 2^63 in 43 bytes": lambda: entry_of(raw.array("abc", raw.U8, [], count=HUGE)),
    "C110 2^63 entries": lambda: raw.header([ARCH], n_entries=HUGE),
    "C110 2^63 tensors": lambda: raw.header([ARCH], n_tensors=HUGE),
    "C110 a string of 2^63 bytes": lambda: entry_of(
        raw.string("k") + struct.pack("<I", 8) + raw.string("", length=HUGE)
    ),
    "C110 2^62 arrays in an array": lambda: entry_of(
        raw.string("k") + struct.pack("<IIQ", 9, 9, 2**62)
    ),
    "C112 scores of one byte": lambda: put_array(
        "tokenizer.ggml.scores", raw.U8, [0] * 20
    ).content(),
    "C112 token types of one byte": lambda: put_array(
        "tokenizer.ggml.token_type", raw.U8, [1] * 20
    ).content(),
    "C112 tokens that are numbers": lambda: put_array(
        "tokenizer.ggml.tokens", raw.U32, [*range(20)]
    ).content(),
    "C112 a score too few": lambda: put_array("tokenizer.ggml.scores", raw.F32, [0] * 19).content(),
    "C113 a dimension of 0": lambda: rows(raw.tensor("t", [8, 0])),
    "C113 an empty key": lambda: entry_of(raw.entry("", raw.U32, 1)),
    "C115 alignment 0": lambda: alignment(raw.U32, 0),
    "C115 alignment -32": lambda: alignment(raw.I32, -32),
    "C115 alignment 48": lambda: alignment(raw.U32, 48),
    "C115 alignment of 64 bits": lambda: alignment(raw.U64, 32),
    "C115 9 dimensions": lambda: rows(raw.tensor("t", [1] * 9)),
    "C116 a key of 2^48 - 1 bytes in 32": lambda: (
        raw.header(n_entries=1) + struct.pack("<Q", 0xFFFFFFFFFFFF)
    ),
    "C118 regions of 1 GiB for rows of 1.1": lambda: short_regions(1 << 30),
    "C119 a template that runs code": lambda: template(
        "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    ),
    "C119 a template with a computed attribute": lambda: template(
        "{{ messages|attr('__cl' ~ 'ass__') }}"
    ),
    "C119 a template with hidden characters": lambda: template("{{ messages }}\u202e"),
    "C121 a head of 50 MB": experts_cut,
    "C121 one byte short": lambda: sound().content()[:-1],
    "C127 type 156 of a fork": lambda: unknown_type(156).content(),
    "C127 type 153 of a fork": lambda: unknown_type(153).content(),
    "C131 31 bytes of padding": lambda: sound().content() + bytes(31),
    "C131 32 bytes too many": lambda: sound().content() + bytes(32),
    "C131 another model behind it": lambda: sound().content() * 2,
    "C140 5 dimensions": lambda: rows(raw.tensor("t", [1] * 5)),
    "C140 an unknown element type": lambda: entry_of(
        raw.string("k") + struct.pack("<IIQ", 9, 13, 1)
    ),
    "C140 an unknown value type": lambda: entry_of(
        raw.string("k") + struct.pack("<I", 13) + bytes(8)
    ),
    "C140 a key of 64 KiB and 1": lambda: entry_of(raw.entry("k" * 65537, raw.U32, 1)),
    "C140 a key twice": lambda: raw.header([ARCH, ARCH]),
    "C140 a tensor twice": lambda: rows(raw.tensor("t", [8]), raw.tensor("t", [8])),
    "an empty file": lambda: b"",
    "an HTML page": lambda: b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>",
    "a Git LFS pointer": lambda: (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"
    ),
    "a JSON error": lambda: b'{"error":"Repository not found"}',
    "only zero bytes": lambda: bytes(4096),
    "the format before GGUF": lambda: b"tjgg\3\0\0\0" + bytes(60),
    "version 1": lambda: raw.header(version=1),
    "big-endian": lambda: sound(">").content(),
    "a header cut in the vocabulary": lambda: sound().content()[:600],
    "keys of an earlier split": lambda: stale().content(),
    "one shard of three under another name": lambda: put("split.count", raw.U16, 3).content(),
    "control characters in a name": lambda: name_of("\x1b]0;owned\x07\r\nx").content(),
    "a name written from right to left": lambda: name_of("blk.0.\u202egnp.gguf").content(),
    "a token twice": lambda: put_array(
        "tokenizer.ggml.tokens", raw.STRING, [*(f"t{i}" for i in range(19)), "t7"]
    ).content(),
}
SPLITS: dict[str, Callable[[list[bytes]], None]] = {
    "C124 a merge emptied the second shard": lambda p: p.__setitem__(1, b""),
    "C125 all shards are there": lambda p: None,
    "C125 the last shard is missing": lambda p: p.__setitem__(2, b"missing"),
    "an HTML page in place of a shard": lambda p: p.__setitem__(
        1, b"<html><body>503 Service Unavailable</body></html>"
    ),
    "a shard twice": lambda p: p.__setitem__(2, p[1]),
    "a shard cut short": lambda p: p.__setitem__(2, p[2][:-9]),
    "a tensor in two shards": lambda p: p.__setitem__(
        2, p[2].replace(b"blk.0.ffn_up.weight", b"blk.0.attn_v.weight")
    ),
}


def lines(path: str) -> Lines:
    """What inspect says is wrong, on a terminal or in a pipe."""
    done = gguftools("inspect", path)
    assert "Traceback" not in done.stderr
    said = (done.stderr + done.stdout).splitlines()
    marks = ("error: ", "warning: ", "info: ", "gguftools: ")
    found = tuple(line for line in said if line.startswith(marks))
    assert all(map(str.isprintable, found))
    assert done.returncode == (3 if "gguftools: " in done.stderr else "error: " in done.stdout)
    return found


def case_lines(name: str) -> Lines:
    """Write the files of a case into this folder and inspect them."""
    if name in SPLITS:
        return lines(str(split(Path(), SPLITS[name])))
    Path("model.gguf").write_bytes(CASES[name]())
    if name == "C121 a head of 50 MB":
        os.truncate("model.gguf", CUT_BYTES)
    return lines("model.gguf")


def expected() -> dict[str, Lines]:
    found: dict[str, list[str]] = {}
    for line in LINES.read_text().splitlines():
        if not line.startswith("    "):
            found[line] = []
        elif line != NOTHING:
            found[list(found)[-1]].append(line.strip())
    return {name: tuple(said) for name, said in found.items()}


@pytest.mark.parametrize("name", [*CASES, *SPLITS])
def test_a_damaged_file_gets_its_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert case_lines(name) == expected()[name]


def test_there_is_a_line_for_nothing_else() -> None:
    assert list(expected()) == [*CASES, *SPLITS]


@pytest.mark.parametrize(("type_id", "n_bytes"), [(39, 680), (40, 720), (41, 0), (42, 360)])
def test_newer_types_are_known(type_id: int, n_bytes: int, tmp_path: Path) -> None:
    """C127: MXFP4, NVFP4, Q1_0 (which wants rows of 128, here 64: an error, not a crash), Q2_0."""
    path = tmp_path / "model.gguf"
    path.write_bytes(of_type(type_id, n_bytes).content())
    expected = {41: 1}.get(type_id, 0)
    done = gguftools("inspect", path)
    assert done.returncode == expected
    assert "unknown-type" not in done.stdout


def test_arrays_where_scalars_are_usual_are_read_per_layer(tmp_path: Path) -> None:
    """C128"""
    model = put_array("llama.attention.head_count", raw.U32, [2])
    model.put_array("llama.attention.head_count_kv", raw.I32, [1])
    model.put_array("llama.feed_forward_length", raw.I32, [128])
    path = tmp_path / "model.gguf"
    path.write_bytes(model.content())
    hparams = read_hparams(open_gguf(path))
    assert (hparams.n_head, hparams.n_head_kv, hparams.n_ff) == ((2,), (1,), (128,))


def test_a_per_layer_array_of_any_length_costs_nothing(tmp_path: Path) -> None:
    model = put_array("llama.attention.head_count", raw.U32, [2] * 100_000)
    path = tmp_path / "model.gguf"
    path.write_bytes(model.content())
    assert read_hparams(open_gguf(path)).n_head == ()
    done = gguftools("inspect", path)
    assert "100000 entries for 1 blocks [per-layer-length]" in done.stdout


def test_packed_experts_are_no_damage(tmp_path: Path) -> None:
    """C122: no dense ffn_up, and still nothing is missing from the file."""
    model = sound()
    for row in model.rows:
        if ".ffn_" in row.name and "norm" not in row.name:
            row.name = row.name.replace(".weight", "_exps.weight")
    path = tmp_path / "model.gguf"
    path.write_bytes(model.content())
    assert not {"truncated", "tensor-overlap", "tensor-gap"} & set(
        gguftools("inspect", path).stdout.replace("[", " ").replace("]", " ").split()
    )


def print_lines() -> None:
    for name in (*CASES, *SPLITS):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            print(
                name, *("    " + line for line in case_lines(name) or (NOTHING.strip(),)), sep="\n"
            )


if __name__ == "__main__":
    print_lines()
