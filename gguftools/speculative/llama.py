"""llama.cpp through llama-cpp-python's low-level bindings: the backend, its log, a loaded model.

The only module that imports llama_cpp. Everything that reaches it was checked by gguf/ and pairing/
first, because llama.cpp aborts the process on what it dislikes.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections import deque
from pathlib import Path
from typing import Any

from gguftools.errors import EngineError

# libgomp's threads spin for about a millisecond before they sleep: beside another busy process one
# decode then takes up to a hundred times longer. A short spin costs nothing idle (docs/log.md).
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "2000"

try:
    import llama_cpp
    from llama_cpp import llama_cpp as lib
except ImportError as err:  # pragma: no cover - the run extra is missing
    raise EngineError(
        "llama-cpp-python is not installed", hint='pip install "gguftools[run]"'
    ) from err

_FUNCTION = re.compile(r"^\w+: ")
_LOG_ERROR = 4  # GGML_LOG_LEVEL_ERROR
_LOG_WARN = 3

__all__ = [
    "Model",
    "build_name",
    "clear_log",
    "ggml_device_function",
    "has_amx",
    "last_log",
    "lib",
    "lib_ext",
    "start_backend",
    "supports_gpu",
]

_log_lines: deque[str] = deque(maxlen=20)


def _keep_log(level: int, text: bytes, _user_data: Any) -> None:
    if level >= _LOG_WARN:
        _log_lines.append(f"{'E' if level >= _LOG_ERROR else 'W'}{text.decode('utf-8', 'replace')}")


_log_callback = lib.llama_log_callback(_keep_log)  # llama.cpp keeps the pointer, so we keep this


def start_backend() -> None:
    """Initialise llama.cpp once; its log is kept for error messages instead of printed."""
    clear_log()
    lib.llama_log_set(_log_callback, ctypes.c_void_p(0))
    lib.llama_backend_init()


def clear_log() -> None:
    """Forget what llama.cpp said, so that `last_log` speaks of the next call."""
    _log_lines.clear()


def last_log() -> str:
    """The last error of llama.cpp's log, else the last warning, without the C function's name."""
    lines = [line for line in _log_lines if line.strip("EW \n")]
    chosen = [line for line in lines if line.startswith("E")] or lines
    return _FUNCTION.sub("", chosen[-1][1:]).strip() if chosen else "no reason given"


def build_name() -> str:
    """The binding and its version, for reports."""
    return f"llama-cpp-python {llama_cpp.__version__}"


def supports_gpu() -> bool:
    """Whether this build of llama.cpp can offload layers."""
    return bool(lib.llama_supports_gpu_offload())


def ggml_device_function(what: str, result: Any, *arguments: Any) -> Any:
    """ggml_backend_dev_<what> of ggml-backend.h, which the binding loads but does not declare."""
    try:
        function = getattr(lib._lib, f"ggml_backend_dev_{what}")
    except AttributeError as err:
        raise EngineError(f"this build of llama.cpp lists no devices ({err})") from err
    function.restype, function.argtypes = result, arguments
    return function


def has_amx() -> bool:
    """Whether this build uses AMX tiles.

    Built by GCC 12.2 it dies of SIGSEGV in the first quantized product: the compiler leaves out
    stores to the tile configuration, and ldtilecfg faults. From outside a good build looks the
    same, so weights then stay in plain buffers, which never use AMX.
    """
    return b"AMX_INT8 = 1" in lib.llama_print_system_info()


def lib_ext() -> Any:
    """The nextn bindings, which llama-cpp-python calls unstable: EngineError where they are not."""
    try:
        from llama_cpp import llama_cpp_ext
    except (ImportError, AttributeError) as err:
        raise EngineError(f"this build of llama-cpp-python has no MTP functions ({err})",
                          hint="pip install llama-cpp-python==0.3.36") from err  # fmt: skip
    return llama_cpp_ext


class Model:
    """A loaded model and its vocabulary; `devices` is what devices.device_array makes."""

    def __init__(
        self,
        path: Path,
        *,
        n_gpu_layers: int,
        load_mtp: bool,
        devices: Any = None,
        split_mode: int | None = None,
    ) -> None:
        start_backend()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        if devices is not None:
            params.devices = ctypes.cast(devices, ctypes.c_void_p)
        if split_mode is not None:
            params.split_mode = split_mode
        params.load_mtp = load_mtp
        params.use_extra_bufts = not has_amx()
        clear_log()
        self.path = path
        self.ptr: Any = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self.ptr:
            raise EngineError(f"llama.cpp cannot load it: {last_log()}", where=str(path))
        self.vocab = lib.llama_model_get_vocab(self.ptr)
        self.n_vocab = int(lib.llama_vocab_n_tokens(self.vocab))
        self.n_embd_out = int(lib.llama_model_n_embd_out(self.ptr))
        self.n_layer_nextn = int(lib.llama_model_n_layer_nextn(self.ptr))
        self.n_ctx_train = int(lib.llama_model_n_ctx_train(self.ptr))
        self.keeps_state = bool(
            lib.llama_model_is_recurrent(self.ptr) or lib.llama_model_is_hybrid(self.ptr)
        )
        self.bos = int(lib.llama_vocab_bos(self.vocab))
        self.eos = int(lib.llama_vocab_eos(self.vocab))
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}

    @property
    def adds_bos(self) -> bool:
        """Whether texts begin with BOS."""
        return bool(lib.llama_vocab_get_add_bos(self.vocab))

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of `text`; special tokens in it are parsed, BOS/EOS added if asked."""
        raw = text.encode("utf-8", "replace")
        n_max = len(raw) + 8
        buf = (lib.llama_token * n_max)()
        n = lib.llama_tokenize(self.vocab, raw, len(raw), buf, n_max, add_special, True)
        if n < 0:
            raise EngineError(f"llama_tokenize failed ({n})", where=str(self.path))
        return list(buf[:n])

    def piece(self, token: int) -> bytes:
        """The bytes of a token in a text; empty for control tokens."""
        if token not in self._pieces:
            self._pieces[token] = self._spell(token, special=False)
        return self._pieces[token]

    def text(self, token: int) -> str:
        """How a template writes a token, e.g. `<s>`; empty for -1, the token that is not there."""
        return self._spell(token, special=True).decode("utf-8", "replace") if token >= 0 else ""

    def _spell(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buf = (ctypes.c_char * size)()
            n = lib.llama_token_to_piece(self.vocab, token, buf, size, 0, special)
            if n >= 0:
                return buf.raw[:n]
            size = -n

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a reply (EOS, EOT and their kin)."""
        if token not in self._ends:
            self._ends[token] = bool(lib.llama_vocab_is_eog(self.vocab, token))
        return self._ends[token]

    def close(self) -> None:
        if self.ptr:
            lib.llama_model_free(self.ptr)
            self.ptr = None
