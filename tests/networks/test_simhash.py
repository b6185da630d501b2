"""The weight function: the hash of its formula, uniform, independent in every direction, frozen."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gbun.networks import Family, hash_name, simhash, weights
from tests.golden.make_weights import FILE, as_text, hash_of, make_golden, weight_of

SEEDS = st.integers(0, 2**63 - 1)
ROUNDS = st.integers(0, 2**32 - 1)
IDS = st.lists(st.integers(0, 2**63) | st.integers(0, 2**32), min_size=1, max_size=8)
DENSITIES = st.sampled_from([1.0, 0.5, 0.3, 0.1, 0.01, 0.001]) | st.floats(0.001, 1.0)


def uint64(ids):
    return np.array(ids, dtype=np.uint64)


def hash_table(seed, round_, ids, n_outputs):
    return simhash.hash_features(simhash.output_seeds(seed, round_, n_outputs), uint64(ids))


# The formula


@settings(deadline=None)
@given(SEEDS, ROUNDS, IDS, st.integers(1, 9))
def test_hashes_are_xxhash32_of_the_feature_with_hashed_seeds(seed, round_, ids, n_outputs):
    wanted = [[hash_of(seed, round_, f, k) for k in range(n_outputs)] for f in ids]
    np.testing.assert_array_equal(hash_table(seed, round_, ids, n_outputs), wanted)


@settings(deadline=None)
@given(SEEDS, ROUNDS, IDS, st.integers(1, 9), DENSITIES)
def test_weights_are_the_formula_and_lie_in_minus_one_to_one(seed, round_, ids, n_outputs, density):
    found = weights(seed, round_, uint64(ids), n_outputs, density)
    wanted = [[weight_of(hash_of(seed, round_, f, k), density) for k in range(n_outputs)] for f in ids]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)
    assert ((found >= -1.0) & (found < 1.0)).all()


@settings(deadline=None)
@given(st.integers(8389, 2**23))
def test_extreme_hashes_stay_in_the_interval(half):
    extremes = np.array([0, 1, half, 2 * half - 1, 2**24 - 1], dtype=np.uint32) << np.uint32(8)
    w = simhash.weights_from_hashes(extremes, half)
    assert -1.0 <= w[0] < w[1] < w[2] == 0.0 < w[3] < 1.0
    np.testing.assert_allclose(w[:4], [-1.0, 1.0 / half - 1.0, 0.0, 1.0 - 1.0 / half], rtol=2.0**-22)
    assert w[4] == (w[3] if half == 2**23 else 0.0)


def test_ids_of_any_integer_type_are_the_same_features():
    ids = [0, 3, 2**31 - 1]
    tables = [weights(3, 1, np.array(ids, dtype=t), 5) for t in (np.int32, np.uint32, np.int64, np.uint64)]
    for table in tables[1:]:
        np.testing.assert_array_equal(table, tables[0])


# Statistics. Seeds are fixed, so results never change. Each test requires p > LEVEL.

LEVEL = 1e-4
N = 2**14


def over_features(ids, n_variables):
    return hash_table(11, 2, ids, n_variables)


SAMPLES = {  # name: hashes, N draws x some variables that should be independent
    "outputs, sequential ids": lambda: over_features(np.arange(N), 120),
    "outputs, ids i<<32": lambda: over_features(np.arange(N, dtype=np.uint64) << np.uint64(32), 120),
    "outputs, ids of names": lambda: over_features([hash_name(f"word{i}") for i in range(N)], 50),
    "rounds": lambda: np.hstack([hash_table(0, t, np.arange(N), 1) for t in range(120)]),
    "seeds": lambda: np.hstack([hash_table(s, 0, np.arange(N), 1) for s in range(120)]),
    "features, sequential ids": lambda: hash_table(4, 1, np.arange(120), N).T,
    "features, ids i<<32": lambda: hash_table(4, 1, np.arange(120, dtype=np.uint64) << np.uint64(32), N).T,
    "features, one bit apart": lambda: hash_table(4, 1, [99] + [99 ^ (1 << b) for b in range(64)], N).T,
    "rounds, seen by one feature": lambda: np.vstack([hash_table(0, t, [7, 8], 40).ravel() for t in range(N)]),
    "seeds, seen by one feature": lambda: np.vstack([hash_table(s, 3, [7, 8], 40).ravel() for s in range(N)]),
}


@pytest.fixture(scope="module", params=SAMPLES)
def sample(request):
    return SAMPLES[request.param]()


@pytest.mark.slow
def test_uniform_over_the_draws(sample):
    """Kolmogorov-Smirnov for each variable, Bonferroni; chi-square over 256 cells of all draws together."""
    w = simhash.weights_from_hashes(sample, simhash.HALF)
    p = [stats.kstest(column, stats.uniform(-1, 2).cdf).pvalue for column in w.T[:50]]
    assert min(p) > LEVEL / len(p)
    assert stats.chisquare(np.bincount(sample.ravel() >> 24, minlength=256)).pvalue > LEVEL
    assert stats.chisquare(np.bincount(sample.ravel() >> 8 & 255, minlength=256)).pvalue > LEVEL


@pytest.mark.slow
def test_uncorrelated_between_variables(sample):
    """The largest correlation is within the range of independent uniforms."""
    w = simhash.weights_from_hashes(sample, simhash.HALF).astype(np.float64)
    pairs = w.shape[1] * (w.shape[1] - 1) // 2
    correlation = np.corrcoef(w.T)[np.triu_indices(w.shape[1], 1)]
    bound = stats.norm.isf(LEVEL / (2 * pairs)) / np.sqrt(len(w))
    assert np.abs(correlation).max() < bound
    # Together they are neither too large nor too small: the sum of n r^2 is chi-square with `pairs` degrees of freedom.
    assert LEVEL < stats.chi2.cdf(len(w) * np.square(correlation).sum(), pairs) < 1 - LEVEL


def test_pairs_fill_the_square(sample):
    """Chi-square of 16 x 16 cells for neighbouring variables and draws finds dependence that correlations miss."""
    for pairs in (sample[:, 0:-1:2], sample[:, 1::2]), (sample[0:-1:2], sample[1::2]):
        a, b = (part >> 28 for part in pairs)
        assert stats.chisquare(np.bincount((16 * a + b).ravel(), minlength=256)).pvalue > LEVEL


@pytest.mark.parametrize("density", [0.5, 0.1, 0.01])
def test_zeroing_keeps_the_share_it_names_and_survivors_are_uniform(density):
    table = weights(8, 1, np.arange(2**14), 64, density)
    half = simhash.half_width(density)
    alive = int(np.count_nonzero(table))
    assert stats.binomtest(alive, table.size, (2 * half - 1) / 2**24).pvalue > LEVEL
    assert stats.kstest(table[table != 0], stats.uniform(-1, 2).cdf).pvalue > LEVEL
    # Zeros are independent for each (feature, output), so rows and columns have the same density.
    for axis in (0, 1):
        counts = np.count_nonzero(table, axis=axis)
        spread = np.square(counts - counts.mean()).sum() / (counts.mean() * (1 - density))
        assert LEVEL < stats.chi2.cdf(spread, len(counts) - 1) < 1 - LEVEL


# The order of the message: simhash.py explains the problem of the feature first


def feature_first(round_, feature, output):
    return xxhash.xxh32_intdigest(struct.pack("<QI", feature, round_), seed=output)


def twins():
    """(delta, d): ids delta apart whose first steps differ by d only; the smallest among 54 million ids."""
    delta = np.arange(1, 25_000_000, dtype=np.uint32)
    shift = (delta * np.uint32(simhash.PRIME_3)).view(np.int32)  # modulo 2^32, about 0
    at = int(np.abs(shift).argmin())
    return int(delta[at]), int(shift[at])


@pytest.mark.slow
def test_with_the_papers_seeds_twin_features_would_share_all_bits_in_every_round():
    delta, d = twins()
    assert 0 < abs(d) < 64  # "a few dozen"
    f, g = (delta + 5, 5) if d > 0 else (5, delta + 5)
    d = abs(d)
    # state = seed + k + (low word of the id) x prime 3, so h(t, f, k) = h(t, g, k + d)
    for t in (0, 1, 2, 17, 299, 2**31):
        for k in range(256):
            assert feature_first(t, f, k) == feature_first(t, g, k + d)
            assert hash_of(0, t, f, k) != hash_of(0, t, g, k + d)


@pytest.mark.parametrize("bit", [9, 13, 15, 17, 20, 23])
def test_no_two_features_share_hashes_from_round_to_round(bit):
    """Ids a multiple of 2^bit apart, up to 54 million: 256 x 256 pairs share one at probability 2^-16."""
    f = 12345
    others = f + (np.arange(1, min(2000, 54_000_000 >> bit), dtype=np.uint64) << np.uint64(bit))
    common = np.zeros(len(others), dtype=int)
    for t in (0, 1, 299):
        common += np.isin(hash_table(0, t, others, 256), hash_table(0, t, [f], 256)).sum(axis=1)
    assert common.max() <= 3


def test_seeds_of_outputs_and_rounds_differ_as_random_numbers_do():
    """300 rounds of 1024 outputs: 11 of 307,200 numbers of 32 bits are expected to come twice."""
    seeds = np.concatenate([simhash.output_seeds(0, t, 1024) for t in range(300)])
    assert len(seeds) - len(np.unique(seeds)) < 30


# Recipes


def family(n_columns, density, n_outputs=24, seed=0):
    return Family(seed, n_outputs, density=density, sparse_density=density, n_columns=n_columns)


@pytest.mark.parametrize("density", [1.0, 0.5, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("m", range(1, 21))
def test_every_output_has_an_input(m, density):
    for t in range(5):
        network = family(m, density, seed=m).draw(t)
        table = network.column_weights(np.arange(m))
        assert (table != 0).any(axis=0).all()
        np.testing.assert_array_equal(table, network.sparse_weights(np.arange(m)))
        # Only outputs without any weight get one, and exactly one.
        plain = weights(m, t, np.arange(m), 24, density)
        dead = ~(plain != 0).any(axis=0)
        np.testing.assert_array_equal(table[:, ~dead], plain[:, ~dead])
        assert (np.count_nonzero(table[:, dead], axis=0) == 1).all()


def test_inputs_of_revived_outputs_are_spread_over_all_columns():
    picked = [f for t in range(40) for _, f, _ in family(10, 0.001, 64).draw(t).revived(0.001)]
    assert stats.chisquare(np.bincount(picked, minlength=10)).pvalue > LEVEL


@pytest.mark.parametrize("n_columns", [None, 2**62], ids=["no number of columns", "a short search"])
def test_outputs_that_have_a_weight_or_no_columns_are_not_revived(n_columns):
    assert family(n_columns, 0.001, 64).draw(0).revived(0.001) == ()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.sampled_from([1.0, 0.1, 0.01]), st.integers(0, 99), st.data())
def test_a_weight_does_not_depend_on_other_features_and_outputs(m, density, round_, data):
    network = family(m, density).draw(round_)
    some = np.array(data.draw(st.lists(st.integers(0, m - 1), min_size=1)))
    whole = network.column_weights(np.arange(m))
    np.testing.assert_array_equal(family(m, density).draw(round_).column_weights(some), whole[some])
    fewer = Family(0, 7, density=1.0, n_columns=m).draw(round_).column_weights(some)
    more = Family(0, 24, density=1.0, n_columns=m).draw(round_).column_weights(some)
    np.testing.assert_array_equal(fewer, more[:, :7])


# Golden values, on which model files depend

GOLDEN = json.loads(FILE.read_text())


def from_hex(rows):
    return np.array([[float.fromhex(w) for w in row] for row in rows], dtype=np.float32)


def test_the_golden_file_is_what_its_maker_makes():
    assert FILE.read_text() == as_text(make_golden())


@pytest.mark.parametrize("table", GOLDEN["tables"], ids=lambda t: f"{t['seed']}-{t['round']}-{t['density']}")
def test_golden_hashes_and_weights(table):
    ids, n_outputs = uint64(table["ids"]), len(table["hashes"][0])
    found = hash_table(table["seed"], table["round"], ids, n_outputs)
    np.testing.assert_array_equal(found, table["hashes"])
    found = weights(table["seed"], table["round"], ids, n_outputs, table["density"])
    np.testing.assert_array_equal(found, from_hex(table["weights"]))


@pytest.mark.parametrize("golden", GOLDEN["networks"], ids=lambda n: f"{n['seed']}-{n['round']}-{n['density']}")
def test_golden_networks_with_revived_outputs(golden):
    wanted = from_hex(golden["weights"])
    m, n_outputs = wanted.shape
    network = family(m, golden["density"], n_outputs, golden["seed"]).draw(golden["round"])
    np.testing.assert_array_equal(network.column_weights(np.arange(m)), wanted)


@pytest.mark.parametrize("golden", GOLDEN["names"], ids=range(len(GOLDEN["names"])))
def test_golden_names(golden):
    assert hash_name(golden["name"]) == golden["id"] < 2**63
