"""One reply as it streams: pieces of text, then the report."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter

from gguftools.speculative.chat import Prompter
from gguftools.speculative.context import N_BATCH, Context
from gguftools.speculative.drafting import Drafter
from gguftools.speculative.loop import Arm, Controller, Generation
from gguftools.speculative.sampling import Chain
from gguftools.speculative.stats import Report, Step, summarize
from gguftools.speculative.streaming import Piece, StopReason
from gguftools.speculative.text import TextStream


@dataclass(frozen=True, slots=True)
class Engine:
    """The loaded parts that make a reply. `before` and `n_keep` are those of a Generation."""

    target: Context
    drafter: Drafter | None
    controller: Controller
    chain: Chain
    rng: Random
    prompter: Prompter
    before: Sequence[Arm] = ()
    n_keep: int | None = None
    draft_max: int = 0  # the most rows of a pass after the first

    def new_reply(self) -> None:
        """Another text follows."""
        for controller in (self.controller, *(arm.controller for arm in self.before)):
            controller.new_reply()


class Reply:
    """Iterate it once for Pieces; `stop()` from a signal handler ends it at the next round.

    The session's cache is in step with what was yielded, however the iteration ends.
    """

    def __init__(
        self, engine: Engine, prompt: list[int], n_predict: int, stop: Sequence[str] = ()
    ) -> None:
        self._engine = engine
        self.prompt_ids = prompt
        self._n_predict = n_predict
        self._cancelled = False
        self.stop_reason: StopReason = "cancelled"
        self.steps: list[Step] = []
        self.token_ids: list[int] = []
        self._stream = TextStream(stop)
        self._seconds_prompt = self._seconds_decode = 0.0

    def stop(self) -> None:
        """End the reply at the next round (or the next batch of the prompt)."""
        self._cancelled = True

    @property
    def n_ctx(self) -> int:
        """Tokens that the context holds."""
        return self._engine.target.n_ctx

    @property
    def text(self) -> str:
        """What was yielded so far."""
        return self._stream.text

    @property
    def seconds_decode(self) -> float:
        """What the rounds took so far."""
        return self._seconds_decode

    @property
    def report(self) -> Report:
        """Counts and seconds of what was generated so far."""
        return summarize(
            self.steps,
            n_tokens=len(self.token_ids),
            n_prompt=len(self.prompt_ids),
            seconds_prompt=self._seconds_prompt,
            seconds_decode=self._seconds_decode,
        )

    def __iter__(self) -> Generator[Piece, None, None]:
        started = perf_counter()
        done = self._prefill()
        self._seconds_prompt = perf_counter() - started
        if not done:
            return
        try:
            for step in self._generate():
                yield from self._pieces(step)
                if self._stream.stopped:
                    self.stop_reason = "stop"
                    break
            if tail := self._stream.finish():
                yield Piece(tail, False)
        finally:
            self._finish()

    def _prefill(self) -> bool:
        target = self._engine.target
        while target.n_past < len(self.prompt_ids) - 1:
            if self._cancelled:
                return False
            stop = min(target.n_past + N_BATCH, len(self.prompt_ids) - 1)
            target.decode(self.prompt_ids[target.n_past : stop])
        return True

    def _generate(self) -> Iterator[Step]:
        s = self._engine
        generation = Generation(
            target=s.target,
            drafter=s.drafter,
            controller=s.controller,
            chain=s.chain,
            history=list(self.prompt_ids),
            n_predict=self._n_predict,
            is_eog=s.target.model.is_eog,
            rng=s.rng,
            clock=perf_counter,
            cancelled=lambda: self._cancelled,
            before=s.before,
            n_keep=s.n_keep,
        )
        steps = generation.steps()
        while True:
            started = perf_counter()
            step = next(steps, None)
            self._seconds_decode += perf_counter() - started
            if step is None:
                break
            self.steps.append(step)
            yield step
        self.stop_reason = generation.stop_reason

    def _pieces(self, step: Step) -> Iterator[Piece]:
        for i, token in enumerate(step.tokens):
            self.token_ids.append(token)
            text = self._stream.feed(self._engine.target.model.piece(token))
            if text:
                yield Piece(text, i < step.n_accepted)
            if self._stream.stopped:
                return

    def _finish(self) -> None:
        """Leave to the next turn the tokens whose text was shown, without the end token."""
        n_tokens, n_chars = self._stream.kept
        ids = self.token_ids[:n_tokens]
        if ids and self._engine.target.model.is_eog(ids[-1]):
            ids = ids[:-1]
        self._engine.prompter.replied(self.text[:n_chars], ids)
