"""Asks a real llama-server what it makes of a pair: it drafts, runs without, refuses or aborts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

SECONDS_MAX = 60  # for one pair; they take about one
N_PREDICT = 16
PROMPT = (5, 9, 7, 11, 5, 9, 7, 12)
_OPTIONS = ("-c", "256", "-b", "64", "-ub", "64", "-t", "1", "-tb", "1", "-np", "1", "-ngl", "0",
            "-fit", "off", "-lv", "5", "--no-warmup", "--no-webui", "--offline", "--no-slots",
            "--cache-ram", "0", "--ctx-checkpoints", "0", "--no-log-timestamps")  # fmt: skip

What = Literal["drafts", "plain", "errors", "refuses", "aborts", "hangs"]


@dataclass(frozen=True)
class Outcome:
    """drafts; plain: it runs without drafting; errors: the probe fails; refuses: it does not start;
    aborts: a signal ends it."""

    what: What
    n_drafted: int
    tokens: tuple[int, ...]
    log: str

    def says(self, text: str) -> str:
        """The last line of the log with that text, empty if there is none."""
        return next((line for line in reversed(self.log.splitlines()) if text in line), "")


def ask(
    server: Path,
    target: Path,
    *options: str,
    prompt: Sequence[int] = PROMPT,
    n_predict: int = N_PREDICT,
) -> Outcome:
    """Start it on the target with these options, let it write a few tokens, stop it."""
    port = _free_port()
    command = [
        str(server),
        "-m",
        str(target),
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        *_OPTIONS,
        *options,
    ]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env=_environment())
        try:
            answer = _probe(child, f"http://127.0.0.1:{port}", prompt, n_predict)
            what = _what(child, answer)
        finally:
            child.kill()
            child.wait()
        log.seek(0)
        text = log.read().decode(errors="replace")
    answer = answer if isinstance(answer, dict) else {}
    n_drafted = int(answer.get("timings", {}).get("draft_n", 0))
    return Outcome(what, n_drafted, tuple(answer.get("tokens", ())), text)


def pair_options(kind: str, draft: Path | None, n_max: int) -> list[str]:
    """The options of a pair; no probability stops a draft, since random weights are never sure."""
    given = [] if draft is None else ["-md", str(draft), "-ngld", "0"]
    return [
        "--spec-type",
        kind,
        *given,
        "--spec-draft-n-max",
        str(n_max),
        "--spec-draft-p-min",
        "0",
    ]


def _what(child: subprocess.Popen[bytes], answer: dict[str, Any] | str | None) -> What:
    if isinstance(answer, dict):
        return "drafts" if answer["timings"].get("draft_n", 0) > 0 else "plain"
    if answer == "hangs":
        return "hangs"
    try:
        status = child.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        return "errors"
    return "aborts" if status < 0 else "refuses"


def _probe(
    child: subprocess.Popen[bytes], url: str, prompt: Sequence[int], n_predict: int
) -> dict[str, Any] | str | None:
    """The answer to a completion, None if the server is gone or has answered with an error."""
    ends = time.monotonic() + SECONDS_MAX
    while time.monotonic() < ends:
        if child.poll() is not None:
            return None
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                break
        except OSError:
            time.sleep(0.02)
    else:
        return "hangs"
    body = {
        "prompt": list(prompt), "n_predict": n_predict, "temperature": 0, "ignore_eos": True,
        "cache_prompt": False, "return_tokens": True,
    }  # fmt: skip
    request = urllib.request.Request(f"{url}/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=max(ends - time.monotonic(), 1)) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except TimeoutError:
        return "hangs"
    except (OSError, urllib.error.HTTPError):
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    """Without options in variables, and without a debugger for the backtrace of an abort."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
    return kept | {"GGML_NO_BACKTRACE": "1", "OMP_WAIT_POLICY": "passive"}
