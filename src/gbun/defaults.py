"""Default values that depend on the data: the networks, the sample of rows for the Hessian, the kind of start."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbun.config import UNBOUNDED, Parameters
from gbun.data.features import Features, Schema
from gbun.networks import Family
from gbun.trees.categories import MAX_CATEGORIES

# docs/parameters.md has the evidence for these values.
DENSE_DENSITY = 0.1  # as in the paper: nine of ten weights are zero
DENSE_GROUP = 16
DENSE_TEMPERATURE = 2.0
SPARSE_TEMPERATURE = 1.0
GRAM_ROWS_PER_OUTPUT, MIN_GRAM_ROWS_PER_OUTPUT = 128, 16
MIN_GRAM_ROWS = 2**15  # a sample saves no time below this
MAX_ROUNDS = 300
PATIENCE = 20
MAX_TREE_ROUNDS, TREE_PATIENCE = 1000, 50  # a tree changes less than a network, and costs less
FIRST_PATIENCE = 10  # and a fifth of the rounds so far, until that is the whole patience
MIN_GAIN = 1e-4  # of the validation score within the patience; less is not worth the time
MIN_GAIN_OF_START = 1e-6  # of the score of the start: what is learnt perfectly needs no further rounds
MIN_ROWS_TO_HOLD_OUT = 50  # with fewer rows nothing is chosen by held-out rows
DEFAULT_ROUNDS, DEFAULT_L2 = 100, 1.0  # without held-out rows
MIN_ROWS_FOR_ONE_SPLIT, FOLDS = 5000, 5  # with fewer rows a tenth is too noisy: each fold is held out once
MIN_ROWS_FOR_ONE_SPLIT_OF_TREES = 1000
MIN_ROWS_FOR_LOSS_ALONE = 5000  # of a class; with fewer, accuracy is watched too

# Of more scores, a network costs several times what a tree does, and rounds are dear: trees alone, and fewer of them.
MAX_MIXED_SCORES, MAX_ROUNDS_OF_MANY_SCORES = 100, 100
MAX_NEURONS, MAX_MIXED_NEURONS, MAX_MIXED_NEURONS_OF_ONE_SCORE = 256, 128, 64  # beside trees, fewer outputs do
RACE_ROUNDS, LEAD = 10, 0.05  # networks stay beside trees that are ahead by this share of the loss after ten rounds
# Cells of one size cannot follow a curve along a column.
FEW_COLUMNS, TEMPERATURE_OF_FEW_COLUMNS, DOUBLINGS_OF_FEW_COLUMNS = 8, 1.0, 3
NETWORK_PARAMETERS = ("n_neurons", "temperature", "temperature_doublings", "group_size", "density")


def make_family(
    parameters: Parameters, features: Features, schema: Schema, n_rows: int, most: int = MAX_NEURONS
) -> Family:
    """Return the family of networks for these parameters and features, with `n_rows` rows on all workers.

    Without `n_neurons`, K is at most `most`.
    """
    dense, K = features.dense is not None, parameters.n_neurons or choose_n_neurons(n_rows, parameters.group_size, most)
    temperature, doublings = (DENSE_TEMPERATURE if dense else SPARSE_TEMPERATURE), 0
    given = parameters.temperature, parameters.temperature_doublings
    if given == (None, None) and features.sparse is None and (schema.n_columns or UNBOUNDED) <= FEW_COLUMNS:
        temperature, doublings = TEMPERATURE_OF_FEW_COLUMNS, DOUBLINGS_OF_FEW_COLUMNS
    group_size = DENSE_GROUP if dense and K % DENSE_GROUP == 0 else K
    return Family(
        seed=resolve_seed(parameters.random_state),
        n_outputs=K,
        density=DENSE_DENSITY if parameters.density is None else parameters.density,
        sparse_density=1.0 if parameters.density is None else parameters.density,
        temperature=temperature if parameters.temperature is None else parameters.temperature,
        temperature_doublings=doublings
        if parameters.temperature_doublings is None
        else parameters.temperature_doublings,
        group_size=group_size if parameters.group_size is None else parameters.group_size,
        n_columns=schema.n_columns if schema.kind == "array" else None,
    )


def choose_kinds(parameters: Parameters, features: Features, schema: Schema, n_scores: int) -> list[str]:
    """Return the kinds of learners that parameters allow, those first that suit these features best.

    Trees split dense columns and those of categories; networks see all features. A parameter that only networks have
    asks for networks.
    """
    if parameters.learner != "auto":
        return [parameters.learner]
    networks_only = any(getattr(parameters, name) is not None for name in NETWORK_PARAMETERS)
    n_categories = len(schema.categorical)
    if (features.dense is None and not n_categories) or n_categories > MAX_CATEGORIES:
        return ["network"]
    if parameters.device != "cpu" or networks_only:
        return ["network"]
    if n_scores <= MAX_MIXED_SCORES:
        return ["mixed", "tree"]
    solves = parameters.gram_rows is not None or parameters.hessian != "shared"
    return ["network"] if solves or features.sparse is not None else ["tree"]


def most_rounds(has_trees: bool, n_scores: int) -> int:
    """Return how many rounds a training has at most where nobody says how many."""
    if not has_trees:
        return MAX_ROUNDS
    return MAX_TREE_ROUNDS if n_scores <= MAX_MIXED_SCORES else MAX_ROUNDS_OF_MANY_SCORES


def choose_n_leaves(n_rows: int, n_scores: int) -> int:
    """Choose the number of leaves of a tree: more where there are many rows, and where leaves serve several classes.

    >>> choose_n_leaves(2000, 1), choose_n_leaves(50_000, 1), choose_n_leaves(50_000, 7)
    (15, 31, 125)
    """
    one_score = 15 if n_rows < 10_000 else 31
    return min(max(one_score, round(n_rows / 400)), one_score * min(4, n_scores) + 3) if n_scores > 1 else one_score


def choose_n_neurons(n_rows: int, group_size: int | None = None, most: int = MAX_NEURONS) -> int:
    """Choose K, a multiple of the group size: few rows allow few outputs.

    >>> choose_n_neurons(150), choose_n_neurons(1000), choose_n_neurons(10**6)
    (16, 64, 256)
    """
    step = group_size or DENSE_GROUP
    wanted = min(max(n_rows / 16, 16), most)
    return max(step, round(wanted / step) * step)


def gram_share(gram_rows: float | None, n_rows: int, n_outputs: int) -> float:
    """Return the share of rows of the Hessian sums: at least 16 rows for each output, so that the step is a descent.

    >>> gram_share(None, 10_000, 256), gram_share(None, 1_000_000, 64), gram_share(0.5, 10_000, 256)
    (1.0, 0.032768, 0.5)
    """
    n_rows = max(1, n_rows)
    if gram_rows is None:
        return min(1.0, max(GRAM_ROWS_PER_OUTPUT * n_outputs, MIN_GRAM_ROWS) / n_rows)
    return min(1.0, max(gram_rows, MIN_GRAM_ROWS_PER_OUTPUT * n_outputs / n_rows))


def has_linear_start(init: str, parameters: Parameters, features: Features) -> bool:
    """Return whether a linear model is fitted first: by default for sparse features, or if it has a penalty."""
    by_default = features.sparse is not None or parameters.linear_l2 is not None
    return init in ("linear", "linear or constant") or (init == "auto" and by_default)


def resolve_seed(random_state: Any) -> int:
    """Return the seed of the networks: 0 for None, as in the paper; a generator draws one."""
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
