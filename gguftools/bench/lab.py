"""Tries choices on the real engine: one session at a time, reopened only for other files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import cast

from gguftools.bench.arms import adaptive_engine, answering, fixed_engine
from gguftools.bench.prompt_set import Prompt
from gguftools.bench.report import Run
from gguftools.bench.search import Profile
from gguftools.bench.tuning import Choice
from gguftools.bench.way import Answer
from gguftools.gguf.source import open_gguf
from gguftools.pairing.launch import NGRAM
from gguftools.pairing.setup import setup_of
from gguftools.speculative.drafters import ModelDrafter, MtpDrafter
from gguftools.speculative.measure import measure, predicted
from gguftools.speculative.plan import DrafterName, Settings
from gguftools.speculative.session import Session, open_session

KINDS = {"draft": "draft-simple", "mtp": "draft-mtp", "ngram": NGRAM}
_N_WARM_UP = 8  # tokens
_N_PROFILE = 40  # tokens of a reply: a few seconds should see several tasks


class Lab:
    """The loaded session, what its controllers learned, and the prompts by round."""

    def __init__(
        self,
        base: Settings,
        prompts: Sequence[Prompt],
        *,
        raw: bool,
        draft_max: int,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.base, self.prompts, self.raw, self.draft_max = base, prompts, raw, draft_max
        self.clock = clock
        self.seconds_to_open = 0.0
        self.n_threads = base.n_threads
        self._session: Session | None = None
        self._of: tuple[str, str | None, str | None] | None = None
        self._answers: dict[Choice | None, Answer] = {}

    def profile(self, choice: Choice, seconds: float) -> Profile:
        """From the costs of passes and drafts, and what was kept; loading is counted."""
        end = self.clock() + seconds
        session = self._open(choice)
        texts = [prompt.text for prompt in self.prompts]
        left = max(end - self.clock(), 0.0)
        found = measure(session, texts, left, self.clock, n_predict=_N_PROFILE, raw=self.raw)
        draft = None if choice.draft is None else open_gguf(Path(choice.draft))
        setup = setup_of(open_gguf(self.base.target), draft, KINDS[choice.drafter])
        prediction = predicted(found, replace(setup, temperature=self.base.chain.temp))
        plain = found.verify[1]
        return Profile(
            speedup=prediction.speedup,
            draft_max=prediction.draft_max,
            acceptance=sum(found.n_kept) / max(sum(found.n_tried), 1),
            draft_cost=found.draft_token / plain,
            plain_per_second=1.0 / plain,
        )

    def run(self, choice: Choice, round_: int, n_predict: int, *, plain: bool) -> Run:
        """A reply as that choice decodes, or plain beside it."""
        session = self._open(choice)
        key = None if plain else choice
        if key not in self._answers:
            self._answers[key] = self._answer(session, key)
        self._set(session, choice)
        prompt = self.prompts[(round_ - 1) % len(self.prompts)]
        return self._answers[key](prompt, round_, n_predict)

    def _answer(self, session: Session, choice: Choice | None) -> Answer:
        if choice is None:
            return answering(session, fixed_engine(session, 0), raw=self.raw)
        engine = adaptive_engine(session, choice.draft_max, choice.draft_min)
        return answering(session, engine, raw=self.raw)

    def _set(self, session: Session, choice: Choice) -> None:
        """What a session can change while it runs."""
        drafter = session.engine.drafter
        contexts = [session.target]
        if isinstance(drafter, ModelDrafter | MtpDrafter):
            drafter.p_min = choice.draft_p_min
            contexts.append(drafter.context)
        for context in contexts:
            context.set_threads(choice.n_threads or session.n_threads)

    def _open(self, choice: Choice) -> Session:
        wanted = (choice.drafter, choice.draft, choice.cache_type_draft)
        if self._session is None or self._of != wanted:
            self.close()
            started = self.clock()
            self._session, self._of = open_session(self._settings(choice)), wanted
            self.n_threads = self._session.n_threads
            answer = answering(self._session, fixed_engine(self._session, 1), raw=self.raw)
            answer(self.prompts[-1], 0, _N_WARM_UP)
            self.seconds_to_open = self.clock() - started
        return self._session

    def _settings(self, choice: Choice) -> Settings:
        return replace(
            self.base,
            drafter=cast(DrafterName, choice.drafter),
            draft=None if choice.draft is None else Path(choice.draft),
            draft_max=self.draft_max,
            draft_min=0,
            draft_p_min=0.0,
            cache_type_k_draft=choice.cache_type_draft or self.base.cache_type_k_draft,
            cache_type_v_draft=choice.cache_type_draft or self.base.cache_type_v_draft,
        )

    def close(self) -> None:
        """Unload."""
        if self._session is not None:
            self._session.close()
        self._session = self._of = None
        self._answers = {}
