"""What a server of ours does while it serves: how its drafts fare, and which trap it is in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gguftools.server.client import Client
from gguftools.server.metrics import Counters, between
from gguftools.server.traps import Seen, find_traps, sentences


class Watch:
    """Reads a server's counters now and then; says what is new, and each trap once."""

    def __init__(self, client: Client, seen: Seen) -> None:
        self._client, self._seen = client, seen
        self._before = client.metrics()
        self._said: set[str] = set()

    def skip(self) -> Counters | None:
        """Leave out what was counted since the last look."""
        self._before = self._client.metrics()
        return self._before

    def look(self) -> Iterator[str]:
        """A line on the requests since the last look, if there were any, and new traps."""
        now = self._client.metrics()
        if now is None or self._before is None:
            return
        since = between(self._before, now)
        if since is None or not since.n_predicted:
            return
        self._before = now
        yield line(since)
        seen = replace(
            self._seen, slots=self._client.slots() or (), n_draft=since.n_draft,
            n_accepted=since.n_accepted, n_rounds=max(since.n_predicted - since.n_accepted, 0),
            n_rounds_drafted=since.n_rounds, accepted_by_position=since.accepted_by_position,
            tokens_per_second=_rate(since),
        )  # fmt: skip
        for trap in find_traps(seen):
            if trap.code not in self._said:
                self._said.add(trap.code)
                yield from sentences([trap])


def line(since: Counters) -> str:
    """`212 tokens at 45.1 tokens/s, 71% of 240 drafted tokens accepted, 3.1 tokens per pass`."""
    rate = _rate(since)
    parts = [f"{since.n_predicted} tokens" + (f" at {rate:.1f} tokens/s" if rate else "")]
    if since.n_draft:
        n_passes = max(since.n_predicted - since.n_accepted, 1)
        parts.append(
            f"{since.n_accepted / since.n_draft:.0%} of {since.n_draft} drafted tokens accepted"
        )
        parts.append(f"{since.n_predicted / n_passes:.1f} tokens per pass")
    else:
        parts.append("nothing drafted")
    return ", ".join(parts)


def _rate(since: Counters) -> float | None:
    seconds = since.seconds_predicted
    return since.n_predicted / seconds if seconds > 0 else None
