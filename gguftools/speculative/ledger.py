"""What all drafters of one target share: its costs, and what drafting may still lose. Pure."""

from __future__ import annotations

from gguftools.speculative.cost_curve import CostCurve

ALLOWANCE_START = 4.0  # plain decodes that a reply may lose to drafting
ALLOWANCE_MAX = 16.0
ALLOWANCE_EARNED = 0.01  # per token
ALLOWANCE_LEAST = 1.0  # that a reply begins with: what one reply lost must not keep later ones off
NARROW = 0.3  # an advantage over plain decoding, in tokens per plain decode, that may be an error


class Ledger:
    """One allowance for all drafters: together they lose no more than one of them might."""

    def __init__(self, n_rows: int) -> None:
        self.costs = CostCurve(n_rows)
        self.allowance = self._granted = ALLOWANCE_START
        self._n_since_plain = self._n_rounds = self._n_plain = 0
        self._was_due = False

    def new_reply(self) -> None:
        """Another text follows: costs stay, the time scale is looked for afresh.

        A reply may lose what earlier ones won; at least, half of what was left to the last one if
        that one lost, else twice as much.
        """
        self.costs.new_reply()
        change = 2.0 if self.allowance > self._granted else 0.5
        self._granted = min(max(self._granted * change, ALLOWANCE_LEAST), ALLOWANCE_START)
        self.allowance = max(self.allowance, self._granted)

    @property
    def drafting_may_begin(self) -> bool:
        """Whether a plain decode is known well enough to compare anything with it."""
        return self.costs.known

    def plain_is_due(self, advantage: float) -> bool:
        """The smaller the claimed advantage, the better a plain decode must be known.

        A small one is held against the second of two in a row: the first takes longer.
        """
        if self._n_plain == 1 and self._was_due and advantage < NARROW:
            return True
        self._was_due = self._due(advantage)
        return self._was_due

    def _due(self, advantage: float) -> bool:
        least, n_rounds = (6.0, 8) if advantage < NARROW else (3.0 if advantage < 1.0 else 1.2, 4)
        need = max(least, (3.0 * self.costs.noise / max(advantage, 1e-3)) ** 2)
        if self.costs.weight[1] < min(40.0, need) and self._n_rounds >= n_rounds:
            return True
        return self._n_since_plain > min(512.0, 16.0 + 400.0 * advantage)

    def settle(self, n_tokens: int, n_verified: int, loss: float) -> None:
        """A round brought n_tokens tokens and lost that many plain decodes."""
        if n_verified:
            self._n_since_plain += n_tokens
            self._n_rounds += 1
            self._n_plain = 0
        else:
            self._n_plain += 1
            self._n_since_plain = self._n_rounds = 0
        earned = ALLOWANCE_EARNED * n_tokens
        self.allowance = min(ALLOWANCE_MAX, self.allowance + earned - loss)
