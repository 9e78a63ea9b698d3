"""This machine: its memory. I/O."""

from __future__ import annotations

import os


def ram_bytes() -> int | None:
    """Physical memory, None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
