"""The sampling chain is llama.cpp's own, and the accept rule keeps the target's distribution."""

from __future__ import annotations

import ctypes
from random import Random

import llama_cpp
import numpy as np
import pytest

from gguftools.errors import EngineError
from gguftools.speculative.sampling import Chain, Distribution, OneHot, Table, confidence
from gguftools.speculative.verify import verify

ROWS = np.random.default_rng(3).standard_normal((4, 5000)).astype(np.float32) * 3


def llama_cpp_distribution(row: np.ndarray, chain: Chain, before: list[int]) -> dict[int, float]:
    """Token -> probability by llama.cpp's samplers, in its own order."""
    biases = (llama_cpp.llama_logit_bias * len(chain.logit_bias))(
        *(llama_cpp.llama_logit_bias(token=t, bias=b) for t, b in chain.logit_bias)
    )
    data = (llama_cpp.llama_token_data * len(row))(
        *(llama_cpp.llama_token_data(id=i, logit=float(z), p=0.0) for i, z in enumerate(row))
    )
    candidates = llama_cpp.llama_token_data_array(
        data=data, size=len(row), selected=-1, sorted=False
    )
    samplers = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in (
        llama_cpp.llama_sampler_init_logit_bias(len(row), len(biases), biases),
        llama_cpp.llama_sampler_init_penalties(
            len(row),
            chain.penalty_last_n,
            chain.penalty_repeat,
            chain.penalty_freq,
            chain.penalty_present,
        ),
        llama_cpp.llama_sampler_init_top_k(chain.top_k),
        llama_cpp.llama_sampler_init_top_p(chain.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(chain.min_p, 1),
        llama_cpp.llama_sampler_init_temp(chain.temp),
        llama_cpp.llama_sampler_init_dist(1),
    ):
        llama_cpp.llama_sampler_chain_add(samplers, sampler)
    for token in before:
        llama_cpp.llama_sampler_accept(samplers, token)
    llama_cpp.llama_sampler_apply(samplers, ctypes.byref(candidates))
    result = {
        int(candidates.data[i].id): float(candidates.data[i].p) for i in range(candidates.size)
    }
    llama_cpp.llama_sampler_free(samplers)
    return result


def table(distribution: Distribution) -> Table:
    assert isinstance(distribution, Table)
    return distribution


@pytest.mark.parametrize(
    "chain",
    [
        Chain(),
        Chain(temp=1, top_k=0, top_p=1, min_p=0),
        Chain(temp=0.7, top_k=0, top_p=1, min_p=0),
        Chain(temp=1.5, top_k=40, top_p=1, min_p=0),
        Chain(temp=0.9, top_k=0, top_p=0.9, min_p=0),
        Chain(temp=1, top_k=0, top_p=1, min_p=0.1),
        Chain(temp=0.6, top_k=20, top_p=0.8, min_p=0.02),
        Chain(temp=1, top_k=1, top_p=1, min_p=0),
        Chain(temp=1, top_k=9999, top_p=1, min_p=0),
        Chain(penalty_repeat=1.3),
        Chain(penalty_freq=0.4, penalty_present=0.7, penalty_last_n=20),
        Chain(penalty_repeat=1.1, penalty_freq=-0.2, top_k=0, top_p=1, min_p=0, temp=1),
        Chain(penalty_repeat=1.5, penalty_last_n=0),
        Chain(logit_bias=((7, 9.0), (8, -50.0), (9, 2.5)), penalty_repeat=1.2),
    ],
)
def test_the_chain_equals_llama_cpps(chain: Chain) -> None:
    for row in ROWS:
        before = [*np.argsort(-row)[:60:2].tolist(), 3, 3, 7, *range(12)]
        ours = table(chain.distribution(row, before))
        theirs = llama_cpp_distribution(row, chain, before)
        assert set(ours.ids.tolist()) == set(theirs)
        assert np.allclose(ours.p, [theirs[i] for i in ours.ids.tolist()], atol=1e-5)


def test_greedy_takes_the_first_of_equal_tops() -> None:
    row = np.zeros(100, np.float32)
    row[[40, 70]] = 5
    assert Chain(temp=0).distribution(row) == OneHot(40)


def test_top_k_keeps_exactly_k_of_many_ties() -> None:
    row = np.zeros(1000, np.float32)
    assert table(Chain(temp=1, top_k=7, top_p=1, min_p=0).distribution(row)).ids.tolist() == [
        *range(7)
    ]


@pytest.mark.parametrize("chain", [Chain(), Chain(top_k=0), Chain(top_k=0, top_p=1, min_p=0)])
def test_logits_that_are_no_numbers_are_an_error(chain: Chain) -> None:
    with pytest.raises(EngineError, match="no numbers"):
        chain.distribution(np.full(9000, np.nan, np.float32))


@pytest.mark.parametrize("n_vocab", [40, 41, 2559, 2561, 2625, 70001])
def test_top_k_holds_the_k_largest_wherever_they_lie(n_vocab: int) -> None:
    rng = np.random.default_rng(n_vocab)
    ties = rng.integers(0, 9, n_vocab)
    for numbers in (rng.standard_normal(n_vocab), ties, np.arange(n_vocab)):
        row = np.asarray(numbers, np.float32)
        found = table(Chain(temp=1, top_k=40, top_p=1, min_p=0).distribution(row))
        assert len(set(found.ids.tolist())) == 40
        assert sorted(row[found.ids]) == sorted(row)[-40:]


def test_tables_in_any_order_mean_the_same() -> None:
    rng = np.random.default_rng(2)
    p, q = (Table(rng.permutation(30)[:20], rng.dirichlet(np.ones(20))) for _ in range(2))
    expected = [max(p.prob(t) - q.prob(t), 0) for t in range(30)]
    rest = p.without(q)
    assert np.allclose([rest.prob(t) for t in range(30)], np.array(expected) / sum(expected))
    assert q.probs(p.ids).tolist() == [q.prob(t) for t in p.ids.tolist()]


def test_nothing_is_left_of_a_token_that_was_refused() -> None:
    p = Table(np.array([6, 1, 4]), np.array([0.5, 0.3, 0.2]))
    rest = p.without(OneHot(6))
    assert np.allclose([rest.prob(t) for t in (1, 4, 6)], [0.6, 0.4, 0])
    assert OneHot(6).without(OneHot(4)) == OneHot(6)
    assert OneHot(4).probs(p.ids).tolist() == [0, 0, 1]


def test_confidence_in_what_is_not_a_number_is_none() -> None:
    for row in ([np.nan] * 4, [1.0, np.nan, 2.0]):
        assert confidence(np.array(row, np.float32))[1] == 0.0


def test_confidence_is_the_top_tokens_probability() -> None:
    for row in ROWS:
        p = np.exp(row.astype(np.float64) - row.max())
        top, belief = confidence(row)
        assert top == int(row.argmax())
        assert belief == pytest.approx(float(p.max() / p.sum()), rel=1e-3)


def test_rejected_tokens_leave_the_rest_of_the_target() -> None:
    p = Table(np.array([1, 4, 6]), np.array([0.5, 0.3, 0.2]))
    q = Table(np.array([1, 6, 9]), np.array([0.1, 0.6, 0.3]))
    rest = p.without(q)
    assert rest.ids.tolist() == [1, 4, 6]
    assert np.allclose(rest.p, [0.4 / 0.7, 0.3 / 0.7, 0.0])


def test_first_token_has_the_targets_distribution_whatever_the_draft_says() -> None:
    """Exact expectation by many draws of the rule itself, with a draft that is far off."""
    rng = Random(5)
    p = Table(np.arange(4), np.array([0.1, 0.2, 0.3, 0.4]))
    q = Table(np.arange(4), np.array([0.7, 0.1, 0.1, 0.1]))
    counts = np.zeros(4)
    for _ in range(20000):
        drafted = q.sample(rng)
        n, token = verify([drafted], [q], lambda _i: p, rng)
        counts[drafted if n else token] += 1
    assert np.allclose(counts / counts.sum(), p.p, atol=0.015)


def test_greedy_verification_is_the_same_rule() -> None:
    rng = Random(0)
    targets = [OneHot(t) for t in (3, 5, 8)]
    assert verify([3, 5], None, targets.__getitem__, rng) == (2, 8)
    assert verify([3, 4], None, targets.__getitem__, rng) == (1, 5)
    assert verify([], None, targets.__getitem__, rng) == (0, 3)


def test_the_target_is_asked_only_as_far_as_the_draft_holds() -> None:
    asked: list[int] = []

    def target(i: int) -> Distribution:
        asked.append(i)
        return OneHot(1)

    verify([1, 2, 3], None, target, Random(0))
    assert asked == [0, 1]
