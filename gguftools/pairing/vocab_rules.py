"""Which of the vocabulary rules a build of llama.cpp has. Pure."""

from __future__ import annotations

from dataclasses import dataclass

N_VOCAB_DIFF_MAX = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE, common/speculative.cpp, b11434
N_VOCAB_DIFF_MAX_OLD = 100  # examples/speculative/speculative.cpp, b3972 (QwenLM/Qwen3 issue 326)
# The last build seen with the old limit, and with the old rules for types and special tokens, which
# llama.cpp pull 22358 of 2026-04-25 changed; where a build between the two has them is not known.
LAST_OLD_LIMIT, FIRST_NEW_LIMIT = 3972, 4219
LAST_OLD_FLAGS, FIRST_NEW_FLAGS = 8895, 8953


@dataclass(frozen=True, slots=True)
class Rules:
    """What a build compares: types of vocabulary, unused BOS and EOS ids, and how long a tail."""

    types: bool = True
    unused_ids: bool = False
    n_diff_max: int = N_VOCAB_DIFF_MAX


def rules_of(build: int | None) -> Rules:
    """The rules of a build of llama.cpp (b11434 is 11434); between two known ones, the stricter.

    Until pull 22358 the vocabulary type was compared as a truth value, so that only a file without
    a vocabulary failed, and the ids of BOS and EOS counted whether they were added or not.
    """
    if build is None or build >= FIRST_NEW_FLAGS:
        return Rules()
    n_diff_max = N_VOCAB_DIFF_MAX if build >= FIRST_NEW_LIMIT else N_VOCAB_DIFF_MAX_OLD
    return Rules(types=build > LAST_OLD_FLAGS, unused_ids=True, n_diff_max=n_diff_max)
