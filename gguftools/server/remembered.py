"""What was accepted with the same files before, by build: a worse build is noticed. I/O."""

from __future__ import annotations

from pathlib import Path

from gguftools.pairing.kept import kept_file, read_kept, write_kept
from gguftools.server.metrics import build_number, count

_N_DRAFT_ENOUGH = 1000  # drafted tokens; texts differ in how well they can be drafted
_N_PAIRS_MAX = 256
_N_BUILDS_MAX = 8


class Remembered:
    """Drafted and accepted tokens of one pair at one setting, summed up by build."""

    def __init__(self, pair: str, file: Path | None = None) -> None:
        self._pair, self._file = pair, file or kept_file("acceptance.json")
        kept = read_kept(self._file).get(pair)
        self._builds = _builds(kept)

    def add(self, build: str, n_draft: int, n_accepted: int) -> None:
        """One reply more. A build without a number cannot be told from the next one."""
        if not build_number(build) or not n_draft:
            return
        drafted, accepted = self._builds.pop(build, (0, 0))
        self._builds[build] = drafted + n_draft, accepted + n_accepted
        newest = dict(list(self._builds.items())[-_N_BUILDS_MAX:])
        known = {k: v for k, v in read_kept(self._file).items() if k != self._pair}
        write_kept(self._file, {**known, self._pair: newest}, _N_PAIRS_MAX)

    def rate(self, build: str) -> float | None:
        """Accepted of drafted tokens, None where too few were drafted to say."""
        n_draft, n_accepted = self._builds.get(build, (0, 0))
        return n_accepted / n_draft if n_draft >= _N_DRAFT_ENOUGH else None

    def before(self, build: str) -> tuple[str, float] | None:
        """The last other build that says something, and its rate."""
        others = [(b, rate) for b in self._builds if b != build and (rate := self.rate(b))]
        return others[-1] if others else None


def _builds(kept: object) -> dict[str, tuple[int, int]]:
    """What was kept of a pair, if it is what we keep."""
    found = {}
    for build, sums in kept.items() if isinstance(kept, dict) else ():
        match sums:
            case [int(n_draft), int(n_accepted)] if 0 <= n_accepted <= n_draft:
                found[str(build)] = count(n_draft), count(n_accepted)
    return found
