"""What pair says of each target and draft of the field reports, made to their facts.

field_reports_pair.txt holds the lines; `python -m tests.test_field_reports_pair` prints it anew.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gguftools.gguf.source import open_gguf
from gguftools.pairing.candidates import NAMED, Draft, judge
from gguftools.pairing.compatibility import Pair, check_pair
from gguftools.pairing.launch import Launch
from gguftools.pairing.machine import Gpu, Machine
from gguftools.pairing.ranking import Question
from tests.models import field_pairs as made
from tests.models.field_pairs import FieldModel

LINES = Path(__file__).with_name("field_reports_pair.txt")
GIB, MIB = 1 << 30, 1 << 20
Make = Callable[[], FieldModel]


@dataclass(frozen=True)
class Case:
    """A target with its draft (None: the head in its own file) and what is asked about them.

    `says` are patterns that the answer has to match, whatever its figures are.
    """

    target: Make
    draft: Make | None
    says: tuple[str, ...]
    asked: dict[str, Any]


def case(target: Make, draft: Make | None, *says: str, **asked: Any) -> Case:
    return Case(target, draft, says, asked)


def head(quant: str | None = None, **changes: Any) -> FieldModel:
    """The MTP head of the 27B as a file of its own."""
    return replace(made.head_of(made.qwen36_27b(), "mtp-Qwen3.6-27B", quant), **changes)


def other_prefix() -> FieldModel:
    return made.qwen25_15b("R1-Distill-1.5B-edited", "r1 distill, other prefix")


def lfm2(name: str, arch: str, vocab: str) -> FieldModel:
    return made.dense(name, arch, "Q4_K_M", vocab,
                      n_layer=16, n_embd=1024, n_ff=4608, n_head=16, n_head_kv=8)  # fmt: skip


def of_200058(vocab: str, rows: int | None = None) -> FieldModel:
    return made.dense("MiniMax-M2", "minimax-m2", "Q4_K_M", vocab, n_layer=8, n_embd=3072,
                      n_ff=1536, n_head=48, n_head_kv=8, rows=rows)  # fmt: skip


def small_200058(vocab: str) -> FieldModel:
    return made.dense("small", "llama", "Q8_0", vocab,
                      n_layer=4, n_embd=1024, n_ff=3072, n_head=16, n_head_kv=8)  # fmt: skip


def eagle_201024() -> FieldModel:
    return made.eagle3("MiniMax-M2-EAGLE3", of_200058("logical 200058"), "logical 200058", 201024)


def deepseek_r1() -> FieldModel:
    return made.dense("DeepSeek-R1", "deepseek2", "Q4_K_M", "deepseek v3", n_layer=61, n_embd=7168,
                      n_ff=18432, n_head=128, n_head_kv=128)  # fmt: skip


f = functools.partial
PAIR: dict[str, Case] = {
    "C01 padding of 128 rows": case(
        made.qwen15_7b, made.qwen15_05b, "^works", "128 more tokens", "tail padding", "100"
    ),
    "C02 padded sizes of one tokenizer": case(
        made.qwen25_72b, f(made.qwen25_15b), "^works", "128 more tokens", "151931 token texts"
    ),
    "C04 another engine wants equal widths": case(
        f(made.qwen25_72b, "Qwen2.5-Math-72B"), f(made.qwen25_15b, "Qwen2.5-Math-1.5B"), "^works"
    ),
    "C05 distills of two sizes": case(
        f(made.qwen25_32b, "R1-Distill-Qwen-32B", "r1 distill large"),
        f(made.qwen25_15b, "R1-Distill-Qwen-1.5B", "r1 distill small"),
        "^works", "128 more tokens",
    ),
    "C05 a prefix that differs": case(
        f(made.qwen25_32b, "R1-Distill-Qwen-32B", "r1 distill large"), other_prefix,
        "^blocked .* token-text: 1 token text differs, at id 7000",
    ),
    "C07 one size, four other texts": case(
        made.qwen3_17b, made.qwen25_05b,
        "^blocked .* token-text: 4 token texts differ, the first at id 151665: '<tool_response>'",
    ),
    "C08 one brand, two vocabularies": case(
        f(lfm2, "LFM2.5-8B-A1B", "lfm2moe", "lfm2.5 moe"), f(lfm2, "LFM2.5-350M", "lfm2", "lfm2.5"),
        "^blocked .* vocab-size: ", "first at id 5",
    ),
    "C10 other special ids that nobody adds": case(
        made.qwen36_27b, made.qwen35_08b, "^works", "248315 token texts are equal"
    ),
    "C11 one text of another conversion": case(
        made.gemma2_27b, f(made.gemma2_2b, vocab="gemma2, converted anew"),
        "^blocked .* token-text: 1 token text differs, at id 139: 'g139' in the target",
        "another conversion",
    ),
    "C11 the same conversion": case(made.gemma2_27b, made.gemma2_2b, "^works"),
    "C13 a head of equal width and other tokens": case(
        made.qwen36_27b, f(head, vocab="another of that width"),
        "^blocked .*draft-mtp.* token-text: ", "does not compare",
    ),
    "C13 a head of another width": case(
        made.qwen36_27b, lambda: made.head_of(made.qwen35_9b(), "mtp-Qwen3.5-9B"),
        "^blocked .*draft-mtp.* width: .* 5120 wide, .* 4096",
    ),
    "C14 two architectures of one vocabulary": case(
        made.qwen36_35b_a3b, made.qwen35_08b, "LM Studio and others hide"
    ),
    "C16 a trimmed head with its map": case(
        made.qwen36_27b, f(made.trimmed_head, has_map=True),
        "^blocked", "32768 of 248320", "with a d2t map",
    ),
    "C16 a trimmed head without a map": case(
        made.qwen36_27b, f(made.trimmed_head, has_map=False),
        "^blocked", "32768 of 248320", "without a d2t map",
    ),
    "C17 a padded draft, a logical target": case(
        f(of_200058, "logical 200058"), f(small_200058, "padded 201024"),
        "^blocked .* vocab-size: .* 966 apart", "only goes on",
    ),
    "C17 both padded": case(
        f(of_200058, "padded 201024"), f(small_200058, "padded 201024"), "^works"
    ),
    "C17 more rows than the target has tokens": case(
        f(of_200058, "logical 200058"), eagle_201024,
        "^blocked .*draft-eagle3.* head: ", r"(?s)\A(?!.*reduced)",
    ),
    "C19 a distill for plain Qwen": case(
        made.qwen25_32b, f(made.qwen25_15b, "R1-Distill-Qwen-1.5B", "r1 distill small"), "^blocked"
    ),
    "C19 a distill for full R1": case(
        deepseek_r1, f(made.qwen25_15b, "R1-Distill-Qwen-1.5B", "r1 distill small"),
        "^blocked .* bos: BOS is id 0",
    ),
    "C31 a head without embeddings": case(
        f(made.qwen36_27b, n_nextn=0), lambda: head("Q8_0").without("token_embd", "output.weight"),
        "^blocked .*draft-mtp.* head: ", "token_embd",
    ),
    "C32 a head as a draft": case(
        f(made.qwen36_27b, n_nextn=0, name="Qwen3.8-27B"), f(head, "Q4_0"), "^works .*draft-mtp"
    ),
    "C38 a head of few bits": case(f(made.qwen36_27b, n_nextn=0), f(head, "Q4_K_M"), "^works"),
}  # fmt: skip
ON_3090: dict[str, Any] = {"backend": "cuda", "device": "RTX 3090"}
ON_B200: dict[str, Any] = {"backend": "cuda", "device": "B200"}
ON_STRIX: dict[str, Any] = {"backend": "vulkan", "device": "Strix Halo"}
ON_GPU = Launch(gpu=True)
# C64, C65 and C73 are of running, not of pairing: the same files, measured.
SLOW: dict[str, Case] = {
    "C52 a long draft needs its p_min": case(
        made.qwen3_4b, made.qwen3_06b,
        r"settings: n_max ([1-4]|\d+, n_min 0, p_min 0\.[5-9])", "--spec-draft-p-min",
        backend="vulkan", temperature=0.0,
    ),
    "C53 a head never drafts 16, on Strix Halo": case(
        made.qwen36_35b_a3b, None, "^works", "settings: n_max [1-4],", **ON_STRIX
    ),
    "C53 the same on a 3090": case(
        made.qwen36_35b_a3b, None, "^works", "settings: n_max [1-4],", **ON_3090
    ),
    "C53 the same on a MI300X": case(
        made.qwen36_35b_a3b, None, "^poor", backend="hip", device="MI300X"
    ),
    "C55 a draft model for 3B active parameters": case(
        f(made.qwen36_35b_a3b, n_nextn=0), made.qwen35_08b,
        "^poor", "experts", r"(?s)\A(?!.*first: ngram, works)", **ON_3090,
    ),
    "C55 their own head": case(
        made.qwen36_35b_a3b, None, "^works", "settings: n_max [1-3],", "experts", **ON_3090
    ),
    "C56 a head in 0.8B on a GPU": case(
        f(made.qwen35_08b, "Q4_K_M", n_nextn=1), None, "^poor", **ON_B200
    ),
    "C56 a head in 0.8B on a CPU": case(
        f(made.qwen35_08b, "Q4_K_M", n_nextn=1), None, "^poor", backend="cpu"
    ),
    # Published: 1.07, 1.14 and 1.44; all heads on a B200 are predicted too low (docs/log.md).
    "C56 a head in 4B": case(made.qwen35_4b, None, **ON_B200),
    "C56 a head in 9B": case(made.qwen35_9b, None, **ON_B200),
    "C56 a head in 27B": case(
        f(made.qwen36_27b, name="Qwen3.5-27B"), None, **ON_B200
    ),
    "C58 MLA with an indexer": case(
        f(made.glm_dsa, "GLM-5.2", "IQ1_S"), None, "^poor", n_devices=2, **ON_B200
    ),
    # Of b9279; on later builds a 7900 XTX gains with 2 (speedups.csv F113).
    "C61 HIP collapses at 2": case(
        made.qwen36_27b, None, "23549", backend="hip", device="RX 7900 XTX"
    ),
    "C62 Metal, Q3_K": case(
        f(made.qwen36_27b, "Q3_K_M"), None, r"expected: (0\.[89]|1\.0)", "-ub 512",
        backend="metal", device="Apple M4",
    ),
    "C67 several GPUs by layers": case(
        f(made.qwen36_27b, "Q6_K"), None, "whole request", n_devices=2, **ON_3090
    ),
    "C70 the draft's cache stays precise": case(
        made.qwen3_8b, f(made.qwen3_06b, "IQ4_NL"), r"(?s)\A(?!.*(-ctkd|type-k|cache-type))",
        **ON_3090,
    ),
    "C71 the draft goes to the GPU": case(
        made.qwen25_72b, f(made.qwen25_15b), "-ngld 99", launch=ON_GPU, **ON_3090
    ),
    "C95 a head at temperature 0": case(made.qwen36_27b, None, temperature=0.0, **ON_3090),
    "C95 a head at temperature 1": case(made.qwen36_27b, None, temperature=1.0, **ON_3090),
    "C136 a draft of a twelfth on a CPU": case(
        made.gemma2_27b, f(made.gemma2_2b, "IQ3_XXS"), "^poor|settings: n_max [1-3],",
        backend="cpu", temperature=0.0,
    ),
    "C136 the same on its GPU": case(
        made.gemma2_27b, f(made.gemma2_2b, "IQ3_XXS"), "^works",
        backend="vulkan", device="Radeon 780M", temperature=0.0,
    ),
    "C137 Metal, Q4_K": case(
        made.qwen36_27b, None, r"expected: (0\.|1\.0)", backend="metal", device="Apple M4 Max"
    ),
}  # fmt: skip
# These ask for lengths of prompt and reply, requests side by side, experts in RAM, and memory.
LATER: dict[str, Case] = {
    "C59 experts in RAM": case(
        made.qwen36_35b_a3b, None, "experts are read from RAM",  # published: 0.58
        backend="cuda", device="RTX 5060 Ti", experts_on_cpu=True,
    ),
    "C68 four requests side by side": case(
        made.qwen36_27b, None, "^poor|settings: n_max 1,",
        backend="hip", device="R9700", n_streams=4,
    ),
    "C133 decoding faster, the request slower": case(
        f(made.qwen36_35b_a3b, "Q8_0"), None, r"expected: 1\.", r"whole request 0\.",
        n_prompt=15000, n_output=256, **ON_STRIX,
    ),
    "C133 a dense model gains": case(
        f(made.qwen36_27b, "Q8_0"), None, r"expected: [12]\.", r"whole request 1\.",
        n_prompt=15000, n_output=256, **ON_STRIX,
    ),
    "C134 one step too deep": case(
        made.qwen36_27b, None, "^blocked .* memory: ",
        memory=24 * GIB, n_streams=4, launch=Launch(262144, gpu=True),
        backend="cuda", device="RTX 4090",
    ),
    "C74 the head's own cache": case(
        made.qwen36_27b, None, r"1024 MiB|1\.07 GB", memory=24 * GIB,
        launch=Launch(262144, gpu=True), **ON_3090,
    ),
    "C76 a draft's cache for all slots": case(
        made.qwen36_27b, None, memory=96 * GIB, n_streams=4,
        launch=Launch(4 * 262144, gpu=True), **ON_B200,
    ),
    "C77 a compute buffer of ubatch rows": case(
        made.qwen36_27b, None, "^blocked .* memory: ", memory=32 * GIB, n_streams=4,
        launch=Launch(1048576, gpu=True), backend="cuda", device="RTX PRO 4500",
    ),
    "C79 a card of 10 GB at 16K": case(
        f(made.qwen36_27b, "UD-IQ2_XXS"), None, "^works", memory=10 * GIB,
        launch=Launch(16384, gpu=True), backend="cuda", device="RTX 3080",
    ),
    "C79 a card of 10 GB at 32K": case(
        f(made.qwen36_27b, "UD-IQ2_XXS"), None, "^(poor|blocked) .* memory: ", memory=10 * GIB,
        launch=Launch(32768, gpu=True), backend="cuda", device="RTX 3080",
    ),
    "C80 a card of 16 GB": case(
        f(made.qwen36_27b, "IQ4_XS"), None, "settings: n_max [1-3],",
        memory=16 * GIB, launch=Launch(16384, gpu=True), backend="cuda", device="RTX 5060 Ti",
    ),
    "C82 an assistant counts too": case(
        lambda: made.gemma4_e2b()[0], lambda: made.gemma4_e2b()[1], "^works", memory=8 * GIB,
        launch=Launch(8192, gpu=True), backend="vulkan",
    ),
    "C83 no smaller context for the draft": case(
        made.qwen3_32b, made.qwen3_06b, r"(?s)\A(?!.*(-cd |--ctx-size-draft))", memory=24 * GIB,
        launch=Launch(32768, gpu=True), **ON_3090,
    ),
}  # fmt: skip
CASES = PAIR | SLOW | LATER


Lines = tuple[str, ...]


def case_lines(name: str) -> Lines:
    """Write the files of a case into this folder and pair them."""
    one = CASES[name]
    paths = [make().write(Path()) for make in (one.target, one.draft) if make is not None]
    headers = [open_gguf(path) for path in paths]
    if name in PAIR:
        found = list(_verdict(check_pair(*headers)))
    else:
        drafts = [Draft(str(path)) for path in paths[1:]]
        found = list(_answer(judge(headers[0], drafts, _question(**one.asked)), one))
    for path in paths:
        path.unlink()
    return tuple(found)


def _question(
    *,
    backend: Any,
    device: str = "",
    memory: int = 0,
    n_devices: int = 1,
    n_streams: int = 1,
    experts_on_cpu: bool = False,
    launch: Launch | None = None,
    **asked: Any,
) -> Question:
    """The GPUs by their name, with that memory each; 0 is not known and so enough."""
    gpus = (Gpu(device, memory, memory or 1 << 50),) * n_devices if backend != "cpu" else ()
    launch = replace(launch or Launch(gpu=bool(gpus)), cpu_moe=experts_on_cpu, n_parallel=n_streams)
    machine = Machine(256 * GIB, 256 * GIB, gpus)
    return Question(backend=backend, machine=machine, launch=launch, **asked)


def _answer(pairs: list[Pair], one: Case) -> Iterator[str]:
    """The pair that was asked about, and which one goes before it."""
    own_head = one.draft is None
    asked = next(p for p in pairs if (p.kind == "draft-mtp" if own_head else p.origin == NAMED))
    yield from _verdict(asked)
    yield from _speed(asked)
    if pairs[0] is not asked:
        yield f"first: {pairs[0].kind}, {pairs[0].verdict}"


def _verdict(asked: Pair) -> Iterator[str]:
    rule = f" {asked.rule}:" if asked.rule else ":"
    yield f"{asked.verdict} ({asked.kind or 'no draft'}){rule} {asked.reason}"
    yield from (f"note: {note}" for note in (*asked.notes, *asked.advice))


def _speed(asked: Pair) -> Iterator[str]:
    if (use := asked.settings) is not None:
        yield f"settings: n_max {use.draft_max}, n_min {use.draft_min}, p_min {use.draft_p_min:g}"
    if (found := asked.prediction) is not None:
        between = f"{found.speedup_low:.2f} to {found.speedup_high:.2f}"
        request = f"whole request {found.request_speedup:.2f}x"
        yield f"expected: {found.speedup:.2f}x ({between}), {request}"
        yield from (f"because: {reason}" for reason in found.reasons)
    if asked.memory is not None:
        parts = asked.memory.plan.parts
        yield f"memory: {asked.memory.reason}"
        yield f"of that for the draft: {parts.draft_kv / MIB:.0f} MiB of cache"
    if (command := asked.commands["llama-server"]) is not None:
        yield f"$ {command}"


def expected() -> dict[str, Lines]:
    found: dict[str, list[str]] = {}
    for line in LINES.read_text().splitlines():
        if line.startswith("    "):
            found[list(found)[-1]].append(line.strip())
        else:
            found[line] = []
    return {name: tuple(said) for name, said in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_pair_gets_its_lines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = case_lines(name)
    assert found == expected()[name]
    for pattern in CASES[name].says:
        assert re.search(pattern, "\n".join(found), re.MULTILINE), pattern


def test_there_are_lines_for_nothing_else() -> None:
    assert list(expected()) == [*CASES]


def print_lines() -> None:
    for name, one in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            found = case_lines(name)
        print(name, *("    " + line for line in found), sep="\n")
        missing = [p for p in one.says if not re.search(p, "\n".join(found), re.MULTILINE)]
        if missing:
            print(f"{name}: not said: {missing}", file=sys.stderr)


if __name__ == "__main__":
    print_lines()
