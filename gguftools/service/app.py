"""The routes: models, chat and text completions, health and the page."""

from __future__ import annotations

import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gguftools.service.api_error import ApiError
from gguftools.service.ask import parse_ask
from gguftools.service.body import Bodies
from gguftools.service.guard import Guard, token_of
from gguftools.service.page import page
from gguftools.service.refusal import Refusal
from gguftools.service.response import Answer
from gguftools.service.service import Service


def application(service: Service, *, api_key: str | None, loopback: bool) -> ASGIApp:
    """The service behind its guard."""
    bodies = Bodies(service.limits)
    created = int(time.time())
    home = page()

    async def index(_: Request) -> Response:
        return home

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "waiting": service.turns.n_waiting})

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model(service, created)]})

    async def model(request: Request) -> Response:
        if request.path_params["name"] != service.model.name:
            name = request.path_params["name"][:80]
            raise ApiError(404, f"there is no model {name!r} here", code="model_not_found")
        return JSONResponse(_model(service, created))

    async def chat(request: Request) -> Answer:
        ask = parse_ask(await bodies.read(request), service.model, chat=True)
        return Answer(service, ask, _client(request))

    async def completion(request: Request) -> Answer:
        ask = parse_ask(await bodies.read(request), service.model, chat=False)
        return Answer(service, ask, _client(request))

    routes = [
        Route("/", index),
        Route("/health", health),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", completion, methods=["POST"]),
    ]
    handlers: Any = {ApiError: _refused, HTTPException: _not_there, Exception: _failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, api_key=api_key, loopback=loopback)


def _model(service: Service, created: int) -> dict[str, Any]:
    model = service.model
    meta = {
        "n_ctx": model.n_ctx,
        "n_vocab": model.n_vocab,
        "drafter": service.drafter_name,
        "temperature": model.chain.temp,
    }
    return {
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "gguftools",
        "meta": meta,
    }


def _client(request: Request) -> str:
    """Who waits in the queue: a key at an address."""
    host = request.client.host if request.client is not None else ""
    return f"{host} {token_of(request.headers)}"


async def _refused(_: Request, err: ApiError) -> Response:
    return Refusal(err)


async def _not_there(request: Request, err: HTTPException) -> Response:
    """No such path, or not with this method."""
    place = f"{request.method} {request.url.path[:200]}"
    code = "method_not_allowed" if err.status_code == 405 else "not_found"
    headers = {**(err.headers or {}), "Connection": "close"}
    return Refusal(ApiError(err.status_code, f"{place}: {err.detail}", code=code, headers=headers))


async def _failed(_: Request, err: Exception) -> Response:
    """A fault of ours; the server writes it to stderr."""
    return Refusal(ApiError(500, f"internal error: {type(err).__name__}", code="internal_error"))
