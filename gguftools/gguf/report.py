"""Everything `inspect` says about a model, gathered from its header. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gguftools.gguf.ggml_types import FILE_TYPES
from gguftools.gguf.hparams import HParams, read_hparams
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.nextn import MtpReport, mtp_report
from gguftools.gguf.problem import Problem
from gguftools.gguf.reader import Header
from gguftools.gguf.templates import template_problems
from gguftools.gguf.tensors import TensorGroups, tensor_groups
from gguftools.gguf.tokenizer import Vocab, read_vocab

FILE_TYPE_GUESSED = 1024  # LLAMA_FTYPE_GUESSED, include/llama.h, b11434
_SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class InspectReport:
    """Facts of one model; `n_bytes` counts whole files, `name` is None where the file has none."""

    header: Header
    name: str | None
    file_type: str | None
    n_bytes: int
    hparams: HParams
    vocab: Vocab | None
    tensors: TensorGroups
    mtp: MtpReport
    chat_template: str | None
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing was found that breaks the file or its MTP head."""
        errors = any(problem.severity == "error" for problem in self.problems)
        return not errors and self.mtp.state != "broken"


def inspect_header(header: Header) -> InspectReport:
    """Gather the report of a model."""
    mtp = mtp_report(header)
    found = (*check_integrity(header), *mtp.problems, *template_problems(header))
    return InspectReport(
        header=header,
        name=header.text("general.name") or None,
        file_type=file_type(header),
        n_bytes=sum(shard.n_bytes for shard in header.shards),
        hparams=read_hparams(header),
        vocab=read_vocab(header),
        tensors=tensor_groups(header),
        mtp=mtp,
        chat_template=header.text("tokenizer.chat_template") or None,
        problems=tuple(sorted(found, key=lambda problem: _SEVERITIES.index(problem.severity))),
    )


def file_type(header: Header) -> str | None:
    """`general.file_type` by name, None if absent; an unknown number is kept and named."""
    number = header.integer("general.file_type")
    if number is None:
        return None
    return FILE_TYPES.get(number & ~FILE_TYPE_GUESSED, f"type {number}")
