"""What is wrong with the bytes of a model's tensors, and the next step. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from gguftools.gguf.deep import ENDS, Copy, DeepReport
from gguftools.gguf.header import Header
from gguftools.gguf.nextn_block import block_tensors
from gguftools.gguf.precision import head_tensors, precision_problems
from gguftools.gguf.problem import Problem

# Of normal noise TQ1_0 keeps 0.70 and Q2_K 0.96; the weights of another model have about 0.
COSINE_MIN = 0.5
_N_NAMED = 4  # tensors a message names before it counts
_AGAIN = "convert the model again, or download the file again and compare its checksum"
_GARBAGE = f"llama.cpp loads it unless --check-tensors is given, and computes garbage: {_AGAIN}"
# What an MTP block may repeat from the model; llama.cpp takes the model's where it does not.
_REPEATABLE = ("nextn.embed_tokens.weight", "nextn.shared_head_head.weight",
               "nextn.shared_head_norm.weight")  # fmt: skip


def deep_problems(header: Header, report: DeepReport) -> tuple[Problem, ...]:
    """Everything found, the head first."""
    head = head_tensors(header)
    return (
        *_nonfinite(report, head),
        *_dead(header, report),
        *_copies(header, report, head),
        *_reference(report),
        *precision_problems(header),
        *_rest(report),
    )


def _nonfinite(report: DeepReport, head: Iterable[str]) -> Iterator[Problem]:
    for where, found in (
        ("head", [bad for bad in report.nonfinite if bad.tensor in head]),
        ("tensor", [bad for bad in report.nonfinite if bad.tensor not in head]),
    ):
        if found:
            first = found[0]
            what = f"{first.tensor} has NaN or Inf in {first.n_bad} of {first.n_blocks} blocks, "
            what += f"first at element {first.first}"
            if others := [bad.tensor for bad in found[1:]]:
                what += f"; so have {_listed(others)}"
            yield Problem(f"{where}-nonfinite", "error", what, _GARBAGE)


def _dead(header: Header, report: DeepReport) -> Iterator[Problem]:
    """Tensors of head and ends that say nothing. A bias of zeros is none."""
    zero = [name for name in report.zero if not name.endswith(".bias")]
    vital = [name for name in zero if "nextn." in name or name in ENDS]
    if vital:
        yield Problem("head-zero", "error", f"all values are zero in {_listed(vital)}", _AGAIN)
    if others := [name for name in zero if name not in vital]:
        what = f"all values are zero in {_listed(others)}: that part of the MTP head adds nothing"
        yield Problem("head-zero", "warning", what, _AGAIN)
    shapes = {name: header.tensors[name].shape for name in report.constant}
    if matrices := [name for name, shape in shapes.items() if len(shape) > 1]:
        what = f"all values are the same in {_listed(matrices)}"
        yield Problem("head-constant", "warning", what, _AGAIN)
    if vectors := [name for name, shape in shapes.items() if len(shape) == 1 and shape[0] > 1]:
        what = f"all values are the same in {_listed(vectors)}: norms as before any training"
        yield Problem("head-constant", "info", what)


def _copies(header: Header, report: DeepReport, head: Iterable[str]) -> Iterator[Problem]:
    spare = [
        copy for copy in report.copies if copy.tensor.endswith(_REPEATABLE) and copy.of in ENDS
    ]
    if spare:
        n_bytes = sum(copy.n_bytes for copy in spare)
        named = ", ".join(f"{copy.tensor} repeats {copy.of}" for copy in spare[:_N_NAMED])
        what = f"{named}: {n_bytes / 1e6:.4g} MB that llama.cpp would share"
        yield Problem("head-repeats", "info", what)
    block_of = {row.name: f"block {block}" for block, _, row in block_tensors(header)}
    by_blocks: dict[tuple[str, str], list[Copy]] = defaultdict(list)
    for copy in report.copies:
        if copy not in spare:
            places = (block_of.get(name, "the model") for name in (copy.tensor, copy.of))
            by_blocks[next(places), next(places)].append(copy)
    n_tensors = Counter(block_of.get(name, "the model") for name in head)
    for (block, other), found in by_blocks.items():
        what = (
            f"{len(found)} of {n_tensors[block]} tensors of MTP {block} equal those of {other} "
            f"byte for byte, such as {found[0].tensor} and {found[0].of}"
        )
        hint = "a trained head shares no weights: was a block copied in place of it?"
        yield Problem("head-copy", "warning", what, hint)


def _reference(report: DeepReport) -> Iterator[Problem]:
    if report.lost:
        what = f"the reference has {_listed(report.lost)}, which this file lacks"
        yield Problem("reference-lost", "error", what, "convert or quantize the model again")
    far = [f for f in report.fidelity if f.cosine is not None and f.cosine < COSINE_MIN]
    if far:
        named = ", ".join(f"{f.tensor} (cosine {f.cosine:.2f})" for f in far[:_N_NAMED])
        more = f" and {len(far) - _N_NAMED} more" if len(far) > _N_NAMED else ""
        what = f"{named}{more}: not the weights of the reference"
        hint = "is it the same model? if so, quantize it again"
        yield Problem("reference-far", "error", what, hint)


def _rest(report: DeepReport) -> Iterator[Problem]:
    if report.blank:
        what = f"{_listed(report.blank)}: nothing but zero bytes"
        hint = "an interrupted download leaves such holes: compare the checksum"
        yield Problem("tensor-blank", "warning", what, hint)
    if report.unread:
        what = f"not checked, because of its type or place: {_listed(report.unread)}"
        yield Problem("tensor-unread", "info", what)


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _N_NAMED
    return ", ".join(every[:_N_NAMED]) + (f" and {more} more" if more > 0 else "")
