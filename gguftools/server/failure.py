"""What a llama-server's log says of its end: one table from its lines to causes. Pure.

Strings of b11434 (llama-model-loader.cpp, llama-model.cpp, llama-context.cpp, server-context.cpp,
speculative.cpp, arg.cpp) and of builds before it.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

_TEXT_MAX = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """Why it ended and what to do about it; empty where nothing is known."""

    what: str
    hint: str = ""


# In the order of how much they explain: what comes first in the table wins, not in the log.
# `{}` is the first group.
_CAUSES = (
    (r"error while handling argument \"([^\"]+)\": the argument has been removed",
     "this build has removed the option {}", "gguftools doctor shows the build"),
    (r"error while handling environment variable \"([^\"]+)\"",
     "the environment variable {} is none that it takes", "unset it"),
    (r"error: invalid argument: (\S+)", "this build does not know the option {}",
     "llama-server --help lists what it knows"),
    (r"error while handling argument \"([^\"]+)\": (?!the argument)",
     "it does not take the value of {}", "llama-server --help lists the values"),
    (r"([\w-]+) is not supported\. use (?:the canonical|repeated)",
     "this build has removed the option {}", ""),
    (r"couldn't bind (?:HTTP )?server socket", "its port is taken", "--port 0 takes a free one"),
    (r"cudaMalloc failed: out of memory|ErrorOutOfDeviceMemory|kIOGPUCommandBufferCallbackErrorOut"
     r"OfMemory|CUDA error: out of memory|hipErrorOutOfMemory",
     "out of memory on the GPU", "a smaller -c, fewer -ngl layers, or -ctk q8_0"),
    (r"failed to allocate (?:\S+ )?buffer|unable to allocate \S+ buffer|std::bad_alloc|"
     r"failed to allocate compute buffers|failed to create context with model",
     "out of memory", "a smaller -c or a smaller file"),
    (r"(?:check_tensor_dims: )?tensor '([^']+)' not found|missing tensor '([^']+)'",
     "the file lacks the tensor {}", "gguftools inspect says what else"),
    (r"tensor '([^']+)' has wrong shape", "the tensor {} has a shape that it does not expect",
     "gguftools inspect says which"),
    (r"wrong number of tensors; expected (\d+, got \d+)",
     "the file holds other tensors than its architecture has: expected {}",
     "a newer build may know them"),
    (r"MTP block missing (nextn\.\w+)", "the file has no {}: its MTP head was left behind",
     "gguftools inspect says what is there"),
    (r"context type MTP requested but model doesn't contain MTP layers",
     "the file has no MTP layers", "gguftools inspect says what is there"),
    (r"MTP currently (?:only )?supports a single MTP block",
     "it drafts with one MTP block only, the file has more", ""),
    (r"MTP input row width must match", "the MTP head is of another width than the target", ""),
    (r"unknown model architecture: '([^']*)'", "this build does not know the architecture {}",
     "a newer build may"),
    (r"unknown pre-tokenizer type: '([^']*)'", "this build does not know the tokenizer {}",
     "a newer build may"),
    (r"key not found in model: (\S+)", "the file lacks the key {}", ""),
    (r"invalid magic characters|failed to read (?:key-value pairs|tensor info)",
     "not a GGUF file, or not a whole one", ""),
    (r"tensor '([^']+)' data is not within the file bounds", "the file is cut short at {}",
     "fetch it again"),
    (r"failed to initialize the context: (.+)", "its context cannot be made: {}", ""),
    (r"quantized V cache requires flash_attn|V cache quantization requires flash_attn",
     "a quantized -ctv needs flash attention", ""),
    (r"GGML_ASSERT\((.+?)\) failed", "llama.cpp aborted: {}",
     "gguftools pair checks the files"),
    (r"failed to load draft model, '([^']+)'", "it cannot load the draft {}", ""),
    (r"error loading model: (.+)", "it cannot load the model: {}", ""),
    (r"failed to load model '([^']+)'", "it cannot load {}", ""),
    (r"error while loading shared libraries: ([^:]+)", "the library {} is missing beside it", ""),
    (r"Library not loaded: (\S+)", "the library {} is missing beside it", ""),
    (r"failed to create MTP context", "it cannot make a context for the draft", ""),
)  # fmt: skip
_OFF = (
    (r"vocabs are not compatible|draft model vocab type must match",
     "its tokenizer check refuses the draft, so the draft is not used"),
    (r"failed to initialize speculative decoding context: (.+)", "the draft is not used: {}"),
    (r"speculative decoding not supported by this context",
     "the target's memory takes no rejected tokens back, so nothing drafts"),
    (r"draft model is not eagle3 (\(.+\))", "the draft is no EAGLE-3 head of this kind {}"),
)  # fmt: skip
_SIGNALS = {
    signal.SIGABRT: "it aborted", signal.SIGSEGV: "it crashed (segmentation fault)",
    signal.SIGKILL: "it was killed, as systems do when memory runs out",
    signal.SIGILL: "its build uses instructions that this CPU lacks",
    signal.SIGBUS: "it crashed (bus error: a file shrank, or its disk failed)",
    signal.SIGTERM: "it was stopped (SIGTERM)", signal.SIGINT: "it was stopped (SIGINT)",
}  # fmt: skip


def failure(log: str, exit_code: int | None) -> Failure:
    """The cause as the log tells it; else as the exit code does."""
    for pattern, what, hint in _CAUSES:
        if (found := re.search(pattern, log)) is not None:
            return Failure(_filled(what, found), hint)
    if exit_code is not None and exit_code < 0:
        try:
            number = signal.Signals(-exit_code)
        except ValueError:
            return Failure(f"signal {-exit_code} ended it")
        hint = "take another build" if number == signal.SIGILL else ""
        return Failure(_SIGNALS.get(number, f"{number.name} ended it"), hint)
    last = _last_line(log)
    if exit_code is None:
        return Failure(f"its last line is: {last}" if last else "it says nothing")
    return Failure(f"exit code {exit_code}" + (f", its last line is: {last}" if last else ""))


def why_off(log: str) -> str:
    """Why a server that runs does not draft, empty where its log does not say."""
    for pattern, what in _OFF:
        if (found := re.search(pattern, log)) is not None:
            return _filled(what, found)
    return ""


def _filled(what: str, found: re.Match[str]) -> str:
    group = next((g for g in found.groups() if g), "")
    return what.replace("{}", group.strip()[:_TEXT_MAX])


def _last_line(log: str) -> str:
    """The last line that says something, without its time stamp."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return re.sub(r"^[\d.]{8,} [IWED] ", "", lines[-1])[:_TEXT_MAX] if lines else ""
