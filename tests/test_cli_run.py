"""`run` and `chat` on real llama.cpp, each in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.commands import (
    ENTERED,
    GGUFTOOLS,
    PROMPT,
    Terminal,
    gguftools,
    gguftools_apart,
    python,
    shown_by,
    unstyled,
)
from tests.models.markov import N_VOCAB, random_chain, vocabulary, write_llama
from tests.models.vocabulary import EOS, IM_END

SCHEMAS = Path(__file__).resolve().parent.parent / "docs" / "schemas"
QUICK = ["-t", "1", "--temp", "0"]
ESC_BYTE, RLO = "\u011b", "\u00e2\u0122\u00ae"  # the bytes of ESC and of U+202E in GPT-2's alphabet


def parsed(output: str, verb: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(output)
    jsonschema.validate(value, json.loads((SCHEMAS / f"{verb}.json").read_text()))
    return value


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never ends a reply, and has room for a long one."""
    chain = random_chain(N_VOCAB, 5)
    chain[:, [EOS, IM_END]] = 0
    chain /= chain.sum(axis=1, keepdims=True)
    path = tmp_path_factory.mktemp("endless") / "endless.gguf"
    return write_llama(path, chain, n_layer=8, n_ctx_train=1 << 17)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes ESC, then the override of the writing direction, again and again."""
    texts = vocabulary()
    texts[12], texts[13] = ESC_BYTE, RLO
    chain = np.full((N_VOCAB, N_VOCAB), 1e-6)
    chain[:, 12] = 1
    chain[12, 12], chain[12, 13] = 1e-6, 1
    chain /= chain.sum(axis=1, keepdims=True)
    path = tmp_path_factory.mktemp("hostile") / "hostile.gguf"
    return write_llama(path, chain, n_layer=1, texts=texts)


def test_every_drafter_writes_the_greedy_text_of_plain_decoding(models: dict[str, Path]) -> None:
    arms: dict[str, list[object]] = {
        "none": ["--no-draft"],
        "draft": ["--draft", models["draft"]],
        "ngram": ["--ngram"],
        "draft+ngram": ["--ngram", "--draft", models["draft"]],
    }
    texts = {}
    for name, drafter in arms.items():
        done = gguftools(
            "run", models["target"], *drafter, *QUICK, "-p", "abc", "-n", "60", "--json"
        )
        assert (done.returncode, done.stderr) == (0, "")
        report = parsed(done.stdout, "run")
        assert (report["drafter"], report["n_tokens"]) == (name, 60)
        assert len(report["token_ids"]) == 60
        texts[name] = report["text"]
    assert len(set(texts.values())) == 1


def test_auto_takes_the_mtp_head_and_n_gram_lookup_where_there_is_none(
    models: dict[str, Path],
) -> None:
    for name, drafter in (("hybrid-mtp", "mtp"), ("hybrid", "ngram")):
        done = gguftools("run", models[name], *QUICK, "-p", "abc", "-n", "8", "--json")
        assert parsed(done.stdout, "run")["drafter"] == drafter


def test_text_streams_to_stdout_and_numbers_to_stderr(models: dict[str, Path]) -> None:
    args = ["run", models["target"], *QUICK, "--ngram", "-p", "abc", "-n", "40"]
    plain, told = gguftools(*args), gguftools(*args, "--stats")
    assert plain.stdout == told.stdout
    assert plain.stderr == ""
    assert "tokens/s, 40 tokens in" in told.stderr
    report = parsed(gguftools(*args, "--json").stdout, "run")
    assert plain.stdout.removesuffix("\n") == report["text"].removesuffix("\n")


def test_the_prompt_comes_from_an_option_a_file_or_a_pipe(
    models: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("abc\n")
    common = ["run", models["target"], *QUICK, "-n", "12"]
    given = gguftools(*common, "-p", "abc").stdout
    assert gguftools(*common, "-f", file).stdout == given
    assert gguftools(*common, "-f", "-", stdin="abc\n").stdout == given
    assert gguftools(*common, stdin="abc\n").stdout == given
    assert gguftools(*common, stdin="").returncode == 2
    assert gguftools(*common, "-f", tmp_path / "absent.txt").returncode == 3
    file.write_bytes(b"\xff\xfe")
    assert gguftools(*common, "-f", file).returncode == 3


def test_raw_sends_the_prompt_alone(models: dict[str, Path]) -> None:
    common = ["run", models["target"], *QUICK, "-n", "4", "-p", "abc", "--json"]
    raw = parsed(gguftools(*common, "--raw").stdout, "run")
    chat = parsed(gguftools(*common).stdout, "run")
    both = parsed(gguftools(*common, "--system", "abc").stdout, "run")
    assert raw["n_prompt"] == 3
    assert 3 < chat["n_prompt"] < both["n_prompt"]


@pytest.mark.parametrize(
    "args",
    [
        ["target", "--draft", "stranger"],
        ["target", "--mtp"],
        ["target", "--mtp", "--draft", "draft"],
        ["target", "--draft", "mtp-sidecar"],
        ["mtp-sidecar", "--no-draft"],
    ],
)
def test_what_llama_cpp_would_abort_on_is_1_and_one_line(
    args: list[str], models: dict[str, Path]
) -> None:
    words = [str(models.get(word, word)) for word in args]
    done = gguftools_apart("run", *words, "-p", "x", "-n", "4", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gguftools: error: ")
    assert done.stderr.count("\n") == 1


def test_a_prompt_longer_than_the_context_is_misuse(models: dict[str, Path]) -> None:
    done = gguftools("run", models["target"], "-c", "256", "-p", "abc " * 100)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_reply_cannot_command_the_terminal(hostile: Path) -> None:
    run = ["run", str(hostile), *QUICK, "-p", "x", "-n", "4"]
    report = parsed(gguftools(*run, "--json").stdout, "run")
    assert report["text"] == "\x1b\u202e\x1b\u202e"
    shown = shown_by([*GGUFTOOLS, *run])
    assert "\\x1b\\u202e\\x1b\\u202e" in shown
    assert not set(unstyled(shown)) & set("\x1b\u202e")
    assert "\x1b" not in gguftools(*run).stdout


def test_drafted_text_is_coloured_on_request(models: dict[str, Path]) -> None:
    run = [*GGUFTOOLS, "run", str(models["target"]), *QUICK, "-p", "abc", "-n", "60"]
    run += ["--ngram", "--no-stats"]
    plain = shown_by(run)
    assert "\x1b[" not in plain
    coloured = shown_by([*run, "--show-drafts"])
    assert "\x1b[36m" in coloured
    assert unstyled(coloured) == plain


def test_ctrl_c_ends_a_run_with_130_and_shows_what_there_is(endless: Path) -> None:
    with Terminal([*GGUFTOOLS, "run", str(endless), "-p", "abc", "--no-draft", "-t", "1"]) as run:
        run.wait_for("e")
        run.interrupt()
        assert run.end() == 130
        assert b"tokens/s" in run.shown
        assert b"Traceback" not in run.shown


def test_ctrl_c_ends_a_reply_and_the_chat_goes_on(endless: Path) -> None:
    chat = [*GGUFTOOLS, "chat", str(endless), "--no-draft", "-t", "1"]
    with Terminal(chat) as terminal:
        seen = terminal.wait_for(PROMPT)
        for _ in range(2):
            terminal.send("abc\r")
            seen = terminal.wait_for("e", after=terminal.wait_for(ENTERED, after=seen))
            terminal.interrupt()
            seen = terminal.wait_for(PROMPT, after=terminal.wait_for("tokens/s", after=seen))
        terminal.send("\x03")
        seen = terminal.wait_for(PROMPT, after=terminal.wait_for("Ctrl-C again", after=seen))
        terminal.send("/exit\r")
        assert terminal.end() == 0
        assert b"Traceback" not in terminal.shown


def test_ctrl_c_twice_and_ctrl_d_leave_a_chat(models: dict[str, Path]) -> None:
    for keys, code in ((["\x03", "\x03"], 130), (["\x04"], 0)):
        with Terminal([*GGUFTOOLS, "chat", str(models["target"]), "-t", "1"]) as terminal:
            seen = 0
            for key in keys:
                seen = terminal.wait_for(PROMPT, after=seen)
                terminal.send(key)
            assert terminal.end() == code


def test_a_piped_chat_answers_line_by_line(models: dict[str, Path]) -> None:
    lines = "abc\n/stats\n/regen\n/clear\nabc\n/nonsense\n/help\n/exit\nnever\n"
    done = gguftools("chat", models["target"], *QUICK, "-n", "10", stdin=lines)
    assert done.returncode == 0
    assert done.stderr.count("tokens/s") == 3
    assert "no such command: /nonsense" in done.stderr
    assert "prompt        22 tokens" in done.stdout
    answers = [line for line in done.stdout.splitlines() if line]
    assert "/help" in done.stderr
    assert len(answers) > 3


def test_a_chat_prints_its_turns_as_json(models: dict[str, Path]) -> None:
    lines = "abc\n/regen\ndef\n/clear\nabc\n"
    done = gguftools("chat", models["target"], *QUICK, "-n", "10", "--json", stdin=lines)
    assert done.returncode == 0
    turns = parsed(done.stdout, "chat")["turns"]
    assert [turn["prompt"] for turn in turns] == ["abc", "abc", "def", "abc"]
    assert turns[0]["token_ids"] == turns[1]["token_ids"] == turns[3]["token_ids"]
    assert turns[2]["n_prompt"] > turns[0]["n_prompt"] == turns[3]["n_prompt"]


def test_a_chat_without_target_or_demo_model_says_what_to_install() -> None:
    code = (
        "import sys; import gguftools.cli.chat as c; c.installed_file = lambda source: None;"
        "from gguftools.cli import main; sys.exit(main(['chat']))"
    )
    done = python("-c", code)
    assert done.returncode == 2
    assert 'pip install "gguftools[demo]"' in done.stderr
