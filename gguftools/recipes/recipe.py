"""A pair as a recipe: where its files come from, how to run it, what was seen of it. Pure.

name = "..."   about = "..."   kind = "draft-mtp"   tasks = ["..."]   prompts = ["..."]
[target] and [draft]     repo + file (+ revision, sha256): a file on the Hub
                         package + file + sha256: a file inside an installed Python package
                         convert + file: a checkpoint on the Hub that convert_hf_to_gguf.py
                         makes the file from; nobody published it as GGUF
                         of + requantize: made from the other one with that file type
                         place + n_bytes: a file here, on the Hub, or at a URL
[hf]                     target, draft: the models on the Hub that those files were made from;
                         n_mtp: how many MTP layers the target's checkpoint has
[settings]               draft_max, draft_min, draft_p_min, temp, n_predict, and what else is not
                         left to the engine
[needs]                  build: the first llama.cpp build that can do it;
                         engine: the only one that can, llama-server or gguftools
[[expected]]             figures that others published: on, source, acceptance, speedup, ..
[tested-with]            names and versions; empty where nobody of us has run the pair
[measured]               what `gguftools tune` measured, and where
unverified = ["..."]     fields that could not be checked when the recipe was written
notes = ["..."]
There is no [draft] where the target drafts for itself, by its MTP head or by n-gram lookup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gguftools.pairing.compatibility import Pair
from gguftools.pairing.engines import OURS, SERVER

ALONE = ("draft-mtp", "ngram")  # kinds that may need no second file
KINDS = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark", *ALONE)
ENGINES = (SERVER, OURS)
_TEMP, _N_PREDICT = 0.8, 512  # of a recipe that nobody has run yet


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file that an installed Python package carries."""

    package: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Requantized:
    """A file made from the pair's other one."""

    of: str  # "target" or "draft"
    file_type: str


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file by its place, as every verb takes one; another size is another file."""

    place: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a Hub repository; of a split model its first shard, and a digest for each."""

    repo: str
    file: str
    revision: str | None = None
    sha256: tuple[str, ...] = ()  # empty: not known

    @property
    def place(self) -> str:
        """As every verb takes it."""
        return f"hf://{self.repo}{f'@{self.revision}' if self.revision else ''}/{self.file}"


@dataclass(frozen=True, slots=True)
class Converted:
    """A file that the user makes from a checkpoint on the Hub, looked for in this folder."""

    checkpoint: str
    file: str


Source = Converted | PackageFile | Requantized | PlacedFile | HubFile


@dataclass(frozen=True, slots=True)
class HfModels:
    """The models that the files were made from, which vLLM and SGLang run; None is not known."""

    target: str | None = None
    draft: str | None = None
    n_mtp: int | None = None  # MTP layers that the target's checkpoint holds


@dataclass(frozen=True, slots=True)
class Needs:
    """What the pair cannot do without; None: any build that drafts, either engine."""

    build: int | None = None  # of llama.cpp
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class RecipeSettings:
    """How the pair is run; None leaves it to the engine."""

    draft_max: int
    draft_min: int
    draft_p_min: float
    temp: float
    n_predict: int
    n_ctx: int | None = None
    n_gpu_layers: int | None = None
    n_threads: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    cache_type_k_draft: str | None = None
    cache_type_v_draft: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What somebody published of this pair; None where they do not say it."""

    on: str  # machine and settings
    source: str  # URL
    acceptance: float | None = None
    tokens_per_second: float | None = None
    plain_tokens_per_second: float | None = None
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured here; `low` and `high` are the slowest and fastest run, tokens/s."""

    machine: str
    date: str
    builds: Mapping[str, str]
    tokens_per_second: float
    plain_tokens_per_second: float
    low: float
    high: float
    acceptance: float | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """One pair: known to work where `tested_with` or `measured` say on what, else expected to."""

    name: str
    about: str
    kind: str
    target: Source
    draft: Source | None
    settings: RecipeSettings
    prompts: tuple[str, ...]
    tasks: tuple[str, ...]
    tested_with: Mapping[str, str]
    hf: HfModels = field(default_factory=HfModels)
    needs: Needs = field(default_factory=Needs)
    expected: tuple[Expected, ...] = ()
    measured: Measured | None = None
    unverified: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def predicted_recipe(
    name: str, pair: Pair, target_bytes: int, *, task: str | None, temp: float | None
) -> Recipe:
    """The recipe of a pair that was looked at and not run."""
    assert pair.kind is not None
    assert pair.settings is not None
    settings = pair.settings
    return Recipe(
        name=name,
        about=f"predicted by gguftools pair, not measured; {pair.reason}",
        kind=pair.kind,
        target=PlacedFile(pair.target, target_bytes),
        draft=None if pair.draft is None else PlacedFile(pair.draft, pair.n_bytes or 0),
        settings=RecipeSettings(
            settings.draft_max, settings.draft_min, settings.draft_p_min,
            _TEMP if temp is None else temp, _N_PREDICT,
        ),
        prompts=(),
        tasks=() if task is None else (task,),
        tested_with={},
    )  # fmt: skip
