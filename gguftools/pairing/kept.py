"""Small JSON files in the user's cache: read with a bound, replaced whole. I/O."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gguftools.pairing.folders import small_file
from gguftools.pairing.stores import Places

_BYTES_MAX = 1 << 20


def kept_file(name: str) -> Path:
    """Where to keep something by this name."""
    places = Places()
    folder = places.folder("XDG_CACHE_HOME") or places.home / ".cache"
    return folder / "gguftools" / name


def read_kept(file: Path) -> dict[str, object]:
    """What was kept, nothing where it cannot be read."""
    try:
        known = json.loads(small_file(file, _BYTES_MAX) or "{}")
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def write_kept(file: Path, known: Mapping[str, object], n_max: int) -> None:
    """Keep the newest `n_max`; where nothing can be written, nothing is kept."""
    newest = dict(list(known.items())[-n_max:])
    part = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(newest), encoding="utf-8")
        part.replace(file)
    except (OSError, UnicodeEncodeError):
        with suppress(OSError):
            part.unlink()
