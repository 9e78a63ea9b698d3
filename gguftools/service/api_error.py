"""What a client is told when it gets no answer: OpenAI's error object and its status code."""

from __future__ import annotations

from typing import Any

from gguftools.errors import GGUFToolsError, RefusedError, UsageError


class ApiError(GGUFToolsError):
    """A refusal in the words of OpenAI's interface; `param` names the field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object of the answer."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {"message": self.what, "type": kind, "code": self.code, "param": self.param}
        }


def bad_field(param: str, message: str, code: str = "invalid_value") -> ApiError:
    """A field that cannot be meant."""
    return ApiError(400, f"{param}: {message}", code=code, param=param)


def unavailable(message: str, *, code: str, seconds: int) -> ApiError:
    """Not now; try again after so many seconds."""
    return ApiError(503, message, code=code, headers={"Retry-After": str(seconds)})


def api_error(err: GGUFToolsError) -> ApiError:
    """What went wrong in the engine. Paths on this machine are none of the client's business."""
    if isinstance(err, ApiError):
        return err
    if isinstance(err, UsageError):
        return ApiError(400, err.what, code="context_length_exceeded", param="messages")
    if isinstance(err, RefusedError):
        return ApiError(400, err.what, code="prompt_refused", param="messages")
    return ApiError(500, err.what, code="engine_failure")
