"""The experiment of uniformity: it tests the library's weights, and notices numbers that are not uniform."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import xxhash
from benchmarks.cells import Finding
from benchmarks.internals import Family, simhash
from benchmarks.paper.uniformity import ROUND, SEED

from benchmarks.paper import uniformity

N = 60_000


def test_patterns_are_the_librarys_weights():
    networks = [Family(SEED, n_outputs=5).draw(t).sparse_weights(np.array([12345])) for t in range(20)]
    np.testing.assert_array_equal(uniformity.over_rounds(20), np.concatenate(networks)[:, 0])
    own = simhash.weights(SEED, ROUND, np.array([12345]), 30)
    np.testing.assert_array_equal(uniformity.over_outputs(30), own[0])
    ids = np.arange(40, dtype=np.uint64) * 2**32 + 1
    wanted = simhash.weights(SEED, ROUND, ids, 1)[:, 0]
    np.testing.assert_array_equal(uniformity.PATTERNS["multiples of 2^32, plus one"](40), wanted)
    whole = uniformity.over_networks(64_064)
    np.testing.assert_array_equal(whole[64_000:], simhash.weights(SEED, 1, np.arange(1), 64).ravel())


def test_the_papers_floats_are_by_its_masks():
    for number, found in enumerate(uniformity.paper_floats(50).tolist(), start=1):
        bits = f"{xxhash.xxh32_intdigest(number.to_bytes(8, 'little'), seed=0):032b}"
        masked = struct.unpack(">f", int("0" + "01111111" + bits[9:], 2).to_bytes(4, "big"))[0]
        assert 1 <= masked < 2
        assert found == pytest.approx(2 * masked - 3, abs=1e-6)


def even(n):
    return np.random.default_rng(0).uniform(-1, 1, n).astype(np.float32)


def tilted(n):
    x = even(n)
    return np.where(x > 0.98, x - 0.5, x)


def alike(n):
    return np.repeat(even(n // 2), 2)


def too_even(n):
    """Each block has the same floats, in another order."""
    blocks = np.tile(np.linspace(-1, 1, n // 100, endpoint=False), (100, 1))
    return np.random.default_rng(0).permuted(blocks, axis=1).ravel()


@pytest.mark.parametrize(
    ("make", "failed"), [(even, ""), (tilted, "p"), (alike, "its p"), (too_even, "KS p of blocks")]
)
def test_a_test_fails_where_floats_are_not_uniform_and_then_the_goal_is_not_met(make, failed):
    found = uniformity.examine(make, N)
    if failed:
        assert found[failed] < 1e-9
    else:
        assert min(found["p"], found["its p"], found["KS p of blocks"]) > 0.01
    findings = [Finding("some ids", {}, 0.0, {}, found), Finding("others", {}, 0.0, {}, {}, "why")]
    *rows, goal = uniformity.tables(findings)
    assert goal["met"] is (not failed)
    assert [row["note"] for row in rows] == ["", "why"]


def test_floats_outside_the_range_are_an_error():
    with pytest.raises(ValueError, match=r"floats must be in \[-1, 1\), got"):
        uniformity.examine(lambda n: even(n) + 1, N)
