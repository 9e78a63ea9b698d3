"""Our verdict on a pair of files beside what llama-server, or our own engine, makes of it."""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gguftools.errors import GGUFToolsError
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.pairing.compatibility import Pair, check_head, check_pair
from gguftools.pairing.engines import OURS, SERVER, engines_of
from tests.models import server
from tests.models.pair_cases import Case

# llama.cpp compares none of this, and drafts wrong tokens.
NONSENSE = {
    "draft-simple": {"target"},  # the target is a draft without a trunk
    "draft-mtp": {"architecture", "vocab-type", "vocab-size", "token-text", "block", "head"},
    "draft-eagle3": {"vocab-type", "vocab-size", "token-text", "block"},
    "draft-dflash": {"vocab-type", "vocab-size", "token-text"},
    "draft-dspark": {"vocab-type", "vocab-size", "token-text"},
}
_UPSTREAM_RULES = (  # common_speculative_are_compatible, common/speculative.cpp, b11434
    ("draft model vocab type must match target model to use speculation but", "vocab-type"),
    ("draft model bos tokens must match", "bos"),
    ("draft model eos tokens must match", "eos"),
    ("draft model vocab must closely match", "vocab-size"),
    ("draft model vocab must match target model to use speculation but token", "token-text"),
)


@dataclass(frozen=True)
class Judgement:
    """One pair: our verdict, what llama.cpp did, and how the two disagree, if they do."""

    case: Case
    kind: str
    ours: str
    theirs: str
    disagreement: str


def judge_server(binary: Path, case: Case, folder: Path) -> Judgement:
    """Write the files, check them, start the server on them."""
    target, draft, pair = _checked(case, folder)
    kind = pair.kind or "draft-simple"
    n_max = pair.settings.draft_max if pair.settings else 3
    found = server.ask(binary, target, *server.pair_options(kind, draft, n_max))
    theirs: str = found.what
    if pair.verdict == "blocked" and theirs == "drafts" and pair.rule in NONSENSE.get(kind, ()):
        theirs = "drafts nonsense"
    agree = (theirs == "drafts") == _expected(pair, case) and theirs != "hangs"
    why = "" if agree else f"llama.cpp {theirs} ({_last_words(found.log)})"
    why = why or _other_rule(pair, found)
    ours: str = pair.verdict
    if ours != "blocked" and not _expected(pair, case):
        ours = "not there"  # our own engine drafts with it, llama-server does not
    return Judgement(case, kind, ours, theirs, f"we say {_said(pair)}; {why}" if why else "")


def judge_engine(case: Case, folder: Path) -> Judgement | None:
    """Whether our own engine drafts with a pair that we say it can, and refuses a blocked one."""
    target, draft, pair = _checked(case, folder)
    if pair.verdict != "blocked" and OURS not in _engines(pair, case):
        return None
    theirs = _in_fork(target, draft, pair.kind or "")
    agree = (theirs == "drafts") == (pair.verdict != "blocked")
    why = "" if agree else f"we say {_said(pair)}; our engine {theirs}"
    return Judgement(case, pair.kind or "none", pair.verdict, theirs, why)


def _expected(pair: Pair, case: Case) -> bool:
    """Whether we say that llama-server drafts with the pair."""
    return pair.verdict != "blocked" and SERVER in _engines(pair, case)


def _engines(pair: Pair, case: Case) -> tuple[str, ...]:
    head = case.draft or case.target
    return engines_of(pair.kind or "", case.target.model.arch, head.model.arch)


def _checked(case: Case, folder: Path) -> tuple[Path, Path | None, Pair]:
    target = case.target.write(folder / "target.gguf")
    draft = case.draft.write(folder / "draft.gguf") if case.draft else None
    return target, draft, check(open_gguf(target), open_gguf(draft) if draft else None)


def check(target: Header, draft: Header | None) -> Pair:
    """The pair, or the target's own head."""
    return check_pair(target, draft) if draft is not None else check_head(target)


def _said(pair: Pair) -> str:
    return f"{pair.verdict} ({pair.rule}: {pair.reason})"


def _other_rule(pair: Pair, found: server.Outcome) -> str:
    """Where upstream refuses a draft model by another rule, or at another token, than we say."""
    if pair.kind != "draft-simple" or found.what != "plain":
        return ""
    for text, rule in _UPSTREAM_RULES:
        if not (line := found.says(text)):
            continue
        at = re.search(r"but token (\d+) content", line)
        theirs = (rule, int(at[1]) if at else None)
        ours = (pair.rule, pair.token_id if rule == "token-text" else None)
        return "" if ours == theirs else f"llama.cpp's debug log says {theirs}"
    return "llama.cpp names no rule"


def _last_words(log: str) -> str:
    """What the log says of the failure."""
    marks = ("GGML_ASSERT", "GGML_ABORT", "error", "failed", "not compatible", "aborted")
    lines = [line for line in log.splitlines() if any(mark in line for mark in marks)]
    return " | ".join(line.strip()[:200] for line in lines[-3:])


def _in_fork(target: Path, draft: Path | None, kind: str) -> str:
    """What our engine does, in a process of its own: llama.cpp may abort."""
    importlib.import_module("tests.models.engine")  # once, before the forks
    importlib.import_module("llama_cpp")
    answer_end, child_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(child_end, _drafts(target, draft, kind).encode())
        except Exception as err:  # noqa: BLE001
            os.write(child_end, f"raises {err!r}".encode())
        finally:
            os._exit(0)  # never back into the caller, whatever is raised
    os.close(child_end)
    with open(answer_end, encoding="utf-8") as answer:
        said = answer.read()
    status = os.waitpid(pid, 0)[1]
    return said or f"dies with status {status}"


def _drafts(target: Path, draft: Path | None, kind: str) -> str:
    from gguftools.speculative.plan import Settings, plan
    from gguftools.speculative.sampling import Chain
    from tests.models.engine import generate

    chain = Chain(temp=0)
    name: Literal["draft", "mtp"] = "draft" if kind == "draft-simple" else "mtp"
    try:
        plan(Settings(target, draft, name, draft_max=3))
    except GGUFToolsError:
        return "refuses"
    options: dict[str, Any] = {
        "chain": chain,
        "n_predict": server.N_PREDICT,
        "history": server.PROMPT,
        "n_ctx": 256,
    }
    try:
        plain, _, _ = generate(target, "none", **options)
        text, steps, _ = generate(target, name, draft=draft, n_draft=3, **options)
    except GGUFToolsError as err:
        return f"fails: {err}"
    if text != plain:
        return "writes another text"
    return "drafts" if sum(step.n_verified for step in steps) else "plain"
