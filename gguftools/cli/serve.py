"""Placeholder, overwritten by its owner."""

from __future__ import annotations

import click


@click.command(short_help="Serve a model.")
def serve() -> int:
    """Serve a model."""
    return 2
