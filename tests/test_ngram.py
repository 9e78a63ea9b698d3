"""The prompt-lookup drafter."""

from __future__ import annotations

from random import Random

from gguftools.speculative.ngram import NgramDrafter
from gguftools.speculative.sampling import Chain


def always(_n: int, _p: float | None) -> bool:
    return True


def test_it_proposes_what_followed_the_last_time() -> None:
    assert NgramDrafter().draft([1, 2, 3, 4, 5, 1, 2], 3, always).tokens == (3, 4, 5)


def test_the_latest_of_several_matches_wins() -> None:
    assert NgramDrafter().draft([1, 2, 3, 1, 2, 9, 8, 1, 2], 2, always).tokens == (9, 8)


def test_a_longer_match_beats_a_later_one() -> None:
    text = [5, 1, 2, 3, 7, 1, 2, 4, 5, 1, 2]
    assert NgramDrafter().draft(text, 1, always).tokens == (3,)


def test_a_repeating_text_goes_on_repeating() -> None:
    assert NgramDrafter().draft([7, 8, 9, 7, 8, 9], 7, always).tokens == (7, 8, 9, 7, 8, 9, 7)


def test_without_a_match_there_is_no_draft() -> None:
    assert NgramDrafter().draft([1, 2, 3, 4], 8, always).tokens == ()
    assert NgramDrafter().draft([1], 8, always).tokens == ()


def test_longer_matches_give_more_confidence() -> None:
    short = NgramDrafter().draft([9, 1, 2, 3, 4, 1, 2], 1, always).confidence[0]
    long = NgramDrafter().draft([9, 1, 2, 3, 4, 9, 1, 2], 1, always).confidence[0]
    assert short is not None
    assert long is not None
    assert 0 < short < long < 1


def test_growing_one_token_at_a_time_finds_what_a_fresh_look_finds() -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 4, 1, 2]
    drafter = NgramDrafter()
    for n in range(1, len(text) + 1):
        fresh = NgramDrafter().draft(text[:n], 4, always)
        assert drafter.draft(text[:n], 4, always) == fresh


def test_asked_twice_it_says_the_same() -> None:
    drafter, text = NgramDrafter(), [1, 2, 3, 4, 5, 1, 2]
    assert drafter.draft(text, 3, always) == drafter.draft(text, 3, always)
    assert drafter.draft(text, 0, always).tokens == ()
    assert drafter.draft(text, 3, always).tokens == (3, 4, 5)


def test_tokens_it_was_not_asked_about_are_read_too() -> None:
    drafter = NgramDrafter()
    drafter.draft([1, 2, 3], 1, always)
    assert drafter.draft([1, 2, 3, 4, 5, 6, 4, 5], 2, always).tokens == (6, 4)


def test_after_a_reset_nothing_of_the_old_text_is_left() -> None:
    drafter = NgramDrafter()
    drafter.draft([1, 2, 3, 4, 1, 2], 4, always)
    drafter.reset([5, 6, 1, 2], Chain(), Random(1))
    assert drafter.draft([5, 6, 1, 2], 4, always).tokens == ()
