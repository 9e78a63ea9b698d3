"""Opens a model wherever it is, with a bar while the header of a remote one is fetched."""

from __future__ import annotations

from gguftools.cli.progress import progress
from gguftools.gguf.header import Header
from gguftools.gguf.place import is_remote, open_model


def fetch(place: str) -> Header:
    """The header of the one model that a place names."""
    if not is_remote(place):
        return open_model(place)
    with progress("reading the header", in_bytes=True) as read:
        return open_model(place, lambda _, n_bytes: read(n_bytes, n_bytes))
