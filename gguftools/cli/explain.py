"""Placeholder, overwritten by its owner."""

from __future__ import annotations

import click


@click.command(short_help="Explain.")
def explain() -> int:
    """Explain."""
    return 2
