"""The kernels of one shard: which form of each runs, on which chunk, into which buffer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gbun.data.features import Entries, Features
from gbun.dtypes import FEATURE_ID, MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.kernels import portable
from gbun.kernels.threads import Threads, row_chunks
from gbun.networks import Network
from gbun.networks.simhash import half_width, initial_state

Derivatives = Callable[[slice], tuple[FloatArray, FloatArray]]

TABLE_LIMIT = 2**23  # weights in a table that "auto" is ready to make each round: 32 MB

LARGEST_TABLE = 2**29  # and what "dense" may ask for: 2 GB


class Kernels:
    """Forward, moments, memberships and normal equations over the rows of one `Features`.

    The n x K buffer is allocated once and reused by every round: what `forward` returns is overwritten by
    `memberships` in place, and by the next `forward`.
    """

    def __init__(
        self, features: Features, n_outputs: int, n_scores: int, threads: Threads, network: str = "auto"
    ) -> None:
        self.features = features
        self.threads = threads
        self.form = network
        self.chunks = row_chunks(features.n_rows, max(n_outputs, n_scores))
        self.buffer = np.empty((features.n_rows, n_outputs), dtype=MEMBERSHIP)

    def forward(self, network: Network) -> FloatArray:
        """Z = X N_t, n x K."""
        dense, sparse = self.features.dense, self.features.sparse
        self.buffer[:] = 0.0
        if dense is not None:
            self._forward_dense(network, dense)
        if sparse is not None and len(sparse.ids):
            self._forward_sparse(network, sparse)
        return self.buffer

    def _forward_dense(self, network: Network, X: FloatArray) -> None:
        from gbun.kernels import products

        # A table of all weights, or of as many columns at a time as the limit allows: the same sums either way.
        n_columns, K = X.shape[1], self.buffer.shape[1]
        width = n_columns if self.form == "dense" else max(4, TABLE_LIMIT // K // 4 * 4)
        for first in range(0, n_columns, max(1, width)):
            columns = np.arange(first, min(first + width, n_columns))
            table = self._table(network, columns, network.family.density)

            def add(rows: slice, first: int = first, table: FloatArray = table) -> None:
                products.multiply_add(X[rows, first : first + len(table)], table, self.buffer[rows])

            self.threads.run(add, self.chunks)

    def _forward_sparse(self, network: Network, entries: Entries) -> None:
        from gbun.kernels import hashed

        table = self._sparse_table(network, entries)
        half = half_width(network.family.sparse_density)
        states, inverse = initial_state(network.seeds), MEMBERSHIP(1.0 / half)

        def add(rows: slice) -> None:
            row = entries.indptr[rows.start : rows.stop + 1], entries.ids, entries.values
            if table is None:
                hashed.forward_on_the_fly(*row, states, np.int32(half), inverse, self.buffer[rows])
            else:
                hashed.forward_from_table(*row, table, self.buffer[rows])

        self.threads.run(add, self.chunks)
        if table is None:
            self._forward_revived(network, entries)

    def _forward_revived(self, network: Network, entries: Entries) -> None:
        from gbun.kernels import hashed

        revived = network.revived(network.family.sparse_density)
        if not revived:
            return
        outputs, ids, weights = zip(*revived, strict=True)
        few = np.array(outputs), np.array(ids, dtype=FEATURE_ID), np.array(weights, dtype=MEMBERSHIP)

        def add(rows: slice) -> None:
            row = entries.indptr[rows.start : rows.stop + 1], entries.ids, entries.values
            hashed.forward_revived(*row, *few, self.buffer[rows])

        self.threads.run(add, self.chunks)

    def _sparse_table(self, network: Network, entries: Entries) -> FloatArray | None:
        """A table pays where columns are few and each is met many times; names have no table."""
        m, K = network.family.n_columns, self.buffer.shape[1]
        small = m is not None and m * K <= TABLE_LIMIT and 4 * m <= len(entries.ids)
        if m is None or self.form == "hashed" or (self.form == "auto" and not small):
            return None
        if m * K > LARGEST_TABLE:
            raise ValueError(
                f"network='dense' would make a table of {m} x {K} weights each round; use network='auto' or 'hashed'"
            )
        return self._table(network, np.arange(m), network.family.sparse_density)

    def _table(self, network: Network, features: IntArray, density: float) -> FloatArray:
        from gbun.kernels import hashed

        half = half_width(density)
        table = np.empty((len(features), len(network.seeds)), dtype=MEMBERSHIP)
        hashed.fill_weights(initial_state(network.seeds), features, np.int32(half), MEMBERSHIP(1.0 / half), table)
        for output, feature, weight in network.revived(density):
            if features[0] <= feature <= features[-1]:
                table[feature - features[0], output] = weight
        return table

    def moments(self, weight: FloatArray) -> FloatArray:
        """[sum w z ; sum w z^2], 2 x K."""
        parts = self.threads.map(lambda rows: portable.moments(self.buffer[rows], weight[rows]), self.chunks)
        return sum(parts, np.zeros((2, self.buffer.shape[1])))

    def memberships(self, centre: FloatArray, factor: FloatArray, width: int) -> FloatArray:
        """P, n x K, in the place of Z."""
        self.threads.run(lambda rows: portable.memberships(self.buffer[rows], centre, factor, width), self.chunks)
        return self.buffer

    def normal_equations(self, derivatives: Derivatives) -> tuple[FloatArray, FloatArray]:
        """A = P'HP and B = P'G, derivatives being computed for a chunk when its turn comes."""
        parts = self.threads.map(
            lambda rows: portable.normal_equations(self.buffer[rows], *derivatives(rows)), self.chunks
        )
        A, B = next(parts, None) or portable.normal_equations(self.buffer, *derivatives(slice(0, 0)))
        for a, b in parts:
            A += a
            B += b
        return A, B

    def apply(self, head: FloatArray, receive: Callable[[slice, FloatArray], None]) -> None:
        """Hands P W to `receive`, chunk by chunk."""
        from gbun.kernels import products

        def work(rows: slice) -> None:
            p = self.buffer[rows]
            step = np.zeros((len(p), head.shape[1]), dtype=MEMBERSHIP)
            if head.shape[1] == 1:
                products.dot_rows(p, head[:, 0].copy(), step[:, 0])
            else:
                products.multiply_add(p, head, step)
            receive(rows, step)

        self.threads.run(work, self.chunks)

    def sum_rows(self, values: Callable[[slice], FloatArray]) -> FloatArray:
        """The sum over chunks of what `values` gives for each, added in chunk order."""
        return np.asarray(sum(self.threads.map(values, self.chunks), np.zeros(())), dtype=SUM)
