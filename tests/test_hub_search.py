"""Drafts found on the Hub: small relatives of a target, by name and size, then by header."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import close_session, constants

from gguftools.errors import SourceError
from gguftools.gguf.header import Header
from gguftools.gguf.place import open_model
from gguftools.pairing.hub_search import search_hub, searches
from tests.models.hub_server import Hub, serve
from tests.models.tiny import header, tiny, write

ODD_TOTALS: tuple[Any, ...] = (-1, 0, "5", True, 1e300, {})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    (tmp_path / "served").mkdir()
    with serve(Hub(tmp_path / "served")) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        yield server
    close_session()


def named(**texts: str) -> Header:
    """A target with these general.* names; it has 30,000 parameters."""
    found = header(tiny("qwen35"))
    names = {f"general.{key.replace('__', '.')}": text for key, text in texts.items()}
    return replace(found, metadata={**found.metadata, **names})


def row(repo: str, *names: str, total: Any = 1000) -> dict[str, Any]:
    """A repository as a search lists it."""
    return {
        "id": repo,
        "siblings": [{"rfilename": name} for name in names],
        "gguf": {"total": total},
    }


@pytest.mark.parametrize(
    ("names", "queries"),
    [
        ({"basename": "Qwen2.5-Coder"}, ["Qwen2.5-Coder", "Qwen2.5", "Qwen2"]),
        ({"name": "Meta Llama 3.1 70B Instruct"}, ["Llama-3.1", "Llama-3"]),
        ({"name": "Gemma 3 27b It"}, ["Gemma-3"]),
        ({"name": "SmolLM2_1.7B"}, ["SmolLM2"]),
        ({"name": "Mixtral 8x7B"}, ["Mixtral"]),
        ({"name": "Qwen3.5 35B A3B"}, ["Qwen3.5", "Qwen3"]),
        ({"name": "My Tune", "base_model__0__name": "Phi 4"}, ["My-Tune", "Phi-4"]),
        ({}, ["qwen35"]),
        ({"name": "7B"}, ["qwen35"]),
        ({"name": "\x1b[m\u202e" + "x" * 10_000}, ["m-" + "x" * 196]),
    ],
)  # fmt: skip
def test_the_family_is_read_from_the_names(names: dict[str, str], queries: list[str]) -> None:
    assert searches(named(**names)) == queries


def test_only_gguf_repositories_are_searched_and_the_most_downloaded_first(hub: Hub) -> None:
    assert search_hub(named(name="Qwen3 8B")) == []
    (asked,) = hub.searched
    assert (asked["search"], asked["filter"], asked["sort"]) == (["Qwen3"], ["gguf"], ["downloads"])
    assert sorted(asked["expand[]"]) == ["gguf", "siblings"]


def test_of_each_small_model_one_file_is_a_candidate(hub: Hub) -> None:
    hub.listing = [
        row("a/Qwen3-0.6B-GGUF", "README.md", "q-Q4_K_M.gguf", "q-Q8_0.gguf", "mmproj-Q8_0.gguf"),
        row("b/Qwen3-0.6B-gguf", "again-Q8_0.gguf"),
        row("a/Qwen3-1.7B-GGUF", "only.gguf", total=15_000),
        row("a/Qwen3-4B-GGUF", "too-big-Q8_0.gguf", total=15_200),
        row("a/Qwen3-Split-GGUF", "s-Q8_0-00002-of-00002.gguf", "s-Q8_0-00001-of-00002.gguf"),
        row("a/Qwen3-0.001M", "by-its-name.gguf", total=None),
        row("a/Qwen3-unknown", "x.gguf", total=None),
        row("a/Qwen3-none"),
    ]
    assert search_hub(named(name="Qwen3 8B")) == [
        "hf://a/Qwen3-0.6B-GGUF/q-Q8_0.gguf",
        "hf://a/Qwen3-1.7B-GGUF/only.gguf",
        "hf://a/Qwen3-Split-GGUF/s-Q8_0-00001-of-00002.gguf",
        "hf://a/Qwen3-0.001M/by-its-name.gguf",
    ]
    assert len(search_hub(named(name="Qwen3 8B"), limit=2)) == 2


def test_a_head_made_for_the_target_is_found(hub: Hub) -> None:
    hub.listing = [
        row("a/Qwen3.5-9B-GGUF", "mtp-Qwen3.5-9B-Q8_0.gguf", "Qwen3.5-9B-Q8_0.gguf", total=30_000),
        row("a/Qwen3.5-27B-GGUF", "mtp-Qwen3.5-27B-Q8_0.gguf", total=90_000),
    ]
    found = search_hub(named(name="Qwen3.5 9B"))
    assert found == ["hf://a/Qwen3.5-9B-GGUF/mtp-Qwen3.5-9B-Q8_0.gguf"]


@pytest.mark.parametrize(
    "listing",
    [
        [None, 3, "x", [], {}, {"id": 3}, {"id": "a"}, {"id": "../.."}, {"id": "a/b\n"}],
        [{"id": "a/b", "siblings": "x"}, {"id": "a/b", "siblings": [None, {}, {"rfilename": 3}]}],
        [row("a/b-1B", "../../x.gguf", "a\nb.gguf", "x[1].gguf", "y:z.gguf", "\u202e.gguf")],
        [row("a/b-1B", "x.gguf", total=odd) for odd in ODD_TOTALS],
        [{"id": "a/b-1B", "gguf": "x", "siblings": [{"rfilename": "x.gguf"}]}],
    ],
)  # fmt: skip
def test_an_odd_answer_is_no_candidate(hub: Hub, listing: list[Any]) -> None:
    hub.listing = listing
    assert search_hub(named(name="Qwen3 8B")) == []


def test_what_is_found_is_checked_by_its_header_alone(hub: Hub, tmp_path: Path) -> None:
    write(tiny("qwen35"), hub.folder / "m-Q8_0.gguf")
    shutil.copy(hub.folder / "m-Q8_0.gguf", tmp_path / "m.gguf")
    hub.listing = [row(hub.repo, "m-Q8_0.gguf")]
    (place,) = search_hub(named(name="Qwen3 8B"))
    assert open_model(place).tensors == open_model(str(tmp_path / "m.gguf")).tensors


def test_offline_and_without_a_hub_it_says_so(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="the Hub: HF_HUB_OFFLINE is set"):
        search_hub(named(name="Qwen3 8B"))
    assert hub.asked == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match="the Hub: cannot reach the server"):
        search_hub(named(name="Qwen3 8B"))
