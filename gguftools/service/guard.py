"""Who may ask: the key, and on loopback only pages and tools of this machine. Pure ASGI."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gguftools.service.api_error import ApiError
from gguftools.service.refusal import Refusal

# They say nothing that is not public, and a browser must reach the page before it has a key.
_PUBLIC = ("/", "/health")


class Guard:
    """Lets through what is allowed, answers everything else itself."""

    def __init__(self, app: ASGIApp, *, api_key: str | None, loopback: bool) -> None:
        self._app, self._api_key, self._loopback = app, api_key, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        try:
            if self._loopback:
                _check_site(headers)
            if self._api_key is not None and scope["path"] not in _PUBLIC:
                _check_key(headers, self._api_key)
        except ApiError as err:
            await Refusal(err)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def is_loopback(host: str) -> bool:
    """Whether a host name or address (of a URL, without brackets) means this machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def token_of(headers: Headers) -> str:
    """The key a client sent, empty for none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _check_key(headers: Headers, api_key: str) -> None:
    sent = token_of(headers).encode("latin-1")  # as starlette decodes what came
    if not hmac.compare_digest(sent, api_key.encode()):
        raise ApiError(
            401,
            "the API key is missing or wrong: send Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
        )


def _check_site(headers: Headers) -> None:
    """No page from elsewhere, not under a name that it points here either (DNS rebinding)."""
    host = headers.get("host", "")
    if not is_loopback(_hostname(f"//{host}")):
        raise _forbidden(f"Host {host[:80]!r} is not this machine")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host}".lower():
        raise _forbidden(f"pages of {origin[:80]!r} may not use this service")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _forbidden(message: str) -> ApiError:
    return ApiError(403, message, code="forbidden", headers={"Connection": "close"})
