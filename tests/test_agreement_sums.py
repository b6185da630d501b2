"""Scaling and held-out rows are those of the rows of all workers, and messages before the first round are small."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gbun.collectives import Solo
from gbun.collectives.threads import in_threads
from gbun.config import Parameters
from gbun.data import scaling
from gbun.data.ingest import ingest
from gbun.data.scaling import fit_scaling
from gbun.problem import Dataset, divide_rows, read_problem
from gbun.ranges import SCALING_STEPS
from gbun.splits import hash_rows_to_unit
from tests.share_cases import FORMS, SIZES, N, Y, assert_errors, divide, read_shares, run_everywhere, take

# Scaling

NAMES = ["auto", "none", *SCALING_STEPS[:5], "log+standard", "log+max_abs", "log+idf+unit", "max_abs+unit"]


def assert_close(fitted, expected):
    for part in ("dense", "sparse"):
        a, b = getattr(fitted, part), getattr(expected, part)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.centre, b.centre, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(a.factor, b.factor, rtol=1e-12)
            np.testing.assert_array_equal(a.ids, b.ids)
    assert (fitted.bucketed is None) == (expected.bucketed is None)
    if fitted.bucketed is not None:
        assert fitted.bucketed.buckets == expected.bucketed.buckets
        np.testing.assert_allclose(fitted.bucketed.factor, expected.bucketed.factor, rtol=1e-12)
    assert (fitted.name, fitted.sparse_steps) == (expected.name, expected.sparse_steps)


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("form", FORMS)
def test_scaling_is_that_of_all_rows(form, size):
    weight = np.random.default_rng(size).random(N) * (np.arange(N) % 7 > 0)
    data = FORMS[form], Y, weight
    single = read_problem(Parameters(), Dataset(*data), {})
    problems = read_shares(divide(data, size)[1])

    def work(collective):
        p = problems[collective.rank]
        return [fit_scaling(name, p.shard.features, p.shard.weight, collective, p.schema) for name in NAMES]

    expected = [fit_scaling(name, single.shard.features, weight, Solo(), single.schema) for name in NAMES]
    for fitted in in_threads(size, work):
        for a, b in zip(fitted, expected, strict=True):
            assert_close(a, b)


class ByteCounter:
    """A collective that counts the bytes it is given."""

    def __init__(self, collective):
        self.collective, self.rank, self.size, self.n_bytes = collective, collective.rank, collective.size, 0

    def __getattr__(self, name):
        def send(values, *args):
            assert isinstance(values, np.ndarray)
            self.n_bytes += values.nbytes
            return getattr(self.collective, name)(values, *args)

        return send


@pytest.mark.parametrize("form", FORMS)
def test_messages_do_not_grow_with_rows(form):
    """A row adds less than a byte: only the digits of the number of rows grow."""

    def count_bytes(times):
        rows = np.tile(np.arange(N), times)

        def work(collective):
            counter, labels = ByteCounter(collective), np.array(["a", "b", "c"])[rows % 3]
            data = Dataset(take(FORMS[form], rows), labels, np.ones(len(rows)))
            problem = read_problem(Parameters(), data, {"t": data}, None, None, counter)
            fit_scaling("standard", problem.shard.features, problem.shard.weight, counter, problem.schema)
            return counter.n_bytes

        return max(in_threads(2, work))

    assert count_bytes(20) - count_bytes(1) <= 100


def test_sparse_columns_that_only_one_worker_has():
    ids = [np.array([r, 10**15 + r, 10**15], dtype=np.int64) for r in range(7)]

    def work(collective):
        r = collective.rank
        X = scipy.sparse.csr_array((np.arange(1.0, 4.0) + r, ([0, 1, 1], ids[r])), shape=(2, 2**60))
        features, schema = ingest(X)
        return fit_scaling("standard", features, np.ones(2), collective, schema).sparse

    for columns in in_threads(7, work):
        np.testing.assert_array_equal(columns.ids, np.unique(ids))
        np.testing.assert_allclose(columns.centre[0], 1.0 / 14)


def test_ids_of_all_workers_are_found_though_they_share_buckets(monkeypatch):
    ids = [np.unique(np.random.default_rng(r).integers(2**63 - 1, size=500 * r)) for r in range(4)]
    ids[3] = np.union1d(ids[3], ids[2])
    for found in in_threads(4, lambda c: scaling.gather_ids(ids[c.rank], None, c)):
        np.testing.assert_array_equal(found, np.unique(np.concatenate(ids)))
    monkeypatch.setattr(scaling, "MAX_NUMBERS", 2000)
    errors = run_everywhere(4, lambda c: scaling.gather_ids(ids[c.rank], None, c))
    assert_errors(errors, "scale='standard'", "more than 2000")


def test_column_without_zeros_is_constant_whatever_the_rounding_of_its_weights():
    for seed in range(20):
        weight = np.random.default_rng(seed).random(100)
        features, schema = ingest(scipy.sparse.csr_array(np.full((100, 1), 3.0)))
        assert fit_scaling("standard", features, weight, Solo(), schema).sparse.factor[0] == 0.0


# Held-out rows


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("form", ["array", "csr", "pandas", "dicts"])
def test_held_out_rows_are_those_of_all_rows(form, several):
    data = FORMS[form], np.arange(N) % 3, np.random.default_rng(0).random(N)
    single = read_problem(Parameters(validation_fraction=0.3), Dataset(*data), {}, task="classification")
    number = {key: i for i, key in enumerate(hash_rows_to_unit(single.shard.features, single.shard.y, 0))}

    def split(problem):
        """Return the numbers of the rows to fit and to judge by, for each division."""
        divisions = [divide_rows(problem.shard, held) for held in problem.choose_held_out(several)]
        return [[{number[key] for key in hash_rows_to_unit(s.features, s.y, 0)} for s in both] for both in divisions]

    expected = split(single)
    assert all(len(fit) > len(judge) > 0 for fit, judge in expected)
    for size in SIZES:
        problems = read_shares(divide(data, size)[1], task="classification", validation_fraction=0.3)

        def work(collective, problems=problems):
            problem = problems[collective.rank]
            problem.collective = collective
            return split(problem)

        found = in_threads(size, work)
        assert [len(divisions) for divisions in found] == [len(expected)] * size
        for k, division in enumerate(expected):
            for side in (0, 1):
                assert set().union(*(divisions[k][side] for divisions in found)) == division[side]
