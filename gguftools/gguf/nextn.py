"""The MTP (nextn) verdict on a file: declared, present, complete, loadable, runnable. Pure.

Three facts must agree: the key `nextn_predict_layers`, `block_count`, and the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gguftools.gguf.hparams import N_LAYER_MAX, read_hparams
from gguftools.gguf.nextn_table import (
    LEGACY_NAMES,
    LEGACY_PARTS,
    LLAMA_BUILD,
    MTP_ARCHS,
    NOT_MTP,
    PER_LAYER_KEYS,
    MtpArch,
)
from gguftools.gguf.problem import Problem
from gguftools.gguf.reader import Header, NumericArray, StringArray, TensorInfo
from gguftools.gguf.shapes import (
    BlockCheck,
    WrongShape,
    block_tensors,
    check_rows,
    evaluate,
    shape_names,
)

MtpState = Literal["none", "complete", "trunk-only", "head-only", "broken", "unsupported"]
EH_PROJ = "nextn.eh_proj.weight"
_N_NAMED = 4  # tensors a message names before it counts


@dataclass(frozen=True, slots=True)
class HeadReport:
    """One MTP block: what it lacks, what has the wrong shape, its size."""

    block: int
    missing: tuple[str, ...]
    wrong_shape: tuple[str, ...]
    n_bytes: int
    eh_proj_type: str | None


@dataclass(frozen=True, slots=True)
class MtpReport:
    """The verdict. `loads` and `runnable` say what llama.cpp with load_mtp does with the file.

    `loads` covers what the MTP facts decide (key, block count, MTP blocks, model-level tensors);
    trunk tensors are not tabulated. `runnable`: a context of type MTP decodes.
    """

    state: MtpState
    declared: int
    heads: tuple[HeadReport, ...]
    loads: bool
    runnable: bool
    reason: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Finding:
    """A problem and what it stops."""

    problem: Problem
    stops: Literal["load", "graph", "nothing"]


@dataclass(frozen=True, slots=True)
class _File:
    """The facts of one file, gathered once."""

    header: Header
    arch: str
    spec: MtpArch
    declared: int
    n_layer_all: int
    blocks: dict[int, dict[str, TensorInfo]]

    @property
    def first(self) -> int:
        """The first MTP block by key and block_count."""
        return self.n_layer_all - self.declared

    @property
    def head_blocks(self) -> list[int]:
        """Blocks to judge as heads: those declared, else those that hold nextn tensors."""
        if self.declared:
            return list(range(self.first, self.n_layer_all))
        return [block for block in sorted(self.blocks) if self.has_nextn(block)]

    @property
    def stripped(self) -> bool:
        """Whether the key promises heads and no block of theirs holds a nextn tensor."""
        return self.declared > 0 and not any(self.has_nextn(block) for block in self.blocks)

    @property
    def probed(self) -> bool:
        """Whether nextn.eh_proj lies where the loader looks for it."""
        return EH_PROJ in self.blocks.get(self.first, {})

    @property
    def alone(self) -> bool:
        """Whether the architecture is nothing but a head (gemma4-assistant)."""
        return not self.spec.trunk_probe

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


def mtp_report(header: Header) -> MtpReport:
    """Whether the MTP tensors of a file survived, and what llama.cpp makes of it."""
    arch = header.architecture
    declared = max(header.integer(f"{arch}.nextn_predict_layers") or 0, 0)
    strays = [name for name in header.tensors if _is_mtp_name(name)]
    spec = MTP_ARCHS.get(arch)
    if arch in NOT_MTP:
        return MtpReport("none", 0, (), True, False, f"{arch} is not an MTP architecture", ())
    if spec is None:
        return _unknown(arch, declared, strays)
    n_layer_all = max(header.integer(f"{arch}.block_count") or 0, 0)
    blocks: dict[int, dict[str, TensorInfo]] = {}
    for block, name, tensor in block_tensors(header):
        blocks.setdefault(block, {})[name] = tensor
    file = _File(header, arch, spec, declared, n_layer_all, blocks)
    findings = [*_key_findings(file), *_array_findings(file)]
    if findings:
        return _report(file, [], findings)
    checks = _check_heads(file)
    findings = [
        *_model_findings(file),
        *_block_count_findings(file),
        *_head_findings(file, checks),
        *_stray_findings(file, checks, strays),
        *_graph_findings(file, checks),
    ]
    return _report(file, checks, findings)


def _is_mtp_name(name: str) -> bool:
    return ".nextn." in name or name.startswith(("nextn.", *LEGACY_NAMES)) or name == "d2t"


def _unknown(arch: str, declared: int, strays: list[str]) -> MtpReport:
    """An architecture without MTP in this build: any sign of MTP makes the load fail."""
    if not declared and not strays:
        return MtpReport(
            "none", 0, (), True, False, "no MTP head: neither declared nor present", ()
        )
    what = f"llama.cpp {LLAMA_BUILD} knows no MTP for architecture {arch!r}"
    if strays:
        what += f", and refuses its {len(strays)} tensors such as {strays[0]}"
    else:
        what += f", so nextn_predict_layers = {declared} hides its last blocks from the loader"
    hint = "convert it again with --no-nextn, or use a newer llama.cpp if that supports it"
    problem = Problem("mtp-arch-unknown", "error", what, hint)
    return MtpReport("unsupported", declared, (), False, False, what, (problem,))


def _key_findings(file: _File) -> list[_Finding]:
    """The key and block_count by themselves."""
    key = file.key("nextn_predict_layers")
    kind = file.header.types.get(key, "uint32")
    if kind != "uint32":
        return [_stop("mtp-key-type", f"{key} is stored as {kind}; llama.cpp reads only uint32",
                      "convert the model again")]  # fmt: skip
    if not 0 < file.n_layer_all <= N_LAYER_MAX:
        return [_stop("mtp-block-count",
                      f"{file.key('block_count')} is {file.n_layer_all}, not 1 to {N_LAYER_MAX}",
                      "convert the model again")]  # fmt: skip
    if file.declared > file.n_layer_all:
        what = f"{key} is {file.declared}, more than the {file.n_layer_all} blocks of the file"
        return [_stop("mtp-count", what, f"gguf-set-metadata FILE {key} 1")]
    return []


def _array_findings(file: _File) -> list[_Finding]:
    """Per-layer arrays that llama.cpp wants exactly as long as block_count."""
    found = []
    for suffix in (*PER_LAYER_KEYS, *file.spec.arrays):
        value = file.header.metadata.get(file.key(suffix))
        if isinstance(value, NumericArray | StringArray) and len(value) != file.n_layer_all:
            what = f"{file.key(suffix)} has {len(value)} entries for {file.n_layer_all} blocks"
            found.append(_stop("mtp-array-length", what, _reconvert(file)))
    for suffix in ("attention.sliding_window_pattern", "attention.indexer.types",
                   "attention.compress_ratios"):  # fmt: skip
        value = file.header.metadata.get(file.key(suffix))
        if isinstance(value, NumericArray | StringArray) and len(value) > N_LAYER_MAX:
            what = f"{file.key(suffix)} has {len(value)} entries; llama.cpp takes {N_LAYER_MAX}"
            found.append(_stop("mtp-array-length", what, "convert the model again"))
    return found


def _check_heads(file: _File) -> list[tuple[int, BlockCheck]]:
    """Each MTP block against its table rows, the way the loader takes it."""
    spec, hparams = file.spec, read_hparams(file.header)
    rows = spec.block
    zeroed = spec.probe_zeroes and file.declared > 0 and not file.probed
    if zeroed:
        rows = tuple(r for r in rows if not getattr(r, "name", "").startswith("nextn."))
    optional = spec.all_optional or (spec.trunk_only and not file.probed and not zeroed)
    checks = []
    for block in file.head_blocks:
        names = shape_names(file.header, hparams, spec, block)
        check = check_rows(rows, file.blocks.get(block, {}), names,
                           optional=optional and file.declared > 0, skipped=spec.skipped)  # fmt: skip
        checks.append((block, check))
    return checks


def _model_findings(file: _File) -> list[_Finding]:
    """token_embd, output_norm, output and the like."""
    names = shape_names(file.header, read_hparams(file.header), file.spec, 0)
    head_only = file.declared > 0 and not file.trunk and file.spec.head_only
    check = check_rows(file.spec.model, file.header.tensors, names, optional=head_only)
    missing = check.missing + [n for n in check.graph_missing if _need(file, n) == "required"]
    hint = "convert the model again; a head-only file needs them too"
    found = []
    if missing:
        found.append(_stop("mtp-model-tensor", f"{_listed(missing)} missing", hint))
    return found + [_stop("mtp-model-tensor", _shape_text(wrong), hint) for wrong in check.wrong]


def _need(file: _File, name: str) -> str:
    return next(row.need for row in file.spec.model if row.name == name)


def _block_count_findings(file: _File) -> list[_Finding]:
    """Blocks beyond block_count, or trunk blocks without any tensor."""
    beyond = sorted(block for block in file.blocks if block >= file.n_layer_all)
    key = file.key("block_count")
    found = []
    if beyond:
        what = f"{key} is {file.n_layer_all}, but block {beyond[-1]} has tensors"
        found.append(
            _stop("mtp-block-count", what, f"gguf-set-metadata FILE {key} {beyond[-1] + 1}")
        )
    if file.trunk or not file.declared:
        n_trunk = file.n_layer_all - (0 if file.spec.probe_zeroes and not file.probed
                                      else file.declared)  # fmt: skip
        empty = [block for block in range(n_trunk) if block not in file.blocks]
        if empty and len(empty) < n_trunk:
            what = f"{key} is {file.n_layer_all}, but block {empty[0]} has no tensors"
            hint = f"gguf-set-metadata FILE {key} {empty[0]}" if not beyond else ""
            found.append(_stop("mtp-block-count", what, hint))
    return found


def _head_findings(file: _File, checks: list[tuple[int, BlockCheck]]) -> list[_Finding]:
    """What the declared heads lack."""
    if not file.declared:
        return []
    if file.stripped:
        return [_stripped(file, checks)]
    found = []
    for block, check in checks:
        lost = [f"blk.{block}.{name}" for name in check.missing]
        if lost:
            whole = not file.has_nextn(block)
            code = "mtp-head-missing" if whole else "mtp-tensor-missing"
            what = f"MTP block {block} is not there" if whole else f"{_listed(lost)} missing"
            found.append(_stop(code, what, _reconvert(file)))
        for wrong in check.wrong:
            found.append(_wrong(file, block, wrong))
    return found


def _stripped(file: _File, checks: list[tuple[int, BlockCheck]]) -> _Finding:
    """The key is there and no head: a plain model or a file that does not load."""
    fails = any(check.missing for _, check in checks)
    what = (f"{file.key('nextn_predict_layers')} is {file.declared}, "
            f"but the file holds no MTP tensor")  # fmt: skip
    severity: Literal["error", "warning"] = "error" if fails else "warning"
    hint = _reconvert(file) if not fails else f"{_remove_key(file)}; {_reconvert(file)}"
    problem = Problem("mtp-tensors-missing", severity, what, hint)
    return _Finding(problem, "load" if fails else "graph")


def _wrong(file: _File, block: int, wrong: WrongShape) -> _Finding:
    text = _shape_text(wrong, f"blk.{block}.")
    n_vocab = wrong.expected[-1]
    if (wrong.name.startswith(("nextn.shared_head_head", "nextn.embed_tokens"))
            and len(wrong.found) == 2 and n_vocab and wrong.found[1] < n_vocab
            and wrong.found[0] == wrong.expected[0]):  # fmt: skip
        what = f"{text}: a head for a reduced vocabulary, which llama.cpp does not take"
        return _stop("mtp-reduced-vocab", what, _reconvert(file))
    return _stop("mtp-tensor-shape", text, _reconvert(file))


def _stray_findings(
    file: _File, checks: list[tuple[int, BlockCheck]], strays: list[str]
) -> list[_Finding]:
    """Tensors of the MTP kind that the loader does not ask for: it then refuses the file."""
    declared = {block: check.known for block, check in checks} if file.declared else {}
    extra = {f"blk.{block}.{name}" for block, known in declared.items()
             for name in file.blocks.get(block, {}) if name not in known}  # fmt: skip
    model = {row.name for row in file.spec.model}
    for name in strays:
        _, number, suffix = (*name.split(".", 2), "", "")[:3]
        if name not in model and not (
            number.isdecimal() and suffix in declared.get(int(number), ())
        ):
            extra.add(name)
    if not extra:
        return []
    key, names = file.key("nextn_predict_layers"), sorted(extra)
    legacy = [n for n in names if n.startswith(LEGACY_NAMES) or any(p in n for p in LEGACY_PARTS)]
    if legacy:
        return [_stop("mtp-legacy-name", f"{_listed(legacy)} not named as llama.cpp names MTP tensors",
                      _reconvert(file))]  # fmt: skip
    if "d2t" in names:
        return [_stop("mtp-d2t", f"d2t (a reduced vocabulary) is not known for {file.arch}",
                      "convert it as a draft of its own, or without d2t")]  # fmt: skip
    if not file.declared:
        what = f"{len(names)} MTP tensors such as {names[0]}, but no {key}"
        hint = f"run with --override-kv {key}=int:{len(file.head_blocks)}, or convert it again"
        return [_stop("mtp-key-missing", what, hint)]
    return [_stop("mtp-tensor-unknown", f"{_listed(names)} unknown to llama.cpp at that place",
                  f"remove it, or check {key} and {file.key('block_count')}")]  # fmt: skip


def _graph_findings(file: _File, checks: list[tuple[int, BlockCheck]]) -> list[_Finding]:
    """What stops or spoils the MTP graph of a file that loads."""
    spec, hparams = file.spec, read_hparams(file.header)
    found = []
    for block in file.head_blocks if file.declared and not file.stripped else []:
        names = shape_names(file.header, hparams, spec, block)
        for expr, meaning in spec.load_if:
            if evaluate(expr, names) == 0:
                found.append(
                    _stop("mtp-hparams", f"MTP block {block}: {meaning}", _reconvert(file))
                )
        for expr, meaning in spec.graph_if:
            if evaluate(expr, names) == 0 and not spec.no_graph:
                found.append(_graph("mtp-hparams", f"MTP block {block}: {meaning}", ""))
    for block, check in checks if not file.stripped else []:
        for code, names_ in (
            ("mtp-tensor-missing", check.graph_missing),
            ("mtp-ffn", check.wanted),
        ):
            lost = [f"blk.{block}.{name}" for name in names_]
            if lost and not spec.no_graph:
                what = f"{_listed(lost)} missing: the file loads, its MTP head "
                what += "aborts" if code != "mtp-ffn" else "runs without a feed-forward part"
                stops: Literal["graph", "nothing"] = "graph" if code != "mtp-ffn" else "nothing"
                found.append(_Finding(Problem(code, "error", what, _reconvert(file)), stops))
    if file.declared and spec.no_graph:
        found.append(_Finding(Problem("mtp-no-graph", "warning", spec.no_graph,
                                      "use another draft for this model"), "graph"))  # fmt: skip
    if spec.n_heads == 1 and file.declared > 1:
        what = (
            f"{file.declared} MTP blocks; llama.cpp {LLAMA_BUILD} runs exactly one for {file.arch}"
        )
        found.append(_graph("mtp-many-heads", what, "convert it again with one MTP layer"))
    return found


def _report(
    file: _File, checks: list[tuple[int, BlockCheck]], findings: list[_Finding]
) -> MtpReport:
    loads = not any(f.stops == "load" for f in findings)
    graph = not any(f.stops == "graph" for f in findings)
    runnable = loads and graph and file.declared > 0
    state = _state(file, findings)
    findings = sorted(findings, key=lambda f: ("load", "graph", "nothing").index(f.stops))
    reason = findings[0].problem.message if findings else _reason(file, state)
    heads = tuple(_head(file, block, check) for block, check in checks)
    return MtpReport(state, file.declared, heads, loads, runnable, reason,
                     tuple(f.problem for f in findings))  # fmt: skip


def _state(file: _File, findings: list[_Finding]) -> MtpState:
    codes = {f.problem.code for f in findings}
    if any(f.stops == "load" for f in findings):
        return "broken"
    if file.stripped:
        return "trunk-only"
    if codes - {"mtp-no-graph", "mtp-many-heads"}:
        return "broken"
    if codes:
        return "unsupported"
    if not file.declared:
        return "none"
    return "complete" if file.trunk else "head-only"


def _reason(file: _File, state: MtpState) -> str:
    if state == "none":
        return "no MTP head: neither declared nor present"
    blocks = file.head_blocks
    where = f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {blocks[0]} to {blocks[-1]}"
    if state == "head-only":
        return f"an MTP head alone ({where}), to be used with its own target"
    return f"an MTP head in {where}, complete"


def _head(file: _File, block: int, check: BlockCheck) -> HeadReport:
    tensors = file.blocks.get(block, {})
    eh_proj = tensors.get(EH_PROJ)
    lost = (*check.missing, *check.graph_missing, *check.wanted)
    return HeadReport(
        block,
        tuple(f"blk.{block}.{name}" for name in dict.fromkeys(lost)),
        tuple(f"blk.{block}.{wrong.name}" for wrong in check.wrong),
        sum(tensor.n_bytes or 0 for tensor in tensors.values()),
        eh_proj.type.name if eh_proj else None,
    )


def _stop(code: str, what: str, hint: str) -> _Finding:
    return _Finding(Problem(code, "error", what, hint), "load")


def _graph(code: str, what: str, hint: str) -> _Finding:
    return _Finding(Problem(code, "error", what, hint), "graph")


def _listed(names: list[str]) -> str:
    more = len(names) - _N_NAMED
    text = ", ".join(names[:_N_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{text} {'is' if len(names) == 1 else 'are'}"


def _shape_text(wrong: WrongShape, prefix: str = "") -> str:
    expected = [dim if dim is not None else "?" for dim in wrong.expected]
    shown = ", ".join(str(dim) for dim in expected)
    return f"{prefix}{wrong.name} has shape {list(wrong.found)}; llama.cpp expects [{shown}]"


def _reconvert(file: _File) -> str:
    if file.spec.no_graph:
        return "convert it again with --no-nextn (llama.cpp cannot use this head anyway)"
    return "convert it again from the original model, without --no-nextn"


def _remove_key(file: _File) -> str:
    """How to make a file without a head load as a plain model."""
    key, count = file.key("nextn_predict_layers"), file.key("block_count")
    return (f"to load it as a plain model: gguf-set-metadata FILE {key} 0 and "
            f"gguf-set-metadata FILE {count} {file.first}")  # fmt: skip
