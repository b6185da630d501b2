"""Laws of a model, on drawn cases: objectives, forms of rows, weights, starts, networks, learners and threads.

`make test` draws the same few cases in every run. `GBUN_EXAMPLES=2000 pytest tests/test_laws.py` draws 2000 random
cases for each law; Hypothesis prints the smallest case that breaks one, to be kept as an `@example`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import gbun
from gbun import preparation, scored_rows
from gbun.callbacks import Callback, Checkpoint
from gbun.collectives import AsyncCollective
from gbun.collectives.threads import in_threads
from gbun.kernels import chunks
from tests.learners.random_cuts import RandomCuts
from tests.share_cases import take
from tests.trainings import assert_same_model

EXAMPLES = int(os.environ.get("GBUN_EXAMPLES", "0"))


def law(examples):
    """So many fixed cases, or GBUN_EXAMPLES random ones."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        deadline=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def own_loss(y, scores, weight):
    """sqrt(1 + r^2), between squared and absolute error."""
    r = scores - y
    return weight * r / np.sqrt(1.0 + r * r), weight / (1.0 + r * r) ** 1.5


# Rows. Numbers are exact in float16, so every dtype that holds a kind of numbers holds the same ones.

KINDS = {
    "floats": ["f8", "f4", "f2"],
    "integers": ["f8", "f4", "f2", "i8", "i1"],
    "truth values": ["f4", "i8", "u1", "?"],
}
DENSE = {"rows": np.ascontiguousarray, "columns": np.asfortranarray, "strided": lambda X: np.repeat(X, 2, axis=0)[::2]}
SPARSE = {"csr": sp.csr_array, "csc": sp.csc_array, "coo": sp.coo_array, "csr matrix": sp.csr_matrix}
HUGE = 2**62
FORMS = {
    "dense": DENSE,
    "sparse": SPARSE,
    "huge ids": {"csr": sp.csr_array, "coo": sp.coo_array},
    "frame": {"objects": object, "categories": "category", "polars": None},
    "dicts": {"as they are": 1, "backwards": -1},
    "tokens": {"as they are": 1, "backwards": -1},
}


def make_rows(numbers, family, form, dtype):
    """The numbers as rows of a family, in one of its forms: what differs in form or dtype only is the same data."""
    how = FORMS[family][form]
    if family == "dense":
        return how(numbers.astype(dtype))
    if family in ("sparse", "huge ids"):
        X = sp.coo_array(numbers.astype("f4" if dtype == "f2" else dtype))  # SciPy has no sparse float16
        if family == "huge ids":
            ids = X.col.astype(np.int64) * (HUGE // 7) + 3
            X = sp.coo_array((X.data, (X.row.astype(np.int64), ids)), shape=(len(numbers), HUGE))
        return how(X)
    words = [[None if not x > 0 else f"w{x:.0f}" for x in row] for row in numbers]
    if family == "frame":
        columns = {f"x{j}": column.astype(dtype) for j, column in enumerate(numbers.T[1:])}
        word = [row[0] for row in words]
        if form == "polars":
            return pl.DataFrame({**columns, "word": pl.Series(word, dtype=pl.String)})
        return pd.DataFrame({**columns, "word": pd.Series(word, dtype=object).astype(how)})
    if family == "dicts":
        return [
            dict([(f"x{j}", float(x)) for j, x in enumerate(row) if x][::how]) | {"word": w[0]}
            for row, w in zip(numbers, words, strict=True)
        ]
    return [[w for w in row if w][::how] for row in words]


OBJECTIVES = {
    "squared_error": lambda s, rng: s,
    "huber": lambda s, rng: s,
    "quantile": lambda s, rng: s,
    own_loss: lambda s, rng: s,
    "multi_squared_error": lambda s, rng: np.column_stack([s, 1.0 - 2.0 * s]),
    "poisson": lambda s, rng: rng.poisson(np.exp(0.5 * s)),
    "gamma": lambda s, rng: np.exp(0.5 * s),
    "tweedie": lambda s, rng: np.maximum(s, 0.0),
    "logistic": lambda s, rng: s > np.median(s),
    "softmax": lambda s, rng: np.array(["a", "b", "c"])[np.digitize(s, [-0.5, 0.5])],
    "multi_logistic": lambda s, rng: np.column_stack([s > 0.0, s < 0.5]).astype(int),
}
CLASSES = {"logistic": [False, True], "softmax": ["a", "b", "c"]}


@dataclass(frozen=True)
class Case:
    """Rows, targets and parameters of a training; all arrays follow from the seed."""

    objective: object
    family: str = "dense"
    kind: str = "floats"
    form: str = "rows"
    dtype: str = "f8"
    n: int = 50
    m: int = 3
    seed: int = 0
    missing: bool = False
    ties: bool = False
    weights: str = "none"
    learner: RandomCuts | None = None
    params: dict = field(default_factory=dict)

    @cached_property
    def numbers(self):
        rng, shape = np.random.default_rng((self.seed, 1)), (self.n, self.m)
        B = rng.normal(scale=2.0, size=shape) * (rng.random(shape) < 0.65) * 4.0 ** rng.integers(-2, 3, size=self.m)
        B = {"floats": B, "integers": np.rint(B).clip(-100, 100), "truth values": B > 0.0}[self.kind]
        B = np.where(rng.random(shape) < 0.1, np.nan, B) if self.missing and self.kind == "floats" else B
        B[0, 0] = 1.0  # words of which every row is empty are refused
        return B.astype(np.float16).astype(np.float64)

    @cached_property
    def X(self):
        return make_rows(self.numbers, self.family, self.form, self.dtype)

    @cached_property
    def y(self):
        rng, B = np.random.default_rng((self.seed, 2)), np.nan_to_num(self.numbers)
        signal = np.sin(B[:, 0]) + np.sign(B[:, -1]) + 0.3 * rng.normal(size=self.n)
        y = OBJECTIVES[self.objective](np.round(signal, 1) if self.ties else signal, rng)
        for i, label in enumerate(CLASSES.get(self.objective, [])):
            y[i] = label
        return y

    @cached_property
    def weight(self):
        rng = np.random.default_rng((self.seed, 3))
        if self.weights == "none":
            return None
        weight = rng.integers(1, 9, size=self.n) / 4.0
        if self.weights == "zeros":
            weight[3:] *= rng.random(self.n - min(3, self.n)) < 0.7  # every class has a weight
        return weight

    def train(self, rounds=3, X=None, y=None, weight=None, rows=None, options=(), **params):
        """Train with other parameters, rows, targets or weights."""
        data = [self.X if X is None else X, self.y if y is None else y, self.weight if weight is None else weight]
        if rows is not None:
            data = [None if part is None else take_rows(part, rows) for part in data]
        params = {"objective": self.objective, "n_jobs": 1, **self.params, **params}
        return gbun.train(params, tuple(data), rounds, learner=self.learner, **dict(options))


def take_rows(part, rows):
    return take(part.tocsr() if isinstance(part, (sp.coo_array, sp.csc_array)) else part, rows)


@st.composite
def cases(draw, families=tuple(FORMS), objectives=tuple(OBJECTIVES), learners=True):
    """Whole cases: what is drawn, and in which combination, is written here only."""
    family, kind = draw(st.sampled_from(families)), draw(st.sampled_from(list(KINDS)))
    objective, m = draw(st.sampled_from(objectives)), draw(st.integers(1, 6))
    learner = (
        RandomCuts(m, draw(st.integers(1, 3)))
        if learners and family == "dense" and draw(st.integers(0, 5)) == 5
        else None
    )
    params = {
        "init": draw(st.sampled_from(["constant", "auto", "linear"])),
        "scale": draw(st.sampled_from(["auto", "none", "standard", "max_abs", "log+idf+unit"])),
        "hessian": draw(st.sampled_from(["shared", "per_class"])),
        "learning_rate": draw(st.sampled_from([0.1, 0.5])),
        "random_state": draw(st.integers(0, 2**63 - 1)),
    }
    part = draw(st.sampled_from(["network", "tree", "mixed"])) if learners and family == "dense" else "network"
    if learner is None and part != "network":
        params |= {"learner": part, "n_leaves": draw(st.integers(2, 40)), "n_projections": draw(st.integers(0, 5))}
    if learner is None and part == "network":
        params |= {
            "n_neurons": draw(st.sampled_from([2, 5, 16, 32])),
            "density": draw(st.sampled_from([None, 0.1, 0.5, 1.0])),
            "network": draw(st.sampled_from(["auto", "dense", "hashed"])),
        }
    return Case(
        objective, family, kind, draw(st.sampled_from(list(FORMS[family]))), draw(st.sampled_from(KINDS[kind])),
        max(draw(st.integers(1, 600)), len(CLASSES.get(objective, []))), m, draw(st.integers(0, 2**32)),
        draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(["none", "some", "zeros"])), learner, params,
    )  # fmt: skip


def scores(model, X, **options):
    return model.decision_function(X, n_jobs=1, **options)


def assert_same_bits(model, X, wanted, wanted_X):
    assert_same_model(model, wanted)
    np.testing.assert_array_equal(scores(model, X), scores(wanted, wanted_X))


def assert_close_scores(found, wanted, tolerance):
    """Equal up to `tolerance` of the largest score, or up to rounding of zeros."""
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max() + 1e-15)


@pytest.fixture
def small_limits(handed_over, monkeypatch):
    """Few rows make several chunks, which several threads compute, and 200 rows are enough for sums in float32."""
    monkeypatch.setattr(chunks, "MIN_CHUNK_ROWS", 32)
    for module in (preparation, scored_rows):
        monkeypatch.setattr(module, "MAX_EXACT_ROWS", 200)


# Same bits


@law(25)
@given(case=cases(), data=st.data())
@pytest.mark.usefixtures("small_limits")
def test_threads_forms_and_dtypes_change_no_bit(case, data):
    sample = {} if case.params.get("learner") == "tree" else {"gram_rows": 0.5}  # trees have no normal equations
    model = case.train(**sample)
    form, dtype = data.draw(st.sampled_from(list(FORMS[case.family]))), data.draw(st.sampled_from(KINDS[case.kind]))
    n_jobs, network = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(["auto", "dense", "hashed"]))
    X = make_rows(case.numbers, case.family, form, dtype)
    params = {"n_jobs": n_jobs} | ({} if case.learner else {"network": network})
    assert_same_bits(case.train(X=X, **sample, **params), X, model, case.X)
    np.testing.assert_array_equal(scores(model, X), model.decision_function(case.X, n_jobs=n_jobs))


class Stop(Callback):
    def __init__(self, after):
        self.after = after

    def after_round(self, training, report):
        if report.round + 1 == self.after:
            raise KeyboardInterrupt
        return False


@law(25)
@given(case=cases(), first=st.integers(0, 3), second=st.integers(1, 3), every=st.integers(1, 3))
def test_a_model_is_saved_continued_and_resumed(case, first, second, every, tmp_path):
    path, again, checkpoint = tmp_path / "m.gbun", tmp_path / "again.gbun", tmp_path / "c.gbun"
    whole, part = case.train(first + second), case.train(first)
    part.save_model(path)
    loaded = gbun.load_model(path)
    loaded.save_model(again)
    assert path.read_bytes() == again.read_bytes()
    assert_same_bits(loaded, case.X, part, case.X)
    for start in (part, loaded, path):
        assert_same_bits(case.train(second, options={"init_model": start}), case.X, whole, case.X)
    checkpoint.unlink(missing_ok=True)
    if first:
        with pytest.raises(KeyboardInterrupt):
            case.train(first + second, options={"callbacks": [Checkpoint(checkpoint, every), Stop(first)]})
    assert_same_bits(case.train(first + second, options={"resume": checkpoint}), case.X, whole, case.X)


@law(25)
@given(case=cases(), data=st.data())
def test_predictions_are_finite_and_those_of_each_row(case, data):
    model = case.train()
    C = {"softmax": 3, "multi_squared_error": 2, "multi_logistic": 2}.get(case.objective)
    everything = scores(model, case.X)
    assert everything.shape == ((case.n,) if C is None else (case.n, C))
    assert model.predict(case.X).shape == (case.y.shape if case.objective != "softmax" else (case.n,))
    assert np.isfinite(everything).all()
    if model.description.task == "regression":
        assert np.isfinite(model.predict(case.X)).all()
    else:
        q = model.predict_proba(case.X)
        assert q.shape == (case.n, C or 2)
        assert ((q >= 0.0) & (q <= 1.0)).all()
        if case.objective in CLASSES:
            np.testing.assert_allclose(q.sum(axis=1), 1.0)
            assert set(model.predict(case.X)) <= set(CLASSES[case.objective])
    rows = st.lists(st.integers(0, case.n - 1), min_size=1, max_size=40)
    for some in (data.draw(rows), [data.draw(st.integers(0, case.n - 1))]):
        np.testing.assert_array_equal(scores(model, take_rows(case.X, some)), everything[some])


# Same up to rounding


def without_kinks(case):
    """The case; the pinball loss has kinks, so its linear start may end elsewhere in a flat valley: a constant one."""
    return replace(case, params=case.params | {"init": "constant"}) if case.objective == "quantile" else case


def settled(case):
    """The case with a given penalty: which rows are held out to choose one depends on their number and digits of y."""
    case = without_kinks(case)
    return case if case.params["init"] == "constant" else replace(case, params=case.params | {"linear_l2": 0.1})


@law(20)
@given(case=cases(learners=False).map(without_kinks), data=st.data())
def test_the_order_of_rows_changes_rounding_only(case, data):
    order = data.draw(st.permutations(range(case.n)))
    wanted = scores(case.train(), case.X)
    assert_close_scores(scores(case.train(rows=order), case.X), wanted, 2e-6)


@law(20)
@given(case=cases(learners=False).map(settled))
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(case):
    times = np.random.default_rng(case.seed).integers(0, 4, size=case.n)
    times[:3] = 1  # every class has a weight
    twice = replace(case, weights="none").train(rows=np.repeat(np.arange(case.n), times))
    assert_close_scores(scores(case.train(weight=times), case.X), scores(twice, case.X), 2e-6)


def without_idf(case):
    """The case with a scaling that does not count rows, as idf does; "auto" may choose idf."""
    scale = case.params["scale"]
    return replace(case, params=case.params | {"scale": "standard" if scale == "auto" or "idf" in scale else scale})


@law(20)
@given(
    case=cases(learners=False).map(settled).map(without_idf),
    factor=st.floats(1e-6, 1.0),
    reg_lambda=st.sampled_from([0.01, 1.0]),
)
def test_fractions_of_weights_have_no_unit(case, factor, reg_lambda):
    """Weights of at most 1 multiply lambda only where it is absolute. Weights above 1 count rows."""
    weight = (np.ones(case.n) if case.weight is None else case.weight) / 2.0
    for form, ratio in (("relative", 1.0), ("absolute", factor)):
        wanted = case.train(weight=weight, reg_form=form, reg_lambda=reg_lambda)
        found = case.train(weight=weight * factor, reg_form=form, reg_lambda=reg_lambda * ratio)
        assert_close_scores(scores(found, case.X), scores(wanted, case.X), 2e-6)


@law(20)
@given(case=cases(families=("dense",), learners=False), form=st.sampled_from(list(SPARSE)))
def test_dense_and_sparse_forms_agree(case, form):
    same = {"init": "constant", "density": 0.5, "temperature": 1.5, "group_size": case.params["n_neurons"]}
    same |= {"scale": "standard"} if case.params["scale"] == "auto" else {}
    X = make_rows(case.numbers, "sparse", form, case.dtype)
    wanted = scores(case.train(**same), case.X)
    assert_close_scores(scores(case.train(X=X, **same), X), wanted, 1e-5)


UNITS = ("squared_error", "huber", "quantile", "gamma", "tweedie", "poisson", "multi_squared_error")


@law(20)
@given(case=cases(objectives=UNITS, learners=False).map(settled), power=st.integers(-20, 20))
def test_targets_in_another_unit_give_the_model_in_that_unit(case, power):
    wanted = case.train().predict(case.X)
    found = case.train(y=case.y * 10.0**power).predict(case.X) / 10.0**power
    assert_close_scores(found, wanted, 1e-4)


@law(20)
@given(
    case=cases(learners=False).map(without_kinks),
    size=st.integers(2, 3),
    overlap=st.booleans(),
    n_jobs=st.integers(1, 2),
)
def test_workers_make_the_model_of_one(case, size, overlap, n_jobs):
    owner = np.random.default_rng(case.seed).integers(size, size=case.n)

    def work(collective):
        rows = np.flatnonzero(owner == collective.rank)
        options = {"collective": AsyncCollective(collective) if overlap else collective}
        return case.train(rows=rows, n_jobs=n_jobs, options=options)

    models = in_threads(size, work)
    for model in models[1:]:
        assert_same_model(model, models[0])
    assert_close_scores(scores(models[0], case.X), scores(case.train(), case.X), 1e-9)
