"""Text that streams: whole characters, and nothing of a stop string."""

from __future__ import annotations

import pytest

from gguftools.speculative.text import TextStream


def feed(stream: TextStream, *pieces: str | bytes) -> list[str]:
    raw = [p.encode() if isinstance(p, str) else p for p in pieces]
    return [stream.feed(p) for p in raw]


def test_a_character_comes_with_its_last_byte() -> None:
    stream = TextStream()
    assert feed(stream, "a", b"\xe2", b"\x82", b"\xac", "b") == ["a", "", "", "\u20ac", "b"]
    assert stream.kept == (5, 3)


def test_what_ends_inside_a_character_is_shown_but_not_built_on() -> None:
    stream = TextStream()
    feed(stream, "ab", b"\xf0\x9f")
    assert stream.finish() == "\ufffd"
    assert stream.kept == (1, 2)


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert feed(TextStream(), b"a\xffb") == ["a\ufffdb"]


def test_nothing_of_a_stop_string_is_shown() -> None:
    stream = TextStream(["END"])
    assert feed(stream, "xE", "N", "Dy") == ["x", "", ""]
    assert stream.stopped
    assert stream.text == "x"
    assert stream.finish() == ""
    assert stream.kept == (0, 0)


def test_what_only_looked_like_a_stop_string_is_given_back() -> None:
    stream = TextStream(["END"])
    assert feed(stream, "E", "N", "X") == ["", "", "ENX"]
    assert not stream.stopped
    assert feed(stream, "EN") == [""]
    assert stream.finish() == "EN"
    assert stream.text == "ENXEN"
    assert stream.kept == (4, 5)


def test_the_earliest_of_several_stop_strings_wins() -> None:
    stream = TextStream(["cd", "bc"])
    feed(stream, "abcd")
    assert stream.text == "a"


@pytest.mark.parametrize("cut", range(1, 9))
def test_any_split_into_tokens_gives_the_same_text(cut: int) -> None:
    raw = "one \u20ac two STOP three".encode()
    stream = TextStream(["STOP"])
    for at in range(0, len(raw), cut):
        stream.feed(raw[at : at + cut])
        if stream.stopped:
            break
    assert stream.text == "one \u20ac two "


def test_empty_stop_strings_stop_nothing() -> None:
    stream = TextStream([""])
    assert feed(stream, "abc") == ["abc"]
