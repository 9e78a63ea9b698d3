"""Placeholder, overwritten by its owner."""

from __future__ import annotations

import click


@click.command(short_help="Tune.")
def tune() -> int:
    """Tune."""
    return 2
