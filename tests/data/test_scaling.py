"""Scaling inside the model: steps agree with scikit-learn, "auto", rows alone and in batches, workers."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, Normalizer, StandardScaler

import gbun
from gbun.collectives import Solo
from gbun.collectives.threads import in_threads
from gbun.data.ingest import ingest
from gbun.data.scaled_columns import VALUE_LIMIT
from gbun.data.scaling import TEXT_STEPS, fit_scaling
from gbun.networks import hash_name
from gbun.ranges import SCALING_STEPS, parse_scaling_steps
from tests.model_io.test_hostile import altered, forged, parts_of, peak_memory, refuse


class Team:
    """Workers as threads; the shape of every message is recorded."""

    def __init__(self, size):
        self.size, self.shapes = size, set()

    def run(self, work, parts):
        """Return work(part, collective) of every worker."""
        return in_threads(self.size, lambda c: work(parts[c.rank], RecordingCollective(c, self.shapes)))


class RecordingCollective:
    def __init__(self, collective, shapes):
        self.collective, self.shapes = collective, shapes

    def __getattr__(self, name):
        member = getattr(self.collective, name)
        if not callable(member):
            return member
        return lambda values, **options: self.shapes.add(np.shape(values)) or member(values, **options)


def parts_of_rows(n, n_parts):
    """The rows of each worker; of three or more workers the first has no row and the second has one."""
    few = {1: [0, n], 2: [0, n // 3, n]}
    ends = few[n_parts] if n_parts < 3 else [0, 0, 1, *np.linspace(1, n, n_parts - 1).astype(int)[1:]]
    return [np.arange(a, b) for a, b in itertools.pairwise(ends)]


def legal_names():
    for steps in itertools.chain.from_iterable(itertools.combinations(SCALING_STEPS, k) for k in range(1, 6)):
        try:
            parse_scaling_steps("+".join(steps))
        except ValueError:
            continue
        yield "+".join(steps)


NAMES = [*legal_names(), "none"]


def numbers(n=60, m=9, seed=0):
    """Numbers of either sign, most of them 0; a column of zeros, a constant one, a row of zeros."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(scale=5.0, size=(n, m)), 2) * (rng.random((n, m)) < 0.4)
    X[:, 3], X[:, 5], X[7] = 0.0, 2.0, 0.0
    return X.astype(np.float32)


def scaled(name, X, *, given=None, weight=None):
    """Fit a scaling to X; return `given`, or X, scaled as a matrix, and the scaling."""
    features, schema = ingest(X)
    scaling = fit_scaling(name, features, np.ones(features.n_rows) if weight is None else weight, Solo(), schema)
    out = scaling.apply(features if given is None else ingest(given)[0])
    if out.sparse is None:
        return out.dense, scaling
    e = out.sparse
    return scipy.sparse.csr_array((e.values, e.ids, e.indptr), shape=(out.n_rows, schema.n_columns)).toarray(), scaling


# Steps


def test_accepted_names():
    assert len(NAMES) == len(set(NAMES)) == 20
    for name in (
        "",
        "unit+log",
        "standard+unit",
        "idf+max_abs",
        "log+log",
        "auto+log",
        "none+unit",
        "log+",
        "robust",
        "clip",
    ):
        with pytest.raises(ValueError, match="scale must be 'auto', 'none', or some of 'log'"):
            gbun.train({"scale": name}, (numbers(), np.arange(60.0)), 1)


logarithm = FunctionTransformer(lambda X: np.sign(X) * np.log1p(np.abs(X)), accept_sparse=True)
PEERS = {
    "log": [logarithm],
    "standard": [StandardScaler()],
    "max_abs": [MaxAbsScaler()],
    "unit": [Normalizer()],
    "log+max_abs": [logarithm, MaxAbsScaler()],
    "log+unit": [logarithm, Normalizer()],
    "max_abs+unit": [MaxAbsScaler(), Normalizer()],
    "log+max_abs+unit": [logarithm, MaxAbsScaler(), Normalizer()],
    "idf": [TfidfTransformer(norm=None)],
    "idf+unit": [TfidfTransformer()],
    "log+idf": [logarithm, TfidfTransformer(norm=None)],
    "log+idf+unit": [logarithm, TfidfTransformer()],
}


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", PEERS)
def test_every_step_agrees_with_scikit_learn(name, form):
    X = numbers()
    X = np.abs(X) if "idf" in name else X
    wanted = X.astype(float)
    for step in PEERS[name]:
        wanted = step.fit_transform(wanted)
    wanted = wanted.toarray() if scipy.sparse.issparse(wanted) else wanted
    found, scaling = scaled(name, form(X))
    if name == "standard" and form is not np.asarray:  # zeros stay zeros
        deviation = X.astype(float).std(axis=0)
        wanted = X / np.where(deviation > 0, deviation, np.inf)
    if name == "log" and form is np.asarray:  # centred for the accuracy of float32
        wanted = wanted - wanted.mean(axis=0)
    if "idf" in name:
        wanted[:, 3] = 0.0  # scikit-learn has an idf for empty columns
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert found.dtype == np.float32
    assert scaling.name == name


@pytest.mark.parametrize("name", [name for name in NAMES if "clip" not in name])  # which only dense columns are
def test_dense_and_sparse_forms_agree_but_for_the_centre(name):
    X, weight = numbers(), np.random.default_rng(1).integers(0, 3, size=60).astype(float)
    dense, scaling = scaled(name, X, weight=weight)
    sparse, _ = scaled(name, scipy.sparse.csr_array(X), weight=weight)
    centre = scaling.dense.centre * scaling.dense.factor
    np.testing.assert_allclose(dense + centre, sparse, atol=3e-6)
    assert ("unit" in name) <= (not centre.any())
    if "unit" in name:
        length = np.sqrt(np.square(sparse).sum(axis=1))
        np.testing.assert_allclose(length[(X != 0).any(axis=1) & (length > 0)], 1.0, rtol=1e-6)
        assert length[7] <= 1.0


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", NAMES)
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(name, form):
    X, weight = numbers(), np.random.default_rng(1).integers(0, 3, size=60)
    X[weight == 0] *= 1e6
    repeated = np.repeat(np.arange(60), weight)
    weighted, _ = scaled(name, form(X), weight=weight.astype(float))
    np.testing.assert_allclose(weighted, scaled(name, form(X[repeated]), given=form(X))[0], rtol=2e-5, atol=1e-5)


FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(max_examples=40, deadline=None)
@given(arrays(np.float32, (4, 3), elements=FLOATS | st.just(np.nan)), st.sampled_from(NAMES))
def test_numbers_are_scaled_to_finite_numbers_and_missing_ones_to_zero(X, name):
    """For numbers whose squares float64 holds, and columns that are not tiny."""
    X[np.abs(X) < 1e-30] = 0.0
    found, _ = scaled(name, scipy.sparse.csr_array(X))
    assert np.isfinite(found).all()
    if "standard" not in name:  # there it gets the mean of its column
        np.testing.assert_array_equal(found[np.isnan(X)], 0.0)
    dense, scaling = scaled(name, X)
    assert np.isfinite(dense).all()
    assert np.abs(dense).max() <= np.float32(VALUE_LIMIT)
    if not scaling.dense.centre.any() or "standard" in name:
        np.testing.assert_array_equal(dense[np.isnan(X)], 0.0)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, np.asfortranarray], ids=["dense", "sparse", "F"])
@pytest.mark.parametrize("name", NAMES)
def test_a_row_alone_has_the_bits_of_the_batch(name, form):
    X = np.tile(numbers(m=50), (80, 1))  # 4800 rows, dense ones in two blocks
    X[1000, 4] = np.nan
    X = form(X)
    whole, scaling = scaled(name, X)
    for i in (0, 7, 1000, 4095, 4096, 4799):
        alone = scaling.apply(ingest(X[[i]])[0])
        found = alone.dense[0] if alone.sparse is None else alone.sparse.values
        wanted = whole[i] if alone.sparse is None else whole[i][alone.sparse.ids]
        np.testing.assert_array_equal(found, wanted)
    nothing = scaling.apply(ingest(X)[0].take(np.arange(0)))
    assert nothing.n_rows == 0


# Features that were not in training


@pytest.mark.parametrize("name", ["idf", "max_abs", "log+idf+unit", "standard", "max_abs+unit"])
def test_unseen_columns_contribute_nothing(name):
    X = np.zeros((10, 4), dtype=np.float32)
    X[:, 0], X[::2, 1] = np.arange(1, 11), 3.0
    new = scipy.sparse.csr_array(np.array([[0.0, 0.0, 5.0, 0.0], [1.0, 0.0, 0.0, 7.0]], dtype=np.float32))
    found, _ = scaled(name, scipy.sparse.csr_array(X), given=new)
    assert (found[:, 2:] == 0.0).all()
    assert found[1, 0] > 0.0


@pytest.mark.parametrize("name", ["idf", "max_abs"])
def test_unseen_names_contribute_nothing_unless_they_share_a_bucket(name):
    rows = [{"a": 2.0, "b": 4.0}, {"a": 1.0}, {"b": 1.0}]
    features, schema = ingest(rows)
    scaling = fit_scaling(name, features, np.ones(3), Solo(), schema)
    taken = scaling.bucketed.buckets.place(features.sparse.ids)[0]
    new = [f"name {i}" for i in range(2000)]
    at = scaling.bucketed.buckets.place(np.array([hash_name(n) for n in new]))[0]
    assert 0 < np.isin(at, taken).sum() < 100
    for word, free in zip(new, ~np.isin(at, taken), strict=True):
        assert (scaling.apply(ingest([{word: 1.0}])[0]).sparse.values[0] == 0.0) == free


# "auto"


def ones(n_rows, lengths, n_columns=40, seed=0):
    rng = np.random.default_rng(seed)
    X = np.zeros((n_rows, n_columns))
    for row, length in zip(X, itertools.cycle(lengths), strict=False):
        row[rng.choice(n_columns, size=length, replace=False)] = 1.0
    return X


COUNTS = np.random.default_rng(0).poisson(0.7, size=(50, 12)).astype(float)
WORDS = [["a", "b", "a"], ["c"], ["b", "c", "d", "e"], []] * 5
ROWS = {
    "one-hot": (scipy.sparse.csr_array(ones(50, [3])), ()),
    "one-hot, a few missing": (scipy.sparse.csr_array(ones(50, [14, 14, 14, 13, 14, 11])), ()),
    "words that are there or not": (scipy.sparse.csr_array(ones(50, [1, 9, 4, 14])), TEXT_STEPS),
    "counts": (scipy.sparse.csr_array(COUNTS), TEXT_STEPS),
    "counts with a fraction": (scipy.sparse.csr_array(COUNTS + 0.5 * (COUNTS == 2)), ("max_abs",)),
    "counts with a sign": (scipy.sparse.csr_array(COUNTS * np.where(COUNTS == 2, -1, 1)), ("max_abs",)),
    "numbers": (scipy.sparse.csr_array(numbers()), ("max_abs",)),
    "rows of length 1": (scipy.sparse.csr_array(Normalizer().fit_transform(numbers())), ()),
    "nothing": (scipy.sparse.csr_array((5, 3)), ()),
    "missing only": (scipy.sparse.csr_array(np.array([[np.nan, 0.0], [0.0, np.nan]])), ()),
    "tokens": (WORDS, TEXT_STEPS),
    "dicts of strings": ([{"city": "Rome", "sex": "f"}, {"city": "Oslo"}, {"car": "x"}] * 5, ()),
    "dicts of numbers": ([{"age": 31.5, "size": 1.7}, {"age": 40.0}] * 5, ("max_abs",)),
    "dicts of counts": ([{"age": 31, "size": 2}, {"age": 40}] * 5, ("max_abs",)),
    "dicts of both": ([{"age": 31, "city": "Rome"}, {"age": 40}] * 5, ("max_abs",)),
    "categories": (pd.DataFrame({"city": ["Rome", "Oslo", None, "Rome"], "car": ["x", None, None, "y"]}), ()),
    "numbers and categories": (pd.DataFrame({"age": [31.0, 40.0, 2.0], "city": ["Rome", "Oslo", None]}), ()),
}


@pytest.mark.parametrize(("rows", "steps"), ROWS.values(), ids=ROWS)
def test_auto_chooses_steps_for_sparse_rows(rows, steps):
    features, schema = ingest(rows)
    scaling = fit_scaling("auto", features, np.ones(features.n_rows), Solo(), schema)
    assert scaling.sparse_steps == steps
    if features.dense is not None:
        np.testing.assert_allclose(scaling.apply(features).dense.mean(axis=0), 0.0, atol=1e-6)
    if features.sparse is not None and steps:
        explicit = fit_scaling("+".join(steps), features, np.ones(features.n_rows), Solo(), schema)
        np.testing.assert_array_equal(scaling.apply(features).sparse.values, explicit.apply(features).sparse.values)


# Size


@pytest.mark.parametrize("name", ["auto", "max_abs", "log+idf+unit", "standard", "max_abs+unit"])
def test_nothing_grows_with_the_number_of_columns(name):
    rng = np.random.default_rng(0)
    ids, values = rng.integers(10**9, size=3000), rng.gamma(1.0, size=3000)
    X = scipy.sparse.coo_array((values, (np.arange(3000) % 300, ids)), shape=(300, 10**9)).tocsr()
    features, schema = ingest(X)
    scale = lambda: fit_scaling(name, features, np.ones(300), Solo(), schema).apply(features).sparse  # noqa: E731
    assert peak_memory(scale) < 4e6
    found = scale()
    assert len(found.values) == X.nnz
    assert np.isfinite(found.values).all()
    assert (found.values != 0.0).all()


# Workers


@pytest.mark.parametrize(
    ("name", "form"),
    [(n, scipy.sparse.csr_array) for n in ("idf", "max_abs", "log+idf+unit", "log+max_abs", "auto", "unit")]
    + [(n, np.asarray) for n in ("auto", "log+standard", "max_abs", "idf+unit", "none")],
)
@pytest.mark.parametrize("what", ["numbers", "counts"])
def test_any_division_among_workers_gives_the_same_scaling(name, form, what):
    X = numbers() if what == "numbers" else COUNTS
    features, schema = ingest(form(X))
    weight = np.random.default_rng(1).integers(0, 3, size=len(X)).astype(float)
    wanted = fit_scaling(name, features, weight, Solo(), schema)
    values = wanted.apply(features)

    def work(rows, collective):
        scaling = fit_scaling(name, features.take(rows), weight[rows], collective, schema)
        return scaling, scaling.apply(features)

    for n_parts in (1, 2, 3, 7):
        team = Team(n_parts)
        for scaling, found in team.run(work, parts_of_rows(len(X), n_parts)):
            assert scaling.sparse_steps == wanted.sparse_steps
            if form is np.asarray:
                np.testing.assert_allclose(found.dense, values.dense, atol=1e-6)
            else:
                np.testing.assert_allclose(found.sparse.values, values.sparse.values, rtol=1e-6)
        m = X.shape[1]
        assert team.shapes <= {(1,), (6,), (m,), (m + 1,), (2, m)}


# Files


@pytest.mark.parametrize("kind", ["dense", "csr", "dicts", "frame"])
@pytest.mark.parametrize("name", ["auto", *NAMES])
def test_a_scaling_survives_a_file(name, kind, tmp_path):
    X = numbers()
    rows = {
        "dense": X,
        "csr": scipy.sparse.csr_array(X),
        "dicts": [{f"c{j}": float(v) for j, v in enumerate(row) if v} for row in X],
        "frame": pd.DataFrame(X).rename(columns=str).assign(city=np.resize(["Rome", "Oslo", None], 60)),
    }[kind]
    model = gbun.train({"scale": name, "n_neurons": 4, "init": "constant"}, (rows, X[:, 0]), 2)
    model.save_model(tmp_path / "m.gbun")
    again = gbun.load_model(tmp_path / "m.gbun")
    assert (again.ensemble.scaling.name, again.ensemble.scaling.sparse_steps) == (
        name, model.ensemble.scaling.sparse_steps
    )  # fmt: skip
    np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    assert np.ptp(model.decision_function(rows)) > 0.0


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("scaling.buckets", {"n": 256, "hashed": True}, r"scaling.factor must be float32 of shape \(256,\)"),
        ("scaling.buckets", {"n": 1000, "hashed": True}, "hashed buckets must be a power of 2, .* got 1000"),
        ("scaling.buckets", {"n": 10, "hashed": False}, r"as many as the schema's \(9\), got 10"),
        ("scaling.buckets", None, r"not expected \['scaling.factor'\]"),
        ("scaling.steps", ["idf", "log"], "scaling.steps must be a list of scaling steps, in"),
        ("scaling.steps", ["log+idf"], "scaling.steps must be a list of scaling steps"),
        ("scaling.steps", ["none"], "scaling.steps must be a list of scaling steps"),
        ("scaling.steps", "idf", "scaling.steps must be a list of scaling steps"),
    ],
)
def test_invalid_buckets_and_steps_in_files_are_refused(path, value, message, tmp_path):
    X = scipy.sparse.csr_array(numbers())
    model = gbun.train({"scale": "idf", "n_neurons": 4, "init": "constant"}, (X, np.arange(60.0)), 1)
    header, tensors = parts_of(model.ensemble, model.description)
    refuse(tmp_path / "m", forged(altered(header, path.split("."), value), tensors), message)
