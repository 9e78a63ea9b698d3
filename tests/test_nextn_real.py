"""Our MTP verdict against real llama.cpp, on files broken on purpose.

`scripts/oracle_mtp.py` asks about all files; here every architecture answers for the cases that
have a name and for a thin slice of the rest.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gguftools.gguf.nextn import MtpReport, mtp_report
from gguftools.gguf.nextn_table import NO_MTP_IN_LIBLLAMA_0_5
from gguftools.gguf.source import open_gguf
from tests.models.mtp_judge import Verdict, judge
from tests.models.mtp_mutations import mutations
from tests.models.tiny import TinyModel, gemma4, tiny, write
from tests.models.tiny_archs import METADATA

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="the judge is llama-cpp-python"
)

ARCHS = [arch for arch in METADATA if arch not in NO_MTP_IN_LIBLLAMA_0_5]
NAMED = re.compile(
    "plain$|full$|full: (stripped|head only)$|plain: ("
    "stripped$|nextn tensors away|only nextn tensors|only eh_proj|head only$"
    "|head only without eh_proj|block [0-9] away|key (None|1|2), block_count [23]$"
    "|stripped, key None, block_count [23]$|key as uint64|two |reduced vocabulary|own head"
    "|without .*(eh_proj|enorm)|.*eh_proj.weight wider|extra (mtp|d2t|.*unheard|.*eh_proj.scale)"
    "|attention.head_count (as array|short)|dense head|experts away)"
)
SLICE = 50  # one in so many of the other mutations

Case = tuple[str, MtpReport, Verdict]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Case]]:
    """Every file written, reported and judged: one child process for all."""
    folder = tmp_path_factory.mktemp("mtp")
    found: dict[str, list[Case]] = {}
    for beside in (False, True):
        labels: list[tuple[str, str, Path]] = []
        for arch in ARCHS:
            if (arch == "gemma4-assistant") is beside:
                for i, (label, model) in enumerate(mutations(arch)):
                    if NAMED.match(label) or i % SLICE == 0:
                        path = folder / f"{arch}-{i}.gguf"
                        write(model, path)
                        labels.append((arch, label, path))
        target = folder / "gemma4.gguf" if beside else None
        if target:
            write(gemma4(), target)
        reports = [mtp_report(open_gguf(path)) for _, _, path in labels]
        jobs = [(path, 1 if beside else max(r.declared, 1))
                for (_, _, path), r in zip(labels, reports, strict=True)]  # fmt: skip
        for (arch, label, _), report, verdict in zip(
            labels, reports, judge(jobs, target), strict=True
        ):
            found.setdefault(arch, []).append((label, report, verdict))
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_llama_cpp_does_with_each_file_what_we_say(arch: str, cases: dict[str, list[Case]]) -> None:
    wrong = [
        f"{label}: we say {report.loads}, {report.runnable} ({report.reason}); llama.cpp "
        f"{verdict.loads}, {verdict.decodes}: {verdict.log.splitlines()[-1:]}"
        for label, report, verdict in cases[arch]
        if (report.loads, report.runnable) != (verdict.loads, verdict.decodes)
    ]
    assert len(cases[arch]) > 40
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("arch", ARCHS)
def test_llama_cpp_makes_no_mtp_context_where_we_see_no_mtp(
    arch: str, cases: dict[str, list[Case]]
) -> None:
    for label, report, verdict in cases[arch]:
        assert not verdict.context or (report.loads and report.declared > 0), label
        assert verdict.context or not report.runnable, label


@pytest.mark.parametrize("arch", ARCHS)
def test_the_judge_sees_both_outcomes(arch: str, cases: dict[str, list[Case]]) -> None:
    assert {verdict.loads for _, _, verdict in cases[arch]} == {True, False}


def _ask(model: TinyModel, folder: Path) -> tuple[MtpReport, Verdict]:
    path = folder / "model.gguf"
    write(model, path)
    report = mtp_report(open_gguf(path))
    return report, judge([(path, max(report.declared, 1))])[0]


def _follow(hint: str, path: Path) -> None:
    """Run the gguf-set-metadata commands of a hint."""
    commands = re.findall(r"gguf-set-metadata FILE (\S+) (\d+)", hint)
    assert commands, hint
    for key, value in commands:
        subprocess.run(
            [sys.executable, "-m", "gguf.scripts.gguf_set_metadata", path, key, value, "--force"],
            check=True,
            capture_output=True,
        )


@pytest.mark.parametrize(
    ("what", "decodes"),
    [
        ("stripped", False),
        ("block_count too low", True),
        ("key too high", True),
        ("two declared", True),
    ],
)
def test_the_command_in_the_hint_repairs_the_file(what: str, decodes: bool, tmp_path: Path) -> None:
    model = tiny("qwen35")
    broken = {
        "stripped": model.without(*model.block(2)),
        "block_count too low": model.with_keys(block_count=2),
        "key too high": model.with_keys(nextn_predict_layers=4),
        "two declared": model.with_keys(nextn_predict_layers=2, block_count=4),
    }[what]
    report, verdict = _ask(broken, tmp_path)
    assert not report.loads
    assert not verdict.loads
    hints = [p.hint for p in report.problems if "gguf-set-metadata" in p.hint]
    _follow(hints[0], tmp_path / "model.gguf")
    repaired = mtp_report(open_gguf(tmp_path / "model.gguf"))
    [verdict] = judge([(tmp_path / "model.gguf", 1)])
    assert (repaired.loads, repaired.runnable) == (True, decodes)
    assert (verdict.loads, verdict.decodes) == (True, decodes)


@pytest.mark.parametrize(
    "keys",
    [
        {"nextn_predict_layers": 1},
        {"nextn_predict_layers": 1, "block_count": 3},
        {"nextn_predict_layers": 2},
        {"nextn_predict_layers": 0},
        {},
    ],
)
@pytest.mark.parametrize("extra", ["", "blk.1.nextn.eh_proj.weight", "d2t", "mtp.fc.weight"])
def test_an_architecture_without_mtp(keys: dict[str, int], extra: str, tmp_path: Path) -> None:
    shape = (32, 32)
    model = _llama().with_keys(**keys)
    report, verdict = _ask(model.reshaped(extra, shape) if extra else model, tmp_path)
    assert report.loads == verdict.loads, verdict.log
    assert not report.runnable
    assert report.state == ("unsupported" if extra or keys.get("nextn_predict_layers") else "none")


def _llama() -> TinyModel:
    """A llama of two blocks, from the attention and dense rows of a tiny hy_v3."""
    model = tiny("hy_v3")
    names = ("attn_norm", "attn_q.", "attn_k.", "attn_v.", "attn_output", "ffn_norm")
    tensors = {n: s for n, s in model.tensors.items() if not n.startswith("blk.2.")}
    tensors = {n: s for n, s in tensors.items()
               if n[:4] != "blk." or n.split(".", 2)[2].startswith(names)}  # fmt: skip
    for block in (0, 1):
        tensors |= {
            f"blk.{block}.ffn_gate.weight": (32, 48),
            f"blk.{block}.ffn_up.weight": (32, 48),
            f"blk.{block}.ffn_down.weight": (48, 32),
        }
    keep = {k: v for k, v in model.metadata.items() if not k.startswith("expert")}
    return TinyModel("llama", {**keep, "block_count": 2}, tensors).with_keys(
        nextn_predict_layers=None
    )
