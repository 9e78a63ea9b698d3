"""What is wrong with the MTP part of a file, and what each thing stops. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gguftools.gguf.hparams import N_LAYER_MAX
from gguftools.gguf.nextn_block import BlockCheck, WrongShape
from gguftools.gguf.nextn_table import (
    LEGACY_NAMES,
    LEGACY_PARTS,
    LLAMA_BUILD,
    PER_LAYER_KEYS,
    MtpArch,
)
from gguftools.gguf.problem import Problem, Severity
from gguftools.gguf.reader import Header, NumericArray, StringArray, TensorInfo
from gguftools.gguf.shapes import Names, evaluate

EH_PROJ = "nextn.eh_proj.weight"
HEAD_HEAD = "nextn.shared_head_head.weight"
_N_NAMED = 4  # tensors a message names before it counts

Stops = Literal["load", "graph", "nothing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and what it stops: the load, the MTP graph, or nothing."""

    problem: Problem
    stops: Stops


@dataclass(frozen=True, slots=True)
class MtpFile:
    """The facts of one file, gathered once; `blocks` holds its tensors without `blk.N.`."""

    header: Header
    arch: str
    spec: MtpArch
    declared: int
    n_layer_all: int
    blocks: dict[int, dict[str, TensorInfo]]

    @property
    def alone(self) -> bool:
        """Whether the architecture is nothing but a head (gemma4-assistant)."""
        return not self.spec.trunk_probe

    @property
    def first(self) -> int:
        """The first MTP block by key and block_count."""
        return 0 if self.alone else self.n_layer_all - self.declared

    @property
    def head_blocks(self) -> list[int]:
        """Blocks to judge as heads: those declared, else those that hold nextn tensors."""
        if self.declared:
            return list(range(self.first, self.first + self.declared))
        return [block for block in sorted(self.blocks) if self.has_nextn(block)]

    @property
    def stripped(self) -> bool:
        """Whether the key promises heads and no block holds a nextn tensor."""
        return self.declared > 0 and not any(self.has_nextn(block) for block in self.blocks)

    @property
    def probed(self) -> bool:
        """Whether nextn.eh_proj lies where the loader looks for it."""
        return EH_PROJ in self.blocks.get(self.first, {})

    @property
    def zeroed(self) -> bool:
        """Whether the loader drops the key, because the probe fails (deepseek4)."""
        return self.spec.probe_zeroes and self.declared > 0 and not self.probed

    @property
    def trunk(self) -> bool:
        """Whether the loader takes the file as one with a trunk."""
        return self.spec.trunk_probe in self.header.tensors

    def has_nextn(self, block: int) -> bool:
        """Whether a block holds any nextn tensor (any at all where its table row has none)."""
        names = self.blocks.get(block, {})
        return any(name.startswith("nextn.") for name in names) or (self.alone and bool(names))

    def key(self, suffix: str) -> str:
        """The key `{arch}.{suffix}`."""
        return f"{self.arch}.{suffix}"


@dataclass(frozen=True, slots=True)
class Head:
    """One MTP block compared with the table."""

    block: int
    names: Names
    check: BlockCheck


def is_mtp_name(name: str) -> bool:
    """Whether a tensor name speaks of MTP, in llama.cpp's or another spelling."""
    return ".nextn." in name or name.startswith(("nextn.", *LEGACY_NAMES)) or name == "d2t"


def key_findings(file: MtpFile) -> Iterator[Finding]:
    """The key, block_count and per-layer arrays by themselves."""
    key, count = file.key("nextn_predict_layers"), file.key("block_count")
    kind = file.header.types.get(key, "uint32")
    if kind != "uint32":
        what = f"{key} is stored as {kind}; llama.cpp reads only uint32"
        yield _stop("mtp-key-type", what, "convert the model again")
    elif not 0 < file.n_layer_all <= N_LAYER_MAX:
        what = f"{count} is {file.n_layer_all}, not 1 to {N_LAYER_MAX}"
        yield _stop("mtp-block-count", what, "convert the model again")
    elif file.declared > file.n_layer_all:
        what = f"{key} is {file.declared}, more than the {file.n_layer_all} blocks of the file"
        yield _stop("mtp-count", what, f"gguf-set-metadata FILE {key} 1")
    for suffix, value in _arrays(file, *PER_LAYER_KEYS, *file.spec.arrays):
        if len(value) != file.n_layer_all:
            what = f"{file.key(suffix)} has {len(value)} entries for {file.n_layer_all} blocks"
            yield _stop("mtp-array-length", what, _reconvert(file))
    for suffix, value in _arrays(
        file, "attention.sliding_window_pattern", "attention.compress_ratios"
    ):
        if len(value) > N_LAYER_MAX:
            what = f"{file.key(suffix)} has {len(value)} entries; llama.cpp takes {N_LAYER_MAX}"
            yield _stop("mtp-array-length", what, "convert the model again")


def _arrays(file: MtpFile, *suffixes: str) -> Iterator[tuple[str, NumericArray | StringArray]]:
    for suffix in suffixes:
        value = file.header.metadata.get(file.key(suffix))
        if isinstance(value, NumericArray | StringArray):
            yield suffix, value


def model_findings(file: MtpFile, check: BlockCheck) -> Iterator[Finding]:
    """token_embd, output_norm, output and the like."""
    hint = "convert the model again; a head-only file needs them too"
    if check.missing:
        yield _stop("mtp-model-tensor", f"{_listed(check.missing)} missing", hint)
    for wrong in check.wrong:
        yield _stop("mtp-model-tensor", _shape_text(wrong), hint)


def block_count_findings(file: MtpFile) -> Iterator[Finding]:
    """Blocks beyond block_count, and trunk blocks that are not there."""
    key = file.key("block_count")
    n_blocks = file.declared if file.alone else file.n_layer_all
    beyond = max(file.blocks, default=0)
    if beyond >= n_blocks > 0:
        what = f"{key} is {file.n_layer_all}, but block {beyond} has tensors"
        yield _stop("mtp-block-count", what, f"gguf-set-metadata FILE {key} {beyond + 1}")
    if file.declared and not file.trunk and not file.spec.head_only:
        what = f"it has no trunk, and llama.cpp loads no head alone for {file.arch}"
        yield _stop("mtp-no-trunk", what, "convert it again from the original model, without --mtp")
    elif file.trunk or (not file.declared and not file.alone):
        n_trunk = file.n_layer_all if file.zeroed else file.first
        empty = [block for block in range(n_trunk) if block not in file.blocks]
        if empty and len(empty) < n_trunk and not (file.zeroed and empty[0] >= file.first):
            what = f"{key} is {file.n_layer_all}, but block {empty[0]} has no tensors"
            hint = f"gguf-set-metadata FILE {key} {empty[0]}" if beyond < n_blocks else ""
            yield _stop("mtp-block-count", what, hint)


def head_findings(file: MtpFile, heads: list[Head]) -> Iterator[Finding]:
    """What the declared heads lack for the load."""
    if file.stripped:
        yield _stripped(file, fails=any(head.check.missing for head in heads))
        return
    for head in heads if file.declared else []:
        lost = [f"blk.{head.block}.{name}" for name in head.check.missing]
        if lost and not file.has_nextn(head.block):
            what = f"MTP block {head.block} is not there: {len(lost)} tensors are missing"
            yield _stop("mtp-head-missing", what, _reconvert(file))
        elif lost:
            yield _stop("mtp-tensor-missing", f"{_listed(lost)} missing", _reconvert(file))
        for wrong in head.check.wrong:
            yield _wrong(file, head.block, wrong)
        for expr, meaning in file.spec.load_if:
            if evaluate(expr, head.names) == 0:
                what = f"MTP block {head.block}: {meaning}"
                yield _stop("mtp-hparams", what, _reconvert(file))


def _stripped(file: MtpFile, *, fails: bool) -> Finding:
    """The key is there and no head: a plain model, or a file that does not load."""
    key = file.key("nextn_predict_layers")
    what = f"{key} is {file.declared}, but the file holds no MTP tensor"
    if not fails:
        return Finding(Problem("mtp-tensors-missing", "warning", what, _reconvert(file)), "graph")
    return _stop("mtp-tensors-missing", what, f"{_remove_key(file)}; else {_reconvert(file)}")


def _wrong(file: MtpFile, block: int, wrong: WrongShape) -> Finding:
    text = _shape_text(wrong, f"blk.{block}.")
    n_vocab = wrong.expected[-1] or 0
    if (
        wrong.name in (HEAD_HEAD, "nextn.embed_tokens.weight")
        and len(wrong.found) == 2
        and wrong.found[0] == wrong.expected[0]
        and wrong.found[1] < n_vocab
    ):
        what = f"{text}: a reduced vocabulary, which llama.cpp does not take in an MTP head"
        return _stop("mtp-reduced-vocab", what, _reconvert(file))
    return _stop("mtp-tensor-shape", text, _reconvert(file))


def stray_findings(file: MtpFile, heads: list[Head]) -> Iterator[Finding]:
    """Tensors of the MTP kind that the loader does not ask for: it then refuses the file."""
    taken = {f"blk.{head.block}.{name}" for head in heads if file.declared
             for name in head.check.known} | {row.name for row in file.spec.model}  # fmt: skip
    blocks = file.head_blocks if file.declared else []
    inside = [f"blk.{block}.{name}" for block in blocks for name in file.blocks.get(block, {})]
    mtp = [name for name in file.header.tensors if is_mtp_name(name)]
    names = sorted({*inside, *mtp} - taken)
    key = file.key("nextn_predict_layers")
    legacy = [n for n in names if n.startswith(LEGACY_NAMES) or any(p in n for p in LEGACY_PARTS)]
    if legacy:
        what = f"{_listed(legacy)} not named as llama.cpp names MTP tensors"
        yield _stop("mtp-legacy-name", what, _reconvert(file))
    elif "d2t" in names:
        what = f"d2t (a reduced vocabulary) is not known for {file.arch}"
        yield _stop("mtp-d2t", what, "convert it as a draft of its own, or without d2t")
    elif (names or file.alone) and not file.declared:
        what = f"{len(names)} MTP tensors such as {names[0]}" if names else "an assistant"
        n = len(file.head_blocks)
        hint = f"run with --override-kv {key}=int:{n}, or convert it again"
        yield _stop("mtp-key-missing", f"{what}, but no {key}", hint)
    elif names:
        what = f"{_listed(names)} unknown to llama.cpp at that place"
        hint = f"remove it, or check {key} and {file.key('block_count')}"
        yield _stop("mtp-tensor-unknown", what, hint)


def graph_findings(file: MtpFile, heads: list[Head]) -> Iterator[Finding]:
    """What stops or spoils the MTP graph of a file that loads."""
    if not file.declared or file.stripped:
        return
    if file.spec.no_graph:
        hint = "use another draft for this model"
        yield Finding(Problem("mtp-no-graph", "warning", file.spec.no_graph, hint), "graph")
        return
    if file.spec.n_heads == 1 and file.declared > 1:
        what = (
            f"{file.declared} MTP blocks; llama.cpp {LLAMA_BUILD} runs exactly one of {file.arch}"
        )
        yield _graph("mtp-many-heads", what, "convert it again with one MTP layer")
    headless = any(row.name == "output.weight" and row.need == "trunk" for row in file.spec.model)
    headless = headless and "output.weight" not in file.header.tensors
    for head in heads:
        block = head.block
        for expr, meaning in file.spec.graph_if:
            if evaluate(expr, head.names) == 0:
                yield _graph("mtp-hparams", f"MTP block {block}: {meaning}", _reconvert(file))
        lost = [f"blk.{block}.{name}" for name in head.check.graph_missing]
        if headless and HEAD_HEAD not in head.check.known:
            lost.append("output.weight")
        if lost:
            what = f"{_listed(lost)} missing: the file loads, but its MTP head aborts"
            yield _graph("mtp-tensor-missing", what, _reconvert(file))
        if head.check.wanted:
            lost = [f"blk.{block}.{name}" for name in head.check.wanted]
            what = f"{_listed(lost)} missing: the MTP head decodes without it, drafting worse"
            yield Finding(Problem("mtp-ffn", "error", what, _reconvert(file)), "nothing")


def _stop(code: str, what: str, hint: str) -> Finding:
    return Finding(Problem(code, "error", what, hint), "load")


def _graph(code: str, what: str, hint: str, severity: Severity = "error") -> Finding:
    return Finding(Problem(code, severity, what, hint), "graph")


def _listed(names: list[str]) -> str:
    more = len(names) - _N_NAMED
    text = ", ".join(names[:_N_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{text} {'is' if len(names) == 1 else 'are'}"


def _shape_text(wrong: WrongShape, prefix: str = "") -> str:
    shown = ", ".join("?" if dim is None else str(dim) for dim in wrong.expected)
    return f"{prefix}{wrong.name} has shape {list(wrong.found)}; llama.cpp expects [{shown}]"


def _reconvert(file: MtpFile) -> str:
    if file.spec.no_graph:
        return "convert it again with --no-nextn (llama.cpp cannot use this head anyway)"
    return "convert it again from the original model, without --no-nextn"


def _remove_key(file: MtpFile) -> str:
    """How to make a file without a head load as a plain model."""
    key, count = file.key("nextn_predict_layers"), file.key("block_count")
    leftover = any(file.blocks.get(block) for block in file.head_blocks)
    if leftover or any(_arrays(file, *PER_LAYER_KEYS, *file.spec.arrays)):
        return "to load it as a plain model: convert it again with --no-nextn"
    return (
        f"to load it as a plain model: gguf-set-metadata FILE {key} 0 --force && "
        f"gguf-set-metadata FILE {count} {file.first} --force"
    )
