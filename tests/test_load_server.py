"""The load script: what it calls lost, mixed up or truncated, and a small load on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.load_server import PROMPTS, Answer, Load, judge, load
from tests.fake_llama_server import FakeServer, Script, fails, head
from tests.running_server import needs_llama_server, starter


@pytest.mark.parametrize(
    ("answer", "cut", "outcome"),
    [
        (Answer("one two", True), False, "ok"),
        (Answer("one two", False), False, "truncated"),  # whole by chance: nobody said so
        (Answer("one", True), False, "truncated"),
        (Answer("", True), False, "truncated"),
        (Answer("three", True), False, "mixed"),
        (Answer("one three", True), False, "wrong"),
        (Answer("", False, error="HTTP 500"), False, "lost"),
        (Answer("one", False), True, "cut"),
        (Answer("three", False), True, "wrong"),
    ],
)
def test_each_request_has_one_outcome(answer: Answer, cut: bool, outcome: str) -> None:
    assert judge(answer, "one two", ["one two", "three"], cut=cut) == outcome


def completions(n_bad: int) -> Script:
    """Answers a prompt with itself, but `n_bad` streams end early without saying so."""
    bad = iter(range(n_bad))

    def script(fields: dict[str, Any]) -> Iterator[bytes | None]:
        choice = {"text": fields["prompt"], "finish_reason": "length"}
        if not fields["stream"]:
            yield head() + json.dumps({"choices": [choice]}).encode()
            return
        yield head(kind="text/event-stream")
        yield f"data: {json.dumps({'choices': [{'text': fields['prompt'][:9]}]})}\n\n".encode()
        if next(bad, None) is not None:
            return
        rest = {"text": fields["prompt"][9:], "finish_reason": "length"}
        yield f"data: {json.dumps({'choices': [rest]})}\n\ndata: [DONE]\n\n".encode()

    return script


@pytest.mark.parametrize("n_bad", [0, 3])
def test_replies_that_end_early_are_found(n_bad: int) -> None:
    with FakeServer({"/v1/completions": completions(n_bad)}) as server:
        found = load(Load(server.url, "m", False, 8, None), 40, 4, 0)
    assert (found["n_ok"], found["n_truncated"]) == (40 - n_bad, n_bad)
    assert found["n_answers_told_apart"] == len(PROMPTS)


def test_a_server_that_fails_without_load_is_no_measurement() -> None:
    broken = {"/v1/completions": fails("500 Internal Server Error", "no")}
    with FakeServer(broken) as server, pytest.raises(SystemExit, match="even without load"):
        load(Load(server.url, "m", False, 8, None), 40, 4, 0)


@needs_llama_server
def test_a_server_under_load_loses_nothing(models: dict[str, Path], tmp_path: Path) -> None:
    start = starter(tmp_path / "log", models["target"], models["draft"], ("draft-simple",))
    with start() as running:
        found = load(Load(running.url, "m", False, 16, None), 48, 8, 6)
    assert (found["n_ok"], found["n_cut"], found["problems"]) == (40, 8, [])
