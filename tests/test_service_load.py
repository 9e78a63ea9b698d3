"""Many clients at once: known answers, a full queue, turns."""

from __future__ import annotations

import string
from pathlib import Path
from threading import Barrier
from typing import Any

import openai

from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import open_session
from tests.models.service import (
    ENDLESS,
    SECONDS_MAX,
    SHORT,
    SLOW,
    TEXT,
    ask,
    asked,
    clients,
    n_waiting,
    service,
    stream,
    wait_until,
)

Models = dict[str, Path]


# -- load


def known(models: Models, requests: list[tuple[str, int, int | None]]) -> list[str]:
    """What the target without a draft writes to prompt, length and seed (None is greedy)."""
    settings = Settings(models["target"], drafter="none", n_ctx=1024, n_threads=1)
    answers = []
    with open_session(settings) as session:
        for prompt, n, seed in requests:
            chain = Chain(temp=0) if seed is None else Chain(temp=1.0)
            reply = session.reply(prompt, n, raw=True, chain=chain, seed=seed)
            answers.append("".join(piece.text for piece in reply))
    return answers


def test_of_200_replies_to_8_clients_none_is_lost_mixed_or_truncated(
    models: Models, tmp_path: Path
) -> None:
    """Greedy and seeded ones, whole and streamed; a seed decides the text of plain decoding."""
    n_clients, n_each = 8, 25
    letters = string.ascii_letters + string.digits
    requests = [
        (f"client {i // n_each} asks {i} {letters[i % 62]}", 5 + i % 23, i if i % 2 else None)
        for i in range(n_clients * n_each)
    ]
    expected = known(models, requests)
    assert len(set(expected)) > 150
    start = Barrier(n_clients)

    def client(number: int) -> list[str]:
        api = openai.OpenAI(base_url=running.v1, api_key=f"key {number}", max_retries=0)
        texts = []
        start.wait(SECONDS_MAX)
        for i in range(number * n_each, (number + 1) * n_each):
            prompt, n, seed = requests[i]
            how: dict[str, Any] = {"model": "tiny", "prompt": prompt, "max_tokens": n, "seed": seed,
                                   "temperature": 0 if seed is None else 1}  # fmt: skip
            if i % 3:
                texts.append(api.completions.create(**how).choices[0].text)
            else:
                chunks = api.completions.create(**how, stream=True)
                texts.append("".join(chunk.choices[0].text for chunk in chunks))
        return texts

    with service(models["target"], tmp_path / "log") as running, clients(n_clients) as pool:
        replies = [text for texts in pool.map(client, range(n_clients)) for text in texts]
        assert replies == expected
        assert n_waiting(running) == 0
        assert running.end() == 0
        assert running.log.read_text() == ""


def test_drafted_greedy_replies_under_load_are_the_plain_ones(
    models: Models, tmp_path: Path
) -> None:
    requests: list[tuple[str, int, int | None]] = [
        (f"{i} {c}", 20, None) for i, c in enumerate(string.ascii_letters)
    ]
    expected = known(models, requests)
    drafting = {"drafter": "mtp", "draft_min": 3, "draft_max": 3}

    def one(request: tuple[str, int, int | None]) -> str:
        return ask(running, TEXT, {"prompt": request[0], "max_tokens": request[1]}).text

    with (
        service(models["hybrid-mtp"], tmp_path / "log", settings=drafting) as running,
        clients(6) as pool,
    ):
        assert list(pool.map(one, requests)) == expected


# -- the queue


def test_a_full_queue_answers_503_and_serves_who_waits(models: Models, tmp_path: Path) -> None:
    with (
        service(models["target"], tmp_path / "log", queue_max=2, **SLOW) as running,
        clients(3) as pool,
    ):
        with stream(running, ENDLESS):
            waiting = [asked(pool, running, key) for key in "ab"]
            wait_until(lambda: n_waiting(running) == 2)
            refused = ask(running, TEXT, SHORT)
            assert (refused.status, refused.json["error"]["code"]) == (503, "queue_full")
            assert refused.json["error"]["type"] == "server_error"
            assert int(refused.headers["retry-after"]) >= 1
        assert [len(answer.result().text) for answer in waiting] == [3, 3]


def test_no_client_starves_another(models: Models, tmp_path: Path) -> None:
    order: list[str] = []
    with (
        service(models["target"], tmp_path / "log", queue_max=6, **SLOW) as running,
        clients(8) as pool,
    ):
        with stream(running, ENDLESS):
            greedy = []
            for n in range(1, 7):
                greedy.append(asked(pool, running, "greedy"))
                wait_until(lambda n=n: n_waiting(running) == n)  # type: ignore[misc]
            modest = asked(pool, running, "modest")  # finds the queue full
            wait_until(greedy[-1].done)
            assert greedy[-1].result().json["error"]["code"] == "queue_full"
            for future, name in [(modest, "modest"), *((one, "greedy") for one in greedy[:-1])]:
                future.add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]
        assert all(one.result().status == 200 for one in (modest, *greedy[:-1]))
    assert order.index("modest") <= 1
