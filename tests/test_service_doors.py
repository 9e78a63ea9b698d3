"""Who gets in: the key, the address, and what must be installed."""

from __future__ import annotations

from pathlib import Path

from tests.commands import python
from tests.models.service import TEXT, ask, service


def test_with_a_key_nobody_gets_in_without_it(models: dict[str, Path], tmp_path: Path) -> None:
    with service(models["target"], tmp_path / "log", api_key="secret \u00e9") as running:
        for headers in (
            {}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"},
            {"Authorization": "Bearer "}, {"X-Api-Key": "secreT"},
        ):  # fmt: skip
            answer = ask(running, "/v1/models", headers=headers)
            assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")
            assert ask(running, TEXT, {"prompt": "a"}, headers=headers).status == 401
        assert ask(running, "/").status == ask(running, "/health").status == 200
        key = "secret \u00e9".encode().decode("latin-1")
        body = {"prompt": "a", "max_tokens": 1}
        assert ask(running, TEXT, body, headers={"Authorization": f"Bearer {key}"}).status == 200
        assert ask(running, TEXT, body, headers={"X-Api-Key": key}).status == 200


def test_on_an_open_address_other_names_are_served(models: dict[str, Path], tmp_path: Path) -> None:
    with service(models["target"], tmp_path / "log", host="0.0.0.0") as running:
        assert running.url.startswith("http://0.0.0.0:")
        assert ask(running, "/v1/models", headers={"Host": "workstation.lan:80"}).status == 200


def test_a_missing_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from gguftools.service import serve_session\n"
        "serve_session(None, model_name='x', ready=print)"
    )
    done = python("-c", script)
    assert done.returncode == 1
    assert 'uvicorn is not installed (pip install "gguftools[serve]")' in done.stderr
