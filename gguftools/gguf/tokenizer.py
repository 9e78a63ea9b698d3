"""The vocabulary as llama.cpp would load it: type, flags, special ids, token texts.

Read off src/llama-vocab.cpp, llama_vocab::impl::load, b11434; line numbers below are of that file.
"""

from __future__ import annotations

from dataclasses import dataclass

from gguftools.gguf.header import Header, NumericArray, StringArray, once
from gguftools.gguf.problem import Problem
from gguftools.gguf.token_texts import N_TOKENS_CHECKED, first_duplicate, token_texts

# tokenizer.ggml.model -> type, default BOS, EOS, add_bos, add_eos; :1978-2145 and :2455-2486.
_MODELS: dict[str, tuple[str, int | None, int | None, bool, bool]] = {
    "llama": ("SPM", 1, 2, True, False),
    "gpt2": ("BPE", 11, 11, False, False),
    "hybriddna": ("BPE", 11, 11, False, False),
    "whitespace": ("BPE", 11, 11, False, False),
    "gemma4": ("BPE", None, None, False, False),
    "bert": ("WPM", 101, None, True, False),
    "t5": ("UGM", None, 1, False, True),
    "rwkv": ("RWKV", None, None, False, False),
    "plamo2": ("PLAMO2", 1, 2, False, False),
    "test": ("TEST", None, None, False, False),
    "none": ("NONE", None, None, False, False),
    "no_vocab": ("NONE", None, None, False, False),
}

# BPE pre-tokenizers that differ in what the pair check sees; :2204-2376, and :2687 for the last.
_PRE_ADDS_BOS = frozenset({
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "tekken", "chameleon",
})  # fmt: skip
_PRE_WITHOUT_BOS = frozenset({"chatglm-bpe", "glm4", "glm5"})
_PRE_FORCES_BOS = frozenset({"gemma4", "granite-embed-multi-311m"})
_PRE_OTHERS = frozenset({
    "default", "minicpm5", "deepseek-llm", "deepseek-coder", "deepseek-v3", "spark2_5", "youtu",
    "falcon", "mpt", "starcoder", "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat",
    "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert", "jais-2", "mmbert",
    "sarvam-moe", "jina-v1-en", "jina-v2-code", "roberta-bpe", "whitespace", "refact",
    "command-r", "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "qwen35", "stablelm2", "olmo",
    "dbrx", "smaug-bpe", "poro-chat", "viking", "jais", "smollm", "codeshell", "bloom",
    "gpt3-finnish", "exaone", "exaone4", "exaone-moe", "minerva-7b", "megrez", "gpt-4o", "llama4",
    "kanana2", "talkie", "granite-embed-multi-97m", "tiny_aya", "cohere2moe", "superbpe",
    "trillion", "granite-docling", "bailingmoe", "bailingmoe2", "llada-moe", "seed-coder",
    "hunyuan", "hunyuan-dense", "hy_v4", "joyai-llm", "kimi-k2", "ufakzeka", "grok-2", "afmoe",
    "laguna", "minimax-m2", "solar-open", "mellum2",
})  # fmt: skip
PRE_TOKENIZERS = _PRE_ADDS_BOS | _PRE_WITHOUT_BOS | _PRE_FORCES_BOS | _PRE_OTHERS

_KMER_MARKER = b"\xee\x80\x80"  # U+E000 behind each k-mer of a hybriddna vocabulary, :1681
_KEY = "tokenizer.ggml."
_NO_MODEL = ("adapter", "imatrix", "mmproj")  # general.type
_ID_KEYS = (
    "bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id",
    "seperator_token_id", "padding_token_id", "mask_token_id", "fim_pre_token_id",
    "fim_suf_token_id", "fim_mid_token_id", "fim_pad_token_id", "fim_rep_token_id",
    "fim_sep_token_id", "prefix_token_id", "suffix_token_id", "middle_token_id",
)  # fmt: skip
_FLAG_KEYS = ("add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix")


@dataclass(frozen=True, slots=True)
class Vocab:
    """A tokenizer's identity. `tokens` are raw bytes as in the file; ids count from 0."""

    model: str  # tokenizer.ggml.model
    type: str  # SPM, BPE, WPM, UGM, RWKV, PLAMO2, TEST, NONE, or "" for an unknown model
    pre: str
    tokens: StringArray
    bos: int | None
    eos: int | None
    add_bos: bool
    add_eos: bool

    @property
    def n_tokens(self) -> int:
        """Length of the token list, padding entries included."""
        return len(self.tokens)

    def fingerprint(self) -> str:
        """sha256 of the token list as it lies in the file: equal lists, equal fingerprints."""
        import hashlib  # loads a library of megabytes, and few ask

        return hashlib.sha256(self.tokens.raw).hexdigest()

    def texts(self, first: int = 0, offset: int = 0) -> list[bytes]:
        """Tokens as llama.cpp holds them: cut at the first NUL, `[EMPTY_<id>]` if empty.

        From id `first` on, whose entry lies `offset` bytes into the array.
        """
        texts = token_texts(self.tokens, first, offset)
        return _without_markers(texts) if self.model == "hybriddna" else texts


def read_vocab(header: Header) -> Vocab | None:
    """The vocabulary of a model, None if it carries no token list."""
    tokens = header.metadata.get(_KEY + "tokens")
    if not isinstance(tokens, StringArray):
        return None
    model, pre = header.text(_KEY + "model"), header.text(_KEY + "pre")
    type_, bos, eos, add_bos, add_eos = _MODELS.get(model, ("", None, None, False, False))
    pre = "gemma4" if model == "gemma4" else pre
    forced = False
    if type_ == "BPE":
        add_bos = pre in _PRE_ADDS_BOS
        bos = None if pre in _PRE_WITHOUT_BOS else bos
        forced = pre in _PRE_FORCES_BOS
    return Vocab(
        model=model,
        type=type_,
        pre=pre,
        tokens=tokens,
        bos=_token(header, "bos_token_id", bos, len(tokens)),
        eos=_token(header, "eos_token_id", eos, len(tokens)),
        add_bos=forced or _flag(header, "add_bos_token", add_bos),
        add_eos=_flag(header, "add_eos_token", add_eos),
    )


@once
def vocab_problems(header: Header) -> tuple[Problem, ...]:
    """Why llama.cpp would refuse this vocabulary (errors) or repair it silently (warnings)."""
    model = header.text(_KEY + "model")
    if not model and _is_no_model(header):
        return ()
    if model not in _MODELS:
        what = f"tokenizer.ggml.model is {model[:40]!r}" if model else f"{_KEY}model is missing"
        problem = f"{what}: llama.cpp b11434 does not load it"
        return (Problem("tokenizer-unknown", "error", problem),)
    if _MODELS[model][0] == "NONE":
        return ()
    tokens = header.metadata.get(_KEY + "tokens")
    if not isinstance(tokens, StringArray):
        problem = "tokenizer.ggml.tokens is not a string array"
        return (Problem("tokens-missing", "error", problem),)
    found = [*_pre_problems(header, model), *_array_problems(header, len(tokens))]
    found += _type_problems(header)
    found += _special_problems(header, len(tokens))
    return (*found, *_duplicate_problems(tokens))


def _is_no_model(header: Header) -> bool:
    """Adapters, projectors and the like have no tokenizer, and need none."""
    return header.architecture in ("", "clip") or header.text("general.type") in _NO_MODEL


def _without_markers(texts: list[bytes]) -> list[bytes]:
    """hybriddna: k-mers lose their marker; they begin right after the token <oov> (:2578)."""
    start = texts.index(b"<oov>") + 1 if b"<oov>" in texts else len(texts)
    kmers = [t.removesuffix(_KMER_MARKER) or t for t in texts[start:]]
    return texts[:start] + kmers


def _flag(header: Header, key: str, default: bool) -> bool:
    value = header.metadata.get(_KEY + key)
    return value if isinstance(value, bool) else default


def _token(header: Header, key: str, default: int | None, n_tokens: int) -> int | None:
    """A special id: an id outside the vocabulary is ignored, such a default is none (:2632)."""
    value = header.integer(_KEY + key)
    if value is not None and 0 <= value < n_tokens:
        return value
    return default if default is not None and default < n_tokens else None


def _pre_problems(header: Header, model: str) -> list[Problem]:
    """Merges and pre-tokenizer of a BPE vocabulary."""
    if _MODELS[model][0] != "BPE":
        return []
    found, pre = [], header.text(_KEY + "pre")
    if not isinstance(header.metadata.get(_KEY + "merges"), StringArray) and (
        pre != "kimi-k2" or model == "gemma4" or _KEY + "merges" in header.metadata
    ):
        found.append(Problem("merges-missing", "error", "tokenizer.ggml.merges is missing: "
                             "llama.cpp does not load a BPE vocabulary without it"))  # fmt: skip
    if model == "gemma4" or pre in PRE_TOKENIZERS:
        return found
    if pre:
        found.append(Problem("pre-tokenizer-unknown", "error", f"{_KEY}pre is {pre[:40]!r}: "
                             "llama.cpp b11434 does not know this pre-tokenizer",
                             "a newer llama.cpp may know it"))  # fmt: skip
    else:
        found.append(Problem("pre-tokenizer-missing", "warning", "tokenizer.ggml.pre is missing: "
                             "llama.cpp splits text by a default that may be wrong for this model",
                             "convert the model again"))  # fmt: skip
    return found


def _array_problems(header: Header, n_tokens: int) -> list[Problem]:
    """Scores and token types: of the right type, at least one per token (:2508, :2527)."""
    found = []
    for key, letters in (("scores", "if"), ("token_type", "i")):
        value = header.metadata.get(_KEY + key)
        if value is None:
            continue
        if not isinstance(value, NumericArray) or value.letter not in letters:
            kind = header.types[_KEY + key]
            found.append(Problem("tokenizer-key-type", "error", f"{_KEY}{key} has the type {kind}"))
        elif len(value) < n_tokens:
            found.append(Problem("tokenizer-array-short", "error", f"{_KEY}{key} has {len(value)} "
                                 f"entries for {n_tokens} tokens"))  # fmt: skip
    return found


def _type_problems(header: Header) -> list[Problem]:
    """llama.cpp takes special ids as uint32 and flags as bool, and throws on anything else."""
    wanted = [(key, "uint32") for key in _ID_KEYS] + [(key, "bool") for key in _FLAG_KEYS]
    return [
        Problem("tokenizer-key-type", "error", f"{_KEY}{key} is {header.types[_KEY + key]}, "
                f"llama.cpp wants {kind} and does not load the file")
        for key, kind in wanted
        if header.types.get(_KEY + key, kind) != kind
    ]  # fmt: skip


def _special_problems(header: Header, n_tokens: int) -> list[Problem]:
    ids = ((key, header.integer(_KEY + key)) for key in _ID_KEYS)
    return [
        Problem("special-token-range", "warning", f"{_KEY}{key} is {value}, but the vocabulary has "
                f"{n_tokens} tokens: llama.cpp ignores it")
        for key, value in ids
        if value is not None and not 0 <= value < n_tokens
    ]  # fmt: skip


def _duplicate_problems(tokens: StringArray) -> list[Problem]:
    """Two ids with one text abort llama.cpp: its text -> id map must be as long as the list."""
    if len(tokens) > N_TOKENS_CHECKED:
        what = f"{len(tokens)} tokens: more than the {N_TOKENS_CHECKED} searched for equal texts"
        return [Problem("tokens-unchecked", "warning", what)]
    if (pair := first_duplicate(tokens)) is None:
        return []
    return [Problem("token-duplicate", "error", f"tokens {pair[0]} and {pair[1]} have the same "
                    "text: llama.cpp aborts while loading the vocabulary",
                    "convert the model again")]  # fmt: skip
