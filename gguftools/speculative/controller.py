"""Chooses n_draft from what the target accepted so far and what it cost. Pure: no clock, no I/O."""

from __future__ import annotations

import math
from itertools import pairwise

from gguftools.speculative.acceptance import Confidence, History, log_odds
from gguftools.speculative.draft_cost import DraftCost
from gguftools.speculative.ledger import Ledger
from gguftools.speculative.stats import Step

X_BINS = (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0)  # log odds of a drafter's confidence
EVEN = [1.0 / len(X_BINS)] * len(X_BINS)
COST_MAX = 2.0  # whatever was predicted, one probe must stay affordable
N_LEARN = 2  # tokens in each of the first drafts, which are there to learn costs
N_SLEEP_MAX = 5  # plain decodes after which a drafter that is off is looked at again
GAP_MIN = 2  # tokens; what a drafter in use catches up belongs to its first token
# Tokens that a drafter reads at most after it was off: the price of looking again must stay one
# that a reply can earn, or off would be for ever.
CATCH_UP_MAX = 64
N_AMORTIZE = 32.0  # rounds that catching up is expected to serve
MOVED = 0.02  # change of survival that makes a new plan worth its time


def mix(old: list[float], new: list[float], share: float) -> list[float]:
    """Old moved towards new."""
    return [a + share * (b - a) for a, b in zip(old, new, strict=True)]


class Controller:
    """The draft length of one drafter with one target, round by round.

    A round of k tokens yields 1 + S_1 + ... + S_k tokens (S_i: the first i are all kept) and costs
    the draft plus the pass over k + 1 rows. The best such rate is the price of time; a token is
    drafted or verified while it brings more than its time costs. A round is planned only if losing
    all of it fits the allowance, so a reply takes at most 1.01 times plain plus four decodes, and
    what earlier replies won.
    Several drafters of one target share a ledger: each round is observed by the controller whose
    drafter drafted in it (any, if none did) and skipped by the others.
    """

    def __init__(
        self,
        draft_max: int,
        draft_min: int = 0,
        *,
        cost: float | None = None,
        acceptance: float | None = None,
        catch_up_max: int = CATCH_UP_MAX,
        ledger: Ledger | None = None,
    ) -> None:
        assert 0 <= draft_min <= draft_max
        self.draft_max = draft_max
        self.draft_min = draft_min
        self.ledger = Ledger(draft_max + 1) if ledger is None else ledger
        self.costs = self.ledger.costs
        self.drafting = DraftCost(self.costs, 0.15 if cost is None else min(cost, COST_MAX))
        mean = log_odds(acceptance)
        mean = 0.85 if mean is None else mean
        self.history = History(draft_max, mean=mean)
        self.confidence = Confidence(draft_max, mean=mean + 0.75)
        self._has_confidence = False
        self._bins = EVEN
        self._fixed = draft_min == draft_max
        self._least = max(1, draft_min)
        self._catch_up_max = catch_up_max
        self._n_unseen = self._n_idle = self._n_sleep = self._n_built = 0
        self.rate = 1.0  # the most tokens per plain decode that its drafts seem to bring
        self._prompt_unseen = True
        self._new_x: list[float] = []
        self._start_round()

    def _start_round(self) -> None:
        self._cap = self._n_drafted = self._n_best = 0
        self._gain = self._best = 0.0
        self._learning = False
        self.confidence.start()

    def new_reply(self) -> None:
        """Another text follows: costs stay, the acceptance level is mostly forgotten."""
        self.history.level.forget()
        self.confidence.level.forget()
        self._bins = EVEN
        self.ledger.new_reply()
        self._n_unseen = self._n_idle = self._n_sleep = 0
        self._prompt_unseen = True

    def plan(self) -> int:
        """The most tokens to draft in this round; 0 is a plain decode."""
        self._start_round()
        if self._fixed:
            self._cap = self.draft_max
        elif self._n_sleep > 0:
            self._n_sleep -= 1
        elif self.ledger.drafting_may_begin:
            self._cap = self._choose()
            if not self._cap:
                self._n_sleep = min(N_SLEEP_MAX, self._n_unseen // 4)
        return self._cap

    def _choose(self) -> int:
        n_idle, self._n_idle = self._n_idle, 0
        if n_idle:
            self.history.level.idle(n_idle)
            self.confidence.level.idle(n_idle)
            self._bins = mix(EVEN, self._bins, 0.98**n_idle)
        moved = self.history.refresh(MOVED)
        if moved or self.costs.n_built != self._n_built:
            self._weigh()
        catch_up = self.drafting.catch_up * self._gap()
        n_fits = self.draft_max
        while n_fits and self._worst[n_fits] + catch_up > self.ledger.allowance:
            n_fits -= 1
        if n_fits < self._least:
            return 0
        if self.costs.n_verified < 2:
            self._learning = True
            return min(max(N_LEARN, self.draft_min), n_fits)
        n_draft = self._length(n_fits, self.rate * catch_up / N_AMORTIZE)
        return 0 if n_draft and self.ledger.plain_is_due(self.rate - 1.0) else n_draft

    def _weigh(self) -> None:
        """Finds the best rate, the price of time, and puts every cost in tokens at that price."""
        costs, drafting, p = self.costs, self.drafting, self.history.survival
        self._n_built = costs.n_built
        draft, tokens, rate = drafting.first, 1.0, 1.0
        self._worst = worst = [0.0]
        # A ledger may know more rows than this drafter ever fills.
        for s, rows, v in zip(p[1:], costs.hopeful[2:], costs.at_worst[2:], strict=False):
            tokens += s
            if tokens > rate * (draft + rows):
                rate = tokens / (draft + rows)
            worst.append(draft + v - 1.0)
            draft += drafting.next
        self.rate = rate
        self._first, self._next = rate * drafting.first, rate * drafting.next
        rows_used = costs.hopeful[1 : len(p) + 1]
        self._row_cost = [0.0] + [rate * (b - a) for a, b in pairwise(rows_used)]
        if self._has_confidence:
            self._count_bins()
            self._look_ahead()
        else:
            self._add_up()

    def _add_up(self) -> None:
        """What a draft of each length gains over a plain decode."""
        gain = self._next - self._first
        self._gains = gains = [0.0]
        for s, row_cost in zip(self.history.survival[1:], self._row_cost[1:], strict=True):
            gain += s - row_cost - self._next
            gains.append(gain)

    def _look_ahead(self) -> None:
        """For every depth, what the best continuation of the draft brings and costs."""
        p, row_cost = self.history.survival, self._row_cost
        self._more = more = [(0.0, 0.0)] * (self.draft_max + 1)
        tokens = spent = 0.0
        for k in range(self.draft_max - 1, 0, -1):
            if tokens <= spent:
                tokens = spent = 0.0
            tokens += p[k + 1]
            spent += row_cost[k + 1] + self._next
            more[k] = (tokens / (p[k] + 1e-9), spent)

    def _length(self, n_fits: int, extra: float) -> int:
        """The most tokens worth planning within n_fits, 0 if none is."""
        if self._has_confidence:
            return n_fits if self._pays(1, 1.0, extra) else 0
        gains = self._gains[self._least : n_fits + 1]
        best = max(gains)
        return self._least + gains.index(best) if best > extra else 0

    def _pays(self, i: int, s: float, extra: float = 0.0) -> bool:
        """Whether to draft token i, given that it can be dropped once its confidence is seen."""
        row_cost = self._row_cost[i]
        draft_cost = (self._first if i == 1 else self._next) + extra
        p = self.history.survival
        if s * p[i] > (row_cost + draft_cost) * p[i - 1]:
            return True
        more, more_cost = self._more[i]
        if s - row_cost + max(0.0, s * more - more_cost) <= draft_cost:
            return False
        odds = self.confidence.next_odds()
        value = 0.0
        for weight, lift in self._lifts:
            o = odds * lift
            kept = s * o / (1.0 + o)
            v = kept - row_cost
            w = kept * more - more_cost
            if w > 0.0:
                v += w
            if v > 0.0:
                value += weight * v
        return value > draft_cost

    def proceed(self, n_drafted: int, p_draft: float | None) -> bool:
        """Token n_drafted was drafted with confidence p_draft: draft another one?"""
        self._n_drafted = n_drafted
        if self._fixed or n_drafted > self._cap:
            return n_drafted < self._cap
        x = log_odds(p_draft)
        if n_drafted == 1 and (x is None) is self._has_confidence:
            self._has_confidence = x is not None
            self._weigh()
        s = self.history.survival[n_drafted] if x is None else self.confidence.extend(x)
        if self._learning:
            return n_drafted < self._cap
        self._gain += s - self._row_cost[n_drafted]
        if self._gain > self._best and n_drafted >= self.draft_min:
            self._best, self._n_best = self._gain, n_drafted
        if n_drafted >= self._cap:
            return False
        if x is None or not self._has_confidence or n_drafted < self.draft_min:
            return True
        return self._pays(n_drafted + 1, s)

    def n_verify(self) -> int:
        """How many of the drafted tokens to send to the target; 0 is a plain decode."""
        n = self._n_drafted if self._fixed or self._learning else self._n_best
        return n if n >= self.draft_min else 0

    def promise(self) -> float:
        """Tokens per plain decode that the draft at hand seems to bring."""
        n = self.n_verify()
        if self._fixed or self._learning or not n:
            return math.inf if n else 0.0
        s = self.confidence.survival if self._has_confidence else self.history.survival
        drafting = self.drafting.first + self.drafting.next * (n - 1)
        return sum(s[: n + 1]) / (drafting + self.costs.verify[n + 1])

    def skip(self, n_tokens: int) -> None:
        """A round of n_tokens tokens in which another drafter drafted."""
        self._n_idle += n_tokens
        self._n_unseen += n_tokens

    def observe(self, step: Step) -> None:
        """Learns from the round."""
        if self._fixed:
            return
        n_accepted = step.n_accepted
        n_tokens = n_accepted + 1
        draft_side = self.drafting.side(step.seconds_draft)
        verify = self.costs.observe(step.n_verified + 1, step.seconds_verify, draft_side)
        loss = verify - n_tokens
        if step.n_draft or step.n_catch_up:
            loss += self._observe_draft(step)
        if step.n_verified:
            # When the reply ended inside the draft, nothing was refused.
            n_tried = step.n_tried if len(step.tokens) > n_accepted else n_accepted
            self.history.observe(n_accepted, n_tried, n_tokens)
            if len(self.confidence.x) >= n_tried:
                self.confidence.observe(n_accepted, n_tried, n_tokens)
        else:
            self._n_idle += n_tokens
        if step.n_draft:
            self._n_unseen = 0
            self._new_x += self.confidence.x
        else:
            self._n_unseen = 0 if step.n_catch_up else self._n_unseen
            self._n_unseen += n_tokens
        self.ledger.settle(n_tokens, step.n_verified, loss)

    def _observe_draft(self, step: Step) -> float:
        if self._n_unseen <= GAP_MIN and not self._prompt_unseen:
            return self.drafting.observe(step.seconds_draft, step.seconds_catch_up)
        loss = self.drafting.observe(step.seconds_draft, 0.0)
        catch_up = self.drafting.observe_catch_up(step.n_catch_up, step.seconds_catch_up)
        # Reading the prompt is the price of having a drafter, whatever is drafted.
        loss += 0.0 if self._prompt_unseen else catch_up
        self._prompt_unseen = False
        return loss

    def _gap(self) -> int:
        """Tokens that the drafter has to catch up with before it drafts."""
        if self._n_unseen <= GAP_MIN or self._prompt_unseen:
            return 0
        return min(self._n_unseen, self._catch_up_max)

    def _count_bins(self) -> None:
        """Which confidences drafts show: the value of looking at one more."""
        x = self._new_x
        if x:
            share = 1.0 - 0.975 ** len(x)
            counts = [0.0] * len(X_BINS)
            for value in x:
                counts[min(len(X_BINS) - 1, max(0, int(value + 2.5)))] += 1.0 / len(x)
            self._bins = mix(self._bins, counts, share)
            self._new_x = []
        lift = self.confidence.lift
        self._lifts = [(w, lift(x)) for w, x in zip(self._bins, X_BINS, strict=True)]
