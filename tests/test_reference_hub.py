"""A checkpoint on the Hub: only config, index and headers are fetched, by range."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gguftools.errors import SourceError
from gguftools.gguf.checkpoint import open_checkpoint
from gguftools.gguf.hub import parse_repo
from tests.models.checkpoint import config, head, trunk, write_checkpoint
from tests.models.hub_server import Hub, serve

QWEN = "Qwen3_5ForCausalLM"
TRUNK, HEAD = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
# HF_ENDPOINT and the other settings are read when huggingface_hub is imported: a child each.
_CHILD = """
import json, sys
from gguftools.errors import GGUFToolsError
from gguftools.gguf.checkpoint import open_checkpoint
from gguftools.gguf.conversion import foretell
try:
    found = foretell(open_checkpoint(sys.argv[1]))
    print(json.dumps([found.outcome, found.way, len(found.mtp.parts), found.fix]))
except GGUFToolsError as err:
    print(json.dumps([type(err).__name__, str(err)]))
"""


def ask(hub: Hub, place: str = "user/model", **env: str) -> Any:
    """What a child sees of the repository."""
    settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(hub.folder.parent / "hf")}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _CHILD, place],
        check=False,
        env={**clean, **settings, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint whose weights are 8 MB, and whose trunk no one needs to open."""
    big = trunk(QWEN) | {"model.layers.0.mlp.up_proj.weight": (1000, 2000)}
    shards = {TRUNK: big, HEAD: head(QWEN)}
    return write_checkpoint(tmp_path / "model", config(QWEN), shards)


def test_only_config_index_and_headers_are_fetched(folder: Path) -> None:
    with serve(Hub(folder)) as hub:
        assert ask(hub) == ["kept", "kept", 15, ""]
        files = [path.rpartition("/")[2] for path, wanted in hub.asked if wanted]
        assert files == ["config.json", "model.safetensors.index.json", HEAD]
        assert hub.n_sent < 80_000


def test_a_redirect_is_followed_with_its_range(folder: Path) -> None:
    with serve(Hub(folder, redirect=True)) as hub:
        assert ask(hub) == ["kept", "kept", 15, ""]
        assert all(wanted for path, wanted in hub.asked if "/cdn/" in path)
        assert hub.n_sent < 80_000


def test_a_long_header_is_fetched_in_two_ranges(tmp_path: Path) -> None:
    many = head(QWEN) | {f"model.layers.0.bias.{'x' * 200}.{i}": (1,) for i in range(400)}
    shards = {"model.safetensors": trunk(QWEN) | many}
    place = write_checkpoint(tmp_path / "model", config(QWEN), shards, index=False)
    with serve(Hub(place)) as hub:
        assert ask(hub)[:3] == ["kept", "kept", 15]
        wanted = [wanted for path, wanted in hub.asked if path.endswith("model.safetensors")]
        assert wanted[0] == "bytes=0-65535"
        assert wanted[1].startswith("bytes=65536-")
        assert len(wanted) == 2


def test_a_server_that_ignores_ranges_is_read_no_further_than_the_header(tmp_path: Path) -> None:
    big = trunk(QWEN) | {"model.layers.0.mlp.up_proj.weight": (4000, 4000)} | head(QWEN)
    shards = {"model.safetensors": big}
    place = write_checkpoint(tmp_path / "model", config(QWEN), shards, index=False)
    with serve(Hub(place, ranges=False)) as hub:
        assert ask(hub)[:3] == ["kept", "kept", 15]
        # The rest lies in socket buffers when the connection is cut.
        assert hub.n_sent < 16_000_000


def test_an_unlisted_file_is_found_on_the_hub(tmp_path: Path) -> None:
    shards = {"model.safetensors": trunk(QWEN), "mtp.safetensors": head(QWEN)}
    hidden = ("mtp.safetensors",)
    place = write_checkpoint(tmp_path / "model", config(QWEN), shards, unlisted=hidden)
    with serve(Hub(place)) as hub:
        outcome, way, n, fix = ask(hub)
        assert (outcome, way, n) == ("will-not-load", "shard-unlisted", 15)
        assert fix.endswith("convert_hf_to_gguf.py --remote user/model")


def test_the_token_is_sent_and_its_lack_is_told(folder: Path) -> None:
    with serve(Hub(folder, token="hf_secret")) as hub:
        kind, text = ask(hub)
        assert kind == "SourceError"
        assert "no such repository" in text
        assert "HF_TOKEN" in text
        assert ask(hub, HF_TOKEN="hf_secret")[0] == "kept"


def test_what_is_not_there_is_one_clear_line(folder: Path) -> None:
    with serve(Hub(folder)) as hub:
        assert ask(hub, "user/other")[1].startswith("hf://user/other: no such repository")
        assert ask(hub, "user/model@nowhere")[1] == "hf://user/model: no such revision"
        assert ask(hub, "hf://user/model@main")[0] == "kept"
    kind, text = ask(hub)
    assert kind == "SourceError"
    assert text.startswith("hf://user/model: cannot reach the Hub")


def test_offline_is_honoured_without_a_request(folder: Path) -> None:
    with serve(Hub(folder)) as hub:
        kind, text = ask(hub, HF_HUB_OFFLINE="1")
        assert (kind, hub.asked) == ("SourceError", [])
        assert "HF_HUB_OFFLINE is set" in text


def test_a_broken_answer_is_an_error_not_a_guess(folder: Path) -> None:
    with serve(Hub(folder, short=40)) as hub:
        assert ask(hub)[0] == "SourceError"
    with serve(Hub(folder, status=503)) as hub:
        assert ask(hub)[1].endswith("config.json: the Hub answered 503")


def test_repository_names() -> None:
    assert parse_repo("user/model") == ("user/model", None)
    assert parse_repo("hf://user/model@v1.0") == ("user/model", "v1.0")
    for text in ("model", "a/b/c", "user/model@", "../x\n", "user/ model", ""):
        assert parse_repo(text) is None, text
    with pytest.raises(SourceError, match="no such checkpoint"):
        open_checkpoint("no/such/folder")
