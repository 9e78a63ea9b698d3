"""Reads the d2t map of a draft with a reduced vocabulary: row of its output -> token id. I/O."""

from __future__ import annotations

import sys
from array import array

from gguftools.gguf.reader import Header

N_ROWS_MAX = 1 << 22  # far more than any vocabulary; 8 bytes each


def map_bounds(header: Header) -> tuple[int, int] | None:
    """The least and the largest id of the map, None if there is none or it is out of reach."""
    row = header.tensors.get("d2t")
    if row is None or row.type.name != "I64" or not 0 < row.n_elements <= N_ROWS_MAX:
        return None
    shard = header.shards[row.shard]
    try:
        with open(shard.path, "rb") as file:
            file.seek(shard.data_offset + row.offset)
            raw = file.read(8 * row.n_elements)
    except OSError:
        return None
    if len(raw) < 8 * row.n_elements:
        return None
    ids = array("q", raw)
    if (header.order == "<") != (sys.byteorder == "little"):
        ids.byteswap()
    return min(ids), max(ids)
