"""Scaling and the division into parts are those of all workers' rows, and what they tell each other is small."""

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
from gbun.problem import Dataset, read
from gbun.ranges import SCALING_STEPS
from gbun.splits import chances
from share_cases import FORMS, SIZES, N, Y, divided, everywhere, problems, take, told

# Scaling

NAMES = ["auto", "none", *SCALING_STEPS, "log+standard", "log+max_abs", "log+idf+unit", "max_abs+unit"]


def close(found, wanted):
    for part in ("dense", "sparse"):
        a, b = getattr(found, part), getattr(wanted, part)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.centre, b.centre, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(a.factor, b.factor, rtol=1e-12)
            np.testing.assert_array_equal(a.ids, b.ids)
    assert (found.shared is None) == (wanted.shared is None)
    if found.shared is not None:
        assert found.shared.buckets == wanted.shared.buckets
        np.testing.assert_allclose(found.shared.factor, wanted.shared.factor, rtol=1e-12)
    assert (found.name, found.sparse_steps) == (wanted.name, wanted.sparse_steps)


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("form", FORMS)
def test_scaling_is_that_of_the_whole(form, size):
    weight = np.random.default_rng(size).random(N) * (np.arange(N) % 7 > 0)
    data = FORMS[form], Y, weight
    whole = read(Parameters(), Dataset(*data), {})
    shares = divided(data, size)[1]
    own = problems(shares)

    def work(collective):
        p = own[collective.rank]
        return [fit_scaling(name, p.shard.features, p.shard.weight, collective, p.schema) for name in NAMES]

    wanted = [fit_scaling(name, whole.shard.features, weight, Solo(), whole.schema) for name in NAMES]
    for found in in_threads(size, work, timeout=30.0):
        for a, b in zip(found, wanted, strict=True):
            close(a, b)


class Watched:
    """A collective that notes the size of what it is given."""

    def __init__(self, collective):
        self.own, self.rank, self.size, self.bytes = collective, collective.rank, collective.size, []

    def sum(self, values, *more):
        return self._noted(self.own.sum, values, *more)

    def broadcast(self, values, root=0):
        return self._noted(self.own.broadcast, values, root)

    def gather(self, values, root=0):
        return self._noted(self.own.gather, values, root)

    def _noted(self, send, values, *more):
        assert isinstance(values, np.ndarray)
        self.bytes.append(values.nbytes)
        return send(values, *more)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_told_does_not_grow_with_rows(form):
    """Not by a byte for each of them: the number of rows is written out, and that is all."""

    def total(times):
        rows = np.tile(np.arange(N), times)

        def work(collective):
            watched, labels = Watched(collective), np.array(["a", "b", "c"])[rows % 3]
            data = Dataset(take(FORMS[form], rows), labels, np.ones(len(rows)))
            problem = read(Parameters(), data, {"t": data}, None, None, watched)
            fit_scaling("standard", problem.shard.features, problem.shard.weight, watched, problem.schema)
            return sum(watched.bytes)

        return max(in_threads(2, work))

    assert total(20) - total(1) <= 100


def test_columns_of_many_workers_that_no_one_else_has():
    ids = [np.array([r, 10**15 + r, 10**15], dtype=np.int64) for r in range(7)]

    def work(collective):
        r = collective.rank
        X = scipy.sparse.csr_array((np.arange(1.0, 4.0) + r, ([0, 1, 1], ids[r])), shape=(2, 2**60))
        features, schema = ingest(X)
        return fit_scaling("standard", features, np.ones(2), collective, schema).sparse

    for found in in_threads(7, work):
        np.testing.assert_array_equal(found.ids, np.unique(ids))
        np.testing.assert_allclose(found.centre[0], 1.0 / 14)


def test_ids_of_all_workers_are_found_though_they_share_buckets(monkeypatch):
    ids = [np.unique(np.random.default_rng(r).integers(2**63 - 1, size=500 * r)) for r in range(4)]
    ids[3] = np.union1d(ids[3], ids[2])
    for found in in_threads(4, lambda c: scaling.all_ids(ids[c.rank], None, c)):
        np.testing.assert_array_equal(found, np.unique(np.concatenate(ids)))
    monkeypatch.setattr(scaling, "MOST_NUMBERS", 2000)
    told(everywhere(4, lambda c: scaling.all_ids(ids[c.rank], None, c)), "scale='standard'", "more than 2000")


def test_a_column_without_zeros_is_constant_whatever_rounding_makes_of_its_weights():
    for seed in range(20):
        weight = np.random.default_rng(seed).random(100)
        features, schema = ingest(scipy.sparse.csr_array(np.full((100, 1), 3.0)))
        assert fit_scaling("standard", features, weight, Solo(), schema).sparse.factor[0] == 0.0


# Division into parts


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("form", ["array", "csr", "pandas", "dicts"])
def test_parts_are_those_of_the_whole(form, few):
    data = FORMS[form], np.arange(N) % 3, np.random.default_rng(0).random(N)
    whole = read(Parameters(validation_fraction=0.3), Dataset(*data), {}, task="classification")
    number = {chance: i for i, chance in enumerate(chances(whole.shard.features, whole.shard.y, 0))}

    def chosen(parts):
        return [
            [{number[c] for c in chances(shard.features, shard.y, 0)} for shard in part if shard.n_rows is not None]
            for part in parts
        ]

    wanted = chosen(whole.parts(few, whole.shard))
    assert all(len(fit) > len(judge) > 0 for fit, judge in wanted)
    for size in SIZES:
        own = problems(divided(data, size)[1], task="classification", validation_fraction=0.3)

        def work(collective, own=own):
            problem = own[collective.rank]
            problem.collective = collective
            return chosen(problem.parts(few, problem.shard))

        found = in_threads(size, work)
        assert [len(parts) for parts in found] == [len(wanted)] * size
        for k, part in enumerate(wanted):
            for side in (0, 1):
                assert set().union(*(parts[k][side] for parts in found)) == part[side]
