"""Reads parts of files of a Hugging Face repository by range request. I/O.

HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE act as everywhere: huggingface_hub makes the requests.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gguftools.errors import SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REPO = re.compile(r"(?:hf://)?([\w.-]{1,96}/[\w.-]{1,96})(?:@([\w./-]{1,200}))?", re.ASCII)
_N_FILES_MAX = 100_000
_PART_BYTES = 65536
SECONDS_TIMEOUT = 30.0  # for each answer and each part
_SECONDS_READ_MAX = 300.0  # for one range, however steadily it drips


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
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            hf_raise_for_status,
        )

        url = hf_hub_url(self.repo, name, revision=self.revision)
        headers = build_hf_headers() | {
            "Range": f"bytes={start}-{start + n_bytes - 1}",
            "Accept-Encoding": "identity",
        }
        with (
            _translated(self.place(name)),
            get_session().stream("GET", url, headers=headers, timeout=SECONDS_TIMEOUT) as response,
        ):
            if response.status_code == 416:
                return b""
            hf_raise_for_status(response)
            skip = 0 if response.status_code == 206 else start
            return _take(response.iter_raw(_PART_BYTES), skip, n_bytes, self.place(name))


def parse_repo(text: str) -> tuple[str, str | None] | None:
    """`user/repo` and revision of `[hf://]user/repo[@revision]`, None for anything else."""
    match = _REPO.fullmatch(text)
    return (match[1], match[2]) if match else None


def open_repo(repo: str, revision: str | None) -> HubRepo:
    """What lies in a repository; its revision is pinned, so that all reads see the same files."""
    from huggingface_hub import HfApi, errors

    with _translated(f"hf://{repo}"):
        try:
            found = HfApi().model_info(
                repo, revision=revision, files_metadata=True, timeout=SECONDS_TIMEOUT
            )
        except errors.HFValidationError:
            raise
        except (ValueError, KeyError, TypeError) as err:
            raise SourceError("the answer does not describe a model", where=f"hf://{repo}") from err
    siblings = found.siblings or []
    if len(siblings) > _N_FILES_MAX:
        raise SourceError(f"it has more than {_N_FILES_MAX} files", where=f"hf://{repo}")
    files = {file.rfilename: _size(file.size) for file in siblings}
    return HubRepo(repo, found.sha or revision or "main", files)


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _take(chunks: Iterator[bytes], skip: int, n_bytes: int, where: str) -> bytes:
    """`n_bytes` after the first `skip`, without reading on."""
    parts: list[bytes] = []
    end = time.monotonic() + _SECONDS_READ_MAX
    for chunk in chunks:
        if time.monotonic() > end:
            raise SourceError("the server is too slow", where=where)
        part = chunk[skip:]
        skip -= len(chunk) - len(part)
        parts.append(part[:n_bytes])
        n_bytes -= len(parts[-1])
        if n_bytes <= 0:
            break
    return b"".join(parts)


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Errors of the Hub and of the network as ours."""
    from huggingface_hub import errors

    # The HTTP library beneath is huggingface_hub's own choice; this is the base of its errors.
    network: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except errors.OfflineModeIsEnabled as err:
        hint = "unset HF_HUB_OFFLINE, or name a local folder"
        raise SourceError("HF_HUB_OFFLINE is set", where=where, hint=hint) from err
    except errors.HFValidationError as err:
        raise UsageError("not a repository name", where=where) from err
    except errors.GatedRepoError as err:
        hint = "accept its terms on the Hub and set HF_TOKEN"
        raise SourceError("the repository is gated", where=where, hint=hint) from err
    except errors.RepositoryNotFoundError as err:
        hint = "check the name; for a private one set HF_TOKEN"
        raise SourceError("no such repository", where=where, hint=hint) from err
    except errors.RevisionNotFoundError as err:
        raise SourceError("no such revision", where=where) from err
    except errors.EntryNotFoundError as err:
        raise SourceError("no such file", where=where) from err
    except errors.HfHubHTTPError as err:
        raise SourceError(f"the Hub answered {err.response.status_code}", where=where) from err
    except network as err:
        what = f"cannot reach the Hub: {err}" if str(err) else "cannot reach the Hub"
        raise SourceError(what, where=where, hint="HF_ENDPOINT names another server") from err
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=where) from err
