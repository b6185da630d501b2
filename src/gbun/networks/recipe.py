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
    array([[ 0.13,  0.  ,  0.  ,  0.  ],
           [ 0.  , -0.09,  0.  ,  0.  ],
           [ 0.  ,  0.  , -0.89, -0.37]], dtype=float32)
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
    def states(self) -> NDArray[np.uint32]:
        return simhash.output_states(self.family.seed, self.round, self.family.n_outputs)

    def column_weights(self, features: IntArray) -> NDArray[np.float32]:
        """Weights of dense columns, len(features) x K."""
        return self._weights(features, self.family.density)

    def sparse_weights(self, features: IntArray) -> NDArray[np.float32]:
        """Weights of sparse features, len(features) x K."""
        return self._weights(features, self.family.sparse_density)

    def _weights(self, features: IntArray, density: float) -> NDArray[np.float32]:
        table = simhash.weights_of(simhash.hashes(self.states, features), simhash.half_width(density))
        for output, feature, weight in self.revived(density):
            table[np.asarray(features) == feature, output] = weight
        return table

    def revived(self, density: float) -> tuple[tuple[int, int, float], ...]:
        """(output, feature, weight) for outputs that zeroing left without any input.

        Such an output gets one input, picked by a hash as well, with the weight it has at density 1. Looking for
        the first surviving weight takes about 1 / density hashes an output, however many columns there are.
        """
        m, half = self.family.n_columns, simhash.half_width(density)
        if m is None or half == simhash.HALF:
            return ()
        alive = np.zeros(self.family.n_outputs, dtype=bool)
        for first in range(0, m, 1024):
            block = simhash.hashes(self.states[~alive], np.arange(first, min(first + 1024, m)))
            alive[~alive] = (simhash.weights_of(block, half) != 0).any(axis=0)
            if alive.all():
                return ()
        return tuple(self._revive(int(k), m) for k in np.flatnonzero(~alive))

    def _revive(self, output: int, m: int) -> tuple[int, int, float]:
        state = self.states[output : output + 1]
        feature = int(simhash.hashes(state, np.array([simhash.UNUSED_ID], dtype=np.uint64))[0, 0]) % m
        weight = simhash.weights_of(simhash.hashes(state, np.array([feature])), simhash.HALF)[0, 0]
        return output, feature, float(weight or MEMBERSHIP(1.0))
