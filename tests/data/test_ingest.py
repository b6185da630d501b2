"""Every accepted form of rows, targets and weights gives the same model as their plain form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import gbun
from gbun import GBUNClassifier, GBUNRegressor
from gbun.networks import hash_name
from tests.trainings import arrays_of, assert_same_model

SMALL = {"n_estimators": 4, "n_neurons": 8, "density": 0.5}
N = 60


def numbers(seed=0):
    """Small integers, which every dtype holds exactly; a third are zero."""
    return np.random.default_rng(seed).choice([0, 0, 1, 2, 3, 5], size=(N, 4))


Y = (numbers() @ [1.0, -1.0, 0.5, 0.0]) + np.sin(np.arange(N))


def fit(X, y=Y, *, eval_set=None, **parameters):
    return GBUNRegressor(**{**SMALL, **parameters}).fit(X, y, eval_set=eval_set)


def assert_like_plain(X, plain, **parameters):
    """The estimator and the native API read X as `plain`, in training, evaluation and prediction."""
    wanted = fit(plain, eval_set=[(X, Y), (plain, Y)], **parameters)
    assert wanted.evals_result_["eval_0"] == wanted.evals_result_["eval_1"]
    for model in (fit(X, **parameters), gbun.train({**SMALL, **parameters}, (X, Y))):
        assert_same_model(model, wanted)
        np.testing.assert_array_equal(model.predict(X), wanted.predict(plain))


def readonly(array):
    array = array.copy()
    array.flags.writeable = False
    return array


# Arrays

DTYPES = ["f2", "f4", "f8", "g", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">f4", ">f8", ">i4", ">u2", "O", "?"]
LAYOUTS = {
    "Fortran": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": lambda X: X.T.copy().T,
    "read-only": readonly,
    "list of lists": np.ndarray.tolist,
    "list of arrays": list,
    "tuple of tuples": lambda X: tuple(map(tuple, X.tolist())),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_numbers(dtype):
    X = numbers().astype(dtype)
    assert_like_plain(X, X.astype(np.float64))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_layouts(layout, dtype):
    assert_like_plain(layout(numbers().astype(dtype)), numbers().astype(np.float64))


def test_a_file_mapped_into_memory(tmp_path):
    np.save(tmp_path / "X.npy", numbers().astype(np.float32))
    assert_like_plain(np.load(tmp_path / "X.npy", mmap_mode="r"), numbers().astype(np.float64))


# Missing values


@pytest.mark.parametrize("scale", ["auto", "standard"])
def test_a_missing_value_contributes_nothing(scale):
    """It gets the mean of its column, at which a centred column is zero."""
    X = numbers().astype(np.float64)
    model = fit(X, scale=scale)
    holes = np.where(np.arange(N)[:, None] % 4 == np.arange(4), np.nan, X)
    np.testing.assert_allclose(model.predict(holes), model.predict(np.where(np.isnan(holes), X.mean(axis=0), X)))


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("scale", ["auto", "standard", "none"])
@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_a_constant_column_changes_nothing(value, scale, form):
    X = numbers().astype(np.float64)
    padded = form(np.column_stack([X, np.full(N, value)]))
    a, b = fit(padded, scale=scale, density=1.0), fit(form(X), scale=scale, density=1.0)
    first, second = arrays_of(a.model_), arrays_of(b.model_)
    if "weights" in first:  # the linear start has a weight for each column
        assert not first["weights"][4:].any()
        first["weights"] = first["weights"][:4]
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    np.testing.assert_array_equal(a.predict(padded), b.predict(form(X)))


# Sparse matrices

KINDS = [getattr(scipy.sparse, f"{k}_{form}") for k in ("csr", "csc", "coo") for form in ("matrix", "array")]


def with_indices(X, dtype):
    for name in ("indices", "indptr", "row", "col"):
        if hasattr(X, name):
            setattr(X, name, getattr(X, name).astype(dtype))
    return X


@pytest.mark.parametrize("indices", [np.int32, np.int64])
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_matrices(kind, indices):
    assert_like_plain(with_indices(kind(numbers().astype(np.float64)), indices), scipy.sparse.csr_array(numbers()))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i8", "u1", "u8", "g", "?"])
def test_types_of_sparse_numbers(dtype):
    X = numbers().astype(dtype)
    assert_like_plain(scipy.sparse.csr_array(X), scipy.sparse.csr_array(X.astype(np.float64)))


def test_parts_of_a_sparse_matrix_may_be_read_only():
    plain = scipy.sparse.csr_array(numbers().astype(np.float32))
    X = scipy.sparse.csr_array((readonly(plain.data), readonly(plain.indices), readonly(plain.indptr)), plain.shape)
    assert_like_plain(X, plain, scale="standard")


def wide(ids, n_columns):
    indptr = np.arange(len(ids) + 1, dtype=np.int64)
    return scipy.sparse.csr_array((np.ones(len(ids)), np.array(ids, dtype=np.int64), indptr), (len(ids), n_columns))


@pytest.mark.parametrize("scale", ["auto", "standard"])
@pytest.mark.parametrize("twin", [2**32, 1], ids=["low words alike", "neighbours"])
def test_ids_of_64_bits_are_distinguished(twin, scale):
    """No id may pass through 32-bit words or float64, which has 53 bits."""
    first = 2**62 + 12345
    X = wide([first, first + twin] * 30, 2**63 - 1)
    model = fit(X, np.tile([0.0, 1.0], 30), n_estimators=60, learning_rate=0.3, scale=scale)
    np.testing.assert_allclose(model.predict(X), np.tile([0.0, 1.0], 30), atol=0.1)
    assert model.n_features_in_ == 2**63 - 1
    np.testing.assert_array_equal(model.predict(X.tocoo()), model.predict(X))


# Dense and sparse at prediction


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", ["auto", "standard", "none"])
def test_a_model_predicts_the_other_form(kind, scale):
    X = numbers().astype(np.float64)
    X[3, 2] = np.nan
    for a, b in [(np.asarray, kind), (kind, np.asarray), (kind, pd.DataFrame)]:
        model = fit(a(X), scale=scale, eval_set=[(a(X), Y), (b(X), Y)])
        assert model.evals_result_["eval_0"] == model.evals_result_["eval_1"]
        np.testing.assert_array_equal(model.predict(b(X)), model.predict(a(X)))
        np.testing.assert_array_equal(model.model_.predict(b(X)), model.predict(a(X)))


# Data frames with a number, a boolean and a name in each row; some of each are missing

AGE = [None if i % 7 == 3 else i % 11 for i in range(N)]
MEMBER = [None if i % 5 == 2 else i % 3 == 0 for i in range(N)]
CITY = [None if i % 6 == 4 else ["Paris", "Rome", "Köln"][i % 3] for i in range(N)]
PLAIN = pd.DataFrame({"age": pd.Series(AGE, dtype=float), "member": pd.Series(MEMBER, dtype=float), "city": CITY})


def pandas_frame(age="float64", member="boolean", city="object"):
    as_numbers = np.array(AGE, dtype=float) if age.startswith("float") else AGE
    return pd.DataFrame(
        {
            "age": pd.Series(as_numbers, dtype=age),
            "member": pd.Series(MEMBER, dtype=member),
            "city": pd.Series(CITY, dtype=city),
        }
    )


PANDAS = [
    *({"age": kind} for kind in ("float32", "Float32", "Float64", "Int8", "Int64", "UInt16", "int64[pyarrow]")),
    *({"member": kind} for kind in ("boolean", "Float64", "bool[pyarrow]")),
    *({"city": kind} for kind in ("object", "string", "category", "string[pyarrow]", "str")),
]


@pytest.mark.parametrize("kinds", PANDAS, ids=[f"{c} {k}" for kinds in PANDAS for c, k in kinds.items()])
def test_pandas_frames(kinds):
    frame = pandas_frame(**kinds)
    if kinds.get("city") == "str":
        frame["city"] = frame["city"].where(PLAIN["city"].notna(), None)
    assert_like_plain(frame, PLAIN)
    if "city" not in kinds:
        plain = PLAIN[["age", "member"]].to_numpy()
        assert_like_plain(frame[["age", "member"]], plain)


POLARS = {
    "age": [pl.Float32, pl.Float64, pl.Int8, pl.Int64, pl.UInt16],
    "member": [pl.Boolean, pl.Float64, pl.Int8],
    "city": [pl.String, pl.Categorical, pl.Enum(["Rome", "Paris", "Köln", "Oslo"])],
}


@pytest.mark.parametrize(("column", "kind"), [(c, k) for c, kinds in POLARS.items() for k in kinds])
def test_polars_frames(column, kind):
    frame = pl.DataFrame({"age": AGE, "member": MEMBER, "city": CITY}).with_columns(pl.col(column).cast(kind))
    assert_like_plain(frame, PLAIN)
    assert_like_plain(frame.select("age", "member"), PLAIN[["age", "member"]].to_numpy())
    np.testing.assert_array_equal(fit(PLAIN).predict(frame), fit(frame).predict(PLAIN))


def test_categories_go_by_name_not_by_code():
    model = fit(PLAIN)
    for categories in (["Köln", "Paris", "Rome"], ["Oslo", "Rome", "Paris", "Köln"]):
        frame = PLAIN.assign(city=pd.Categorical(CITY, categories=categories, ordered=True))
        np.testing.assert_array_equal(model.predict(frame), model.predict(PLAIN))
    codes = PLAIN.assign(city=pd.Categorical([{"Paris": 1, "Rome": 2, "Köln": 3}.get(c) for c in CITY]))
    digits = PLAIN.assign(city=[{"Paris": "1", "Rome": "2", "Köln": "3"}.get(c) for c in CITY])
    assert_same_model(fit(codes), fit(digits))
    assert fit(PLAIN).feature_names_in_.tolist() == ["age", "member", "city"]


def test_a_whole_number_is_the_same_category_whatever_its_type():
    """A missing value turns integers of pandas into floats."""
    codes = np.arange(N) % 3
    frames = [PLAIN.assign(city=pd.Categorical(codes.astype(kind))) for kind in (int, float, str)]
    for other in frames[1:]:
        assert_same_model(fit(other), fit(frames[0]))
        np.testing.assert_array_equal(fit(frames[0]).predict(other), fit(frames[0]).predict(frames[0]))
    hole = PLAIN.assign(city=pd.Series([np.nan, *codes[1:]]).astype("category"))
    assert hole["city"].cat.categories.dtype == float
    np.testing.assert_array_equal(fit(frames[0]).predict(hole)[1:], fit(frames[0]).predict(frames[0])[1:])
    halves = PLAIN.assign(city=pd.Categorical(codes + 0.5))
    assert_same_model(fit(halves), fit(PLAIN.assign(city=[f"{c}.5" for c in codes])))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_objects_that_are_numbers_are_numbers(missing):
    plain = PLAIN.assign(age=[np.nan, *np.arange(1.0, N)])
    objects = pd.Series([missing, *range(1, 30), *np.arange(30.0, N - 1), np.float32(N - 1)], dtype=object)
    assert_like_plain(PLAIN.assign(age=objects), plain)
    assert_like_plain(PLAIN.assign(member=PLAIN["member"].astype(object)), PLAIN)


@pytest.mark.parametrize(
    ("mixed", "words"),
    [
        (["a", 1], "must hold numbers only, or strings only, got both: 1 and 'a'"),
        ([1, "a"], "must hold numbers only, or strings only, got both: 1 and 'a'"),
        (["a", [1]], "must hold numbers, or strings, or be of type category, got list in it"),
    ],
)
def test_objects_of_several_kinds_are_refused(mixed, words):
    with pytest.raises(ValueError, match=rf"X\['city'\] {words}"):
        fit(PLAIN.assign(city=pd.Series(mixed * (N // 2), dtype=object)))


def test_a_missing_category_has_no_entry_and_a_new_one_is_accepted():
    model = fit(PLAIN)
    missing = model.predict(PLAIN.assign(city=pd.Series([None] * N, dtype=object)))
    assert np.isfinite(model.predict(PLAIN.assign(city="Oslo"))).all()
    np.testing.assert_array_equal(missing[[4, 10]], model.predict(PLAIN)[[4, 10]])  # those have no city anyway
    for nothing in (PLAIN.assign(city=np.nan), pl.DataFrame(PLAIN.assign(city=None)).with_columns(city=pl.lit(None))):
        np.testing.assert_array_equal(model.predict(nothing), missing)


def test_a_frame_of_sparse_columns():
    frame = pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(numbers()), columns=list("abcd"))
    model = fit(frame)
    assert model.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.sparse.to_dense()))


# Dicts and tokens

DICTS = [{"age": a, "city": c, "member": m} for a, c, m in zip(AGE, CITY, MEMBER, strict=True)]


def test_every_kind_of_value_in_a_dict():
    plain = [{k: v for k, v in row.items() if v is not None} for row in DICTS]
    assert_like_plain(DICTS, plain)
    assert_like_plain([{k: np.nan if k == "age" and v is None else v for k, v in row.items()} for row in DICTS], plain)
    assert_like_plain([dict(reversed(row.items())) for row in DICTS], plain)
    assert_like_plain(tuple(DICTS), plain)
    flat = [{"age": r.get("age"), f"city={r.get('city')}": int("city" in r), "member": r.get("member")} for r in plain]
    assert_like_plain(flat, plain)  # a string is the feature name=string with value 1
    kinds = [np.float32, np.int16, float, np.uint8]
    assert_like_plain(
        [{**row, "age": None if row["age"] is None else kinds[i % 4](row["age"])} for i, row in enumerate(DICTS)], plain
    )


def test_names_are_ids_by_their_hash():
    names = [f"n{i % 5}" for i in range(N)]
    X = wide([hash_name(name) for name in names], 2**63 - 1)
    assert_same_model(fit([{name: 1} for name in names], density=1.0), fit(X, density=1.0))
    assert_same_model(fit([[name] for name in names]), fit([{name: 1.0} for name in names]))
    assert_same_model(fit([(name,) for name in names]), fit([[name] for name in names]))
    assert not hasattr(fit([[name] for name in names]), "n_features_in_")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.text(max_size=4), max_size=4), min_size=2, max_size=8).filter(any))
def test_any_words_are_their_counts(rows):
    counts = [{word: row.count(word) for word in row} for row in rows]
    y = np.arange(len(rows), dtype=float)
    given = {"n_estimators": 1, "scale": "log+idf+unit"}
    assert_same_model(fit(rows, y, **given), fit(counts, y, **given))


def test_empty_rows_among_others():
    named, tokens = fit([{}, {"a": 1.0}, {"b": 1.0}] * 20), fit([[], ["a"], ["b"]] * 20)
    assert_same_model(named, tokens)
    np.testing.assert_array_equal(named.predict([{}, {"a": 1.0}]), tokens.predict([[], ["a"]]))
    alike = named.predict([{}, {"a": 0.0}, {"a": None}, {"c": 0.0}])
    np.testing.assert_array_equal(alike, alike[0])


@pytest.mark.parametrize("empty", [{}, []], ids=["dict", "tokens"])
def test_a_batch_of_empty_rows_alone(empty):
    rows = [{"a": 1.0} if empty == {} else ["a"], empty] * 30
    model = fit(rows)
    wanted = model.predict([empty, rows[0]])[:1]
    np.testing.assert_array_equal(model.predict([empty]), wanted)
    np.testing.assert_array_equal(model.model_.predict([empty]), wanted)


# Targets and weights

TARGETS = {
    "list": list,
    "tuple": tuple,
    "Series": lambda y: pd.Series(y, index=range(100, 100 + N)),
    "nullable": lambda y: pd.Series(y, dtype="Float64"),
    "polars": pl.Series,
    "big-endian": lambda y: y.astype(">f8"),
    "read-only": readonly,
    "strided": lambda y: np.repeat(y, 2)[::2],
    "frame of one column": lambda y: pd.DataFrame({"y": y}),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("form", TARGETS.values(), ids=TARGETS)
def test_forms_of_targets_and_weights(form):
    X, weight = numbers(), np.linspace(0.5, 2.0, N)
    wanted = GBUNRegressor(**SMALL).fit(X, Y, sample_weight=weight)
    assert_same_model(GBUNRegressor(**SMALL).fit(X, form(Y), sample_weight=weight), wanted)
    assert_same_model(gbun.train(SMALL, (X, form(Y), weight)), wanted)
    named = [{"a": row[0], "b": row[1]} for row in X]
    assert_same_model(fit(named, form(Y)), fit(named, Y))
    if form is not TARGETS["frame of one column"]:
        assert_same_model(GBUNRegressor(**SMALL).fit(X, Y, sample_weight=form(weight)), wanted)
        margin = GBUNRegressor(**SMALL).fit(X, Y, base_margin=form(weight))
        assert_same_model(margin, GBUNRegressor(**SMALL).fit(X, Y, base_margin=weight))


@pytest.mark.parametrize("kind", ["Int64", "boolean", "string", "category", "polars", "polars categories", "object"])
def test_forms_of_labels(kind):
    codes = (Y > 0).astype(int)
    labels = codes if kind in ("Int64", "boolean") else np.array(["no", "yes"])[codes]
    plain = GBUNClassifier(**SMALL).fit(numbers(), labels)
    given = (
        pl.Series(labels, dtype=pl.Categorical if "cat" in kind else pl.String)
        if kind.startswith("polars")
        else pd.Series(labels, dtype=kind)
    )
    model = GBUNClassifier(**SMALL).fit(numbers(), given)
    assert_same_model(model, plain)
    np.testing.assert_array_equal(model.predict(numbers()), plain.predict(numbers()))


def bits(given):
    parts = [given.data, given.indices, given.indptr] if scipy.sparse.issparse(given) else [given]
    return [np.array(part) for part in parts]


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, scipy.sparse.csc_array, pd.DataFrame])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_input_is_not_modified(form, dtype):
    X = np.where(np.eye(N, 4) > 0, np.nan, numbers()).astype(dtype)
    parts = form(X), np.arange(N) % 3, np.ones(N), np.zeros((N, 3))
    kept = [bits(part) for part in parts]
    model = GBUNClassifier(**SMALL, scale="standard").fit(*parts[:3], base_margin=parts[3], eval_set=parts[:3])
    model.predict(parts[0], base_margin=parts[3])
    for part, before in zip(parts, kept, strict=True):
        for a, b in zip(bits(part), before, strict=True):
            np.testing.assert_array_equal(a, b)
