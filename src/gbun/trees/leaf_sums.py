"""Sums of several outputs over the rows of each leaf, by integers: the same for any division of rows.

    S[l, c] = sum over rows i of leaf l of  floor(v_ic x scale_c + 1/2) / scale_c

The scale of an output is the largest power of two for which no number exceeds 2^40 and no sum 2^52, so that sums of
workers are exact in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.kernels.threads import ThreadPool
from gbun.trees.compiled import kernel
from gbun.trees.grower import Reduce
from gbun.trees.quantise import MOST_FINE, MOST_FINE_SUM, N_SIZES, SIZE_SHIFT, check_exponent, find_exponent

MIN_PARALLEL = 2**15  # numbers that are summed sooner than another thread begins
SIGNLESS = np.uint32(0x7FFFFFFF)


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
    sizes = np.zeros((len(parts), C, N_SIZES), dtype=np.int64)
    bits = values.view(np.uint32)
    threads.run_compiled(lambda p: _count_sizes(bits, *cuts[p], sizes[p]), parts)
    of_all = reduce(sizes.sum(axis=0).astype(np.float64).ravel()).reshape(C, N_SIZES)
    exponents = _find_exponents(of_all)
    check_exponent(int(exponents.min(initial=0)))
    scale = np.ldexp(1.0, exponents)
    sums = np.zeros((len(parts), n_leaves, C))
    threads.run_compiled(lambda p: _add_rows(values, leaf_of_row, scale, *cuts[p], sums[p]), parts)
    total: FloatArray = reduce(sums.sum(axis=0).ravel()).reshape(n_leaves, C) / scale
    return total


@kernel()
def _count_sizes(bits: Any, first: int, last: int, counts: Any) -> None:
    """`count_sizes` of each output, signed."""
    for i in range(first, last):
        for c in range(bits.shape[1]):
            size = bits[i, c] & SIGNLESS
            counts[c, size >> np.uint32(SIZE_SHIFT)] += np.int64(size != np.uint32(0))


@kernel()
def _find_exponents(counts: Any) -> Any:
    exponents = np.empty(len(counts), dtype=np.int64)
    for c in range(len(counts)):
        exponents[c] = find_exponent(counts[c], MOST_FINE, MOST_FINE_SUM)
    return exponents


@kernel()
def _add_rows(values: Any, leaf_of_row: Any, scale: Any, first: int, last: int, sums: Any) -> None:
    for i in range(first, last):
        leaf = leaf_of_row[i]
        for c in range(values.shape[1]):
            sums[leaf, c] += np.floor(np.float64(values[i, c]) * scale[c] + 0.5)  # whole numbers: exact in any order
