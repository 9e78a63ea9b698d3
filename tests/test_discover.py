"""discover(): what users have on their disks, and what somebody may have put there."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gguftools.gguf.source import open_gguf
from gguftools.pairing import discover as module
from gguftools.pairing.compatibility import check_pair
from gguftools.pairing.discover import BESIDE, NEAR, Candidate, Discovery, discover
from gguftools.pairing.folders import Limits, Search
from gguftools.pairing.stores import Places, hub_cache, llama_cache, lm_studio_folders

SYSTEMS = ("linux", "darwin", "win32")
MODEL, DRAFT, PROJECTOR, ADAPTER = (
    f"application/vnd.ollama.image.{kind}" for kind in ("model", "draft", "projector", "adapter")
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def put(path: Path, content: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def found(
    home: Path, target: Path | None = None, *folders: Path, limits: Limits | None = None,
    system: str = "linux", env: Mapping[str, str] | None = None,
) -> Discovery:  # fmt: skip
    places = Places(system, home, env or {}, root=home.parent / "root")
    return discover(target, folders=folders, places=places, limits=limits or Limits())


def names(discovery: Discovery, origin: str | None = None) -> list[str]:
    return [c.name for c in discovery.candidates if origin in (None, c.origin)]


# Beside the target.


def test_the_targets_folder_and_the_folders_in_it(home: Path) -> None:
    target = put(home / "models" / "big.gguf")
    put(home / "models" / "small.gguf")
    put(home / "models" / "mtp" / "mtp-big.gguf")
    put(home / "models" / "mtp" / "deeper" / "unrelated.gguf")
    put(home / "models" / "SHOUTED.GGUF")
    put(home / "models" / "readme.md")
    put(home / "models" / "half.gguf.part")
    assert names(found(home, target)) == ["SHOUTED.GGUF", "small.gguf", "mtp/mtp-big.gguf"]


def test_the_target_is_no_candidate_under_any_of_its_names(home: Path) -> None:
    target = put(home / "models" / "big.gguf")
    os.link(target, home / "models" / "hard.gguf")
    (home / "models" / "soft.gguf").symlink_to(target)
    assert not found(home, target).candidates
    assert not found(home, home / "models" / "soft.gguf").candidates


def test_a_split_target_is_no_candidate_whichever_shard_is_named(home: Path) -> None:
    shards = [put(home / f"m/big-Q4_K_M-0000{i}-of-00003.gguf") for i in (1, 2, 3)]
    for shard in shards:
        assert not found(home, shard).candidates


def test_a_split_model_is_one_candidate_with_the_bytes_of_all_shards(home: Path) -> None:
    target = put(home / "m" / "big.gguf")
    for i in (1, 2, 3):
        put(home / f"m/small-0000{i}-of-00003.gguf", b"x" * i)
    put(home / "m/rest-00002-of-00002.gguf")  # its first shard is missing
    path = home / "m/small-00001-of-00003.gguf"
    assert found(home, target).candidates == (Candidate(path, BESIDE, path.name, 6),)


def test_projectors_and_the_files_of_macos_are_ignored(home: Path) -> None:
    target = put(home / "m" / "big.gguf")
    for name in ("mmproj-F16.gguf", "big.mmproj-q8_0.gguf", "MMPROJ.gguf", "._small.gguf"):
        put(home / "m" / name)
    assert not found(home, target).candidates


def test_a_relative_target_gives_relative_paths(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home / "m" / "big.gguf")
    put(home / "m" / "small.gguf")
    monkeypatch.chdir(home / "m")
    assert [c.path for c in found(home, Path("big.gguf")).candidates] == [Path("small.gguf")]


def test_a_linked_target_has_the_neighbours_of_both_places(home: Path) -> None:
    put(home / "disk" / "big.gguf")
    put(home / "disk" / "small.gguf")
    put(home / "m" / "tiny.gguf")
    (home / "m" / "big.gguf").symlink_to(home / "disk" / "big.gguf")
    assert sorted(names(found(home, home / "m" / "big.gguf"))) == ["small.gguf", "tiny.gguf"]


@pytest.mark.parametrize(
    ("target", "neighbour"),
    [
        ("Qwen3-32B-GGUF/Qwen3-32B-Q4_K_M.gguf", "Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf"),
        ("lab/Big-GGUF/Big.Q4_K_M.gguf", "lab/Small-GGUF/Small.Q8_0.gguf"),
        ("Big-GGUF/Q4_K_M/Big-Q4_K_M-00001-of-00002.gguf", "Small-GGUF/Q8_0/Small-Q8_0.gguf"),
    ],
)
def test_where_each_model_has_a_folder_the_neighbours_are_looked_at(
    home: Path, target: str, neighbour: str
) -> None:
    root = home / "models"
    path = put(root / target)
    put(path.with_name(path.name.replace("Q4_K_M", "Q6_K")))  # another quantization of it
    put(path.with_name("mtp-" + path.name))
    put(root / neighbour)
    near = [c.path for c in found(home, path).candidates if c.origin == NEAR]
    assert near == [root / neighbour]


def test_where_a_folder_holds_many_models_its_neighbours_are_not(home: Path) -> None:
    target = put(home / "work" / "models" / "big-Q4_0.gguf")
    put(home / "work" / "models" / "small-Q8_0.gguf")
    put(home / "work" / "other" / "unrelated.gguf")
    assert names(found(home, target)) == ["small-Q8_0.gguf"]


def test_the_home_folder_is_never_looked_through(home: Path) -> None:
    target = put(home / "models" / "big.gguf")
    put(home / "unrelated.gguf")
    put(home / "documents" / "unrelated.gguf")
    assert not found(home, target).candidates
    assert not found(home.parent / "elsewhere", put(home.parent / "elsewhere/x.gguf")).candidates


# Folders given.


def test_given_folders_are_looked_through(home: Path) -> None:
    folder = home / "disk"
    put(folder / "a.gguf")
    put(folder / "lab" / "model" / "Q8_0" / "b.gguf")
    put(folder / ".trash" / "c.gguf")
    discovery = found(home, None, folder)
    assert names(discovery, f"--in {folder}") == ["a.gguf", "lab/model/Q8_0/b.gguf"]
    assert not discovery.notes


def test_a_file_reached_twice_is_listed_once(home: Path) -> None:
    target = put(home / "m" / "big.gguf")
    small = put(home / "m" / "small.gguf")
    os.link(small, home / "m" / "again.gguf")
    put(home / "other" / "x").unlink()
    (home / "other" / "link.gguf").symlink_to(small)
    (home / "other" / "m").symlink_to(home / "m")
    discovery = found(home, target, home / "other", home / "m", home)
    assert names(discovery) == ["again.gguf"]


def test_loops_of_links_end(home: Path) -> None:
    folder = home / "loop"
    put(folder / "a" / "x.gguf")
    for i in range(20):
        (folder / "a" / f"up{i}").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    (folder / "y.gguf").symlink_to(folder / "z.gguf")
    (folder / "z.gguf").symlink_to(folder / "y.gguf")
    discovery = found(home, None, folder)
    assert names(discovery) == ["a/x.gguf"]
    assert not discovery.notes


def test_a_folder_that_is_none_is_said(home: Path) -> None:
    file = put(home / "x.gguf")
    notes = found(home, None, home / "none", file).notes
    assert notes == (f"{home / 'none'}: no such folder", f"{file}: not a folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder_is_said(home: Path) -> None:
    put(home / "m" / "shut" / "x.gguf")
    put(home / "m" / "y.gguf")
    (home / "m" / "shut").chmod(0)
    discovery = found(home, None, home / "m")
    (home / "m" / "shut").chmod(0o700)
    assert names(discovery) == ["y.gguf"]
    assert discovery.notes == (f"{home / 'm' / 'shut'} cannot be read: Permission denied",)


def test_a_folder_that_cannot_be_listed_is_said(home: Path) -> None:
    (home / ".ollama").mkdir(parents=True)
    put(home / ".ollama" / "models" / "manifests", b"a file")
    notes = found(home).notes
    assert notes == (f"{home}/.ollama/models/manifests cannot be read: Not a directory",)


def test_pipes_sockets_and_folders_are_no_models_and_nothing_waits(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = put(home / "m" / "big.gguf")
    os.mkfifo(home / "m" / "pipe.gguf")
    (home / "m" / "link.gguf").symlink_to(home / "m" / "pipe.gguf")
    (home / "m" / "folder.gguf").mkdir()
    monkeypatch.chdir(home / "m")
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket.gguf")
    os.mkfifo(home / ".lmstudio-home-pointer")
    (home / ".lmstudio").mkdir()
    os.mkfifo(home / ".lmstudio" / "settings.json")
    tags = home / ".ollama" / "models" / "manifests" / "registry.ollama.ai" / "library" / "x"
    tags.mkdir(parents=True)
    os.mkfifo(tags / "latest")
    discovery = found(home, target)
    server.close()
    assert discovery == Discovery(())


@pytest.mark.parametrize("name", [b"\x1b]0;owned\x07.gguf", b"\xff\xfe.gguf", b"a\nb.gguf"])
def test_any_name_is_a_name(home: Path, name: bytes) -> None:
    put(home / "m" / "x").unlink()
    path = os.path.join(os.fsencode(home / "m"), name)
    Path(os.fsdecode(path)).write_bytes(b"GGUF")
    assert [os.fsencode(c.path) for c in found(home, None, home / "m").candidates] == [path]


# Bounds.


def test_a_search_ends_after_so_many_entries_and_says_so(home: Path) -> None:
    for i in range(50):
        put(home / "m" / f"{i}.gguf")
    discovery = found(home, None, home / "m", limits=Limits(n_entries=20))
    assert len(discovery.candidates) == 20
    assert "stopped in" in discovery.notes[0]
    assert "after 21 entries" in discovery.notes[0]
    assert not found(home, None, home / "m", limits=Limits(n_entries=50)).notes


def test_a_search_ends_after_so_many_seconds_and_says_so(home: Path) -> None:
    def ticks() -> Iterator[float]:
        yield 0.0
        while True:
            yield 0.5
            yield 9.0

    for i in range(5):
        put(home / "m" / f"{i}.gguf")
    search = Search(Limits(seconds=1.0), ticks().__next__)
    assert len(list(search.models(home / "m"))) == 1
    assert search.cut_at == home / "m"


def test_a_search_goes_only_so_deep(home: Path) -> None:
    put(home / "m" / "1" / "2" / "x.gguf")
    put(home / "m" / "1" / "2" / "3" / "y.gguf")
    assert names(found(home, None, home / "m", limits=Limits(depth=2))) == ["1/2/x.gguf"]


def test_so_many_candidates_and_no_more(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_CANDIDATES_MAX", 3)
    for i in range(5):
        put(home / "m" / f"{i}.gguf")
    discovery = found(home, None, home / "m")
    assert names(discovery) == ["0.gguf", "1.gguf", "2.gguf"]
    assert discovery.notes[0].startswith("2 more models were found and are not listed")


# Stores.


def snapshot(
    cache: Path, repository: str, file: str, *, commit: str = "c1", blob: str = ""
) -> Path:
    """A file as huggingface_hub caches it: a link to a blob; without `blob` a copy (Windows)."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    path = folder / "snapshots" / commit / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if blob:
        put(folder / "blobs" / blob)
        path.symlink_to(os.path.relpath(folder / "blobs" / blob, path.parent))
    else:
        put(path)
    return path


@pytest.mark.parametrize(
    ("env", "cache"),
    [
        ({}, ".cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/huggingface/hub"),
        ({"XDG_CACHE_HOME": "xdg", "HF_HOME": "hf"}, "hf/hub"),
        ({"HF_HOME": "hf", "HF_HUB_CACHE": "hub"}, "hub"),
        ({"HF_HOME": "hf", "HUGGINGFACE_HUB_CACHE": "old"}, "old"),
        ({"HF_HOME": ""}, ".cache/huggingface/hub"),
        ({"HF_HOME": "~/hf"}, "hf/hub"),
    ],
)
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_hugging_face_cache(home: Path, system: str, env: dict[str, str], cache: str) -> None:
    def absolute(value: str) -> str:
        return str(home / value) if value and value[0] != "~" else value

    env = {key: absolute(value) for key, value in env.items()}
    assert hub_cache(Places(system, home, env)) == home / cache
    snapshot(home / cache, "lab/Small-GGUF", "Small-Q8_0.gguf", blob="a" * 64)
    snapshot(home / cache, "lab/Small-GGUF", "Q4/Small-00001-of-00002.gguf", blob="b" * 64)
    snapshot(home / cache, "lab/copied", "copy.gguf")
    snapshot(home / cache, "lab/Small-GGUF", "mmproj-F16.gguf", blob="c" * 64)
    put(home / cache / "datasets--lab--x" / "snapshots" / "c1" / "data.gguf")
    put(home / cache / "models--lab--copied" / "blobs" / "d.gguf")
    assert names(found(home, system=system, env=env), "Hugging Face cache") == [
        "lab/Small-GGUF/Small-Q8_0.gguf",
        "lab/copied/copy.gguf",
        "lab/Small-GGUF/Q4/Small-00001-of-00002.gguf",
    ]


def test_a_blob_of_two_snapshots_is_listed_once(home: Path) -> None:
    cache = home / ".cache" / "huggingface" / "hub"
    for commit in ("c1", "c2"):
        snapshot(cache, "lab/x", "x.gguf", commit=commit, blob="a" * 64)
    snapshot(cache, "lab/x", "gone.gguf", blob="b" * 64)
    (cache / "models--lab--x" / "blobs" / ("b" * 64)).unlink()
    assert names(found(home)) == ["lab/x/x.gguf"]


def test_a_target_in_the_cache_has_the_rest_of_its_snapshot_beside_it(home: Path) -> None:
    cache = home / ".cache" / "huggingface" / "hub"
    target = snapshot(cache, "lab/big-GGUF", "big-Q4_0.gguf", blob="a" * 64)
    snapshot(cache, "lab/big-GGUF", "mtp-big-Q8_0.gguf", blob="b" * 64)
    snapshot(cache, "lab/small-GGUF", "small.gguf", blob="c" * 64)
    assert [(c.name, c.origin) for c in found(home, target).candidates] == [
        ("mtp-big-Q8_0.gguf", BESIDE),
        ("lab/small-GGUF/small.gguf", "Hugging Face cache"),
    ]


@pytest.mark.parametrize(
    ("system", "env", "cache"),
    [
        ("linux", {}, ".cache/llama.cpp"),
        ("freebsd14", {}, ".cache/llama.cpp"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/llama.cpp"),
        ("darwin", {"XDG_CACHE_HOME": "xdg"}, "Library/Caches/llama.cpp"),
        ("win32", {"LOCALAPPDATA": "Local"}, "Local/llama.cpp"),
        ("win32", {}, "AppData/Local/llama.cpp"),
        ("linux", {"LLAMA_CACHE": "own"}, "own"),
        ("win32", {"LLAMA_CACHE": "own", "LOCALAPPDATA": "Local"}, "own"),
    ],
)
def test_the_llama_cpp_cache(home: Path, system: str, env: dict[str, str], cache: str) -> None:
    env = {key: str(home / value) for key, value in env.items()}
    assert llama_cache(Places(system, home, env)) == home / cache
    put(home / cache / "lab_small-GGUF_small-q8_0.gguf")
    put(home / cache / "lab_small-GGUF_small-q8_0.gguf.json")
    snapshot(home / cache, "lab/new", "new.gguf", blob="a" * 64)  # newer builds
    assert names(found(home, system=system, env=env), "llama.cpp cache") == [
        "lab_small-GGUF_small-q8_0.gguf",
        "lab/new/new.gguf",
    ]


def test_lm_studio_in_its_homes(home: Path) -> None:
    put(home / ".lmstudio" / "models" / "lab" / "small-GGUF" / "small.gguf")
    put(home / ".cache" / "lm-studio" / "models" / "lab" / "old-GGUF" / "old.gguf")
    put(home / "moved" / "models" / "lab" / "moved-GGUF" / "moved.gguf")
    put(home / ".lmstudio-home-pointer", f"{home / 'moved'}\n".encode())
    put(home / "disk" / "lab" / "far-GGUF" / "far.gguf")
    settings = {"downloadsFolder": str(home / "disk"), "other": [1]}
    put(home / "moved" / "settings.json", json.dumps(settings).encode())
    assert names(found(home), "LM Studio") == [
        "lab/moved-GGUF/moved.gguf",
        "lab/far-GGUF/far.gguf",
        "lab/small-GGUF/small.gguf",
        "lab/old-GGUF/old.gguf",
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"relative/home", b"\0", b"/a\0b", b"\xff\xfe", b"/" * (2 << 20), b"/none\n/x"],
)
def test_any_pointer_and_any_settings_are_survived(home: Path, content: bytes) -> None:
    put(home / ".lmstudio-home-pointer", content)
    put(home / ".lmstudio" / "models" / "a.gguf")
    quoted = json.dumps({"downloadsFolder": content.decode("latin-1")}).encode()
    for settings in (content, quoted, b"[" * 500_000, b'{"downloadsFolder": 7}', b"[]"):
        put(home / ".lmstudio" / "settings.json", settings)
        assert home / ".lmstudio" / "models" in lm_studio_folders(Places("linux", home, {}))
        discovery = found(home)
        assert names(discovery) == ["a.gguf"]
        assert not discovery.notes


def manifest(store: Path, name: str, *layers: tuple[str, str], folder: str = "manifests") -> Path:
    rows = [{"mediaType": media, "digest": digest, "size": 4} for media, digest in layers]
    content = {"schemaVersion": 2, "config": {"digest": sha("f")}, "layers": rows}
    return put(store / folder / name, json.dumps(content).encode())


def sha(digit: str) -> str:
    return "sha256:" + 64 * digit


def blob(store: Path, digit: str) -> Path:
    return put(store / "blobs" / f"sha256-{64 * digit}")


def test_ollama_models_have_the_names_that_ollama_shows(home: Path) -> None:
    store = home / ".ollama" / "models"
    for digit in "1234567":
        blob(store, digit)
    own = "registry.ollama.ai/library"
    layers = [(PROJECTOR, sha("5")), (MODEL, sha("1")), (ADAPTER, sha("6")), (DRAFT, sha("7"))]
    manifest(store, f"{own}/qwen3/8b", *layers)
    manifest(store, "registry.ollama.ai/someone/tuned/latest", (MODEL, sha("2")))
    manifest(store, "hf.co/lab/small-GGUF/Q8_0", (MODEL, sha("3")))
    manifest(store, f"{own}/copy/latest", (MODEL, sha("1")))
    manifest(store, f"{own}/gone/latest", (MODEL, sha("8")))
    discovery = found(home)
    assert {c.name: c.path.name[7:8] for c in discovery.candidates} == {
        "copy:latest": "1",  # the same file as qwen3:8b
        "qwen3:8b (draft)": "7",
        "someone/tuned:latest": "2",
        "hf.co/lab/small-GGUF:Q8_0": "3",
    }
    assert {c.origin for c in discovery.candidates} == {"Ollama"}


@pytest.mark.parametrize("place", [
    "home/.ollama/models", "root/usr/share/ollama/.ollama/models", "root/var/lib/ollama",
    "root/var/lib/ollama/models", "root/var/lib/ollama/.ollama/models",
])  # fmt: skip
def test_ollama_in_the_places_of_its_service(home: Path, place: str) -> None:
    store = home.parent / place
    blob(store, "1")
    manifest(store, "registry.ollama.ai/library/x/latest", (MODEL, sha("1")))
    assert names(found(home), "Ollama") == ["x:latest"]
    only_own = found(home, system="win32")
    assert names(only_own) == (["x:latest"] if place.startswith("home") else [])


def test_ollama_where_its_variable_says(home: Path) -> None:
    store = home / "disk"
    blob(store, "1")
    manifest(store, "registry.ollama.ai/library/x/latest", (MODEL, sha("1")))
    assert names(found(home, env={"OLLAMA_MODELS": str(store)})) == ["x:latest"]


def test_ollama_manifests_of_the_second_kind_are_links_and_lists(home: Path) -> None:
    store = home / ".ollama" / "models"
    blob(store, "1"), blob(store, "2")
    child = manifest(store, "sha256-" + 64 * "a", (MODEL, sha("1")), folder="blobs")
    listed = {"manifests": [{"digest": sha("a"), "runner": "ollama"},
                            {"layers": [{"mediaType": MODEL, "digest": sha("2")}]}, 7]}  # fmt: skip
    put(store / "blobs" / ("sha256-" + 64 * "b"), json.dumps(listed).encode())
    tags = store / "manifests-v2" / "registry.ollama.ai" / "library"
    for name, digit in (("one", "a"), ("list", "b")):
        (tags / name).mkdir(parents=True)
        (tags / name / "latest").symlink_to(store / "blobs" / f"sha256-{64 * digit}")
    assert child.is_file()
    assert names(found(home)) == ["list:latest", "list:latest"]


def test_blobs_of_early_versions_have_a_colon(home: Path) -> None:
    store = home / ".ollama" / "models"
    put(store / "blobs" / sha("1"))
    manifest(store, "registry.ollama.ai/library/x/latest", (MODEL, sha("1").upper().lower()))
    assert names(found(home)) == ["x:latest"]


def test_a_digest_is_never_a_path(home: Path) -> None:
    store = home / ".ollama" / "models"
    secret = put(home / "secret")
    blob(store, "1")
    (store / "blobs" / "sha256-x").mkdir()
    tricks = [
        "../../../secret", "sha256:../../secret", "sha256:x/../../../../secret", "",
        f"sha256-{secret}", str(secret), "sha256:" + 63 * "1" + "/", "sha512:" + 64 * "1",
        sha("1") + "/../x", sha("1") + "\n", sha("1") + "\0",
    ]  # fmt: skip
    for i, digest in enumerate(tricks):
        manifest(store, f"registry.ollama.ai/library/x/{i}", (MODEL, digest))
    assert not found(home).candidates


HOSTILE = [
    b"", b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"[" * 500_000, b'{"layers": 7}',
    b'{"layers": {"digest": 1}}', b'{"layers": [null, 7, [], {}]}', b'{"manifests": {"a": 1}}',
    b'{"layers": [{"mediaType": [], "digest": {}}]}', b'{"digest": 7, "manifests": [[]]}',
    b'{"layers": ' + b"9" * 5000 + b"}", b'{"manifests": [' + b"{}," * 300_000 + b"{}]}",
]  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_any_manifest_is_survived(home: Path, content: bytes) -> None:
    store = home / ".ollama" / "models"
    blob(store, "1")
    manifest(store, "registry.ollama.ai/library/good/latest", (MODEL, sha("1")))
    put(store / "manifests" / "registry.ollama.ai" / "library" / "bad" / "latest", content)
    assert names(found(home)) == ["good:latest"]


@pytest.mark.parametrize("n_bytes", [2 << 20, 1 << 40])
def test_a_manifest_of_any_size_is_not_read(home: Path, n_bytes: int) -> None:
    store = home / ".ollama" / "models"
    path = manifest(store, "registry.ollama.ai/library/huge/latest", (MODEL, sha("1")))
    blob(store, "1")
    path.write_bytes(path.read_bytes() + b" " * (2 << 20))
    os.truncate(path, n_bytes)
    assert not found(home).candidates


def test_stores_can_be_left_out(home: Path) -> None:
    put(home / ".lmstudio" / "models" / "a.gguf")
    places = Places("linux", home, {}, root=home)
    assert len(discover(None, places=places).candidates) == 1
    assert discover(None, stores=False, places=places) == Discovery(())


# With real files.


def test_what_is_found_can_be_paired(home: Path, models: dict[str, Path]) -> None:
    target = home / "m" / "target.gguf"
    target.parent.mkdir(parents=True)
    target.symlink_to(models["target"])
    store = home / ".ollama" / "models"
    (store / "blobs").mkdir(parents=True)
    os.link(models["draft"], store / "blobs" / f"sha256-{64 * '1'}")
    manifest(store, "registry.ollama.ai/library/draft/latest", (MODEL, sha("1")))
    header = open_gguf(target)
    verdicts = {
        c.path.name: check_pair(header, open_gguf(c.path)).verdict
        for c in found(home, target).candidates
    }
    assert verdicts["stranger.gguf"] == "blocked"
    assert verdicts["draft.gguf"] == "works"
    assert "target.gguf" not in verdicts
    assert f"sha256-{64 * '1'}" not in verdicts  # the draft under another name
