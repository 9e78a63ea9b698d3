"""What one client, and all of them together, may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, counts and seconds."""

    body_bytes: int = 4 << 20  # of one request
    bodies_bytes: int = 64 << 20  # of all requests that are being received
    n_connections: int = 256
    seconds_head: float = 20.0  # to send the head of a request
    seconds_body: float = 60.0  # to send its body
    seconds_unread: float = 20.0  # that a client may leave its reply unread
    n_pieces: int = 4096  # of a reply that wait for a slow reader
    seconds_stop: int = 4  # for open connections to end when the service stops


LIMITS = Limits()
