"""`tune`: what it decides from scripted speeds and a scripted clock, and the real thing once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest

from gguftools.bench.candidates import candidates
from gguftools.bench.decide import decided
from gguftools.bench.lab import Lab
from gguftools.bench.prompt_set import builtin_prompts
from gguftools.bench.report import Run
from gguftools.bench.search import ROUNDS_MAX, Axes, Profile, Search
from gguftools.bench.transfer import check_series, transfer
from gguftools.bench.tuning import Choice
from gguftools.bench.verdict import judge
from gguftools.cli.contract_bench import TuneJSON
from gguftools.errors import EngineError, RefusedError
from gguftools.gguf.source import open_gguf
from gguftools.recipes import load_recipe
from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from scripts.docs import json_schema
from tests.commands import GGUFTOOLS, Terminal, gguftools
from tests.models.chain import random_chain
from tests.models.markov import N_VOCAB, write_llama
from tests.test_bench_rules import run

MODEL, HEAD, LOOKUP = (Choice("draft", "small.gguf", 8), Choice("mtp", None, 8),
                       Choice("ngram", None, 8))  # fmt: skip
AXES = Axes(16, p_min=(0.3, 0.6), threads=(1,), cache=("q8_0",))
QUICK = ("--raw", "-c", "1024", "-t", "1", "--temp", "0", "--seconds", "4")


@dataclass
class Scripted:
    """A lab whose replies take exactly as long as its table of speeds says, or nearly."""

    speed: Callable[[Choice], float]  # tokens/s; plain is 10
    profiles: dict[Choice, float]
    noise: float = 0.0
    seconds_to_open: float = 1.0
    seconds_prompt: float = 0.1
    now: float = 100.0
    log: list[tuple[str, Choice, int]] = field(default_factory=list)
    rng: Random = field(default_factory=lambda: Random(1))

    def clock(self) -> float:
        return self.now

    def profile(self, choice: Choice, seconds: float) -> Profile:
        self.now += seconds
        self.log.append(("profile", choice, 0))
        if choice not in self.profiles:
            raise EngineError("too little was drafted to measure it")
        return Profile(self.profiles[choice], 4, 0.7, 0.1, 10.0)

    def run(self, choice: Choice, round_: int, n_predict: int, *, plain: bool) -> Run:
        self.log.append(("plain" if plain else "run", choice, round_))
        speed = (10.0 if plain else self.speed(choice)) * (1 + self.rng.uniform(-1, 1) * self.noise)
        self.now += self.seconds_prompt + n_predict / speed
        return replace(run(speed, f"p{round_}", round_), seconds_prompt=self.seconds_prompt)


def searched(lab: Scripted, *candidates: Choice, seconds: float = 600, axes: Axes = AXES) -> Search:
    search = Search(lab, seconds, axes)
    search.run(candidates)
    return search


def by_setting(search: Search) -> dict[str, str]:
    return {decision.setting: decision.value for decision in search.decisions}


def _speed(choice: Choice) -> float:
    """Best: the model, always 5 tokens, one thread, q8_0."""
    speed = 15.0 if choice.drafter == "draft" else 12.0
    speed *= 1.2 if choice.draft_min == choice.draft_max == 5 else 1.0
    speed *= 1.1 if choice.n_threads == 1 else 1.0
    return speed * (1.05 if choice.cache_type_draft == "q8_0" else 1.0)


def test_the_best_choice_is_found_one_setting_after_the_other() -> None:
    lab = Scripted(_speed, {MODEL: 1.4, HEAD: 1.38, LOOKUP: 1.1}, noise=0.02)
    search = searched(lab, MODEL, HEAD, LOOKUP)
    assert search.choice == Choice("draft", "small.gguf", 5, 5, 0.0, 1, "q8_0")
    assert by_setting(search) == {
        "drafter, by its costs": "small.gguf", "drafter": "small.gguf", "length": "always 5",
        "threads": "1", "cache_type_draft": "q8_0",
    }  # fmt: skip
    verdict = judge({"tuned": [b.tokens_per_second / a.tokens_per_second
                               for a, b in zip(search.plain, search.tuned, strict=True)
                               if a.tokens_per_second and b.tokens_per_second]})  # fmt: skip
    assert verdict is not None
    assert verdict.outcome == "gain"


def test_drafters_that_come_near_compete_whatever_their_costs_promised() -> None:
    lab = Scripted(lambda c: 14.0 if c.drafter == "mtp" else 13.0, {MODEL: 1.4, HEAD: 1.35})
    search = searched(lab, MODEL, HEAD)
    assert search.choice is not None
    assert search.choice.drafter == "mtp"
    assert {c.drafter for what, c, _ in lab.log if what == "run"} == {"draft", "mtp"}


def test_a_drafter_that_is_far_behind_costs_no_more_time() -> None:
    lab = Scripted(_speed, {MODEL: 1.4, LOOKUP: 1.0})
    searched(lab, MODEL, LOOKUP)
    assert {c.drafter for what, c, _ in lab.log if what == "run"} == {"draft"}


def test_a_probability_floor_is_tried_where_the_length_adapts() -> None:
    lab = Scripted(lambda c: 20.0 if c.draft_p_min == 0.6 else 12.0, {MODEL: 1.2})
    search = searched(lab, MODEL)
    assert search.choice is not None
    assert search.choice.draft_p_min == 0.6
    assert by_setting(search)["draft_p_min"] == "0.6"


def test_nothing_changes_for_a_difference_that_is_noise() -> None:
    lab = Scripted(lambda c: 12.0, {MODEL: 1.2}, noise=0.01)
    search = searched(lab, MODEL)
    assert search.choice == MODEL
    assert all("it stays" in d.reason for d in search.decisions[1:])


def test_the_last_comparison_uses_prompts_that_had_no_part_in_the_choice() -> None:
    lab = Scripted(_speed, {MODEL: 1.4})
    search = searched(lab, MODEL)
    last = {r.round for r in search.tuned}
    assert last == {r.round for r in search.plain}
    before = {i for what, _, i in lab.log if what == "run"} - last
    assert before
    assert max(before) < min(last)


@pytest.mark.parametrize("seconds", [30.0, 120.0, 600.0])
@pytest.mark.parametrize("speed", [1.0, 12.0])
def test_it_takes_no_longer_than_was_said_and_one_round(seconds: float, speed: float) -> None:
    lab = Scripted(lambda c: speed, {MODEL: 1.2, HEAD: 1.2}, seconds_prompt=0.5)
    search = searched(lab, MODEL, HEAD, seconds=seconds)
    longest = 0.5 + 128 / min(speed, 10.0)
    assert seconds <= lab.now - 100.0 <= seconds + 2 * longest
    assert len(search.tuned) == len(search.plain) >= 1


def test_every_round_has_plain_in_it_and_the_slower_half_leaves() -> None:
    lab = Scripted(lambda c: 10.0 + c.draft_max / 10, {LOOKUP: 1.2})
    search = searched(lab, LOOKUP, axes=Axes(16), seconds=2000)
    rounds: dict[int, list[str]] = {}
    for what, _, i in lab.log[1:]:
        rounds.setdefault(i, []).append(what)
    assert all(whats.count("plain") == 1 for whats in rounds.values())
    length = next(d for d in search.decisions if d.setting == "length")
    assert sorted(t.n_runs for t in length.tried) == [2, 2, 4, ROUNDS_MAX, ROUNDS_MAX, ROUNDS_MAX]


def test_what_cannot_be_measured_is_left_out_with_its_reason() -> None:
    search = searched(Scripted(_speed, {MODEL: 1.4}), LOOKUP, MODEL)
    assert search.choice is not None
    assert search.choice.drafter == "draft"
    assert search.notes == ["ngram is left out: too little was drafted to measure it"]
    nothing = searched(Scripted(_speed, {}), LOOKUP)
    assert nothing.choice is None
    assert nothing.tuned == []


def test_files_are_not_loaded_again_where_that_takes_most_of_the_time() -> None:
    lab = Scripted(_speed, {MODEL: 1.4}, seconds_to_open=20.0)
    search = searched(lab, MODEL, seconds=120)
    decision = next(d for d in search.decisions if d.setting == "cache_type_draft")
    assert decision.value == "f16"
    assert "the time was up" in decision.reason


def test_a_single_round_changes_nothing() -> None:
    rival = replace(MODEL, draft_max=4)
    runs: dict[Choice | None, list[Run]] = {
        None: [run(10.0)], MODEL: [run(10.0)], rival: [run(30.0)]
    }  # fmt: skip
    chosen, decision = decided("length", lambda c: c.length, MODEL, [rival], runs)
    assert chosen == MODEL
    assert "it stays: adaptive up to 4 came to 3.00 of adaptive up to 8" in decision.reason


# -- candidates and siblings, from headers


def test_candidates_are_named_files_the_own_head_and_lookup(models: dict[str, Path]) -> None:
    target = open_gguf(models["hybrid-mtp"])
    found, notes = candidates(target, [], "auto")
    assert [(c.drafter, c.draft) for c in found] == [("mtp", None), ("ngram", None)]
    assert notes == []
    plain = open_gguf(models["target"])
    drafts = [models["draft"], models["stranger"]]
    found, notes = candidates(plain, drafts, "auto")
    assert [c.name for c in found] == ["draft.gguf", "ngram"]
    assert len(notes) == 1
    assert notes[0].startswith("stranger.gguf is left out")
    with pytest.raises(RefusedError, match=r"stranger.gguf is left out"):
        candidates(plain, [models["stranger"]], "draft")
    sidecar, _ = candidates(open_gguf(models["hybrid"]), [models["mtp-sidecar"]], "mtp")
    assert [(c.drafter, c.name) for c in sidecar] == [("mtp", "mtp-sidecar.gguf")]


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("larger") / "larger.gguf"
    return write_llama(path, random_chain(N_VOCAB, 1), n_layer=12)


def test_settings_carry_over_to_a_larger_sibling_with_a_caveat(
    models: dict[str, Path], larger: Path
) -> None:
    target, sibling = open_gguf(models["target"]), open_gguf(larger)
    check_series(target, sibling)
    choice = Choice("draft", str(models["draft"]), 5, 2, 0.3, 1, "q8_0")
    offered = transfer(choice, sibling)
    assert (offered.draft_max, offered.draft_min, offered.draft_p_min) == (5, 2, 0.3)
    assert "not measured on this model" in offered.caveats[0]
    with pytest.raises(RefusedError, match="not larger"):
        check_series(sibling, target)
    with pytest.raises(RefusedError, match="its architecture is qwen35, not llama"):
        check_series(target, open_gguf(models["hybrid"]))
    with pytest.raises(RefusedError, match="drafter does not work"):
        transfer(Choice("mtp", None, 3), sibling)


# -- the real thing


def test_the_lab_sets_what_a_choice_says(models: dict[str, Path]) -> None:
    base = Settings(models["target"], n_ctx=1024, chain=Chain(temp=0))
    lab = Lab(base, builtin_prompts(), raw=True, draft_max=8)
    try:
        choice = Choice("draft", str(models["draft"]), 3, 3)
        runs = [lab.run(choice, 1, 24, plain=plain) for plain in (True, False)]
        assert [max(r.n_draft_histogram) for r in runs] == [0, 3]
        assert runs[0].text == runs[1].text
        opened = lab.seconds_to_open
        unsure = lab.run(replace(choice, draft_p_min=1.0, draft_min=0), 2, 24, plain=False)
        assert unsure.n_draft == 0
        alone = lab.run(replace(choice, n_threads=1), 3, 24, plain=False)
        assert alone.n_draft > 0
        assert lab.seconds_to_open == opened  # all that in one session
        lookup = lab.run(Choice("ngram", None, 4), 4, 48, plain=False)
        assert set(lookup.by_drafter) <= {"ngram"}
        assert lab.seconds_to_open != opened
    finally:
        lab.close()


def _tune(*words: object) -> tuple[dict[str, Any], int, str]:
    done = gguftools("tune", *words, *QUICK, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, json_schema(TuneJSON))
    return found, done.returncode, done.stderr


def test_tune_compares_candidates_and_explains_each_decision(models: dict[str, Path]) -> None:
    found, code, _ = _tune(models["target"], models["draft"])
    assert code == (0 if found["verdict"] == "gain" else 1)
    assert found["choice"]["drafter"] in ("draft", "ngram")
    assert found["decisions"][0]["setting"] == "drafter, by its costs"
    assert "of a plain pass" in found["decisions"][0]["reason"]
    assert [arm["name"] for arm in found["arms"]] == ["plain", "tuned"]
    assert found["arms"][1]["n_same"] == len(found["arms"][1]["runs"])
    assert found["recipe"] is None
    assert 4 <= found["seconds_spent"] < 20


def test_a_gain_is_written_as_a_recipe_with_its_evidence_and_offered_to_the_sibling(
    models: dict[str, Path], larger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gguftools.bench import lab

    measured = lab.Lab.run

    def faster(self: Lab, choice: Choice, i: int, n: int, *, plain: bool) -> Run:
        found = measured(self, choice, i, n, plain=plain)
        return replace(found, tokens_per_second=10.0 if plain else 15.0)

    monkeypatch.setattr(lab.Lab, "run", faster)
    place = tmp_path / "mine.toml"
    done = gguftools("tune", models["target"], "-md", models["draft"], "--drafter", "draft",
                     "-o", place, "--for", larger, "--task", "code", *QUICK)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "gains 50%" in done.stdout
    assert "not measured on this model" in done.stdout
    recipe = load_recipe(place)
    assert (recipe.kind, recipe.tasks, recipe.settings.temp) == ("draft-simple", ("code",), 0.0)
    assert recipe.prompts
    assert recipe.measured is not None
    assert recipe.measured.tokens_per_second == 15.0
    assert recipe.measured.plain_tokens_per_second == 10.0
    assert set(recipe.measured.builds) == {"gguftools", "python", "llama-cpp-python"}
    assert any(note.startswith("length ") for note in recipe.notes)
    offered = load_recipe(tmp_path / "mine-for-larger.toml")
    assert offered.measured is None
    assert offered.settings.draft_max == recipe.settings.draft_max
    assert offered.settings.n_threads is None
    assert any("not measured on this model" in note for note in offered.notes)


def test_without_a_gain_no_recipe_is_written(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gguftools.bench import lab

    measured = lab.Lab.run

    def slower(self: Lab, choice: Choice, i: int, n: int, *, plain: bool) -> Run:
        found = measured(self, choice, i, n, plain=plain)
        return replace(found, tokens_per_second=10.0 if plain else 9.0)

    monkeypatch.setattr(lab.Lab, "run", slower)
    place = tmp_path / "mine.toml"
    done = gguftools("tune", models["target"], models["draft"], "-o", place, *QUICK)
    assert done.returncode == 1
    assert "no recipe is written" in done.stdout
    assert not place.exists()


def test_ctrl_c_ends_with_what_was_found(models: dict[str, Path], tmp_path: Path) -> None:
    place = tmp_path / "mine.toml"
    words = ["tune", str(models["target"]), "--ngram", "-o", str(place), *QUICK[:-1], "20"]
    with Terminal([*GGUFTOOLS, *words]) as terminal:
        terminal.wait_for("tuning")  # shown after the first second, by the first reply
        terminal.interrupt()
        assert terminal.end() == 130
    shown = terminal.shown.decode()
    assert "interrupted: this is what was found by then" in shown
    assert "by its costs" in shown
    assert "Traceback" not in shown
    assert not place.exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--draft-max", "3"), 2, "--draft-max is what tune finds"),
        (("--no-draft",), 2, "leaves nothing to tune"),
        (("--seconds", "0"), 2, "from 1 to 86400"),
        (("--for", "absent.gguf"), 3, "absent.gguf"),
        (("-o", "absent/x.toml"), 3, "absent/x.toml: no file can be written there"),
        (("--mtp",), 1, "no MTP head"),
        (("--task", "poetry"), 2, "no task is called"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_one_line(
    models: dict[str, Path], words: tuple[str, ...], code: int, said: str
) -> None:
    done = gguftools("tune", models["target"], *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
