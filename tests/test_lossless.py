"""The output is the target's own, whatever the draft says: shown on files with a known answer."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gguftools.speculative.sampling import Chain, Table
from tests.models.chain import Chain as Matrix
from tests.models.chain import disagreeing, perturbed, random_chain
from tests.models.engine import generate
from tests.models.markov import N_VOCAB, write_llama, write_qwen35, write_qwen35_mtp_only

GREEDY = Chain(temp=0)
# A cycle through all tokens, and a draft that is wrong after three tokens in ten.
CYCLE = random_chain(N_VOCAB, 5, predictable=1.0, peak=0.9)
WRONG = disagreeing(CYCLE, 0.3, 6)
# Half code-like, half prose-like; a text at a low temperature still sees both.
P = random_chain(N_VOCAB, 7, p_switch=0.1)
Q = perturbed(P, 0.3, 8)

# name of the case: target, kind of drafter, draft file
CASES = {
    "draft": ("llama", "draft", "llama-draft"),
    "ngram": ("llama", "ngram", None),
    "hybrid draft": ("llama", "draft", "hybrid-draft"),
    "draft on hybrid": ("hybrid", "draft", "llama-draft"),
    "ngram on hybrid": ("hybrid", "ngram", None),
    "mtp": ("mtp", "mtp", None),
    "mtp sidecar": ("hybrid", "mtp", "sidecar"),
}
Files = dict[str, Path]


def write_files(folder: Path, p: Matrix, q: Matrix) -> Files:
    """Targets of p and drafts of q."""
    return {
        "llama": write_llama(folder / "llama.gguf", p),
        "llama-draft": write_llama(folder / "llama-draft.gguf", q, n_layer=1),
        "hybrid": write_qwen35(folder / "hybrid.gguf", p, mtp=None),
        "hybrid-draft": write_qwen35(folder / "hybrid-draft.gguf", q, mtp=None),
        "mtp": write_qwen35(folder / "mtp.gguf", p, mtp="full", mtp_chain=q),
        "sidecar": write_qwen35_mtp_only(folder / "sidecar.gguf", p, mtp_chain=q),
    }


@pytest.fixture(scope="module")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("cycle"), CYCLE, WRONG)


@pytest.fixture(scope="module")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Files:
    p = random_chain(N_VOCAB, 11, predictable=0.0)
    return write_files(tmp_path_factory.mktemp("prose"), p, perturbed(p, 0.3, 12))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("mixed"), P, Q)


@pytest.mark.parametrize("n_draft", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("case", CASES)
def test_greedy_text_does_not_depend_on_the_draft(cycle: Files, case: str, n_draft: int) -> None:
    target, kind, draft = CASES[case]
    plain, _, _ = generate(cycle[target], "none", chain=GREEDY, n_predict=250)
    path = cycle[draft] if draft else None
    text, steps, _ = generate(
        cycle[target], kind, draft=path, chain=GREEDY, n_draft=n_draft, n_predict=250
    )
    assert text == plain
    assert max(s.n_verified for s in steps) == n_draft
    if kind != "ngram":
        assert 0 < sum(s.n_accepted for s in steps) < sum(s.n_verified for s in steps)


def test_greedy_text_with_an_adaptive_length_is_the_same(cycle: Files) -> None:
    plain, _, _ = generate(cycle["mtp"], "none", chain=GREEDY, n_predict=400)
    text, steps, _ = generate(cycle["mtp"], "mtp", chain=GREEDY, adaptive=True, n_predict=400)
    assert text == plain
    assert len({s.n_verified for s in steps}) > 1


@pytest.mark.parametrize("case", CASES)
def test_penalties_and_bias_look_back_over_the_draft(prose: Files, case: str) -> None:
    """They change the greedy text, and change it alike with every draft."""
    target, kind, draft = CASES[case]
    chain = Chain(
        temp=0, penalty_repeat=1.4, penalty_freq=0.3, penalty_last_n=16, logit_bias=((30, -4.0),)
    )
    bare, _, _ = generate(prose[target], "none", chain=GREEDY, n_predict=200)
    plain, _, _ = generate(prose[target], "none", chain=chain, n_predict=200)
    path = prose[draft] if draft else None
    text, steps, _ = generate(
        prose[target], kind, draft=path, chain=chain, n_draft=4, n_predict=200
    )
    assert text == plain != bare
    assert sum(s.n_verified for s in steps) > 20


def test_a_draft_equal_to_the_target_is_always_accepted(mixed: Files) -> None:
    _, steps, _ = generate(
        mixed["llama"], "draft", draft=mixed["llama"], chain=Chain(1, 0, 1, 0), n_draft=4
    )
    assert all(s.n_accepted == s.n_verified for s in steps)


SAMPLERS = {
    "temp 1": Chain(temp=1.0, top_k=0, top_p=1.0, min_p=0.0),
    "temp 0.7": Chain(temp=0.7, top_k=0, top_p=1.0, min_p=0.0),
    "temp 1 top-k 6": Chain(temp=1.0, top_k=6, top_p=1.0, min_p=0.0),
    "temp 0.7 top-k 6": Chain(temp=0.7, top_k=6, top_p=1.0, min_p=0.0),
    "llama.cpp's defaults": Chain(),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("case", ["draft", "mtp", "ngram", "draft on hybrid"])
def test_sampled_frequencies_are_the_targets(mixed: Files, case: str, sampler: str) -> None:
    target, kind, draft = CASES[case]
    text, steps, _ = generate(
        mixed[target],
        kind,
        draft=mixed[draft] if draft else None,
        chain=SAMPLERS[sampler],
        n_draft=3,
        n_predict=1500,
    )
    assert sum(s.n_accepted for s in steps) > 100
    rows = sampled_rows(P, SAMPLERS[sampler])
    assert p_value_of_transitions(text[4:], rows) > 1e-4


def test_the_chi_square_test_tells_the_drafts_chain_from_the_targets(mixed: Files) -> None:
    chain = SAMPLERS["temp 1"]
    text, _, _ = generate(mixed["llama"], "none", chain=chain, n_predict=1500)
    assert p_value_of_transitions(text[4:], sampled_rows(P, chain)) > 1e-4
    assert p_value_of_transitions(text[4:], sampled_rows(Q, chain)) < 1e-9


@pytest.mark.parametrize("sampler", ["temp 1", "temp 0.7", "temp 1 top-k 6"])
@pytest.mark.parametrize("case", ["draft", "mtp", "mtp sidecar"])
def test_sampled_acceptance_is_what_theory_says(mixed: Files, case: str, sampler: str) -> None:
    """Of a token tried after token a, sum over x of min(p(x|a), q(x|a)) is kept."""
    target, kind, draft = CASES[case]
    text, steps, _ = generate(
        mixed[target],
        kind,
        draft=mixed[draft] if draft else None,
        chain=SAMPLERS[sampler],
        n_draft=4,
        n_predict=1500,
    )
    p, q = (sampled_rows(m, SAMPLERS[sampler]) for m in (P, Q))
    kept_in_theory = np.minimum(p, q).sum(axis=1)
    chances: list[float] = []
    place = len(text) - sum(len(s.tokens) for s in steps)
    for step in steps:
        chances += [float(kept_in_theory[text[place - 1 + i]]) for i in range(step.n_tried)]
        place += len(step.tokens)
    n_accepted = sum(s.n_accepted for s in steps)
    deviation = np.sqrt(sum(a * (1 - a) for a in chances))
    assert 0.2 < n_accepted / len(chances) < 0.95
    assert abs(n_accepted - sum(chances)) < 4 * deviation


def sampled_rows(matrix: Matrix, chain: Chain) -> Matrix:
    """The matrix of next-token probabilities that a sampler makes of a chain."""
    rows = np.zeros_like(matrix)
    for i, row in enumerate(np.log(np.maximum(matrix, 1e-26)).astype(np.float32)):
        d = chain.distribution(row)
        assert isinstance(d, Table)
        rows[i, d.ids] = d.p
    return rows


def p_value_of_transitions(text: list[int], rows: Matrix) -> float:
    """Chi-square of the observed bigrams; the cells of a row are merged until each expects 5."""
    counts = np.zeros_like(rows)
    for before, after in pairwise(text):
        counts[before, after] += 1
    statistic, freedom = 0.0, 0
    for observed, row in zip(counts, rows, strict=True):
        if observed[row == 0].sum():
            return 0.0
        cells = merged(observed, row * observed.sum())
        statistic += sum((o - e) ** 2 / e for o, e in cells)
        freedom += max(len(cells) - 1, 0)
    return float(stats.chi2.sf(statistic, freedom))


def merged(observed: Matrix, expected: Matrix) -> list[tuple[float, float]]:
    """Counts and expectations of cells that expect at least 5 each, from the likeliest on."""
    cells: list[tuple[float, float]] = []
    o = e = 0.0
    for i in np.argsort(-expected):
        o, e = o + observed[i], e + expected[i]
        if e >= 5:
            cells.append((o, e))
            o = e = 0.0
    if cells:
        cells[-1] = cells[-1][0] + o, cells[-1][1] + e
    return cells
