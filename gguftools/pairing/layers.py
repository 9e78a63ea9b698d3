"""What each block keeps while a text is read: keys and values, a window of them, or a state. Pure.

The rules per architecture are those of load_arch_hparams in src/models/ and of create_memory in
src/llama-model.cpp, llama.cpp b11434.
"""

from __future__ import annotations

from dataclasses import dataclass

from gguftools.gguf.header import Header, NumericArray
from gguftools.gguf.hparams import N_LAYER_MAX, HParams, read_hparams

_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
_ZERO_HEADS = frozenset({  # recurrent where head_count_kv is 0
    "jamba", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe",
    "kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next",
})  # fmt: skip
_HYBRID = frozenset({*_INTERVAL, *_ZERO_HEADS, "falcon-h1"})
ROLLS_BACK = frozenset({  # llm_arch_supports_rs_rollback, src/llama-arch.cpp
    "kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next", "nemotron_h",
    "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3",
})  # fmt: skip
_IDLE_HEADS = frozenset({"bailingmoe3", "nemotron_h", "nemotron_h_moe", "deepseek4"})

# Every n-th block attends to everything, the others to a window; True: it is the first of each n.
_EVERY: dict[str, tuple[int, bool]] = {
    "afmoe": (4, False), "cohere2": (4, False), "cohere2moe": (4, True), "exaone-moe": (4, False),
    "exaone4": (4, False), "gemma2": (2, False), "gemma3": (6, False), "gemma3n": (5, False),
    "laguna": (4, True), "llama4": (4, False), "mellum": (4, False), "muse-glimmer": (4, False),
    "olmo2": (4, False), "gpt-oss": (2, False), "plamo3": (8, False), "smallthinker": (4, True),
}  # fmt: skip
_LISTED = frozenset({
    "gemma4", "gemma4-assistant", "granite_swa", "maple", "mimo2", "spark2_5", "step35",
    "dots3note", "dflash",
})  # fmt: skip
_WINDOW = {"exaone-moe": 128, "exaone4": 4096, "gemma2": 4096, "llama4": 8192}
_FIXED_WINDOW = {"llama4": 8192, "smallthinker": 4096}


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. `k` and `v` are elements per cached token, 0 where it caches none; `state` is
    elements per copy of a recurrent state; `indexer` elements per token of a sparse attention.
    """

    k: int = 0
    v: int = 0
    window: bool = False
    state: int = 0
    indexer: int = 0
    indexer_v: int = 0
    ratio: int = 0  # DeepSeek V4: one compressed row for so many tokens


@dataclass(frozen=True, slots=True)
class Layers:
    """All blocks of a model, the MTP blocks last."""

    blocks: tuple[Layer, ...]
    n_trunk: int
    n_swa: int  # tokens of the window, 0 where no block has one
    idle: tuple[int, ...] = ()  # MTP blocks that the trunk's context caches too, without use

    def of(self, *, mtp: bool) -> list[tuple[int, Layer]]:
        """The blocks that a context keeps something for: the trunk's, or the MTP blocks."""
        first, last = (self.n_trunk, len(self.blocks)) if mtp else (0, self.n_trunk)
        blocks = [*range(first, last), *(() if mtp else self.idle)]
        return [(block, self.blocks[block]) for block in blocks]


def read_layers(header: Header) -> Layers:
    """What the blocks of a model keep."""
    hparams, arch = read_hparams(header), header.architecture
    n_trunk, n_all = _counts(header, hparams)
    n_swa, windows = _windows(header, n_trunk, n_all)
    recurrent = _recurrent(header, hparams, n_trunk, n_all)
    mla = all(_number(header, f"attention.{part}_length_mla") for part in ("key", "value"))
    with_kv = _with_kv(header, n_all)
    state, n_ff = _state(header, hparams), hparams.n_ff
    blocks = []
    for i in range(n_all):
        source = i % hparams.n_layer if arch == "nanbeige" and hparams.n_layer else i
        n_head_kv = 1 if source >= len(hparams.n_head_kv) else max(hparams.n_head_kv[source], 0)
        window = windows[i]
        k, v = (
            _head(header, hparams, part, window=window) * n_head_kv for part in ("key", "value")
        )
        has_state = recurrent[i] and i < n_trunk
        attends = i in with_kv and (not recurrent[i] or arch == "falcon-h1")
        if arch.startswith("nemotron_h") and i < min(len(n_ff), n_trunk) and n_ff[i]:
            has_state = attends = False
        indexer, indexer_v = _indexer(header, i, n_trunk, hparams) if attends else (0, 0)
        blocks.append(Layer(
            k=k if attends else 0,
            v=v if attends and not mla else 0,
            window=window,
            state=state + _ple_state(header, hparams, i) if has_state else 0,
            indexer=indexer,
            indexer_v=indexer_v,
            ratio=_listed(header, "attention.compress_ratios", i) if arch == "deepseek4" else 0,
        ))  # fmt: skip
    heads = range(n_trunk, n_all) if arch in _IDLE_HEADS else ()
    idle = tuple(i for i in heads if not arch.startswith("nemotron_h") or not any(n_ff[i : i + 1]))
    return Layers(tuple(blocks), n_trunk, n_swa, idle)


def is_hybrid(arch: str) -> bool:
    """Whether some or all of its blocks keep a state instead of keys and values."""
    return arch in _RECURRENT or arch in _HYBRID


def _counts(header: Header, hparams: HParams) -> tuple[int, int]:
    """Blocks of the trunk and of all; three architectures make up their own."""
    n_trunk, n_all, arch = hparams.n_layer, hparams.n_layer_all, header.architecture
    if arch == "nanbeige":
        n_all = n_trunk = min(n_trunk * max(_number(header, "num_loops"), 1), N_LAYER_MAX)
    elif arch == "graniteswitch":
        n_all = n_trunk = min(n_trunk + 1, N_LAYER_MAX)  # the router's, with one head
    elif arch == "deepseek4" and f"blk.{n_trunk}.nextn.eh_proj.weight" not in header.tensors:
        n_trunk = n_all
    return (n_trunk, n_all) if n_trunk > 0 else (0, n_all)


def _windows(header: Header, n_trunk: int, n_all: int) -> tuple[int, list[bool]]:
    """Tokens of the sliding window and the blocks that have one."""
    arch, none = header.architecture, [False] * n_all
    declared = header.integer(header.arch_key("attention.sliding_window"))
    n_swa = max(_WINDOW.get(arch, 0) if declared is None else declared, 0)
    if n_swa == 0 or (arch == "exaone4" and n_trunk != 64):
        return 0, none
    n_swa = _FIXED_WINDOW.get(arch, n_swa)
    listed = header.metadata.get(header.arch_key("attention.sliding_window_pattern"))
    if arch == "deepseek4" or (arch == "dflash" and _number(header, "hyper_connection.count")):
        return n_swa, [True] * n_all
    if arch == "lfm2":
        heads = read_hparams(header).n_head_kv
        return n_swa, [i < min(n_trunk, len(heads)) and heads[i] > 0 for i in range(n_all)]
    if arch not in _EVERY and arch not in _LISTED:
        return 0, none
    if isinstance(listed, NumericArray) and len(listed) <= N_LAYER_MAX:
        flags = [bool(value) for value in listed.values()][:n_all]
        return n_swa, flags + [False] * (n_all - len(flags))
    if arch in _LISTED:
        return n_swa, none
    n, first = _EVERY[arch]
    n = max(listed, 0) if isinstance(listed, int) and not isinstance(listed, bool) else n
    full = 0 if first else n - 1
    return n_swa, [i < n_trunk and (n == 0 or i % n != full) for i in range(n_all)]


def _recurrent(header: Header, hparams: HParams, n_trunk: int, n_all: int) -> list[bool]:
    arch = header.architecture
    if arch in _RECURRENT or arch == "falcon-h1":
        return [True] * n_all
    if arch in _ZERO_HEADS:
        heads = hparams.n_head_kv
        return [i < n_trunk and i < len(heads) and heads[i] == 0 for i in range(n_all)]
    if arch not in _INTERVAL:
        return [False] * n_all
    listed = header.metadata.get(header.arch_key("attention.recurrent_layers"))
    if isinstance(listed, NumericArray) and n_all <= len(listed) <= N_LAYER_MAX:
        return [bool(value) for value in listed.values()[:n_all]]
    n = _number(header, "full_attention_interval") or _INTERVAL[arch]
    return [i < n_trunk and (i + 1) % n != 0 for i in range(n_all)]


def _with_kv(header: Header, n_all: int) -> range:
    """Blocks with keys and values of their own: the last ones of some models share them."""
    arch = header.architecture
    if arch == "gemma3n":
        return range(min(20, n_all))
    if arch == "gemma4":
        return range(max(n_all - _number(header, "attention.shared_kv_layers"), 0))
    return range(0 if arch == "gemma4-assistant" or arch in _RECURRENT else n_all)


def _head(header: Header, hparams: HParams, part: str, *, window: bool) -> int:
    """Elements of a key or value head."""
    if not hparams.n_head or hparams.n_head[0] <= 0:
        return _number(header, f"attention.{part}_length") if header.architecture == "plamo2" else 0
    full = hparams.n_embd_head_k if part == "key" else hparams.n_embd_head_v
    own = _number(header, f"attention.{part}_length_swa") if window else 0
    return max(own or full or 0, 0)


def _state(header: Header, hparams: HParams) -> int:
    """Elements of a block's state: what its convolution and its recurrence remember.

    n_embd_r and n_embd_s, src/llama-hparams.cpp.
    """
    n_embd, n_head = max(hparams.n_embd or 0, 0), max((*hparams.n_head[:1], 0))
    if wkv := _number(header, "wkv.head_size"):
        shifts = header.integer(header.arch_key("token_shift_count"))
        return n_embd * (wkv + max(2 if shifts is None else shifts, 0))
    if kernel := _number(header, "shortconv.l_cache"):
        return n_embd * (kernel - 1)
    n_conv = max(_number(header, "ssm.conv_kernel") - 1, 0)
    if kda := _number(header, "kda.head_dim"):
        return 3 * (n_conv or 3) * n_head * kda + kda * kda * n_head
    if header.architecture == "minimax-01":
        return (hparams.n_embd_head_k or 0) ** 2 * n_head
    inner, state = _number(header, "ssm.inner_size"), _number(header, "ssm.state_size")
    groups = _number(header, "ssm.group_count")
    return n_conv * (inner + 2 * groups * state) + state * inner


def _ple_state(header: Header, hparams: HParams, block: int) -> int:
    """What the n-gram embedding of one block of qwen4exp remembers."""
    listed = header.metadata.get(header.arch_key("ple.layers"))
    if not isinstance(listed, NumericArray) or len(listed) > N_LAYER_MAX:
        return 0
    if block not in listed.values():
        return 0
    streams = _number(header, "hyper_connection.count") * max(hparams.n_embd or 0, 0)
    kernel, ngram = (_number(header, f"ple.{what}") for what in ("conv_kernel", "ngram_size"))
    return max(kernel - 1, 0) * ngram * streams


def _indexer(header: Header, block: int, n_trunk: int, hparams: HParams) -> tuple[int, int]:
    """Elements per token in the cache of a sparse attention's indexer, keys and values."""
    arch, width = header.architecture, _number(header, "attention.indexer.key_length")
    if arch == "minimax-m3":
        dense = _number(header, "leading_dense_block_count")
        return (width, hparams.n_embd_head_v or 0) if block >= dense else (0, 0)
    if arch == "qwen4exp":
        return (2 if _any_listed(header, "attention.compress_ratios") else 1) * width, 0
    if arch == "glm5-next":
        return (
            3 * width if block >= n_trunk or _owns_indexer(header, block, default=True) else 0
        ), 0
    if block >= n_trunk:
        return 0, 0
    if arch == "deepseek32":
        return width, 0
    if arch == "deepseek4":
        return (width if _listed(header, "attention.compress_ratios", block) == 4 else 0), 0
    if arch == "glm-dsa":
        own = (hparams.n_ctx_train or 0) < 1 << 20 or block < 2 or block % 4 == 2
        return (width if _owns_indexer(header, block, default=own) else 0), 0
    if arch in ("hy_v4", "dots3note") and _number(header, "attention.indexer.top_k"):
        return (width if _owns_indexer(header, block, default=False) else 0), 0
    return 0, 0


def _owns_indexer(header: Header, block: int, *, default: bool) -> bool:
    """Whether the block has an indexer of its own instead of that of a block before it."""
    value = header.metadata.get(header.arch_key("attention.indexer.types"))
    if isinstance(value, NumericArray):
        return bool(_listed(header, "attention.indexer.types", block))
    return bool(value) if isinstance(value, int) else default


def _listed(header: Header, suffix: str, block: int) -> int:
    value = header.metadata.get(header.arch_key(suffix))
    if isinstance(value, NumericArray) and block < len(value) <= 2 * N_LAYER_MAX:
        return max(int(value.values()[block]), 0) if value.letter not in "fd" else 0
    return 0


def _any_listed(header: Header, suffix: str) -> bool:
    value = header.metadata.get(header.arch_key(suffix))
    if isinstance(value, NumericArray):
        return len(value) <= 2 * N_LAYER_MAX and any(value.values())
    return bool(value)


def _number(header: Header, suffix: str) -> int:
    """An integer of the architecture, 0 where absent or negative."""
    return max(header.integer(header.arch_key(suffix)) or 0, 0)
