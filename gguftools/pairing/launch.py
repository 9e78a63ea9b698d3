"""Settings for a pair and the command lines that start it. Defaults with their sources."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Set
from dataclasses import dataclass

from gguftools.gguf.hparams import read_hparams
from gguftools.gguf.reader import Header
from gguftools.pairing.feature_draft import block_draft_max

DRAFT_MAX_SIMPLE = 8
DRAFT_MAX_DEFAULT = 3  # --spec-draft-n-max, common/common.h, b11434
P_MIN_SIMPLE = 0.5
NGRAM = "ngram"
_NGRAM_TYPE = "ngram-mod"  # what --spec-default stands for, common/arg.cpp, b11434
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
    """Where and how large a pair is started. `flags` are those that the llama-server at hand knows.

    None: no llama-server was found, so that the flags are those of b11434.
    """

    n_ctx: int | None = None
    gpu: bool = False
    cpu_moe: bool = False  # experts stay in RAM
    n_parallel: int = 1
    flags: Set[str] | None = None


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
) -> str:
    """llama-server for one stream. --spec-type is explicit: its own guess is often wrong."""
    launch = launch or Launch()
    words = ["llama-server", "-m", _path(target)]
    for names, value in _options(draft, kind, settings, launch):
        if name := _spelled(names, launch.flags):
            words += [name, value] if value else [name]
    return shlex.join([*words, "-np", str(launch.n_parallel)])


def _options(
    draft: str | None, kind: str, settings: Settings, launch: Launch
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each option by its names, the newest first. The old ones are errors in new builds."""
    yield ("--spec-type",), _NGRAM_TYPE if kind == NGRAM else kind
    if launch.n_ctx:
        yield ("-c",), str(launch.n_ctx)
    if launch.gpu:
        yield ("-ngl",), _ALL_LAYERS
    if launch.cpu_moe:
        yield ("-cmoe", "--cpu-moe"), ""
    if kind == NGRAM:  # its own lengths are the tested ones: 48 to 64 tokens after 24 that match
        return
    if draft is not None:
        yield ("-md",), _path(draft)
        if launch.gpu:
            yield ("-ngld",), _ALL_LAYERS
    # All three, always: their defaults moved between builds (llama.cpp issue 25908).
    yield ("--spec-draft-n-max", "--draft-max", "--draft"), str(settings.draft_max)
    yield ("--spec-draft-n-min", "--draft-min"), str(settings.draft_min)
    yield ("--spec-draft-p-min", "--draft-p-min"), f"{settings.draft_p_min:g}"


def _spelled(names: tuple[str, ...], flags: Set[str] | None) -> str | None:
    if flags is None:
        return names[0]
    return next((name for name in names if name in flags), None)


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
