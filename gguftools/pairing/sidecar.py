"""Drafts trained for one target: MTP sidecars, EAGLE-3, DFlash, DSpark. What must fit, in order.

llama.cpp checks almost none of this before it starts: a wrong width or layer id aborts the process,
a wrong vocabulary drafts nonsense (common/speculative.cpp, b11434).
"""

from __future__ import annotations

from dataclasses import dataclass

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.reader import Header
from gguftools.gguf.tokenizer import read_vocab
from gguftools.pairing.feature_draft import (
    N_EAGLE3_LAYERS,
    n_draft_rows,
    target_layers,
    why_not_loaded,
)
from gguftools.pairing.token_map import map_bounds
from gguftools.pairing.vocab import match_tokens

# Architectures whose graph hands out layer inputs (t_layer_inp in src/models/, b11434); qwen4exp
# hands out rows of another width, which llama.cpp asserts against.
_GIVES_LAYERS = frozenset({
    "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2",
    "lfm2moe", "llama", "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige",
    "nemotron_h", "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next",
})  # fmt: skip
_GIVES_LAST_LAYER = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
# Trunk graphs that publish the hidden row (t_h_nextn), which EAGLE-3 may read as layer n_layer.
_GIVES_HIDDEN = frozenset({
    "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "mimo2", "nemotron_h", "nemotron_h_moe",
    "qwen35", "qwen35moe", "qwen3next",
})  # fmt: skip
_ASSISTANT_TARGETS = frozenset({"gemma4"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a pair is blocked: the rule, one sentence, and the token where one is to blame."""

    rule: str
    reason: str
    token_id: int | None = None
    target_text: str | None = None
    draft_text: str | None = None


def check_mtp(target: Header, draft: Header) -> Finding | None:
    """Whether an MTP block from another file may draft for the target."""
    return (
        _architecture(target, draft)
        or _width(target, draft)
        or _block(target, draft)
        or _reduced_vocab(target, draft)
        or _head(draft)
        or _same_tokens(target, draft)
    )


def check_features(target: Header, draft: Header) -> Finding | None:
    """Whether an EAGLE-3, DFlash or DSpark draft reads what the target has to give."""
    return (
        _layers(target, draft)
        or _feature_width(target, draft)
        or _draft_rows(draft)
        or _whole(draft)
        or _borrowed(target, draft)
        or _map_range(target, draft)
        or _same_tokens(target, draft)
    )


def _architecture(target: Header, draft: Header) -> Finding | None:
    ours, theirs = target.architecture, draft.architecture
    fits = ours in _ASSISTANT_TARGETS if theirs == "gemma4-assistant" else ours == theirs
    if fits:
        return None
    wanted = "gemma4" if theirs == "gemma4-assistant" else repr(theirs)
    return Finding("architecture", f"the MTP draft was made for {wanted}, the target is {ours!r}")


def _width(target: Header, draft: Header) -> Finding | None:
    ours, theirs = read_hparams(target).n_embd_out, read_hparams(draft).n_embd_out
    if ours is not None and ours == theirs:
        return None
    return Finding("width", f"the target's hidden rows are {ours} wide, the MTP draft reads "
                   f"{theirs}: llama.cpp aborts on this pair")  # fmt: skip


def _block(target: Header, draft: Header) -> Finding | None:
    """Both files count the same trunk: the sidecar's block must follow the target's last one."""
    if draft.architecture == "gemma4-assistant":
        return None
    ours, theirs = read_hparams(target).n_layer, read_hparams(draft).n_layer
    if ours == theirs:
        return None
    return Finding("block", f"the MTP draft's block is blk.{theirs}, so it was trained on a trunk "
                   f"of {theirs} blocks; the target's has {ours}")  # fmt: skip


def _reduced_vocab(target: Header, draft: Header) -> Finding | None:
    """MTP loaders know no d2t map: every output has one row per token."""
    rows = n_output_rows(draft)
    vocab = read_vocab(draft) or read_vocab(target)
    if rows is None or vocab is None or rows >= vocab.n_tokens:
        return None
    has_map = "with" if "d2t" in draft.tensors else "without"
    return Finding("vocab-size", f"the draft has a reduced vocabulary, {rows} of {vocab.n_tokens} "
                   f"tokens, {has_map} a d2t map: llama.cpp b11434 reads no d2t for MTP and does "
                   "not load the file")  # fmt: skip


def n_output_rows(header: Header) -> int | None:
    """Rows of the output matrix that the draft would use, None if it has none."""
    names = [n for n in header.tensors if n.endswith(".nextn.shared_head_head.weight")]
    for name in (*names, "output.weight", "token_embd.weight"):
        row = header.tensors.get(name)
        if row is not None and len(row.shape) > 1:
            return row.shape[1]
    return None


def n_embedding_rows(header: Header) -> int | None:
    """Rows of token_embd, None if the file has none."""
    row = header.tensors.get("token_embd.weight")
    return row.shape[1] if row is not None and len(row.shape) > 1 else None


def _head(draft: Header) -> Finding | None:
    report = mtp_report(draft)
    if report.loads and report.runnable:
        return None
    return Finding("head", f"the draft's MTP block cannot run: {report.reason}")


def _same_tokens(target: Header, draft: Header) -> Finding | None:
    """The token list, which llama.cpp does not compare for these drafts."""
    ours, theirs = read_vocab(target), read_vocab(draft)
    if ours is None or theirs is None:
        return None
    match = match_tokens(ours, theirs)
    if match.rule is None:
        return None
    why = "llama.cpp does not compare them here and would draft wrong tokens"
    return Finding(match.rule, f"{match.reason}; {why}", match.token_id, match.target_text,
                   match.draft_text)  # fmt: skip


def _layers(target: Header, draft: Header) -> Finding | None:
    kind, arch = draft.architecture, target.architecture
    ids = target_layers(draft)
    if not ids or (kind == "eagle3" and len(ids) != N_EAGLE3_LAYERS):
        need = "3 layer ids" if kind == "eagle3" else "layer ids"
        return Finding("head", f"{kind}.target_layers names {len(ids)} layers, llama.cpp needs "
                       f"{need}")  # fmt: skip
    if arch not in _GIVES_LAYERS:
        return Finding("architecture", f"llama.cpp b11434 cannot hand out the layers of a target "
                       f"of architecture {arch!r}, which {kind} reads")  # fmt: skip
    n_layer = read_hparams(target).n_layer
    last = _GIVES_LAST_LAYER | (_GIVES_HIDDEN if kind == "eagle3" else frozenset())
    n_max = n_layer if arch in last else n_layer - 1
    for layer in ids:
        if not 0 <= layer <= n_max:
            return Finding("block", f"the draft reads layer {layer} of its target, this target has "
                           f"{n_layer} ({arch!r} gives 0 to {n_max})")  # fmt: skip
    return None


def _feature_width(target: Header, draft: Header) -> Finding | None:
    """Layer inputs are n_embd wide; DFlash has no key for it and uses its own n_embd."""
    kind, ours = draft.architecture, read_hparams(target).n_embd
    theirs = read_hparams(draft).n_embd
    if kind == "eagle3":
        theirs = draft.integer("eagle3.target_hidden_size")
    if ours is not None and ours == theirs:
        return None
    return Finding("width", f"the target's layers are {ours} wide, the draft was trained on "
                   f"{theirs}")  # fmt: skip


def _draft_rows(draft: Header) -> Finding | None:
    """A draft with fewer rows than it lists tokens is trimmed and needs its d2t map."""
    vocab, own = read_vocab(draft), draft.tensors.get("output.weight")
    d2t = draft.tensors.get("d2t")
    if vocab is None or own is None or len(own.shape) < 2:
        return None
    rows = own.shape[1]
    if d2t is None and rows < vocab.n_tokens:
        return Finding("vocab-size", f"the draft has a reduced vocabulary, {rows} of "
                       f"{vocab.n_tokens} tokens, and no d2t map back")  # fmt: skip
    if d2t is not None and (d2t.type.name != "I64" or d2t.shape != (rows,)):
        return Finding("head", f"the draft's d2t map is {d2t.type.name} {list(d2t.shape)}, its "
                       f"output has {rows} rows: llama.cpp needs one I64 per row")  # fmt: skip
    return None


def _whole(draft: Header) -> Finding | None:
    why = why_not_loaded(draft)
    return Finding("head", f"llama.cpp does not run the draft: {why}") if why else None


def _borrowed(target: Header, draft: Header) -> Finding | None:
    """What the draft has not of its own it takes from the target, whatever its shape."""
    lacks = [n for n in ("token_embd.weight", "output.weight") if n not in draft.tensors]
    if not lacks:
        return None
    ours, theirs = read_hparams(target).n_embd, read_hparams(draft).n_embd
    if ours != theirs:
        return Finding("width", f"the draft borrows {lacks[0]} of its target, {ours} wide, and is "
                       f"{theirs} wide itself: llama.cpp aborts on this pair")  # fmt: skip
    output = target.tensors.get("output.weight", target.tensors.get("token_embd.weight"))
    rows, wanted = output.shape[-1] if output is not None else None, n_draft_rows(draft)
    if "output.weight" in lacks and "markov_w2.weight" in draft.tensors and rows != wanted:
        return Finding("vocab-size", f"the draft borrows the target's output of {rows} rows, its "
                       f"Markov head has {wanted}: llama.cpp aborts on this pair")  # fmt: skip
    return None


def _map_range(target: Header, draft: Header) -> Finding | None:
    """Ids of a d2t map are written to without a check."""
    bounds, ours, theirs = map_bounds(draft), read_vocab(target), read_vocab(draft)
    if bounds is None or ours is None or theirs is None:
        return None
    n_tokens = min(ours.n_tokens, theirs.n_tokens)
    bad = bounds[0] if bounds[0] < 0 else bounds[1]
    if 0 <= bad < n_tokens:
        return None
    return Finding("head", f"the draft's d2t map names token {bad}, there are {n_tokens}: "
                   "llama.cpp aborts on this pair")  # fmt: skip
