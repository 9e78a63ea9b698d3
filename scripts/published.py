"""Reads published speedups: a row of the CSV -> Setup. Never looks at what was measured.

Names are all there is, so sizes follow from them: parameters, active parameters, bits.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gguftools.pairing.devices import device_name
from gguftools.pairing.setup import Setup

# Billions of parameters, active ones, for names that do not say; experts in all and in use.
_SIZES = {
    "flash-next": (80.0, 6.0), "glm-5": (744.0, 40.0), "glm-4.5-air": (106.0, 12.0),
    "glm-4.6": (355.0, 32.0), "hy3": (299.0, 21.0), "deepseek-v3": (671.0, 37.0),
    "gpt-oss-20b": (20.9, 3.6), "gpt-oss-120b": (116.8, 5.1), "step-3": (196.0, 11.0),
    "mimo-v2": (309.0, 15.0), "minimax-m2": (230.0, 10.0),
}  # fmt: skip
_EXPERTS = {"gemma": (128, 8), "gpt-oss": (128, 4), "qwen3-": (128, 8), "hy3": (192, 8)}
_VOCAB = {
    "qwen2": 151936, "qwen3-": 151936, "qwen3": 248320, "qwen35": 248320, "gemma": 262144,
    "llama-2": 32000, "codellama": 32000, "phind": 32000, "llama": 128256, "nemotron": 128256,
    "glm": 151552, "hy3": 120832,
}  # fmt: skip
_BITS = {
    "nvfp4": 4.5, "iq4_xs": 4.25, "iq4_nl": 4.5, "q4_0": 4.5, "q4_1": 5.0, "q4_k_xl": 5.0,
    "q4_k_l": 4.9, "q4_k": 4.85, "q5_k_xl": 5.8, "q5_k": 5.7, "q5_0": 5.5, "q6_k_xl": 7.0,
    "q6_k": 6.56, "q8_k_xl": 9.5, "q8_0": 8.5, "q8": 8.5, "q3_k_xl": 4.1, "q3_k_m": 3.9,
    "q3_k": 3.8, "3-bit": 3.9, "iq3_xxs": 3.2, "iq3": 3.5, "q2_k": 3.0, "iq2_xxs": 2.4,
    "iq2": 2.6, "iq1": 1.8, "bf16": 16.0, "f16": 16.0, "fp16": 16.0, "fp8": 8.0, "4-bit": 4.5,
    "int4": 4.5, "q4": 4.7, "q5": 5.7, "q6": 6.6, "q3": 3.9,
}  # fmt: skip
_KINDS = {
    "mtp": "draft-mtp", "dspark": "draft-dspark", "dflash": "draft-dflash",
    "eagle": "draft-eagle3", "gram": "ngram", "lookup": "ngram",
}  # fmt: skip
_TASKS = {
    "code": r"\bcode(_\w+)?\b|\bcoding\b", "prose": r"\bprose\b|\bstory\b|\bcreative\b",
    "chat": r"\bchat\b", "json": r"\bjson\b", "rewrite": r"\bcounting\b|\brewrit|best-case",
}  # fmt: skip
BITS_UNKNOWN = 4.9


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure, and the setup that it was measured with."""

    id: str
    setup: Setup
    speedup: float
    fit_ok: bool
    source: str
    label: str


def read_rows(path: Path) -> list[Row]:
    """All rows of a file that say by how much decoding got faster."""
    with path.open(encoding="utf-8", newline="") as lines:
        table = list(csv.DictReader(lines))
    rows: list[Row] = []
    last: dict[str, str] = {}  # the hardware that a source spoke of last
    for line in table:
        hardware, source = line["hardware"], line["source_url"]
        if hardware.lower().startswith("same"):
            hardware = f"{last.get(source, '')}, {hardware}"
        else:
            last[source] = re.sub(r",? *(code|prose|chat)$", "", hardware)
        speedup = _number(line["speedup"])
        if not speedup:
            continue
        label = ", ".join((line["target"], line["draft"], line["quant"], line["hardware"],
                           f"n {line['n_max'] or '?'}"))  # fmt: skip
        setup = _setup({**line, "hardware": hardware})
        rows.append(Row(line["id"], setup, speedup, line["fit_ok"].strip() == "1", source, label))
    return rows


def _setup(line: dict[str, str]) -> Setup:
    target, draft, hardware = (line[k].strip() for k in ("target", "draft", "hardware"))
    note, kind = line.get("note", ""), _kind(draft)
    total, active = _size(target)
    bits = _bits(line["quant"]) or BITS_UNKNOWN
    width = 5120.0 * (active / 27.0) ** (1.0 / 3.0)
    output = _lookup(_VOCAB, target, 151936) * width / 1e9
    n_expert, n_used = _lookup(_EXPERTS, target, (256, 8)) if active < total else (0, 0)
    used = n_used / n_expert if n_expert else 0.0
    experts = (total - active) * used / (1.0 - used) if n_expert else 0.0
    read = active if active < total or total < 5.0 else max(total - output, total / 2.0)
    output_bytes = output * max(bits, 6.5) / 8.0
    n_max, p_min = _number(line["n_max"]), _number(line["p_min"])
    setup = Setup(
        kind=kind,
        target_bytes=((read - output) * bits / 8.0 + output_bytes) * 1e9,
        target_params=total * 1e9,
        target_bits=bits,
        quant=_quant(line["quant"]),
        expert_bytes=experts * bits / 8.0 * 1e9,
        n_expert=n_expert,
        n_expert_used=n_used,
        rollback="RS" if re.search(r"qwen3\.[5-9]|qwen35|27b-class", target.lower()) else "PART",
        family=target,
        task=_task(f"{hardware} {note}"),
        n_max=int(n_max) if n_max else _n_max_default(kind),
        p_min=p_min if p_min is not None else _p_min_default(kind, line),
        acceptance=_accept(line["accept"]),
        kv_bytes=_kv_bytes(active, total),
    )
    return replace(_drafted(setup, draft, active, output_bytes), **_placed(hardware, draft))


def _drafted(setup: Setup, draft: str, active: float, output_bytes: float) -> Setup:
    """With what one drafted token reads."""
    bits = _bits(draft)
    if setup.kind == "draft-simple":
        params = _size(draft)[0]
        n_bytes = params * (bits or 6.0) / 8.0
        return replace(setup, draft_params=params * 1e9, draft_bytes=n_bytes * 1e9, draft_bits=bits)
    if setup.kind == "ngram":
        return setup
    bits = bits or max(setup.target_bits, 4.9)
    layer = active / 60.0 + 0.05
    if setup.kind != "draft-mtp":
        layer *= 5.0
    if "companion" in draft.lower():
        layer, output_bytes = 0.1 + active / 80.0, output_bytes / 5.0
    n_bytes = layer * bits / 8.0 + output_bytes
    return replace(setup, draft_params=layer * 1e9, draft_bytes=n_bytes * 1e9, draft_bits=bits,
                   block_size=16)  # fmt: skip


def _placed(hardware: str, draft: str) -> dict[str, Any]:
    """Where it ran: fields of Setup."""
    text = hardware.lower()
    found: dict[str, Any] = {"backend": _backend(text), "device": device_name(text)}
    if "vllm" in draft.lower():
        found["backend"] = "cuda"
    counts = [int(n) for n in re.findall(r"\b(\d)x ", text)]
    if counts or " + 3090" in text:
        found["n_devices"] = sum(counts) + text.count(" + 3090")
    if build := re.search(r"\bb(\d{4,5})\b", text):
        found["build"] = int(build[1])
    if "tensor split" in text:
        found["tensor_split"] = True
    if part := re.search(r"(\d+)(?:/(\d+))? layers on gpu", text):
        found["cpu_share"] = max(1.0 - int(part[1]) / int(part[2] or 66), 0.0)
    if re.search(r"experts on cpu|cpu experts|n-cpu-moe", text):
        found["experts_on_cpu"] = True
    if depth := re.search(r"(?:depth|ctx) (\d+)k|([\d.]+)k prompt", text):
        found["n_ctx_used"] = int(float(depth[1] or depth[2]) * 1024)
    if clients := re.search(r"(\d+) clients?\b", text):
        found["n_streams"] = int(clients[1])
    return found


def _backend(text: str) -> str:
    for name, pattern in {
        "vulkan": r"vulkan|780m|890m|680m",
        "metal": r"apple|metal|\bm[1-5] (pro|max|ultra)",
        "npu": r"npu|snapdragon",
        "hip": r"rocm|\bhip\b|radeon|\brx |r9700|mi\d+|strix halo",
    }.items():
        if re.search(pattern, text):
            return name
    is_cpu = re.search(r"\bcpu\b", text) and not re.search(r"rtx|gpu|on cpu|cpu experts", text)
    return "cpu" if is_cpu else "cuda"


def _kind(draft: str) -> str:
    text = draft.lower()
    return next((kind for word, kind in _KINDS.items() if word in text), "draft-simple")


def _n_max_default(kind: str) -> int:
    """llama.cpp's defaults when most of these were measured: 16 for drafts before 2026-04."""
    return {"draft-mtp": 3, "draft-eagle3": 3, "draft-dflash": 15, "draft-dspark": 4}.get(kind, 16)


def _p_min_default(kind: str, line: dict[str, str]) -> float:
    if kind != "draft-simple" or "vllm" in f"{line['quant']} {line['draft']}".lower():
        return 0.0
    accept = _accept(line["accept"])
    # An acceptance this low rules the old default of 0.75 out; before 2024-11 there was none.
    if (accept is not None and accept < 0.7) or re.search(r"2023|2024-0", line.get("note", "")):
        return 0.0
    return 0.75


def _task(text: str) -> str | None:
    """The task that a text speaks of, None where it speaks of several."""
    found = [task for task, pattern in _TASKS.items() if re.search(pattern, text.lower())]
    return found[0] if len(found) == 1 else None


def _size(name: str) -> tuple[float, float]:
    """Parameters and active parameters in billions."""
    text = name.lower()
    for key, sizes in _SIZES.items():
        if key in text:
            return sizes
    total = re.search(r"(?<![a-z\d.])(\d+(?:\.\d+)?)b\b", text)
    active = re.search(r"\ba(\d+(?:\.\d+)?)b\b", text)
    size = float(total[1]) if total else 27.0
    return size, min(float(active[1]), size) if active else size


def _kv_bytes(active: float, total: float) -> float:
    """F16 keys and values of one token in the hybrids of today: 64 KiB for 27B, 20 for 35B-A3B."""
    return 65536.0 * (active / 27.0) ** 0.5 if total > 2.0 else 12288.0


def _bits(text: str) -> float | None:
    lower = text.lower().replace("-", "_").replace("3_bit", "3-bit").replace("4_bit", "4-bit")
    return next((bits for key, bits in _BITS.items() if key in lower), None)


def _quant(text: str) -> str:
    """A tensor type as ggml names it, empty where a name says none."""
    found = re.search(r"I?Q\d_(K|\d|XXS|XS|NL)|F16|BF16|NVFP4", text.upper())
    return found[0] if found else ""


def _accept(text: str) -> float | None:
    """An acceptance, the middle of a range."""
    parts = [float(part) for part in re.findall(r"\d*\.\d+|\d+", text)]
    return min(max(sum(parts) / len(parts), 0.01), 0.99) if parts else None


def _number(text: str) -> float | None:
    """The first number in a cell."""
    found = re.search(r"\d*\.\d+|\d+", text)
    return float(found[0]) if found else None


def _lookup(table: dict[str, Any], name: str, default: Any) -> Any:
    return next((value for key, value in table.items() if key in name.lower()), default)


def sources(rows: Iterable[Row]) -> list[str]:
    """Every source, once, in order."""
    return list(dict.fromkeys(row.source for row in rows))
