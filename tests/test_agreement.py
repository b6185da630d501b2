"""Workers read their shares of the rows as a single worker reads all rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import gbun
from gbun.collectives import Solo
from gbun.collectives.threads import in_threads
from gbun.config import Parameters
from gbun.data.ingest import ingest
from gbun.problem import Dataset, read_problem
from tests.share_cases import (
    CITY,
    FORMS,
    FRAME,
    NUMBERS,
    SIZES,
    N,
    Y,
    assert_same_classes,
    assert_same_features,
    divide,
    read_shares,
    take,
)


def read_alone(X, y, **options):
    return read_problem(Parameters(**options.pop("parameters", {})), Dataset(X, y), options.pop("evals", {}), **options)


def assert_shares_of(single, rows, problems):
    """Check that the problem of each worker is that of one worker with all rows, for the rows of its share."""
    for some, problem in zip(rows, problems, strict=True):
        indices = np.array(some, dtype=int)
        assert problem.schema == single.schema
        assert problem.collective.size == len(problems)
        assert_same_features(problem.shard.features, single.shard.features.take(indices))
        assert (problem.target.task, problem.target.objective) == (single.target.task, single.target.objective)
        assert_same_classes(problem.target.classes, single.target.classes)
        for local, expected in ((problem.target.y, single.target.y), (problem.shard.y, single.shard.y)):
            np.testing.assert_array_equal(local, expected[indices])
            assert local.dtype == np.float64
            assert local.ndim == expected.ndim


# Features


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_features_of_shares_are_those_of_all_rows(form, size):
    single = read_alone(FORMS[form], Y, collective=Solo())
    assert_same_features(single.shard.features, ingest(FORMS[form])[0])
    for seed in range(3):
        rows, shares = divide((FORMS[form], Y), size, seed)
        assert_shares_of(single, rows, read_shares(shares))


def test_64_workers_and_few_rows():
    data = FRAME[:20], np.array(CITY[:4] * 5)
    rows, shares = divide(data, 64)
    assert_shares_of(read_alone(*data), rows, read_shares(shares))


EMPTY = {
    "array": np.zeros((0, 7)),
    "vector": np.zeros(0),
    "csr": scipy.sparse.csr_array((0, 2)),
    "csr without columns": scipy.sparse.csr_array((0, 0)),
    "pandas": pd.DataFrame(columns=["z"]),
    "polars": pl.DataFrame(),
    "list": [],
    "tuple": (),
}


@pytest.mark.parametrize("form", ["array", "csr", "pandas", "categories", "dicts", "tokens"])
@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY)
def test_empty_share_of_any_form_takes_the_form_of_the_others(form, empty):
    single, rows = read_alone(FORMS[form], Y), (range(0), range(N))
    assert_shares_of(single, rows, read_shares([(empty, []), (FORMS[form], Y)]))
    assert_shares_of(single, rows[::-1], read_shares([(FORMS[form], Y), (empty, np.zeros((0, 1)))]))


def trim(X):
    """Cut a sparse matrix off after its last column with an entry, as a file of a share would be."""
    X = scipy.sparse.csr_array(X)
    return scipy.sparse.csr_array((X.data, X.indices, X.indptr), (X.shape[0], int(X.indices.max(initial=-1)) + 1))


@pytest.mark.parametrize("size", SIZES)
def test_sparse_shares_have_as_many_columns_as_the_widest(size):
    X = scipy.sparse.csr_array(np.diag([0.0, 0.0, *range(1, 9), 0.0])[:, :10])
    y, single = np.arange(11.0), read_alone(X, np.arange(11.0))
    rows, shares = divide((X, y), size)
    shares = [(trim(x), t) for x, t in shares]
    assert size == 1 or len({x.shape[1] for x, _ in shares}) > 1
    assert trim(X[:2]).shape == (2, 0)  # a share may have rows and no column
    shares.append((trim(X[:2]), y[:2]))
    found = read_shares(shares, [{"t": share} for share in shares])
    assert_shares_of(single, [*rows, [0, 1]], found)
    for problem in found:
        assert_same_features(problem.shards["t"].features, problem.shard.features)


def test_sparse_share_of_an_evaluation_set_may_be_narrow_where_training_was_dense():
    X = np.diag([0.0, 0.0, *range(1, 7)])
    sets = [{"t": (trim(X[:4]), Y[:4])}, {"t": (trim(X[4:]), Y[4:8])}]
    first, second = read_shares([(X[:4], Y[:4]), (X[4:], Y[4:8])], sets)
    np.testing.assert_array_equal(first.shards["t"].features.dense, X[:4])
    np.testing.assert_array_equal(second.shards["t"].features.dense, X[4:])


WORDS, NONE = ["Rome", None, "Oslo"], pd.Series([None] * 3, dtype=object)
COLUMNS = {
    "words and missing floats": ([WORDS, [np.nan] * 3], True),
    "words and missing objects": ([WORDS, NONE], True),
    "words and missing categories": ([WORDS, NONE.astype("category")], True),
    "words and missing strings": ([WORDS, pd.Series([None] * 3, dtype="string")], True),
    "words and categories": ([WORDS, pd.Categorical(["Oslo", "Bonn", None])], True),
    "other categories": ([pd.Categorical(["a", "b", "b"]), pd.Categorical(["c", "b", None])], True),
    "numbers as categories": ([pd.Categorical([1, 2, 2]), pd.Categorical([3.0, None, 2.0])], True),
    "numbers and missing objects": ([[1.5, 2.0, np.nan], NONE], False),
    "numbers and missing words": ([[1, 2, 3], NONE.astype("string")], False),
    "numbers and missing categories": ([[1, 2, 3], NONE.astype("category")], False),
    "integers and floats": ([[1, 2, 3], [0.5, np.nan, 2.0]], False),
    "truth values and integers": ([[True, False, True], pd.Series([1, None, 0], dtype="Int64")], False),
    "objects that are numbers": ([pd.Series([1, None, 2.5], dtype=object), [1.0, 2.0, 3.0]], False),
    "all missing": ([[np.nan] * 3, [np.nan] * 3], False),
    "all missing, of objects": ([NONE, [np.nan] * 3], True),
}


@pytest.mark.parametrize(("shares", "categorical"), COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_column_of_a_frame_is_numbers_or_categories_on_all_workers(shares, categorical, order):
    parts = [pd.DataFrame({"x": [0.5, 1.5, 2.5], "z": shares[i]}) for i in order]
    X = pd.DataFrame({"x": [0.5, 1.5, 2.5] * 2})
    if categorical:
        values = [value for part in parts for value in part["z"].astype(object)]
        X["z"] = pd.Series([None if pd.isna(v) else str(v).removesuffix(".0") for v in values], dtype=object)
    else:
        X["z"] = np.concatenate([part["z"].to_numpy(float, na_value=np.nan) for part in parts])
    single = read_alone(X, Y[:6])
    assert (single.schema.kind == "frame") == categorical
    found = read_shares([(parts[0], Y[:3]), ([], []), (parts[1], Y[3:6])])
    assert_shares_of(single, (range(3), range(0), range(3, 6)), found)


def test_share_of_an_evaluation_set_may_miss_a_column():
    numbers, words = FRAME[["age", "size"]], FRAME[["age", "city"]]
    for frame, column in ((numbers, "size"), (words, "city")):
        missing = frame[:4].assign(**{column: pd.Series([None] * 4, dtype=object)})
        found = read_shares([(frame, Y), (frame, Y)], [{"t": (missing, Y[:4])}, {"t": (frame[4:], Y[4:])}])
        expected, schema = ingest(frame.assign(**{column: frame[column].where(np.arange(N) >= 4)}))
        assert found[0].schema == schema
        assert_same_features(found[0].shards["t"].features, expected.block(0, 4))
        assert_same_features(found[1].shards["t"].features, expected.block(4, N))


def test_shares_of_several_libraries():
    numbers = FRAME[["age", "size"]]
    found = read_shares([(numbers.to_numpy(), Y), (numbers, Y), (pl.DataFrame(numbers), Y)])
    assert {p.schema for p in found} == {ingest(numbers)[1]}
    missing = pl.DataFrame({"age": Y, "city": [None] * N})
    expected = ingest(pd.DataFrame(missing.to_dict(as_series=False)).astype({"city": object}))[0]
    for words in (FRAME[["age", "city"]], pl.DataFrame(FRAME[["age", "city"]])):
        found = read_shares([(missing, Y), (words, Y)])
        assert {p.schema for p in found} == {ingest(words)[1]}
        assert_same_features(found[0].shard.features, expected)


def test_rows_without_entries_take_the_form_of_the_others():
    for empty, row in (({}, {"a": 1.0}), ([], ["a"])):
        found = read_shares([([empty, empty], Y[:2]), ([row, empty], Y[:2])])
        expected, schema = ingest([empty, row])
        assert [p.schema for p in found] == [schema] * 2
        assert_same_features(found[0].shard.features, expected.take(np.array([0, 0])))


# Targets

TARGETS = {
    "numbers": (Y, None, {}),
    "integers are numbers": (np.arange(N) % 3, None, {}),
    "integers as classes": (np.arange(N) % 3 - 1, "classification", {}),
    "floats as classes": ((np.arange(N) % 3) / 3, "classification", {}),
    "float32 as classes": (((np.arange(N) % 4) / 3).astype(np.float32), "classification", {}),
    "two classes": (np.arange(N) % 2 == 0, None, {}),
    "truth values are numbers": (np.arange(N) % 2 == 0, "regression", {}),
    "bytes": (np.array([b"no", b"yes"])[np.arange(N) % 2], None, {}),
    "words": (np.array(["Rome", "Köln", "a longer name", "\ud800"])[np.arange(N) % 4], None, {}),
    "words in objects": (np.array(["Rome", "Köln"], dtype=object)[np.arange(N) % 2], None, {}),
    "integers in objects": ((np.arange(N) % 3).astype(object), None, {}),
    "truth values in objects": ((np.arange(N) % 3 == 0).astype(object), None, {}),
    "pandas": (pd.Series(CITY).fillna("none"), None, {}),
    "softmax": (np.arange(N) % 2, None, {"objective": "softmax"}),
    "columns": (np.column_stack([Y, Y**2, -Y]), None, {}),
    "labels": (np.column_stack([Y > 0, Y > 0.5]), None, {}),
    "labels by name": ((np.column_stack([Y > 0, Y > 0.5])).astype(int), "classification", {}),
    "poisson": (np.arange(N) % 5, None, {"objective": "poisson"}),
}
if hasattr(np.dtypes, "StringDType"):  # since NumPy 2.0
    TARGETS["strings of any length"] = (np.array(["x", "yy"], dtype="T")[np.arange(N) % 2], None, {})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("y", "task", "parameters"), TARGETS.values(), ids=TARGETS)
def test_targets_of_shares_are_those_of_all_rows(y, task, parameters, size):
    X = NUMBERS
    single = read_alone(X, y, parameters=parameters, evals={"t": Dataset(X, y)}, task=task)
    for seed in range(2):
        rows, shares = divide((X, y), size, seed)
        sets = [{"t": (X[::-1], take(y, range(N - 1, -1, -1)))}] + [{"t": ([], [])}] * (size - 1)
        found = read_shares(shares, sets, task, **parameters)
        assert_shares_of(single, rows, found)
        assert {problem.shards["t"].y.shape[1:] for problem in found} == {single.shard.y.shape[1:]}


def test_classes_are_those_of_all_workers():
    found = read_shares([(NUMBERS[:3], [1] * 3), (NUMBERS[:1], [7]), (NUMBERS[:2], [4, 1])], task="classification")
    for problem, y in zip(found, ([0, 0, 0], [2], [1, 0]), strict=True):
        assert problem.target.classes.tolist() == [1, 4, 7]
        assert problem.target.y.tolist() == y
        assert problem.target.objective.n_outputs(problem.target.y) == 3


KINDS = {
    "integers and floats": ([[1, 2], [0.5, 2.0]], "classification"),
    "integers of two sizes": ([np.array([1, 2], np.int8), np.array([300, 2])], "classification"),
    "truth values and integers": ([[True, False], [0, 2]], "classification"),
    "truth values and integers are numbers": ([[True, False], [0, 2]], None),
    "words of two lengths": ([["a", "b"], ["ccc", "a"]], None),
    "objects and integers": ([np.array([1, 2], dtype=object), np.array([2, 3])], None),
    "objects and floats are numbers": ([np.array([1, 2], dtype=object), np.array([2.5, 3])], "regression"),
    "tiny numbers and others": ([[1e-35, 0.0], [1.0, 2.0]], None),
}


@pytest.mark.parametrize(("shares", "task"), KINDS.values(), ids=KINDS)
def test_type_of_targets_is_that_of_the_concatenated_shares(shares, task):
    single = read_alone(NUMBERS[:4], np.concatenate(shares), task=task)
    found = read_shares([(NUMBERS[:2], shares[0]), (NUMBERS[2:4], shares[1]), ([], [])], task=task)
    assert_shares_of(single, ([0, 1], [2, 3], []), found)


def test_weights_may_be_zero_on_a_worker_and_margins_missing_on_an_empty_one():
    margin, labels = np.ones((N, 3)), np.arange(N) % 3
    shares = [(NUMBERS, labels, np.zeros(N), margin), ([], [], None, None), (NUMBERS, labels, None, margin)]
    found = read_shares(shares, [{"t": share} for share in shares], "classification")
    for problem, n in zip(found, (N, 0, N), strict=True):
        for shard in (problem.shard, problem.shards["t"]):
            assert shard.base_margin.shape == (n, 3)
            assert shard.weight.shape == (n,)
    found = read_shares([(NUMBERS, labels), ([], [], [], [])], task="classification")
    assert [p.shard.base_margin for p in found] == [None, None]


def test_model_is_continued_by_all_workers():
    X, y = NUMBERS, np.array(["a", "b", "c"])[np.arange(N) % 3]
    for form in (np.asarray, scipy.sparse.csr_array):
        initial = gbun.train({"n_neurons": 4, "init": "constant"}, (form(X), y), 1)
        single = read_alone(form(X), y)
        assert single.schema == initial.description.schema
        found = read_shares([(form(X[:3]), y[:3]), ([], []), (form(X[3:]), y[3:])], initial=initial)
        assert_shares_of(single, (range(3), range(0), range(3, N)), found)


def test_all_workers_use_the_seed_of_the_root():
    generators = [np.random.default_rng(seed) for seed in (1, 2, 3)]

    def work(collective):
        parameters = Parameters(random_state=generators[collective.rank])
        return read_problem(parameters, Dataset(NUMBERS, Y), {}, collective=collective)

    assert {p.seed for p in in_threads(3, work)} == {int(np.random.default_rng(1).integers(2**31))}
    assert {p.parameters.random_state for p in read_shares([(NUMBERS, Y)] * 3, random_state=5)} == {5}
