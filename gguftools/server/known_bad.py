"""Builds of llama-server that are known to be bad, for those who have not started one yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gguftools.server.traps import BAD_BUILDS


def bad_builds(build: int, backend: str) -> Iterator[str]:
    """What a build of that number does wrong on that backend, and with what."""
    for bad in BAD_BUILDS:
        here = not bad.backends or backend.lower().startswith(bad.backends)
        if here and (bad.first or 0) <= build <= bad.last:
            with_what = [*bad.kinds, *bad.architectures]
            yield f"{bad.what}" + (f" (with {', '.join(with_what)})" if with_what else "")
