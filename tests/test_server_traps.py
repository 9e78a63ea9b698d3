"""The watchdog of known traps: what it says to measurements, and that it is silent without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gguftools.server.metrics import Slot
from gguftools.server.remembered import Remembered
from gguftools.server.traps import BAD_BUILDS, TRAPS, Seen, find_traps, loop_period, sentences

HEALTHY = Seen(
    build="b11434-0a1b2c3", backend="cuda", kind="draft-mtp", architecture="qwen35", n_max=3,
    p_min=0.0, cache_types_draft=("f16", "f16"), split_mode="layer",
    slots=(Slot(0, 4096, busy=True, speculative=True, types="draft-mtp"),),
    n_draft=900, n_accepted=600, n_rounds=310, n_rounds_drafted=300,
    accepted_by_position=(260, 200, 140), tokens_per_second=80.0, plain_per_second=50.0,
    shorter_per_second=75.0, before=("b11000-aa", 0.70), token_ids=range(500),
)  # fmt: skip


def slot(number: int, speculative: bool | None, *, busy: bool = False) -> Slot:
    return Slot(number, 4096, busy, speculative, "")


def codes(seen: Seen) -> set[str]:
    return {trap.code for trap in find_traps(seen)}


def test_nothing_known_and_a_healthy_server_are_in_no_trap() -> None:
    assert find_traps(Seen()) == ()
    assert find_traps(HEALTHY) == ()


CASES: list[tuple[str, dict[str, object], list[str]]] = [
    ("acceptance-drop", {"before": ("b11000-aa", 0.9)}, ["67%", "90%", "b11000", "b11434"]),
    ("slots-differ", {"slots": (slot(0, True), slot(2, False))}, ["1 of 2", ": 2"]),
    ("parallel", {"slots": tuple(slot(i, True, busy=True) for i in range(4))}, ["4 slots"]),
    ("paging", {"tokens_per_second": 25.0, "shorter_per_second": None}, ["25.0", "50.0", "67%"]),
    ("spill", {"tokens_per_second": 12.0, "plain_per_second": None}, ["n-max 3", "12.0", "75.0"]),
    ("looping", {"token_ids": [1, 2, 3] * 100}, ["same 3", "67%"]),
    ("p-min-starves", {"p_min": 0.9, "n_rounds_drafted": 12, "n_draft": 20, "n_accepted": 19,
                       "accepted_by_position": (12, 7)}, ["0.9", "12 of 310"]),
    ("p-min-unset", {"kind": "draft-simple", "n_max": 16}, ["n-max 16", "7%"]),
    ("row-cliff", {"backend": "Vulkan0", "n_max": 8}, ["n-max 8", "9 rows"]),
    ("backend-suspect", {"accepted_by_position": (100, 20, 5)}, ["33%", "cuda"]),
    ("draft-cache", {"cache_types_draft": ("q8_0", "q4_0")}, ["q4_0"]),
    ("tensor-split", {"split_mode": "tensor"}, ["tensor"]),
    ("chained", {"kind": "ngram-mod,draft-mtp"}, ["ngram-mod,draft-mtp"]),
    ("bad-build", {"build": "b10431-aa"}, ["b10431", "b10428"]),
]  # fmt: skip


@pytest.mark.parametrize(("code", "changes", "words"), CASES, ids=[case[0] for case in CASES])
def test_each_trap_is_one_sentence_with_its_numbers(
    code: str, changes: dict[str, object], words: list[str]
) -> None:
    [trap] = find_traps(replace(HEALTHY, **changes))  # type: ignore[arg-type]
    assert trap.code == code
    assert all(word in trap.text for word in words), trap.text
    [sentence] = sentences([trap])
    assert sentence == f"{trap.text} ({trap.hint})"
    assert "\n" not in sentence


def test_every_trap_of_the_table_has_a_case_here() -> None:
    assert [trap.code for trap in TRAPS] == [case[0] for case in CASES]


@pytest.mark.parametrize(
    "changes",
    [
        {"before": ("b11434-0a1b2c3", 0.9)},  # the same build: another text, not another build
        {"before": ("b11000-aa", 0.9), "n_draft": 9, "n_accepted": 6},  # too few to say
        {"before": ("b11000-aa", 0.81)},
        {"slots": (slot(0, None), slot(1, False))},
        {"slots": (slot(0, False), slot(1, False))},  # off is no difference: the proof says it
        {"tokens_per_second": 40.0},
        {"tokens_per_second": 25.0, "backend": "cpu", "shorter_per_second": 30.0},
        {"tokens_per_second": 25.0, "n_accepted": 300, "shorter_per_second": 30.0, "before": None},
        {"token_ids": [1, 2, 3] * 100 + [4]},
        {"p_min": 0.9, "n_rounds_drafted": 200},
        {"p_min": 0.9, "n_rounds": 20, "n_rounds_drafted": 1},
        {"backend": "vulkan", "n_max": 7},
        {"backend": "cuda", "n_max": 16},
        {"kind": "draft-simple", "n_max": 16, "p_min": 0.5},
        {"build": "b10436-aa"},
        {"build": "b10431-aa", "backend": "vulkan"},
        {"build": "10431"},
    ],
)
def test_what_only_looks_like_a_trap_is_none(changes: dict[str, object]) -> None:
    assert find_traps(replace(HEALTHY, **changes)) == ()  # type: ignore[arg-type]


def test_a_loop_is_found_by_its_shortest_period() -> None:
    assert loop_period([5] * 200) == 1
    assert loop_period(list(range(300)) + [1, 2] * 64) == 2
    assert loop_period([1, 2] * 63) is None  # too short to say
    assert loop_period(list(range(33)) * 10) is None
    assert loop_period([]) is None


def test_acceptance_is_remembered_by_build(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "acceptance.json"
    first = Remembered("pair", file)
    for _ in range(4):
        first.add("b10428-aa", 300, 210)
        Remembered("other", file).add("b10428-aa", 300, 0)
    first.add("b10000-aa", 300, 300)  # too few to say
    first.add("b0-unknown", 3000, 0)
    first.add("", 3000, 0)
    later = Remembered("pair", file)
    later.add("b10431-aa", 900, 450)
    assert later.rate("b10431-aa") is None
    later.add("b10431-aa", 900, 450)
    assert later.rate("b10431-aa") == 0.5
    assert later.before("b10431-aa") == ("b10428-aa", 0.7)
    assert later.before("b10428-aa") == ("b10431-aa", 0.5)
    seen = replace(
        HEALTHY, build="b10431-aa", backend="vulkan", rate=0.5, before=("b10428-aa", 0.7)
    )
    assert codes(seen) == {"acceptance-drop"}


@pytest.mark.parametrize(
    "kept",
    ["", "[]", '{"pair": 5}', '{"pair": {"b1-a": [1], "b2-a": [9, "x"], "b3-a": [-5, -9]}}',
     '{"pair": {"b9-a": [10, 20]}}', "{" * 9999],
)  # fmt: skip
def test_a_memory_that_was_tampered_with_is_none(kept: str, tmp_path: Path) -> None:
    file = tmp_path / "acceptance.json"
    file.write_text(kept)
    found = Remembered("pair", file)
    assert found.before("b5-a") is None
    found.add("b10428-aa", 2000, 1000)
    assert Remembered("pair", file).rate("b10428-aa") == 0.5


def test_a_memory_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = Remembered("pair", tmp_path / "file" / "acceptance.json")
    found.add("b10428-aa", 2000, 1000)
    assert found.rate("b10428-aa") == 0.5


def test_bad_builds_are_bad_only_where_they_were_seen_to_be() -> None:
    hip = replace(HEALTHY, build="b9279-aa", backend="ROCm0")
    assert codes(replace(hip, n_max=2)) == {"bad-build"}
    assert codes(replace(hip, n_max=1)) == set()
    assert codes(replace(HEALTHY, build="b9014-aa", architecture="mimo2")) == {"bad-build"}
    assert codes(replace(HEALTHY, build="b9232-aa", architecture="mimo2")) == set()
    assert all((bad.first or 0) <= bad.last for bad in BAD_BUILDS)
