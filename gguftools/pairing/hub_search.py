"""Searches the Hub for small GGUFs of a target's family, by names and sizes alone. I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gguftools.gguf.header import Header
from gguftools.gguf.hub import ask_hub, parse_repo
from gguftools.gguf.repo_files import is_model, is_sidecar, tagged
from gguftools.gguf.tensors import tensor_groups

N_FOUND = 8
_N_ASKED = 50  # repositories per search, the most downloaded first
_N_SEARCHES = 4
_SIZE_MIN = 2  # how many times smaller than the target
_QUANTS = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0")  # a draft keeps more precision
_SIZE_LABEL = re.compile(r"(?:([0-9]{1,4})x)?[ea]?([0-9]{1,5}(?:\.[0-9]{1,3})?)([kmbt])", re.I)
_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_WORD = re.compile(r"[\w.]+", re.ASCII)
_MAKERS = frozenset({"meta"})  # of some names a part, of others of the same family not


def search_hub(target: Header, *, limit: int = N_FOUND) -> list[str]:
    """Places of files that may draft for the target, the nearest relatives first."""
    n_params = tensor_groups(target).n_params
    places: dict[str, str] = {}  # by the name of the model, whoever quantized it
    for query in searches(target):
        for repo, names, size in _listed(query):
            model = _model_name(repo)
            heads = [name for name in names if is_sidecar(name)]
            if model == _model_name(target.text("general.name")) and heads:
                places.setdefault(f"{model} head", f"hf://{repo}/{_best(heads)}")
            models = [name for name in names if is_model(name)]
            if models and size is not None and 0 < size * _SIZE_MIN <= n_params:
                places.setdefault(model, f"hf://{repo}/{_best(models)}")
        if len(places) >= limit:
            break
    return list(places.values())[:limit]


def searches(target: Header) -> list[str]:
    """What to search for: the family by its whole name, its generation, its major version."""
    found: list[str] = []
    for key in ("general.basename", "general.name", "general.base_model.0.name"):
        words = _family(target.text(key)[:200])
        n = next((i for i, word in enumerate(words) if re.search("[0-9]", word)), len(words) - 1)
        generation = "-".join(words[: n + 1])
        found += ["-".join(words), generation, re.sub(r"([0-9])\.[0-9].*", r"\1", generation)]
    queries = [query for query in dict.fromkeys(found) if query]
    return queries[:_N_SEARCHES] or [query for query in [target.architecture] if query]


def _family(name: str) -> list[str]:
    """The words of a model's name before its size."""
    words = [word for word in _WORD.findall(name.replace("_", "-")) if word.lower() not in _MAKERS]
    n = next((i for i, word in enumerate(words) if _SIZE_LABEL.fullmatch(word)), len(words))
    return words[:n]


def _listed(query: str) -> Iterator[tuple[str, list[str], float | None]]:
    """Repositories with GGUFs: name, GGUF files, parameters."""
    asked = {
        "search": query,
        "filter": "gguf",
        "sort": "downloads",
        "direction": "-1",
        "limit": str(_N_ASKED),
        "expand[]": ["gguf", "siblings"],
    }
    rows = ask_hub("models", asked, "the Hub")
    for row in rows[:_N_ASKED] if isinstance(rows, list) else []:
        repo = row.get("id") if isinstance(row, dict) else None
        if not isinstance(repo, str) or parse_repo(repo) is None:
            continue
        siblings = row.get("siblings")
        names = [_name(file) for file in siblings] if isinstance(siblings, list) else []
        yield repo, [name for name in names if name.endswith(".gguf")], _size(repo, row.get("gguf"))


def _name(file: Any) -> str:
    """A file's name; empty for one that no place can name."""
    name = file.get("rfilename") if isinstance(file, dict) else None
    plain = isinstance(name, str) and re.fullmatch(r"[\w .()+/-]{1,400}", name) is not None
    return str(name) if plain and ".." not in str(name) else ""


def _size(repo: str, gguf: Any) -> float | None:
    """Parameters as the Hub counted them, else by the label in the name."""
    total = gguf.get("total") if isinstance(gguf, dict) else None
    if isinstance(total, int) and not isinstance(total, bool) and total > 0:
        return total
    for word in _WORD.findall(repo.replace("_", "-")):
        if label := _SIZE_LABEL.fullmatch(word):
            n_experts, n, unit = label.groups()
            return float(n) * int(n_experts or 1) * _UNITS[unit.lower()]
    return None


def _model_name(repo: str) -> str:
    """`qwen3-0.6b` of `user/Qwen3-0.6B-GGUF`."""
    words = re.split(r"[\s_-]+", repo.rpartition("/")[2].lower())
    return "-".join(word for word in words if word not in ("gguf", "i1", "imatrix"))


def _best(names: Sequence[str]) -> str:
    return next((found[0] for tag in _QUANTS if (found := tagged(names, tag))), names[0])
