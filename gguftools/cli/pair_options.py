"""The options of `gguftools pair`, and the question that they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, get_args

import click

from gguftools.cli.options import Number
from gguftools.errors import SourceError
from gguftools.pairing.dialect import Dialect
from gguftools.pairing.launch import Launch
from gguftools.pairing.machine import Machine, parse_memory, read_machine
from gguftools.pairing.ranking import Backend, Question, Task
from gguftools.pairing.server_binary import find_server, read_server

N_MEASURED = 3


@dataclass(frozen=True, slots=True)
class PairOptions:
    """Where to look for drafts, what is to be written, on what, and where the answer goes."""

    folders: tuple[Path, ...]
    hub: bool
    task: Task | None
    temp: float | None
    n_ctx: int
    device: Backend | None
    memory: str | None
    build: int | None
    cpu_moe: bool
    n_parallel: int
    n_prompt: int
    n_predict: int
    mmproj: Path | None
    measure: bool
    output: Path | None

    def question(self) -> Question:
        """The same with this machine looked at."""
        backend, machine = self._machine()
        path = find_server()
        server = read_server(path) if path is not None else None
        launch = Launch(
            self.n_ctx or None, gpu=backend != "cpu", cpu_moe=self.cpu_moe,
            n_parallel=self.n_parallel,
            dialect=server.dialect if server is not None else Dialect(),
        )  # fmt: skip
        return Question(
            self.task, self.temp, backend, machine, launch, self.build, self.n_prompt,
            self.n_predict, self._projector_bytes(),
        )  # fmt: skip

    def _projector_bytes(self) -> int:
        if self.mmproj is None:
            return 0
        try:
            return self.mmproj.stat().st_size
        except OSError as err:
            raise SourceError(err.strerror or str(err), where=str(self.mmproj)) from err

    def _machine(self) -> tuple[Backend, Machine]:
        here = read_machine()
        device = self.device or here.backend
        return device, parse_memory(self.memory, here, device) if self.memory else here


_OPTIONS = (
    click.option(
        "--in", "folders", metavar="DIR", multiple=True, type=click.Path(path_type=Path),
        help="Look for drafts in this folder and the folders in it.  [repeatable]",
    ),
    click.option("--hub", is_flag=True, help="Search the Hub too; only headers are fetched."),
    click.option("--task", type=click.Choice(get_args(Task)), help="What will be written."),
    click.option(
        "--temp", "--temperature", "temp", type=Number(float, 0, 1000),
        help="Temperature of the sampling.",
    ),
    click.option(
        "-c", "--ctx-size", "n_ctx", type=Number(int, 0, 1 << 24), default=0,
        help="Tokens of context.  [default: the model's own, within reason]",
    ),
    click.option(
        "--device", type=click.Choice(get_args(Backend)),
        help="What computes.  [default: the GPU found here, else cpu]",
    ),
    click.option(
        "--memory", metavar="SIZE",
        help="Memory to use instead of what is free here: 24G, 8G,8G for two GPUs, or "
        "ram=32G,vram=24G.",
    ),
    click.option("-cmoe", "--cpu-moe", is_flag=True, help="The experts stay in RAM."),
    click.option(
        "-np", "--parallel", "n_parallel", type=Number(int, 1, 1024), default=1, show_default=True,
        help="Requests side by side; drafts pay less with each.",
    ),
    click.option(
        "--prompt-tokens", "n_prompt", type=Number(int, 1, 1 << 24), default=1000,
        show_default=True, help="Length of a usual prompt, for the speed of a whole request.",
    ),
    click.option(
        "-n", "--predict", "--n-predict", "n_predict", type=Number(int, 1, 1 << 24), default=500,
        show_default=True, help="Length of a usual reply.",
    ),
    click.option(
        "-mm", "--mmproj", type=click.Path(path_type=Path),
        help="A multimodal projector that is loaded too, for the memory.",
    ),
    click.option(
        "--build", metavar="N", type=Number(int, 1, 10**6),
        help="Apply the rules of this older build of llama.cpp, e.g. 8900.",
    ),
    click.option(
        "--measure", is_flag=True,
        help=f"Run the best {N_MEASURED} pairs here for half a minute each, instead of predicting.",
    ),
    click.option(
        "-o", "--output", type=click.Path(path_type=Path),
        help="Write the best pair to this file, as a recipe.",
    ),
)  # fmt: skip


def pair_options(command: Callable[..., int]) -> Callable[..., int]:
    """All of them, as the argument `asked`."""

    @wraps(command)
    def wrapper(**values: Any) -> int:
        asked = PairOptions(**{f.name: values.pop(f.name) for f in fields(PairOptions)})
        return command(asked=asked, **values)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper
