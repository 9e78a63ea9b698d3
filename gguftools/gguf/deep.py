"""Reads every tensor of a model in bounded memory: NaN and Inf, dead heads, copied heads, fidelity.

Uses numpy, so it is imported only where that was asked for.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from gguftools.errors import UsageError
from gguftools.gguf.blocks import (
    Fidelity,
    TensorFiles,
    Weights,
    fidelity,
    nonfinite_blocks,
    one_value,
    only_zero_bytes,
    same_bytes,
    weights,
)
from gguftools.gguf.checkpoint import Checkpoint
from gguftools.gguf.header import Header, TensorInfo
from gguftools.gguf.precision import head_tensors
from gguftools.gguf.source_weights import source_weights

Progress = Callable[[int, int], None]  # bytes read, bytes to read

ENDS = ("token_embd.weight", "output_norm.weight", "output.weight")
_FIRST_BYTES = 1 << 16  # what two tensors must share before they are compared
_N_COMPARED = 4  # tensors that one is compared to, so that no file can ask for more and more


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A tensor with NaN or Inf: in how many of its blocks, and the first element of the first."""

    tensor: str
    n_blocks: int
    n_bad: int
    first: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A head tensor that equals another tensor byte for byte."""

    tensor: str
    of: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class DeepReport:
    """What the bytes of the tensors say.

    `zero` and `constant` name tensors of the head and the ends (embedding, output), `blank` trunk
    matrices of nothing but zero bytes, `unread` what could not be checked. `fidelity` compares head
    and ends with the reference, `lost` are head tensors that only the reference has.
    """

    n_tensors: int
    n_bytes: int
    unread: tuple[str, ...]
    nonfinite: tuple[NonFinite, ...]
    zero: tuple[str, ...]
    constant: tuple[str, ...]
    blank: tuple[str, ...]
    copies: tuple[Copy, ...]
    fidelity: tuple[Fidelity, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Scan:
    """One tensor, read once; `level` is the one value it holds, None if they differ."""

    row: TensorInfo
    bad: NonFinite | None
    blank: bool
    level: float | None
    first_bytes: bytes


def no_progress(done: int, total: int) -> None:
    """For those who do not wait."""


def deep_report(
    header: Header,
    reference: Header | Checkpoint | None = None,
    progress: Progress = no_progress,
) -> DeepReport:
    """Read the tensors of a model, and compare its head and ends with a GGUF, or its head with the
    matrices of a local checkpoint.
    """
    _check_sources(header, reference)
    head = head_tensors(header)
    watched = head.keys() | set(ENDS)
    rows = readable(header)
    meter = _Meter(progress, sum(row.n_bytes or 0 for row in rows))
    with ExitStack() as stack:
        files = stack.enter_context(closing(TensorFiles(header, meter.add)))
        pairs = []
        if reference is not None:
            others = stack.enter_context(_reference_weights(header, reference, meter))
            pairs = [(r, others[r.name]) for r in rows if r.name in watched & others.keys()]
        meter.total += sum((row.n_bytes or 0) + other.n_bytes for row, other in pairs)
        scans = {row.name: _scan(files, row, row.name in watched) for row in rows}
        copies = tuple(_copies(files, head, scans))
        close = [_fidelity(files, row, other) for row, other in pairs]
    levels = {name: scan.level for name, scan in scans.items() if scan.level is not None}
    had = head_tensors(reference) if isinstance(reference, Header) else {}
    return DeepReport(
        n_tensors=len(rows),
        n_bytes=sum(row.n_bytes or 0 for row in rows),
        unread=tuple(name for name in header.tensors if name not in scans),
        nonfinite=tuple(scan.bad for scan in scans.values() if scan.bad),
        zero=tuple(name for name, level in levels.items() if level == 0),
        constant=tuple(name for name, level in levels.items() if level != 0),
        blank=tuple(name for name, scan in scans.items() if scan.blank and name not in watched),
        copies=copies,
        fidelity=tuple(sorted(close, key=lambda found: found.tensor not in head)),
        lost=tuple(name for name in had if name not in header.tensors),
    )


def readable(header: Header) -> list[TensorInfo]:
    """The tensors that lie whole in their files, in the order of their bytes; none lies twice."""
    rows = []
    end, shard = 0, -1
    for row in sorted(header.tensors.values(), key=lambda row: (row.shard, row.offset)):
        if row.shard != shard:
            end, shard = 0, row.shard
        file = header.shards[row.shard]
        whole = row.n_elements % row.type.block_elements == 0 and (row.n_bytes or 0) > 0
        stop = row.offset + (row.n_bytes or 0)
        if whole and row.offset >= end and file.data_offset + stop <= file.n_bytes:
            rows.append(row)
            end = stop
    return rows


def _check_sources(header: Header, reference: Header | Checkpoint | None) -> None:
    local = "only local files are read whole"
    if isinstance(reference, Checkpoint):
        if not reference.local:
            raise UsageError(local, where=reference.where, hint="download it first")
        reference = None
    for one in (header, reference):
        for shard in one.shards if one else ():
            if "://" in shard.path:
                raise UsageError(local, where=shard.path, hint="download it first")
    if reference is not None and reference.architecture != header.architecture:
        what = f"a reference of architecture {reference.architecture!r}"
        raise UsageError(f"{what} for a {header.architecture!r} model", where=reference.path)


@contextmanager
def _reference_weights(
    header: Header, reference: Header | Checkpoint, meter: _Meter
) -> Iterator[dict[str, Weights]]:
    """The tensors of a reference that have a counterpart of the same shape, by its name."""
    if isinstance(reference, Checkpoint):
        yield source_weights(reference, header, meter.add)
        return
    with closing(TensorFiles(reference, meter.add)) as files:
        yield {
            row.name: weights(files, row)
            for row in readable(reference)
            if row.name in header.tensors and row.shape == header.tensors[row.name].shape
        }


def _scan(files: TensorFiles, row: TensorInfo, watched: bool) -> _Scan:
    kind, order = row.type, files.header.order
    n_bad, first_bad, n_blocks = 0, 0, 0
    blank, first_bytes = True, b""
    levels: set[float | None] = set()
    for chunk in files.chunks(row):
        bad = nonfinite_blocks(chunk, kind, order)
        if len(bad) and not n_bad:
            first_bad = n_blocks + int(bad[0])
        n_bad += len(bad)
        n_blocks += len(chunk) // kind.block_bytes
        blank = blank and only_zero_bytes(chunk)
        first_bytes = first_bytes or hashlib.blake2b(chunk[:_FIRST_BYTES], digest_size=16).digest()
        if watched and (not levels or (len(levels) == 1 and None not in levels)):
            levels.add(one_value(chunk, kind, order))
    level = levels.pop() if len(levels) == 1 else None
    found = NonFinite(row.name, n_blocks, n_bad, first_bad * kind.block_elements)
    matrix = len(row.shape) > 1
    return _Scan(row, found if n_bad else None, blank and matrix, level, first_bytes)


def _copies(
    files: TensorFiles, head: dict[str, TensorInfo], scans: dict[str, _Scan]
) -> Iterator[Copy]:
    """Head tensors that are another one again; where all values are one, that says nothing."""
    alike: dict[tuple[int, tuple[int, ...], bytes], list[TensorInfo]] = defaultdict(list)
    ordered = sorted(scans.values(), key=lambda scan: scan.row.name in head)
    for scan in ordered:
        row, key = scan.row, (scan.row.type.id, scan.row.shape, scan.first_bytes)
        if scan.level is not None:
            continue
        n_bytes = row.n_bytes or 0
        if row.name in head:
            for other in alike[key][:_N_COMPARED]:
                if n_bytes <= _FIRST_BYTES or same_bytes(files, row, other):
                    yield Copy(row.name, other.name, n_bytes)
                    break
        alike[key].append(row)


def _fidelity(files: TensorFiles, row: TensorInfo, other: Weights) -> Fidelity:
    found = fidelity(row.name, weights(files, row), other)
    # A scale of its own tensor is not applied here: the direction can be compared, not the length.
    scaled = f"{row.name.removesuffix('weight')}scale" in files.header.tensors
    return replace(found, error=None) if scaled else found


class _Meter:
    """Bytes read so far, told to who waits."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self.total, self._done = progress, total, 0

    def add(self, n_bytes: int) -> None:
        # Copies are found by reading twice, which nobody counted before.
        self._done = min(self._done + n_bytes, self.total)
        self._progress(self._done, self.total)
