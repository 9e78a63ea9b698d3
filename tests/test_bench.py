"""`bench` on real llama.cpp: the arms are what they say, and the command shows and keeps them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gguftools.bench.arms import Asked, bench_session, way
from gguftools.bench.measure import Measuring
from gguftools.bench.prompt_set import Prompt, builtin_prompts
from gguftools.bench.report import PLAIN, Arm, BenchReport, load_report
from gguftools.cli.bench import exit_code
from gguftools.cli.contract_bench import BenchJSON
from gguftools.speculative.plan import Settings
from gguftools.speculative.reply import Reply
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session
from scripts.docs import json_schema
from scripts.llama_server import llama_server
from tests.commands import GGUFTOOLS, Terminal, gguftools, gguftools_apart
from tests.models.chain import acceptance, stationary
from tests.models.markov import N_VOCAB, perturbed, random_chain

ALL = Chain(temp=1, top_k=0, top_p=1, min_p=0)
PROMPTS = builtin_prompts()
QUICK = ("--raw", "-n", "16", "-c", "1024", "-t", "1", "--temp", "0")
needs_server = pytest.mark.skipif(llama_server() is None, reason="no llama-server was built")


def parsed(output: str) -> dict[str, Any]:
    """One object that fits the schema."""
    value: dict[str, Any] = json.loads(output)
    jsonschema.validate(value, json_schema(BenchJSON))
    return value


@pytest.fixture(scope="module")
def session(models: dict[str, Path]) -> Any:
    settings = Settings(models["target"], models["draft"], "draft", n_ctx=1024, chain=ALL, seed=3,
                        n_threads=1)  # fmt: skip
    with open_session(settings) as opened:
        yield opened


def _bench(session: Session, lengths: tuple[int | None, ...], n_runs: int, n: int) -> BenchReport:
    asked = Asked(lengths, 8, 0, True, "own")
    return bench_session(session, asked, Measuring(PROMPTS, n_runs, n, lambda done, total: None))


def _arm(report: BenchReport, name: str) -> Arm:
    return next(arm for arm in report.arms if arm.name == name)


# -- the arms


def test_arms_draft_as_long_as_their_names_say(session: Session) -> None:
    engine = session.engine
    report = _bench(session, (0, 1, 3, None, 99), 3, 24)
    assert session.engine is engine
    assert [arm.name for arm in report.arms] == [PLAIN, "fixed-1", "fixed-3", "adaptive"]
    assert any("not measured: 99" in note for note in report.notes)
    for run in _arm(report, PLAIN).runs:
        assert (run.drafter, run.n_draft, run.by_drafter) == ("none", 0, {})
    for name, n in (("fixed-1", 1), ("fixed-3", 3)):
        for run in _arm(report, name).runs:
            # The last rounds of a reply have less room.
            assert run.n_draft_histogram[n] >= run.n_rounds - n
            assert max(run.n_draft_histogram) == n
    assert max(max(r.n_draft_histogram) for r in _arm(report, "adaptive").runs) <= 8
    assert {run.prompt for arm in report.arms for run in arm.runs} == {p.name for p in PROMPTS[:3]}


def test_acceptance_is_that_of_the_chain(session: Session) -> None:
    p = random_chain(N_VOCAB, 1)
    on_paper = float(stationary(p) @ acceptance(p, perturbed(p, 0.2, 2)))
    arm = _arm(_bench(session, (0, 1), 8, 100), "fixed-1")
    assert arm.accepted_by_position[0] == pytest.approx(on_paper, abs=0.08)
    assert arm.acceptance == pytest.approx(arm.accepted_by_position[0])


def test_a_round_samples_the_same_text_again_and_every_arm_reads_the_prompt_anew(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies: list[Reply] = []
    make = session.reply

    def kept(*args: Any, **kwargs: Any) -> Reply:
        replies.append(make(*args, **kwargs))
        return replies[-1]

    monkeypatch.setattr(session, "reply", kept)
    prompt = Prompt("x", "", (("user", "abcdefgh" * 4),))
    runs = []
    for length in (0, 0, 2, 2):
        with way(session, length, draft_max=8, draft_min=0, raw=True).open() as answer:
            runs.append(answer(prompt, 5, 24))
    plain, again, drafted, as_well = runs
    assert (plain.text, drafted.text) == (again.text, as_well.text)
    for reply in replies[2:]:
        assert reply.steps[0].n_catch_up == len(reply.prompt_ids) - 1


def test_without_a_drafter_only_plain_is_measured(models: dict[str, Path]) -> None:
    settings = Settings(models["target"], drafter="none", n_ctx=1024, n_threads=1)
    with open_session(settings) as plain:
        report = _bench(plain, (0, 2, None), 2, 8)
    assert [arm.name for arm in report.arms] == [PLAIN]
    assert (report.verdict, report.best) == (None, PLAIN)
    assert exit_code(report) == 0


def test_lookup_before_a_model_has_the_same_length(models: dict[str, Path]) -> None:
    settings = Settings(models["target"], models["draft"], "draft", ngram_first=True, n_ctx=1024,
                        n_threads=1, chain=Chain(temp=0))  # fmt: skip
    with open_session(settings) as both:
        report = _bench(both, (0, 2, None), 2, 48)
    fixed = _arm(report, "fixed-2")
    assert {name for run in fixed.runs for name in run.by_drafter} == {"draft", "ngram"}
    assert max(max(run.n_draft_histogram) for run in fixed.runs) == 2
    assert _arm(report, PLAIN).acceptance is None


# -- the command


def test_exit_codes_say_gain_none_and_interrupted(session: Session) -> None:
    report = _bench(session, (0, 1), 1, 8)
    codes = [exit_code(replace(report, verdict=v)) for v in ("gain", "no-gain", "loss", None)]
    assert codes == [0, 1, 1, 0]
    assert exit_code(replace(report, verdict="gain", complete=False)) == 130


def test_the_report_is_json_that_can_be_read_again(models: dict[str, Path], tmp_path: Path) -> None:
    words = (models["target"], "-md", models["draft"], "--lengths", "0,2,adaptive", "--runs", "2")
    done = gguftools("bench", *words, "--json", *QUICK)
    assert done.returncode in (0, 1)
    found = parsed(done.stdout)
    assert [arm["name"] for arm in found["arms"]] == [PLAIN, "fixed-2", "adaptive"]
    assert found["arms"][1]["n_same"] == 2
    assert found["verdict"] == "no-gain"  # two runs show nothing
    assert found["builds"]["llama-cpp-python"]
    path = tmp_path / "report.json"
    path.write_text(done.stdout)
    assert load_report(path).arms[1].name == "fixed-2"


def test_the_text_has_arms_drafts_and_the_verdict(models: dict[str, Path], tmp_path: Path) -> None:
    plot = tmp_path / "speed.png"
    done = gguftools("bench", models["target"], "-md", models["draft"], "--lengths", "0,3,adaptive",
                     "--runs", "2", "--plot", plot, "--task", "code", "--task", "json",
                     *QUICK)  # fmt: skip
    assert done.returncode == 1
    for text in ("target.gguf, drafted by draft.gguf", "of plain", "fixed-3", "by position",
                 "4 of 4 drafted texts equal plain's", "first reply", "by task",
                 "gguftools-prompts/1 (code, json)",
                 "no gain can be shown"):  # fmt: skip
        assert text in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["--mtp", "--ngram"])
def test_every_drafter_can_be_measured(models: dict[str, Path], kind: str) -> None:
    done = gguftools("bench", models["hybrid-mtp"], kind, "--lengths", "0,1,adaptive", "--runs",
                     "1", "--json", *QUICK)  # fmt: skip
    assert parsed(done.stdout)["drafter"] == kind.removeprefix("--")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--lengths", "0,x"), 2, "neither a length from 0 to 64 nor adaptive"),
        (("--lengths", "65"), 2, "neither a length"),
        (("--task", "poetry"), 2, "no task is called 'poetry'"),
        (("--prompts", "absent.jsonl"), 3, "absent.jsonl: No such file"),
        (("--plot", "absent/x.png"), 3, "absent/x.png: no file can be written there"),
        (("--server", "x"), 2, "--server is for --engine server"),
        (("--api-key", "x"), 2, "--api-key is for --against"),
        (("--engine", "server", "--draft-max", "3"), 2, "bound an adaptive length"),
        (("--engine", "server", "--lengths", "adaptive"), 2, "cannot adapt"),
        (("--against", "http://127.0.0.1:9"), 3, "127.0.0.1:9"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    models: dict[str, Path], words: tuple[str, ...], code: int, said: str
) -> None:
    done = gguftools("bench", models["target"], "-md", models["draft"], *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plot_needs_matplotlib_before_anything_is_measured(models: dict[str, Path]) -> None:
    code = ("import sys; sys.modules['matplotlib'] = None; from gguftools.cli import main; "
            f"sys.exit(main(['bench', {str(models['target'])!r}, '--plot', 'x.png']))")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert 'pip install "gguftools[plot]"' in done.stderr


def test_ctrl_c_ends_with_what_is_measured(models: dict[str, Path]) -> None:
    words = ["bench", str(models["target"]), "-md", str(models["draft"]), "--runs", "100"]
    more = ["--raw", "-n", "200", "-c", "1024", "-t", "1", "--lengths", "0,1"]
    with Terminal([*GGUFTOOLS, *words, *more]) as terminal:
        terminal.wait_for("measuring")  # shown after the first second
        terminal.interrupt()
        assert terminal.end() == 130
    shown = terminal.shown.decode()
    assert "interrupted: these are the runs that were finished" in shown
    assert "fixed-1" in shown
    assert "Traceback" not in shown


# -- servers


@needs_server
def test_a_llama_server_is_started_for_every_length(models: dict[str, Path]) -> None:
    done = gguftools_apart(
        "bench", models["target"], "-md", models["draft"], "--engine", "server", "--server",
        llama_server(), "--lengths", "0,2", "--runs", "3", "--json", *QUICK,
    )  # fmt: skip
    found = parsed(done.stdout)
    assert done.returncode in (0, 1)
    assert [arm["name"] for arm in found["arms"]] == [PLAIN, "fixed-2"]
    assert found["drafter"] == "draft-simple"
    assert found["builds"]["llama-server"]
    assert [len(arm["runs"]) for arm in found["arms"]] == [3, 3]
    plain, fixed = found["arms"]
    assert plain["acceptance"] is None
    assert 0 < fixed["acceptance"] <= 1
    assert fixed["n_same"] == 3


@needs_server
def test_a_running_server_takes_its_turn(models: dict[str, Path]) -> None:
    from gguftools.server.command import Wanted, at_hand, server_argv
    from gguftools.server.process import start

    wanted = Wanted(target=models["target"], draft=None, kinds=(), settings=None, n_ctx=1024)
    command = server_argv(wanted, at_hand(str(llama_server())))
    with start(command, say=lambda text: None) as server:
        done = gguftools_apart("bench", models["target"], "-md", models["draft"], "--against",
                               server.url, "--lengths", "0,2", "--runs", "2", "--json",
                               *QUICK)  # fmt: skip
    found = parsed(done.stdout)
    name = server.url.removeprefix("http://")
    assert [arm["name"] for arm in found["arms"]] == [PLAIN, "fixed-2", name]
    assert found["arms"][2]["n_same"] == 2
    assert name in found["builds"]
