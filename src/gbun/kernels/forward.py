"""Z = X N_t, chunk by chunk: which form of the product runs on which part of the features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gbun.data.features import Entries, Features
from gbun.dtypes import FEATURE_ID, MEMBERSHIP, FloatArray, IntArray
from gbun.kernels import hashed, products, rows
from gbun.kernels.chunks import Chunk, Columns, Table
from gbun.kernels.hashed import TILE
from gbun.kernels.threads import Scratch
from gbun.networks import Family, Network
from gbun.networks.simhash import half_width, initial_state

TABLE_LIMIT = 2**23  # weights of dense columns that are made at a time: 32 MB
FEW_WEIGHTS = 0.2  # where at most so many weights are not zero, terms that are zero are left out,
MANY_COLUMNS = 64  # if there are columns enough to make up for turning rows into columns
FEW_ROWS = 8

Revived = tuple[tuple[int, int, float], ...]


@dataclass
class Weights:
    """What a round's forward pass starts from: where hashes begin, outputs that had to be brought back to life, and
    tables of dense columns if they were kept."""

    family: Family
    states: IntArray  # padded to whole tiles
    revived: Revived
    revived_dense: Revived
    dense: list[DenseTable] = field(default_factory=list)


@dataclass(frozen=True)
class DenseTable:
    """The weights of dense columns from `first` on, in the form the product wants them."""

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


def weights(network: Network, features: Features, *, keep: bool) -> Weights:
    """The weights of a round. `keep` makes tables of dense columns now, if they are small: for many chunks."""
    K = network.family.n_outputs
    states = np.zeros(-(-K // TILE) * TILE, dtype=np.uint32)
    states[:K] = initial_state(network.seeds)
    family = network.family
    revived = network.revived(family.sparse_density) if features.sparse is not None else ()
    made = Weights(family, states, revived, network.revived(family.density) if features.dense is not None else ())
    if keep and features.dense is not None and features.dense.shape[1] * K <= TABLE_LIMIT:
        made.dense = list(_dense_tables(made, *features.dense.shape))
    return made


def forward(
    made: Weights,
    features: Features,
    chunk: Chunk,
    z: FloatArray,
    scratch: Scratch,
    moments: tuple[FloatArray, FloatArray] | None = None,
    past_caches: bool = False,
) -> None:
    """z = X N for the rows of a chunk, contiguous; `moments` are (weights of the rows, sums to which to add).

    Sparse features are taken tile by tile, so that a tile's moments are made while it is in the cache.
    """
    dense, sparse = features.dense, features.sparse
    K = z.shape[1]
    if dense is not None or sparse is None:
        z[:] = 0.0
    if dense is not None:
        for table in made.dense or _dense_tables(made, len(chunk), dense.shape[1]):
            table.multiply_add(dense[chunk.rows], z)
    if sparse is None:
        if moments is not None:
            rows.add_moments(z, *moments, 0, K)
        return
    for first in range(0, K, TILE):
        tile = z if K == TILE else scratch.array("tile", len(chunk), TILE)
        if dense is not None and K != TILE:
            tile[:, : K - first] = z[:, first : first + TILE]
        _forward_tile(made, sparse, chunk, first, dense is None, tile, scratch)
        if moments is not None:
            rows.add_moments(tile, *moments, first, min(TILE, K - first))
        if K != TILE:
            rows.move_out(tile, z, first, past_caches)


def _forward_tile(
    made: Weights, entries: Entries, chunk: Chunk, first: int, fresh: bool, tile: FloatArray, scratch: Scratch
) -> None:
    half, inverse = _scale(made.family.sparse_density)
    indptr = entries.indptr[chunk.rows.start : chunk.rows.stop + 1]
    ids, values = entries.ids[chunk.entries], entries.values[chunk.entries]
    states = made.states[first : first + TILE]
    order = chunk.order
    if isinstance(order, Table):
        table = scratch.array("table", len(order.features), TILE)
        hashed.fill_table(states, order.features, half, inverse, table)
        hashed.forward_from_table(indptr, order.local, values, table, fresh, tile)
    elif isinstance(order, Columns):
        if fresh:
            tile[:] = 0.0
        entries_ = order.starts, order.rows, order.values
        hashed.forward_by_column(*entries_, order.features, states, half, inverse, tile)
    else:
        hashed.forward_on_the_fly(indptr, ids, values, states, half, inverse, fresh, tile)
    revived = [(output - first, f, w) for output, f, w in made.revived if 0 <= output - first < TILE]
    if revived:  # such an output has had nothing but zeros so far
        outputs, revivers, few = zip(*revived, strict=True)
        sparse_weights = np.array(outputs), np.array(revivers, dtype=FEATURE_ID), np.array(few, dtype=MEMBERSHIP)
        hashed.forward_revived(indptr, ids, values, *sparse_weights, tile)


def _dense_tables(made: Weights, n_rows: int, n_columns: int) -> Iterator[DenseTable]:
    """Tables of all dense columns, as many at a time as the limit allows: the same sums either way."""
    family, K = made.family, made.family.n_outputs
    padded = -(-K // products.PANEL) * products.PANEL
    half, inverse = _scale(family.density)
    few = family.density <= FEW_WEIGHTS and n_columns >= MANY_COLUMNS and n_rows >= FEW_ROWS
    step = max(1, min(n_columns, TABLE_LIMIT // padded))
    for first in range(0, n_columns, step):
        columns = np.arange(first, min(first + step, n_columns), dtype=FEATURE_ID)
        table = np.empty((len(columns), padded), dtype=MEMBERSHIP)
        hashed.fill_table(made.states, columns, half, inverse, table)
        for output, feature, weight in made.revived_dense:
            if first <= feature < first + len(columns):
                table[feature - first, output] = weight
        if few:
            yield DenseTable(first, len(columns), None, products.non_zeros_by_output(table[:, :K]))
        else:
            yield DenseTable(first, len(columns), products.panels_of(table), None)


def _scale(density: float) -> tuple[np.uint32, np.float32]:
    half = half_width(density)
    return np.uint32(half), MEMBERSHIP(1.0 / half)
