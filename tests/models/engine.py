"""Markov files loaded into the engine: every kind of drafter on every kind of target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import perf_counter

from gguftools.speculative.context import Context
from gguftools.speculative.controller import Controller
from gguftools.speculative.drafters import ModelDrafter, MtpDrafter
from gguftools.speculative.drafting import Drafter
from gguftools.speculative.llama import Model
from gguftools.speculative.loop import Generation
from gguftools.speculative.ngram import NgramDrafter
from gguftools.speculative.sampling import Chain
from gguftools.speculative.stats import Step

N_CTX = 4096


@contextmanager
def generation(
    target: Path,
    kind: str,
    *,
    chain: Chain,
    draft: Path | None = None,
    n_draft: int = 8,
    adaptive: bool = False,
    n_predict: int = 200,
    history: tuple[int, ...] = (20, 21, 22, 20, 21),
    seed: int = 1,
    n_ctx: int = N_CTX,
) -> Iterator[Generation]:
    """A reply in the making; `kind` is none, draft, mtp or ngram; without `adaptive` the length
    is fixed at n_draft."""
    opened: list[Model | Context] = []

    def load(path: Path) -> Model:
        opened.append(model := Model(path, n_gpu_layers=0, load_mtp=kind == "mtp"))
        return model

    def context(model: Model, n_rollback: int = 0, mtp_of: Context | None = None) -> Context:
        made = Context(model, n_ctx=n_ctx, n_threads=1, n_rollback=n_rollback, mtp_of=mtp_of)
        opened.append(made)
        return made

    rng = Random(seed)
    try:
        model = load(target)
        decoder = context(model, n_rollback=n_draft)
        other = load(draft) if draft is not None else model
        drafter: Drafter | None = None
        if kind == "draft":
            drafter = ModelDrafter(context(other), model.n_vocab, 0.0)
        elif kind == "mtp":
            drafter = MtpDrafter(context(other, mtp_of=decoder), decoder, 0.0)
        elif kind == "ngram":
            drafter = NgramDrafter()
        n = min(n_draft, drafter.n_max) if drafter is not None else 0
        yield Generation(
            target=decoder,
            drafter=drafter,
            controller=Controller(n, 0 if adaptive else n),
            chain=chain,
            history=list(history),
            n_predict=n_predict,
            is_eog=model.is_eog,
            rng=rng,
            clock=perf_counter,
        )
    finally:
        for thing in reversed(opened):
            thing.close()


def generate(target: Path, kind: str, **options: object) -> tuple[list[int], list[Step], str]:
    """The whole text (prompt included), its steps and why it ended."""
    with generation(target, kind, **options) as reply:  # type: ignore[arg-type]
        steps = list(reply.steps())
        return reply.history, steps, reply.stop_reason
