"""Sequences of weights whose uniformity is tested: along features, rounds and outputs, and of some kinds of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.networks import simhash

Floats = NDArray[np.float32]
SEED, ROUND = 0, 7
FEATURE = np.array([12345])  # the one whose weights are looked at along rounds and outputs
MOST = 10**7  # floats of a pattern
DENSITY = 0.1  # what the paper leaves of the weights of dense columns
PRIME = 2**31 - 1
LIKE_PAPER, OURS_LIKE_PAPER = "the paper's floats, ids 1 to 10,000", "our weights, ids 1 to 10,000"
FEATURES = "consecutive features"


def of_ids(ids: Callable[[int], Any], density: float, n: int) -> Floats:
    """Weights of one output in one round; those that a density leaves away are left away here too."""
    weights = simhash.weights(SEED, ROUND, ids(n), 1, density)[:, 0]
    return weights if density == 1.0 else weights[weights != 0]


def over_rounds(n: int) -> Floats:
    """The weight of one feature and one output in consecutive rounds."""
    rounds = np.arange(n, dtype=np.uint32)[:, None]  # NumPy makes the seeds of all of them at once
    return _weights(simhash.output_seeds(SEED, rounds, 1)[:, 0])  # type: ignore[arg-type]


def over_outputs(n: int) -> Floats:
    """The weights of one feature in one round."""
    return _weights(simhash.output_seeds(SEED, ROUND, n))


def over_networks(n: int) -> Floats:
    """All weights of networks of 1000 features and 64 outputs, round after round."""
    rounds = range(-(-n // (1000 * 64)))
    return np.concatenate([simhash.weights(SEED, t, np.arange(1000), 64).ravel() for t in rounds])[:n]


def _weights(seeds: simhash.Words) -> Floats:
    return simhash.weights_of(simhash.hashes(seeds, FEATURE)[0], simhash.HALF)


def papers(n: int) -> Floats:
    """The paper's way from a hash to a float, by two masks; from [1, 2) to [-1, 1)."""
    h = simhash.hashes(np.zeros(1, dtype=np.uint32), np.arange(1, n + 1))[:, 0]
    return ((h & np.uint32(0x3FFFFFFF)) | np.uint32(0x3F800000)).view(np.float32) * np.float32(2) - np.float32(3)


def counted(n: int, step: int = 1, first: int = 0) -> Any:
    return np.uint64(first) + np.arange(n, dtype=np.uint64) * np.uint64(step)


def names(n: int) -> Any:
    """Hashed names, a tenth as many: Python hashes them one by one."""
    return np.array([simhash.hash_name(f"city={i}") for i in range(n // 10)], dtype=np.uint64)


PATTERNS: Mapping[str, Callable[[int], Floats]] = {
    FEATURES: partial(of_ids, counted, 1.0),
    "consecutive rounds": over_rounds,
    "consecutive outputs": over_outputs,
    "whole networks, one after the other": over_networks,
    **{f"ids that are multiples of 2^{k}": partial(of_ids, partial(counted, step=2**k), 1.0) for k in (8, 16, 24, 32)},
    "multiples of 2^32, plus one": partial(of_ids, partial(counted, step=2**32, first=1), 1.0),
    "spread ids, multiples of a prime": partial(of_ids, partial(counted, step=PRIME), 1.0),
    "the largest ids": partial(of_ids, partial(counted, first=2**64 - 1 - MOST), 1.0),
    "hashed names": partial(of_ids, names, 1.0),
    f"what density {DENSITY} leaves": partial(of_ids, counted, DENSITY),
}
SMALL: Mapping[str, Callable[[int], Floats]] = {
    LIKE_PAPER: papers,
    OURS_LIKE_PAPER: partial(of_ids, partial(counted, first=1), 1.0),
}
