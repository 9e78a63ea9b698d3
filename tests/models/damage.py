"""Damages GGUF bytes, and holds that whatever comes out is answered in a few clear lines."""

from __future__ import annotations

import io
import random
import struct
import tempfile
from pathlib import Path

from gguftools.errors import GGUFToolsError
from gguftools.gguf.header import LongText, NumericArray, StringArray, Value
from gguftools.gguf.reader import VALUE_TYPES, read_header
from gguftools.gguf.report import inspect_header
from tests.models import bytes as raw
from tests.models.markov import random_chain, write_llama, write_qwen35
from tests.models.tiny import tiny, write
from tests.models.tiny_archs import METADATA

LINE_CHARS_MAX = 2000
_TYPE_IDS = {name: type_id for type_id, (name, _) in VALUE_TYPES.items() if name != "array"}
EXTREMES = (
    0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 513, 65535, 65536,
    2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip


def check_answer(content: bytes) -> list[str]:
    """Every line we would say about a file of these bytes; [] if it is sound, fails if it is none.

    Nothing but our own errors may come out, and each line is one line of bounded length.
    """
    try:
        header = read_header(io.BytesIO(content), "model.gguf")
    except GGUFToolsError as err:
        lines = [str(err)]
    else:
        report = inspect_header(header)
        lines = [text for p in report.problems for text in (p.message, p.hint)]
        lines.append(report.mtp.reason)
    for line in lines:
        assert len(line) <= LINE_CHARS_MAX, f"a line of {len(line)} characters: {line[:200]!r}"
        assert not set(line) & set("\n\r\0\x1b"), f"not one line: {line[:200]!r}"
    return lines


def seeds() -> list[bytes]:
    """Headers of every MTP architecture, and of a Markov file with its tensors."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed.gguf"
        for arch in METADATA:
            write(tiny(arch), path)
            found.append(_head(path))
        found.append(write_qwen35(path, random_chain(20, 1), n_layer=1, n_embd=64).read_bytes())
        found.append(write_llama(path, random_chain(20, 1), n_layer=1, n_embd=64).read_bytes())
        found.append(_head(path))
    return [content for content in found if len(content) <= 1 << 18]


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        n_bytes = read_header(file, str(path)).shards[0].data_offset
        file.seek(0)
        return file.read(n_bytes)


def damaged(content: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A few bytes, fields or pieces of a file changed, mostly in its header."""
    if rng.random() < 0.5:
        return odd(content, rng)
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        _damage(out, rng, others)
    return bytes(out)


def odd(content: bytes, rng: random.Random) -> bytes:
    """A well-formed header in which some keys and tensors are not what they should be."""
    header = read_header(io.BytesIO(content), "seed.gguf")
    entries = {key: _encoded(key, header.types[key], v) for key, v in header.metadata.items()}
    tensors = {r.name: (list(r.shape), r.type.id, r.offset) for r in header.tensors.values()}
    for _ in range(rng.choice((1, 1, 2, 4))):
        key, name = rng.choice([*entries]), rng.choice([*tensors])
        shape, type_id, offset = tensors[name]
        match rng.randrange(9):
            case 0:
                del entries[key]
            case 1 | 2:
                entries[key] = _odd_value(key, rng)
            case 3:
                entries[f"{header.architecture}.nextn_predict_layers"] = raw.entry(
                    f"{header.architecture}.nextn_predict_layers", raw.U32, rng.randrange(6)
                )
            case 4:
                del tensors[name]
            case 5:
                del tensors[name]
                tensors[_odd_name(name, rng)] = (shape, type_id, offset)
            case 6:
                tensors[name] = (shape, rng.choice((*range(45), 156, 2**32 - 1)), offset)
            case 7:
                i = rng.randrange(len(shape) + 1)
                shape[i : i + 1] = [rng.choice((1, 2, 31, 33, 2**20, 2**31, 2**62))]
                tensors[name] = (shape[:4], type_id, offset)
            case 8:
                tensors[name] = (shape, type_id, rng.choice((*EXTREMES, offset + 32)))
        if not entries or not tensors:
            break
    rows = [raw.tensor(name, *row) for name, row in tensors.items()]
    return raw.padded(raw.header([*entries.values()], rows))


def _encoded(key: str, kind: str, value: Value) -> bytes:
    if isinstance(value, StringArray):
        return raw.array(key, raw.STRING, list(value))
    if isinstance(value, NumericArray):
        return raw.array(key, _TYPE_IDS[value.type_name], list(value.values()))
    assert not isinstance(value, LongText)
    return raw.entry(key, _TYPE_IDS[kind], value)


def _odd_value(key: str, rng: random.Random) -> bytes:
    type_id = rng.choice([*_TYPE_IDS.values()])
    if type_id == raw.STRING:
        texts = ["", "llama", "qwen35", "x" * 3000, "\u202e\x1b[2J", "{{ x.__class__ }}", "a\nb"]
        values: list[float | str] = [rng.choice(texts) for _ in range(rng.choice((0, 1, 3, 600)))]
    else:
        width = 8 * struct.calcsize("<" + raw.LETTERS[type_id])
        letter = raw.LETTERS[type_id]
        top = 1 if letter == "?" else 2 ** (width - letter.islower()) - 1
        values = [rng.choice(EXTREMES) % (top + 1) for _ in range(rng.choice((0, 1, 3, 600)))]
    if values and rng.random() < 0.6:
        return raw.entry(key, type_id, values[0])
    return raw.array(key, type_id, values)


def _odd_name(name: str, rng: random.Random) -> str:
    number, pieces = str(rng.choice((0, 1, 2, 3, 7, 511, 512, 10**9))), name.split(".")
    if len(pieces) > 2:
        pieces[rng.choice((1, 1, 2))] = rng.choice((number, "nextn", "x\n"))
    return ".".join(pieces)[:60] or "x"


def _damage(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    at = rng.randrange(len(out)) if out else 0
    size = rng.choice((1, 4, 8, 8, rng.randint(1, 64)))
    match rng.randrange(8):
        case 0:
            out[at : at + 1] = bytes([rng.randrange(256)])
        case 1:
            del out[at:]
        case 2:
            del out[at : at + size]
        case 3:
            out[at:at] = rng.randbytes(size)
        case 4 | 5:
            value, width = rng.choice(EXTREMES), rng.choice((4, 8))
            out[at : at + width] = (value % 256**width).to_bytes(
                width, rng.choice(("little", "big"))
            )
        case 6:
            out[at:at] = out[at : at + rng.randint(1, 400)]
        case 7:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            out[at : at + size] = other[start : start + rng.randint(1, 400)]
