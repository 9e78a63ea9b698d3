"""Known traps of speculation: measurements -> one sentence each, with the numbers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gguftools.server.metrics import Slot, build_number

_N_DRAFT_ENOUGH = 200  # drafted tokens before an acceptance says something
_N_ROUNDS_ENOUGH = 50
_DROP = 0.15
_HEALTHY = 0.5
_FIRST_POSITION_LOW = 0.45
_STARVED = 0.1
_PAGED = 0.75
_SPILLED = 0.5
_LOOP_TOKENS = 128  # so many at the end of a text
_LOOP_PERIOD_MAX = 32
_VULKAN_ROWS_MAX = 8  # mul_mat_vec_max_cols, ggml-vulkan.cpp
_N_MAX_UNSURE = 4
_GPU = ("cuda", "vulkan", "metal", "rocm", "hip", "sycl")


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a server and of what it wrote; unknown is None or empty."""

    build: str = ""  # b11434-c0ffee
    backend: str = ""  # cuda, vulkan, metal, rocm, sycl, cpu; in any case
    kind: str = ""  # --spec-type
    architecture: str = ""
    n_max: int | None = None
    p_min: float | None = None
    cache_types_draft: tuple[str, ...] = ()
    split_mode: str = ""
    slots: tuple[Slot, ...] = ()
    n_draft: int = 0
    n_accepted: int = 0
    n_rounds: int = 0  # passes of the target
    n_rounds_drafted: int | None = None
    accepted_by_position: tuple[int, ...] = ()
    tokens_per_second: float | None = None
    plain_per_second: float | None = None  # the same without drafts
    shorter_per_second: float | None = None  # the same with n_max one less
    rate: float | None = None  # acceptance of this build over many replies
    before: tuple[str, float] | None = None  # another build's, with the same files and settings
    token_ids: Sequence[int] = ()

    @property
    def acceptance(self) -> float | None:
        """Accepted of drafted tokens, None where too few were drafted to say."""
        return self.n_accepted / self.n_draft if self.n_draft >= _N_DRAFT_ENOUGH else None

    def on(self, *backends: str) -> bool:
        """Whether it runs on one of these."""
        return self.backend.lower().startswith(backends)


@dataclass(frozen=True, slots=True)
class Trap:
    """`sentence` is None where the trap is not met; `cases` are public reports of it."""

    code: str
    sentence: Callable[[Seen], str | None]
    hint: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Caught:
    """A trap that was met."""

    code: str
    text: str
    hint: str


def find_traps(seen: Seen) -> tuple[Caught, ...]:
    """All that it is in, in the order of the table."""
    return tuple(
        Caught(trap.code, text, trap.hint) for trap in TRAPS if (text := trap.sentence(seen))
    )


def _acceptance_drop(seen: Seen) -> str | None:
    if seen.before is None or (now := seen.rate or seen.acceptance) is None:
        return None
    build, rate = seen.before
    if build == seen.build or rate - now <= _DROP:
        return None
    return (
        f"acceptance is {now:.0%} on build {seen.build or 'unknown'}; it was {rate:.0%} on "
        f"{build} with the same files"
    )


def _slots_differ(seen: Seen) -> str | None:
    known = [slot for slot in seen.slots if slot.speculative is not None]
    without = [str(slot.id) for slot in known if not slot.speculative]
    if not without or len(without) == len(known):
        return None
    return f"{len(without)} of {len(known)} slots cannot speculate: {', '.join(without[:8])}"


def _parallel(seen: Seen) -> str | None:
    busy = sum(slot.busy for slot in seen.slots)
    if busy < 3 or not seen.n_draft:
        return None
    return f"{busy} slots are busy at once: their rows fill each pass, so drafts cost full price"


def _paging(seen: Seen) -> str | None:
    speed, plain, rate = seen.tokens_per_second, seen.plain_per_second, seen.acceptance
    if not speed or not plain or rate is None or rate < _HEALTHY or not seen.on(*_GPU):
        return None
    if speed >= _PAGED * plain:
        return None
    return (
        f"{speed:.1f} tokens/s with drafts, {plain:.1f} without, although {rate:.0%} are accepted: "
        "the GPU's memory seems to be paged to RAM"
    )


def _spill(seen: Seen) -> str | None:
    speed, shorter = seen.tokens_per_second, seen.shorter_per_second
    if not speed or not shorter or seen.n_max is None or speed >= _SPILLED * shorter:
        return None
    return (
        f"n-max {seen.n_max} runs at {speed:.1f} tokens/s, {seen.n_max - 1} at {shorter:.1f}: "
        "the last step no longer fits into the GPU's memory"
    )


def _looping(seen: Seen) -> str | None:
    period = loop_period(seen.token_ids)
    if period is None:
        return None
    rate = f" ({seen.n_accepted / seen.n_draft:.0%} accepted)" if seen.n_draft else ""
    return (
        f"the last {_LOOP_TOKENS} tokens repeat the same {period}: drafts of a loop are always "
        f"right{rate}, so its speed says nothing"
    )


def loop_period(token_ids: Sequence[int]) -> int | None:
    """The length of what the end of a text repeats, None where it does not."""
    tail = list(token_ids[-_LOOP_TOKENS:])
    if len(tail) < _LOOP_TOKENS:
        return None
    periods = range(1, _LOOP_PERIOD_MAX + 1)
    return next((n for n in periods if tail[n:] == tail[:-n]), None)


def _starved(seen: Seen) -> str | None:
    drafted = seen.n_rounds_drafted
    if not seen.p_min or drafted is None or seen.n_rounds < _N_ROUNDS_ENOUGH:
        return None
    if drafted >= _STARVED * seen.n_rounds:
        return None
    return (
        f"p-min {seen.p_min:g} lets only {drafted} of {seen.n_rounds} passes have a draft: "
        "the draft is rarely that sure"
    )


def _unsure(seen: Seen) -> str | None:
    if seen.kind != "draft-simple" or seen.p_min is None or seen.n_max is None:
        return None
    if seen.p_min > 0 or seen.n_max <= _N_MAX_UNSURE:
        return None
    return (
        f"n-max {seen.n_max} with p-min 0 verifies every guess of the draft to its end; "
        "such drafts were accepted at 7%, at 94% with p-min 0.75"
    )


def _row_cliff(seen: Seen) -> str | None:
    if not seen.on("vulkan") or seen.n_max is None or seen.n_max < _VULKAN_ROWS_MAX:
        return None
    return (
        f"n-max {seen.n_max} verifies {seen.n_max + 1} rows: from {_VULKAN_ROWS_MAX + 1} rows on "
        "Vulkan takes a slower kernel"
    )


def _backend_suspect(seen: Seen) -> str | None:
    rounds, kept = seen.n_rounds_drafted, seen.accepted_by_position
    if seen.kind != "draft-mtp" or not rounds or not kept or rounds < _N_DRAFT_ENOUGH:
        return None
    if kept[0] >= _FIRST_POSITION_LOW * rounds:
        return None
    return (
        f"only {kept[0] / rounds:.0%} of the MTP head's first tokens are accepted; 60% to 90% is "
        f"usual, so the {seen.backend or 'backend'} or the head may be at fault"
    )


def _draft_cache(seen: Seen) -> str | None:
    low = [t for t in seen.cache_types_draft if t in ("q4_0", "q4_1", "iq4_nl")]
    if not low:
        return None
    return f"the draft's cache is {low[0]}: acceptance was seen to halve below q5_1"


def _tensor_split(seen: Seen) -> str | None:
    if seen.split_mode != "tensor" or seen.kind != "draft-mtp":
        return None
    return "split-mode tensor with an MTP head aborted in several builds of 2026"


def _chained(seen: Seen) -> str | None:
    if "draft-mtp" not in seen.kind or "ngram" not in seen.kind:
        return None
    return f"{seen.kind} ended in crashes or endless drafting after a few requests in 2026"


@dataclass(frozen=True, slots=True)
class BadBuild:
    """Builds from `first` to `last` (None: open), and where they are bad."""

    first: int | None
    last: int
    what: str
    case: str
    backends: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    n_max_from: int = 0

    def hits(self, seen: Seen) -> bool:
        """Whether this is one of them, as far as it is known."""
        number = build_number(seen.build)
        return (
            number is not None
            and (self.first or 0) <= number <= self.last
            and (not self.backends or seen.on(*self.backends))
            and (not self.kinds or seen.kind in self.kinds)
            and (not self.architectures or seen.architecture in self.architectures)
            and (seen.n_max or 0) >= self.n_max_from
        )


BAD_BUILDS = (
    BadBuild(10430, 10435, "accepts about 0.5 of what b10428 accepted at 0.7", "C65",
             backends=("cuda", "sycl"), kinds=("draft-mtp",)),
    BadBuild(9279, 9279, "runs n-max 2 and 3 at 0.4 of plain speed on HIP; 1 was a gain", "C61",
             backends=("hip", "rocm"), kinds=("draft-mtp",), n_max_from=2),
    BadBuild(10752, 10752, "sizes the draft's cache by all slots together, so requests fail", "C76",
             backends=("vulkan",)),
    BadBuild(None, 9231, "writes garbage with MiMo's heads; b9232 does not", "C44",
             architectures=("mimo2",), kinds=("draft-mtp",)),
)  # fmt: skip


def _bad_build(seen: Seen) -> str | None:
    bad = next((b for b in BAD_BUILDS if b.hits(seen)), None)
    return f"build {seen.build} {bad.what}" if bad is not None else None


TRAPS = (
    Trap("acceptance-drop", _acceptance_drop, "were the texts alike? then go back to that build",
         ("C65",)),
    Trap("slots-differ", _slots_differ, "start it with -np 1", ()),
    Trap("parallel", _parallel, "drafts are for one user at a time: -np 1, or no draft", ("C68",)),
    Trap("paging", _paging, "a shorter context, a smaller quant or a lower n-max", ("C79",)),
    Trap("spill", _spill, "take the shorter one", ("C134", "C80")),
    Trap("looping", _looping, "measure with another prompt, or raise --temp", ("C73",)),
    Trap("p-min-starves", _starved, "a lower p-min", ()),
    Trap("p-min-unset", _unsure, "p-min 0.5 to 0.75, or n-max 4 at most", ("C52",)),
    Trap("row-cliff", _row_cliff, f"n-max {_VULKAN_ROWS_MAX - 1} at most", ()),
    Trap("backend-suspect", _backend_suspect, "try another backend or build", ("C64",)),
    Trap("draft-cache", _draft_cache, "f16 or q8_0 for the draft's cache", ("C70",)),
    Trap("tensor-split", _tensor_split, "--split-mode layer", ("C85",)),
    Trap("chained", _chained, "one drafter alone", ("C86",)),
    Trap("bad-build", _bad_build, "take another build",
         tuple(bad.case for bad in BAD_BUILDS)),
)  # fmt: skip


def sentences(caught: Sequence[Caught]) -> Iterator[str]:
    """One line each, with what to do."""
    yield from (f"{trap.text} ({trap.hint})" for trap in caught)
