"""Load on an OpenAI-compatible server: is any reply lost, mixed up with another or truncated?

  python -m scripts.load_server URL [--requests 200] [--clients 8] [--chat] [--cut-every 10]

Each prompt is asked once by itself; that greedy answer is what every later one has to be. Half of
the requests stream. `--cut-every N` leaves every Nth stream in the middle, as a killed client does.
503 is no loss: the client waits as it is told and asks again. One JSON object on stdout; exit 1 if
any reply was not what it has to be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import string
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import httpx2

from gguftools.server.client import Client

SECONDS_MAX = 300.0
_N_RETRIES = 200
Outcome = Literal["ok", "cut", "lost", "mixed", "truncated", "wrong"]
# The next token of a Markov file depends on the last one alone: each prompt ends in another.
PROMPTS = tuple(f"Tell me about the letter {letter}" for letter in string.ascii_letters[:32])


@dataclass(frozen=True, slots=True)
class Answer:
    """What came; `whole` where the server said that this is the end of it."""

    text: str
    whole: bool
    n_busy: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """How to ask."""

    url: str
    model: str
    chat: bool
    n_predict: int
    api_key: str | None

    def ask(self, client: httpx2.Client, prompt: str, *, stream: bool, cut: bool = False) -> Answer:
        """One answer; a busy server is asked again."""
        for n_busy in range(_N_RETRIES):
            try:
                with client.stream("POST", self._path, json=self._fields(prompt, stream)) as came:
                    if came.status_code == httpx2.codes.SERVICE_UNAVAILABLE:
                        time.sleep(float(came.headers.get("retry-after", 1)) / 10)
                        continue
                    if came.status_code != httpx2.codes.OK:
                        came.read()
                        return Answer("", False, n_busy, f"HTTP {came.status_code}: {came.text}")
                    text, whole = _streamed(came, cut=cut) if stream else _text(came)
                    return Answer(text, whole, n_busy)
            except (httpx2.HTTPError, ValueError, KeyError) as err:
                return Answer("", False, n_busy, f"{type(err).__name__}: {err}")
        return Answer("", False, _N_RETRIES, "busy")

    @property
    def _path(self) -> str:
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def _fields(self, prompt: str, stream: bool) -> dict[str, object]:
        asked: dict[str, object] = (
            {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
        )
        asked |= {"model": self.model, "temperature": 0, "max_tokens": self.n_predict}
        return {**asked, "stream": stream}

    def client(self) -> httpx2.Client:
        """One client."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        # One connection a request, as our client: llama-server ends kept ones now and then.
        limits = httpx2.Limits(max_keepalive_connections=0)
        return httpx2.Client(base_url=self.url, headers=headers, timeout=SECONDS_MAX, limits=limits)


def _text(came: httpx2.Response) -> tuple[str, bool]:
    choice = json.loads(came.read())["choices"][0]
    return _content(choice, "message"), choice.get("finish_reason") in ("stop", "length")


def _streamed(came: httpx2.Response, *, cut: bool) -> tuple[str, bool]:
    texts, finished, done = [], False, False
    for line in came.iter_lines():
        value = line.removeprefix("data:").strip()
        if not line.startswith("data:"):
            continue
        if value == "[DONE]":
            done = True
            continue
        for choice in json.loads(value).get("choices", ()):
            texts.append(_content(choice, "delta"))
            finished = finished or choice.get("finish_reason") in ("stop", "length")
        if cut and sum(map(len, texts)) > 4:
            return "".join(texts), False
    return "".join(texts), finished and done


def _content(choice: dict[str, Any], name: str) -> str:
    return choice["text"] if "text" in choice else choice[name].get("content") or ""


def judge(answer: Answer, expected: str, others: Sequence[str], *, cut: bool) -> Outcome:
    """What became of one request. A text that nobody expected is wrong."""
    if answer.error:
        return "lost"
    if cut:
        return "cut" if expected.startswith(answer.text) else "wrong"
    if answer.text == expected:
        return "ok" if answer.whole else "truncated"
    if expected.startswith(answer.text):
        return "truncated"
    return "mixed" if answer.text in others else "wrong"


def load(how: Load, n_requests: int, n_clients: int, cut_every: int) -> dict[str, object]:
    """Ask all, judge all."""
    with how.client() as client:
        alone = [how.ask(client, prompt, stream=False) for prompt in PROMPTS]
    if bad := next((answer for answer in alone if answer.error or not answer.text), None):
        raise SystemExit(f"error: no answer even without load: {bad.error or 'empty'}")
    expected = [answer.text for answer in alone]
    outcomes: Counter[Outcome] = Counter()
    seconds: list[float] = []
    problems: list[str] = []
    n_busy = 0

    def share(first: int) -> list[tuple[int, bool, Answer, float]]:
        rows = []
        with how.client() as client:
            for i in range(first, n_requests, n_clients):
                cut = bool(cut_every) and i % cut_every == cut_every - 1
                started = time.perf_counter()
                # Streams and whole answers by turns, in each client.
                stream = cut or (i // n_clients) % 2 == 0
                answer = how.ask(client, PROMPTS[i % len(PROMPTS)], stream=stream, cut=cut)
                rows.append((i, cut, answer, time.perf_counter() - started))
        return rows

    with ThreadPoolExecutor(n_clients) as pool:
        rows = [row for rows in pool.map(share, range(n_clients)) for row in rows]
    for i, cut, answer, took in rows:
        outcome = judge(answer, expected[i % len(PROMPTS)], expected, cut=cut)
        outcomes[outcome] += 1
        n_busy += answer.n_busy
        if outcome == "ok":
            seconds.append(took)
        elif outcome != "cut":
            problems.append(f"request {i}: {outcome}: {answer.error or answer.text!r}"[:300])
    return {
        "url": how.url, "n_requests": n_requests, "n_clients": n_clients,
        "n_answers_told_apart": len(set(expected)),
        **{f"n_{name}": outcomes[name]
           for name in ("ok", "cut", "lost", "mixed", "truncated", "wrong")},
        "n_busy": n_busy, "seconds": _percentiles(seconds), "problems": problems[:20],
    }  # fmt: skip


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100)
    return {name: round(cuts[at - 1], 4) for name, at in (("50", 50), ("90", 90), ("99", 99))}


def main() -> int:
    """Parse, load, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--predict", type=int, default=32)
    parser.add_argument("--chat", action="store_true", help="chat completions, for real models")
    parser.add_argument("--cut-every", type=int, default=0, metavar="N")
    parser.add_argument("--api-key")
    args = parser.parse_args()
    with Client(args.url, api_key=args.api_key) as server:
        model = next(iter(server.models()), "any")
        how = Load(server.url, model, args.chat, args.predict, args.api_key)
    found = load(how, args.requests, args.clients, args.cut_every)
    print(json.dumps(found))
    return 0 if found["n_ok"] == args.requests - int(str(found["n_cut"])) else 1


if __name__ == "__main__":
    sys.exit(main())
