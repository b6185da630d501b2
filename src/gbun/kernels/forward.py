"""Z = X N_t of a chunk: which form of the product computes which part of the features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gbun.data.features import Entries, Features
from gbun.dtypes import FEATURE_ID, MEMBERSHIP, FloatArray, IntArray
from gbun.kernels import hashed, products, rows
from gbun.kernels.chunks import Chunk, FeatureColumns, FeatureTable
from gbun.kernels.hashed import TILE
from gbun.kernels.threads import Scratch
from gbun.networks import Family, Network
from gbun.networks.simhash import half_width, initial_hash_state

TABLE_LIMIT = 2**23  # weights of dense columns that are computed at a time: 32 MB
MAX_SPARSE_DENSITY = 0.2  # where at most this share of weights is not zero, the product leaves out terms that are zero,
MIN_COLUMNS_TO_TRANSPOSE = 64  # if there are so many columns that transposing rows pays
MIN_ROWS_TO_TRANSPOSE = 8

Revived = tuple[tuple[int, int, float], ...]


@dataclass
class Weights:
    """The weights of a round: where hashes begin, outputs that were revived, and tables of dense columns if kept."""

    family: Family
    states: IntArray  # padded to whole tiles
    revived: Revived
    revived_dense: Revived
    dense: list[DenseTable] = field(default_factory=list)


@dataclass(frozen=True)
class DenseTable:
    """The weights of dense columns from `first` on, as panels or as non-zeros by output."""

    first: int
    n_columns: int
    panels: FloatArray | None
    non_zeros: tuple[IntArray, IntArray, FloatArray] | None

    def multiply_add(self, X: FloatArray, z: FloatArray) -> None:
        if self.n_columns < X.shape[1]:
            X = np.ascontiguousarray(X[:, self.first : self.first + self.n_columns])
        if self.non_zeros is not None:
            products.multiply_add_sparse(X, *self.non_zeros, z)
        else:
            products.multiply_add(X, self.panels, z)


def make_weights(network: Network, features: Features, *, keep: bool) -> Weights:
    """Prepare the weights of a round. `keep`: compute small tables of dense columns now, for all chunks."""
    K = network.family.n_outputs
    states = np.zeros(-(-K // TILE) * TILE, dtype=np.uint32)
    states[:K] = initial_hash_state(network.seeds)
    family = network.family
    revived = network.revived(family.sparse_density) if features.sparse is not None else ()
    weights = Weights(family, states, revived, network.revived(family.density) if features.dense is not None else ())
    if keep and features.dense is not None and features.dense.shape[1] * K <= TABLE_LIMIT:
        weights.dense = list(_dense_tables(weights, *features.dense.shape))
    return weights


def forward(
    weights: Weights,
    features: Features,
    chunk: Chunk,
    z: FloatArray,
    scratch: Scratch,
    moments: tuple[FloatArray, FloatArray] | None = None,
    nontemporal: bool = False,
) -> None:
    """Compute z = X N of the rows of a chunk.

    `moments` are the weights of the rows, and sums [sum w z; sum w z^2] to add to. Sparse features are computed tile by
    tile, so that the moments of a tile are summed while it is in the cache.
    """
    dense, sparse = features.dense, features.sparse
    K = z.shape[1]
    if dense is not None or sparse is None:
        z[:] = 0.0
    if dense is not None:
        for table in weights.dense or _dense_tables(weights, len(chunk), dense.shape[1]):
            table.multiply_add(dense[chunk.rows], z)
    if sparse is None:
        if moments is not None:
            rows.add_moments(z, *moments, 0, K)
        return
    for first in range(0, K, TILE):
        tile = z if K == TILE else scratch.array("tile", len(chunk), TILE)
        if dense is not None and K != TILE:
            tile[:, : K - first] = z[:, first : first + TILE]
        _forward_tile(weights, sparse, chunk, first, dense is None, tile, scratch)
        if moments is not None:
            rows.add_moments(tile, *moments, first, min(TILE, K - first))
        if K != TILE:
            rows.copy_tile(tile, z, first, nontemporal)


def _forward_tile(
    weights: Weights, entries: Entries, chunk: Chunk, first: int, fresh: bool, tile: FloatArray, scratch: Scratch
) -> None:
    half, inverse = weight_scale(weights.family.sparse_density)
    indptr = entries.indptr[chunk.rows.start : chunk.rows.stop + 1]
    ids, values = entries.ids[chunk.entries], entries.values[chunk.entries]
    states = weights.states[first : first + TILE]
    order = chunk.order
    if isinstance(order, FeatureTable):
        table = scratch.array("table", len(order.features), TILE)
        hashed.fill_table(states, order.features, half, inverse, table)
        hashed.forward_from_table(indptr, order.local, values, table, fresh, tile)
    elif isinstance(order, FeatureColumns):
        if fresh:
            tile[:] = 0.0
        hashed.forward_by_column(order.starts, order.rows, order.values, order.features, states, half, inverse, tile)
    else:
        hashed.forward_on_the_fly(indptr, ids, values, states, half, inverse, fresh, tile)
    revived = [(output - first, f, w) for output, f, w in weights.revived if 0 <= output - first < TILE]
    if revived:  # so far such an output has nothing but zeros
        outputs, revivers, few = zip(*revived, strict=True)
        sparse_weights = np.array(outputs), np.array(revivers, dtype=FEATURE_ID), np.array(few, dtype=MEMBERSHIP)
        hashed.add_revived(indptr, ids, values, *sparse_weights, tile)


def _dense_tables(weights: Weights, n_rows: int, n_columns: int) -> Iterator[DenseTable]:
    """Yield tables of all dense columns, as many at a time as the limit allows; sums are the same either way."""
    family, K = weights.family, weights.family.n_outputs
    padded = -(-K // products.PANEL_OUTPUTS) * products.PANEL_OUTPUTS
    half, inverse = weight_scale(family.density)
    few = family.density <= MAX_SPARSE_DENSITY and n_columns >= MIN_COLUMNS_TO_TRANSPOSE
    few = few and n_rows >= MIN_ROWS_TO_TRANSPOSE
    step = max(1, min(n_columns, TABLE_LIMIT // padded))
    for first in range(0, n_columns, step):
        columns = np.arange(first, min(first + step, n_columns), dtype=FEATURE_ID)
        table = np.empty((len(columns), padded), dtype=MEMBERSHIP)
        hashed.fill_table(weights.states, columns, half, inverse, table)
        for output, feature, weight in weights.revived_dense:
            if first <= feature < first + len(columns):
                table[feature - first, output] = weight
        if few:
            yield DenseTable(first, len(columns), None, products.non_zeros_by_output(table[:, :K]))
        else:
            yield DenseTable(first, len(columns), products.make_panels(table), None)


def weight_scale(density: float) -> tuple[np.uint32, np.float32]:
    half = half_width(density)
    return np.uint32(half), MEMBERSHIP(1.0 / half)
