"""Measures one loaded session: plain, fixed lengths and adaptive, by its controller alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from gguftools.bench.measure import Measuring, Subject, measure, report_of
from gguftools.bench.prompt_set import Prompt
from gguftools.bench.report import ADAPTIVE, PLAIN, BenchReport, Run
from gguftools.bench.surroundings import our_builds
from gguftools.bench.way import Answer, Way, run_of
from gguftools.speculative.controller import Controller
from gguftools.speculative.llama import build_name
from gguftools.speculative.measure import Sweep
from gguftools.speculative.reply import Engine
from gguftools.speculative.session import Session


@dataclass(frozen=True, slots=True)
class Asked:
    """The lengths to compare, None for the one that adapts, and the bounds of that one.

    `draft_max` None is the session's own.

    `against`: what else takes turns with them, with its builds.
    """

    lengths: Sequence[int | None]
    draft_max: int | None
    draft_min: int
    raw: bool
    prompts: str  # their name
    against: Sequence[Way] = ()
    builds: Mapping[str, str] = field(default_factory=dict)


def bench_session(session: Session, asked: Asked, how: Measuring) -> BenchReport:
    """Measures what was asked on a session whose drafts may be that long."""
    lengths, notes = _possible(session, asked.lengths)
    draft_max = session.draft_max if asked.draft_max is None else asked.draft_max
    ways = [
        *(way(session, n, draft_max=draft_max, draft_min=asked.draft_min, raw=asked.raw)
          for n in lengths),
        *asked.against,
    ]  # fmt: skip
    plan, binding = session.plan, build_name().rpartition(" ")[2]
    subject = Subject(
        target=plan.target.path,
        draft=None if plan.draft is None else plan.draft.path,
        drafter=session.drafter_name,
        temp=session.settings.chain.temp,
        prompts=asked.prompts,
        builds={**our_builds(), "llama-cpp-python": binding, **asked.builds},
        n_threads=session.n_threads,
        notes=(*session.notes, *notes),
    )
    return report_of(ways, measure(ways, how), how, subject)


def _possible(
    session: Session, lengths: Sequence[int | None]
) -> tuple[list[int | None], list[str]]:
    """The lengths that the drafter can have, each once, and what is said of the others."""
    drafter = session.engine.drafter
    asked = list(dict.fromkeys(lengths))
    if drafter is None:
        return [n for n in asked if n == 0], []
    most = min(drafter.n_max, session.draft_max)
    longer = [str(n) for n in asked if n is not None and n > most]
    note = f"not measured: {', '.join(longer)}; the drafter drafts at most {most}"
    return [n for n in asked if n is None or n <= most], [note] if longer else []


def way(session: Session, length: int | None, *, draft_max: int, draft_min: int, raw: bool) -> Way:
    """One of them. What adapts keeps what it learned from reply to reply, as in a chat."""
    if length is None:
        engine, name = adaptive_engine(session, draft_max, draft_min), ADAPTIVE
    else:
        engine, name = fixed_engine(session, length), f"fixed-{length}" if length else PLAIN
    answer = answering(session, engine, raw=raw)
    return Way(name, length, lambda: nullcontext(answer), learns=length is None)


def fixed_engine(session: Session, length: int) -> Engine:
    """Drafts of that length wherever the drafter has one; without drafter for 0."""
    whole = session.engine
    if not length:
        return replace(whole, controller=Controller(0), drafter=None, before=())
    before = tuple(replace(arm, controller=Sweep((length,))) for arm in whole.before)
    return replace(whole, controller=Sweep((length,)), before=before)


def adaptive_engine(session: Session, draft_max: int, draft_min: int) -> Engine:
    """New controllers with these bounds, as a session would make them."""
    return session.unlearned(session.engine, draft_max, draft_min)


def answering(session: Session, engine: Engine, *, raw: bool) -> Answer:
    """Replies by that engine; each reads its prompt anew, as a first request does.

    All arms sample a round with the same seed.
    """
    seed = session.settings.seed or 0

    def answer(prompt: Prompt, round_: int, n_predict: int) -> Run:
        _forget(session)
        with _engine_of(session, engine):
            asked = prompt.text if raw else prompt.messages
            reply = session.reply(asked, n_predict, raw=raw, seed=seed + round_)
            for _ in reply:
                pass
            name = "none" if engine.drafter is None else session.drafter_name
            return run_of(reply, prompt, round_, name)

    return answer


@contextmanager
def _engine_of(session: Session, engine: Engine) -> Iterator[None]:
    whole, session.engine = session.engine, engine
    try:
        yield
    finally:
        session.engine = whole


def _forget(session: Session) -> None:
    """Neither target nor draft may know the prompt from the arm before."""
    session.target.clear()
    context = getattr(session.engine.drafter, "context", None)
    if context is not None:
        context.clear()
