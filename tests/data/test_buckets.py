"""Buckets of features: places, signs, and the estimated number of features."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.collectives import Solo
from gbun.data.buckets import BUCKET_SEED, Buckets, choose_buckets, estimate_distinct
from tests.data.test_scaling import Team


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), st.integers(8, 24))
def test_hashed_places_are_the_upper_bits_of_xxhash_and_signs_its_lowest(ids, bits):
    places, signs = Buckets(2**bits, hashed=True).place(np.array(ids, dtype=np.uint64))
    hashes = [xxhash.xxh32_intdigest(i.to_bytes(8, "little"), seed=int(BUCKET_SEED)) for i in ids]
    assert places.tolist() == [h >> (32 - bits) for h in hashes]
    assert signs.tolist() == [-1.0 if h & 1 else 1.0 for h in hashes]


def test_places_are_frozen():
    """Model files depend on them: these numbers must never change."""
    ids = np.array([0, 1, 7, 2**31, 2**32, 2**62, 2**63 - 1])
    places, signs = Buckets(2**16, hashed=True).place(ids)
    assert places.tolist() == [38899, 30138, 25228, 6678, 38579, 36228, 64742]
    assert signs.tolist() == [-1, 1, 1, 1, -1, 1, 1]


@pytest.mark.parametrize("ids", [np.arange(50_000), np.arange(50_000) << 40], ids=["low", "high"])
def test_places_are_even_and_signs_balanced(ids):
    places, signs = Buckets(256, hashed=True).place(ids)
    counts = np.bincount(places, minlength=256)
    assert len(counts) == 256
    assert np.square(counts - counts.mean()).sum() / counts.mean() < 256 + 5 * np.sqrt(2 * 256)  # chi^2
    assert abs(signs.mean()) < 5 / np.sqrt(len(ids))
    assert abs(np.mean(signs * np.where(places % 2, 1.0, -1.0))) < 5 / np.sqrt(len(ids))  # of each other


CHOICES = [  # features seen, columns, scores, bits asked for; buckets, and whether they are hashed
    ((5, 2**16, 1, None), 2**16, False),
    ((5, 2**16 + 1, 1, None), 256, True),
    ((20_000, 70_000, 1, None), 70_000, False),  # at most four columns for each feature seen
    ((20_000, 100_000, 1, None), 2**15, True),
    ((20_000, 70_000, 100, None), 2**15, True),  # seven million numbers would be too many
    ((20_000, None, 1000, None), 2**12, True),  # 2^22 numbers, no more
    ((0, None, 1, None), 256, True),
    ((5, 1000, 1, 8), 256, True),
    ((5, 256, 1, 8), 256, False),
]


@pytest.mark.parametrize(("given_", "n", "hashed"), CHOICES)
def test_few_columns_are_not_hashed(given_, n, hashed):
    seen, columns, scores, bits = given_
    buckets = choose_buckets(np.arange(seen), columns, scores, Solo(), bits)
    assert buckets == Buckets(n, hashed)
    places, signs = buckets.place(np.arange(5))
    assert (signs is None, places.tolist() == [0, 1, 2, 3, 4]) == (not hashed, not hashed)


@settings(max_examples=15, deadline=None)
@given(st.integers(2000, 60_000), st.integers(1, 5), st.integers(0, 2**40))
def test_distinct_features_are_counted_within_five_percent_by_one_or_several(n, times, shift):
    ids = np.tile((np.arange(n) << 20) + shift, times)
    assert abs(estimate_distinct(ids, Solo()) / n - 1) < 0.05
    found = Team(3).run(estimate_distinct, [ids[:0], ids[: 2 * n // 3], ids[n // 3 :]])
    assert found[0] == found[1] == found[2] == pytest.approx(n, rel=0.05)
