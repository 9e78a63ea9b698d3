"""Recipes: the ones that came with gguftools load, a wrong one says which key is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguftools.errors import FormatError, SourceError, UsageError
from gguftools.recipes import (
    Converted,
    Expected,
    HfModels,
    HubFile,
    Measured,
    Needs,
    PackageFile,
    PlacedFile,
    Recipe,
    RecipeSettings,
    Requantized,
    installed_file,
    load_recipe,
    recipe_path,
    recipe_paths,
    write_recipe,
)

FOLDER = Path(__file__).resolve().parent.parent / "recipes"
GOOD = (FOLDER / "smollm2-demo.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_loads_under_the_name_of_its_file(path: Path) -> None:
    assert load_recipe(path).name == path.stem
    assert recipe_path(path.stem).read_bytes() == path.read_bytes()


def test_the_demo_pairs_a_package_file_with_its_f16_sibling() -> None:
    recipe = load_recipe(recipe_path("smollm2-demo"))
    assert isinstance(recipe.draft, PackageFile)
    assert recipe.target == Requantized("draft", "F16")
    assert recipe.prompts
    assert installed_file(recipe.draft) is not None, "run scripts/test"


def test_a_package_that_is_not_there_is_no_error() -> None:
    assert installed_file(PackageFile("no_such_package", "x.gguf", "0" * 64)) is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "smollm2-demo"', "", "name: must be a text"),
        ('name = "smollm2-demo"', "name = 3", "name: must be a text"),
        ('tasks = ["chat", "smoke test"]', "tasks = [1]", "tasks: must be a list of texts"),
        ("[settings]", "[setings]", "unknown key 'setings'"),
        ("draft_max = 8", "draft_max = 8.5", "settings: draft_max: must be a whole number"),
        ("draft_max = 8", "draft_max = true", "settings: draft_max: must be a number"),
        ("draft_max = 8", "draft_max = 65", "draft_max: must be a number from 1 to 64"),
        ("draft_min = 0", "draft_min = 9", "draft_min: must not be above draft_max"),
        ("draft_p_min = 0.0", "draft_p_min = nan", "draft_p_min: must be a number from 0 to 1"),
        ("b179c", "B179C", "draft: sha256: must be 64 lower-case"),
        ('file = "Smol', 'file = "../Smol', "draft: file: must lie inside the package"),
        ('file = "Smol', 'file = "/Smol', "draft: file: must lie inside the package"),
        ('package = "', 'package = "os.', "draft: package: must be the name of one"),
        ('file = "Smol', 'file = "--Smol', "draft: file: must not look like an option"),
        ('of = "draft"', 'of = "target"', "target: of: must be 'draft'"),
        ("[target]", "[[target]]", "target: must be a table"),
        ("[draft]", "[draft", "not TOML"),
    ],
)
def test_a_wrong_recipe_is_a_format_error_with_its_place(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in GOOD
    path = tmp_path / "wrong.toml"
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        load_recipe(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


HUB = """\
name = "hub"
about = "about"
kind = "draft-eagle3"
tasks = []
prompts = []
unverified = ["target.sha256"]
notes = ["note"]

[target]
repo = "user/model"
file = "a/model-00001-of-00002.gguf"

[draft]
convert = "user/head"
file = "head.gguf"

[hf]
target = "org/model"
draft = "user/head"
n_mtp = 0

[settings]
draft_max = 3
draft_min = 0
draft_p_min = 0.0
temp = 0.0
n_predict = 9
n_ctx = 4096
cache_type_k = "q8_0"

[needs]
build = 9180
engine = "llama-server"

[[expected]]
on = "a machine"
source = "https://example.org"
speedup = 1.5

[tested-with]

[measured]
machine = "here"
date = "2026-11-30"
tokens_per_second = 20.0
plain_tokens_per_second = 10.0
low = 19.0
high = 21.0

[measured.builds]
gguftools = "1"
"""
DIGEST = "ab" * 32


def test_a_recipe_of_the_hub_says_all_that_it_can(tmp_path: Path) -> None:
    (tmp_path / "hub.toml").write_text(HUB)
    recipe = load_recipe(tmp_path / "hub.toml")
    assert recipe == Recipe(
        "hub", "about", "draft-eagle3",
        HubFile("user/model", "a/model-00001-of-00002.gguf"),
        Converted("user/head", "head.gguf"),
        RecipeSettings(3, 0, 0.0, 0.0, 9, n_ctx=4096, cache_type_k="q8_0"),
        (), (), {}, HfModels("org/model", "user/head", 0), Needs(9180, "llama-server"),
        (Expected("a machine", "https://example.org", speedup=1.5),),
        Measured("here", "2026-11-30", {"gguftools": "1"}, 20.0, 10.0, 19.0, 21.0),
        ("target.sha256",), ("note",),
    )  # fmt: skip
    write_recipe(recipe, tmp_path / "again.toml")
    assert load_recipe(tmp_path / "again.toml") == recipe


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"target.sha256"', '"target.sha1"', "unverified: must name target.sha256"),
        ('["target.sha256"]', '["target.sha256", "x"]', "unverified: no such field: x"),
        ('repo = "user/model"', 'repo = "model"', "target: repo: must be user/repo"),
        ("a/model", "../model", "target: file: must lie inside the repo"),
        ("a/model", "..\\\\model", "target: file: must lie inside the repo"),
        (
            'of-00002.gguf"\n',
            f'of-00002.gguf"\nsha256 = "{DIGEST}"\n',
            "target: sha256: must be one digest for each of 2 files",
        ),
        ('convert = "user/head"', 'convert = "head"', "draft: convert: must be org/model"),
        ("n_mtp = 0", "n_mtp = -1", "hf: n_mtp: must be a number from 0 to 64"),
        ('"q8_0"', '"q9"', "settings: cache_type_k: no cache type"),
        ("n_ctx = 4096", "n_ctx = 0", "settings: n_ctx: must be a number from 1"),
        ("build = 9180", 'build = "b9180"', "needs: build: must be a number"),
        ('engine = "llama-server"', 'engine = "vllm"', "needs: engine: no engine"),
        ("[[expected]]", "[expected]", "expected: must be a list of tables"),
        ("https://example.org", "example.org", "expected 1: source: must be the address"),
        ("speedup = 1.5", "", "expected 1: has no figure"),
        ("speedup = 1.5", "acceptance = 1.5", "expected 1: acceptance: must be a number from 0"),
        ("speedup = 1.5", "speedy = 1.5", "expected 1: unknown key 'speedy'"),
        ("2026-11-30", "today", "measured: date: must be a text like"),
        ("low = 19.0", "", "measured: low: must be a number"),
        ('gguftools = "1"', "gguftools = 1", "measured: builds: gguftools: must be a text"),
    ],
)
def test_what_is_wrong_in_a_recipe_of_the_hub_is_named(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in HUB
    path = tmp_path / "wrong.toml"
    path.write_text(HUB.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        load_recipe(path)
    assert said in str(caught.value)


def test_a_known_digest_is_not_unverified(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    digests = f'of-00002.gguf"\nsha256 = ["{DIGEST}", "{DIGEST}"]\n'
    path.write_text(HUB.replace('of-00002.gguf"\n', digests, 1))
    with pytest.raises(FormatError, match=r"must not name target\.sha256"):
        load_recipe(path)
    path.write_text(path.read_text().replace('unverified = ["target.sha256"]\n', ""))
    target = load_recipe(path).target
    assert isinstance(target, HubFile)
    assert target.sha256 == (DIGEST, DIGEST)


def test_a_recipe_of_ones_own_hides_a_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    shipped = recipe_paths()
    own = tmp_path / "gguftools" / "recipes"
    own.mkdir(parents=True)
    write_recipe(load_recipe(recipe_path("smollm2-demo")), own / "smollm2-demo.toml")
    (own / "mine.toml").write_text(GOOD)
    assert recipe_path("smollm2-demo") == own / "smollm2-demo.toml"
    assert recipe_paths().keys() == shipped.keys() | {"mine"}


def test_every_figure_of_a_shipped_recipe_has_its_source() -> None:
    recipes = [load_recipe(path) for path in sorted(FOLDER.glob("*.toml"))]
    assert len(recipes) >= 16
    for recipe in recipes:
        for each in recipe.expected:
            assert each.on.strip()
            if each.speedup and each.tokens_per_second and each.plain_tokens_per_second:
                ratio = each.tokens_per_second / each.plain_tokens_per_second
                assert ratio == pytest.approx(each.speedup, abs=0.011), recipe.name
        assert recipe.expected or recipe.tested_with or recipe.notes


def test_two_files_made_from_each_other_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "circle.toml"
    head, _, rest = GOOD.partition("[draft]")
    _, _, rest = rest.partition("[settings]")
    made = '[draft]\nof = "target"\nrequantize = "Q4_0"\n\n[settings]'
    path.write_text(f"{head}{made}{rest}", encoding="utf-8")
    with pytest.raises(FormatError, match="each made from the other"):
        load_recipe(path)


def test_absent_huge_and_unknown_recipes_say_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.toml"):
        load_recipe(tmp_path / "absent.toml")
    (tmp_path / "huge.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(FormatError, match="larger than"):
        load_recipe(tmp_path / "huge.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(FormatError, match="not TOML"):
        load_recipe(tmp_path / "deep.toml")
    with pytest.raises(UsageError, match="smollm2-demo"):
        recipe_path("no-such-recipe")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_a_recipe_that_is_written_reads_the_same(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path)
    write_recipe(recipe, tmp_path / "copy.toml")
    assert load_recipe(tmp_path / "copy.toml") == recipe
    assert [p.name for p in tmp_path.iterdir()] == ["copy.toml"]


@pytest.mark.parametrize(
    "odd", ['a "quoted" name', "back\\slash", "new\nline \x7f\x01", "\U0001f999"]
)
@pytest.mark.parametrize("draft", [None, PlacedFile("hf://user/repo/small.gguf", 7)])
def test_odd_texts_survive_being_written(
    odd: str, draft: PlacedFile | None, tmp_path: Path
) -> None:
    settings = RecipeSettings(3, 0, 0.0, 0.8, 512)
    recipe = Recipe(
        odd, odd, "draft-mtp", PlacedFile(odd, 1), draft, settings, (odd,), (), {odd: odd}
    )
    write_recipe(recipe, tmp_path / "odd.toml")
    assert load_recipe(tmp_path / "odd.toml") == recipe


def test_a_recipe_that_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    recipe = load_recipe(recipe_path("smollm2-demo"))
    with pytest.raises(SourceError, match="No such file"):
        write_recipe(recipe, tmp_path / "no" / "folder.toml")
    (tmp_path / "old.toml").mkdir()
    with pytest.raises(SourceError, match=r"old\.toml"):
        write_recipe(recipe, tmp_path / "old.toml")
    assert [p.name for p in tmp_path.iterdir()] == ["old.toml"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [("draft-magic", "kind: no kind of draft"), ("draft-simple", "draft: must be")],
)
def test_only_kinds_that_draft_alone_need_no_draft(kind: str, said: str, tmp_path: Path) -> None:
    head, _, rest = GOOD.partition("[draft]")
    text = f'kind = "{kind}"\n{head}{rest[rest.index("[settings]") :]}'
    path = tmp_path / "alone.toml"
    path.write_text(text.replace('of = "draft"\nrequantize = "F16"', 'place = "x"\nn_bytes = 1'))
    with pytest.raises(FormatError, match=said):
        load_recipe(path)
    path.write_text(path.read_text().replace(kind, "ngram"))
    assert load_recipe(path).draft is None
