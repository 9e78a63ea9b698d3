"""Whether a server speculates: seen in a reply of its own, not read off its flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gguftools.errors import UsageError
from gguftools.server.client import Client
from gguftools.server.metrics import Counters, Slot, Timings, read_timings

Progress = Callable[[int, int], None]  # done, of how many

_N_PREDICT = 24
# Lookup drafts what follows 24 tokens seen before, so the text has to repeat (ngram-mod, b11434).
_N_PREDICT_NGRAM = 256
_PROMPT = "one two three four five six seven eight nine ten "
_N_REPEATS = 2
_N_REPEATS_NGRAM = 8


@dataclass(frozen=True, slots=True)
class Proof:
    """`on` only where tokens were drafted; `types` are what drafts, as far as the server says."""

    on: bool
    n_draft: int
    n_accepted: int
    types: str
    why: str


PLAIN = Proof(False, 0, 0, "", "it was started without a draft")


def _unheard(done: int, total: int) -> None:
    pass


def prove(client: Client, *, ngram: bool = False, progress: Progress = _unheard) -> Proof:
    """Look at what it did; if it did nothing yet, let it write a little. Lookup needs `ngram`.

    `progress` hears how many tokens of how many it wrote.
    """
    slots, counters = client.slots() or (), client.metrics()
    if slots and all(slot.speculative is False for slot in slots):
        return _off(slots, "/slots says that none of its slots can speculate")
    if counters is not None and counters.n_draft:
        return _on(slots, counters, "since it started")
    if slots and all(slot.busy for slot in slots):
        return _off(slots, "not proven: all its slots are busy")
    probe = _probe(client, ngram=ngram, progress=progress)
    if probe is None:
        return _off(slots, "not proven: a probe does not fit into its context")
    slots = client.slots() or slots
    if probe.n_draft:
        return _on(slots, probe, f"in a probe of {probe.n_predicted} tokens")
    if not ngram and "ngram" in _types(slots):  # known only now
        return prove(client, ngram=True, progress=progress)
    return _off(slots, f"it wrote {probe.n_predicted} tokens of a probe without drafting any")


def _on(slots: tuple[Slot, ...], seen: Timings | Counters, when: str) -> Proof:
    why = f"{seen.n_accepted} of {seen.n_draft} drafted tokens accepted {when}"
    return Proof(True, seen.n_draft, seen.n_accepted, _types(slots), why)


def _off(slots: tuple[Slot, ...], why: str) -> Proof:
    return Proof(False, 0, 0, _types(slots), why)


def _types(slots: tuple[Slot, ...]) -> str:
    """What drafts in the slots that can, as one of them says."""
    return next((s.types for s in slots if s.types and s.speculative is not False), "")


def _probe(client: Client, *, ngram: bool, progress: Progress) -> Timings | None:
    """The timings of a short greedy reply, None if there is no room for it."""
    n_predict = _N_PREDICT_NGRAM if ngram else _N_PREDICT
    stream = client.complete({
        "prompt": _PROMPT * (_N_REPEATS_NGRAM if ngram else _N_REPEATS),
        "n_predict": n_predict,
        "temperature": 0.0,
        "ignore_eos": True,
        "timings_per_token": True,
        "return_progress": True,
    })  # fmt: skip
    timings = None
    try:
        for event in stream:
            timings = read_timings(event.get("timings")) or timings
            if timings is not None:
                progress(timings.n_predicted, n_predict)
                if ngram and timings.n_draft:
                    stream.stop()
    except UsageError:
        return None
    return timings or Timings(0, 0, 0.0, 0, 0.0, 0, 0)
