"""The JSON that `--json` prints, as types: mypy holds the commands to it, docs/schemas follows it.

Unknown is null. Fields may be added; one that changes its meaning raises the number in `schema`.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from gguftools.cli.contract_reference import ReferenceJSON


class HeadJSON(TypedDict):
    """One MTP block; `missing` and `wrong_shape` name tensors."""

    block: int
    missing: list[str]
    wrong_shape: list[str]
    n_bytes: int
    eh_proj_type: str | None


class MtpJSON(TypedDict):
    """Whether the MTP head survived: `loads` in llama.cpp, `runnable` as a drafter there."""

    state: Literal["none", "complete", "trunk-only", "head-only", "broken", "unsupported"]
    declared: int
    heads: list[HeadJSON]
    loads: bool
    runnable: bool
    reason: str


class ProblemJSON(TypedDict):
    """A finding; `code` is stable, `hint` is what to do."""

    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    hint: str


class InspectJSON(TypedDict):
    """`gguftools inspect --json`. `n_layer` is the trunk; `quant_types` has bytes by type."""

    schema: Literal["gguftools.inspect/1"]
    path: str
    files: list[str]
    architecture: str
    name: str | None
    n_layer: int
    n_layer_all: int
    n_ctx_train: int | None
    n_embd: int | None
    n_head: list[int]
    n_head_kv: list[int]
    n_vocab: int | None
    tokenizer: str | None
    n_params: int
    n_bytes: int
    bits_per_weight: float | None
    file_type: str | None
    quant_types: dict[str, dict[str, int]]
    chat_template: bool
    mtp: MtpJSON
    draft_kind: str | None
    deep: DeepJSON | None
    reference: ReferenceJSON | None
    problems: list[ProblemJSON]


class ShareJSON(TypedDict):
    """What one drafter did in a reply: rounds it drafted in, tokens sent to the target and kept."""

    n_rounds: int | None
    n_draft: int
    n_accepted: int


class ReplyJSON(TypedDict):
    """What one reply cost and what its drafts brought; positions count from the first draft.

    A llama-server keeps some of it to itself: unknown is null or empty.
    """

    text: str
    token_ids: list[int]
    stop_reason: Literal["eog", "stop", "length", "context", "cancelled", "error"]
    n_prompt: int
    n_tokens: int
    seconds_prompt: float
    seconds_decode: float
    tokens_per_second: float | None
    drafter: str
    n_draft: int
    n_accepted: int
    n_rounds: int
    drafted_by_position: list[int]
    accepted_by_position: list[int]
    n_draft_histogram: dict[str, int]
    seconds_draft: float | None
    seconds_verify: float | None
    by_drafter: dict[str, ShareJSON]


class EqualityJSON(TypedDict):
    """Drafted beside plain; all but the first two fields are null where the texts are equal."""

    holds: bool
    n_tokens: int
    position: int | None
    plain: int | None
    drafted: int | None
    gap: float | None
    noise: float | None


class RunSettingsJSON(TypedDict):
    """What a reply was asked for with; of a server at --url only what was sent is known."""

    engine: Literal["inprocess", "server"]
    target: str | None
    draft: str | None
    temp: float
    draft_max: int | None
    draft_min: int | None
    draft_p_min: float | None


class RunJSON(ReplyJSON):
    """`gguftools run --json`; `verify` is null without --verify."""

    schema: Literal["gguftools.run/1"]
    settings: RunSettingsJSON
    verify: EqualityJSON | None


class TurnJSON(ReplyJSON):
    """One turn of a chat."""

    prompt: str


class ChatJSON(TypedDict):
    """`gguftools chat --json`, printed when the input ends."""

    schema: Literal["gguftools.chat/1"]
    target: str
    turns: list[TurnJSON]


class NonFiniteJSON(TypedDict):
    """A tensor with NaN or Inf in `n_bad` of its blocks; `first` is the first element of one."""

    tensor: str
    n_blocks: int
    n_bad: int
    first: int


class CopyJSON(TypedDict):
    """A head tensor that equals another one byte for byte."""

    tensor: str
    of: str
    n_bytes: int


class FidelityJSON(TypedDict):
    """A tensor against its reference: RMS of the difference over RMS of the reference."""

    tensor: str
    type: str
    reference_type: str
    error: float | None
    cosine: float | None


class PrecisionJSON(TypedDict):
    """How a tensor is stored."""

    tensor: str
    type: str
    bits_per_weight: float | None


class HeadPrecisionJSON(TypedDict):
    """An MTP block's projection, and the output matrix that it really uses."""

    block: int
    eh_proj: PrecisionJSON | None
    output: PrecisionJSON | None


class ImatrixJSON(TypedDict):
    """The importance matrix used; `covers_head` false if its entries do not exceed the trunk's."""

    file: str | None
    dataset: str | None
    n_entries: int | None
    n_chunks: int | None
    covers_head: bool | None


class DeepJSON(TypedDict):
    """What `--deep` found in the bytes of the tensors; see `problems` for what it means."""

    n_tensors: int
    n_bytes: int
    unread: list[str]
    nonfinite: list[NonFiniteJSON]
    zero: list[str]
    constant: list[str]
    blank: list[str]
    copies: list[CopyJSON]
    reference: str | None
    fidelity: list[FidelityJSON]
    lost: list[str]
    head: list[HeadPrecisionJSON]
    imatrix: ImatrixJSON | None
