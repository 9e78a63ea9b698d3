"""A compatible pair -> what it will bring; several -> the order to try them in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header
from gguftools.pairing.compatibility import Memory, Pair, Verdict
from gguftools.pairing.fit import context_advice, fits, largest_context
from gguftools.pairing.launch import NGRAM, Launch, Settings, run_command, server_command
from gguftools.pairing.machine import Gpu, Machine
from gguftools.pairing.memory import MemoryPlan, plan_memory
from gguftools.pairing.prediction import Prediction, predict
from gguftools.pairing.quant import precision_notes
from gguftools.pairing.setup import Setup, setup_of

Task = Literal["code", "chat", "prose", "json", "rewrite"]
Backend = Literal["cpu", "cuda", "metal", "vulkan", "hip"]

N_CTX_DEFAULT = 8192  # of our engine, where the model allows it
NEAR = 1.03  # of one model's files, a more precise one goes before one that is faster by this
_Q8_0_ENOUGH = 9.0  # bits: more precision brings no agreement worth its bytes
_VERDICTS = ("works", "poor", "blocked")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked beside the files: the work and the machine. None: not known.

    `n_prompt` and `n_output` are tokens of a usual request, `build` is that of a llama.cpp with
    older rules, 11434 for b11434.
    """

    task: Task | None = None
    temperature: float | None = None
    backend: Backend = "cpu"
    machine: Machine = Machine(None, None)  # noqa: RUF009  frozen
    launch: Launch = field(default_factory=Launch)
    build: int | None = None
    n_prompt: int = 1000
    n_output: int = 500
    projector_bytes: int = 0

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that compute; one of unknown size where the machine at hand has none."""
        if self.backend == "cpu" or self.machine.unified:
            return ()
        return self.machine.gpus or (Gpu(self.backend, 0, 0),)


def setup_for(kind: str, target: Header, draft: Header | None, question: Question) -> Setup:
    """What a prediction for the pair rests on."""
    gpus = question.gpus
    return replace(
        setup_of(target, draft, kind),
        task=question.task, temperature=question.temperature,
        backend=question.backend, device=gpus[0].name if gpus else "", n_devices=max(len(gpus), 1),
        n_cores=question.machine.n_cores if question.backend == "cpu" else 0,
        n_streams=question.launch.n_parallel,
        experts_on_cpu=question.launch.cpu_moe and bool(gpus),
        n_prompt=question.n_prompt, n_output=question.n_output, build=question.build,
    )  # fmt: skip


def measured(pair: Pair, found: Prediction, launch: Launch) -> Pair:
    """The pair as it proved here, whatever was expected."""
    pair = replace(
        pair, verdict="works", rule=None, reason="measured on this machine", advice=()
    )  # fmt: skip
    return replace(with_prediction(pair, found, launch), measured=True)


def expect(pair: Pair, target: Header, draft: Header | None, question: Question) -> Pair:
    """The pair with prediction, memory, settings and commands; one that will lose becomes poor."""
    if pair.verdict == "blocked" or pair.kind is None:
        return pair
    setup = setup_for(pair.kind, target, draft, question)
    found = predict(setup)
    pair = with_prediction(pair, found, question.launch)
    pair = replace(pair, advice=tuple(precision_notes(setup, found)))
    return _with_memory(pair, target, draft, question)


def _with_memory(pair: Pair, target: Header, draft: Header | None, question: Question) -> Pair:
    """What it takes; what does not fit on a GPU does not start, what does not fit in RAM crawls."""
    n_ctx_train = read_hparams(target).n_ctx_train
    n_ctx = question.launch.n_ctx or min(n_ctx_train or N_CTX_DEFAULT, N_CTX_DEFAULT)

    def plan(n_ctx: int) -> MemoryPlan:
        return plan_memory(
            target, draft, None if pair.kind == NGRAM else pair.kind, n_ctx=n_ctx,
            n_draft_max=pair.settings.draft_max if pair.settings else 0, gpus=question.gpus,
            cpu_moe=question.launch.cpu_moe, projector_bytes=question.projector_bytes,
        )  # fmt: skip

    if n_ctx_train and n_ctx > n_ctx_train * question.launch.n_parallel:
        note = f"a context of {n_ctx} is more than the {n_ctx_train} the target was trained on"
        pair = replace(pair, notes=(*pair.notes, note))
    asked = plan(n_ctx)
    fit = fits(asked, question.machine)
    if fit.fits:
        return replace(pair, memory=Memory(asked, True, fit.reason))
    best = largest_context(plan, question.machine, min(n_ctx, n_ctx_train or n_ctx))
    reason = f"{fit.reason}; {context_advice(best)}"
    on_gpu = any(room.name != "RAM" and not room.fits for room in fit.rooms)
    verdict: Verdict = "blocked" if on_gpu else "poor"
    return replace(
        pair,
        memory=Memory(asked, False, reason, best),
        verdict=verdict,
        rule="memory",
        reason=reason,
    )


def with_prediction(pair: Pair, found: Prediction, launch: Launch) -> Pair:
    """The pair as the prediction sees it, from a model or from a measurement."""
    assert pair.kind is not None
    settings = Settings(found.draft_max, found.draft_min, found.draft_p_min)
    server = server_command(pair.target, pair.draft, pair.kind, settings, launch)
    run = run_command(pair.target, pair.draft, pair.kind, launch)
    spelled: dict[str, str | None] = {"llama-server": server, "gguftools": run}
    commands = {name: spelled[name] if old else None for name, old in pair.commands.items()}
    pair = replace(pair, prediction=found, settings=settings, commands=commands)
    if found.pays or pair.verdict != "works":
        return pair
    return replace(pair, verdict="poor", rule="speed", reason=_loses(found))


def _loses(found: Prediction) -> str:
    even = found.break_even_acceptance
    need = "however good its drafts" if even is None else (
        f"{found.acceptance:.0%} of its tokens would be accepted, {even:.0%} must be"
    )  # fmt: skip
    return f"expected to be slower than no draft, {found.speedup:.2f}x, {need}"


def ranked(pairs: Iterable[Pair]) -> list[Pair]:
    """What works first, and of that the fastest; all of what was asked about is there."""
    every = list(pairs)
    best: dict[object, float] = {}
    for pair in every:
        if pair.prediction is not None and pair.verdict == "works":
            key = _model(pair)
            best[key] = max(best.get(key, 0.0), pair.prediction.speedup)
    order = sorted(every, key=lambda pair: _place(pair, best.get(_model(pair))))
    return [_with_rule(pair, order) for pair in order]


def _model(pair: Pair) -> object:
    """Files of one model in several precisions share it."""
    return pair.kind, pair.n_params


def _place(pair: Pair, best: float | None) -> tuple[int, float, float, float]:
    verdict = _VERDICTS.index(pair.verdict)
    if pair.prediction is None:
        return verdict, 0.0, 0.0, 0.0
    speed = pair.prediction.speedup
    if best is None or speed * NEAR < best:
        return verdict, -speed, 0.0, -speed
    return verdict, -best, _imprecision(pair), -speed


def _imprecision(pair: Pair) -> float:
    """Q8_0 first, then what lies above it, then what lies below."""
    bits = (pair.precision.drafting if pair.precision else None) or 0.0
    if bits > _Q8_0_ENOUGH:
        return bits - _Q8_0_ENOUGH
    return 100.0 * max(8.0 - bits, 0.0)


def _with_rule(pair: Pair, order: Sequence[Pair]) -> Pair:
    """The first of a model's files says why it goes before the others."""
    files = [p for p in order if _model(p) == _model(pair) and p.verdict == "works"]
    if len(files) < 2 or files[0] is not pair or pair.kind != "draft-simple":
        return pair
    precise = min(files, key=_imprecision)
    if precise is pair:
        note = "of this model's files the most precise that costs no speed to speak of goes first"
    else:
        ours, theirs = (p.prediction.speedup if p.prediction else 1.0 for p in (pair, precise))
        note = (
            f"the {precise.precision.type if precise.precision else 'other'} of this model is more "
            f"precise, which the rule of thumb prefers, and {ours / theirs - 1:.0%} slower here: a "
            "drafted token costs more than its better agreement brings"
        )
    return replace(pair, advice=(*pair.advice, note))
