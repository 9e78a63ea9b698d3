"""The JSON of `gguftools recipe .. --json`, as types; see contract.py."""

from __future__ import annotations

from typing import Literal, TypedDict


class RecipeSourceJSON(TypedDict):
    """Where a file comes from; null is what that way does not have.

    hub: repo, file, revision, sha256 (one for each shard). package: package, file, sha256.
    converted: checkpoint, file. requantized: of, file_type. placed: place, n_bytes.
    """

    type: Literal["hub", "package", "converted", "requantized", "placed"]
    repo: str | None
    package: str | None
    checkpoint: str | None
    file: str | None
    revision: str | None
    sha256: list[str]
    of: str | None
    file_type: str | None
    place: str | None
    n_bytes: int | None


class RecipeSettingsJSON(TypedDict):
    """How the pair is run; null is left to the engine."""

    draft_max: int
    draft_min: int
    draft_p_min: float
    temp: float
    n_predict: int
    n_ctx: int | None
    n_gpu_layers: int | None
    n_threads: int | None
    cache_type_k: str | None
    cache_type_v: str | None
    cache_type_k_draft: str | None
    cache_type_v_draft: str | None


class RecipeExpectedJSON(TypedDict):
    """Figures that others published: on which machine, with which settings, where."""

    on: str
    source: str
    acceptance: float | None
    tokens_per_second: float | None
    plain_tokens_per_second: float | None
    speedup: float | None


class RecipeMeasuredJSON(TypedDict):
    """What `gguftools tune` measured; `low` and `high` are the slowest and fastest run."""

    machine: str
    date: str
    builds: dict[str, str]
    tokens_per_second: float
    plain_tokens_per_second: float
    low: float
    high: float
    acceptance: float | None


class RecipeJSON(TypedDict):
    """`gguftools recipe show --json`; `hf` and `needs` have null for what is not known."""

    schema: Literal["gguftools.recipe/1"]
    path: str
    name: str
    about: str
    kind: str
    tasks: list[str]
    prompts: list[str]
    target: RecipeSourceJSON
    draft: RecipeSourceJSON | None
    hf: dict[str, str | int | None]
    settings: RecipeSettingsJSON
    needs: dict[str, str | int | None]
    expected: list[RecipeExpectedJSON]
    tested_with: dict[str, str]
    measured: RecipeMeasuredJSON | None
    unverified: list[str]
    notes: list[str]


class RecipeRowJSON(TypedDict):
    """One recipe in the list; `speedup_low` and `speedup_high` are of published figures."""

    name: str
    path: str
    own: bool
    kind: str
    about: str
    tasks: list[str]
    speedup_low: float | None
    speedup_high: float | None


class RecipeListJSON(TypedDict):
    """`gguftools recipe list --json`; `broken` are files that are no recipes, and why."""

    schema: Literal["gguftools.recipe-list/1"]
    recipes: list[RecipeRowJSON]
    broken: dict[str, str]


class RecipeFindingJSON(TypedDict):
    """One thing that was looked at: schema, target, draft, pair or checkpoint."""

    what: str
    verdict: Literal["ok", "wrong", "not checked"]
    reason: str


class RecipeVerdictJSON(TypedDict):
    """One recipe; its verdict is the worst of its findings."""

    path: str
    name: str
    verdict: Literal["ok", "wrong", "not checked"]
    findings: list[RecipeFindingJSON]


class RecipeCheckJSON(TypedDict):
    """`gguftools recipe check --json`."""

    schema: Literal["gguftools.recipe-check/1"]
    recipes: list[RecipeVerdictJSON]


class RecipeExportJSON(TypedDict):
    """`gguftools recipe export --json`; `text` is a command or a file without its comments."""

    schema: Literal["gguftools.recipe-export/1"]
    name: str
    system: str
    version: str
    text: str
    notes: list[str]
