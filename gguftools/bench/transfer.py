"""Whether settings tuned on one model may be offered for a larger one of its series. Headers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gguftools.bench.tuning import Choice
from gguftools.errors import RefusedError
from gguftools.gguf.header import Header
from gguftools.gguf.source import open_gguf
from gguftools.gguf.tensors import bytes_per_token
from gguftools.gguf.tokenizer import read_vocab
from gguftools.pairing.compatibility import Pair, check_head, check_ngram, check_pair
from gguftools.pairing.setup import setup_of
from gguftools.pairing.vocab import match_vocab

CAVEAT = (
    "not measured on this model: lengths and draft_p_min follow from how much is accepted, which "
    "is alike within a series; threads, cache types and the gain itself do not carry over"
)
_LONGER = (
    "a drafted token costs less beside a larger target, so the best draft is this long or longer"
)


@dataclass(frozen=True, slots=True)
class Transfer:
    """What is offered for the larger model."""

    target: Header
    draft_max: int
    draft_min: int
    draft_p_min: float
    caveats: tuple[str, ...]


def check_series(tuned: Header, larger: Header) -> None:
    """RefusedError unless the second is a larger model of the first one's series."""
    ours, theirs = setup_of(tuned, None, "ngram").series, setup_of(larger, None, "ngram").series
    if ours and theirs and ours != theirs:
        raise RefusedError(f"it is of another series: {theirs}, not {ours}", where=larger.path)
    if tuned.architecture != larger.architecture:
        what = f"its architecture is {larger.architecture}, not {tuned.architecture}"
        raise RefusedError(what, where=larger.path)
    vocab, other = read_vocab(tuned), read_vocab(larger)
    if vocab is None or other is None:
        raise RefusedError("without a tokenizer nobody can tell its series", where=larger.path)
    match = match_vocab(vocab, other)
    if not match.matches:
        raise RefusedError(f"its tokenizer is another one: {match.reason}", where=larger.path)
    if bytes_per_token(larger) <= bytes_per_token(tuned):
        raise RefusedError("it is not larger: tune it by itself", where=larger.path)


def transfer(choice: Choice, larger: Header) -> Transfer:
    """The settings that carry over; RefusedError if its drafter does not work there."""
    pair = _pair(choice, larger)
    if pair.verdict == "blocked":
        raise RefusedError(f"the tuned drafter does not work with it: {pair.reason}",
                           where=larger.path)  # fmt: skip
    caveats = (CAVEAT, _LONGER) if choice.drafter == "draft" else (CAVEAT,)
    return Transfer(larger, choice.draft_max, choice.draft_min, choice.draft_p_min, caveats)


def _pair(choice: Choice, larger: Header) -> Pair:
    if choice.draft is not None:
        return check_pair(larger, open_gguf(Path(choice.draft)))
    return check_ngram(larger) if choice.drafter == "ngram" else check_head(larger)
