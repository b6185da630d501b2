"""Training parameters: the name, default, range and description of each, in one place.

Estimators inherit `Parameters`, `gbun.train` makes one from a dict, and the command line, Spark and the documentation
read its fields: nothing repeats a name, a default or a description.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from gbun.ranges import Anything, Choice, Columns, DeviceName, Flag, Interval, Range, Scale, Size

OBJECTIVE_NAMES = (
    *("auto", "squared_error", "huber", "quantile", "poisson", "gamma", "tweedie"),
    *("logistic", "softmax", "multi_squared_error", "multi_logistic"),
)
UNBOUNDED = math.inf

T = TypeVar("T")


def parameter(default: T, allowed: Range, sentence: str, *, group: str = "model") -> T:
    """Declare a field; dataclasses.field has the type of the default, so mypy sees a plain attribute."""
    value: T = field(default=default, metadata={"range": allowed, "sentence": sentence, "group": group})
    return value


@dataclass(eq=False, repr=False, kw_only=True)
class Parameters:
    """Parameters of training; `parameter_table()` describes each of them.

    Examples
    --------
    >>> Parameters(n_neurons=64).n_neurons
    64
    >>> check_parameters(Parameters(learning_rate=2.5))
    Traceback (most recent call last):
        ...
    ValueError: learning_rate must be a number in (0, 1], got 2.5
    """

    objective: str | Callable[..., Any] | Any = parameter(
        "auto",
        Choice(OBJECTIVE_NAMES, objects=True),
        "The loss to minimise. 'auto' is squared error for regressors, logistic or softmax for classifiers, and their "
        "multi-output forms if y has several columns. A function (y, scores, weight) -> (gradient, Hessian) is used "
        "as it is; gbun.TorchLoss(f) differentiates f(y, scores), the loss of each row, written in torch.",
    )
    n_estimators: int | None = parameter(
        None,
        Interval(0, UNBOUNDED, integral=True, optional=True),
        "Number of boosting rounds, one network or tree each; 0 keeps the start only. None: as many as help, at most "
        "300 (1000 where there are trees, 100 with more than 100 scores a row), found by early stopping on held-out "
        "rows; 100 with fewer than 50 rows or an init_model.",
    )
    learner: str = parameter(
        "auto",
        Choice(("auto", "network", "tree", "mixed")),
        "What a round is made of: 'network' a random network, 'tree' a tree of dense columns, random projections of "
        "them and columns of categories, 'mixed' three trees and one network in turn. 'auto': for dense columns and "
        "categories on the CPU 'mixed', or 'tree' if held-out rows prefer it (see n_estimators and "
        "early_stopping_rounds), and 'tree' with more than 100 scores a row; otherwise, or if a parameter of networks "
        "is given, 'network'.",
    )
    init: str = parameter(
        "auto",
        Choice(("auto", "linear", "constant")),
        "Where boosting starts: 'linear' first fits a linear model for the same objective, 'constant' takes the best "
        "constant, as in the paper. 'auto': linear if there are sparse features, unless the constant is better on the "
        "rows held out to choose linear_l2; on dense columns if linear_l2 is given, and, with trees, if it alone is "
        "better than the best round on the rows that decide the number of rounds.",
    )
    linear_l2: float | None = parameter(
        None,
        Interval(0, UNBOUNDED, optional=True),
        "L2 penalty of the linear start, in units of the mean curvature of a weight. None: the best of 16, 4, 1, 1/4, "
        "... on the set that decides early stopping, or on held-out rows.",
    )
    linear_bits: int | None = parameter(
        None,
        Interval(8, 24, integral=True, optional=True),
        "The linear start keeps the weights of sparse features in 2^linear_bits buckets, or one for each column if "
        "there are no more columns than that. None: as many as features, up to 2^22 weights.",
    )
    n_neurons: int | None = parameter(
        None,
        Interval(2, 16384, integral=True, optional=True),
        "K, the number of outputs of each network. Time grows as K for small K and as K^2 for large K. None: a "
        "sixteenth of the number of rows with a weight, from 16 to 256 (beside trees, to 64 with one score a row and "
        "to 128 with several) in steps of 16, or of group_size.",
    )
    n_leaves: int | None = parameter(
        None,
        Interval(2, 4096, integral=True, optional=True),
        "The number of leaves of a tree, at most. None: 15 with fewer than 10000 rows, otherwise 31; more with several "
        "classes, up to 127.",
    )
    min_leaf_rows: int = parameter(
        5,
        Interval(1, UNBOUNDED, integral=True),
        "The number of rows of a leaf, at least, estimated from their share of the Hessian.",
    )
    n_projections: int = parameter(
        24,
        Interval(0, 256, integral=True),
        "How many random projections of two standardised columns a tree may split on, beside the columns themselves.",
    )
    n_candidates: int = parameter(
        64,
        Interval(2, UNBOUNDED, integral=True),
        "Where there are more columns, a tree looks at so many of them: half are those from which earlier trees gained "
        "most, half come in turn. Columns of zeros and ones that are never one together count as one.",
    )
    learning_rate: float = parameter(
        0.1, Interval(0, 1, "right"), "Shrinkage: the fraction of each round's head that is added to the scores."
    )
    reg_lambda: float = parameter(
        1e-2,
        Interval(0, UNBOUNDED),
        "L2 penalty on the head. It multiplies the mean diagonal of P'HP unless reg_form is 'absolute'.",
    )
    reg_form: str = parameter(
        "relative",
        Choice(("relative", "absolute")),
        "'relative': lambda = reg_lambda x mean diagonal of P'HP, so that one value fits all data sets; 'absolute': "
        "lambda = reg_lambda, as in the paper.",
    )
    temperature: float | None = parameter(
        None,
        Interval(0, 1e6, "right", optional=True),
        "tau: normalised outputs are multiplied by it before the softmax. 1 is the value of the paper; larger values "
        "make harder splits. None: 2 for dense columns, 1 for sparse features and for at most 8 dense columns.",
    )
    temperature_doublings: int | None = parameter(
        None,
        Interval(0, 16, integral=True, optional=True),
        "The temperature of each output is drawn log-uniformly from temperature to temperature x "
        "2^temperature_doublings, so that some splits are soft and some hard. None: 0; 3, with "
        "temperature 1, for at most 8 dense columns.",
    )
    group_size: int | None = parameter(
        None,
        Interval(2, 16384, integral=True, optional=True),
        "The softmax runs within groups of this many outputs. It must divide n_neurons; n_neurons itself means one "
        "softmax over all outputs. None: 16 for dense columns if it divides n_neurons, otherwise n_neurons.",
    )
    density: float | None = parameter(
        None,
        Interval(0.001, 1, optional=True),
        "Fraction of network weights that are not zero. None: 0.1 for dense columns, 1.0 for sparse features.",
    )
    scale: str = parameter(
        "auto",
        Scale(),
        "How features are scaled inside the model: 'log' log(1 + x), 'standard' (x - mean) / deviation, 'max_abs' x / "
        "largest, 'idf' inverse document frequency, 'unit' rows of length 1; on dense columns also 'clip' at 4 "
        "deviations and 'relevance', by how much a column alone tells about y. 'auto': 'standard' for dense columns, "
        "'log+idf+unit' for counts and words, 'none' for one-hot columns and rows of length 1, 'max_abs' for other "
        "sparse numbers.",
    )
    categorical_features: Any = parameter(
        "from_dtype",
        Columns(),
        "Columns of a data frame or a dense array that hold categories though they are numbers. 'from_dtype' or None: "
        "no others than the columns of strings and of type category, which always do. Trees split them by category; to "
        "networks and the linear start each category is a feature.",
    )
    network: str = parameter(
        "auto",
        Choice(("auto", "dense", "hashed")),
        "How weights of sparse features are computed: 'dense' once for each chunk of rows, 'hashed' wherever a weight "
        "is used; both give the same model. 'auto' chooses by how often features repeat within a chunk.",
        group="computing",
    )
    gram_rows: float | None = parameter(
        None,
        Interval(0, 1, "right", optional=True),
        "The fraction of rows, a new sample in each round, that P'HP is computed from; P'G is always computed from all "
        "rows. 1: all rows. None: 32768 rows, or 128 for each of the K outputs if that is more. A fraction that leaves "
        "fewer than 16 rows for each output is raised to 16.",
        group="computing",
    )
    memory_budget: int | float | str | None = parameter(
        None,
        Size(),
        "Memory that training may use in addition to the data. If an n x K buffer does not fit, network outputs are "
        "recomputed in each pass, then with fewer threads; the model is the same. None: half of the free memory.",
        group="computing",
    )
    device: str = parameter(
        "cpu",
        DeviceName(),
        "Where rounds are computed: 'cpu' by compiled kernels; 'cuda', 'mps', 'xpu' by torch on a GPU, 'torch:cpu' by "
        "torch on the CPU. For torch, memory_budget is memory of the device and includes the features; features that "
        "do not fit are sent in batches. A model predicts on every device.",
        group="computing",
    )
    tf32: bool = parameter(
        False,
        Flag(),
        "Let a CUDA device round the factors of matrix products to TF32 (ten bits): faster and less exact.",
        group="computing",
    )
    hessian: str = parameter(
        "shared",
        Choice(("shared", "per_class")),
        "With several outputs: 'shared' uses one Hessian, and so one Gram matrix, for all of them; 'per_class' uses "
        "one for each, as in the paper.",
    )
    quantile: float = parameter(
        0.5, Interval(0, 1, "neither"), "The quantile that objective='quantile' estimates.", group="objective"
    )
    huber_delta: float | None = parameter(
        None,
        Interval(0, UNBOUNDED, "neither", optional=True),
        "The residual, in units of y, at which objective='huber' changes from squared to absolute error. None: 1.345 "
        "times the mean absolute deviation of y from its mean.",
        group="objective",
    )
    tweedie_power: float = parameter(
        1.5, Interval(1, 2, "neither"), "The variance power of objective='tweedie'.", group="objective"
    )
    eval_metric: Any = parameter(
        None,
        Anything(),
        "A metric's name, a function (y, response, weight) -> float, or a list of them, computed on every evaluation "
        "set after each round. None: the metric of the objective. The last one decides early stopping.",
        group="evaluation",
    )
    early_stopping_rounds: int | None = parameter(
        None,
        Interval(1, UNBOUNDED, integral=True, optional=True),
        "Stop when the last metric on the last evaluation set has not improved for this many rounds, and keep the best "
        "round. Without an evaluation set, rows are held out. None: no early stopping if n_estimators is a number; "
        "otherwise 20 rounds (50 where there are trees) on held-out rows, with or without evaluation sets, and gains "
        "below 1e-4 do not count.",
        group="evaluation",
    )
    validation_fraction: float = parameter(
        0.1,
        Interval(0, 1, "neither"),
        "The fraction of rows held out for early stopping and to choose linear_l2, if no evaluation set decides.",
        group="evaluation",
    )
    refit: bool = parameter(
        True,
        Flag(),
        "After early stopping on held-out rows, train again on all rows, for the best number of rounds divided by the "
        "fraction of rows that were trained on. False: keep the model of the other rows, which takes half the time, or "
        "a fifth with few rows (below 1000, or 5000 for networks only), where five folds are used otherwise.",
        group="evaluation",
    )
    n_jobs: int | None = parameter(
        None,
        Interval(-1024, 1024, integral=True, optional=True),
        "Number of threads. None or -1: all cores, -2: all but one. Every value gives the same bits.",
        group="computing",
    )
    random_state: Any = parameter(
        None,
        Anything(),
        "The seed of all networks: an integer, None (0, as in the paper), or a RandomState or Generator that draws it.",
        group="computing",
    )
    verbose: int = parameter(
        0,
        Interval(0, 10, integral=True),
        "1 shows a progress bar, 2 prints the memory plan and every round.",
        group="computing",
    )


def parameter_fields() -> tuple[Field[Any], ...]:
    """Return the fields of `Parameters`; their metadata has "range", "sentence" and "group"."""
    return fields(Parameters)


def parameter_values(parameters: Parameters) -> dict[str, Any]:
    """Return the parameters as a dict, without what a subclass adds to them."""
    return {f.name: getattr(parameters, f.name) for f in parameter_fields()}


def check_parameters(parameters: Parameters) -> None:
    """Raise a ValueError that names the first parameter out of its range."""
    objective = parameters.objective
    if isinstance(objective, str) and objective.startswith("<"):  # as `printable_parameters` writes a function
        raise ValueError(
            f"objective {objective} is a function, which the file of this model does not hold; pass it again, "
            "set_params(objective=...), to train"
        )
    for f in parameter_fields():
        value, admitted = getattr(parameters, f.name), f.metadata["range"]
        if not admitted.admits(value):
            hint = admitted.hint(value) if isinstance(admitted, DeviceName) else ""
            raise ValueError(f"{f.name} must be {admitted}, got {value!r}{hint}")
    group_size, K = parameters.group_size, parameters.n_neurons
    if group_size is not None and K is not None and K % group_size:
        raise ValueError(
            f"group_size must divide n_neurons ({K}), got {group_size}; "
            f"use n_neurons={math.ceil(K / group_size) * group_size}"
        )
    if parameters.n_jobs == 0:
        raise ValueError(
            "n_jobs must be a positive number of threads, None, -1 (all cores), -2 (all but one) ..., got 0"
        )


def make_parameters(given: Mapping[str, Any] | Parameters | None) -> Parameters:
    """Make checked `Parameters` of a dict, or of `Parameters` such as an estimator.

    >>> make_parameters({"learning_rat": 0.1})
    Traceback (most recent call last):
        ...
    ValueError: unknown parameter 'learning_rat'; did you mean 'learning_rate'?
    """
    if not (given is None or isinstance(given, (Mapping, Parameters))):
        raise ValueError(f"params must be a dict of parameters or gbun.Parameters, got {type(given).__name__}")
    values = parameter_values(given) if isinstance(given, Parameters) else given or {}
    known = [f.name for f in parameter_fields()]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(known)
            raise ValueError(f"unknown parameter {name!r}; {hint}")
    parameters = Parameters(**values)
    check_parameters(parameters)
    return parameters


def parameter_table() -> str:
    """Return the Markdown table of all parameters that docs/parameters.md shows."""
    rows = ["| parameter | default | range | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{f.name}` | `{f.default!r}` | {f.metadata['range']} | {f.metadata['sentence']} |"
        for f in parameter_fields()
    ]
    return "\n".join(rows)


def printable_parameters(parameters: Parameters) -> dict[str, Any]:
    """Return the parameters as a file can hold them; of functions and generators, their name in <>."""
    return {name: to_printable(value) for name, value in parameter_values(parameters).items()}


def to_printable(value: Any) -> Any:
    """Return a parameter's value as a file can hold it; of a function or a generator, its name in <>."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [to_printable(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    plain = value is None or isinstance(value, (str, int, float, bool))
    return value if plain else f"<{getattr(value, '__name__', type(value).__name__)}>"
