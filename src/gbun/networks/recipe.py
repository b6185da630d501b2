"""Families of networks. A network is described by a few numbers and has no weight matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.dtypes import MEMBERSHIP, IntArray
from gbun.networks import simhash

QUARTERS_OF_A_DOUBLING = np.array([1.0, 1.189207115, 1.414213562, 1.681792831])  # 2^(j / 4)


@dataclass(frozen=True)
class Family:
    """The parameters that all networks of a model share; `draw(t)` makes the network of round t.

    `density` is the fraction of non-zero weights of dense columns, `sparse_density` that of sparse features.
    The temperature of an output is `temperature` times 1 to 2^`temperature_doublings`, drawn log-uniformly in quarters
    of a doubling.
    `n_columns` is the number of columns of the input; None if features are names, which may have any 64-bit id.

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
    group_size: int | None = None  # outputs of one softmax; None: all
    n_columns: int | None = None
    kind: str = "simhash++"
    temperature_doublings: int = 0

    def draw(self, round_: int) -> Network:
        return Network(self, round_)

    @property
    def softmax_width(self) -> int:
        """The number of outputs of one softmax."""
        return self.group_size or self.n_outputs


@dataclass(frozen=True)
class Network:
    """The network of one round: a layer of weights that are computed by a hash when they are needed.

    `column_weights` and `sparse_weights` are the reference for the kernels, which compute weights themselves.
    """

    family: Family
    round: int

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.family, self.round)  # without caches: a pickle does not grow with use

    @cached_property
    def seeds(self) -> NDArray[np.uint32]:
        """The hash seed of each output."""
        return simhash.output_seeds(self.family.seed, self.round, self.family.n_outputs)

    @cached_property
    def temperatures(self) -> NDArray[np.float32]:
        """The temperature of each output, (K,); products of single numbers, which all machines round alike."""
        family = self.family
        unused = np.array([simhash.UNUSED_ID - 1], dtype=np.uint64)
        hashes = simhash.hash_features(self.seeds, unused)[0].astype(np.uint64)
        quarters = (hashes * np.uint64(4 * family.temperature_doublings + 1)) >> np.uint64(32)
        powers = np.ldexp(QUARTERS_OF_A_DOUBLING[quarters % np.uint64(4)], (quarters // np.uint64(4)).astype(np.int32))
        return np.asarray(MEMBERSHIP(family.temperature) * powers.astype(MEMBERSHIP))

    def column_weights(self, features: IntArray) -> NDArray[np.float32]:
        """Return the weights of dense columns, len(features) x K."""
        return self._weights(features, self.family.density)

    def sparse_weights(self, features: IntArray) -> NDArray[np.float32]:
        """Return the weights of sparse features, len(features) x K."""
        return self._weights(features, self.family.sparse_density)

    def _weights(self, features: IntArray, density: float) -> NDArray[np.float32]:
        table = simhash.weights_from_hashes(simhash.hash_features(self.seeds, features), simhash.half_width(density))
        for output, feature, weight in self.revived(density):
            table[np.asarray(features) == feature, output] = weight
        return table

    def revived(self, density: float) -> tuple[tuple[int, int, float], ...]:
        """Return (output, feature, weight) for each output whose weights are all zero at this density.

        A hash picks one input for such an output, which gets its weight of density 1. To find the first non-zero weight
        of an output takes about 1 / density hashes, however many columns there are.
        """
        if density not in self._revived_by_density:
            self._revived_by_density[density] = self._find_revived(density)
        return self._revived_by_density[density]

    @cached_property
    def _revived_by_density(self) -> dict[float, tuple[tuple[int, int, float], ...]]:
        return {}

    def _find_revived(self, density: float) -> tuple[tuple[int, int, float], ...]:
        m, half = self.family.n_columns, simhash.half_width(density)
        if m is None or half == simhash.HALF:
            return ()
        dead = np.arange(self.family.n_outputs)
        for first in range(0, m, 1024):
            block = simhash.hash_features(self.seeds[dead], np.arange(first, min(first + 1024, m)))
            dead = dead[(simhash.weights_from_hashes(block, half) == 0).all(axis=0)]
            if not len(dead):
                return ()
        seeds = self.seeds[dead]
        unused = np.array([simhash.UNUSED_ID], dtype=np.uint64)
        ids = (simhash.hash_features(seeds, unused)[0] % np.uint64(m)).astype(np.uint64)
        weights = simhash.weights_from_hashes(simhash.xxhash32(seeds, *simhash.split_words(ids)), simhash.HALF)
        weights[weights == 0] = MEMBERSHIP(1.0)
        return tuple(zip(dead.tolist(), ids.tolist(), weights.tolist(), strict=True))
