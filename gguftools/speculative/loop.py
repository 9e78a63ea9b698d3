"""generate(): draft, verify, rewind, stop. Knows no model, no drafter and no clock by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from gguftools.speculative.drafting import NOTHING, Draft, Drafter
from gguftools.speculative.sampling import Chain, Floats
from gguftools.speculative.stats import Step
from gguftools.speculative.verify import verify

StopReason = Literal["eog", "stop", "length", "context", "cancelled"]


class Decoder(Protocol):
    """One sequence of `n_past` decoded tokens."""

    @property
    def n_ctx(self) -> int:
        """Most tokens it can hold."""
        ...

    @property
    def n_past(self) -> int:
        """Tokens it holds."""
        ...

    def decode(self, tokens: Sequence[int], n_logits: int = 0) -> Floats:
        """Append tokens; logits of the last n_logits, valid until the next call."""
        ...

    def mark(self) -> None:
        """Make sure that what is decoded next can be given back."""
        ...

    def rewind(self, n: int) -> int:
        """Give back positions n and above; returns how many tokens are left, at most n."""
        ...


class Controller(Protocol):
    """Decides how much to draft. Sees numbers, never a model."""

    def plan(self) -> int:
        """Most tokens to draft this round; 0 = plain."""
        ...

    def proceed(self, n_drafted: int, p_draft: float | None) -> bool:
        """Whether to draft another token."""
        ...

    def n_verify(self) -> int:
        """How many of the drafted tokens to send to the target."""
        ...

    def observe(self, step: Step) -> None:
        """Learn from a round."""
        ...


@dataclass(slots=True)
class Generation:
    """One reply in the making: iterate `steps()`; `history` grows, `stop_reason` ends it.

    After every step the target holds history[:-1]: the last token is decoded with the next draft.
    """

    target: Decoder
    drafter: Drafter | None
    controller: Controller
    chain: Chain
    history: list[int]
    n_predict: int
    is_eog: Callable[[int], bool]
    rng: np.random.Generator
    clock: Callable[[], float]
    cancelled: Callable[[], bool] = lambda: False
    stop_reason: StopReason = "length"

    def steps(self) -> Iterator[Step]:
        """Rounds of draft, verify, accept; stops at end of generation, n_predict or context."""
        if self.drafter is not None:
            self.drafter.reset(self.history)
        self._replay()
        n_left = self.n_predict
        while n_left > 0:
            if self.cancelled():
                self.stop_reason = "cancelled"
                return
            if len(self.history) > self.target.n_ctx:
                self.stop_reason = "context"
                return
            step = self._round(n_left)
            n_left -= len(step.tokens)
            self.controller.observe(step)
            ended = self.is_eog(step.tokens[-1])
            if ended:
                self.stop_reason = "eog"
            yield step
            if ended:
                return
        self.stop_reason = "length"

    def _round(self, n_left: int) -> Step:
        draft = self._draft(min(n_left - 1, self.target.n_ctx - len(self.history)))
        n_verify = min(self.controller.n_verify(), len(draft.tokens)) if draft.tokens else 0
        sent = draft.tokens[:n_verify]
        if sent:
            self.target.mark()
        started = self.clock()
        rows = self.target.decode([self.history[-1], *sent], n_verify + 1)
        n_accepted, token = verify(
            sent,
            draft.distributions,
            lambda i: self.chain.distribution(rows[i], self._before(sent[:i])),
            self.rng,
        )
        tokens = self._until_eog([*sent[:n_accepted], token])
        self.target.rewind(len(self.history) + len(tokens) - 1)
        self.history.extend(tokens)
        self._replay()
        return Step(
            tokens=tuple(tokens),
            n_draft=len(draft.tokens),
            n_verified=n_verify,
            n_accepted=n_accepted,
            confidence=draft.confidence,
            seconds_catch_up=draft.seconds_catch_up,
            n_catch_up=draft.n_catch_up,
            seconds_draft=draft.seconds,
            seconds_verify=self.clock() - started,
            drafter=self.drafter.name if self.drafter is not None and draft.tokens else "",
        )

    def _before(self, sent: Sequence[int]) -> Sequence[int]:
        """The tokens that the sampling after `sent` looks back at."""
        n = self.chain.n_before
        return [*self.history[max(len(self.history) - n, 0) :], *sent] if n else ()

    def _replay(self) -> None:
        """Decode what the target lacks of history[:-1]: a rewind may give back more than asked."""
        missing = self.history[self.target.n_past : -1]
        if missing:
            self.target.decode(missing)

    def _draft(self, room: int) -> Draft:
        n = min(self.controller.plan(), room)
        if self.drafter is None or n <= 0:
            return NOTHING
        n = min(n, self.drafter.n_max)
        return self.drafter.draft(self.history, n, self.controller.proceed)

    def _until_eog(self, tokens: list[int]) -> list[int]:
        for i, token in enumerate(tokens):
            if self.is_eog(token):
                return tokens[: i + 1]
        return tokens
