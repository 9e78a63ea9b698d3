"""The files of a Hub repository, and which of them `:QUANT` or a pattern names. I/O."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from gguftools.errors import SourceError
from gguftools.gguf.hub import open_repo

# common/download.cpp, b11434: files that -hf never takes as the model, and what it prefers.
_HEADS = ("mtp-", "eagle3-", "dflash-", "dspark-")
_OTHERS = ("mmproj", "imatrix", *_HEADS)
_PREFERRED = ("Q4_K_M", "Q8_0")
_LATER_SHARD = re.compile(r"-(?!00001)[0-9]{5}-of-[0-9]{5}\.gguf$", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[/._-])((?:UD-)?(?:I?Q[0-9](?:_[0-9A-Z]+)*|TQ[0-9]_[0-9]|MXFP4(?:_MOE)?|NVFP4"
    r"|BF16|F16|F32))(?=[./-])",
    re.IGNORECASE,
)
_N_NAMED = 24


def list_repo(repo: str, revision: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The files of a repository; offline those in the Hub's cache, and the folder there."""
    folder = _cached(repo, revision)
    if folder is None:
        return None, tuple(open_repo(repo, revision).files)
    return folder, tuple(
        os.path.relpath(os.path.join(at, name), folder).replace(os.sep, "/")
        for at, _, files in os.walk(folder)
        for name in files
    )


def cached_file(repo: str, revision: str | None, name: str) -> str | None:
    """Where the Hub's cache has a file, when that is all there is: offline."""
    folder = _cached(repo, revision)
    path = os.path.join(folder, name) if folder is not None else ""
    return path if os.path.isfile(path) else None


def _cached(repo: str, revision: str | None) -> str | None:
    from huggingface_hub import constants, errors, snapshot_download

    if not constants.is_offline_mode():
        return None
    try:
        return snapshot_download(repo, revision=revision, local_files_only=True)
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError):
        return None


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids to ask the Hub."""
    from huggingface_hub import constants

    return constants.is_offline_mode()


def downloaded_file(repo: str, revision: str | None, name: str) -> str | None:
    """Where the Hub's cache has a file, None if it was never downloaded."""
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        found = try_to_load_from_cache(repo, name, revision=revision)
    except errors.HFValidationError:
        return None
    return found if isinstance(found, str) else None


def download_file(
    repo: str, revision: str | None, name: str, progress: Callable[[str, int, int], None]
) -> str:
    """Where the Hub's cache has a file, downloaded first if it is not there."""
    from huggingface_hub import errors, hf_hub_download
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        """Tells how far a download is instead of drawing it."""

        def __init__(self, *args: object, **options: object) -> None:
            options.pop("name", None)
            options |= {"file": io.StringIO(), "disable": False}
            super().__init__(*args, **options)  # type: ignore[no-untyped-call]

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            progress(f"downloading {name}", int(self.n), int(self.total or 0))

    where = f"hf://{repo}/{name}"
    http_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]  # as in gguf/remote.py
    # huggingface_hub asks a Hub that is not there for half a minute; this says it at once.
    if not is_offline() and name not in open_repo(repo, revision).files:
        raise SourceError("no such file in the repository", where=where)
    try:
        return str(hf_hub_download(repo, name, revision=revision, tqdm_class=Bar))
    except errors.LocalEntryNotFoundError as err:
        what = "it is not downloaded, and the Hub cannot be asked"
        hint = "HF_HUB_OFFLINE is set" if is_offline() else "is there a connection?"
        raise SourceError(what, where=where, hint=hint) from err
    except (http_error, errors.HFValidationError) as err:
        what = (str(err).strip().splitlines() or [type(err).__name__])[-1]
        raise SourceError(what, where=where) from err
    except OSError as err:
        raise SourceError(err.strerror or str(err), where=where) from err


def pick(names: Sequence[str], quant: str | None, where: str) -> str:
    """The file that `user/repo[:QUANT]` means."""
    models = [name for name in names if is_model(name)]
    for tag in (quant,) if quant else _PREFERRED:
        if found := tagged(models, tag):
            if quant and len(found) > 1:
                what = f"{quant} is ambiguous: {_listed(found)}"
                raise SourceError(what, where=where, hint="name the file: user/repo/file.gguf")
            return found[0]
    if quant is None and models:
        return models[0]
    have = f"it has {_quants(models)}" if models else f"it has only {_listed(names)}"
    what = f"no {quant} there; {have}" if quant else f"no model there; {have}"
    raise SourceError(what, where=where)


def matching(names: Sequence[str], pattern: str, where: str) -> list[str]:
    """The files that a pattern, or a folder with a slash at its end, names; all without one."""
    wanted = f"{pattern}*" if pattern.endswith("/") else pattern or "*"
    found = [name for name in names if fnmatchcase(name, wanted)]
    if not found:
        raise SourceError(f"no file matches; it has {_listed(names)}", where=where)
    return found


def is_model(name: str) -> bool:
    """Whether -hf would take the file as the model; of a split one the first shard."""
    base = name.rpartition("/")[2]
    return not any(word in base for word in _OTHERS) and not _LATER_SHARD.search(base)


def is_sidecar(name: str) -> bool:
    """Whether a file by its name is a head made for a target."""
    return any(word in name.rpartition("/")[2] for word in _HEADS)


def tagged(models: Sequence[str], tag: str) -> list[str]:
    """The models with a tag in their path: `UD-` and the like before it count only if asked for."""
    pattern = re.compile(rf"(?:^|[/._-]){re.escape(tag)}[.-]", re.IGNORECASE)
    found = [name for name in models if pattern.search(name)]
    exact = [name for name in found if _quant(name) == tag.upper()]
    return exact or found


def _quant(name: str) -> str:
    labels = _QUANT.findall(name)
    return labels[-1].upper() if labels else ""


def _quants(models: Sequence[str]) -> str:
    return _listed([_quant(name) or name for name in models])


def _listed(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - _N_NAMED} more" if len(distinct) > _N_NAMED else ""
    return ", ".join(name[:200] for name in distinct[:_N_NAMED]) + more
