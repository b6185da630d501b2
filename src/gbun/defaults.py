"""What the library chooses when the user does not: the networks that parameters and input ask for, and their seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbun.config import Parameters
from gbun.data.features import Features, Schema
from gbun.networks import Family

# docs/parameters.md has the evidence.
DENSE_DENSITY = 0.1  # the paper's: nine weights of ten are zero
DENSE_GROUP = 16
DENSE_TEMPERATURE = 2.0
SPARSE_TEMPERATURE = 1.0
GRAM_ROWS, LEAST_GRAM_ROWS = 128, 16  # for each output
EXACT_ROWS = 2**12  # up to here normal equations are float64 throughout: rounding has no rows to average over
FEW_ROWS = 2**15  # up to here nothing is gained by a sample
MOST_ROUNDS = 300
PATIENCE = 20
LEAST_GAIN = 1e-4  # of the validation score within so many rounds; less is not worth the time
LEAST_ROWS_TO_HOLD_OUT = 50  # fewer are too few to choose anything by
UNJUDGED_ROUNDS, UNJUDGED_L2 = 100, 1.0  # where no rows can judge
FEW_ROWS_TO_JUDGE_BY, FOLDS = 5000, 5  # below so many rows a tenth says little: each fold judges once


def family_for(parameters: Parameters, features: Features, schema: Schema, n_rows: int) -> Family:
    """The networks these parameters and this input, with n rows on all workers, ask for."""
    dense, K = features.dense is not None, parameters.n_neurons or neurons_for(n_rows, parameters.group_size)
    temperature = DENSE_TEMPERATURE if dense else SPARSE_TEMPERATURE
    group_size = DENSE_GROUP if dense and K % DENSE_GROUP == 0 else K
    return Family(
        seed=seed_of(parameters.random_state),
        n_outputs=K,
        density=DENSE_DENSITY if parameters.density is None else parameters.density,
        sparse_density=1.0 if parameters.density is None else parameters.density,
        temperature=temperature if parameters.temperature is None else parameters.temperature,
        group_size=group_size if parameters.group_size is None else parameters.group_size,
        n_columns=schema.n_columns if schema.kind == "array" else None,
    )


def neurons_for(n_rows: int, group_size: int | None = None) -> int:
    """K when the user does not say: few rows cannot bear many cells. A multiple of the group size.

    >>> neurons_for(150), neurons_for(1000), neurons_for(10**6)
    (16, 64, 256)
    """
    step = group_size or DENSE_GROUP
    wanted = min(max(n_rows / 16, 16), 256)
    return max(step, round(wanted / step) * step)


def gram_share(gram_rows: float | None, n_rows: int, n_outputs: int) -> float:
    """The share of rows that the Hessian sums are made of. With very few rows for each output a step may go astray.

    >>> gram_share(None, 10_000, 256), gram_share(None, 1_000_000, 64), gram_share(0.5, 10_000, 256)
    (1.0, 0.032768, 0.5)
    """
    n_rows = max(1, n_rows)
    if gram_rows is None:
        return min(1.0, max(GRAM_ROWS * n_outputs, FEW_ROWS) / n_rows)
    return min(1.0, max(gram_rows, LEAST_GRAM_ROWS * n_outputs / n_rows))


def starts_linear(init: str, parameters: Parameters, features: Features) -> bool:
    """Whether a linear model is fitted first: where sparse features are, linear effects are most of what there is.

    Who gives it a penalty wants it on dense columns too.
    """
    wanted = features.sparse is not None or parameters.linear_l2 is not None
    return init == "linear" or (init == "auto" and wanted)


def seed_of(random_state: Any) -> int:
    """The seed of the networks; 0, the paper's, for None."""
    if random_state is None:
        return 0
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if not 0 <= random_state < 2**63:
            raise ValueError(f"random_state must be from 0 to 2^63 - 1, got {random_state}")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    raise ValueError(f"random_state must be an integer, a Generator, a RandomState or None, got {random_state!r}")
