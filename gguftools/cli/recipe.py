"""Placeholder, overwritten by its owner."""

from __future__ import annotations

import click


@click.command(short_help="Recipes.")
def recipe() -> int:
    """Recipes."""
    return 2
