"""Compares tensors with the rows of the MTP table, the way llama.cpp's loader takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gguftools.gguf.nextn_table import QKV, SCALED, Ffn, GateUp, Row, Tensor
from gguftools.gguf.reader import Header, TensorInfo
from gguftools.gguf.shapes import Names, evaluate


@dataclass(frozen=True, slots=True)
class WrongShape:
    """A tensor whose shape llama.cpp refuses."""

    name: str
    found: tuple[int, ...]
    expected: tuple[int | None, ...]


@dataclass(slots=True)
class BlockCheck:
    """What one set of tensors lacks; names without `blk.N.`, `known` those a loader takes."""

    missing: list[str] = field(default_factory=list)  # the load fails
    graph_missing: list[str] = field(default_factory=list)  # the MTP graph aborts
    wanted: list[str] = field(default_factory=list)  # the head decodes, but not as trained
    wrong: list[WrongShape] = field(default_factory=list)
    known: set[str] = field(default_factory=set)


def check_rows(
    rows: tuple[Row, ...],
    tensors: Mapping[str, TensorInfo],
    names: Names,
    *,
    optional: bool = False,
    skipped: bool = False,
    head_only: bool = False,
) -> BlockCheck:
    """Compare tensors (named without `blk.N.`) with the rows of a table.

    With `optional` the loader requires nothing, with `head_only` nothing of the trunk; with
    `skipped` it takes the tensors without keeping them, so fused and split forms may both be there
    and scales are unknown to it.
    """
    check = BlockCheck()
    for row in rows:
        match row:
            case Tensor():
                trunk = row.need == "trunk" and head_only
                _check_tensor(check, row, tensors, names, optional or trunk)
            case QKV():
                _check_qkv(check, row, tensors, names, optional or skipped, skipped)
            case GateUp():
                _check_gate_up(check, row, tensors, names, optional)
            case Ffn():
                _check_ffn(check, row, tensors, names)
    if not skipped:
        _check_scales(check, tensors, names)
    return check


def _applies(row: Tensor | GateUp, names: Names) -> bool:
    return not row.when or bool(evaluate(row.when, names))


def _check_tensor(
    check: BlockCheck,
    row: Tensor,
    tensors: Mapping[str, TensorInfo],
    names: Names,
    optional: bool,
) -> None:
    if not _applies(row, names):
        return
    if row.name in tensors:
        _compare_shape(check, tensors[row.name], row.name, row.shape, names, row.reshape)
    elif row.need == "graph":
        check.graph_missing.append(row.name)
    elif row.need == "required":
        (check.graph_missing if optional else check.missing).append(row.name)
    elif row.need == "trunk" and not optional:
        check.missing.append(row.name)


def _compare_shape(
    check: BlockCheck,
    tensor: TensorInfo,
    name: str,
    shape: tuple[str, ...],
    names: Names,
    reshape: bool = False,
) -> None:
    check.known.add(name)
    expected = tuple(evaluate(dim, names) for dim in shape)
    if reshape:
        n = 1
        for dim in expected:
            if dim is None:
                return
            n *= dim
        same = n == tensor.n_elements
    else:
        padded = (*expected, 1, 1, 1, 1)[:4]
        found = (*tensor.shape, 1, 1, 1, 1)[:4]
        same = all(want in (None, have) for want, have in zip(padded, found, strict=True))
    if not same:
        check.wrong.append(WrongShape(name, tensor.shape, expected))


def _check_qkv(
    check: BlockCheck,
    row: QKV,
    tensors: Mapping[str, TensorInfo],
    names: Names,
    optional: bool,
    skipped: bool,
) -> None:
    parts = {"attn_q": row.q, "attn_k": row.k, "attn_v": row.v}
    total = f"{row.q} + {row.k} + {row.v}"
    fused = "attn_qkv.weight" in tensors
    rows: list[Tensor] = []
    if fused or skipped:
        rows += [
            Tensor("attn_qkv.weight", ("n_embd", total), "optional"),
            Tensor("attn_qkv.bias", (total,), "optional"),
        ]
    if not fused or skipped:
        rows += [Tensor(f"{part}.weight", ("n_embd", n)) for part, n in parts.items()]
    if not (fused and "attn_qkv.bias" in tensors) or skipped:
        rows += [Tensor(f"{part}.bias", (n,), "optional") for part, n in parts.items()]
    for part in rows:
        _check_tensor(check, part, tensors, names, optional)
    if row.graph_form == "fused" and not fused:
        check.graph_missing.append("attn_qkv.weight")
    if row.graph_form == "split" and fused:
        check.graph_missing.extend(f"{part}.weight" for part in parts)


def _check_gate_up(
    check: BlockCheck,
    row: GateUp,
    tensors: Mapping[str, TensorInfo],
    names: Names,
    optional: bool,
) -> None:
    if not _applies(row, names):
        return
    if "ffn_gate_up_exps.weight" in tensors:
        shape = ("n_embd", f"2*({row.n_ff})", "n_expert")
        _check_tensor(check, Tensor("ffn_gate_up_exps.weight", shape), tensors, names, optional)
        return
    for part in ("ffn_gate_exps.weight", "ffn_up_exps.weight"):
        shape = ("n_embd", row.n_ff, "n_expert")
        _check_tensor(check, Tensor(part, shape, row.need), tensors, names, optional)


def _check_ffn(
    check: BlockCheck, row: Ffn, tensors: Mapping[str, TensorInfo], names: Names
) -> None:
    """The loader takes any subset; what is lacking shows in the graph of the form it chooses."""
    experts, shared, dense = BlockCheck(), BlockCheck(), BlockCheck()
    for part in row.experts:
        if isinstance(part, GateUp):
            _check_gate_up(experts, part, tensors, names, True)
        else:
            _check_tensor(experts, part, tensors, names, True)
    for into, parts in ((shared, row.shared), (dense, row.dense)):
        for tensor in parts:
            _check_tensor(into, tensor, tensors, names, True)
    for part_check in (experts, shared) if "ffn_gate_inp.weight" in tensors else (dense,):
        lost = part_check.graph_missing
        # build_ffn passes the row on where all is gone or only the gate
        # (src/llama-graph.cpp:1837-1940); build_moe_ffn only does without the gate.
        only_gate = all("_gate_" in name or "_gate." in name for name in lost)
        passes = only_gate or (len(lost) == 3 and part_check is not experts)
        (check.wanted if passes else check.graph_missing).extend(lost)
    for part_check in (experts, shared, dense):
        check.known |= part_check.known
        check.wrong += part_check.wrong


def _check_scales(check: BlockCheck, tensors: Mapping[str, TensorInfo], names: Names) -> None:
    """Companions `.scale` and `.input_scale` of the weights that were taken."""
    for base, n in SCALED.items():
        if f"{base}.weight" in check.known:
            for name in (f"{base}.scale", f"{base}.input_scale"):
                if name in tensors:
                    _compare_shape(check, tensors[name], name, (n,), names)


def block_tensors(header: Header) -> Iterator[tuple[int, str, TensorInfo]]:
    """Every tensor `blk.N.name` as N, name, row."""
    for name, tensor in header.tensors.items():
        head, _, rest = name.partition(".")
        number, _, suffix = rest.partition(".")
        plain = number.isascii() and number.isdecimal() and str(int(number)) == number
        if head == "blk" and suffix and plain:
            yield int(number), suffix, tensor
