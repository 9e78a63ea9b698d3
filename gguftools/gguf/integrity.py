"""Whether the file itself is intact: what llama.cpp would refuse before it looks at the model.

Errors are what build b11434 refuses or aborts on; `code` is stable. Whether an intact file holds
a complete model is another question (nextn.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import PurePath

from gguftools.gguf.header import Header, NumericArray, Shard, StringArray, TensorInfo, once
from gguftools.gguf.hparams import N_LAYER_MAX
from gguftools.gguf.problem import Problem
from gguftools.gguf.tokenizer import vocab_problems

_DOWNLOAD = "download the file again and compare its size or checksum"
_CONVERT = "convert the model again with a current llama.cpp"

# Keys every loader reads, and the only type it accepts; src/llama-model-loader.cpp, b11434.
_KEY_TYPES = {
    "general.name": "string",
    "general.file_type": "uint32",
    "split.no": "uint16",
    "split.count": "uint16",
}
_REQUIRED = ("block_count", "context_length", "embedding_length")
_PER_LAYER = ("feed_forward_length", "attention.head_count", "attention.head_count_kv")

# Sound files of another kind: projectors, adapters, importance matrices.
_NO_MODEL_ARCHS = ("clip", "controlvector", "imatrix")
_NO_MODEL_TYPES = ("adapter", "imatrix", "mmproj")


@once
def check_integrity(header: Header) -> tuple[Problem, ...]:
    """Everything found, worst first; the problems of the vocabulary are among them."""
    found = [*_byte_order(header), *_tensor_types(header), *_split(header), *_architecture(header)]
    by_shard: list[list[TensorInfo]] = [[] for _ in header.shards]
    for row in header.tensors.values():
        by_shard[row.shard].append(row)
    for shard, rows in zip(header.shards, by_shard, strict=True):
        found += _layout(shard, rows) or _size(shard, rows)
    if _is_model(header):
        found += [*_key_types(header), *_blocks(header), *vocab_problems(header)]
    rank = ("error", "warning", "info")
    return tuple(sorted(found, key=lambda problem: rank.index(problem.severity)))


def _is_model(header: Header) -> bool:
    if header.text("general.type") in _NO_MODEL_TYPES:
        return False
    return header.architecture not in ("", *_NO_MODEL_ARCHS)


def _byte_order(header: Header) -> Iterator[Problem]:
    ours = "<" if sys.byteorder == "little" else ">"
    if header.order != ours:
        theirs = "big" if header.order == ">" else "little"
        yield Problem(
            "byte-order", "error",
            f"the file is {theirs}-endian, this machine is {sys.byteorder}-endian",
            "take a file made for this machine; llama.cpp does not swap bytes",
        )  # fmt: skip


def _tensor_types(header: Header) -> Iterator[Problem]:
    if not header.tensors:
        yield Problem("no-tensors", "error", "the file holds no tensors", _DOWNLOAD)
    unknown = [row for row in header.tensors.values() if not row.type.known]
    if unknown:
        names = ", ".join(sorted({row.type.name for row in unknown}))
        yield Problem(
            "unknown-type", "warning",
            f"{_count(len(unknown), 'tensor')} of a type that llama.cpp b11434 does not know "
            f"({names}), the first is {unknown[0].name!r}: sizes cannot be checked",
            "it may be for a fork or a newer build; this build will not load it",
        )  # fmt: skip
    for row in header.tensors.values():
        if row.type.known and row.shape and row.shape[0] % row.type.block_elements:
            yield Problem(
                "partial-block", "error",
                f"tensor {row.name!r} has {row.shape[0]} elements per row, not a multiple of the "
                f"{row.type.block_elements} in a block of {row.type.name}",
                _CONVERT,
            )  # fmt: skip
            return


def _layout(shard: Shard, rows: list[TensorInfo]) -> list[Problem]:
    """Offsets that are not the running sum of the padded sizes before them."""
    wrong: list[tuple[TensorInfo, int, str]] = []
    expected: int | None = 0
    previous = ""
    for row in rows:
        if expected is not None and row.offset != expected:
            wrong.append((row, expected, previous))
        n_bytes = row.n_bytes
        expected = None if n_bytes is None else _padded(row.offset + n_bytes, shard.alignment)
        previous = row.name
    if not wrong:
        return []
    short = [item for item in wrong if item[0].offset < item[1]]
    row, end, before = (short or wrong)[0]
    where = f"{_in(shard)}: tensor {row.name!r} starts at byte {row.offset} of the data"
    if short:
        text = f"{where}, but {before!r} before it reaches to byte {end}"
        if len(short) > 1:
            text += f"; {len(short)} of {len(rows)} tensors have less room than they need"
        return [Problem("tensor-overlap", "error", text, _CONVERT)]
    more = f"; {len(wrong)} of {len(rows)} tensors are misplaced" if len(wrong) > 1 else ""
    return [Problem("tensor-gap", "error", f"{where}, expected was byte {end}{more}", _CONVERT)]


def _size(shard: Shard, rows: list[TensorInfo]) -> list[Problem]:
    """A file shorter or longer than its tensors."""
    ends = [(row, shard.data_offset + row.offset + row.n_bytes) for row in rows if row.n_bytes]
    cut = [(row, end) for row, end in ends if end > shard.n_bytes]
    if cut:
        n_missing = max(end for _, end in cut) - shard.n_bytes
        missing = f"{_count(n_missing, 'byte')} {'is' if n_missing == 1 else 'are'} missing"
        more = f" of {len(cut)} tensors" if len(cut) > 1 else ""
        text = (f"{_in(shard)} has {shard.n_bytes} bytes, {missing} at its end: "
                f"tensor {cut[0][0].name!r} is the first{more} cut off")  # fmt: skip
        return [Problem("truncated", "error", text, _DOWNLOAD)]
    if ends and rows[-1].n_bytes:
        trailing = shard.n_bytes - ends[-1][1]
        if trailing >= shard.alignment:
            text = f"{_in(shard)}: {trailing} bytes follow the last tensor"
            hint = "harmless, unless two files were joined or a tensor was left out of the table"
            return [Problem("trailing-data", "warning", text, hint)]
    return []


def _split(header: Header) -> Iterator[Problem]:
    count = header.integer("split.count") or 0
    if count > len(header.shards):
        text = f"it is one of {count} shards; the others were not read"
        yield Problem("shard-alone", "error", text, "name the first shard, beside all others")
        return
    declared = header.integer("split.tensors.count")
    stale = count <= 1 and declared is not None and declared != len(header.tensors)
    if stale or (count <= 1 and header.integer("split.no")):
        text = "split.* keys of an earlier split are left over; llama.cpp ignores them"
        yield Problem("stale-split-keys", "warning", text)


def _architecture(header: Header) -> Iterator[Problem]:
    if not header.architecture:
        kind = header.types.get("general.architecture")
        text = f"is a {kind}, not a string" if kind and kind != "string" else "is missing"
        yield Problem("no-architecture", "error", f"general.architecture {text}", _CONVERT)
    elif not _is_model(header):
        kind = header.text("general.type") or header.architecture
        yield Problem("not-a-model", "info", f"it is no language model but of type {kind!r}")


def _key_types(header: Header) -> Iterator[Problem]:
    wanted = _KEY_TYPES | {header.arch_key(suffix): "uint32" for suffix in _REQUIRED}
    wanted[header.arch_key("nextn_predict_layers")] = "uint32"
    for key, kind in wanted.items():
        found = header.types.get(key, kind)
        if found != kind:
            text = f"{key!r} has type {found}, llama.cpp accepts only {kind}"
            yield Problem("key-type", "error", text, _CONVERT)


def _blocks(header: Header) -> Iterator[Problem]:
    for suffix in _REQUIRED:
        if header.arch_key(suffix) not in header.metadata:
            text = f"{header.arch_key(suffix)!r} is missing"
            yield Problem("key-missing", "error", text, _CONVERT)
    count = header.integer(header.arch_key("block_count"))
    if count is None:
        return
    if not 0 < count <= N_LAYER_MAX:
        text = f"block_count is {count}; llama.cpp aborts outside 1 to {N_LAYER_MAX}"
        yield Problem("block-count", "error", text, _CONVERT)
    nextn = header.integer(header.arch_key("nextn_predict_layers")) or 0
    if not 0 <= nextn <= count:
        text = f"nextn_predict_layers is {nextn} with block_count {count}; llama.cpp aborts on it"
        yield Problem("nextn-count", "error", text, _CONVERT)
    for suffix in _PER_LAYER:
        value = header.metadata.get(header.arch_key(suffix))
        if isinstance(value, NumericArray | StringArray) and len(value) != count:
            text = f"{header.arch_key(suffix)!r} has {len(value)} entries for {count} blocks"
            yield Problem("per-layer-length", "error", text, _CONVERT)


def _padded(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _in(shard: Shard) -> str:
    return PurePath(shard.path).name
