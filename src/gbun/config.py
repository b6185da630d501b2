"""Every training parameter once: its name, default, range and sentence.

Estimators inherit `Parameters`, the native `train` builds one from a dict, the command line reads `parameter_table`:
none of them repeats a name, a default or a sentence.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from gbun.ranges import Anything, Choice, DeviceName, Flag, Interval, Range, Scale, Size

OBJECTIVE_NAMES = (
    "auto",
    "squared_error",
    "huber",
    "quantile",
    "poisson",
    "gamma",
    "tweedie",
    "logistic",
    "softmax",
    "multi_squared_error",
    "multi_logistic",
)

T = TypeVar("T")


def parameter(default: T, admitted: Range, sentence: str, *, group: str = "model") -> T:
    # dataclasses.field is typed as returning the field's own type, so mypy sees plain attributes.
    value: T = field(default=default, metadata={"range": admitted, "sentence": sentence, "group": group})
    return value


UNBOUNDED = math.inf


@dataclass(eq=False, repr=False, kw_only=True)
class Parameters:
    """What a user may say about training; see each field's sentence in `parameter_table()`.

    >>> Parameters(n_neurons=64).n_neurons
    64
    >>> check(Parameters(learning_rate=2.5))
    Traceback (most recent call last):
        ...
    ValueError: learning_rate must be a number in (0, 1], got 2.5
    """

    objective: str | Callable[..., Any] | Any = parameter(
        "auto",
        Choice(OBJECTIVE_NAMES, objects=True),
        "What is minimised. 'auto' is squared error for regressors, logistic or softmax for classifiers and their "
        "multi-output forms when y has several columns. A function (y, scores, weight) -> (gradient, Hessian) is "
        "used as it is; gbun.TorchLoss(f) differentiates f(y, scores), the loss of each row, written in torch.",
    )
    n_estimators: int | None = parameter(
        None,
        Interval(0, UNBOUNDED, integral=True, optional=True),
        "Number of boosting rounds, one network each; 0 leaves the start alone. None: as many as help, at most 300, "
        "found with early stopping on rows held out for it; 100 where there are fewer than 50 rows or an init_model.",
    )
    init: str = parameter(
        "auto",
        Choice(("auto", "linear", "constant")),
        "Where boosting starts: 'linear' fits a linear model for the same objective first, 'constant' takes the best "
        "constant, the paper's. 'auto': linear where there are sparse features, unless rows held out to choose "
        "linear_l2 prefer the constant; also on dense columns if linear_l2 is given.",
    )
    linear_l2: float | None = parameter(
        None,
        Interval(0, UNBOUNDED, optional=True),
        "L2 penalty of the linear start, in units of the mean curvature of a weight. None: the best of 16, 4, 1, 1/4, "
        "... on the set that decides early stopping, or on rows held out for it.",
    )
    linear_bits: int | None = parameter(
        None,
        Interval(8, 24, integral=True, optional=True),
        "The linear start keeps weights of sparse features in 2^linear_bits buckets, or one for each column where "
        "columns are no more than that. None: as many as features, up to 2^22 weights.",
    )
    n_neurons: int | None = parameter(
        None,
        Interval(2, 16384, integral=True, optional=True),
        "K, the number of outputs of each network. Time grows as K for small K and as K^2 for large. None: a sixteenth "
        "of the number of rows (that have a weight), from 16 to 256 in steps of 16, or of group_size.",
    )
    learning_rate: float = parameter(
        0.1, Interval(0, 1, "right"), "Shrinkage: the share of each round's head that is added to the scores."
    )
    reg_lambda: float = parameter(
        1e-2,
        Interval(0, UNBOUNDED),
        "L2 penalty on the head. Multiplies the mean diagonal of P'HP unless reg_form is 'absolute'.",
    )
    reg_form: str = parameter(
        "relative",
        Choice(("relative", "absolute")),
        "'relative': lambda = reg_lambda x mean diagonal of P'HP, one value for all data sets; 'absolute': lambda = "
        "reg_lambda, the paper's.",
    )
    temperature: float | None = parameter(
        None,
        Interval(0, 1e6, "right", optional=True),
        "tau: normalised outputs are multiplied by it before the softmax; 1 is the paper's, larger splits are "
        "harder. None: 2 for dense columns, 1 for sparse ones.",
    )
    group_size: int | None = parameter(
        None,
        Interval(2, 16384, integral=True, optional=True),
        "The softmax runs within groups of this many outputs; must divide n_neurons, which itself means one softmax "
        "over all. None: 16 for dense columns where it divides n_neurons, otherwise all.",
    )
    density: float | None = parameter(
        None,
        Interval(0.001, 1, optional=True),
        "Share of network weights that are not zero. None: 0.1 for dense columns, 1.0 for sparse ones.",
    )
    scale: str = parameter(
        "auto",
        Scale(),
        "How features are scaled inside the model: 'log' log(1 + x), 'standard' (x - mean) / deviation, 'max_abs' x / "
        "largest, 'idf' inverse document frequency, 'unit' rows of length 1. 'auto': dense columns 'standard', counts "
        "and words 'log+idf+unit', one-hot columns and rows of length 1 'none', other sparse numbers 'max_abs'.",
    )
    network: str = parameter(
        "auto",
        Choice(("auto", "dense", "hashed")),
        "How weights of sparse features come about: 'dense' makes them once for each chunk of rows, 'hashed' each "
        "where it is used; both give the same model. 'auto' decides from how often a chunk's features repeat.",
        group="computing",
    )
    gram_rows: float | None = parameter(
        None,
        Interval(0, 1, "right", optional=True),
        "The share of rows, another sample each round, whose products make P'HP; P'G is always made of all rows. 1: "
        "all. None: as many as make 32768 rows, and 128 for each of the K outputs. A share that leaves fewer than 16 "
        "for each output is raised to that.",
        group="computing",
    )
    memory_budget: int | float | str | None = parameter(
        None,
        Size(),
        "Memory that training may use beside the data. Where an n x K buffer does not fit, network outputs are made "
        "again in each pass, then by fewer threads; the model is the same. None: half of what is free.",
        group="computing",
    )
    device: str = parameter(
        "cpu",
        DeviceName(),
        "Where rounds are computed: 'cpu' by compiled kernels; 'cuda', 'mps', 'xpu' by torch on a GPU, 'torch:cpu' by "
        "torch on the processor. For these, memory_budget is the device's memory, features included; features that do "
        "not fit are sent in batches. A model predicts on every device.",
        group="computing",
    )
    tf32: bool = parameter(
        False,
        Flag(),
        "Let a CUDA device round the factors of matrix products to TF32, ten bits: faster, and less exact.",
        group="computing",
    )
    hessian: str = parameter(
        "shared",
        Choice(("shared", "per_class")),
        "With several outputs: 'shared' uses one Hessian, so one Gram matrix, for all of them; 'per_class' is the "
        "paper's, one each.",
    )
    quantile: float = parameter(
        0.5, Interval(0, 1, "neither"), "The quantile that objective='quantile' estimates.", group="objective"
    )
    huber_delta: float | None = parameter(
        None,
        Interval(0, UNBOUNDED, "neither", optional=True),
        "Where objective='huber' turns from squared to absolute error, in units of y. None: 1.345 times the mean "
        "absolute deviation of y from its mean.",
        group="objective",
    )
    tweedie_power: float = parameter(
        1.5, Interval(1, 2, "neither"), "The variance power of objective='tweedie'.", group="objective"
    )
    eval_metric: Any = parameter(
        None,
        Anything(),
        "A metric's name, a function (y, response, weight) -> float, or a list of them, computed on every evaluation "
        "set after each round. None: the objective's own. The last one decides early stopping.",
        group="evaluation",
    )
    early_stopping_rounds: int | None = parameter(
        None,
        Interval(1, UNBOUNDED, integral=True, optional=True),
        "Stop when the last metric on the last evaluation set has not improved for this many rounds, and keep the "
        "best round. Without an evaluation set, rows are held out. None: never where n_estimators is a number; "
        "otherwise 20 on rows held out, evaluation sets or not, and gains below a ten-thousandth do not count.",
        group="evaluation",
    )
    validation_fraction: float = parameter(
        0.1,
        Interval(0, 1, "neither"),
        "The share of rows held out for early stopping and to choose linear_l2, where no evaluation set decides.",
        group="evaluation",
    )
    refit: bool = parameter(
        True,
        Flag(),
        "After early stopping on rows held out, train again on all rows, for the number of rounds that was best "
        "divided by the share of rows that found it. False: keep the model that has not seen them, in half the time or "
        "(below 5000 rows, where five folds judge otherwise) a fifth.",
        group="evaluation",
    )
    n_jobs: int | None = parameter(
        None,
        Interval(-1024, 1024, integral=True, optional=True),
        "Number of threads. None or -1: all cores, -2: all but one. The result has the same bits for every value.",
        group="computing",
    )
    random_state: Any = parameter(
        None,
        Anything(),
        "The seed of all networks: an integer, None (0, the paper's), or a RandomState or Generator to draw it from.",
        group="computing",
    )
    verbose: int = parameter(
        0,
        Interval(0, 10, integral=True),
        "1 shows a progress bar, 2 prints the plan and every round.",
        group="computing",
    )


def parameter_fields() -> tuple[Field[Any], ...]:
    return fields(Parameters)


def check(parameters: Parameters) -> None:
    """Raise a ValueError that names the first parameter out of its range."""
    for f in parameter_fields():
        value = getattr(parameters, f.name)
        if not f.metadata["range"].admits(value):
            hint = f.metadata["range"].hint(value) if isinstance(f.metadata["range"], DeviceName) else ""
            raise ValueError(f"{f.name} must be {f.metadata['range']}, got {value!r}{hint}")
    group_size, K = parameters.group_size, parameters.n_neurons
    if group_size is not None and K is not None and K % group_size:
        raise ValueError(
            f"group_size must divide n_neurons ({K}), got {group_size}; "
            f"use n_neurons={math.ceil(K / group_size) * group_size}"
        )
    if parameters.n_jobs == 0:
        raise ValueError("n_jobs must be a positive number of threads, -1 or None, got 0")


def parameters_from(given: Mapping[str, Any] | Parameters | None) -> Parameters:
    """`Parameters` from a dict; an unknown name is an error that suggests the nearest known one.

    >>> parameters_from({"learning_rat": 0.1})
    Traceback (most recent call last):
        ...
    ValueError: unknown parameter 'learning_rat'; did you mean 'learning_rate'?
    """
    if isinstance(given, Parameters):
        check(given)
        return given
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"params must be a dict of parameters or gbun.Parameters, got {type(given).__name__}")
    known = [f.name for f in parameter_fields()]
    for name in given or {}:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(known)
            raise ValueError(f"unknown parameter {name!r}; {hint}")
    parameters = Parameters(**(given or {}))
    check(parameters)
    return parameters


def parameter_table() -> str:
    """A Markdown table of all parameters, the one the documentation shows."""
    rows = ["| parameter | default | range | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{f.name}` | `{f.default!r}` | {f.metadata['range']} | {f.metadata['sentence']} |"
        for f in parameter_fields()
    ]
    return "\n".join(rows)
