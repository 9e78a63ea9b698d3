"""Whatever a file claims, reading its header ends soon, in little memory, with one clear line."""

from __future__ import annotations

import io
import os
import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from gguftools.errors import FormatError, SourceError
from gguftools.gguf.header import LongText
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.problem import Problem
from gguftools.gguf.reader import HEADER_BYTES_MAX, N_STRINGS_MAX, read_header
from gguftools.gguf.source import open_gguf
from gguftools.gguf.templates import template_problems
from tests.models import bytes as raw
from tests.test_reader import every_kind

HUGE = 2**63
SPARSE_BYTES = 50 << 30

ARCH = raw.entry("general.architecture", raw.STRING, "llama")
ROW = raw.tensor("t", [8])


def string_value(length: int) -> bytes:
    """An entry whose string claims a length."""
    return raw.string("k") + struct.pack("<I", raw.STRING) + raw.string("", length=length)


def alignment(type_id: int, value: float | str) -> bytes:
    return raw.header([raw.entry("general.alignment", type_id, value)], [ROW])


HOSTILE: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "only 0 bytes"),
    "a file shorter than a header": (b"GGUF\3\0\0\0", "only 8 bytes"),
    "an HTML page": (b"<!DOCTYPE html><html><body>Sign in</body></html>", "HTML"),
    "an LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d", "git lfs"),
    "a zip archive": (b"PK\3\4" + bytes(60), "zip"),
    "the format before GGUF": (b"tjgg\3\0\0\0" + bytes(60), "before GGUF"),
    "zero bytes": (bytes(4096), "zero bytes"),
    "control characters": (b"\x1b[2J\n\r" + bytes(60), r"\x1b[2J"),
    "version 0": (raw.header(version=0), "version 0"),
    "version 1": (raw.header(version=1), "version 1"),
    "version 4": (raw.header(version=4), "version 4"),
    "the highest version": (raw.header(version=2**32 - 1), "version 4294967295"),
    "a false claim to be big-endian": (raw.header([ARCH], [ROW], version=3 << 24), "declared"),
    "2^63 metadata entries": (raw.header([ARCH], n_entries=HUGE), "entries: 9223372036854775808"),
    "2^64 - 1 metadata entries": (raw.header([ARCH], n_entries=2**64 - 1), "metadata entries"),
    "one metadata entry too many": (raw.header([ARCH], n_entries=2), "ends early"),
    "an entry in no space": (raw.header(n_entries=1), "only 0 bytes follow"),
    "2^63 tensors": (raw.header([], [ROW], n_tensors=HUGE), "tensors: 9223372036854775808"),
    "2^64 - 1 tensors": (raw.header([], [ROW], n_tensors=2**64 - 1), "tensors"),
    "more tensors than fit": (raw.header([], [ROW], n_tensors=3), "only 33 bytes follow"),
    "a key of 2^48 bytes": (raw.header([raw.string("", length=2**48 - 1) + ARCH]), "key 1 of 1"),
    "a key of 2^63 bytes": (raw.header([raw.string("", length=HUGE) + ARCH]), "key 1 of 1"),
    "an empty key": (raw.header([raw.entry("", raw.U32, 1)]), "is empty"),
    "a key of 64 KiB + 1": (raw.header([raw.entry("k" * 65537, raw.U32, 1)]), "65537 bytes"),
    "a key twice": (raw.header([ARCH, ARCH]), "appears twice"),
    "an unknown value type": (
        raw.header([raw.string("k") + struct.pack("<IQ", 13, 0)]), "value type 13",
    ),
    "value type -1": (
        raw.header([raw.string("k") + struct.pack("<iQ", -1, 0)]), "value type 4294967295",
    ),
    "a string of 2^63 bytes": (raw.header([string_value(HUGE)]), "length of 9223372036854775808"),
    "a string of 2^64 - 1 bytes": (raw.header([string_value(2**64 - 1)]), "declares a length"),
    "a string one byte too long": (raw.header([string_value(1)]), "1 more bytes are needed"),
    "2^63 bytes in 43": (raw.header([raw.array("k", raw.U8, [], count=HUGE)]), "elements in 'k'"),
    "2^63 strings": (raw.header([raw.array("k", raw.STRING, [], count=HUGE)]), "strings in 'k'"),
    "2^61 u64, 2^64 bytes": (
        raw.header([raw.array("k", raw.U64, [1], count=2**61)]), "elements in 'k'",
    ),
    "one element too many": (
        raw.header([raw.array("k", raw.U32, [1, 2], count=3)]), "only 8 bytes follow",
    ),
    "one string too many": (
        raw.header([raw.array("k", raw.STRING, ["abcdefgh", ""], count=3)]), "ends early",
    ),
    "a string in an array past the end": (
        raw.header([raw.array("k", raw.STRING, ["a"]) + raw.string("", length=2**64 - 1)],
                   n_entries=2),
        "declares a length",
    ),
    "an array of arrays": (
        raw.header([raw.string("k") + struct.pack("<IIQIQ", 9, 9, 1, 9, 1)]), "nested arrays",
    ),
    "2^62 arrays in an array": (
        raw.header([raw.string("k") + struct.pack("<IIQ", 9, 9, 2**62)]), "nested arrays",
    ),
    "an array of an unknown type": (
        raw.header([raw.string("k") + struct.pack("<IIQ", 9, 99, 1)]), "element type 99",
    ),
    "alignment 0": (alignment(raw.U32, 0), "alignment is 0"),
    "alignment 3": (alignment(raw.U32, 3), "alignment is 3"),
    "a negative alignment": (alignment(raw.I32, -32), "alignment is -32"),
    "alignment as u64": (alignment(raw.U64, 32), "uint64"),
    "alignment as bool": (alignment(raw.BOOL, True), "bool"),
    "alignment as text": (alignment(raw.STRING, "32\n"), "string"),
    "alignment as an array": (
        raw.header([raw.array("general.alignment", raw.U32, [32])], [ROW]), "array[uint32]",
    ),
    "5 dimensions": (raw.header([], [raw.tensor("t", [1] * 5)]), "5 dimensions"),
    "1,000,000 dimensions": (
        raw.header([], [raw.tensor("t", [1], n_dims=1_000_000)]), "1000000 dimensions",
    ),
    "2^32 - 1 dimensions": (
        raw.header([], [raw.tensor("t", [1], n_dims=2**32 - 1)]), "4294967295 dimensions",
    ),
    "a product that wraps to 4": (
        raw.header([], [raw.tensor("t", [4194305, 4194305, 211106198978564])]), "than 2^63",
    ),
    "2^63 elements": (raw.header([], [raw.tensor("t", [HUGE])]), "more than 2^63"),
    "2^64 - 1 elements": (raw.header([], [raw.tensor("t", [2**64 - 1])]), "more than 2^63"),
    "a dimension of 0": (raw.header([], [raw.tensor("t", [8, 0])]), "dimension of 0"),
    "a tensor without a name": (raw.header([], [raw.tensor("", [8])]), "empty name"),
    "a name of 64 bytes": (raw.header([], [raw.tensor("t" * 64, [8])]), "length of 64 bytes"),
    "a name of 2^40 bytes": (
        raw.header([], [raw.string("", length=2**40) + bytes(64)]), "length of 1099511627776",
    ),
    "a tensor twice": (raw.header([], [ROW, ROW]), "'t' appears twice"),
    "a split of 65535 without a shard's name": (
        raw.header([raw.entry("split.count", raw.U16, 65535)]), "one of 65535 shards",
    ),
    "a split of 2^64 - 1": (
        raw.header([raw.entry("split.count", raw.U64, 2**64 - 1)]), "shards",
    ),
}  # fmt: skip


def peak_of_opening(path: Path) -> int:
    """Most bytes held at once."""
    tracemalloc.start()
    try:
        with pytest.raises((FormatError, SourceError)):
            open_gguf(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(path: Path, *, peak_max: int | None) -> str:
    """The one line with which a file is refused, in bounded time and memory."""
    before = time.process_time()
    with pytest.raises((FormatError, SourceError)) as caught:
        open_gguf(path)
    assert time.process_time() - before < 1
    message = str(caught.value)
    if peak_max is not None:
        assert peak_of_opening(path) < peak_max
    assert message.isprintable(), "one line, no control characters"
    assert path.name in message
    return message


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_header_is_a_format_error(tmp_path: Path, name: str) -> None:
    content, words = HOSTILE[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert words in refused(path, peak_max=1 << 20)


# Behind these heads lie 50 GB of zero bytes, so that every count fits the file.
SPARSE: dict[str, tuple[bytes, str]] = {
    "a billion metadata entries": (raw.header(n_entries=10**9), "metadata entries: 1000000000"),
    "metadata entries of zero bytes": (raw.header(n_entries=60_000), "key 1 of 60000 is empty"),
    "a billion tensors": (raw.header(n_tensors=10**9), "tensors: 1000000000"),
    "tensors of zero bytes": (raw.header(n_tensors=60_000), "has an empty name"),
    "a key of 40 GB": (raw.header([raw.string("", length=40 << 30)]), "at most 65536"),
    "a string of 40 GB": (raw.header([string_value(40 << 30)]), "at most"),
    "an array of 40 GB": (raw.header([raw.array("k", raw.U8, [], count=40 << 30)]), "at most"),
    "an array of numbers over the bound": (
        raw.header([raw.array("k", raw.U64, [], count=HEADER_BYTES_MAX // 8)]),
        "larger than 64 MiB",
    ),
    "4 billion strings": (raw.header([raw.array("k", raw.STRING, [], count=2**32)]), "at most"),
    "one string of 40 GB in an array": (
        raw.header([raw.array("k", raw.STRING, ["a"], count=2)[:-9] + struct.pack("<Q", 40 << 30)]),
        "larger than 64 MiB",
    ),
    "all the strings that are read, then an empty key": (
        raw.header([raw.array("k", raw.STRING, [], count=N_STRINGS_MAX)], n_entries=2), "is empty",
    ),
    "the longest string that is read, then nothing": (
        raw.header([string_value(HEADER_BYTES_MAX - 64)], n_entries=2), "is empty",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_file_of_50_gb_costs_no_more_than_the_bound(tmp_path: Path, name: str) -> None:
    head, words = SPARSE[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(head)
    os.truncate(path, SPARSE_BYTES)
    bound: int | None = 3 * HEADER_BYTES_MAX if "longest string" in name else 4 << 20
    # Tracing two million steps takes seconds; what they hold is the buffer, 8 bytes each.
    assert words in refused(path, peak_max=None if "all the strings" in name else bound)


def test_a_long_text_is_not_decoded_until_somebody_asks(tmp_path: Path) -> None:
    """One wide character makes a str of four bytes per character out of all the others."""
    text = b"a" * (20 << 20) + "\U0001f600".encode()
    path = tmp_path / "model.gguf"
    entries = [raw.entry(key, raw.STRING, text) for key in ("tokenizer.huggingface.json", "other")]
    path.write_bytes(raw.header(entries))
    tracemalloc.start()
    header = open_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(text)
    value = header.metadata["other"]
    assert isinstance(value, LongText)
    assert value.raw.tobytes() == text
    assert header.text("other") == "a" * (4 << 20)
    assert header.types["other"] == "string"


def test_many_texts_together_are_not_decoded_either() -> None:
    texts = [b"a" * (3 << 20)] * 7
    content = raw.header([raw.entry(f"k{i}", raw.STRING, text) for i, text in enumerate(texts)])
    kinds = [type(v) for v in read_header(io.BytesIO(content), "model.gguf").metadata.values()]
    assert kinds == [str] * 5 + [LongText] * 2


def test_ten_thousand_templates_are_answered_at_once() -> None:
    entries = [
        raw.entry(f"tokenizer.chat_template.{i}", raw.STRING, "{{ a.__class__ }}" * 50)
        for i in range(10_000)
    ]
    header = read_header(io.BytesIO(raw.header(entries)), "model.gguf")
    before = time.process_time()
    found = template_problems(header)
    assert time.process_time() - before < 1
    assert len(found) < 100
    assert found[-1].code == "template-count"


def test_a_problem_is_one_printable_line() -> None:
    problem = Problem("code", "error", "tensor a\n\x1b[2J\u202eb" + "x" * 5000)
    assert problem.message.startswith(r"tensor a\n\x1b[2J\u202eb")
    assert problem.message.isprintable()
    assert len(problem.message) < 1100


def test_the_mtp_verdict_is_one_line_whatever_a_tensor_is_called() -> None:
    """Found by scripts/fuzz_reader.py."""
    row = raw.tensor("nextn.pre_pro\0\x1b[2J", [8])
    report = mtp_report(read_header(io.BytesIO(raw.header([ARCH], [row])), "model.gguf"))
    assert report.state == "unsupported"
    assert r"nextn.pre_pro\x00\x1b[2J" in report.reason
    assert report.reason.isprintable()


def test_an_architecture_of_megabytes_is_cut() -> None:
    entries = [raw.entry("general.architecture", raw.STRING, "a" * (1 << 20))]
    header = read_header(io.BytesIO(raw.header(entries, [ROW])), "model.gguf")
    assert header.architecture == "a" * 64
    assert all(len(problem.message) < 1000 for problem in check_integrity(header))


def test_a_long_key_is_cut_in_the_message() -> None:
    content = raw.header([raw.entry("k" * 60_000, raw.U32, 1)] * 2)
    with pytest.raises(FormatError, match="appears twice") as caught:
        read_header(io.BytesIO(content), "model.gguf")
    assert len(str(caught.value)) < 500


def test_a_header_cut_anywhere_is_a_format_error() -> None:
    content = every_kind("<")
    for n in range(len(content)):
        with pytest.raises(FormatError) as caught:
            read_header(io.BytesIO(content[:n]), "model.gguf")
        assert str(caught.value).isprintable()


def test_damaged_bytes_never_end_in_anything_but_a_header_or_a_format_error() -> None:
    rng, content = random.Random(7), every_kind("<")
    n_refused = 0
    for _ in range(4000):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 127, 128, 255))
        try:
            header = read_header(io.BytesIO(damaged), "model.gguf")
            lines = [problem.message for problem in check_integrity(header)]
        except FormatError as err:
            lines = [str(err)]
            n_refused += 1
        assert all(map(str.isprintable, lines))
    assert 0 < n_refused < 4000


def test_a_file_that_shrinks_while_it_is_read_is_a_format_error() -> None:
    class Shrinking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 64)) if self.tell() < 64 else b""

    with pytest.raises(FormatError, match="became shorter"):
        read_header(Shrinking(every_kind("<")), "model.gguf")


def test_what_is_no_file_is_a_source_error(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path, words in [
        (tmp_path / "missing.gguf", "no such file"),
        (tmp_path, "not a regular file"),
        (pipe, "not a regular file"),
        (tmp_path / ("n" * 300), "too long"),
        (tmp_path / "loop.gguf", "no such file"),
    ]:
        if path.name == "loop.gguf":
            path.symlink_to(path)
        assert words in refused(path, peak_max=1 << 20)
