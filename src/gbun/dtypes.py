"""The dtypes that the library computes in, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Inputs, network outputs and memberships: there are n x K of them, so they are as narrow as accuracy allows.
# A network output is a sum of randomly signed terms; 24 bits are far finer than a softmax can resolve.
MEMBERSHIP = np.float32

# Sums over rows (moments, normal equations, losses), scores and derivatives: the order of rows and their
# division among threads or workers changes a float64 sum by a relative error of about 1e-16 only.
SUM = np.float64

# Heads are stored as they are applied; float32 keeps a model file small and the product P W at full speed.
HEAD = np.float32

# Feature ids: any 64-bit number, so that the hash of a name is an id.
FEATURE_ID = np.uint64

# NumPy's stubs cannot follow a dtype through arithmetic; tests check the dtypes above.
FloatArray: TypeAlias = NDArray[Any]
IntArray: TypeAlias = NDArray[Any]

Reduce: TypeAlias = Callable[[FloatArray], FloatArray]
"""Sum an array over all workers; every worker calls it and gets the same bits."""
