"""Rows, networks and plain sums that the tests of kernels share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gbun.data.features import Entries
from gbun.devices import Device
from gbun.kernels import BudgetTooSmallError, Workload, make_plan, network_training_kernels
from gbun.kernels.threads import thread_pool
from gbun.learners import NetworkPartition
from gbun.networks import Family
from gbun.solve import Normaliser

ID_TYPES = (np.int32, np.int64, np.uint64)
OUTPUTS = (2, 3, 5, 8, 13, 259)
FORMS = ("dense", "hashed", "auto")


def network(n_outputs, n_columns=None, density=1.0, **more):
    family = Family(3, n_outputs, density=density, sparse_density=density, n_columns=n_columns, **more)
    return family.draw(2)


def entries(rows, dtype=np.int64):
    """Compressed rows from lists of (id, value)."""
    flat = [pair for row in rows for pair in row]
    return Entries(
        np.cumsum([0, *(len(row) for row in rows)]),
        np.array([i for i, _ in flat], dtype=dtype),
        np.array([v for _, v in flat], dtype=np.float32),
    )


def random_rows(lengths, n_ids, seed=0):
    rng = np.random.default_rng(seed)
    return [list(zip(rng.integers(n_ids, size=n), rng.normal(size=n), strict=True)) for n in lengths]


HUGE = [2**31, 2**32 - 1, 2**32, 2**32 + 1, 7 << 32, 2**62 + 3, 2**63 - 1]
CASES = {  # rows of (id, value); duplicates arise in most of them
    "no rows": [],
    "one row": random_rows([7], 50),
    "one row without entries": [[]],
    "one column": random_rows([1] * 9, 1),
    "long rows": random_rows([3000, 1, 2999], 5000),
    "empty rows": random_rows([0, 3, 0, 0, 5, 0], 20),
    "duplicates": [[(4, 1.5), (4, -0.25), (2, 1.0), (4, 3.0)], [(0, 1.0), (0, -1.0)]],
    "unsorted": [[(9, 1.0), (3, 2.0), (7, -1.0)]],
    "huge ids": [[(i, 1.0 + j)] for j, i in enumerate(HUGE)] + [[(i, 0.5) for i in HUGE]],
    "id 2^63": [[(2**63, 1.0), (2**63 - 1, 2.0)], [(2**63, -3.0)]],
}


def typed_cases():
    for name, rows in CASES.items():
        largest = max((i for row in rows for i, _ in row), default=0)
        for dtype in ID_TYPES:
            if largest <= np.iinfo(dtype).max:
                yield pytest.param(rows, dtype, id=f"{name}-{dtype.__name__}")


def plain_forward(sparse, table_of):
    """Z = X N in float64 and, for the tolerance, |X| |N|; one entry after the other."""
    table = table_of(sparse.ids).astype(np.float64)
    terms = table * sparse.values[:, None]
    n = len(sparse.indptr) - 1
    z, size = np.zeros((n, table.shape[1])), np.zeros((n, table.shape[1]))
    np.add.at(z, sparse.row_of_entry, terms)
    np.add.at(size, sparse.row_of_entry, np.abs(terms))
    return z, size


def moments(z, weight):
    """[sum w z; sum w z^2] in float64, 2 x K."""
    z = z.astype(np.float64)
    return np.stack([weight @ z, weight @ z**2])


def assert_close(found, z, size, n_terms):
    """Each of n additions in float32 loses at most half a unit of the sum of sizes."""
    assert found.dtype == np.float32
    assert (np.abs(found - z) <= 2.0**-24 * (n_terms + 1) * size + 1e-30).all()


def training(features, family, pool, n_scores=1, form="auto", hold=True, weight=None, exact=True, pipelined=False):
    work, device = Workload(features, family.n_outputs, n_scores, pipelined=pipelined), Device()
    plan = replace(make_plan(work, device, pool.count, 10**10, form), hold=hold, exact=exact)
    weight = np.ones(features.n_rows) if weight is None else weight
    return network_training_kernels(features, family, plan, pool, device, weight)


def least_bytes(plan):
    """The bytes that are asked for where `plan` has too small a budget."""
    with pytest.raises(BudgetTooSmallError, match="memory_budget must be at least") as raised:
        plan()
    assert f"memory_budget must be at least {raised.value.n_bytes} bytes" in str(raised.value)
    return raised.value.n_bytes


def partition(net, centre, factor):
    return NetworkPartition(net, Normaliser(centre, factor))


def equations(kernels, *args):
    """A, B and the curvature."""
    found = kernels.normal_equations(*args)
    return [found.A, found.B, found.curvature]


def outputs(features, net, n_jobs=1, form="auto"):
    """Z = X N."""
    with thread_pool(n_jobs) as pool:
        kernels = training(features, net.family, pool, form=form)
        kernels.first_pass(net, None, np.zeros((features.n_rows, 1)))
        return newest_buffer(kernels)


def newest_buffer(kernels):
    """What keeps Z, then P, of the round that was forwarded last."""
    return kernels.rounds._rounds[-1].buffer
