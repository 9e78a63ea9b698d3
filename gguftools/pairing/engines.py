"""Which engine drafts with which kind of draft, and how it takes rejected tokens back. Pure."""

from __future__ import annotations

from gguftools.gguf.nextn_table import NO_MTP_IN_LIBLLAMA_0_5, rollback_class

SERVER, OURS = "llama-server", "gguftools"
# Types for which llama-server keeps n_max snapshots of a recurrent state (common/common.h, b11434).
_WITH_SNAPSHOTS = frozenset({"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"})
_SERVER_ONLY = frozenset({"draft-eagle3", "draft-dflash", "draft-dspark"})


def engines_of(kind: str, target_arch: str, draft_arch: str) -> tuple[str, ...]:
    """The engines that draft with this pair, none perhaps; `draft_arch` is empty for lookup."""
    ours = not (
        kind in _SERVER_ONLY
        or draft_arch == "gemma4-assistant"
        or NO_MTP_IN_LIBLLAMA_0_5 & {target_arch, draft_arch}
    )
    server = not _state_left_behind(kind, target_arch, draft_arch)
    return (SERVER,) * server + (OURS,) * ours


def engine_notes(kind: str, target_arch: str, draft_arch: str) -> tuple[str, ...]:
    """Why one of the two engines does not draft with this pair."""
    engines, notes = engines_of(kind, target_arch, draft_arch), []
    if OURS not in engines:
        newer = NO_MTP_IN_LIBLLAMA_0_5 & {target_arch, draft_arch}
        why = f"its llama.cpp does not know {min(newer)!r}" if newer else f"{kind} is not in it"
        notes.append(f"gguftools run cannot draft with this pair: {why}")
    if SERVER not in engines:
        notes.append(
            "llama-server b11434 aborts at the first rejected token: the draft "
            f"({draft_arch!r}) keeps a recurrent state, which the server takes back only where "
            f"the target ({target_arch!r}) keeps one too"
        )
    return tuple(notes)


def rollback_notes(kind: str, target_arch: str) -> tuple[str, ...]:
    """What a rejected draft costs where the target keeps a recurrent state, per engine."""
    shown, short = repr(target_arch), "short drafts pay best"
    match rollback_class(target_arch):
        case "FULL":
            both = "llama-server copies" if kind in _SERVER_ONLY else "both engines copy"
            replay = "replays" if kind in _SERVER_ONLY else "replay"
            return (
                f"{shown} keeps a recurrent state that cannot be rolled back token by token: "
                f"{both} it before each draft and {replay} what is kept; {short}",
            )
        case "RS" if kind in _WITH_SNAPSHOTS:
            both = "llama-server keeps" if kind in _SERVER_ONLY else "both engines keep"
            takes = "takes" if kind in _SERVER_ONLY else "take"
            return (
                f"{shown} keeps a recurrent state: {both} a copy of it for every "
                f"drafted token and so {takes} back rejected ones at once",
            )
        case "RS":
            return (
                f"llama-server copies the state of this hybrid target ({shown}) before each draft "
                f"and replays what is kept; {short} there. gguftools takes rejected tokens back at "
                "once, with a copy of the state for each",
            )
    return ()


def _state_left_behind(kind: str, target_arch: str, draft_arch: str) -> bool:
    """Whether llama-server cuts a draft's recurrent state as if it were a cache.

    It goes back to a checkpoint of both where the target needs one, else it cuts both, and aborts
    where that fails (common_memory::seq_rm, common/common.cpp, b11434).
    """
    if kind != "draft-simple" or rollback_class(draft_arch) == "PART":
        return False
    return rollback_class(target_arch) == "PART"
