"""The JSON that `inspect --json` prints for a folder, a pattern or a whole repository."""

from __future__ import annotations

from typing import Literal, TypedDict


class ListedJSON(TypedDict):
    """One model; all but the first and the last two are null where it cannot be read."""

    path: str
    n_files: int | None
    architecture: str | None
    name: str | None
    file_type: str | None
    n_params: int | None
    n_bytes: int | None
    mtp: Literal["none", "complete", "trunk-only", "head-only", "broken", "unsupported"] | None
    mtp_runnable: bool | None
    draft_kind: str | None
    verdict: Literal["sound", "broken", "unreadable"]
    reason: str | None


class InspectListJSON(TypedDict):
    """`gguftools inspect FOLDER --json`; `reason` is the first thing wrong with a model."""

    schema: Literal["gguftools.inspect-list/1"]
    path: str
    files: list[ListedJSON]
