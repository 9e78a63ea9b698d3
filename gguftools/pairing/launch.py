"""Settings for a pair and the command lines that start it. Defaults with their sources."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header
from gguftools.pairing.dialect import NGRAM, Dialect
from gguftools.pairing.feature_draft import block_draft_max

__all__ = ["NGRAM", "Launch", "Settings", "run_command", "server_command", "settings_for"]

DRAFT_MAX_SIMPLE = 8
DRAFT_MAX_DEFAULT = 3  # --spec-draft-n-max, common/common.h, b11434
P_MIN_SIMPLE = 0.5
_PROMPT = "Once upon a time"
_ALL_LAYERS = "99"


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of a draft: at most and at least so many tokens, and a probability to stop below."""

    draft_max: int
    draft_min: int
    draft_p_min: float


@dataclass(frozen=True, slots=True)
class Launch:
    """Where and how large a pair is started, spelled for the llama-server at hand, else b11434."""

    n_ctx: int | None = None
    gpu: bool = False
    cpu_moe: bool = False  # experts stay in RAM
    n_parallel: int = 1
    dialect: Dialect = Dialect()  # noqa: RUF009  frozen


def settings_for(kind: str, head: Header) -> Settings:
    """Where to start; `head` is the file that drafts. The controller or `tune` moves from there.

    draft-simple drafts up to 8 and stops where the draft is unsure: a fixed 8 at p_min 0 lost
    to 8 at p_min 0.55 by a quarter on a 27B pair, and long drafts at p_min 0 are mostly rejected
    (acceptance 0.07 against 0.94 at p_min 0.75, Qwen3-4B + 0.6B, n_max 64).
    An MTP head drafts 3, llama.cpp's default and the best or next to best length of most published
    curves; heads in a chain draft one token each, so never more than there are heads.
    EAGLE-3 drafts 3; DFlash and DSpark draft the block that they were trained on in one pass
    (docs/speculative.md and common/speculative.cpp, b11434).
    """
    if kind in ("draft-simple", NGRAM):
        return Settings(DRAFT_MAX_SIMPLE, 0, P_MIN_SIMPLE if kind == "draft-simple" else 0.0)
    if kind in ("draft-dflash", "draft-dspark"):
        return Settings(max(block_draft_max(kind, head), 1), 0, 0.0)
    n_heads = read_hparams(head).n_layer_nextn
    if kind == "draft-mtp" and n_heads > 1 and head.architecture != "gemma4-assistant":
        return Settings(min(DRAFT_MAX_DEFAULT, n_heads), 0, 0.0)
    return Settings(DRAFT_MAX_DEFAULT, 0, 0.0)


def server_command(
    target: str, draft: str | None, kind: str, settings: Settings, launch: Launch | None = None
) -> str | None:
    """llama-server for one stream, None where the build at hand does not draft with that kind."""
    words = server_words(target, draft, (kind,), settings, launch or Launch())
    return None if words is None else shlex.join(["llama-server", *words])


def server_words(
    target: str,
    draft: str | None,
    kinds: Sequence[str],
    settings: Settings | None,
    launch: Launch,
) -> list[str] | None:
    """Its arguments, spelled as the build spells them; no kinds: plain decoding.

    --spec-type is explicit: llama-server's own guess is often wrong.
    """
    settings = settings or Settings(0, 0, 0.0)
    spelled = launch.dialect
    drafting = spelled.speculation(
        kinds, draft_max=settings.draft_max, draft_min=settings.draft_min,
        draft_p_min=settings.draft_p_min,
    )  # fmt: skip
    if drafting is None:
        return None
    type_words, lengths = drafting
    words = ["-m", _path(target), *type_words]
    for option, value in _placement(draft, launch):
        if name := spelled.name(option):
            words += [name, value] if value else [name]
    n_parallel = [spelled.name("n-parallel") or "-np", str(launch.n_parallel)]
    return [*words, *lengths, *n_parallel]


def _placement(draft: str | None, launch: Launch) -> Iterator[tuple[str, str]]:
    """Options and their values, empty for a flag alone."""
    if launch.n_ctx:
        yield "n-ctx", str(launch.n_ctx)
    if launch.gpu:
        yield "gpu-layers", _ALL_LAYERS
    if launch.cpu_moe:
        yield "cpu-moe", ""
    if draft is not None:
        yield "draft", _path(draft)
        if launch.gpu:
            yield "gpu-layers-draft", _ALL_LAYERS


def run_command(
    target: str, draft: str | None, kind: str = "", launch: Launch | None = None
) -> str:
    """Our own engine, which chooses the draft length itself, every step."""
    drafter = ["--ngram"] if kind == NGRAM else ["--mtp"]
    if draft is not None:
        drafter = ["--draft", _path(draft)]
    words = ["gguftools", "run", _path(target), *drafter]
    if launch is not None and launch.n_ctx:
        words += ["-c", str(launch.n_ctx)]
    return shlex.join([*words, "-p", _PROMPT])


def _path(path: str) -> str:
    """A path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path
