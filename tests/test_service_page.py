"""The page of the service in headless Chromium."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.browser import browser, is_there
from tests.models.chain import random_chain
from tests.models.markov import N_VOCAB, write_llama
from tests.models.service import SECONDS_MAX, Service, ask, service
from tests.models.vocabulary import token_bytes

needs_chromium = pytest.mark.skipif(not is_there(), reason="no chromium with its driver")
Models = dict[str, Path]


@pytest.fixture(scope="module")
def page(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Its drafts are long, so a reply holds tokens of both kinds."""
    log = tmp_path_factory.mktemp("page") / "log"
    drafting = {"drafter": "draft", "draft": models["draft"], "draft_min": 3, "draft_max": 3}
    with service(models["target"], log, settings=drafting) as running:
        yield running


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture
def opened(driver: Any, page: Service) -> Any:
    """The page, freshly loaded."""
    return load(driver, page)


def load(driver: Any, page: Service) -> Any:
    driver.get(page.url)
    wait_until(lambda: shown(driver, "model") == "tiny")
    return driver


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def shown(driver: Any, name: str) -> str:
    return str(driver.find_element("id", name).text)


def js(driver: Any, script: str, *arguments: object) -> Any:
    return driver.execute_script(script, *arguments)


def set_longest(driver: Any, n: int) -> None:
    js(driver, "document.getElementById('longest').value = arguments[0]", n)


def say(driver: Any, text: str) -> None:
    """Type a message, send it and wait for the end of the reply."""
    before = len(finished(driver))
    driver.switch_to.active_element.send_keys(text + "\n")
    wait_until(lambda: len(finished(driver)) > before)


def finished(driver: Any) -> list[Any]:
    return list(driver.find_elements("css selector", ".assistant:not(.busy) .figures"))


def complaints(driver: Any) -> list[str]:
    """What the browser warns of, such as a breach of the page's policy."""
    log = driver.get_log("browser")
    return [entry["message"] for entry in log if entry["level"] in ("WARNING", "SEVERE")]


def test_the_page_asks_nothing_of_other_hosts_and_says_what_it_may_run(page: Service) -> None:
    answer = ask(page, "/")
    html = answer.raw.decode()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.search(r"https?://|@import|url\(|<[^>]+ on\w+=|<[^>]+ style=|innerHTML", html)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(html) < 20_000


@needs_chromium
def test_a_message_is_answered_with_drafted_tokens_apart(opened: Any, page: Service) -> None:
    set_longest(opened, 60)
    say(opened, "hello")
    messages = [{"role": "user", "content": "hello"}]
    whole = ask(page, "/v1/chat/completions", {"messages": messages, "max_tokens": 60}).json
    text = js(opened, "return turns[1].content")
    assert text == whole["choices"][0]["message"]["content"]
    figures = finished(opened)[0].text
    dot = " \u00b7 "
    parts = ("60 tokens", r"[\d.]+ tokens/s", r"(\d+)% of (\d+) drafted accepted")
    match = re.fullmatch(dot.join(parts), figures)
    assert match is not None, figures
    n_accepted = round(int(match[1]) * int(match[2]) / 100)
    drafted = js(opened, "return [...document.querySelectorAll('.assistant .drafted')]"
                         ".map((span) => span.textContent).join('').length")  # fmt: skip
    assert 0 < drafted <= n_accepted < 60
    assert shown(opened, "acceptance") in figures
    assert shown(opened, "speed") in figures
    assert complaints(opened) == []


@needs_chromium
def test_a_conversation_goes_on_and_begins_anew(opened: Any) -> None:
    set_longest(opened, 5)
    say(opened, "one")
    say(opened, "two")
    roles = js(opened, "return turns.map((turn) => turn.role)")
    assert roles == ["user", "assistant", "user", "assistant"]
    opened.find_element("id", "new").click()
    assert finished(opened) == []
    assert js(opened, "return turns") == []
    say(opened, "three")
    assert js(opened, "return turns.length") == 2


@needs_chromium
def test_settings_are_what_is_asked_for(opened: Any) -> None:
    opened.find_element("id", "open").click()
    opened.find_element("id", "system").send_keys("Be short.")
    slide = "const slider = document.getElementById('temperature'); slider.value = 1.5;"
    js(opened, slide + "slider.dispatchEvent(new Event('input'))")
    set_longest(opened, 7)
    body = js(opened, "turns.push({role: 'user', content: 'hi'}); return JSON.parse(request())")
    assert body == {
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "hi"},
        ],
        "stream": True,
        "timings_per_token": True,
        "model": "tiny",
        "temperature": 1.5,
        "max_tokens": 7,
    }


@needs_chromium
@pytest.mark.parametrize("how", ["button", "key"])
def test_stop_keeps_what_was_said_and_frees_the_model(
    driver: Any, models: Models, tmp_path: Path, how: str
) -> None:
    with service(models["target"], tmp_path / "log", seconds_decode=0.05) as slow:
        load(driver, slow)
        driver.switch_to.active_element.send_keys("hello\n")
        wait_until(
            lambda: len(js(driver, "return document.querySelector('.text').textContent")) > 3
        )
        stop = driver.find_element("id", "stop")
        assert stop.is_displayed()
        assert not driver.find_element("id", "send").is_displayed()
        if how == "button":
            stop.click()
        else:
            driver.switch_to.active_element.send_keys("\ue00c")  # escape
        wait_until(lambda: len(finished(driver)) == 1)
        assert driver.find_element("id", "send").is_displayed()
        kept = js(driver, "return turns[1].content")
        assert len(kept) > 3
        body = {"prompt": "abc", "max_tokens": 1}
        assert ask(slow, "/v1/completions", body).status == 200
        time.sleep(0.2)
        assert js(driver, "return turns[1].content") == kept


@needs_chromium
def test_a_refusal_is_shown_and_the_message_comes_back(opened: Any) -> None:
    opened.switch_to.active_element.send_keys("a" * 1500 + "\n")
    wait_until(lambda: bool(opened.find_elements("css selector", ".error")))
    assert "the context holds 1024" in opened.find_element("css selector", ".error").text
    assert js(opened, "return document.getElementById('say').value") == "a" * 1500
    assert js(opened, "return turns") == []
    opened.get_log("browser")  # it notes the 400


@needs_chromium
def test_a_key_is_asked_for_where_one_is_needed(
    driver: Any, models: Models, tmp_path: Path
) -> None:
    with service(models["target"], tmp_path / "log", api_key="secret") as locked:
        driver.get(locked.url)
        wait_until(lambda: "API key" in shown(driver, "speed"))
        driver.switch_to.active_element.send_keys("secret\t")
        wait_until(lambda: shown(driver, "model") == "tiny")
        set_longest(driver, 3)
        driver.find_element("id", "say").click()
        say(driver, "hello")
        assert driver.find_element("css selector", ".text").text
    driver.get_log("browser")  # it notes the 401


def spelling(text: str) -> np.ndarray:
    """A chain that says `text` again and again after a line's start; no character twice."""
    ids = [token_bytes().index(c.encode()) for c in text]
    chain = random_chain(N_VOCAB, 3)
    for here, following in zip([token_bytes().index(b"\n"), *ids], [*ids, ids[0]], strict=True):
        chain[here] = 0
        chain[here, following] = 1
    return chain


@needs_chromium
def test_what_the_model_says_is_never_markup(driver: Any, tmp_path: Path) -> None:
    path = write_llama(tmp_path / "img.gguf", spelling("<img src=/>"))
    with service(path, tmp_path / "log") as hostile:
        load(driver, hostile)
        set_longest(driver, 22)
        say(driver, "hello")
        assert driver.find_element("css selector", ".text").text == "<img src=/>" * 2
        assert driver.find_elements("css selector", "img") == []
        assert complaints(driver) == []


@needs_chromium
def test_marks_become_elements_and_drafted_runs_stay_apart(opened: Any) -> None:
    def rendered(text: str, *runs: tuple[int, bool]) -> str:
        listed = [{"end": end, "drafted": drafted} for end, drafted in runs or [(len(text), False)]]
        root = "const root = document.createElement('div');"
        write = "new Writer(arguments[0], arguments[1]).blocks(root); return root.innerHTML"
        return str(js(opened, root + write, text, listed))

    assert rendered("a\nb\n\nc") == "<p>a\nb</p><p>c</p>"
    assert rendered("**bold** *slant* `code`") == (
        "<p><strong>bold</strong> <em>slant</em> <code>code</code></p>"
    )
    assert rendered("2*3*4 and a * b * c") == "<p>2*3*4 and a * b * c</p>"
    assert rendered("# Title\n- a\n- b\n1. c") == (
        '<h2>Title</h2><ul><li>a</li><li>b</li></ul><ol start="1"><li>c</li></ol>'
    )
    assert rendered("```py\na < b\n**x**\n```\nend") == (
        "<pre><code>a &lt; b\n**x**\n</code></pre><p>end</p>"
    )
    assert rendered("`<b>&amp;</b>`") == "<p><code>&lt;b&gt;&amp;amp;&lt;/b&gt;</code></p>"
    assert rendered("abcdef", (2, False), (4, True), (6, False)) == (
        '<p>ab<span class="drafted">cd</span>ef</p>'
    )
    assert rendered("a **bcd** e", (5, True), (11, False)) == (
        '<p><span class="drafted">a </span><strong><span class="drafted">b</span>cd</strong> e</p>'
    )


@needs_chromium
@pytest.mark.parametrize("width", [320, 390, 1200])
def test_it_fits_the_width_of_a_phone(opened: Any, width: int) -> None:
    metrics = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": width < 500}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        set_longest(opened, 40)
        say(opened, "w" * 100)
        opened.find_element("id", "open").click()
        overflow = "const root = document.documentElement; return root.scrollWidth - innerWidth"
        assert js(opened, overflow) <= 0
        for name in ("open", "new", "send", "say"):
            box = opened.find_element("id", name).rect
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert 0 <= box["y"] <= 700 - box["height"]
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
