"""A llama.cpp context with one sequence: decode, go back, and the hidden rows of an MTP head."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gguftools.errors import EngineError
from gguftools.speculative.llama import Model, clear_log, last_log, lib, lib_ext
from gguftools.speculative.sampling import Floats

N_BATCH = 512  # rows per llama_decode; also bounds the hidden rows kept at once
_CTX_TYPE_MTP = 1  # LLAMA_CONTEXT_TYPE_MTP
_PARTIAL_ONLY = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: the recurrent part alone


class Context:
    """One sequence of tokens in a llama.cpp context: `tokens` is always what its cache holds.

    `n_rollback` is how many positions the last decode may have to give back. Plain attention caches
    are cut at will; recurrent ones with snapshots (n_rs_seq) only inside the last batch; all others
    return to the state of the last `mark`.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        n_threads: int,
        n_rollback: int = 0,
        mtp_of: Context | None = None,
        types_kv: tuple[int, int] | None = None,
    ) -> None:
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_outputs_max = n_rollback + 1
        params.n_threads = params.n_threads_batch = n_threads
        params.no_perf = True
        if types_kv is not None:
            params.type_k, params.type_v = types_kv
        if model.keeps_state and mtp_of is None:
            params.n_rs_seq = n_rollback
        if mtp_of is not None:
            params.ctx_type = _CTX_TYPE_MTP
            params.ctx_other = mtp_of.ptr
        clear_log()
        self.model = model
        self.is_mtp = mtp_of is not None
        self.ptr: Any = lib.llama_init_from_model(model.ptr, params)
        if not self.ptr:
            raise EngineError(
                f"no context of {n_ctx} tokens: {last_log()}",
                where=str(model.path),
                hint="a smaller -c needs less memory",
            )
        self.n_ctx = int(lib.llama_n_ctx(self.ptr))
        self.n_rs_seq = int(lib.llama_n_rs_seq(self.ptr))
        self.memory = lib.llama_get_memory(self.ptr)
        self.tokens: list[int] = []
        self.on_decode: Callable[[bool], None] | None = None  # True: no logits were asked for
        self._hidden: list[Floats] | None = None
        self._hidden_from = 0
        self._n_last = 0  # rows of the last decode that can still be given back
        self._mark: tuple[int, bytes] | None = None
        self._batch = _Batch(model.n_embd_out if self.is_mtp else 0)
        self._views: dict[tuple[int, int], list[Floats]] = {}

    @property
    def n_past(self) -> int:
        """Tokens in the cache."""
        return len(self.tokens)

    # -- decoding

    def decode(
        self, tokens: Sequence[int], n_logits: int = 0, hidden: Floats | None = None
    ) -> list[Floats]:
        """Append tokens; a row of logits, {n_vocab}, for each of the last `n_logits` of them.

        The rows are valid until the next decode. An MTP context needs `hidden`, {n, n_embd_out}.
        On failure the cache is emptied, never left half full.
        """
        try:
            for start in range(0, len(tokens), N_BATCH):
                part = tokens[start : start + N_BATCH]
                n_out = max(0, min(n_logits - (len(tokens) - start - len(part)), len(part)))
                rows = None if hidden is None else hidden[start : start + len(part)]
                self._decode(part, n_out, rows)
        except BaseException:
            self.clear()
            raise
        return self._rows(lib.llama_get_logits(self.ptr), n_logits, self.model.n_vocab)

    def _decode(self, tokens: Sequence[int], n_out: int, hidden: Floats | None) -> None:
        n = len(tokens)
        if self.n_past + n > self.n_ctx:
            raise EngineError(f"{self.n_past + n} tokens do not fit the context of {self.n_ctx}")
        clear_log()
        batch = self._batch.fill(tokens, self.n_past, n_out, hidden)
        code = lib.llama_decode(self.ptr, batch)
        if code != 0:
            raise EngineError(
                f"llama_decode returned {code}: {last_log()}", where=str(self.model.path)
            )
        self.tokens.extend(tokens)
        self._n_last = n
        if self._hidden is not None:
            pointer = lib_ext().llama_get_embeddings_nextn(self.ptr)
            rows = self._rows(pointer, n, self.model.n_embd_out)
            self._hidden.extend(row.copy() for row in rows)
        if self.on_decode is not None:
            self.on_decode(n_out == 0)

    def _rows(self, pointer: Any, n: int, width: int) -> list[Floats]:
        """Views of n rows of llama.cpp's memory; making them costs more than keeping them."""
        if n == 0:
            return []
        key = (ctypes.addressof(pointer.contents), n)
        if key not in self._views:
            if len(self._views) > 64:
                self._views.clear()
            self._views[key] = list(np.ctypeslib.as_array(pointer, (n, width)))
        return self._views[key]

    def set_threads(self, n: int) -> None:
        """Compute with so many from now on."""
        lib.llama_set_n_threads(self.ptr, n, n)

    # -- going back

    def mark(self) -> None:
        """Make the present state one that `rewind` can return to."""
        if self.model.keeps_state and not self.is_mtp and self.n_rs_seq == 0:
            size = lib.llama_state_seq_get_size_ext(self.ptr, 0, _PARTIAL_ONLY)
            buf = (ctypes.c_uint8 * size)()
            n = lib.llama_state_seq_get_data_ext(self.ptr, buf, size, 0, _PARTIAL_ONLY)
            self._mark = (self.n_past, bytes(memoryview(buf)[:n]))

    def rewind(self, n: int) -> int:
        """Give back positions n and above; returns how many tokens are left, at most n."""
        if n >= self.n_past:
            return self.n_past
        if n <= 0 or not self._cut(n):
            self.clear()
        return self.n_past

    def _cut(self, n: int) -> bool:
        keeps_state = self.model.keeps_state and not self.is_mtp
        if keeps_state and self.n_past - n >= min(self._n_last, self.n_rs_seq + 1):
            return self._restore(n)
        if not lib.llama_memory_seq_rm(self.memory, 0, n, -1):
            return False
        self._forget(n)
        if keeps_state:
            self._n_last = 0  # a pending rollback is single use
        return True

    def _restore(self, n: int) -> bool:
        if self._mark is None or self._mark[0] > n:
            return False
        n_mark, state = self._mark
        buf = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        # The recurrent part first: the memory cuts the rest only once nothing recurrent is ahead.
        if not lib.llama_state_seq_set_data_ext(self.ptr, buf, len(state), 0, _PARTIAL_ONLY):
            return False
        if not lib.llama_memory_seq_rm(self.memory, 0, n_mark, -1):
            return False
        self._forget(n_mark)
        return True

    def _forget(self, n: int) -> None:
        del self.tokens[n:]
        if self._hidden is not None:
            del self._hidden[max(n - self._hidden_from, 0) :]
            self._hidden_from = min(self._hidden_from, n)
        if self._mark is not None and self._mark[0] > n:
            self._mark = None

    def shift(self, n_keep: int, n_discard: int) -> None:
        """Forget the n_discard tokens after the first n_keep; those behind move up.

        Where the memory cannot do that, they are forgotten too.
        """
        end = min(n_keep + n_discard, self.n_past)
        if end <= n_keep:
            return
        if not (self.can_shift and lib.llama_memory_seq_rm(self.memory, 0, n_keep, end)):
            self.rewind(n_keep)
            return
        lib.llama_memory_seq_add(self.memory, 0, end, -1, n_keep - end)
        del self.tokens[n_keep:end]
        self._mark = None
        self._n_last = 0  # nothing decoded before can be given back any more
        if self._hidden is not None:
            first, last = (max(i - self._hidden_from, 0) for i in (n_keep, end))
            del self._hidden[first:last]
            self._hidden_from -= max(0, min(self._hidden_from, end) - n_keep)

    @property
    def can_shift(self) -> bool:
        """Whether tokens can be taken out of the middle."""
        # The head of a model with sliding windows leaves one of two caches empty, and llama.cpp
        # aborts when it shifts an empty one (ggml-backend.cpp: GGML_ASSERT(buffer), b11434).
        empty = self.is_mtp and lib.llama_model_n_swa(self.model.ptr) > 0
        return not empty and bool(lib.llama_memory_can_shift(self.memory))

    def clear(self) -> None:
        """Empty the cache."""
        lib.llama_memory_clear(self.memory, True)
        self._forget(0)

    # -- hidden rows for an MTP head

    def keep_hidden(self, *, masked: bool) -> None:
        """Have llama.cpp give a hidden row for every token (or, masked, for output tokens)."""
        lib_ext().llama_set_embeddings_nextn(self.ptr, True, masked)
        if not masked:
            self._hidden = []

    def hidden_rows(self, start: int, stop: int) -> Floats:
        """Hidden rows of positions [start, stop); zeros where they are not known (any more)."""
        rows = np.zeros((stop - start, self.model.n_embd_out), np.float32)
        for i in range(max(start, self._hidden_from), stop):
            rows[i - start] = (self._hidden or [])[i - self._hidden_from]
        return rows

    @property
    def n_hidden(self) -> int:
        """How many hidden rows are kept."""
        return len(self._hidden or [])

    def drop_hidden(self, before: int) -> None:
        """Forget the hidden rows of positions below `before`."""
        n = min(max(before - self._hidden_from, 0), len(self._hidden or []))
        if self._hidden and n:
            del self._hidden[:n]
            self._hidden_from += n

    def output_hidden(self) -> Floats:
        """The hidden row of the last token decoded by an MTP context, {n_embd_out}."""
        pointer = lib_ext().llama_get_embeddings_nextn_ith(self.ptr, -1)
        if not pointer:
            raise EngineError("llama.cpp gave no hidden row", where=str(self.model.path))
        return self._rows(pointer, 1, self.model.n_embd_out)[0].copy()

    def set_head(self, head: int) -> None:
        """Choose which of several chained MTP heads the next decode runs."""
        lib_ext().llama_set_nextn_layer_offset(self.ptr, head)

    def close(self) -> None:
        if self.ptr:
            lib.llama_free(self.ptr)
            self.ptr = None
            self._batch.close()


class _Batch:
    """A llama_batch of N_BATCH rows of sequence 0; with token and hidden row where n_embd > 0."""

    def __init__(self, n_embd: int) -> None:
        self.raw = lib.llama_batch_init(N_BATCH, 0, 1)
        # A few numbers at a time: ctypes takes them faster than numpy.
        self.token, self.pos, self.logits = self.raw.token, self.raw.pos, self.raw.logits
        for i in range(N_BATCH):
            self.raw.n_seq_id[i] = 1
            self.raw.seq_id[i][0] = 0
        self.embd = np.zeros((N_BATCH, n_embd), np.float32) if n_embd else None

    def fill(self, tokens: Sequence[int], n_past: int, n_out: int, hidden: Floats | None) -> Any:
        n = len(tokens)
        self.raw.n_tokens = n
        for i, token in enumerate(tokens):
            self.token[i], self.pos[i], self.logits[i] = token, n_past + i, i >= n - n_out
        if self.embd is not None:
            self.embd[:n] = hidden
            self.raw.embd = self.embd.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        return self.raw

    def close(self) -> None:
        self.raw.embd = None  # numpy's memory, not llama.cpp's to free
        lib.llama_batch_free(self.raw)
