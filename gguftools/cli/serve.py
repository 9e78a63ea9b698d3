"""`gguftools serve TARGET`: a llama-server with the right draft, proven to speculate."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from gguftools.cli import render
from gguftools.cli.engine_options import EngineOptions
from gguftools.cli.options import FILE, color_option, given, json_option
from gguftools.cli.progress import progress
from gguftools.cli.reply import opened_session
from gguftools.cli.serve_options import FEATURE_KINDS, ServeOptions, serve_options
from gguftools.errors import UsageError

if TYPE_CHECKING:
    from gguftools.cli.contract_serve import ServeJSON
    from gguftools.speculative.session import Session

_DRAFTERS = {"draft-mtp": "mtp", "ngram": "ngram", "draft-simple": "draft"}


@click.command(short_help="Serve a model, with the draft that makes it faster.")
@click.argument("target", type=FILE, required=False)
@click.argument("extra", metavar="[-- OPTION...]", nargs=-1, type=click.UNPROCESSED)
@serve_options
@json_option
@color_option
def serve(
    target: Path | None,
    extra: tuple[str, ...],
    engine: EngineOptions,
    serving: ServeOptions,
    as_json: bool,
) -> int:
    """Serve TARGET to OpenAI clients: llama-server with a draft chosen, checked and proven to work.

    The draft and its lengths are those that `gguftools pair` predicts to be fastest, or those of a
    --recipe; options given here go first. What our own check refuses is not started. After the
    start a probe shows whether tokens are drafted: ON, or OFF and why. llama-server ends when this
    program does. Its other options go after --.

    \b
    Examples:
      gguftools serve model.gguf
      gguftools serve model.gguf --draft small.gguf --port 8080 -c 16384
      gguftools serve model.gguf --draft head.gguf --eagle3
      gguftools serve model.gguf --mtp --print-command
      gguftools serve model.gguf --no-draft -np 4 -- --cache-reuse 256
      gguftools serve --recipe smollm2-demo --engine inprocess
    """
    if target is not None and str(target).startswith("-"):  # `serve --recipe NAME -- --option`
        target, extra = None, (str(target), *extra)
    if extra and not extra[0].startswith("-"):
        raise UsageError(f"one TARGET only: {extra[0]!r} is too much")
    if extra and serving.engine_name == "inprocess":
        raise UsageError("options after -- are for llama-server, not for --engine inprocess")
    if serving.recipe is not None:
        target, engine, serving = _of_recipe(target, engine, serving)
        if serving.engine_name == "server":
            extra = ("--temp", f"{engine.sampling['temp']:g}", *extra)
    if target is None:
        raise UsageError("no TARGET given", hint="a GGUF file, or --recipe")
    if not serving.api_key and serving.host not in ("127.0.0.1", "::1", "localhost"):
        render.note(f"whoever reaches {serving.host} may use it: --api-key KEY asks for a key")
    with _interrupted_by_every_signal():
        if serving.engine_name == "inprocess":
            return _serve_inprocess(target, engine, serving, as_json=as_json)
        from gguftools.cli.serve_server import serve_server

        return serve_server(target, engine, serving, extra, as_json=as_json)


@contextmanager
def _interrupted_by_every_signal() -> Iterator[None]:
    """SIGTERM and a closed terminal end it as Ctrl-C does: with all that it started."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    previous = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


def _of_recipe(
    target: Path | None, engine: EngineOptions, serving: ServeOptions
) -> tuple[Path, EngineOptions, ServeOptions]:
    """The files, kind and settings of a recipe; options on the command line go before them."""
    from gguftools.recipes import find_recipe, load_recipe
    from gguftools.recipes.files import get_pair

    if target is not None or engine.draft is not None or engine.drafter != "auto" or serving.kind:
        raise UsageError("--recipe names target and draft itself")
    assert serving.recipe is not None
    recipe = load_recipe(find_recipe(serving.recipe))
    needed = {"llama-server": "server", "gguftools": "inprocess"}.get(recipe.needs.engine or "")
    if needed not in (None, serving.engine_name):
        raise UsageError(f"this recipe needs --engine {needed}", where=recipe.name)
    with progress("getting the files", in_bytes=True) as shown:
        pair = get_pair(recipe, lambda what, done, total: shown(done, total))
    settings = recipe.settings
    values: dict[str, Any] = {"draft": pair.draft, "drafter": _DRAFTERS.get(recipe.kind, "auto")}
    for name in (
        "draft_max", "draft_min", "draft_p_min", "n_ctx", "n_gpu_layers", "n_threads",
        "cache_type_k", "cache_type_v", "cache_type_k_draft", "cache_type_v_draft",
    ):  # fmt: skip
        if getattr(settings, name) is not None and not given(name):
            values[name] = getattr(settings, name)
    if not given("temp"):
        values["sampling"] = {**engine.sampling, "temp": settings.temp}
    engine = replace(engine, **values)
    return (
        pair.target,
        engine,
        replace(serving, kind=recipe.kind, alias=serving.alias or recipe.name),
    )


def _serve_inprocess(
    target: Path, engine: EngineOptions, serving: ServeOptions, *, as_json: bool
) -> int:
    """Our own engine behind the interface of OpenAI."""
    _refuse_server_options(serving)
    from gguftools.service import serve_session

    name = serving.alias or target.stem
    with opened_session(target, engine) as session:

        def ready(url: str) -> None:
            if as_json:
                render.json_object(_inprocess_json(url, name, target, engine, session))
                return
            render.line(f"{name} at {url}/v1, a page to chat on at {url}/")
            render.line(f"drafts with {session.drafter_name}, one reply at a time")
            render.note("Ctrl-C stops it")

        serve_session(
            session, model_name=name, host=serving.host, port=serving.port,
            api_key=serving.api_key, queue_max=serving.queue_max, ready=ready,
        )  # fmt: skip
    return 0


def _refuse_server_options(serving: ServeOptions) -> None:
    """What only a llama-server can do."""
    asked = {
        "--server": serving.server is not None, "--print-command": serving.print_command,
        "--adapt": serving.adapt, "--parallel": serving.n_parallel > 1,
        "--cpu-moe": serving.cpu_moe, "--log-file": serving.log_file is not None,
        f"--{(serving.kind or '').removeprefix('draft-')}": serving.kind in FEATURE_KINDS,
    }  # fmt: skip
    for flag, is_asked in asked.items():
        if is_asked:
            raise UsageError(f"{flag} is for --engine server")


def _inprocess_json(
    url: str, name: str, target: Path, engine: EngineOptions, session: Session
) -> ServeJSON:
    drafts = session.drafter_name != "none"
    return {
        "schema": "gguftools.serve/1",
        "engine": "inprocess",
        "url": url,
        "model": name,
        "target": str(target),
        "draft": None if engine.draft is None else str(engine.draft),
        "drafter": session.drafter_name,
        "settings": {
            "draft_max": session.draft_max,
            "draft_min": engine.draft_min,
            "draft_p_min": engine.draft_p_min,
        } if drafts else None,
        "n_ctx": session.target.n_ctx,
        "n_parallel": 1,
        "build": None,
        "proof": None,
        "command": None,
        "log": None,
        "notes": list(session.notes),
    }  # fmt: skip
