"""What `explain` makes of files: our own reports, and what real llama-servers wrote.

tests/logs are excerpts of logs, /metrics and replies of llama-server b11434, built and run here on
SmolLM2 and on Markov files, on a machine with other work: their speeds mean nothing. Those named
-lv4 were written with `-lv 4`.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import pytest

from gguftools.bench.report import PLAIN, BenchReport, Machine, Run, arm_of, report_json
from gguftools.cli.contract_explain import CountsJSON, ExplainJSON, FactsJSON
from gguftools.errors import GGUFToolsError, SourceError
from gguftools.explain import explain, read_facts
from gguftools.explain.facts import Counts, Facts
from gguftools.explain.reading import BYTES_MAX, parse
from scripts.docs import json_schema
from scripts.llama_server import llama_server
from tests.commands import gguftools
from tests.models.server import ask

LOGS = Path(__file__).parent / "logs"


def log(name: str) -> Facts:
    return read_facts(LOGS / f"b11434-{name}")


def codes(*names: str) -> set[str]:
    return {cause.code for cause in explain([log(name) for name in names]).causes}


# What each real log is a log of.
FOUND = {
    "off.log": {"speculation-off"},
    "stranger.log": {"vocabulary"},
    "nohead.log": {"head-lost"},
    "nodraft.log": {"start-failed"},
    "head-idle.log": {"head-idle"},
    "ngram.log": {"no-repetition"},
    "deep-lv4.log": {"temperature", "n-max-deep", "p-min-unset"},
    "p-min-lv4.log": {"empty-drafts"},
    "deep.metrics": {"acceptance-low", "n-max-deep"},
    "off.metrics": {"speculation-off"},
    "deep-reply.json": {"acceptance-low", "temperature"},
    "plain-reply.json": {"speculation-off"},
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_a_real_file_tells_its_cause(name: str) -> None:
    assert codes(name) >= FOUND[name]


def test_a_good_log_accuses_nobody_of_being_off() -> None:
    assert not codes("mtp-lv4.log") & {"speculation-off", "head-lost", "head-idle", "acceptance"}


def test_a_log_has_the_counts_that_the_metrics_have() -> None:
    """Two ways to see one run of one server."""
    by_log, by_metrics, by_reply = (
        log(name).drafted for name in ("deep-lv4.log", "deep.metrics", "deep-reply.json")
    )
    assert by_log is not None
    assert by_metrics is not None
    assert by_reply is not None
    assert (by_log.n_tokens, by_log.n_draft, by_log.n_accepted, by_log.n_rounds) == (
        96,
        582,
        56,
        40,
    )
    for name in ("n_tokens", "n_draft", "n_accepted", "n_rounds"):
        assert getattr(by_log, name) == getattr(by_metrics, name) == getattr(by_reply, name)
    assert by_log.accepted_by_position == by_metrics.accepted_by_position
    assert by_log.n_rounds_drafted == by_metrics.n_rounds_drafted == 38


def test_a_log_names_files_and_settings() -> None:
    facts = log("deep-lv4.log")
    assert (facts.target, facts.draft) == ("smollm2-q4_1.gguf", "smollm2-q4_0.gguf")
    assert (facts.drafter, facts.draft_max, facts.draft_p_min) == ("draft-simple", 16, 0.0)
    assert (facts.temp, facts.n_slots, facts.architecture) == (1.2, 1, "llama")


def test_a_plain_reply_beside_a_drafted_one_is_its_baseline() -> None:
    found = explain([log("deep-reply.json"), log("plain-reply.json")])
    assert found.verdict == "slower"
    assert not found.at_most
    assert "speculation-off" not in {cause.code for cause in found.causes}


def test_the_command_line_in_a_log_is_read() -> None:
    text = (
        "+ /opt/llama-server -m 'big one.gguf' -md small.gguf --spec-type draft-simple -np 4 "
        "--spec-draft-n-max 16 --spec-draft-p-min 0.75 -ncmoe 40 -ctkd q4_0\n"
    )
    facts = parse(text, "log")
    assert (facts.target, facts.draft, facts.drafter) == (
        "big one.gguf", "small.gguf", "draft-simple"
    )  # fmt: skip
    assert (facts.n_slots, facts.draft_max, facts.draft_p_min) == (4, 16, 0.75)
    assert (facts.n_cpu_experts, facts.draft_cache) == (1, "q4_0")


def test_layers_and_experts_are_those_that_were_loaded() -> None:
    """Lines of src/llama-model.cpp and llama-model-loader.cpp, b11434."""
    text = (
        "0.01.000.000 I load_tensors: offloaded 60/65 layers to GPU\n"
        "0.01.000.000 I load_tensors:        CUDA0 model buffer size = 12345.00 MiB\n"
        "tensor blk.3.ffn_up_exps.weight (96 MiB q4_K) buffer type overridden to CPU\n"
        "tensor blk.3.ffn_norm.weight (0 MiB f32) buffer type overridden to CPU\n"
        "0.01.000.000 I load_tensors: offloaded 0/29 layers to GPU\n"
        "srv  load_model: initializing, n_slots = 4\n"
    )
    facts = parse(text, "log")
    assert (facts.n_layers_gpu, facts.n_layers_all, facts.n_cpu_experts) == (60, 65, 1)
    assert (facts.n_draft_layers_gpu, facts.n_draft_layers_all) == (0, 29)
    assert facts.backend == "cuda"


def test_a_streamed_reply_is_read_from_its_last_message() -> None:
    timings = json.loads((LOGS / "b11434-deep-reply.json").read_text())
    text = f'data: {{"content":"a"}}\n\ndata: {json.dumps(timings)}\n\ndata: [DONE]\n'
    assert parse(text, "stream") == log("deep-reply.json")


def _run(n: int, seconds: float, *, drafted: int = 0, kept: int = 0, at: int = 0) -> Run:
    rounds = n - kept
    return Run(
        prompt="p", task="code", round=at, text="", token_ids=(), stop_reason="length", n_prompt=9,
        n_tokens=n, seconds_prompt=0.1, seconds_decode=seconds, tokens_per_second=n / seconds,
        drafter="draft" if drafted else "none", n_draft=drafted, n_accepted=kept, n_rounds=rounds,
        drafted_by_position=(rounds, rounds) if drafted else (),
        accepted_by_position=(kept - kept // 3, kept // 3) if drafted else (),
        n_draft_histogram={2 if drafted else 0: rounds}, seconds_draft=0.3 * seconds,
        seconds_verify=0.7 * seconds, by_drafter={},
    )  # fmt: skip


def bench() -> BenchReport:
    """Plain, and two tokens a round at a third of acceptance and 0.8 of the speed."""
    plain = [_run(100, 1.0, at=i) for i in range(3)]
    fixed = [_run(100, 1.25, drafted=120, kept=40, at=i) for i in range(3)]
    return BenchReport(
        date="2026-11-30", machine=Machine("Linux", "x", 2, 2, None, ()), builds={"gguftools": "1"},
        target="t.gguf", draft="d.gguf", drafter="draft", prompts="demo", n_predict=100, temp=0.0,
        complete=True, verdict="loss", best="plain", reason="",
        arms=(arm_of(PLAIN, 0, plain, plain), arm_of("fixed-2", 2, fixed, plain)),
    )  # fmt: skip


def test_a_bench_is_judged_by_its_own_ratio() -> None:
    facts = parse(json.dumps(report_json(bench())), "bench.json")
    found = explain([facts])
    assert (facts.target, facts.draft, facts.drafter) == ("t.gguf", "d.gguf", "draft")
    assert found.speedup == pytest.approx(0.8)
    assert found.verdict == "slower"
    assert "acceptance" in {cause.code for cause in found.causes}


def test_a_pair_report_tells_what_blocks_it() -> None:
    candidate = {"draft": "d.gguf", "kind": "draft-simple", "verdict": "blocked",
                 "rule": "token-text", "reason": "id 139 differs"}  # fmt: skip
    text = json.dumps({"schema": "gguftools.pair/1", "target": "t", "candidates": [candidate]})
    (cause,) = explain([parse(text, "pair.json")]).causes
    assert cause.code == "pair-blocked"
    assert "token-text" in cause.message
    assert "id 139 differs" in cause.message


def test_real_reports_and_traces_are_read(models: dict[str, Path], tmp_path: Path) -> None:
    """Of a run with drafts of a fixed length: report and trace agree, and plain is the baseline."""
    trace = tmp_path / "steps.jsonl"
    how = ["-p", "abc", "-n", "60", "--temp", "0", "-t", "1", "--json"]
    fixed = ["--draft", models["draft"], "--draft-max", "3", "--draft-min", "3", "--trace", trace]
    for name, drafting in (("drafted", fixed), ("plain", ["--no-draft"])):
        done = gguftools("run", models["target"], *drafting, *how)
        assert done.returncode == 0, done.stderr
        (tmp_path / f"{name}.json").write_text(done.stdout)
    drafted, plain = (read_facts(tmp_path / f"{n}.json") for n in ("drafted", "plain"))
    steps = read_facts(trace)
    assert drafted.drafted is not None
    assert steps.drafted is not None
    assert drafted.plain is plain.drafted is None
    for name in ("n_tokens", "n_rounds", "n_rounds_drafted", "n_draft", "n_accepted",
                 "drafted_by_position", "accepted_by_position"):  # fmt: skip
        assert getattr(drafted.drafted, name) == getattr(steps.drafted, name)
    assert (drafted.target, drafted.draft_max, drafted.temp) == (str(models["target"]), 3, 0.0)
    found = explain([drafted, plain])
    assert found.speedup is not None
    assert not found.at_most


SCHEMA = json_schema(ExplainJSON)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["stranger.log"], 1),
        (["ngram.log"], 0),
        (["deep-reply.json", "plain-reply.json"], 1),
        (["deep-lv4.log", "off.metrics", "deep.metrics"], 1),
    ],
)
def test_the_command_answers_in_words_and_in_json(names: list[str], code: int) -> None:
    files = [LOGS / f"b11434-{name}" for name in names]
    said, as_json = gguftools("explain", *files), gguftools("explain", *files, "--json")
    assert said.returncode == as_json.returncode == code, said.stderr
    value = json.loads(as_json.stdout)
    jsonschema.validate(value, SCHEMA)
    assert all(cause["message"] in said.stdout for cause in value["causes"])
    assert said.stdout.count("try: ") == len(value["causes"])
    assert said.stderr == as_json.stderr == ""


def test_stdin_is_read() -> None:
    text = (LOGS / "b11434-off.log").read_text()
    done = gguftools("explain", "-", stdin=text)
    assert done.returncode == 1
    assert "speculation-off" in done.stdout


def test_the_json_has_every_fact() -> None:
    assert list(get_type_hints(FactsJSON)) == [f.name for f in fields(Facts)]
    assert list(get_type_hints(CountsJSON)) == [f.name for f in fields(Counts)]
    json.dumps(asdict(log("deep-lv4.log")))


RUN: dict[str, Any] = {"schema": "gguftools.run/1", "drafter": "draft", "n_tokens": 9}
STEP: dict[str, Any] = {"tokens": [1, 2], "n_draft": 1, "n_verified": 1, "n_accepted": 1}
HOSTILE = {
    "empty": "",
    "blank": " \n",
    "prose": "It was a dark and stormy night.\n",
    "half an object": '{"schema": "gguftools.run/1", ',
    "a list": "[1, 2]",
    "another schema": '{"schema": "gguftools.doctor/1"}',
    "no schema": '{"a": 1}',
    "negative": json.dumps(RUN | {"n_tokens": -1}),
    "not finite": json.dumps(RUN | {"n_tokens": float("inf")}),
    "NaN": json.dumps(RUN | {"seconds_decode": float("nan")}),
    "a text for a number": json.dumps(RUN | {"n_draft": "9"}),
    "a yes for a number": json.dumps(RUN | {"n_draft": True}),
    "half a token": json.dumps(RUN | {"n_draft": 0.5}),
    "a number for a text": json.dumps(RUN | {"drafter": 3}),
    "no list": json.dumps(RUN | {"token_ids": 3}),
    "a list of lists": json.dumps(RUN | {"token_ids": [[3]]}),
    "turns of numbers": json.dumps({"schema": "gguftools.chat/1", "turns": [3]}),
    "an empty bench": json.dumps({"schema": "gguftools.bench/1"}),
    "very deep": "[" * 100_000,
    "a very long number": '{"schema": ' + "9" * 100_000 + "}",
    "timings of nothing": '{"timings": {"predicted_n": 0}}',
    "timings of nonsense": '{"timings": [1]}',
    "a reply without timings": '{"choices": []}',
    "a stream without timings": 'data: {"choices": []}\n\ndata: [DONE]\n',
    "metrics of another engine": "vllm:spec_decode_num_drafts_total 3\n",
    "metrics without drafts": "llamacpp:tokens_predicted_total 3\n",
    "a round that kept more": json.dumps(STEP | {"n_accepted": 5}),
    "a round that sent more": json.dumps(STEP | {"n_verified": 5}),
    "a trace with other lines": json.dumps(STEP) + "\nhello\n" + json.dumps(STEP),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_report_is_one_line_with_its_place(name: str) -> None:
    with pytest.raises(GGUFToolsError) as caught:
        parse(HOSTILE[name], "some/file")
    text = str(caught.value)
    assert text.startswith("some/file")
    assert "\n" not in text
    assert len(text) < 400
    assert caught.value.exit_code == 3


def test_a_file_that_cannot_be_read_is_exit_code_3(tmp_path: Path) -> None:
    model, binary, large = (tmp_path / name for name in ("m.gguf", "x.bin", "large.log"))
    model.write_bytes(b"GGUF\3\0\0\0")
    binary.write_bytes(b"srv  \0\1")
    with large.open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    for path in (model, binary, large, tmp_path, tmp_path / "absent"):
        done = gguftools("explain", path)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.count("\n") == 1
    with pytest.raises(SourceError, match="gguftools inspect"):
        read_facts(model)


def test_names_in_a_file_do_not_reach_the_terminal_as_they_are() -> None:
    evil = "\x1b[2J\u202ex;rm -rf ~"
    text = json.dumps({"schema": "gguftools.inspect/1", "path": evil, "mtp": {"state": "broken"}})
    done = gguftools("explain", "-", stdin=text)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "inspect 'x" not in done.stdout  # a name is one word of the command to copy
    assert "rm -rf ~'" in done.stdout


def test_a_trace_cut_off_in_its_last_line_is_read() -> None:
    step = STEP | {"seconds_draft": [0.1], "seconds_verify": 1.0, "drafter": "draft"}
    text = json.dumps(step) + "\n" + json.dumps(step)[:20]
    facts = parse(text, "trace")
    assert facts.drafted is not None
    assert facts.drafted.n_rounds == 1


LONG = {
    "times": "eval time = " * 90_000,
    "flags": "llama-server " + "-m " * 90_000,
    "one word": "x" * 900_000,
    "statistics": "statistics a: " * 60_000,
    "positions": "acc per pos = (" + "0, " * 90_000,
    "aborts": "GGML_ASSERT(" * 60_000,
    "experts": "tensor blk.1.ffn_exps " * 40_000,
    "lines": "slot print_timing: eval time = 1.00 ms / 1 tokens\n" * 20_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_log_of_any_shape_is_read_in_linear_time(name: str) -> None:
    started = time.process_time()
    parse("srv  load_model\n" + LONG[name], "log")
    assert time.process_time() - started < 5


# A pair that a real llama-server is started with, and what its log tells.
STARTED = {
    "drafts": (("target", "--spec-type", "draft-simple", "-md", "draft"), set()),
    "a stranger": (("target", "--spec-type", "draft-simple", "-md", "stranger"), {"vocabulary"}),
    "no head": (("hybrid", "--spec-type", "draft-mtp"), {"head-lost"}),
    "idle head": (("hybrid-mtp",), {"head-idle"}),
    "no type": (("target", "-md", "draft", "--spec-type", "none"), {"speculation-off"}),
}
OFF = {"vocabulary", "draft-refused", "head-lost", "start-failed", "head-idle", "speculation-off"}


@pytest.mark.skipif(llama_server() is None, reason="python -m scripts.llama_server builds one")
@pytest.mark.parametrize("name", STARTED)
def test_a_real_server_logs_what_is_read_here(name: str, models: dict[str, Path]) -> None:
    """The log of another run than the excerpts, at its most verbose and without time stamps."""
    binary = llama_server()
    assert binary is not None
    (target, *options), expected = STARTED[name]
    words = [str(models.get(word, word)) for word in options]
    outcome = ask(binary, models[target], *words, n_predict=64)
    facts = parse(outcome.log, "log")
    assert {cause.code for cause in explain([facts]).causes} & OFF == expected
    assert (facts.drafted is not None) == (outcome.what == "drafts")
    if facts.drafted is not None:
        assert facts.drafted.n_draft == outcome.n_drafted


ODD: list[Any] = [None, -1, 0, 1, 10**9, 0.5, 1e300, True, "", "x", [], [0], [None], {}, {"a": 1}]


def changed(value: Any) -> Iterator[Any]:
    """The value with each of its parts, at any depth, replaced by each odd thing."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items):
        inner = changed(part) if isinstance(part, dict | list) else iter(())
        for other in (*ODD, *inner):
            whole = value.copy()
            whole[key] = other
            yield whole


def survives(text: str) -> None:
    """It is read and explained, or it is an error of ours."""
    try:
        found = explain([parse(text, "file")])
    except GGUFToolsError:
        return
    json.dumps([cause.numbers for cause in found.causes], allow_nan=False)


def report(**known: Any) -> dict[str, Any]:
    """A run report as `run --json` prints it."""
    return {
        "schema": "gguftools.run/1", "drafter": "draft", "token_ids": [1, 2, 3], "n_prompt": 5,
        "settings": {"engine": "inprocess", "target": "t", "draft": "d", "temp": 0.0,
                     "draft_max": 2, "draft_min": 2, "draft_p_min": 0.0},
        "n_tokens": 9, "n_rounds": 4, "n_draft": 8, "n_accepted": 5, "seconds_prompt": 0.1,
        "seconds_decode": 2.0, "seconds_draft": 0.5, "seconds_verify": 1.4,
        "drafted_by_position": [4, 4], "accepted_by_position": [3, 2],
        "n_draft_histogram": {"2": 4}, **known,
    }  # fmt: skip


def test_no_value_in_a_report_is_a_crash() -> None:
    turn = report(prompt="x")
    step = STEP | {"seconds_draft": [0.1], "seconds_verify": 1.0, "drafter": "d", "confidence": [1]}
    candidate = {"draft": "d", "kind": "draft-mtp", "verdict": "poor", "reason": "x",
                 "prediction": {"speedup": 0.9, "acceptance": 0.3, "break_even_acceptance": 0.5},
                 "memory": {"fits": False, "reason": "x", "n_ctx_max": 9}}  # fmt: skip
    for base in (
        report(),
        {"schema": "gguftools.chat/1", "target": "t", "turns": [turn]},
        {"schema": "gguftools.pair/1", "target": "t", "candidates": [candidate]},
        {"schema": "gguftools.inspect/1", "path": "p", "mtp": {"state": "broken", "reason": "r"}},
        json.loads((LOGS / "b11434-deep-reply.json").read_text()),
        step,
        json.loads(json.dumps(report_json(bench()))),
    ):
        survives(json.dumps(base))
        for value in changed(base):
            survives(json.dumps(value))


@pytest.mark.parametrize("path", sorted(LOGS.iterdir()), ids=lambda path: path.name)
def test_no_damage_to_a_file_is_a_crash(path: Path) -> None:
    rng = random.Random(path.name)
    whole = path.read_text()
    for _ in range(60):
        text = list(whole)
        for _ in range(rng.choice((1, 5, 40))):
            i = rng.randrange(len(text))
            text[i : i + rng.choice((0, 1, 9))] = rng.choice(
                ("0", "9" * 30, "-", "{", "\n", " ", "x")
            )
        survives("".join(text))
