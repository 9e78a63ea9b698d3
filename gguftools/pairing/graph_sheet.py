"""The sheet on which the outline of a graph is drawn: widths come from the weights. Pure."""

from __future__ import annotations

from gguftools.gguf.header import Header, NumericArray
from gguftools.gguf.hparams import read_hparams
from gguftools.pairing.graph_arena import Graph, Tensor
from gguftools.pairing.kv_cache import ContextShape, window_cells
from gguftools.pairing.layers import ROLLS_BACK, Layers

F32 = 4  # bytes


class Sheet:
    """A graph in the making and the block that is being drawn. Widths are elements per token."""

    def __init__(self, header: Header, layers: Layers, shape: ContextShape) -> None:
        self.header, self.layers, self.shape = header, layers, shape
        self.hparams = read_hparams(header)
        self.graph = Graph()
        self.at = ""  # prefix of the block's tensors
        self.n_seq = max(shape.n_seq_max, 1)
        self.n_tokens = -(-shape.n_tokens // self.n_seq) * self.n_seq
        self.n_outputs = min(max(shape.n_outputs, self.n_seq), self.n_tokens)
        self.n_embd = max(self.hparams.n_embd or 0, 0)
        self.n_head = max((*self.hparams.n_head, 0))
        rolls_back = header.architecture in ROLLS_BACK
        self.n_states = self.n_seq * (1 + (shape.n_rs_seq if rolls_back else 0))
        self._make_inputs()

    def _make_inputs(self) -> None:
        """What is filled in before the graph runs, in the order in which it is first read."""
        n, graph = self.n_tokens, self.graph
        self.tokens = graph.input(4 * n)
        self.embedding = graph.input(self.n_embd * n * F32)
        sections = self.header.metadata.get(self.header.arch_key("rope.dimension_sections"))
        self.positions = graph.input(4 * n * (4 if isinstance(sections, NumericArray) else 1))
        kept = [layer for _, layer in self.layers.of(mtp=self.shape.mtp)]
        kept = kept[:1] if self.shape.mtp else kept
        windows = {layer.window for layer in kept if layer.k or not layer.state}
        has_full, has_window = False in windows, True in windows
        self.n_window = window_cells(self.layers, self.shape) if has_window else 0
        self.mask = self._make_mask(self.shape.n_ctx_seq if has_full else 0)
        self.window_mask = self._make_mask(self.n_window) if has_window else self.mask
        self.out_ids = graph.input(4 * self.n_outputs)

    def _make_mask(self, n_kv: int) -> Tensor:
        """Which cells each token attends to, and where its own keys and values go."""
        flash = self.shape.flash_attn
        n_values = max((layer.v for layer in self.layers.blocks), default=0)
        cell_bytes, n_indices = (2, 2) if flash else (F32, 1 + n_values)
        return self.graph.input((n_kv * cell_bytes + 8 * n_indices) * self.n_tokens)

    def new(self, width: int, n: int, *sources: Tensor) -> Tensor:
        """A result of `width` elements for each of n tokens."""
        return self.graph.new(width * n * F32, *sources)

    def over(self, *sources: Tensor) -> Tensor:
        """A result that may take the place of its first source."""
        return self.graph.over(*sources)

    def norm(self, rows: Tensor, n: int) -> Tensor:
        """Hidden rows, normed and scaled."""
        return self.over(self.new(self.n_embd, n, rows))

    def width(self, name: str) -> int:
        """Rows of a weight matrix: elements it makes per token, 0 if the block lacks it."""
        row = self.header.tensors.get(f"{self.at}{name}.weight")
        return row.shape[1] if row is not None and len(row.shape) > 1 else 0

    def depth(self, name: str) -> int:
        """Columns of a weight matrix: elements that it takes per token."""
        row = self.header.tensors.get(f"{self.at}{name}.weight")
        return row.shape[0] if row is not None and row.shape else 0

    def number(self, suffix: str) -> int:
        """An integer of the architecture, 0 where absent or negative."""
        return max(self.header.integer(self.header.arch_key(suffix)) or 0, 0)
