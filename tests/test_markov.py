"""The Markov files are what they claim to be: real llama.cpp computes exactly their chain."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.models.chain import (
    acceptance,
    disagreeing,
    perturbed,
    random_chain,
    stationary,
)
from tests.models.markov import N_VOCAB, write_standard_set
from tests.models.oracle import Rows, mtp_logits, next_token_logits
from tests.models.vocabulary import EMOJI, EURO, token_bytes

P = random_chain(N_VOCAB, 1)
Q = perturbed(P, 0.2, 2)
EVERY_TOKEN = list(range(N_VOCAB))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_standard_set(tmp_path_factory.mktemp("markov"))


def softmax(logits: Rows) -> Rows:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("name", ["target", "hybrid", "hybrid-mtp", "hybrid-mtp-tied"])
def test_llama_cpp_computes_the_chain(files: dict[str, Path], name: str) -> None:
    rows = softmax(next_token_logits(files[name], EVERY_TOKEN))
    assert np.abs(rows - P).max() < 1e-4


def test_the_draft_speaks_its_own_chain(files: dict[str, Path]) -> None:
    assert np.abs(softmax(next_token_logits(files["draft"], EVERY_TOKEN)) - Q).max() < 1e-4


def test_the_mtp_head_speaks_its_own_chain(files: dict[str, Path]) -> None:
    assert np.abs(softmax(mtp_logits(files["hybrid-mtp"], EVERY_TOKEN)) - Q[1:]).max() < 1e-4


def test_an_mtp_head_without_its_own_output_speaks_the_trunks_chain(
    files: dict[str, Path],
) -> None:
    assert np.abs(softmax(mtp_logits(files["hybrid-mtp-tied"], EVERY_TOKEN)) - P[1:]).max() < 1e-4


def test_an_mtp_sidecar_drafts_for_a_trunk_without_mtp(files: dict[str, Path]) -> None:
    rows = softmax(mtp_logits(files["hybrid"], EVERY_TOKEN, files["mtp-sidecar"]))
    assert np.abs(rows - Q[1:]).max() < 1e-4


@pytest.mark.parametrize("options", [{}, {"utf8": True}, {"p_eog": 0.01}, {"predictable": 0.0}])
def test_every_row_is_a_distribution(options: dict[str, float]) -> None:
    chain = random_chain(40, 3, **options)  # type: ignore[arg-type]
    for each in (chain, perturbed(chain, 0.3, 1), disagreeing(chain, 0.5, 1)):
        assert np.allclose(each.sum(axis=1), 1)
        assert each.min() >= 0


def test_generation_never_ends_by_itself_unless_asked() -> None:
    assert not P[:, :3].any()
    assert np.allclose(random_chain(N_VOCAB, 1, p_eog=0.25)[10:, 0], 0.25)


def test_multi_byte_characters_come_whole() -> None:
    chain, texts = random_chain(N_VOCAB, 1, utf8=True), token_bytes()
    for character, text in ((EURO, "\u20ac"), (EMOJI, "\U0001f600")):
        assert b"".join(texts[token] for token in character) == text.encode()
        assert all(chain[a, b] == 1 for a, b in pairwise(character))


def test_stationary_is_a_fixed_point() -> None:
    share = stationary(P)
    assert np.allclose(share @ P, share, atol=1e-9)
    assert np.isclose(share.sum(), 1)


def test_perturbation_lowers_acceptance_by_at_most_its_amount() -> None:
    kept = acceptance(P, Q)[10:]
    assert (kept >= 0.8 - 1e-12).all()
    assert kept.mean() < 0.97


def test_disagreement_changes_the_likeliest_token_of_so_many_rows() -> None:
    changed = (disagreeing(P, 0.5, 4).argmax(axis=1) != P.argmax(axis=1)).sum()
    assert changed == round(0.5 * (N_VOCAB - 10))
