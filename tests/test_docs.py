"""The pages say what the code does."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gguftools.cli import VERBS
from tests.commands import python

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_generated_pages_are_current() -> None:
    check = python(str(ROOT / "scripts" / "docs.py"), "--check")
    assert (check.returncode, check.stdout) == (0, ""), "run scripts/docs.py"


def test_readme_names_every_verb_and_no_other() -> None:
    verbs = set(re.findall(r"^\| `gguftools ([a-z]+)\b", README, re.MULTILINE))
    assert verbs == set(VERBS) - {"completion"}
    shown = set(re.findall(r"^\$ (?:\S*/)?gguftools ([a-z]+)\b", README, re.MULTILINE))
    assert {"pair"} <= shown <= set(VERBS)


def test_scripts_can_be_run() -> None:
    for name in ("scripts/demo", "scripts/test", "scripts/check", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), name
