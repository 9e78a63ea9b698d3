"""Files on a web server and on the Hub: the header alone is fetched, whatever the server does."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from huggingface_hub import close_session, constants

from gguftools.errors import FormatError, GGUFToolsError, SourceError, UsageError
from gguftools.gguf import remote
from gguftools.gguf.place import open_model
from gguftools.gguf.remote import FIRST_BYTES
from gguftools.gguf.source import open_gguf
from tests.models import bytes as raw
from tests.models.hub_server import Hub, Trick, serve

N_DATA = 16 << 20


def header_bytes(n_tokens: int) -> bytes:
    """A header whose size its vocabulary decides: 20 bytes a token."""
    tokens = b"".join(struct.pack("<Q", 12) + b"token %06d" % i for i in range(n_tokens))
    array = raw.string("tokenizer.ggml.tokens") + struct.pack(
        "<IIQ", raw.ARRAY, raw.STRING, n_tokens
    )
    entries = [raw.entry("general.architecture", raw.STRING, "llama"), array + tokens]
    return raw.padded(raw.header(entries, [raw.tensor("w", [N_DATA // 4], 0, 0)]))


def write(path: Path, n_tokens: int = 1000) -> int:
    """A model of 16 MB of weights (a hole in the file); the bytes of its header."""
    head = header_bytes(n_tokens)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + N_DATA)
    return len(head)


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A server with m.gguf, which is the Hub of this process too."""
    folder = tmp_path / "served"
    folder.mkdir()
    write(folder / "m.gguf")
    monkeypatch.setattr(remote, "_SECONDS_PAUSE", 0.01)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    with serve(Hub(folder)) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        yield hub
    close_session()


def url(web: Hub, name: str = "m.gguf") -> str:
    return f"{web.url}/web/files/{name}"


def failure(place: str) -> str:
    """The one line that opening it says."""
    with pytest.raises(GGUFToolsError) as caught:
        open_model(place)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def is_m(place: str) -> bool:
    """Whether it opens as the model the server has."""
    found = open_model(place)
    return found.architecture == "llama" and list(found.tensors) == ["w"]


def test_a_remote_header_is_the_local_one(web: Hub) -> None:
    here, there = open_gguf(web.folder / "m.gguf"), open_model(url(web))
    assert (there.types, there.tensors) == (here.types, here.tensors)
    assert there.metadata.keys() == here.metadata.keys()
    (mine,), (other,) = here.shards, there.shards
    assert other.path == url(web)
    assert (other.n_bytes, other.data_offset) == (mine.n_bytes, mine.data_offset)


def test_a_small_header_is_one_request(web: Hub) -> None:
    assert is_m(url(web))
    assert [wanted for _, wanted in web.asked] == [f"bytes=0-{FIRST_BYTES - 1}"]
    assert web.n_sent <= FIRST_BYTES


@pytest.mark.parametrize("n_tokens", [13_000, 14_000, 20_000, 60_000, 150_000, 400_000])
def test_at_most_half_of_the_header_is_fetched_in_vain(web: Hub, n_tokens: int) -> None:
    n_header = write(web.folder / "big.gguf", n_tokens)
    assert is_m(url(web, "big.gguf"))
    assert web.n_sent <= max(FIRST_BYTES, 1.5 * n_header)
    assert len(web.asked) <= 10


def test_a_server_without_ranges_is_read_no_further_than_the_header(web: Hub) -> None:
    web.ranges = False
    write(web.folder / "m.gguf", 30_000)
    assert is_m(url(web))
    # The rest lies in socket buffers when the connection is cut.
    assert web.n_sent < N_DATA
    assert len(web.asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("cuts", [(0,), (7,), (100, 5000, 200_000)])
def test_a_broken_connection_is_resumed_where_it_broke(
    web: Hub, ranges: bool, cuts: tuple[int, ...]
) -> None:
    write(web.folder / "m.gguf", 50_000)
    web.ranges = ranges
    web.tricks = [Trick(cut=cut) for cut in cuts]
    assert is_m(url(web))
    starts = [int(wanted[6:].partition("-")[0]) for _, wanted in web.asked]
    assert starts == sorted(starts)
    assert len(starts) > len(cuts)
    if ranges:
        assert starts[1] == cuts[0]
        assert web.n_sent <= 1.5 * 50_000 * 20


def test_a_connection_that_breaks_again_and_again_is_an_error(web: Hub) -> None:
    web.tricks = [Trick(cut=10)] * 9
    said = f"{url(web)}: the connection broke 4 times, at last after 40 bytes"
    assert failure(url(web)) == said
    assert len(web.asked) == remote.N_TRIES


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(web: Hub, status: int) -> None:
    web.tricks = [Trick(status, (("Retry-After", "0"),)), Trick(status)]
    assert is_m(url(web))
    web.tricks = [Trick(status)] * 9
    assert str(status) in failure(url(web))
    assert len(web.tricks) == 9 - remote.N_TRIES


def test_retry_after_is_waited_for_within_reason(web: Hub) -> None:
    web.tricks = [Trick(429, (("Retry-After", "1"),))]
    start = time.monotonic()
    assert is_m(url(web))
    assert time.monotonic() - start > 0.9
    for asked in (("Retry-After", "3600"), ("Retry-After", "Fri, 31 Dec 2100 23:59:59 GMT"),
                  ("RateLimit", '"api";r=0;t=3600')):  # fmt: skip
        web.tricks = [Trick(429, (asked,))]
        start = time.monotonic()
        assert "too many requests (429) (it asks to wait " in failure(url(web))
        assert time.monotonic() - start < 1
    for odd in ("-5", "soon", "1e9", "Fri, 31 Dec 1999 23:59:59 GMT"):
        web.tricks = [Trick(503, (("Retry-After", odd),))]
        assert is_m(url(web)), odd


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "the server wants a login (401) (for the Hub set HF_TOKEN)"),
        (403, "the server forbids it (403) (for the Hub: does the HF_TOKEN allow reading it?)"),
        (404, "no such file (404)"),
        (418, "the server answered 418"),
        (204, "the server answered 204"),
        (304, "the server answered 304"),
    ],
)
def test_a_refusal_is_one_line_and_not_tried_again(web: Hub, status: int, said: str) -> None:
    web.tricks = [Trick(status, body=b"")]
    assert failure(url(web)) == f"{url(web)}: {said}"
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("GatedRepo", "the repository is gated (accept its terms on the Hub and set HF_TOKEN)"),
        ("EntryNotFound", "no such file"),
        ("RevisionNotFound", "no such revision"),
    ],
)
def test_the_hub_says_what_is_missing(web: Hub, code: str, said: str) -> None:
    web.tricks = [Trick(403, (("X-Error-Code", code),), b"")]
    place = "hf://user/model/m.gguf"
    assert failure(place) == f"{place}: {said}"


def test_redirects_are_followed_once_and_in_a_circle_not(web: Hub) -> None:
    write(web.folder / "m.gguf", 50_000)
    web.redirect = True
    assert is_m("hf://user/model/m.gguf")
    paths = [path for path, _ in web.asked]
    assert sum("/resolve/" in path for path in paths) == 1
    assert sum("/cdn/" in path for path in paths) > 1
    web.redirect = False
    web.tricks = [Trick(302, (("Location", "/web/files/m.gguf"),), b"")] * 50
    assert "the server redirects again and again" in failure(url(web))
    web.tricks = [Trick(302, (("Location", "/web/files/m.gguf"),), endless=True)]
    assert is_m(url(web))
    for odd in ("ftp://127.0.0.1/x", "http://[", "http://127.0.0.1:1/x"):
        web.tricks = [Trick(302, (("Location", odd),), b"")]
        failure(url(web))


def test_an_address_that_expires_is_asked_for_again(web: Hub) -> None:
    write(web.folder / "m.gguf", 50_000)
    web.redirect = True
    web.tricks = [Trick(), Trick(403, body=b"")]
    assert is_m("hf://user/model/m.gguf")
    assert sum("/resolve/" in path for path, _ in web.asked) == 2


def test_the_token_goes_to_the_hub_and_nowhere_else(
    web: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    write(web.folder / "m.gguf", 50_000)
    web.redirect, web.token = True, "hf_secret"
    with serve(Hub(web.folder)) as cdn:
        web.cdn = cdn.url
        assert is_m("hf://user/model/m.gguf")
        assert is_m(f"{web.url}/user/model/resolve/main/m.gguf")
        assert cdn.asked
        assert is_m(url(cdn))
        cdn.tricks = [Trick(302, (("Location", f"{cdn.url}/web/files/m.gguf"),), b"")]
        assert is_m(url(cdn))
        assert set(cdn.tokens) == {None}
    assert set(web.tokens) == {"Bearer hf_secret"}
    web.token = "hf_other"
    assert "hf_" not in failure("hf://user/model/m.gguf").replace("hf://", "")
    for odd in ("hf_secret\u00fc", "hf_secret\x01", "hf_secret b"):
        monkeypatch.setenv("HF_TOKEN", odd)
        assert "secret" not in failure("hf://user/model/m.gguf")


def test_what_is_secret_in_an_address_is_not_shown(web: Hub) -> None:
    place = url(web).replace("//", "//me:pw@") + "?sign=abc#x"
    assert open_model(place).path == url(web)
    web.status = 404
    assert failure(place) == f"{url(web)}: no such file (404)"


def test_a_silent_and_a_dripping_server_end_in_time(
    web: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "SECONDS_TIMEOUT", 0.2)
    web.tricks = [Trick(silent=0.6)]
    assert failure(url(web)) == f"{url(web)}: the server says nothing for 0.2 s"
    monkeypatch.setattr(remote, "SECONDS_MAX", 0.3)
    web.tricks = [Trick(drip=0.02)]
    assert failure(url(web)) == f"{url(web)}: the server is too slow"


def test_an_endless_body_is_not_read_to_its_end(web: Hub) -> None:
    web.tricks = [Trick(endless=True)]  # as the answer to a range
    assert is_m(url(web))
    web.tricks = [Trick(200, endless=True)]
    assert "the server does not say how large it is" in failure(url(web))
    web.tricks = [Trick(200, (("Content-Length", str(1 << 50)),), endless=True)]
    assert is_m(url(web))
    web.tricks = [Trick(200, (("Content-Length", str(1 << 50)),), b"\0" * 65536, endless=True)]
    assert "not a GGUF file" in failure(url(web))
    assert web.n_sent < 64 << 20


def test_a_header_without_end_is_bounded(web: Hub) -> None:
    lie = raw.header([], n_entries=60_000)[:24] + raw.string("k") + struct.pack("<IQ", 8, 1 << 40)
    web.tricks = [Trick(200, (("Content-Length", str(1 << 50)),), lie, endless=True)]
    with pytest.raises(FormatError):
        open_model(url(web))
    assert web.n_sent < 8 << 20


def test_a_page_instead_of_a_model_is_named(web: Hub) -> None:
    web.tricks = [Trick(200, body=b"<!DOCTYPE html><title>Log in</title>" + b" " * 100)]
    assert "an HTML page (a login or error page saved as a model?)" in failure(url(web))
    web.tricks = [Trick(200, body=b"version https://git-lfs.github.com/spec/v1\noid sha256:0")]
    assert "a Git LFS pointer" in failure(url(web))


def test_an_answer_that_lies_is_an_error(web: Hub) -> None:
    n = (web.folder / "m.gguf").stat().st_size
    for content_range in ("bytes 5-99/100", "bytes 0-", "rubbish", f"bytes 0-9/{'9' * 40}", ""):
        web.tricks = [Trick(206, (("Content-Range", content_range),), b"GGUF" * 25)]
        assert "sends another range" in failure(url(web)), content_range
    web.tricks = [
        Trick(200, (("Content-Length", "30"),), (web.folder / "m.gguf").read_bytes()[:30])
    ]
    assert "only 6 bytes follow" in failure(url(web))
    web.tricks = [Trick(200, (("Content-Encoding", "gzip"),))]
    assert "the server sends it compressed (gzip)" in failure(url(web))
    web.tricks = [Trick(cut=100), Trick(200, body=b"GGUF" * 25)]
    assert "the file changed while it was read (try again)" in failure(url(web))
    web.tricks = [Trick(416, (("Content-Range", "bytes */0"),), b"GGUF" * 25)]
    assert "only 0 bytes" in failure(url(web))
    web.tricks = [Trick(206, (("Content-Range", f"bytes 0-{n - 1}/*"),))]
    assert "the server does not say how large it is" in failure(url(web))
    web.tricks = [Trick(200, (("Content-Length", "many"),))]
    assert is_m(url(web))


def test_an_answer_longer_than_the_range_is_cut(web: Hub) -> None:
    n = (web.folder / "m.gguf").stat().st_size
    web.tricks = [Trick(206, (("Content-Range", f"bytes 0-{n - 1}/{n}"),))]
    assert is_m(url(web))
    short = (web.folder / "m.gguf").read_bytes()[:1000]
    web.tricks = [Trick(206, (("Content-Range", f"bytes 0-999/{n}"),), short)]
    assert is_m(url(web))


def test_truncation_is_found_in_a_remote_file_too(web: Hub) -> None:
    from gguftools.gguf.report import inspect_header

    os.truncate(web.folder / "m.gguf", (web.folder / "m.gguf").stat().st_size - 100)
    report = inspect_header(open_model(url(web)))
    assert any("100 bytes" in p.message for p in report.problems)
    os.truncate(web.folder / "m.gguf", 3000)
    assert "only 2886 bytes follow" in failure(url(web))
    os.truncate(web.folder / "m.gguf", 0)
    assert "only 0 bytes" in failure(url(web))


def shard(no: int, count: int) -> bytes:
    entries = [
        raw.entry("split.no", raw.U16, no),
        raw.entry("split.count", raw.U16, count),
        raw.entry("split.tensors.count", raw.I32, count),
    ]
    if no == 0:
        entries.append(raw.entry("general.architecture", raw.STRING, "llama"))
    return raw.padded(raw.header(entries, [raw.tensor(f"w{no}", [8])])) + bytes(32)


@pytest.mark.parametrize("named", [1, 2, 3])
@pytest.mark.parametrize(
    "form", ["{}/web/files/q/{}", "{}/web/files/q/{}?download=true", "hf://user/model/q/{1}"]
)
def test_a_remote_split_model_is_one_model(web: Hub, named: int, form: str) -> None:
    (web.folder / "q").mkdir()
    names = [f"m-{no:05}-of-00003.gguf" for no in (1, 2, 3)]
    for no, name in enumerate(names):
        (web.folder / "q" / name).write_bytes(shard(no, 3))
    found = open_model(form.format(web.url, names[named - 1]))
    assert list(found.tensors) == ["w0", "w1", "w2"]
    assert [row.shard for row in found.tensors.values()] == [0, 1, 2]
    assert [s.path.rpartition("/")[2] for s in found.shards] == names
    assert len(web.asked) == 3
    (web.folder / "q" / names[2 if named < 3 else 1]).unlink()
    assert "no such" in failure(form.format(web.url, names[named - 1]))


def test_whatever_a_server_does_the_header_is_right_or_the_error_one_line(
    web: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(11)
    monkeypatch.setattr(remote, "SECONDS_TIMEOUT", 1.0)
    write(web.folder / "m.gguf", 15_000)
    said: list[str] = []
    for _ in range(80):
        web.ranges = random.random() < 0.7
        web.tricks = [odd_answer(random) for _ in range(random.randrange(1, 6))]
        try:
            found = open_model(url(web))
        except (SourceError, FormatError) as err:
            said.append(str(err))
        else:
            assert list(found.tensors) == ["w"]
            assert found.shards[0].n_bytes == (web.folder / "m.gguf").stat().st_size
    assert 10 < len(said) < 70
    assert all(text.startswith(url(web)) and "\n" not in text for text in said)


def odd_answer(random: Random) -> Trick:
    """An honest answer, a cut one, or one that is wrong in its status, a header or its body."""
    headers = (
        ("Retry-After", random.choice(["0", "-1", "never", "99999"])),
        ("Content-Length", random.choice(["0", "10", "999999999999", "-1", "x"])),
        ("Content-Range", random.choice(["bytes 0-9/10", "bytes */5", "bytes 1-2/*", "x"])),
        ("Transfer-Encoding", random.choice(["chunked", "gzip"])),
        ("Location", random.choice(["/web/files/m.gguf", "/nowhere", "http://", "\\"])),
        ("ETag", random.choice(["a", "b"])),
    )
    return Trick(
        status=random.choice([0, 0, 0, 0, 200, 206, 301, 302, 416, 429, 500, 503]),
        headers=tuple(random.sample(headers, random.choice([0, 0, 1, 2]))),
        body=random.choice([None, None, None, None, b"", b"GGUF", b"<html>", bytes(1000)]),
        cut=random.choice([None, None, 0, 1, 30, 5000, 270_000]),
    )


def test_progress_counts_bytes(web: Hub) -> None:
    seen: list[tuple[str, int]] = []
    open_model(url(web), lambda where, n: seen.append((where, n)))
    assert {where for where, _ in seen} == {url(web)}
    counts = [n for _, n in seen]
    assert counts == sorted(counts)
    assert counts[-1] <= FIRST_BYTES


def test_offline_nothing_is_asked(web: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for place in (url(web), "hf://user/model/m.gguf", "user/model", "user/model:Q8_0"):
        assert "HF_HUB_OFFLINE is set" in failure(place)
    assert web.asked == []


def test_no_server_and_no_address(web: Hub) -> None:
    assert "cannot reach the server" in failure("http://127.0.0.1:9/m.gguf")
    for text in ("http://", "https:///x.gguf", "http://[::1/x.gguf", "http://a b/x.gguf",
                 "http://127.0.0.1:99999999/x.gguf", "http://\u00fc\u0300.\0/x"):  # fmt: skip
        with pytest.raises((UsageError, SourceError)):
            open_model(text)
