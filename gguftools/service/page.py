"""The page to chat on: one HTML file that may run its own script and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from starlette.responses import HTMLResponse


def page() -> HTMLResponse:
    """The page under a policy that names its inline parts by hash."""
    html = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    policy = (
        "default-src 'none'; "
        f"script-src {_hash(html, 'script')}; style-src {_hash(html, 'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def _hash(html: str, tag: str) -> str:
    part = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    assert part is not None
    digest = hashlib.sha256(part[1].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
