"""How each build of llama-server spells what we ask of it: one table for all our commands. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

NGRAM = "ngram"

# Each option by its names, the newest first: the old ones are errors in new builds.
# common/arg.cpp of b11434 and its older versions; common/common.cpp of ik_llama.cpp.
NAMES: Mapping[str, tuple[str, ...]] = {
    "target": ("-m",),
    "draft": ("-md", "--model-draft"),
    "type": ("--spec-type",),
    "draft-max": ("--spec-draft-n-max", "--draft-max", "--draft"),
    "draft-min": ("--spec-draft-n-min", "--draft-min"),
    "draft-p-min": ("--spec-draft-p-min", "--draft-p-min"),
    "n-ctx": ("-c", "--ctx-size"),
    "n-parallel": ("-np", "--parallel"),
    "threads": ("-t", "--threads"),
    "gpu-layers": ("-ngl", "--gpu-layers"),
    "gpu-layers-draft": ("-ngld", "--gpu-layers-draft"),
    "device": ("-dev", "--device"),
    "device-draft": ("-devd", "--device-draft"),
    "split-mode": ("-sm", "--split-mode"),
    "cache-type-k": ("-ctk", "--cache-type-k"),
    "cache-type-v": ("-ctv", "--cache-type-v"),
    "cache-type-k-draft": ("-ctkd", "--cache-type-k-draft"),
    "cache-type-v-draft": ("-ctvd", "--cache-type-v-draft"),
    "cpu-moe": ("-cmoe", "--cpu-moe"),
    "alias": ("-a", "--alias"),
    "host": ("--host",),
    "port": ("--port",),
    "api-key": ("--api-key",),
    "metrics": ("--metrics",),
    "slots": ("--slots",),
}
# Values of --spec-type, the newest first.
_TYPES: Mapping[str, tuple[str, ...]] = {
    "draft-simple": ("draft-simple", "draft"),
    "draft-mtp": ("draft-mtp", "mtp"),
    "draft-eagle3": ("draft-eagle3", "eagle3"),
    "draft-dflash": ("draft-dflash", "dflash"),
    "draft-dspark": ("draft-dspark", "dspark"),
    NGRAM: ("ngram-mod", "ngram-simple", "ngram-cache"),
}
_B11434 = (
    "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "ngram-simple",
    "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip
_DESCRIPTION_COLUMN = 30  # of a --help; options begin further left
_LIST = re.compile(r"\bnone(?:\s*[,|]\s*[a-z][a-z0-9-]*)*")
_REMOVED = "the argument has been removed"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a build knows: its flags and values of --spec-type. Without flags: those of b11434.

    `staged` is ik_llama.cpp's way since June 2026, each type with its lengths: mtp:n_max=3.
    """

    flags: frozenset[str] | None = None
    types: tuple[str, ...] = _B11434
    staged: bool = False
    key_by_environment: bool = True  # LLAMA_API_KEY is read

    def name(self, option: str) -> str | None:
        """The build's name of one of NAMES, None if it has none."""
        names = NAMES[option]
        if self.flags is None:
            return names[0]
        return next((name for name in names if name in self.flags), None)

    def type_of(self, kind: str) -> str | None:
        """The build's value of --spec-type for a kind of draft; empty: the draft alone says it.

        None: this build does not draft so.
        """
        found = next((t for t in _TYPES[kind] if t in self.types), None)
        if found is None and kind == "draft-simple" and not self.staged and self.name("draft"):
            return ""
        return found

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that it drafts with."""
        return tuple(kind for kind in _TYPES if self.type_of(kind) is not None)

    def speculation(
        self, kinds: Sequence[str], *, draft_max: int, draft_min: int, draft_p_min: float
    ) -> tuple[list[str], list[str]] | None:
        """The words of the type and those of the lengths, without any for no kind; None: it cannot.

        N-gram lookup keeps the build's lengths, which are the tested ones: b11434 drafts 48 to 64
        tokens after 24 that match.
        """
        types = [self.type_of(kind) for kind in kinds]
        if any(t is None for t in types) or (len(types) > 1 and not self._combines):
            return None
        lengths = {"draft-max": str(draft_max), "draft-min": str(draft_min),
                   "draft-p-min": f"{draft_p_min:g}"}  # fmt: skip
        if self.staged and kinds:
            stages = [_stage(kind, t or "", lengths) for kind, t in zip(kinds, types, strict=True)]
            return [word for stage in stages for word in ("--spec-type", stage)], []
        named = ",".join(t for t in types if t) if kinds else "none"
        words = ["--spec-type", named] if named and self.name("type") else []
        if all(kind == NGRAM for kind in kinds):
            return words, []
        # All three, always: their defaults moved between builds (llama.cpp issue 25908).
        return words, [word for option, value in lengths.items() if (name := self.name(option))
                       for word in (name, value)]  # fmt: skip

    @property
    def _combines(self) -> bool:
        return self.staged or "draft-simple" in self.types


_KEYS = {"draft-max": "n_max", "draft-min": "n_min", "draft-p-min": "p_min"}


def _stage(kind: str, type_: str, lengths: Mapping[str, str]) -> str:
    """One value of ik_llama.cpp's --spec-type: mtp:n_max=3,n_min=0,p_min=0."""
    values = ",".join(f"{_KEYS[option]}={value}" for option, value in lengths.items())
    return type_ if kind == NGRAM else f"{type_}:{values}"


def read_dialect(help_text: str) -> Dialect | None:
    """What a --help lists, without removed flags; None if it is not llama-server's."""
    lines = help_text.splitlines()
    starts = [i for i, line in enumerate(lines) if _is_option(line)]
    flags: set[str] = set()
    types: tuple[str, ...] = ()
    staged = False
    for i, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        block = " ".join(line.strip() for line in lines[i:end])
        if _REMOVED in block:
            continue
        names = set(_names(lines[i]))
        flags |= names
        if "--spec-type" in names:
            staged = "SPEC[" in block
            listed = _LIST.search(block)
            types = tuple(re.split(r"\s*[,|]\s*", listed[0])[1:]) if listed else ()
    if not {"-m", "-c"} <= flags:
        return None
    return Dialect(frozenset(flags), types, staged, "LLAMA_API_KEY" in help_text)


def _is_option(line: str) -> bool:
    words = line.lstrip(" ")
    return words.startswith("-") and len(line) - len(words) < _DESCRIPTION_COLUMN


def _names(line: str) -> Iterator[str]:
    """`-m,    --model FNAME   path of the model` -> -m, --model."""
    for word in line.split():
        if not word.startswith("-"):
            return
        yield word.rstrip(",")
        if not word.endswith(","):
            return


def unknown_flag(words: Collection[str], dialect: Dialect) -> str | None:
    """The first of these words that looks like a flag and that the build does not list."""
    if dialect.flags is None:
        return None
    for word in words:
        flag = word.replace("_", "-") if word.startswith("--") else word
        if re.match(r"--?[A-Za-z]", word) and flag not in dialect.flags:
            return word
    return None
