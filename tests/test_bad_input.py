"""Bad input: each case has an action, the error it must raise, and words that the message must contain.

A message names the argument, what was given, and what is expected or what to do.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

import gbun
from gbun import GBUNClassifier, GBUNRegressor
from gbun.callbacks import Checkpoint, EarlyStopping, History, LearningRateSchedule, TimeBudget
from gbun.config import parameter_fields
from gbun.ranges import Choice, Columns, DeviceName, Flag, Interval, Scale, Size

N = 20
SMALL = {"n_estimators": 2, "n_neurons": 4}
X = np.random.default_rng(0).normal(size=(N, 3))
Y, C = X[:, 0], np.arange(N) % 2
FRAME = pd.DataFrame(X, columns=["age", "size", "cost"])
MIXED = pd.DataFrame({"city": ["Rome", "Oslo"] * 10, "age": Y})
DICTS = [{"age": float(v)} for v in Y]
TOKENS = [["a", "b"], ["c"]] * 10


def train(X=X, y=Y, weight=None, margin=None, *, rounds=None, **more):
    """Train with the native API; `more` holds parameters and arguments of `gbun.train`."""
    names = {f.name for f in parameter_fields()}
    params = {**SMALL, **{k: v for k, v in more.items() if k in names}}
    return gbun.train(params, (X, y, weight, margin), rounds, **{k: v for k, v in more.items() if k not in names})


def regress(X=X, y=Y, *, fit=(), **parameters):
    return GBUNRegressor(**{**SMALL, **parameters}).fit(X, y, **dict(fit))


def classify(X=X, y=C, *, fit=(), **parameters):
    return GBUNClassifier(**{**SMALL, **parameters}).fit(X, y, **dict(fit))


def table(*cases):
    return pytest.mark.parametrize(("action", "error", "words"), cases)


def case(name, action, *words, error=ValueError):
    return pytest.param(action, error, words, id=name)


def refused(action, error, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error) as caught:
            action()
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def with_value(value, row=7, column=2):
    changed = X.copy()
    changed[row, column] = value
    return changed


def damaged(part, value):
    """A sparse matrix whose arrays were changed later, which scipy does not check."""
    matrix = scipy.sparse.csr_array(X)
    getattr(matrix, part)[7] = value
    return matrix


DATES = np.arange(3 * N).reshape(N, 3).astype("datetime64[D]")
WIDE = scipy.sparse.csr_array((np.ones(N), (range(N), 2**31 + np.arange(N) % 2)), shape=(N, 2**32))
FORMS = ("X must be", "2-d array", "list of dicts")
# Before SciPy 1.13, a sparse array of one dimension is one row
ONE_SPARSE_ROW = ("2 dimensions", "(20,)") if scipy.sparse.coo_array(np.ones(20)).ndim == 1 else ("1 rows",)


@table(
    case("1-d", lambda: train(Y), *FORMS, "(20,)", "reshape(-1, 1)"),
    case("1-d, estimator", lambda: regress(Y), "Expected 2D array, got 1D array", "reshape(-1, 1)"),
    case("3-d", lambda: train(X[:, :, None]), *FORMS, "(20, 3, 1)"),
    case("3-d, estimator", lambda: regress(X[:, :, None]), "dim 3", "<= 2"),
    case("1-d sparse", lambda: train(scipy.sparse.coo_array(Y)), "X", *ONE_SPARSE_ROW),
    case("a Series", lambda: train(FRAME["age"]), *FORMS, "(20,)"),
    case("nothing", lambda: train(None), *FORMS),
    case("no rows", lambda: train(X[:0], Y[:0]), "X has no rows"),
    case("no rows, estimator", lambda: regress(X[:0], Y[:0]), "0 sample(s)", "minimum of 1"),
    case("no rows, list", lambda: train([], []), *FORMS, "(0,)"),
    case("no columns", lambda: train(X[:, :0]), "X", "no columns"),
    case("no columns, sparse", lambda: train(scipy.sparse.csr_array((N, 0))), "X", "no columns"),
    case("no columns, estimator", lambda: regress(X[:, :0]), "0 feature(s)", "minimum of 1"),
    case("no columns, frame", lambda: regress(FRAME[[]]), "X", "columns"),
    case("no rows to predict", lambda: regress(DICTS).predict([]), "X has no rows"),
    case("rows of different lengths", lambda: train([[1, 2], [3]], [1, 2]), "X"),
    case("complex", lambda: train(X + 1j), "X", "complex128"),
    case("complex, estimator", lambda: regress(X + 1j), "Complex data not supported"),
    case("indices beyond columns", lambda: train(damaged("indices", 40)), "X is a damaged sparse matrix"),
    case("indices below zero", lambda: train(damaged("indices", -1)), "X is a damaged sparse matrix"),
    case("indptr not sorted", lambda: train(damaged("indptr", 50)), "X is a damaged sparse matrix"),
    case("indptr, predict", lambda: regress().predict(damaged("indptr", 50)), "X is a damaged sparse matrix"),
    case("complex, sparse", lambda: train(scipy.sparse.csr_array(X + 1j)), "X must hold real numbers", "complex128"),
    case("dates", lambda: train(DATES), "X", "datetime64"),
    case("dates, estimator", lambda: regress(DATES), "X", "datetime64"),
    case("dates, pandas", lambda: regress(FRAME.assign(day=DATES[:, 0])), "X['day']", "datetime64", "days since"),
    case("dates, polars", lambda: train(pl.DataFrame({"day": DATES[:, 0]})), "X['day']", "Date", "days since"),
    case("objects", lambda: train(np.array([[object()]] * N)), *FORMS, "object", error=TypeError),
    case("strings", lambda: regress(np.array([["a"]] * N)), *FORMS, "<U1"),
    case("texts", lambda: train(["a b"] * N), *FORMS, "list of token lists"),
    case("a dict of columns", lambda: train({"age": Y}), *FORMS, "dict", error=TypeError),
    case("lists in pandas", lambda: regress(pd.DataFrame({"a": [[1]] * N})), "X['a']"),
    case("lists in polars", lambda: regress(pl.DataFrame({"a": [[1]] * N})), "X['a']", "List", "must hold numbers"),
    case("columns of one name", lambda: regress(FRAME.set_axis(["a", "a", "b"], axis=1)), "X", "'a'", "must differ"),
    case("dicts, then a list", lambda: regress([*DICTS[1:], [1]]), "X[19]", "must be a dict", "got list"),
    case("tokens, then a dict", lambda: regress([*TOKENS[1:], {}]), "X[19]", "list of strings", "got dict"),
    case("tokens, then numbers", lambda: train([*TOKENS[1:], [1]]), "X[19]", "list of strings"),
    case("numbers, then a dict", lambda: train([[1.0]] * 19 + [{"a": 1}]), "X"),
    case("a list in a dict", lambda: train([*DICTS[1:], {"age": [1]}]), "X[19]['age']", "number, a string", "list"),
    case("infinite", lambda: train(with_value(np.inf)), "X", "infinite", "row 7, column 2", "NaN means missing"),
    case("infinite, estimator", lambda: regress(with_value(-np.inf)), "X", "row 7, column 2"),
    case("infinite, predict", lambda: regress().predict(with_value(np.inf)), "X", "row 7, column 2"),
    case("infinite, model", lambda: train().predict(with_value(np.inf)), "X", "row 7, column 2"),
    case("infinite, eval_set", lambda: regress(fit={"eval_set": (with_value(np.inf), Y)}), "X of 'eval_0'", "row 7"),
    case("infinite, sparse", lambda: train(scipy.sparse.csr_array(with_value(np.inf))), "X", "infinite", "row 7"),
    case("infinite, dicts", lambda: train([*DICTS[1:], {"age": np.inf}]), "X[19]", "'age'"),
    case("infinite, frame", lambda: train(MIXED.assign(age=with_value(np.inf)[:, 2])), "row 7", "'age'"),
    case("below 1e-150", lambda: train(X * [1.0, 1e-170, 1.0]), "X", "column 1", "1e-150", "rescale"),
    case("below 1e-150, log", lambda: train(X * 1e-170, scale="log+standard"), "X", "column 0", "1e-150", "rescale"),
    case("below float32", lambda: train(X * [1.0, 1.0, 1e-60], scale="max_abs"), "X", "column 2", "1e-38", "rescale"),
    case("beyond 1e150", lambda: train(with_value(1e200)), "X", "beyond 1e150", "column 2", "NaN"),
    case("budget", lambda: train(memory_budget=1000), "memory_budget must be at least", "20 rows", "got 1000 bytes"),
    case("beyond float32, sparse", lambda: train(scipy.sparse.csr_array(X * 1e40)), "X", "beyond float32"),
)  # fmt: skip
def test_features(action, error, words):
    refused(action, error, words)


TWO = np.column_stack([C, C])
MIX = np.array(["a", 1] * 10, dtype=object)
HOLE = np.array(["a", np.nan] * 10, dtype=object)


@table(
    case("none", lambda: train(y=None), "y is missing"),
    case("none, estimator", lambda: regress(y=None), "requires y", "y is None"),
    case("too short", lambda: train(y=Y[:4]), "X has 20 rows, y has 4", "one target for each row"),
    case("too short, estimator", lambda: regress(y=Y[:4]), "inconsistent numbers of samples", "[20, 4]"),
    case("too short, dicts", lambda: regress(DICTS, Y[:4]), "X has 20 rows, y has 4"),
    case("3-d", lambda: train(y=Y.reshape(N, 1, 1)), "y must be one column", "(20, 1, 1)"),
    case("a number", lambda: train(y=3.0), "y must be one column", "()"),
    case("strings for a regressor", lambda: regress(y=["a", "b"] * 10), "y must hold numbers", "<U1", "classifier"),
    case("NaN for a regressor", lambda: regress(y=np.r_[np.nan, Y[1:]]), "y has NaN", "drop or fill"),
    case("infinite", lambda: train(y=np.r_[np.inf, Y[1:]]), "y has NaN or infinite", "drop or fill"),
    case("NaN for a classifier", lambda: classify(y=np.r_[np.nan, C[1:]]), "y has NaN", "drop or fill"),
    case("infinite for a classifier", lambda: classify(y=np.r_[np.inf, C[1:]]), "y has NaN or infinite", "drop or"),
    case("complex", lambda: train(y=Y + 1j), "y must", "complex128"),
    case("dates", lambda: train(y=DATES[:, 0]), "y must", "datetime64"),
    case("one class", lambda: classify(y=np.ones(N)), "y must have at least 2 classes", "only one class: [1.0]"),
    case("mixed labels", lambda: classify(y=MIX), "y must hold labels of one kind", "int", "str"),
    case("missing label", lambda: classify(y=HOLE), "y must hold labels of one kind"),
    case("mixed labels, native", lambda: train(y=MIX), "y must hold labels of one kind", "int", "str"),
    case("numbers for a classifier", lambda: classify(y=Y), "Unknown label type: continuous"),
    case("numbers for a classifier, native", lambda: train(X.repeat(6, 0), np.arange(120.0), objective="softmax"),
         "120 different values", "use a regressor"),
    case("labels beyond 0 and 1", lambda: classify(y=TWO * 3), "y with several columns", "0 and 1"),
    case("strings in columns", lambda: classify(y=np.array([["a", "b"]] * N)), "y with several columns", "0 and 1"),
    case("Poisson, negative", lambda: regress(y=Y, objective="poisson"), "'poisson'", "y has -", "squared_error"),
    case("Tweedie, negative", lambda: regress(y=Y, objective="tweedie"), "'tweedie'", "negative", "y has -"),
    case("gamma, zero", lambda: regress(y=np.abs(Y) * C, objective="gamma"), "'gamma'", "positive", "y has 0"),
    case("logistic, 3 classes", lambda: classify(y=np.arange(N) % 3, objective="logistic"), "2 classes", "y has 3"),
    case("classes by squares", lambda: classify(objective="squared_error"), "'softmax'", "'squared_error'"),
    case("numbers by softmax", lambda: regress(objective="softmax"), "objective='softmax'", "classifiers"),
    case("two columns of huber", lambda: regress(y=TWO, objective="huber"), "'huber'", "one target", "2 columns"),
    case("beyond float32", lambda: train(y=Y * 1e200), "y", "float32"),
    case("unseen label", lambda: classify(fit={"eval_set": (X, C + 1)}), "y of 'eval_0'", "[2]", "known are [0, 1]"),
    case("strings unseen", lambda: classify(fit={"eval_set": (X, ["a"] * N)}), "y of 'eval_0'", "['a']", "known are"),
    case("eval: strings", lambda: regress(fit={"eval_set": (X, ["a"] * N)}), "y of 'eval_0' must hold numbers"),
    case("eval: none", lambda: train(evals={"test": (X, None)}), "y of 'test' is missing"),
    case("eval: two columns", lambda: train(evals={"test": (X, TWO)}), "y of 'test'", "(20, 2)"),
    case("eval: too short", lambda: train(evals={"test": (X, Y[:4])}), "20", "4", "'test'"),
)  # fmt: skip
def test_targets(action, error, words):
    refused(action, error, words)


ONES, W = np.ones(N), "sample_weight"


@table(
    case("too few", lambda: train(weight=ONES[1:]), W, "each of 20 rows", "(19,)"),
    case("too few, estimator", lambda: regress(fit={W: ONES[1:]}), W, "each of 20 rows", "(19,)"),
    case("a column", lambda: regress(fit={W: ONES[:, None]}), W, "(20, 1)"),
    case("negative", lambda: regress(fit={W: -ONES}), W, "not negative"),
    case("NaN", lambda: train(weight=ONES * np.nan), W, "finite"),
    case("zero", lambda: regress(fit={W: 0 * ONES}), W, "zero for every row", "nothing to learn"),
    *(case(f"{w} for all", lambda w=w: train(weight=w), W) for w in (-1.0, 0.0, np.nan)),
    case("strings", lambda: train(weight=["a"] * N), W),
    case("too large", lambda: train(X * 1e5, weight=ONES * 1e300), f"{W} must be at most 1e+100", "divide"),
    case("of an evaluation set", lambda: train(evals={"t": (X, Y, -ONES)}), W, "not negative"),
    case("unknown class_weight", lambda: classify(class_weight="even"), "class_weight", "'balanced'", "'even'"),
    case("class_weight for others", lambda: classify(class_weight={7: 1}), "class_weight names [7]", "classes [0, 1]"),
    case("class_weight negative", lambda: classify(class_weight={0: -1, 1: 1}), "class_weight"),
    case("margin: shape", lambda: train(margin=np.ones((N, 2))), "base_margin", "1 score(s)", "(20, 2)"),
    case("margin: length", lambda: regress().predict(X, base_margin=ONES[1:]), "base_margin", "20 rows", "(19,)"),
    case("margin: classes", lambda: classify(y=np.arange(N) % 3, fit={"base_margin": ONES}), "base_margin", "3 score"),
    case("margin: NaN", lambda: regress(fit={"base_margin": ONES * np.nan}), "base_margin must be finite"),
    case("margin: strings", lambda: train(margin=["a"] * N), "base_margin"),
)  # fmt: skip
def test_weights_and_margins(action, error, words):
    refused(action, error, words)


@table(
    case("number", lambda: regress().predict(X[:, :2]), "X has 2 features", "expecting 3"),
    case("number, model", lambda: train().predict(X[:, :2]), "X has 2 features", "trained on 3"),
    case("number, sparse", lambda: train().predict(scipy.sparse.csr_array(X[:, :2])), "X has 2 features"),
    case("number, eval", lambda: train(evals={"t": (X[:, 1:], Y)}), "X of 't' has 2 features", "trained on 3"),
    case("number, init_model", lambda: train(X[:, 1:], init_model=train()), "X has 2 features", "trained on 3"),
    case("names", lambda: regress(FRAME).predict(FRAME.rename(columns={"age": "z"})), "feature names", "z", "age"),
    case("names, model", lambda: train(FRAME).predict(FRAME.rename(columns={"age": "z"})), "['age']", "['z']"),
    case("order", lambda: train(FRAME).predict(FRAME[["size", "age", "cost"]]), "another order", "'age', 'size'"),
    case("numbers were names", lambda: regress(MIXED).predict(MIXED.assign(city=1.0)), "X['city']", "categories"),
    case("names were numbers", lambda: regress(MIXED).predict(MIXED.assign(age="x")), "X['age']", "numbers", "astype"),
    case("array for frame", lambda: regress(MIXED).predict(X[:, :2]), "data frame with categorical", "array of 2"),
    case("frame for array", lambda: train().predict(MIXED), "array of 3 columns", "data frame with categorical"),
    case("dicts for array", lambda: regress().predict(DICTS), "array of 3 columns", "list of dicts"),
    case("array for dicts", lambda: regress(DICTS).predict(X), "list of dicts", "array of 3 columns"),
    case("tokens for dicts", lambda: regress(DICTS).predict(TOKENS), "list of dicts", "list of token lists"),
    case("dicts for tokens", lambda: regress(TOKENS).predict(DICTS), "list of token lists", "list of dicts"),
    *(case(f"not fitted: {m}", lambda m=m: getattr(GBUNClassifier(), m)(X), "not fitted", "fit", error=NotFittedError)
      for m in ("predict", "predict_proba", "decision_function", "staged_predict", "save_model")),
    case("too many rounds", lambda: regress().predict(X, n_rounds=3), "n_rounds", "2 rounds", "got 3"),
    case("fewer than none", lambda: train().predict(X, n_rounds=-1), "n_rounds", "from 0", "got -1"),
    case("half a round", lambda: train().predict(X, n_rounds=1.5), "n_rounds", "1.5"),
    case("no probabilities", lambda: train().predict_proba(X), "predict_proba", "probabilities", "squared_error"),
    case("missing folder", lambda: regress().save_model("/nowhere/m.gbun"), "/nowhere", "create it first",
         error=FileNotFoundError),
    case("an empty path", lambda: regress().save_model(""), "the path to write to is empty", "name of a file"),
    case("a folder", lambda: regress().save_model("/"), "is a folder", "name of a file", error=IsADirectoryError),
    case("no such file", lambda: gbun.load_model("nowhere.gbun"), "nowhere.gbun", "no such", error=FileNotFoundError),
    case("init_model: file", lambda: train(init_model="nowhere.gbun"), "nowhere.gbun", error=FileNotFoundError),
    case("init_model: type", lambda: train(init_model=5), "init_model", "int"),
    case("init_model: objective", lambda: train(objective="huber", init_model=train()), "init_model", "'huber'"),
    case("init_model: labels", lambda: classify(y=C + 1, fit={"init_model": classify().model_}), "y has labels", "[2]"),
)  # fmt: skip
def test_models_for_other_features(action, error, words):
    refused(action, error, words)


def nonsense(*result):
    return lambda y, scores, weight: (
        result[0] if len(result) == 1 else tuple(r if r is not None else weight for r in result)
    )


TEST = {"t": (X, Y)}
PAIR = "objective must return the pair (gradient, Hessian)"


@table(
    case("params: not a dict", lambda: gbun.train(5, (X, Y)), "params"),
    case("params and data swapped", lambda: gbun.train((X, Y), SMALL), "params"),
    case("data: X alone", lambda: gbun.train(SMALL, X), "data", "(X, y[, weight[, base_margin]])", "ndarray"),
    case("data: none", lambda: gbun.cv(SMALL, None), "data", "Dataset", "NoneType"),
    case("task", lambda: train(task="nope"), "task", "'nope'", "regression"),
    case("groups", lambda: train(n_neurons=10, group_size=4), "group_size", "n_neurons (10)", "4", "n_neurons=12"),
    *(case(f"rounds: {r!r}", lambda r=r: train(rounds=r), "num_boost_round", "integer", f"got {r!r}")
      for r in (1.5, "a")),
    *(case(f"cv, rounds: {r!r}", lambda r=r: gbun.cv(SMALL, (X, Y), r), "num_boost_round", repr(r))
      for r in (-1, 1.5, "a")),
    *(case(f"nfold: {k}", lambda k=k: gbun.cv(SMALL, (X, Y), 1, nfold=k), "nfold", "2", "(20)", f"got {k}")
      for k in (0, 1, 21)),
    case("nfold: 2.5", lambda: gbun.cv(SMALL, (X, Y), 1, nfold=2.5), "nfold", "2.5"),
    *(case(f"callbacks: {n}", lambda c=c: train(callbacks=c), "callbacks")
      for n, c in {"function": [print], "class": [History], "no list": History(), "word": "ab"}.items()),
    case("evals: no names", lambda: train(evals=[(X, Y)]), "evals", "{name: data}", "(data, name)"),
    case("evals: a pair", lambda: train(evals=(X, Y)), "evals", "{name: data}"),
    case("evals: X alone", lambda: train(evals={"t": X}), "'t'", "ndarray"),
    case("evals: number", lambda: train(evals=5), "evals"),
    case("evals: one name twice", lambda: train(evals=[((X, Y), "t"), ((X, Y), "t")]), "evals", "'t'"),
    case("eval_set: arrays", lambda: regress(fit={"eval_set": [X, Y]}), "eval_set", "pair (X, y)"),
    case("eval_set: X alone", lambda: regress(fit={"eval_set": (X,)}), "eval_set", "pair (X, y)"),
    case("eval_set: number", lambda: regress(fit={"eval_set": 5}), "eval_set"),
    case("metric: another task's", lambda: train(eval_metric="auc", evals={"t": (X, Y)}), "y", "regression metric"),
    case("metric: no number", lambda: train(eval_metric=lambda y, r, w: "x", evals={"t": (X, Y)}), "'x'", "one number"),
    case("metric: none of them", lambda: train(eval_metric=[], early_stopping_rounds=1), "eval_metric"),
    case("stopping: no set", lambda: train(callbacks=[EarlyStopping(2)]), "early stopping", "evals=", "eval_set="),
    case("stopping: set", lambda: train(callbacks=[EarlyStopping(2, name="z")], evals=TEST), "['t']", "'z'"),
    case("stopping: metric", lambda: train(callbacks=[EarlyStopping(2, metric="z")], evals=TEST), "rmse", "'z'"),
    case("stopping: rounds", lambda: EarlyStopping(0), "rounds", "at least 1", "got 0"),
    case("stopping: delta", lambda: EarlyStopping(1, min_delta=-1), "min_delta", "-1"),
    case("stopping: one row", lambda: train(X[:1], Y[:1], early_stopping_rounds=1), "validation_fraction", "1 rows"),
    case("stopping: NaN", lambda: train(y=C == 1, eval_metric="auc", early_stopping_rounds=1, evals={"t": (X, C < 0)}),
         "'auc'", "'t'", "not a number", "another metric"),
    case("checkpoint: folder", lambda: train(callbacks=[Checkpoint("/nowhere/c.gbun")]), "/nowhere",
         error=FileNotFoundError),
    case("checkpoint: every", lambda: Checkpoint("c.gbun", 0), "every", "at least 1", "got 0"),
    case("budget", lambda: TimeBudget(0), "seconds", "positive", "got 0"),
    case("schedule: 0", lambda: train(callbacks=[LearningRateSchedule(lambda t: 0)]), "(0, 1]", "0.0", "round 0"),
    case("schedule: number", lambda: train(callbacks=[LearningRateSchedule(0.1)]), "schedule", "0.1"),
    case("objective: None", lambda: train(objective=nonsense(None)), PAIR, "NoneType"),
    case("objective: one", lambda: train(objective=nonsense(ONES)), PAIR, "ndarray"),
    case("objective: three", lambda: train(objective=nonsense(1, 2, 3)), PAIR, "tuple"),
    case("objective: shape", lambda: train(objective=nonsense(np.ones(3), None)), "gradient", "(20,)", "(3,)"),
    case("objective: NaN", lambda: train(objective=nonsense(None, ONES * np.nan)), "Hessian", "not finite", "log(0)"),
    case("objective: words", lambda: train(objective=nonsense("a", "b")), "objective", "gradient"),
    case("objective: number", lambda: train(objective=5), "objective must be a name or a function", "got 5"),
)  # fmt: skip
def test_calls(action, error, words):
    refused(action, error, words)


def bad_values(admitted):
    """Values outside the range of a parameter."""
    if isinstance(admitted, Choice):
        return ["nonsense", *([] if admitted.objects else [5]), *([] if admitted.optional else [None])]
    if isinstance(admitted, Size):
        return SIZES
    if isinstance(admitted, Flag):
        return [1, 0, None, "yes", "True"]
    if isinstance(admitted, Scale):
        return ["", "robust", "unit+log", "idf+max_abs", "standard+unit", "log+", "auto+unit", "log+log", None, 5, True]
    if isinstance(admitted, DeviceName):
        return ["gpu", "cuda:", "cuda:-1", "cuda:x", "CPU", "torch", "torch:cuda", "mps:0:1", "", None, 0]
    if isinstance(admitted, Columns):
        return [5, "nonsense", True, [1.5], [0, "a"], [True, 1], [None], {0}, np.zeros((2, 2), dtype=int), [[0]]]
    if not isinstance(admitted, Interval):
        return []
    outside = [admitted.low - 1, admitted.high + 1 if math.isfinite(admitted.high) else math.inf, math.nan, "8", True]
    outside += [admitted.low] * (admitted.closed in ("right", "neither")) + [2.5] * admitted.integral
    outside += [admitted.high] * (admitted.closed == "neither" and math.isfinite(admitted.high))
    return outside + [None] * (not admitted.optional) + [np.array([0.5, 0.5])]


OTHERS = {"eval_metric": ["nonsense", 5], "random_state": ["a", -1, 1.5, 2**63, True], "n_jobs": [0], "objective": [5]}
SIZES = [0, -1, "2 PB", "much", "GB", math.nan, math.inf, True, [1]]
BAD = [(f, v) for f in parameter_fields() for v in [*bad_values(f.metadata["range"]), *OTHERS.get(f.name, [])]]


@pytest.mark.parametrize(("field", "value"), [pytest.param(f, v, id=f"{f.name}={v!r}") for f, v in BAD])
def test_every_parameter_out_of_its_range(field, value):
    name, admitted = field.name, field.metadata["range"]
    special = name in OTHERS and any(value is v for v in OTHERS[name])
    words = [name, repr(value)] + ([] if special else [f"must be {admitted}"])
    for fit in (train, regress, classify):
        refused(lambda fit=fit: fit(**{name: value}), ValueError, words)


def test_targets_of_extreme_size_are_learnt_or_refused():
    """Never a model of numbers that are not finite."""
    wanted = train().predict(X) / Y.std()
    for size in (1e-18, 1e18):
        np.testing.assert_allclose(train(y=Y * size).predict(X) / (Y * size).std(), wanted, rtol=1e-4, atol=1e-6)
    for size, side in ((1e-44, "below"), (1e30, "beyond"), (1e200, "beyond")):
        words = ["y has values of size", f"{side} what float32", "change its unit"]
        refused(lambda size=size: train(y=Y * size), ValueError, words)
    train(y=np.zeros(N), objective="poisson")


@pytest.mark.parametrize("objective", ["squared_error", "huber", "quantile", "poisson", "gamma", "tweedie"])
def test_every_objective_learns_targets_of_extreme_size_or_refuses_them(objective):
    y = np.exp(Y - 2.0)
    wanted = train(y=y, objective=objective).predict(X)
    for size in (1e-35, 1e-29, 1e-25, 1e-19, 1e19, 1e25, 1e29, 1e35):
        if not 1e-30 < size < 1e30:
            words = ["y has values of size", "change its unit"]
            refused(lambda size=size: train(y=y * size, objective=objective), ValueError, words)
        elif objective in ("poisson", "gamma", "tweedie") and not 1e-21 < size < 1e21:
            words = ["y has a mean of", f"objective={objective!r}", "from 1e-21 to 1e+21", "change the unit of y"]
            refused(lambda size=size: train(y=y * size, objective=objective), ValueError, words)
        else:
            got = train(y=y * size, objective=objective).predict(X) / size
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)


def test_columns_without_a_deviation_are_no_error():
    constant = np.column_stack([X, np.zeros(N), np.full(N, 5.0), np.full(N, 1e-200), np.full(N, 1e-310)])
    for scale in ("auto", "log+standard"):
        np.testing.assert_allclose(
            train(constant, scale=scale).predict(constant), train(scale=scale).predict(X), atol=0.2
        )


def test_labels_that_are_not_finite_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (np.nan, np.inf):
            with pytest.raises(ValueError, match="drop or fill"):
                classify(y=np.r_[value, C[1:]])


def test_values_beyond_float32_are_clipped_after_scaling():
    for model in (train(X * 1e40), train(X * 1e40, scale="none"), train()):
        for far in (X * 1e40, with_value(1e300), -with_value(1e18)):
            assert np.isfinite(model.predict(far)).all()
    np.testing.assert_array_equal(train().predict(with_value(1e300)), train().predict(with_value(1e200)))


def test_every_parameter_has_a_bad_value():
    assert {f.name for f, _ in BAD} == {f.name for f in parameter_fields()}


@pytest.mark.parametrize("n", [1, 2, 5])
def test_more_outputs_than_rows_work(n):
    for model in (regress(X[:n], Y[:n], n_neurons=64), regress(X[:n], Y[:n], n_neurons=64, reg_lambda=0.0)):
        assert np.isfinite(model.predict(X)).all()
    if n > 1:
        assert np.isfinite(classify(X[:n], C[:n], n_neurons=64).predict_proba(X)).all()
