"""The arithmetic of a benchmark: the verdict, the turns, what a report keeps, which prompts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguftools.bench.measure import Found, Measuring, Subject, measure, report_of, turns
from gguftools.bench.prompt_set import (
    LINE_BYTES_MAX,
    TASKS,
    Prompt,
    builtin_prompts,
    file_prompts,
    task_texts,
)
from gguftools.bench.report import PLAIN, Run, arm_of, load_report, report_json
from gguftools.bench.verdict import judge, n_least, p_above
from gguftools.bench.way import Way
from gguftools.errors import FormatError, GGUFToolsError, SourceError, UsageError
from gguftools.speculative.stats import Share

PROMPTS = [Prompt(f"p{i}", "", (("user", f"{i}?"),)) for i in range(20)]


def run(speed: float, prompt: str = "p0", round_: int = 1, *, n_draft: int = 0) -> Run:
    """A reply of 100 tokens at that speed, half of its drafts kept."""
    return Run(
        prompt=prompt, task="", round=round_, text="text", token_ids=(1, 2), stop_reason="length",
        n_prompt=10, n_tokens=100, seconds_prompt=1.0, seconds_decode=100 / speed,
        tokens_per_second=speed, drafter="draft" if n_draft else "none", n_draft=n_draft,
        n_accepted=n_draft // 2, n_rounds=50,
        drafted_by_position=(50, 50) if n_draft else (),
        accepted_by_position=(40, 10) if n_draft else (), n_draft_histogram={2: 50},
        seconds_draft=0.1, seconds_verify=0.5,
        by_drafter={"draft": Share(50, n_draft, n_draft // 2)} if n_draft else {},
    )  # fmt: skip


def way(name: str, speed: Callable[[int], float], log: list[str] | None = None) -> Way:
    """One whose speed depends on the round."""

    def answer(prompt: Prompt, round_: int, n_predict: int) -> Run:
        if log is not None:
            log.append(f"{name}:{prompt.name}:{n_predict}")
        return run(speed(round_), prompt.name, round_, n_draft=0 if name == PLAIN else 100)

    return Way(name, 0 if name == PLAIN else 2, lambda: nullcontext(answer),
               learns=name == "adaptive")  # fmt: skip


def measuring(n_runs: int, n_in_turn: int = 1) -> Measuring:
    return Measuring(PROMPTS, n_runs, 64, lambda done, total: None, n_in_turn, comparable=True)


# -- the verdict


@given(st.lists(st.sampled_from([0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0]), max_size=9))
def test_the_test_is_the_exact_signed_rank_test(ratios: list[float]) -> None:
    logs = [math.log(r) for r in ratios if r != 1]
    sizes = [abs(x) for x in logs]
    ranks = [sum(y < x for y in sizes) + (sum(y == x for y in sizes) + 1) / 2 for x in sizes]
    seen = sum(rank for rank, x in zip(ranks, logs, strict=True) if x > 0)
    signs = list(product((0, 1), repeat=len(logs)))
    as_high = sum(sum(r for r, s in zip(ranks, each, strict=True) if s) >= seen for each in signs)
    assert p_above(ratios) == pytest.approx(as_high / len(signs))


def test_without_a_difference_a_gain_is_shown_in_one_of_twenty_at_most() -> None:
    rng = Random(7)
    arms = [{f"fixed-{n}": [math.exp(rng.gauss(0, 0.1)) for _ in range(10)] for n in range(5)}
            for _ in range(1000)]  # fmt: skip
    verdicts = [judge(each) for each in arms]
    assert sum(v is not None and v.outcome == "gain" for v in verdicts) <= 65


@pytest.mark.parametrize("n_arms", [1, 3, 6])
def test_too_few_runs_show_nothing_however_large_the_gain(n_arms: int) -> None:
    least = n_least(n_arms)
    few = judge({f"fixed-{n}": [3.0] * (least - 1) for n in range(n_arms)})
    enough = judge({f"fixed-{n}": [3.0] * least for n in range(n_arms)})
    assert few is not None
    assert enough is not None
    assert (few.outcome, few.best) == ("no-gain", PLAIN)
    assert f"at least {least} runs" in few.reason
    assert (enough.outcome, enough.best) == ("gain", "fixed-0")


def test_the_fastest_arm_that_is_shown_to_gain_is_the_best() -> None:
    verdict = judge({"fixed-1": [1.1] * 8, "fixed-2": [1.2] * 8, "wild": [9.0, 0.2] * 4})
    assert verdict is not None
    assert (verdict.outcome, verdict.best) == ("gain", "fixed-2")
    assert "gains 20%" in verdict.reason


def test_a_loss_is_one_of_the_best_arm() -> None:
    verdict = judge({"fixed-1": [0.8] * 8, "fixed-4": [0.5] * 8})
    assert verdict is not None
    assert (verdict.outcome, verdict.best) == ("loss", PLAIN)
    assert "even fixed-1" in verdict.reason
    one = judge({"fixed-1": [1.1, 0.9] * 4, "fixed-4": [0.5] * 8})
    assert one is not None
    assert one.outcome == "no-gain"


def test_nothing_compared_is_no_verdict() -> None:
    assert judge({}) is None
    assert judge({"fixed-1": []}) is None


# -- the turns


def test_every_way_answers_the_same_prompts_and_who_begins_moves_on() -> None:
    ways = [way(name, lambda i: 1.0) for name in (PLAIN, "fixed-1", "fixed-2")]
    order = [(w.name, [p.name for _, p in asked]) for w, asked in turns(ways, measuring(3))]
    assert order == [
        ("plain", ["p0"]), ("fixed-1", ["p0"]), ("fixed-2", ["p0"]),
        ("fixed-1", ["p1"]), ("fixed-2", ["p1"]), ("plain", ["p1"]),
        ("fixed-2", ["p2"]), ("plain", ["p2"]), ("fixed-1", ["p2"]),
    ]  # fmt: skip


def test_what_takes_long_to_start_answers_several_prompts_in_its_turn() -> None:
    ways = [way(PLAIN, lambda i: 1.0), way("fixed-1", lambda i: 1.0)]
    asked = [(w.name, [i for i, _ in rounds]) for w, rounds in turns(ways, measuring(5, 3))]
    assert asked == [("plain", [1, 2, 3]), ("fixed-1", [1, 2, 3]), ("fixed-1", [4, 5]),
                     ("plain", [4, 5])]  # fmt: skip


def test_warm_ups_are_apart_and_an_arm_that_learns_has_its_first_reply_there() -> None:
    log: list[str] = []
    ways = [way(PLAIN, lambda i: 10.0, log), way("adaptive", lambda i: 5.0 if i == 0 else 20, log)]
    how = measuring(6)
    report = report_of(ways, measure(ways, how), how, SUBJECT)
    plain, adaptive = report.arms
    assert [len(arm.runs) for arm in report.arms] == [6, 6]
    assert plain.cold is None
    assert adaptive.cold is not None
    assert adaptive.cold.tokens_per_second == 5.0
    assert adaptive.tokens_per_second is not None
    assert adaptive.tokens_per_second.low == 20
    assert log[:2] == ["plain:p19:16", "plain:p0:64"]
    assert "adaptive:p19:64" in log


SUBJECT = Subject("t.gguf", "d.gguf", "draft", 0.0, "own", {"gguftools": "1"}, 2, ("a note",))


def test_ratios_are_to_plain_on_the_same_prompt_not_between_medians() -> None:
    drift = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0]  # the machine gets faster all the time
    ways = [way(PLAIN, lambda i: drift[i - 1]), way("fixed-2", lambda i: 1.1 * drift[i - 1])]
    how = measuring(6)
    report = report_of(ways, measure(ways, how), how, SUBJECT)
    ratio = report.arms[1].ratio_to_plain
    assert ratio is not None
    assert ratio.low == pytest.approx(1.1)
    assert ratio.high == pytest.approx(1.1)
    assert report.verdict == "gain"


def test_an_interrupted_measurement_keeps_what_was_finished() -> None:
    def speed(round_: int) -> float:
        if round_ == 3:
            raise KeyboardInterrupt
        return 10.0

    ways = [way(PLAIN, lambda i: 10.0), way("fixed-2", speed)]
    how = measuring(5)
    report = report_of(ways, measure(ways, how), how, SUBJECT)
    assert not report.complete
    assert [len(arm.runs) for arm in report.arms] == [3, 2]
    assert report.arms[1].ratio_to_plain is not None


def test_progress_counts_replies_up_to_all_of_them() -> None:
    said: list[tuple[int, int]] = []
    how = Measuring(PROMPTS, 4, 64, lambda done, total: said.append((done, total)))
    measure([way(PLAIN, lambda i: 1.0), way("fixed-1", lambda i: 1.0)], how)
    assert said[-1] == (10, 10)
    assert [done for done, _ in said] == sorted(done for done, _ in said)


# -- the report


def test_an_arm_adds_up_its_runs() -> None:
    plain = [run(10.0, f"p{i}", i) for i in range(3)]
    arm = arm_of("fixed-2", 2, [run(20.0, f"p{i}", i, n_draft=100) for i in range(3)], plain,
                 comparable=True)  # fmt: skip
    assert arm.acceptance == 0.5
    assert arm.tokens_per_round == 2.0
    assert arm.accepted_by_position == (0.8, 0.2)
    assert arm.n_same == 3
    assert arm.time is not None
    assert arm.time.draft + arm.time.verify + arm.time.other == pytest.approx(3 * 5.0)
    assert arm.ratio_to_plain is not None
    assert arm.ratio_to_plain.median == 2.0
    assert arm.request_ratio_to_plain is not None
    assert arm.request_ratio_to_plain.median == pytest.approx(11 / 6)


def test_a_reply_that_decoded_nothing_has_no_speed() -> None:
    from dataclasses import replace

    empty = replace(run(10.0), tokens_per_second=None, n_tokens=0, seconds_decode=0.0)
    arm = arm_of("fixed-2", 2, [empty], [run(10.0)])
    assert (arm.tokens_per_second, arm.ratio_to_plain) == (None, None)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    ways = [way(PLAIN, lambda i: 10.0), way("adaptive", lambda i: 12.0)]
    how = measuring(5)
    report = report_of(ways, measure(ways, how), how, SUBJECT)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report_json(report)))
    assert load_report(path) == report


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "gguftools.run/1"}, "no report of gguftools bench"),
        ({"arms": {}}, r"report.json.arms: must be a list"),
        ({"arms": [{"name": 3}]}, r"arms\[0\].name: must be a text"),
        ({"n_predict": "many"}, "n_predict: must be a whole number"),
        ({"n_predict": True}, "n_predict: must be a whole number"),
        ({"verdict": "maybe"}, "verdict: must be one of gain"),
        ({"machine": None}, "machine: must be an object"),
        ({"temp": 10**400}, "temp: must be a number"),
    ],
)
def test_a_report_that_is_wrong_says_where(
    change: dict[str, object], said: str, tmp_path: Path
) -> None:
    report = report_of([], Found({}), measuring(1), SUBJECT)
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**report_json(report), **change}))
    with pytest.raises(FormatError, match=said):
        load_report(path)


@pytest.mark.parametrize("text", ["", "[]", "{", "nan", '{"schema": NaN}', "[" * 100_000])
def test_what_is_no_json_object_is_a_format_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(FormatError):
        load_report(path)
    with pytest.raises(SourceError):
        load_report(tmp_path / "absent.json")


# -- the prompts


def test_our_prompts_are_many_distinct_ones_for_every_task() -> None:
    prompts = builtin_prompts()
    assert [p.task for p in prompts[: len(TASKS)]] == list(TASKS)
    assert len({p.text for p in prompts}) == len({p.name for p in prompts}) == len(prompts) == 40
    assert {len(task_texts(task)) for task in TASKS} == {8}
    assert {p.task for p in builtin_prompts(("json",))} == {"json"}
    with pytest.raises(UsageError, match="no task is called 'poetry'"):
        builtin_prompts(("poetry",))


def _file(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line)
                              for line in lines))  # fmt: skip
    return path


def test_a_file_of_speed_bench_is_read_by_its_first_turns(tmp_path: Path) -> None:
    rows = [
        {"question_id": f"q{i}", "category": category, "sub_category": "x", "turns": [f"{i}?", "y"],
         "source": "s", "src_id": "1", "difficulty": "easy", "multiturn": True}
        for i, category in enumerate(["coding", "coding", "math"])
    ]  # fmt: skip
    prompts = file_prompts(_file(tmp_path, *rows))
    assert [(p.name, p.task, p.text) for p in prompts] == [
        ("q0", "coding", "0?"), ("q2", "math", "2?"), ("q1", "coding", "1?"),
    ]  # fmt: skip
    assert [p.name for p in file_prompts(tmp_path / "prompts.jsonl", ("math",))] == ["q2"]
    with pytest.raises(UsageError, match=r"category 'art' \(there are: coding, math\)"):
        file_prompts(tmp_path / "prompts.jsonl", ("art",))


def test_prompts_may_be_simple_or_whole_conversations(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    simple, whole = file_prompts(_file(tmp_path, {"prompt": "Who?"}, "", {"messages": talk}))
    assert (simple.name, simple.messages) == ("1", [{"role": "user", "content": "Who?"}])
    assert (whole.name, whole.messages, whole.text) == ("3", talk, "Why?")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not JSON"),
        ("[" * 100_000, "line 2: not JSON"),
        ("\xff", "line 2: not JSON"),
        ("3", "line 2: must be an object"),
        ({"text": "Why?"}, "line 2: needs a prompt, turns or messages"),
        ({"prompt": "  "}, "line 2: needs a prompt"),
        ({"prompt": 3}, "line 2: needs a prompt"),
        ({"turns": []}, "line 2: needs a prompt"),
        ({"turns": [3]}, "line 2: needs a prompt"),
        ({"prompt": "Why?", "category": 3}, "line 2: id and category must be texts"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "line 2: each message needs a role"),
        ({"messages": ["x"]}, "line 2: each message needs a role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "line 2: the last message must"),
        ("x" * (LINE_BYTES_MAX + 1), "line 2: a line of more than 4 MiB"),
    ],
    ids=range(14),
)
def test_a_prompt_that_is_wrong_says_in_which_line(line: object, said: str, tmp_path: Path) -> None:
    path = _file(tmp_path, {"prompt": "Why?"}, line)
    with pytest.raises(FormatError, match=said):
        file_prompts(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00", b"PAR1\x15\x04"])
def test_a_file_without_prompts_is_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(content)
    with pytest.raises(GGUFToolsError):
        file_prompts(path)
