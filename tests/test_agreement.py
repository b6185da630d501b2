"""Workers with a share of the rows each read them as one worker would that has them all."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import gbun
from gbun.collectives.threads import in_threads
from gbun.config import Parameters
from gbun.data.ingest import ingest
from gbun.problem import Dataset, read
from share_cases import CITY, FORMS, FRAME, NUMBERS, SIZES, N, Y, divided, problems, same_classes, same_features, take

# Features


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_shares_are_read_as_the_whole(form, size):
    whole = read(Parameters(), Dataset(FORMS[form], Y), {})
    for seed in range(3):
        rows, shares = divided((FORMS[form], Y), size, seed)
        for own, found in zip(rows, problems(shares), strict=True):
            assert found.schema == whole.schema
            assert found.collective.size == size
            same_features(found.shard.features, whole.shard.features.take(own))
            np.testing.assert_array_equal(found.shard.y, Y[own])


def test_64_workers_and_few_rows():
    whole = read(Parameters(), Dataset(FRAME[:20], np.array(CITY[:4] * 5)), {})
    rows, shares = divided((FRAME[:20], np.array(CITY[:4] * 5)), 64)
    for own, found in zip(rows, problems(shares), strict=True):
        assert found.schema == whole.schema
        same_features(found.shard.features, whole.shard.features.take(own))
        same_classes(found.target.classes, whole.target.classes)


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
@pytest.mark.parametrize("nothing", EMPTY.values(), ids=EMPTY)
def test_an_empty_share_of_any_form_follows_the_others(form, nothing):
    whole = read(Parameters(), Dataset(FORMS[form], Y), {})
    for first, second in (((nothing, []), (FORMS[form], Y)), ((FORMS[form], Y), (nothing, np.zeros((0, 1))))):
        found = problems([first, second])
        assert [p.schema for p in found] == [whole.schema] * 2
        for problem in found:
            rows = np.arange(problem.shard.n_rows)
            assert len(rows) in (0, N)
            same_features(problem.shard.features, whole.shard.features.take(rows))


def trimmed(X):
    """A sparse matrix that ends at its last column with an entry, as a file of its own would."""
    X = scipy.sparse.csr_array(X)
    return scipy.sparse.csr_array((X.data, X.indices, X.indptr), (X.shape[0], int(X.indices.max(initial=-1)) + 1))


@pytest.mark.parametrize("size", SIZES)
def test_sparse_shares_have_as_many_columns_as_the_widest(size):
    X = scipy.sparse.csr_array(np.diag([0.0, 0.0, *range(1, 9), 0.0])[:, :10])
    y, whole = np.arange(11.0), read(Parameters(), Dataset(X, np.arange(11.0)), {"t": Dataset(X, np.arange(11.0))})
    rows, shares = divided((X, y), size)
    shares = [(trimmed(x), t) for x, t in shares]
    assert size == 1 or len({x.shape[1] for x, _ in shares}) > 1
    assert trimmed(X[:2]).shape == (2, 0)  # a share may have rows, and no column
    shares.append((trimmed(X[:2]), y[:2]))
    sets = [{"t": share} for share in shares]
    for own, found in zip([*rows, [0, 1]], problems(shares, sets), strict=True):
        assert found.schema == whole.schema
        for shard in (found.shard, found.shards["t"]):
            same_features(shard.features, whole.shard.features.take(np.array(own, dtype=int)))


def test_a_sparse_share_of_a_set_may_be_narrow_where_training_was_dense():
    X = np.diag([0.0, 0.0, *range(1, 7)])
    sets = [{"t": (trimmed(X[:4]), Y[:4])}, {"t": (trimmed(X[4:]), Y[4:8])}]
    first, second = problems([(X[:4], Y[:4]), (X[4:], Y[4:8])], sets)
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
    "nothing at all": ([[np.nan] * 3, [np.nan] * 3], False),
    "nothing, of objects": ([NONE, [np.nan] * 3], True),
}


@pytest.mark.parametrize(("shares", "categorical"), COLUMNS.values(), ids=COLUMNS)
def test_columns_of_frames_play_one_part(shares, categorical):
    parts = [pd.DataFrame({"x": [0.5, 1.5, 2.5], "z": values}) for values in shares]
    text = [[None if pd.isna(v) else str(v).removesuffix(".0") for v in p["z"].astype(object)] for p in parts]
    for turned in (False, True):
        order = [1, 0] if turned else [0, 1]
        whole = pd.DataFrame({"x": [0.5, 1.5, 2.5] * 2})
        if categorical:
            whole["z"] = pd.Series([v for i in order for v in text[i]], dtype=object)
        else:
            whole["z"] = np.concatenate([parts[i]["z"].to_numpy(float, na_value=np.nan) for i in order])
        wanted, schema = ingest(whole)
        found = problems([(parts[order[0]], Y[:3]), ([], []), (parts[order[1]], Y[3:6])])
        assert {p.schema for p in found} == {schema}
        assert (schema.kind == "frame") == categorical
        for problem, rows in zip(found, (range(3), range(0), range(3, 6)), strict=True):
            same_features(problem.shard.features, wanted.take(np.array(rows, dtype=int)))


def test_an_evaluation_set_may_have_a_column_that_one_share_is_missing():
    numbers, words = FRAME[["age", "size"]], FRAME[["age", "city"]]
    for frame, column in ((numbers, "size"), (words, "city")):
        nothing = frame[:4].assign(**{column: pd.Series([None] * 4, dtype=object)})
        found = problems([(frame, Y), (frame, Y)], [{"t": (nothing, Y[:4])}, {"t": (frame[4:], Y[4:])}])
        wanted, schema = ingest(frame.assign(**{column: frame[column].where(np.arange(N) >= 4)}))
        assert found[0].schema == schema
        same_features(found[0].shards["t"].features, wanted.block(0, 4))
        same_features(found[1].shards["t"].features, wanted.block(4, N))


def test_shares_of_several_libraries():
    named = FRAME[["age", "size"]]
    found = problems([(named.to_numpy(), Y), (named, Y), (pl.DataFrame(named), Y)])
    assert {p.schema for p in found} == {ingest(named)[1]}
    nothing = pl.DataFrame({"age": Y, "city": [None] * N})
    wanted = ingest(pd.DataFrame(nothing.to_dict(as_series=False)).astype({"city": object}))[0]
    for words in (FRAME[["age", "city"]], pl.DataFrame(FRAME[["age", "city"]])):
        found = problems([(nothing, Y), (words, Y)])
        assert {p.schema for p in found} == {ingest(words)[1]}
        same_features(found[0].shard.features, wanted)


def test_rows_without_entries_follow_the_others():
    for empty, row in (({}, {"a": 1.0}), ([], ["a"])):
        found = problems([([empty, empty], Y[:2]), ([row, empty], Y[:2])])
        wanted, schema = ingest([empty, row])
        assert [p.schema for p in found] == [schema] * 2
        same_features(found[0].shard.features, wanted.take(np.array([0, 0])))


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
    "strings of any length": (np.array(["x", "yy"], dtype="T")[np.arange(N) % 2], None, {}),
    "pandas": (pd.Series(CITY).fillna("none"), None, {}),
    "softmax": (np.arange(N) % 2, None, {"objective": "softmax"}),
    "columns": (np.column_stack([Y, Y**2, -Y]), None, {}),
    "labels": (np.column_stack([Y > 0, Y > 0.5]), None, {}),
    "labels by name": ((np.column_stack([Y > 0, Y > 0.5])).astype(int), "classification", {}),
    "poisson": (np.arange(N) % 5, None, {"objective": "poisson"}),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("y", "task", "parameters"), TARGETS.values(), ids=TARGETS)
def test_targets_of_shares_are_those_of_the_whole(y, task, parameters, size):
    X = NUMBERS
    whole = read(Parameters(**parameters), Dataset(X, y), {"t": Dataset(X, y)}, task=task)
    for seed in range(2):
        rows, shares = divided((X, y), size, seed)
        sets = [{"t": (X[::-1], take(y, range(N - 1, -1, -1)))}] + [{"t": ([], [])}] * (size - 1)
        for own, found in zip(rows, problems(shares, sets, task, **parameters), strict=True):
            assert found.target.task == whole.target.task
            assert found.target.objective == whole.target.objective
            same_classes(found.target.classes, whole.target.classes)
            for y_found, y_whole in ((found.target.y, whole.target.y), (found.shard.y, whole.shard.y)):
                np.testing.assert_array_equal(y_found, y_whole[own])
                assert y_found.dtype == np.float64
                assert y_found.ndim == y_whole.ndim
            assert found.shards["t"].y.shape[1:] == whole.shard.y.shape[1:]


def test_classes_are_all_that_any_worker_has():
    found = problems([(NUMBERS[:3], [1] * 3), (NUMBERS[:1], [7]), (NUMBERS[:2], [4, 1])], task="classification")
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
    "tiny ones and others": ([[1e-35, 0.0], [1.0, 2.0]], None),
}


@pytest.mark.parametrize(("shares", "task"), KINDS.values(), ids=KINDS)
def test_kinds_of_targets_are_those_of_all_put_together(shares, task):
    whole = read(Parameters(), Dataset(NUMBERS[:4], np.concatenate(shares)), {}, task=task)
    found = problems([(NUMBERS[:2], shares[0]), (NUMBERS[:2], shares[1]), ([], [])], task=task)
    for problem, rows in zip(found, ([0, 1], [2, 3], []), strict=True):
        assert problem.target.task == whole.target.task
        same_classes(problem.target.classes, whole.target.classes)
        np.testing.assert_array_equal(problem.target.y, whole.target.y[rows])


def test_weights_may_be_zero_on_a_worker_and_margins_missing_on_an_empty_one():
    zero, margin = np.zeros(N), np.ones((N, 3))
    labels = np.arange(N) % 3
    shares = [(NUMBERS, labels, zero, margin), ([], [], None, None), (NUMBERS, labels, None, margin)]
    found = problems(shares, [{"t": share} for share in shares], "classification")
    for problem, n in zip(found, (N, 0, N), strict=True):
        for shard in (problem.shard, problem.shards["t"]):
            assert shard.base_margin.shape == (n, 3)
            assert shard.weight.shape == (n,)
    found = problems([(NUMBERS, labels), ([], [], [], [])], task="classification")
    assert [p.shard.base_margin for p in found] == [None, None]


def test_a_model_is_continued_by_all():
    X, y = NUMBERS, np.array(["a", "b", "c"])[np.arange(N) % 3]
    for form in (np.asarray, scipy.sparse.csr_array):
        initial = gbun.train({"n_neurons": 4, "init": "constant"}, (form(X), y), 1)
        found = problems([(form(X[:3]), y[:3]), ([], []), (form(X[3:]), y[3:])], initial=initial)
        for problem, rows in zip(found, (range(3), range(0), range(3, N)), strict=True):
            assert problem.schema == initial.description.schema
            same_classes(problem.target.classes, initial.classes)
            same_features(problem.shard.features, ingest(form(X))[0].take(np.array(rows, dtype=int)))


def test_all_workers_have_the_first_ones_seed():
    drawn = [np.random.default_rng(seed) for seed in (1, 2, 3)]

    def work(collective):
        return read(Parameters(random_state=drawn[collective.rank]), Dataset(NUMBERS, Y), {}, collective=collective)

    assert {p.seed for p in in_threads(3, work)} == {int(np.random.default_rng(1).integers(2**31))}
    assert {p.parameters.random_state for p in problems([(NUMBERS, Y)] * 3, random_state=5)} == {5}


class Silent:
    """A cluster of one that has nobody to talk to."""

    rank, size = 0, 1


def test_one_worker_sends_nothing():
    for form in FORMS.values():
        problem = read(Parameters(), Dataset(form, Y), {"t": Dataset(form, Y)}, None, None, Silent())
        same_features(problem.shard.features, ingest(form)[0])
    read(Parameters(), Dataset(NUMBERS, CITY[:4] * 15), {}, None, None, Silent())
