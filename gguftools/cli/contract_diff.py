"""The JSON that `diff --json` prints, as types, like those in contract.py."""

from __future__ import annotations

from typing import Literal, TypedDict


class SideJSON(TypedDict):
    """A metadata value in one file: `n` elements or characters, shown from where they differ."""

    type: str
    n: int | None
    shown: str | int | float | bool | None


class MetadataDiffJSON(TypedDict):
    """A key that only one file has (the other is null), or whose values part at `index`."""

    key: str
    before: SideJSON | None
    after: SideJSON | None
    index: int | None


class TensorJSON(TypedDict):
    """A tensor in one file; `shape` in ggml order."""

    type: str
    shape: list[int]
    n_bytes: int | None


class TensorDiffJSON(TypedDict):
    """A tensor in both files, null where it is not."""

    tensor: str
    before: TensorJSON | None
    after: TensorJSON | None


class MtpStateJSON(TypedDict):
    """The MTP verdict on one file, as `inspect` has it."""

    state: Literal["none", "complete", "trunk-only", "head-only", "broken", "unsupported"]
    declared: int
    loads: bool
    runnable: bool
    reason: str


class MtpDiffJSON(TypedDict):
    """What became of the MTP head: `survived` unless lost or broken; every tensor of it."""

    verdict: Literal["none", "intact", "changed", "gained", "lost", "broken", "still-broken"]
    survived: bool
    reason: str
    before: MtpStateJSON
    after: MtpStateJSON
    tensors: list[TensorDiffJSON]


class GroupJSON(TypedDict):
    """Sums over a group of tensors; `types` has bytes by type."""

    n_tensors: int
    n_params: int
    n_bytes: int
    bits_per_weight: float | None
    types: dict[str, int]


class GroupDiffJSON(TypedDict):
    """A group in both files."""

    before: GroupJSON
    after: GroupJSON


class DiffJSON(TypedDict):
    """`gguftools diff --json`. Headers are compared; `tensors` has those that differ."""

    schema: Literal["gguftools.diff/1"]
    before: str
    after: str
    same: bool
    mtp: MtpDiffJSON
    tensors: list[TensorDiffJSON]
    metadata: list[MetadataDiffJSON]
    groups: dict[str, GroupDiffJSON]
