"""Verbs that read headers, exit codes, JSON, and what reaches a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguftools import __version__
from gguftools.cli import inspect, main, render
from tests.commands import GGUFTOOLS, gguftools, parsed, python, shown_by, unstyled
from tests.models.markov import N_VOCAB, random_chain, vocabulary, write_llama, write_qwen35

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u200b\r"


@pytest.fixture(scope="module")
def broken(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("broken") / "broken.gguf"
    chain = random_chain(N_VOCAB, 1)
    return write_qwen35(path, chain, drop=["blk.4.nextn.eh_proj.weight"])


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Escape sequences in its name, its path and its token texts."""
    texts = [f"{EVIL}{i}" if i > 9 else text for i, text in enumerate(vocabulary())]
    path = tmp_path_factory.mktemp("evil") / f"m{EVIL.replace('/', '')}.gguf"
    return write_llama(path, random_chain(N_VOCAB, 3), n_layer=1, texts=texts)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gguftools {__version__}\n"


@pytest.mark.parametrize("verb", ["inspect", "pair", "run", "chat", "completion"])
def test_help_of_every_verb_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "-h"]) == 0
    assert f"\n    gguftools {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["frobnicate"],
        ["inspect"],
        ["inspect", "a.gguf", "b.gguf"],
        ["inspect", "--bogus", "a.gguf"],
        ["pair"],
        ["pair", "a.gguf", "--task", "juggling"],
        ["pair", "a.gguf", "--temp", "-1"],
        ["pair", "a.gguf", "--device", "abacus"],
        ["run", "a.gguf", "-p", "x", "-f", "y"],
        ["run", "a.gguf", "-p", " "],
        ["run", "a.gguf", "-p", "x", "--raw", "--system", "y"],
        ["run", "a.gguf", "-p", "x", "--mtp", "--no-draft"],
        ["run", "a.gguf", "-p", "x", "--ngram", "--drafter", "none"],
        ["run", "a.gguf", "-p", "x", "--drafter", "ngram", "--draft", "b.gguf"],
        ["run", "a.gguf", "-p", "x", "--no-draft", "-md", "b.gguf"],
        ["run", "a.gguf", "-p", "x", "--drafter", "draft"],
        ["run", "a.gguf", "-p", "x", "--draft-max", "0"],
        ["run", "a.gguf", "-p", "x", "--draft-max", "2", "--draft-min", "3"],
        ["run", "a.gguf", "-p", "x", "--temp", "-1"],
        ["run", "a.gguf", "-p", "x", "--temp", "nan"],
        ["run", "a.gguf", "-p", "x", "--temp", "inf"],
        ["run", "a.gguf", "-p", "x", "--top-p", "1.5"],
        ["run", "a.gguf", "-p", "x", "-t", "0"],
        ["run", "a.gguf", "-p", "x", "-n", "0"],
        ["chat", "a.gguf", "--mtp", "--drafter", "ngram"],
        ["completion", "tcsh"],
    ],
)
def test_misuse_is_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("verb", [["inspect"], ["run", "-p", "x"], ["chat"], ["pair"]])
def test_what_cannot_be_read_is_3_and_one_line(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.gguf").write_text("hello " * 100)
    names = (
        ["text.gguf", "absent.gguf"] if verb == ["inspect"] else ["text.gguf", "absent.gguf", ""]
    )
    for name in names:
        assert main([*verb, str(tmp_path / name)]) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("gguftools: error: ")
        assert err.count("\n") == 1


def test_a_path_alone_means_inspect(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(models["target"])]) == 0
    alone = capsys.readouterr().out
    assert main(["inspect", str(models["target"])]) == 0
    assert alone == capsys.readouterr().out
    assert main(["absent.gguf"]) == 3


def test_inspect_tells_trunk_and_mtp_apart(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(models["hybrid-mtp"]), "--json"]) == 0
    report = parsed(capsys.readouterr().out, "inspect")
    assert (report["n_layer"], report["n_layer_all"]) == (4, 5)
    assert report["mtp"]["state"] == "complete"
    assert report["mtp"]["runnable"]
    assert report["n_bytes"] == models["hybrid-mtp"].stat().st_size
    assert report["bits_per_weight"] == 32
    assert sum(report["quant_types"]["head"].values()) == report["mtp"]["heads"][0]["n_bytes"]
    assert main(["inspect", str(models["hybrid-mtp"])]) == 0
    assert "4 and 1 for MTP" in capsys.readouterr().out


def test_inspect_of_every_kind_fits_the_schema(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {}
    for name, path in models.items():
        assert main(["inspect", str(path), "--json"]) == 0
        kinds[name] = parsed(capsys.readouterr().out, "inspect")["draft_kind"]
    assert kinds["target"] == "draft-simple"
    assert kinds["mtp-sidecar"] == "draft-mtp"


def test_inspect_of_a_broken_head_is_1_and_says_what_to_do(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(broken), "--json"]) == 1
    report = parsed(capsys.readouterr().out, "inspect")
    assert report["mtp"]["state"] == "broken"
    assert report["mtp"]["heads"][0]["missing"] == ["blk.4.nextn.eh_proj.weight"]
    worst = report["problems"][0]
    assert worst["severity"] == "error"
    assert worst["hint"]
    assert main(["inspect", str(broken)]) == 1
    out = capsys.readouterr().out
    assert worst["message"] in out
    assert worst["hint"] in out


def test_inspect_of_a_truncated_file_is_1(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(models["target"].read_bytes()[:-1000])
    assert main(["inspect", str(path)]) == 1
    assert "error: " in capsys.readouterr().out


@pytest.mark.parametrize("words", [["inspect", "EVIL"], ["EVIL"], ["pair", "TARGET", "EVIL"],
                                   ["run", "EVIL2", "-p", "x"], ["inspect", "--", "EVIL2"],
                                   ["run", "TARGET", "--draft", "EVIL", "-p", "x"]])  # fmt: skip
def test_nothing_from_a_file_reaches_a_terminal_as_a_command(
    words: list[str], models: dict[str, Path], evil: Path
) -> None:
    places = {"EVIL": str(evil), "EVIL2": f"{evil}{EVIL}", "TARGET": str(models["target"])}
    shown = unstyled(shown_by([*GGUFTOOLS, *(places.get(w, w) for w in words)]))
    assert "\\x1b]0;owned\\x07" in shown
    assert not set(shown) & set("\x1b\x07\x9b\u202e\u200b")


def test_markup_of_rich_is_not_interpreted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_llama(tmp_path / "[red]a[bold] :smile:.gguf", random_chain(N_VOCAB, 3))
    assert main(["inspect", str(path), "--color", "on"]) == 0
    assert "markov [red]a[bold] :smile:" in unstyled(capsys.readouterr().out)


def test_colour_is_off_in_a_pipe_and_with_no_color(models: dict[str, Path]) -> None:
    args = ["pair", str(models["target"]), str(models["draft"])]
    assert "\x1b[" in shown_by([*GGUFTOOLS, *args])
    assert "\x1b[" not in shown_by([*GGUFTOOLS, *args], {"NO_COLOR": "1"})
    assert "\x1b[" not in shown_by([*GGUFTOOLS, *args, "--color", "off"])
    assert "\x1b[" not in gguftools(*args).stdout
    assert "\x1b[" in gguftools(*args, "--color", "on").stdout


def test_a_stream_that_knows_only_ascii_gets_escapes(evil: Path) -> None:
    done = python("-m", "gguftools", "inspect", str(evil), env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()


LIGHT = [["--help"], ["inspect"], ["inspect", "--json"], ["pair", "--json"], ["run", "--help"]]


@pytest.mark.parametrize("verb", LIGHT, ids=" ".join)
def test_light_verbs_import_nothing_heavy(verb: list[str], models: dict[str, Path]) -> None:
    files = {"inspect": ["target"], "pair": ["target", "draft"]}.get(verb[0], [])
    heavy = ["llama_cpp", "huggingface_hub", "numpy", "gguf", "jinja2", "prompt_toolkit"]
    if "--json" in verb:
        heavy.append("rich")
    code = (
        "import sys; from gguftools.cli import main; code = main(sys.argv[1:]);"
        f"print(*(m for m in {heavy} if m in sys.modules), end='', file=sys.stderr); sys.exit(code)"
    )
    done = python("-c", code, *verb, *(str(models[name]) for name in files))
    assert (done.returncode, done.stderr) == (int(verb[0] == "pair"), "")


def test_without_the_run_extra_a_line_says_what_to_install(models: dict[str, Path]) -> None:
    code = (
        "import sys; sys.modules['llama_cpp'] = None; from gguftools.cli import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = python("-c", code, "run", str(models["target"]), "-p", "x")
    assert done.returncode == 3
    assert done.stderr == (
        "gguftools: error: llama-cpp-python is not installed "
        '(pip install "gguftools[run]")\n'
    )  # fmt: skip


def test_a_traceback_is_shown_only_to_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for debug, shown in (("", False), ("1", True)):
        monkeypatch.setenv("GGUFTOOLS_DEBUG", debug)
        assert main(["inspect", "absent.gguf"]) == 3
        assert ("Traceback" in capsys.readouterr().err) == shown


def test_a_bug_is_not_a_no(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path) -> None:
        raise ValueError("surprise")

    monkeypatch.setattr(inspect, "open_gguf", fail)
    assert main(["inspect", str(models["target"])]) == 3
    assert capsys.readouterr().err == (
        "gguftools: error: unexpected ValueError: surprise; this is a bug\n"
    )  # fmt: skip


def test_a_closed_pipe_is_no_error(models: dict[str, Path]) -> None:
    code = (
        "import os, sys; from gguftools.cli import main; read, write = os.pipe(); os.close(read);"
        "os.dup2(write, 1); code = main(sys.argv[1:]); sys.stdout.flush(); sys.exit(code)"
    )
    for words in (["inspect"], ["inspect", "--json"]):
        done = python("-c", code, *words, str(models["target"]))
        assert (done.returncode, done.stderr) == (141, "")


def test_a_shell_completes_verbs() -> None:
    words = {
        "_GGUFTOOLS_COMPLETE": "bash_complete",
        "COMP_WORDS": "gguftools in",
        "COMP_CWORD": "1",
    }
    assert python("-m", "gguftools", env=words).stdout == "plain,inspect\n"


def test_completion_prints_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert "_GGUFTOOLS_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e9\u4e2d \U0001f600", "plain \u00e9\u4e2d \U0001f600"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31m\x7f\x9b", "\\x1b[31m\\x7f\\x9b"),
        ("\u202e\u2066\u200b\u2028\ufeff\u3164", "\\u202e\\u2066\\u200b\\u2028\\ufeff\\u3164"),
        ("\udc80\U000e0041", "\\udc80\\U000e0041"),
    ],
)
def test_foreign_text_is_one_visible_line(text: str, shown: str) -> None:
    assert render.printable(text) == shown


def test_long_foreign_text_is_cut() -> None:
    assert len(render.printable("x" * 10**7)) < 5000


def test_a_reply_keeps_its_lines_but_commands_nothing() -> None:
    joined = "\U0001f468\u200d\U0001f469 \u0645\u06cc\u200c"  # needs its joiners
    assert render.stream_text(f"a\n\tb{joined}") == f"a\n\tb{joined}"
    assert render.stream_text("\x1b[2J\r\x07\x9b\u202e") == "\\x1b[2J\\r\\x07\\x9b\\u202e"


@pytest.mark.parametrize(
    ("n", "shown"),
    [(0, "0 B"), (999, "999 B"), (98362432, "98.36 MB"), (253_100_000, "253.1 MB"),
     (10**12, "1 TB"), (None, "?")],
)  # fmt: skip
def test_sizes_are_decimal(n: int | None, shown: str) -> None:
    assert render.n_bytes(n) == shown
