"""Recipes: a network is a few numbers from which its weights can be made anywhere, never a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gbun.dtypes import MEMBERSHIP, IntArray
from gbun.networks import simhash


@dataclass(frozen=True)
class Family:
    """What all networks of a model have in common; `draw(t)` is the network of round t.

    `density` holds for dense columns, `sparse_density` for sparse ones. `n_columns` is the number of columns of
    the input, None when features are names: then any 64-bit id may come.

    >>> Family(seed=0, n_outputs=4, density=0.5, n_columns=3).draw(0).column_weights(np.arange(3)).round(2)
    array([[ 0.19,  0.  ,  0.  ,  0.77],
           [ 0.25,  0.38, -0.97,  0.85],
           [ 0.  ,  0.07,  0.69,  0.  ]], dtype=float32)
    """

    seed: int
    n_outputs: int
    density: float = 1.0
    sparse_density: float = 1.0
    temperature: float = 1.0
    group_size: int | None = None  # None: all outputs share one softmax
    n_columns: int | None = None
    kind: str = "simhash++"

    def draw(self, round_: int) -> Network:
        return Network(self, round_)

    @property
    def softmax_width(self) -> int:
        """How many outputs share one softmax."""
        return self.group_size or self.n_outputs


@dataclass(frozen=True)
class Network:
    """One round's network: one layer of weights that a hash makes when they are asked for."""

    family: Family
    round: int

    @cached_property
    def seeds(self) -> NDArray[np.uint32]:
        """The hash seed of each output."""
        return simhash.output_seeds(self.family.seed, self.round, self.family.n_outputs)

    def column_weights(self, features: IntArray) -> NDArray[np.float32]:
        """Weights of dense columns, len(features) x K."""
        return self._weights(features, self.family.density)

    def sparse_weights(self, features: IntArray) -> NDArray[np.float32]:
        """Weights of sparse features, len(features) x K."""
        return self._weights(features, self.family.sparse_density)

    def _weights(self, features: IntArray, density: float) -> NDArray[np.float32]:
        table = simhash.weights_of(simhash.hashes(self.seeds, features), simhash.half_width(density))
        for output, feature, weight in self.revived(density):
            table[np.asarray(features) == feature, output] = weight
        return table

    def revived(self, density: float) -> tuple[tuple[int, int, float], ...]:
        """(output, feature, weight) for outputs that zeroing left without any input.

        Such an output gets one input, picked by a hash as well, with the weight it has at density 1. Looking for
        the first surviving weight takes about 1 / density hashes an output, however many columns there are.
        """
        if density not in self._revived:
            self._revived[density] = self._revive(density)
        return self._revived[density]

    @cached_property
    def _revived(self) -> dict[float, tuple[tuple[int, int, float], ...]]:
        return {}

    def _revive(self, density: float) -> tuple[tuple[int, int, float], ...]:
        m, half = self.family.n_columns, simhash.half_width(density)
        if m is None or half == simhash.HALF:
            return ()
        dead = np.arange(self.family.n_outputs)
        for first in range(0, m, 1024):
            block = simhash.hashes(self.seeds[dead], np.arange(first, min(first + 1024, m)))
            dead = dead[(simhash.weights_of(block, half) == 0).all(axis=0)]
            if not len(dead):
                return ()
        seeds = self.seeds[dead]
        features = simhash.hashes(seeds, np.array([simhash.UNUSED_ID], dtype=np.uint64))[0] % np.uint64(m)
        ids = features.astype(np.uint64)
        own = simhash.xxhash32(seeds, ids.astype(np.uint32), (ids >> np.uint64(32)).astype(np.uint32))
        weights = simhash.weights_of(own, simhash.HALF)
        weights[weights == 0] = MEMBERSHIP(1.0)
        return tuple(zip(dead.tolist(), ids.tolist(), weights.tolist(), strict=True))
