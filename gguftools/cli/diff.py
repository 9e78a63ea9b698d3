"""`gguftools diff A B`: what differs between two models, and did the MTP head survive."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

import click

from gguftools.cli import render
from gguftools.cli.contract_diff import (
    DiffJSON,
    GroupDiffJSON,
    GroupJSON,
    MetadataDiffJSON,
    MtpDiffJSON,
    MtpStateJSON,
    SideJSON,
    TensorDiffJSON,
    TensorJSON,
)
from gguftools.cli.fetch import fetch
from gguftools.cli.options import PLACE, color_option, json_option
from gguftools.gguf.compare import Comparison, MetadataChange, Side, TensorPair, compare
from gguftools.gguf.nextn import MtpReport
from gguftools.gguf.reader import TensorInfo
from gguftools.gguf.tensors import TensorGroup, TensorGroups

_N_ROWS = 24  # head tensors and metadata keys shown
_TEXT_SHOWN = 48  # characters of a value shown
_COLORS = {
    "intact": "green", "gained": "green", "changed": "yellow",
    "lost": "red", "broken": "red", "still-broken": "red",
}  # fmt: skip


@click.command(short_help="What differs between two files, the MTP head first?")
@click.argument("a", type=PLACE)
@click.argument("b", type=PLACE)
@json_option
@color_option
def diff(a: str, b: str, as_json: bool) -> int:
    """Say what differs between two GGUF models: A before, B after quantizing or converting it.

    The MTP head comes first, then the tensors by size and type, then the metadata. Headers are
    compared, not the values of tensors: gguftools inspect B --deep --reference A does that.
    Exit code 1 when B lost or broke the MTP head of A.

    \b
    Examples:
      gguftools diff model-F16.gguf model-Q4_K_M.gguf
      gguftools diff old.gguf new.gguf --json | jq .mtp.verdict
    """
    found = compare(fetch(a), fetch(b))
    if as_json:
        render.json_object(_json(found, a, b))
    else:
        _print(found)
    return 0 if found.survived else 1


def _json(found: Comparison, before: str, after: str) -> DiffJSON:
    return DiffJSON(
        schema="gguftools.diff/1",
        before=before,
        after=after,
        same=found.same,
        mtp=MtpDiffJSON(
            verdict=found.verdict,
            survived=found.survived,
            reason=found.reason,
            before=_state(found.mtp_before),
            after=_state(found.mtp_after),
            tensors=[_pair(pair) for pair in found.head],
        ),
        tensors=[_pair(pair) for pair in found.tensors],
        metadata=[_change(change) for change in found.metadata],
        groups={
            name: GroupDiffJSON(before=_group(before_group), after=_group(after_group))
            for name, before_group, after_group in _groups(found)
        },
    )


def _state(mtp: MtpReport) -> MtpStateJSON:
    return MtpStateJSON(
        state=mtp.state,
        declared=mtp.declared,
        loads=mtp.loads,
        runnable=mtp.runnable,
        reason=mtp.reason,
    )


def _pair(pair: TensorPair) -> TensorDiffJSON:
    return TensorDiffJSON(tensor=pair.name, before=_tensor(pair.before), after=_tensor(pair.after))


def _tensor(row: TensorInfo | None) -> TensorJSON | None:
    if row is None:
        return None
    return TensorJSON(type=row.type.name, shape=list(row.shape), n_bytes=row.n_bytes)


def _change(change: MetadataChange) -> MetadataDiffJSON:
    return MetadataDiffJSON(
        key=change.key,
        before=_side(change.before),
        after=_side(change.after),
        index=change.index,
    )


def _side(side: Side | None) -> SideJSON | None:
    if side is None:
        return None
    odd = isinstance(side.shown, float) and not math.isfinite(side.shown)  # no JSON number
    return SideJSON(type=side.type, n=side.n, shown=str(side.shown) if odd else side.shown)


def _group(group: TensorGroup) -> GroupJSON:
    return GroupJSON(
        n_tensors=group.n_tensors,
        n_params=group.n_params,
        n_bytes=group.n_bytes,
        bits_per_weight=group.bits_per_weight,
        types=group.types,
    )


def _groups(found: Comparison) -> Iterator[tuple[str, TensorGroup, TensorGroup]]:
    """The groups by name, before and after."""

    def named(groups: TensorGroups) -> dict[str, TensorGroup]:
        return {
            "head": groups.head,
            "trunk": groups.trunk,
            "embedding": groups.embedding,
            "output": groups.output,
            "total": groups.total,
        }

    after = named(found.groups_after)
    for name, group in named(found.groups_before).items():
        yield name, group, after[name]


def _print(found: Comparison) -> None:
    if found.same:
        render.line("the same metadata and the same tensors, by type and shape", style="bold")
    verdict = (
        f"MTP head: {found.verdict}: {found.reason}" if found.verdict != "none" else found.reason
    )
    render.line(verdict, _COLORS.get(found.verdict, ""))
    if found.head:
        render.line()
        _print_head(found.head)
    if found.same:
        return
    render.line()
    rows = [
        (name, render.n_bytes(a.n_bytes), render.n_bytes(b.n_bytes),
         render.rate(a.bits_per_weight), render.rate(b.bits_per_weight), _types(a), _types(b))
        for name, a, b in _groups(found) if a.n_tensors or b.n_tensors
    ]  # fmt: skip
    head = ("tensors", "before", "after", "bits", "after", "types", "after")
    render.table(head, rows, right=(1, 2, 3, 4))
    _print_tensors(found)
    _print_metadata(found.metadata)


def _print_head(head: Iterable[TensorPair]) -> None:
    """Every tensor of the head that differs; the others are counted."""
    pairs = list(head)
    differing = [pair for pair in pairs if not pair.same]
    if differing:
        rows = [(pair.name, _shown(pair.before), _shown(pair.after)) for pair in differing]
        render.table(("head tensor", "before", "after"), rows[:_N_ROWS])
        if len(rows) > _N_ROWS:
            render.line(f"and {len(rows) - _N_ROWS} more head tensors; --json has all", style="dim")
    if n_same := len(pairs) - len(differing):
        render.line(f"{render.count(n_same, 'head tensor')} unchanged", style="dim")


def _shown(row: TensorInfo | None) -> str:
    return f"{row.type.name} {list(row.shape)}" if row else "missing"


def _types(group: TensorGroup) -> str:
    return ", ".join(group.types) or "-"


def _print_tensors(found: Comparison) -> None:
    """The other tensors, by what happened to them."""
    in_head = {pair.name for pair in found.head}
    fates: dict[str, list[str]] = defaultdict(list)
    for pair in found.tensors:
        if pair.name not in in_head:
            fates[_fate(pair)].append(pair.name)
    if fates:
        render.line()
    for fate, names in sorted(fates.items(), key=lambda item: -len(item[1])):
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        render.line(f"{fate}: {names[0]}{more}")


def _fate(pair: TensorPair) -> str:
    a, b = pair.before, pair.after
    if a is None or b is None:
        return "only before" if b is None else "only after"
    if a.shape != b.shape:
        return f"{list(a.shape)} -> {list(b.shape)}"
    return f"{a.type.name} -> {b.type.name}"


def _print_metadata(changes: tuple[MetadataChange, ...]) -> None:
    if changes:
        render.line()
        rows = [(c.key, *_values(c)) for c in changes[:_N_ROWS]]
        render.table(("metadata", "before", "after"), rows)
    if len(changes) > _N_ROWS:
        render.line(f"and {len(changes) - _N_ROWS} more keys; --json has all", style="dim")


def _values(change: MetadataChange) -> tuple[str, str]:
    """Before and after, with their types where these differ."""
    before, after = _value(change.before, change.index), _value(change.after, change.index)
    if change.before and change.after and change.before.type != change.after.type:
        return f"{before} ({change.before.type})", f"{after} ({change.after.type})"
    return before, after


def _value(side: Side | None, index: int | None) -> str:
    """A value; of an array or long text what stands where they differ."""
    if side is None:
        return "missing"
    shown = "nothing" if side.shown is None else str(side.shown)
    if len(shown) > _TEXT_SHOWN:
        shown = f"{shown[:_TEXT_SHOWN]}..."
    if side.n is None or (side.type == "string" and len(shown) == side.n):
        return shown
    noun = "characters" if side.type == "string" else "entries"
    return f"{side.n} {noun}" if index is None else f"{side.n} {noun}, at {index}: {shown}"
