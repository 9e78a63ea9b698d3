"""What a file can be in a pair: a model, an MTP, EAGLE-3, DFlash or DSpark draft, or none of them.

llama.cpp guesses less (common_speculative_types_from_gguf, b11434): it never finds eagle3 and
gemma4-assistant, and takes every model with an MTP block for an MTP draft.
"""

from __future__ import annotations

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header
from gguftools.gguf.tensors import group_of

# LLM_ARCH_NAMES, src/llama-arch.cpp, b11434, without clip and the architectures named below.
_TEXT_MODELS = frozenset({
    "llama", "llama4", "deci", "falcon", "grok", "gpt2", "gptj", "gptneox", "mpt", "baichuan",
    "starcoder", "refact", "bloom", "stablelm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3",
    "qwen3moe", "qwen3next", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp", "phi2",
    "phi3", "phimoe", "plamo", "plamo2", "plamo3", "codeshell", "orion", "internlm2", "minicpm",
    "minicpm3", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "starcoder2", "mamba", "mamba2",
    "maple", "jamba", "falcon-h1", "xverse", "command-r", "cohere2", "cohere2moe", "dbrx", "olmo",
    "olmo2", "olmoe", "muse-glimmer", "openelm", "arctic", "deepseek", "deepseek2",
    "deepseek2-ocr", "deepseek32", "deepseek4", "chatglm", "glm4", "glm4moe", "glm-dsa", "bitnet",
    "jais", "jais2", "nemotron", "nemotron_h", "nemotron_h_moe", "exaone", "exaone4", "exaone-moe",
    "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "granite", "granitemoe", "granitehybrid",
    "graniteswitch", "granite_swa", "chameleon", "plm", "bailingmoe", "bailingmoe2", "bailingmoe3",
    "dots1", "dots3note", "arcee", "afmoe", "laguna", "ernie4_5", "ernie4_5-moe", "hunyuan-moe",
    "hunyuan-dense", "hunyuan_vl", "hy_v3", "hy_v4", "smollm3", "gpt-oss", "lfm2", "lfm2moe",
    "smallthinker", "seed_oss", "grovemoe", "apertus", "minimax-01", "hrm_text", "minimax-m2",
    "minimax-m3", "cogvlm", "pangu-embedded", "mistral3", "mistral4", "paddleocr", "mimo2",
    "step35", "spark2_5", "maincoder", "kimi-linear", "kimi-k3", "glm5-next", "talkie", "mellum",
    "nanbeige",
})  # fmt: skip
_EMBEDDING_MODELS = frozenset({
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2",
    "jina-bert-v3", "eurobert", "gemma-embedding", "llama-embed", "t5encoder",
})  # fmt: skip
_DIFFUSION_MODELS = frozenset({"dream", "llada", "llada-moe", "rnd1"})
_SPEECH_MODELS = frozenset({"wavtokenizer-dec", "qwen3tts", "pockettts"})
_DRAFT_ONLY = {"eagle3": "draft-eagle3", "gemma4-assistant": "draft-mtp"}
_FILE_TYPES = {  # general.type, gguf-py/gguf/constants.py
    "adapter": "a LoRA adapter",
    "imatrix": "an importance matrix",
    "mmproj": "a multimodal projector",
    "vocab": "a vocabulary without weights",
}


def draft_kind(header: Header) -> str | None:
    """The --spec-type this file drafts with, None if it cannot draft at all.

    A model with an MTP block of its own is `draft-simple` here: it drafts for any target of its
    vocabulary. `check_pair` uses its block instead where the target is the same model.
    """
    if why_no_text(header):
        return None
    arch = header.architecture
    if arch == "dflash":
        return "draft-dspark" if "markov_w1.weight" in header.tensors else "draft-dflash"
    if arch in _DRAFT_ONLY:
        return _DRAFT_ONLY[arch]
    return "draft-mtp" if is_head_only(header) else "draft-simple"


def is_draft_only(header: Header) -> bool:
    """Whether the file drafts for another model and writes no text of its own."""
    arch = header.architecture
    return arch == "dflash" or arch in _DRAFT_ONLY or is_head_only(header)


def is_head_only(header: Header) -> bool:
    """Whether the file declares MTP blocks and holds none of the trunk's (llama.cpp: mtp_only)."""
    hparams = read_hparams(header)
    if hparams.n_layer_nextn == 0:
        return False
    return all(group_of(name, hparams.n_layer) != "trunk" for name in header.tensors
               if name.startswith("blk."))  # fmt: skip


def why_no_text(header: Header) -> str:
    """Why nothing in the file predicts the next token; empty for a model or a draft."""
    arch, type_ = header.architecture, header.text("general.type")
    shown = arch[:40]
    if type_ in _FILE_TYPES:
        return f"the file is {_FILE_TYPES[type_]} (general.type is {type_!r})"
    if arch == "clip" or "clip.has_vision_encoder" in header.metadata:
        return "the file is a multimodal projector (general.architecture is 'clip')"
    if not arch:
        return "the file names no general.architecture"
    if not header.tensors:
        return "the file holds no tensors"
    if arch in _EMBEDDING_MODELS:
        return f"{arch!r} is an embedding model: it predicts no next token"
    if arch in _DIFFUSION_MODELS:
        return f"{arch!r} is a diffusion model: it does not write from left to right"
    if arch in _SPEECH_MODELS:
        return f"{arch!r} writes sound, not text"
    if arch in ("t5", "clef"):
        what = "has an encoder" if arch == "t5" else "scores decisions"
        return f"{arch!r} {what}: llama.cpp does not speculate with it"
    if arch != "dflash" and arch not in _DRAFT_ONLY and arch not in _TEXT_MODELS:
        return f"llama.cpp b11434 does not know the architecture {shown!r}"
    return _why_embedding(header)


def _why_embedding(header: Header) -> str:
    """Embedding models keep the architecture of the text model they were made from."""
    pooling = header.integer(header.arch_key("pooling_type"))
    if pooling:
        return f"the file is an embedding model (pooling_type is {pooling})"
    if header.architecture != "dflash" and (
        header.metadata.get(header.arch_key("attention.causal")) is False
    ):
        return "the model attends in both directions: it predicts no next token"
    return ""
