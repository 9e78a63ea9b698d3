"""Reads from the Hugging Face Hub: what lies in a repository, and parts of its files. I/O.

HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE act as everywhere: huggingface_hub's client is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from gguftools.errors import SourceError
from gguftools.gguf.remote import endpoint, read_range, read_whole
from gguftools.gguf.safetensors import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REPO = re.compile(
    r"(?:hf://)?(\w[\w.-]{0,95}/\w[\w.-]{0,95})(?:@(\w[\w.-]{0,99}(?:/[\w.-]{1,99})*))?", re.ASCII
)
_N_FILES_MAX = 100_000
_ANSWER_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class HubRepo:
    """The files of one revision, by size; None where the Hub does not say it."""

    repo: str
    revision: str
    files: Mapping[str, int | None]
    remote = True

    def place(self, name: str) -> str:
        """A file, for messages."""
        return f"hf://{self.repo}/{name}"

    def read(self, name: str, start: int, n_bytes: int) -> bytes:
        """Up to `n_bytes` from `start`; a server that ignores ranges is read only that far."""
        url = file_url(self.repo, self.revision, name)
        return read_range(url, self.place(name), start, n_bytes)


def parse_repo(text: str) -> tuple[str, str | None] | None:
    """`user/repo` and revision of `[hf://]user/repo[@revision]`, None for anything else."""
    match = _REPO.fullmatch(text)
    return (match[1], match[2]) if match else None


def open_repo(repo: str, revision: str | None) -> HubRepo:
    """What lies in a repository; its revision is pinned, so that all reads see the same files."""
    where = f"hf://{repo}"
    at = "" if revision is None else f"/revision/{quote(revision, safe='')}"
    found = ask_hub(f"models/{repo}{at}", {"blobs": "true"}, where)
    siblings = found.get("siblings") if isinstance(found, dict) else None
    if not isinstance(siblings, list):
        raise SourceError("the answer does not describe a model", where=where)
    if len(siblings) > _N_FILES_MAX:
        raise SourceError(f"it has more than {_N_FILES_MAX} files", where=where)
    files = {
        file["rfilename"]: _size(file.get("size"))
        for file in siblings
        if isinstance(file, dict) and isinstance(file.get("rfilename"), str)
    }
    sha = found.get("sha")
    return HubRepo(repo, sha if isinstance(sha, str) and sha else revision or "main", files)


def ask_hub(path: str, query: Mapping[str, str | Sequence[str]], where: str) -> Any:
    """The answer of the Hub's API."""
    url = f"{endpoint()}/api/{path}?{urlencode(query, doseq=True)}"
    raw = read_whole(url, where, _ANSWER_BYTES_MAX)
    return json_object(b'{"answer":%b}' % raw, where=where)["answer"]


def file_url(repo: str, revision: str | None, name: str) -> str:
    """Where the bytes of a file are."""
    return f"{endpoint()}/{repo}/resolve/{quote(revision or 'main', safe='')}/{quote(name)}"


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
