"""Our engine behind the HTTP interface of OpenAI, with a page to chat on. I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gguftools.errors import EngineError
from gguftools.service.limits import LIMITS, Limits

if TYPE_CHECKING:
    from gguftools.speculative.session import Session

__all__ = ["serve_session"]

_EXTRA = frozenset({"h11", "starlette", "uvicorn"})


def serve_session(
    session: Session,
    *,
    model_name: str,
    host: str = "127.0.0.1",
    port: int = 8080,
    api_key: str | None = None,
    queue_max: int = 32,
    ready: Callable[[str], None],
    limits: Limits = LIMITS,
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is told the URL. The session stays open."""
    try:
        from gguftools.service.service import Service
        from gguftools.service.serving import serve
    except ModuleNotFoundError as err:
        if err.name not in _EXTRA:
            raise
        hint = 'pip install "gguftools[serve]"'
        raise EngineError(f"{err.name} is not installed", hint=hint) from err
    service = Service(session, model_name=model_name, queue_max=queue_max, limits=limits)
    serve(service, host=host, port=port, api_key=api_key, ready=ready)
