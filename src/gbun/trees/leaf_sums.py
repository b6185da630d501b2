"""Sums of several outputs over the rows of each leaf, by integers: the same for any division of rows.

    S[l, c] = sum over rows i of leaf l of  floor(v_ic x scale_c + 1/2) / scale_c

The scale of an output is the largest power of two for which numbers as large as the largest may exceed neither 2^40
nor, together, 2^52: sums of workers are exact in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray, IntArray, Reduce
from gbun.kernels.threads import ThreadPool
from gbun.trees.compiled import kernel
from gbun.trees.quantise import MOST_FINE, MOST_FINE_SUM, REFUSED, check_exponent, largest_exponent

MIN_PARALLEL = 2**15  # numbers that are summed sooner than another thread begins
SIGNLESS = np.uint32(0x7FFFFFFF)
EXPONENT_SHIFT, N_EXPONENTS = 23, 256  # of float32


def leaf_sums(
    values: FloatArray, leaf_of_row: IntArray, n_leaves: int, threads: ThreadPool, reduce: Reduce
) -> FloatArray:
    """Return the sums of `values`, float32 (n, C), over the rows of each leaf of all workers: float64 (n_leaves, C).

    `reduce` sums a float64 array over workers; it is called twice.
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    n, C = values.shape
    if leaf_of_row.shape != (n,) or (n and int(leaf_of_row.max()) >= n_leaves):
        raise ValueError(f"leaf_of_row must name one of {n_leaves} leaves for each of {n} rows")
    parts = range(threads.count if values.size >= MIN_PARALLEL else 1)
    cuts = [(n * p // len(parts), n * (p + 1) // len(parts)) for p in parts]
    largest, counts = np.zeros((len(parts), C), dtype=np.uint32), np.zeros((len(parts), C), dtype=np.int64)
    bits = values.view(np.uint32)
    threads.run_compiled(lambda p: _measure(bits, *cuts[p], largest[p], counts[p]), parts)
    seen: FloatArray = np.zeros(
        (C, N_EXPONENTS + 1)
    )  # how many workers have which largest exponent; how many numbers there are
    seen[np.arange(C), largest.max(axis=0) >> np.uint32(EXPONENT_SHIFT)] = 1.0
    seen[:, -1] = counts.sum(axis=0)
    seen = reduce(seen.ravel()).reshape(seen.shape)
    exponents = _find_exponents(seen)
    check_exponent(int(exponents.min(initial=0)))
    scale = np.ldexp(1.0, exponents)
    sums = np.zeros((len(parts), n_leaves, C))
    threads.run_compiled(lambda p: _add_rows(values, leaf_of_row, scale, *cuts[p], sums[p]), parts)
    total: FloatArray = reduce(sums.sum(axis=0).ravel()).reshape(n_leaves, C) / scale
    return total


@kernel()
def _measure(bits: Any, first: int, last: int, largest: Any, counts: Any) -> None:
    """Find the largest number of each output, by its bits, and how many are not zero."""
    for i in range(first, last):
        for c in range(bits.shape[1]):
            size = bits[i, c] & SIGNLESS
            largest[c] = max(largest[c], size)
            counts[c] += np.int64(size != np.uint32(0))


@kernel()
def _find_exponents(seen: Any) -> Any:
    exponents = np.empty(len(seen), dtype=np.int64)
    for c in range(len(seen)):
        k = N_EXPONENTS - 1
        while k > 0 and seen[c, k] == 0.0:
            k -= 1
        n, top = seen[c, N_EXPONENTS], math.ldexp(1.0, k - 126)  # numbers are below the next power of two
        exponents[c] = REFUSED if k == N_EXPONENTS - 1 else largest_exponent(top, n * top, n, MOST_FINE, MOST_FINE_SUM)
    return exponents


@kernel()
def _add_rows(values: Any, leaf_of_row: Any, scale: Any, first: int, last: int, sums: Any) -> None:
    for i in range(first, last):
        leaf = leaf_of_row[i]
        for c in range(values.shape[1]):
            sums[leaf, c] += np.floor(np.float64(values[i, c]) * scale[c] + 0.5)  # whole numbers: exact in any order
