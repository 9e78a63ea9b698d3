"""Where other programs keep models: Hugging Face, LM Studio, llama.cpp and Ollama. I/O.

Linux, macOS and Windows, from the environment and the home folder, which tests set.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gguftools.pairing.folders import small_file

SMALL_BYTES = 1 << 20  # of settings and pointer files
_HUB_ONLY = ("blobs", "refs")
_HUB_PREFIXES = (".", "datasets--", "spaces--")


@dataclass(frozen=True, slots=True)
class Places:
    """The machine as far as it decides where models lie."""

    system: str = sys.platform
    home: Path = field(default_factory=lambda: Path(os.path.expanduser("~")))
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    root: Path = Path("/")  # of the folders that system services use

    def folder(self, variable: str, *below: str) -> Path | None:
        """The folder that a variable names, or one below it."""
        value = self.env.get(variable, "")
        if not value:
            return None
        if value == "~" or value.startswith(("~/", "~\\")):
            value = str(self.home) + value[1:]
        return Path(value, *below)


def hub_cache(places: Places) -> Path:
    """The cache of huggingface_hub, which newer builds of llama.cpp share (common/hf-cache.cpp)."""
    return (
        places.folder("HF_HUB_CACHE")
        or places.folder("HUGGINGFACE_HUB_CACHE")
        or places.folder("HF_HOME", "hub")
        or places.folder("XDG_CACHE_HOME", "huggingface", "hub")
        or places.home / ".cache" / "huggingface" / "hub"
    )


def is_hub_folder(name: str) -> bool:
    """Whether a folder of the cache can lead to models under their own names."""
    return name not in _HUB_ONLY and not name.startswith(_HUB_PREFIXES)


def hub_name(relative: Path) -> str:
    """models--org--repo/snapshots/COMMIT/file -> org/repo/file; any other path as it is."""
    parts = relative.parts
    if len(parts) < 4 or not parts[0].startswith("models--") or parts[1] != "snapshots":
        return relative.as_posix()
    repository = parts[0].removeprefix("models--").replace("--", "/", 1)
    return "/".join((repository, *parts[3:]))


def llama_cache(places: Places) -> Path:
    """llama.cpp's own cache (fs_get_cache_directory); newer builds put a hub cache there."""
    own = places.folder("LLAMA_CACHE")
    if own is not None:
        return own
    if places.system == "darwin":
        return places.home / "Library" / "Caches" / "llama.cpp"
    if places.system == "win32":
        local = places.folder("LOCALAPPDATA") or places.home / "AppData" / "Local"
        return local / "llama.cpp"
    return (places.folder("XDG_CACHE_HOME") or places.home / ".cache") / "llama.cpp"


def lm_studio_folders(places: Places) -> list[Path]:
    """Where LM Studio keeps models: in its home, which can be moved, or where its settings say."""
    homes = [places.home / ".lmstudio", places.home / ".cache" / "lm-studio"]
    pointer = small_file(places.home / ".lmstudio-home-pointer", SMALL_BYTES)
    homes = [*_absolute((pointer or b"").decode("utf-8", "surrogateescape")), *homes]
    found: list[Path] = []
    for home in homes:
        found += [home / "models", *_absolute(_downloads_folder(home / "settings.json"))]
    return list(dict.fromkeys(found))


def ollama_folders(places: Places) -> list[Path]:
    """Where Ollama may keep its store; its service has a home and an environment of its own."""
    given = places.folder("OLLAMA_MODELS")
    found = [given or places.home / ".ollama" / "models"]
    if places.system not in ("darwin", "win32"):
        service = places.root / "var" / "lib" / "ollama"
        found += [
            places.root / "usr" / "share" / "ollama" / ".ollama" / "models",
            service / ".ollama" / "models",
            service / "models",
            service,
        ]
    return found


def _downloads_folder(path: Path) -> str:
    """The models folder that LM Studio's settings name, empty if they name none."""
    settings = json_object(small_file(path, SMALL_BYTES))
    value = settings.get("downloadsFolder")
    return value if isinstance(value, str) else ""


def json_object(content: bytes | None) -> dict[str, object]:
    """A JSON object from outside; empty for anything else."""
    try:
        value = json.loads(content or b"")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _absolute(text: str) -> list[Path]:
    """The path on the first line, if it is an absolute one."""
    line = text.strip().splitlines()[0].strip() if text.strip() else ""
    return [Path(line)] if line and "\0" not in line and Path(line).is_absolute() else []
