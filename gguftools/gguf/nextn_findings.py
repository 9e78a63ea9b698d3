"""What is wrong with the MTP part of a file, what each thing stops, and the next step. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gguftools.gguf.hparams import N_LAYER_MAX
from gguftools.gguf.nextn_block import BlockCheck, WrongShape
from gguftools.gguf.nextn_file import Head, MtpFile, is_mtp_name
from gguftools.gguf.nextn_table import LEGACY_NAMES, LEGACY_PARTS, LLAMA_BUILD, PER_LAYER_KEYS
from gguftools.gguf.problem import Problem
from gguftools.gguf.shapes import evaluate

HEAD_HEAD = "nextn.shared_head_head.weight"
_N_NAMED = 4  # tensors a message names before it counts

Stops = Literal["load", "graph", "nothing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and what it stops: the load, the MTP graph, or nothing."""

    problem: Problem
    stops: Stops


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
        yield _stop("mtp-count", what, _recount(file))
    for suffix, value in file.arrays(*PER_LAYER_KEYS, *file.spec.arrays):
        if len(value) != file.n_layer_all:
            what = f"{file.key(suffix)} has {len(value)} entries for {file.n_layer_all} blocks"
            yield _stop("mtp-array-length", what, _recount(file))
    for suffix, value in file.arrays(
        "attention.sliding_window_pattern", "attention.compress_ratios"
    ):
        if len(value) > N_LAYER_MAX:
            what = f"{file.key(suffix)} has {len(value)} entries; llama.cpp takes {N_LAYER_MAX}"
            yield _stop("mtp-array-length", what, "convert the model again")


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
        yield _stop("mtp-block-count", what, _recount(file))
    if file.declared and not file.trunk and not file.spec.head_only:
        what = f"it has no trunk, and llama.cpp loads no head alone for {file.arch}"
        yield _stop("mtp-no-trunk", what, "convert it again from the original model, without --mtp")
    elif file.trunk or (not file.declared and not file.alone):
        n_trunk = file.n_layer_all if file.zeroed else file.first
        empty = [block for block in range(n_trunk) if block not in file.blocks]
        if empty and len(empty) < n_trunk and not (file.zeroed and empty[0] >= file.first):
            what = f"{key} is {file.n_layer_all}, but block {empty[0]} has no tensors"
            yield _stop("mtp-block-count", what, _recount(file))


def head_findings(file: MtpFile, heads: list[Head]) -> Iterator[Finding]:
    """What the declared heads lack for the load."""
    if file.stripped:
        yield _stripped(file, fails=any(head.check.missing for head in heads))
        return
    for head in heads if file.declared else []:
        lost = [f"blk.{head.block}.{name}" for name in head.check.missing]
        if lost and not file.has_nextn(head.block):
            what = f"MTP block {head.block} is not there: {len(lost)} tensors are missing"
            yield _stop("mtp-head-missing", what, _recount(file))
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
    hint = f"to load it as a plain model: {_recount(file)}; else {_reconvert(file)}"
    if any(file.blocks.get(block) for block in file.head_blocks):
        hint = _reconvert(file)
    return _stop("mtp-tensors-missing", what, hint)


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
        hint = "leave it out: llama.cpp then uses output.weight"
        return _stop("mtp-reduced-vocab", what, hint)
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
        yield _stop("mtp-key-missing", f"{what}, but no {key}", _recount(file))
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
                what = f"MTP block {block}: {meaning}"
                yield _graph("mtp-hparams", what, "use another draft for this model")
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


def _graph(code: str, what: str, hint: str) -> Finding:
    return Finding(Problem(code, "error", what, hint), "graph")


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


def _recount(file: MtpFile) -> str:
    """The commands that make key and block_count agree with the tensors, if that is enough."""
    key, count = file.key("nextn_predict_layers"), file.key("block_count")
    n_blocks, n_heads = file.counts_by_tensors
    if any(len(value) != n_blocks for _, value in file.arrays(*PER_LAYER_KEYS, *file.spec.arrays)):
        return _reconvert(file) if n_heads else "convert it again with --no-nextn"
    steps = []
    if n_blocks != file.n_layer_all:
        steps.append(f"gguf-set-metadata FILE {count} {n_blocks} --force")
    if n_heads != file.declared and key in file.header.metadata:
        steps.append(f"gguf-set-metadata FILE {key} {n_heads} --force")
    elif n_heads != file.declared:
        steps.append(f"run with --override-kv {key}=int:{n_heads}, or convert it again")
    return " && ".join(steps) or _reconvert(file)
