"""The JSON of `gguftools serve --json`, as types; see contract.py."""

from __future__ import annotations

from typing import Literal, TypedDict

from gguftools.cli.contract_pair import SettingsJSON


class ProofJSON(TypedDict):
    """Whether it was seen to draft. `why` says on what that rests."""

    on: bool
    n_draft: int
    n_accepted: int
    why: str


class ServeJSON(TypedDict):
    """`gguftools serve --json`: one object when it is ready; it serves until it is stopped.

    `drafter` is "none" for plain decoding. `proof`, `command`, `build` and `log` are null where
    this process decodes.
    """

    schema: Literal["gguftools.serve/1"]
    engine: Literal["server", "inprocess"]
    url: str
    model: str
    target: str
    draft: str | None
    drafter: str
    settings: SettingsJSON | None
    n_ctx: int
    n_parallel: int
    build: str | None
    proof: ProofJSON | None
    command: list[str] | None
    log: str | None
    notes: list[str]
