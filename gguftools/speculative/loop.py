"""generate(): draft, verify, rewind, stop. Knows no model, no drafter and no clock by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from gguftools.speculative.drafting import NOTHING, Draft, Drafter
from gguftools.speculative.sampling import Chain, Floats
from gguftools.speculative.stats import Step
from gguftools.speculative.streaming import StopReason
from gguftools.speculative.verify import verify


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

    def decode(self, tokens: Sequence[int], n_logits: int = 0) -> Sequence[Floats]:
        """Append tokens; rows of logits of the last n_logits, valid until the next call."""
        ...

    def mark(self) -> None:
        """Make sure that what is decoded next can be given back."""
        ...

    def rewind(self, n: int) -> int:
        """Give back positions n and above; returns how many tokens are left, at most n."""
        ...

    def shift(self, n_keep: int, n_discard: int) -> None:
        """Forget the n_discard tokens after the first n_keep; those behind move up."""
        ...


class Controller(Protocol):
    """Decides how much to draft. Sees numbers, never a model."""

    def new_reply(self) -> None:
        """Another text follows."""
        ...

    def plan(self) -> int:
        """Most tokens to draft this round; 0 = plain."""
        ...

    def proceed(self, n_drafted: int, p_draft: float | None) -> bool:
        """Whether to draft another token."""
        ...

    def n_verify(self) -> int:
        """How many of the drafted tokens to send to the target."""
        ...

    def promise(self) -> float:
        """Tokens per plain decode that the draft at hand seems to bring."""
        ...

    @property
    def rate(self) -> float:
        """The most tokens per plain decode that its drafts seem to bring."""
        ...

    def observe(self, step: Step) -> None:
        """Learn from a round."""
        ...

    def skip(self, n_tokens: int) -> None:
        """Another drafter's round brought n_tokens tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Arm:
    """A drafter with the controller that judges it."""

    drafter: Drafter
    controller: Controller

    def draft(self, history: Sequence[int], room: int) -> Draft:
        """As many tokens as the controller wants, at most `room`."""
        n = min(self.controller.plan(), room, self.drafter.n_max)
        return self.drafter.draft(history, n, self.controller.proceed) if n > 0 else NOTHING


@dataclass(slots=True)
class Generation:
    """One reply in the making: iterate `steps()`; `history` grows, `stop_reason` ends it.

    After every step the target holds history[:-1]: the last token is decoded with the next draft.
    The drafters `before` draft for nothing; the first of them whose draft promises as much as
    `drafter` usually brings makes the round's draft. With `n_keep` a full context is shifted: it
    keeps so many tokens from its start and forgets half of the others. `history` forgets them too.
    """

    target: Decoder
    drafter: Drafter | None
    controller: Controller
    chain: Chain
    history: list[int]
    n_predict: int
    is_eog: Callable[[int], bool]
    rng: Random
    clock: Callable[[], float]
    cancelled: Callable[[], bool] = lambda: False
    before: Sequence[Arm] = ()
    n_keep: int | None = None
    stop_reason: StopReason = "length"

    def steps(self) -> Iterator[Step]:
        """Rounds of draft, verify, accept; stops at end of generation, n_predict or context."""
        for drafter in self._drafters():
            drafter.reset(self.history, self.chain, self.rng)
        self._replay()
        n_left = self.n_predict
        while n_left > 0:
            if self.cancelled():
                self.stop_reason = "cancelled"
                return
            if not self.make_room():
                self.stop_reason = "context"
                return
            step = self._round(n_left)
            n_left -= len(step.tokens)
            yield step
            if self.stop_reason == "eog":
                return
        self.stop_reason = "length"

    def _round(self, n_left: int) -> Step:
        room = min(n_left - 1, self.target.n_ctx - len(self.history))
        draft, name, controller = self._draft(room)
        n_verify = min(controller.n_verify(), len(draft.tokens)) if draft.tokens else 0
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
        step = Step(
            tokens=tuple(tokens),
            n_draft=len(draft.tokens),
            n_verified=n_verify,
            n_accepted=n_accepted,
            confidence=draft.confidence,
            seconds_catch_up=draft.seconds_catch_up,
            n_catch_up=draft.n_catch_up,
            seconds_draft=draft.seconds,
            seconds_verify=self.clock() - started,
            drafter=name if draft.tokens else "",
        )
        self._observe(step, controller)
        return step

    def _before(self, sent: Sequence[int]) -> Sequence[int]:
        """The tokens that the sampling after `sent` looks back at."""
        n = self.chain.n_before
        return [*self.history[max(len(self.history) - n, 0) :], *sent] if n else ()

    def _replay(self) -> None:
        """Decode what the target lacks of history[:-1]: a rewind may give back more than asked."""
        missing = self.history[self.target.n_past : -1]
        if missing:
            self.target.decode(missing)

    def _drafters(self) -> list[Drafter]:
        drafters = [arm.drafter for arm in self.before]
        return drafters if self.drafter is None else [*drafters, self.drafter]

    def _draft(self, room: int) -> tuple[Draft, str, Controller]:
        """This round's draft, whose it is and who judges it."""
        for arm in self.before:
            draft = arm.draft(self.history, room)
            # What it cost to look is not worth counting, so it may be thrown away.
            if draft.tokens and arm.controller.promise() >= self.controller.rate:
                return draft, arm.drafter.name, arm.controller
        if self.drafter is None:
            return NOTHING, "", self.controller
        draft = Arm(self.drafter, self.controller).draft(self.history, room)
        return draft, self.drafter.name, self.controller

    def _observe(self, step: Step, judge: Controller) -> None:
        judge.observe(step)
        for controller in (self.controller, *(arm.controller for arm in self.before)):
            if controller is not judge:
                controller.skip(len(step.tokens))

    def make_room(self) -> bool:
        """Whether the context has room for the last token, shifted if need and leave be."""
        if len(self.history) <= self.target.n_ctx:
            return True
        if self.n_keep is None:
            return False
        n_discard = shift_length(self.target.n_ctx, self.n_keep)
        del self.history[self.n_keep : self.n_keep + n_discard]
        self.target.shift(self.n_keep, n_discard)
        for drafter in self._drafters():
            drafter.shift(self.n_keep, n_discard)
        self._replay()
        return True

    def _until_eog(self, tokens: list[int]) -> list[int]:
        for i, token in enumerate(tokens):
            if self.is_eog(token):
                self.stop_reason = "eog"
                return tokens[: i + 1]
        return tokens


def shift_length(n_ctx: int, n_keep: int) -> int:
    """How many tokens a full context forgets at once."""
    return (n_ctx - n_keep) // 2
