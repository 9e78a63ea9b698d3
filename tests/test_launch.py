"""Command lines for the llama-server at hand: its flags as its --help lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguftools.pairing.launch import Launch, Settings, server_command
from gguftools.pairing.server_binary import find_server, flags_in, known_flags, read_server
from scripts.llama_server import llama_server

WHY = "no llama-server here: python -m scripts.llama_server builds one"

# The lay-out of both is llama-server's; the names before and after the renames of spring 2026.
NEW_HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from
                                        model)
-m,    --model FNAME                    model path to load
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM
--spec-type none,draft-simple,draft-mtp,ngram-mod
                                        comma-separated list of types of speculative decoding
--spec-draft-n-max N                    number of tokens to draft (default: 3)
--spec-draft-n-min N                    minimum number of draft tokens (default: 0)
--spec-draft-p-min, --draft-p-min P     minimum speculative decoding probability (default: 0.00)
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
-md,   --spec-draft-model, --model-draft FNAME
                                        draft model for speculative decoding
"""
OLD_HELP = """\
-c,    --ctx-size N                     size of the prompt context (default: 4096)
-m,    --model FNAME                    model path (default: `models/$filename`)
--draft-max, --draft, --draft-n N       number of tokens to draft for speculative decoding (default:
                                        16)
--draft-min, --draft-n-min N            minimum number of draft tokens (default: 0)
--draft-p-min P                         minimum speculative decoding probability (default: 0.8)
-md,   --model-draft FNAME              draft model for speculative decoding
"""
SETTINGS = Settings(4, 1, 0.5)


def _command(help_text: str, kind: str = "draft-simple") -> str:
    launch = Launch(n_ctx=8192, gpu=True, flags=flags_in(help_text))
    return server_command("t.gguf", "d.gguf", kind, SETTINGS, launch)


def test_flags_are_spelled_as_the_build_spells_them() -> None:
    assert _command(NEW_HELP) == (
        "llama-server -m t.gguf --spec-type draft-simple -c 8192 -ngl 99 -md d.gguf "
        "--spec-draft-n-max 4 --spec-draft-n-min 1 --spec-draft-p-min 0.5 -np 1"
    )
    assert _command(OLD_HELP) == (
        "llama-server -m t.gguf -c 8192 -md d.gguf "
        "--draft-max 4 --draft-min 1 --draft-p-min 0.5 -np 1"
    )


def test_without_a_server_the_flags_are_those_of_b11434() -> None:
    assert server_command("t.gguf", None, "draft-mtp", SETTINGS) == (
        "llama-server -m t.gguf --spec-type draft-mtp "
        "--spec-draft-n-max 4 --spec-draft-n-min 1 --spec-draft-p-min 0.5 -np 1"
    )


def test_a_removed_flag_is_no_flag() -> None:
    flags = flags_in(NEW_HELP)
    assert flags is not None
    assert "--draft-max" not in flags
    assert {"-md", "--model-draft", "--n-gpu-layers", "--draft-p-min"} <= flags


@pytest.mark.parametrize("text", ["", "usage: cat [OPTION]\n-n, --number\n", "\0" * 99])
def test_the_help_of_something_else_names_no_flags(text: str) -> None:
    assert flags_in(text) is None


def program(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_server_is_found_by_variable_then_by_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    on_path = program(tmp_path / "bin" / "llama-server", "cat <<'E'\n" + OLD_HELP + "E")
    named = program(tmp_path / "mine", "exit 1")
    environ = {"PATH": str(tmp_path / "bin")}
    assert find_server(environ) == on_path
    assert find_server({**environ, "LLAMA_SERVER": str(named)}) == named
    assert find_server({**environ, "LLAMA_SERVER": str(tmp_path / "absent")}) is None
    assert find_server({"PATH": str(tmp_path)}) is None
    assert known_flags(on_path) == flags_in(OLD_HELP)
    assert known_flags(named) is None


def test_the_environment_does_not_break_the_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = program(
        tmp_path / "server", f'[ -z "$LLAMA_ARG_DRAFT_MAX" ] && cat <<"E"\n{OLD_HELP}E'
    )
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "16")
    assert known_flags(server) == flags_in(OLD_HELP)


@pytest.mark.skipif(llama_server() is None, reason=WHY)
@pytest.mark.parametrize("kind", ["draft-simple", "draft-mtp", "ngram"])
def test_the_real_server_knows_every_flag_of_the_command(kind: str) -> None:
    binary = llama_server()
    assert binary is not None
    server = read_server(binary)
    assert server is not None
    assert {"draft-simple", "draft-mtp", "draft-eagle3", "ngram-mod"} <= set(server.types)
    assert "--draft-max" not in server.flags  # removed
    plain = server_command("t.gguf", "d.gguf", kind, SETTINGS, Launch(n_ctx=8192, gpu=True))
    spelled = Launch(n_ctx=8192, gpu=True, flags=server.flags)
    assert server_command("t.gguf", "d.gguf", kind, SETTINGS, spelled) == plain
