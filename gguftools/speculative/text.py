"""Token bytes -> text that may be shown: whole characters only, nothing of a stop string. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Feed it the bytes of one token after another.

    `text` is what was given out so far. `kept` says how many tokens, and how many characters of
    `text`, a conversation can go on from: it never ends inside a character or a stop string.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = [s for s in stop if s]
        self._n_begun_max = max((len(s) for s in self._stop), default=1) - 1
        self._raw = b""  # the bytes of a character that is not whole yet
        self._held = ""  # text that may begin a stop string
        self._n_tokens = 0
        self._whole = [(0, 0)]  # tokens and characters, wherever both end together
        self.text = ""
        self.stopped = False

    def feed(self, raw: bytes) -> str:
        """The text that this token completes; sets `stopped` at a stop string."""
        decoded = self._held + self._decode(raw)
        self._n_tokens += 1
        if not self._raw:
            self._whole.append((self._n_tokens, len(self.text) + len(decoded)))
        if not self._stop:
            return self._give(decoded, len(decoded))
        ends = [at for at in (decoded.find(s) for s in self._stop) if at >= 0]
        if ends:
            self.stopped = True
            return self._give(decoded, min(ends))
        return self._give(decoded, len(decoded) - self._n_begun(decoded))

    def finish(self) -> str:
        """What was held back at the end of the reply."""
        if self.stopped:
            return ""
        decoded = self._held + self._decode(b"", final=True)
        return self._give(decoded, len(decoded))

    @property
    def kept(self) -> tuple[int, int]:
        """Tokens and characters that the next turn can build on."""
        return max(point for point in self._whole if point[1] <= len(self.text))

    def _decode(self, raw: bytes, *, final: bool = False) -> str:
        """The characters that these bytes complete."""
        raw = self._raw + raw
        text, n = codecs.utf_8_decode(raw, "replace", final)
        self._raw = raw[n:]
        return text

    def _n_begun(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        for n in range(min(self._n_begun_max, len(text)), 0, -1):
            if any(s.startswith(text[-n:]) for s in self._stop):
                return n
        return 0

    def _give(self, decoded: str, n: int) -> str:
        self._held = decoded[n:]
        self.text += decoded[:n]
        return decoded[:n]
