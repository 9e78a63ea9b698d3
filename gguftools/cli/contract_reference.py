"""The JSON of checkpoints: `inspect FILE --reference` and `inspect FOLDER`."""

from __future__ import annotations

from typing import Literal, TypedDict

from gguftools.gguf.lost_ways import Arrived, LostWay, Outcome, Way


class SourceTensorJSON(TypedDict):
    """An MTP tensor of the source, experts as one; shapes in ggml order, the GGUF's beside it.

    `gguf` is null where llama.cpp has no name for it; `listed` whether conversion reads its file.
    """

    source: str
    n_sources: int
    source_type: str
    listed: bool
    gguf: str | None
    expected_shape: list[int] | None


class ArrivalJSON(SourceTensorJSON):
    """What became of it in the file."""

    arrived: Arrived
    type: str | None
    shape: list[int] | None


class ReferenceJSON(TypedDict):
    """The file against its source; `way` says where the head was lost, `fix` what to do."""

    path: str
    model_class: str
    declared: int | None
    n_source: int
    lost: bool
    way: LostWay
    reason: str
    fix: str
    tensors: list[ArrivalJSON]


class CheckpointJSON(TypedDict):
    """`gguftools inspect FOLDER --json`: what conversion will do with the head of a checkpoint."""

    schema: Literal["gguftools.checkpoint/1"]
    path: str
    model_class: str
    architecture: str | None
    n_layer: int | None
    declared: int | None
    declared_key: str | None
    unlisted_files: list[str]
    missing_files: list[str]
    outcome: Outcome
    way: Way
    reason: str
    fix: str
    tensors: list[SourceTensorJSON]
