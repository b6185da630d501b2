"""Rows from Arrow batches and their predictions, without a Spark session."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import gbun

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
from gbun.spark import contributions, prediction  # noqa: E402
from gbun.spark.rows import InputColumns, VectorReader, WorkerRows, make_reader, read_batches  # noqa: E402
from tests.spark.arrow_batches import S, X, Y, batch, dense, in_batches, sparse, vectors  # noqa: E402


def matrix(*batches):
    reader = VectorReader("vector", "f")
    for rows in batches:
        reader.add(vectors(rows))
    return reader


def test_vectors_keep_their_form_and_a_mixture_takes_the_smaller_one():
    rows = [[0.0, 2.0, 0.0, np.nan], [1.0, 0.0, 3.0, 0.0], [0.0] * 4]
    for form, kind in ((dense, np.ndarray), (sparse, scipy.sparse.csr_array)):
        reader = matrix([form(r) for r in rows[:1]], [], [form(r) for r in rows[1:]])
        X = reader.take_rows(VectorReader.is_dense([reader.layout_stats()]))
        assert isinstance(X, kind)
        np.testing.assert_array_equal(X if kind is np.ndarray else X.toarray(), rows)
    mixed = [[dense(rows[0]), sparse(rows[1])], [dense(rows[2])], [sparse(rows[0])]]
    for is_dense in (True, False):
        X = matrix(*mixed).take_rows(is_dense)
        np.testing.assert_array_equal(X if is_dense else X.toarray(), [rows[0], rows[1], rows[2], rows[0]])
    full, empty = matrix([dense([1.0] * 9), sparse([1.0] * 9)]), matrix([dense([0.0] * 9), sparse([1.0] + [0.0] * 8)])
    assert VectorReader.is_dense([full.layout_stats()])
    assert not VectorReader.is_dense([empty.layout_stats()])
    no_rows = matrix().layout_stats()
    assert VectorReader.is_dense([matrix([dense([1.0] * 9)]).layout_stats(), no_rows])


def test_fifty_four_million_columns_take_no_memory():
    reader = matrix([sparse([1.0, 2.0], size=54_686_452)] * 3)
    X = reader.take_rows(VectorReader.is_dense([reader.layout_stats()]))
    assert X.shape == (3, 54_686_452)
    assert X.data.nbytes + X.indices.nbytes < 100


def test_arrays_tokens_and_plain_columns():
    arrays = make_reader(InputColumns("array", ("a",)))
    arrays.add(pa.array([{"array": [1.0, None]}, {"array": [3.0, 4.0]}]))
    np.testing.assert_array_equal(arrays.take_rows(True), [[1.0, np.nan], [3.0, 4.0]])
    tokens = make_reader(InputColumns("tokens", ("t",)))
    tokens.add(pa.array([{"tokens": ["a", "b", "a"]}, {"tokens": []}]))
    assert tokens.take_rows(False) == [["a", "b", "a"], []]
    frame = make_reader(InputColumns("columns", ("n", "s", "c"), ("c",)))
    plain = pa.struct([("n", pa.float64()), ("s", pa.string()), ("c", pa.float64())])
    for n, s, c in ((1.0, "x", 1.0), (None, None, 2.0), (3.0, "y", None)):
        frame.add(pa.array([{"n": n, "s": s, "c": c}], plain))
    wanted = pd.DataFrame({"n": [1.0, None, 3.0], "s": ["x", None, "y"], "c": pd.Categorical([1.0, 2.0, None])})
    (features, schema), (wanted_features, wanted_schema) = map(
        gbun.data.ingest.ingest, (frame.take_rows(False), wanted)
    )
    np.testing.assert_array_equal(features.sparse.ids, wanted_features.sparse.ids)
    assert schema == wanted_schema
    assert make_reader(InputColumns("columns", ("n", "s"))).take_rows(False).shape == (0, 2)


@pytest.mark.parametrize(("columns", "features", "more", "message"), [
    ({"kind": "vector"}, vectors([None, dense([1.0])]), {}, "column 'f' is null in 1 rows"),
    ({"kind": "vector"}, vectors([dense([1.0]), dense([1.0, 2.0])]), {}, "vectors of one size, got 1, 2"),
    ({"kind": "vector"}, vectors([dense([1.0]), sparse([1.0], size=7)]), {}, "vectors of one size, got 1, 7"),
    ({"kind": "array"}, pa.array([{"array": [1.0]}, {"array": None}]), {}, "column 'f' is null in 1 rows"),
    ({"kind": "tokens"}, pa.array([{"t": ["a"]}, {"t": ["b", None]}]), {}, "column 'f' has 1 tokens that are null"),
    ({"kind": "vector"}, vectors([dense([1.0])] * 2), {"label": [1.0, None]}, "column 'target' is null in 1 rows"),
    ({"kind": "vector", "weight": "w"}, vectors([dense([1.0])] * 2), {"weight": [None, 2.0]}, "column 'w' is null"),
    ({"kind": "vector", "indicator": "v"}, vectors([dense([1.0])] * 2), {"indicator": [None, True]}, "'v' is null"),
])  # fmt: skip
def test_errors_name_the_column(columns, features, more, message):
    rows = batch(features, more.pop("label", [0.0, 1.0]), **more)
    with pytest.raises(ValueError, match=message):
        read_batches([rows], InputColumns(features=("f",), label="target", **columns))


def test_a_fingerprint_depends_on_rows_but_not_on_their_order_division_or_form():
    columns = InputColumns("vector", ("f",), label="y", weight="w")
    rows, y, w = X[:40].copy(), Y[:40], np.abs(Y[:40])
    rows[:, 1] = 0.0

    def fingerprint(order, size, form=dense, more=0.0, y=y, w=w):
        share = WorkerRows(columns)
        for part in in_batches([form(r + more) for r in rows[order]], y[order], size, weight=w[order]):
            share.add(part)
        return share.fingerprint()

    first, other = np.arange(40), np.random.default_rng(1).permutation(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = fingerprint(first, 7)
    assert wanted == fingerprint(other, 40) == fingerprint(other, 9, sparse)
    assert (fingerprint(other[:11], 5) + fingerprint(other[11:], 5)) % 2**64 == wanted
    assert wanted != fingerprint(first, 7, more=1e-9)
    assert wanted != fingerprint(first[:-1], 7)
    # The same values in other rows are other rows.
    for changed in ({"y": y[other]}, {"w": w[other]}, {"y": w, "w": y}):
        assert wanted != fingerprint(first, 7, **changed)


@pytest.mark.parametrize(("kind", "features"), [
    ("tokens", [{"tokens": ["a", "b"]}, {"tokens": []}, {"tokens": ["c"]}]),
    ("columns", [{"n": 1.0, "s": "x"}, {"n": None, "s": None}, {"n": 2.0, "s": "x"}]),
])  # fmt: skip
def test_fingerprints_of_tokens_and_of_plain_columns(kind, features):
    columns = InputColumns(kind, ("n", "s") if kind == "columns" else ("t",), label="y")

    def fingerprint(*batches):
        share = WorkerRows(columns)
        for indices, y in batches:
            share.add(batch(pa.array([features[i] for i in indices], pa.array(features).type), y))
        return share.fingerprint()

    wanted = fingerprint(([0, 1, 2], [1, 2, 3]))
    assert wanted == fingerprint(([2, 0], [3, 1]), ([1], [2])) != fingerprint(([0, 1, 2], [1, 3, 2]))
    assert (fingerprint(([0], [1])) + fingerprint(([1, 2], [2, 3]))) % 2**64 == wanted
    assert fingerprint() == 0


def test_labels_do_not_keep_batches_in_memory(tmp_path):
    """Each batch of a stream is one block of memory: a view of one column keeps all columns."""
    columns, wide = InputColumns("vector", ("f",), label="y", weight="w"), np.ones((100, 1000))
    batches = in_batches([dense(r) for r in wide], np.zeros(100), 25, weight=np.ones(100))
    path = str(tmp_path / "stream")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, batches[0].schema) as stream:
        for part in batches:
            stream.write_batch(part)
    before = pa.total_allocated_bytes()
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
        share, _ = read_batches(stream, columns)
    assert pa.total_allocated_bytes() - before >= wide.nbytes
    features, y, weight = share.take(True)
    assert features.nbytes == wide.nbytes
    assert pa.total_allocated_bytes() - before < wide.nbytes / 10
    assert (y.sum(), weight.sum()) == (0.0, 100.0)
    assert (share.y, share.weights, share.features.parts) == ([], [], [])


# Prediction


PLAIN = pa.struct([("n", pa.float64()), ("s", pa.string())])


@pytest.mark.parametrize(("kind", "features", "data"), [
    ("vector", vectors([dense([1.0, np.nan]), dense([3.0, 0.0])]), np.array([[1.0, np.nan], [3.0, 0.0]])),
    ("vector", vectors([sparse([0.0, 2.0]), dense([3.0, 1.0])]), np.array([[0.0, 2.0], [3.0, 1.0]])),
    ("array", pa.array([{"array": [1.0, None]}, {"array": [3.0, 4.0]}]), np.array([[1.0, np.nan], [3.0, 4.0]])),
    ("tokens", pa.array([{"tokens": ["a", "b"]}, {"tokens": []}]), [["a", "b"], []]),
    ("columns", pa.array([{"n": 1.0, "s": "x"}, {"n": None, "s": None}], PLAIN),
     pd.DataFrame({"n": [1.0, None], "s": ["x", None]})),
    ("columns", pa.array([{"n": 1.0, "s": None}] * 2, PLAIN), None),
])  # fmt: skip
def test_pandas_batches_predict_as_arrow_batches_do(kind, features, data):
    """Spark below 4.1 passes the struct as a frame of pandas."""
    train_data = {
        "vector": X[:, :2], "array": X[:, :2], "tokens": [["a"] * (i % 3) + ["b"] for i in range(900)],
        "columns": pd.DataFrame({"n": X[:, 0], "s": np.where(X[:, 1] > 0, "x", "y")}),
    }[kind]  # fmt: skip
    model = gbun.train({"n_neurons": 16, "n_estimators": 3}, (train_data, Y), task="regression")
    columns = InputColumns(kind, ("n", "s") if kind == "columns" else ("f",))
    frame = pd.DataFrame({field.name: features.field(field.name).to_pandas() for field in features.type})

    def predict(struct):
        return prediction.predict_batch(model, struct, columns, ["prediction"], 1)

    found = predict(prediction._to_struct(frame, columns))
    assert found.equals(predict(features))
    if data is not None:
        np.testing.assert_array_equal(found.field("prediction").to_numpy(), model.predict(data))
    assert len(predict(prediction._to_struct(frame[:0], columns))) == 0


@pytest.mark.parametrize("n_scores", [1, 3])
@pytest.mark.parametrize("kind", ["dense", "sparse", "tokens"])
def test_batches_of_contributions_are_those_of_explain(kind, n_scores, monkeypatch):
    y = Y if n_scores == 1 else np.digitize(Y, [-0.4, 0.4])
    words = [[f"w{j}" for j in S[[i]].indices] for i in range(30)]
    data, features = {
        "dense": (X, vectors([dense(row) for row in X[:30]])),
        "sparse": (S, vectors([sparse(row) for row in S[:30].toarray()])),
        "tokens": (words * 30, pa.array([{"tokens": row} for row in words])),
    }[kind]  # fmt: skip
    task = "regression" if n_scores == 1 else "classification"
    model = gbun.train({"n_neurons": 16, "n_estimators": 3}, (data, y), task=task)
    columns = InputColumns("tokens" if kind == "tokens" else "vector", ("f",))
    outputs = contributions.contribution_outputs(model)
    assert outputs[1:] == {"dense": [], "sparse": ["indices"], "tokens": ["tokens"]}[kind]
    found = prediction.predict_batch(model, features, columns, outputs, 1)
    explained = model.explain(data[:30])
    base = explained.base.reshape(30, n_scores)
    parts = explained.values if isinstance(explained.values, list) else [explained.values]
    if kind == "dense":
        parts = list(explained.values.reshape(30, -1, n_scores).transpose(2, 0, 1))
    for c, part in enumerate(parts):
        for i, row in enumerate(found.to_pylist()):
            values = row["contributions"][c]
            assert values[-1] == pytest.approx(base[i, c])
            if kind == "dense":
                wanted = part[i]
            else:
                wanted = part[[i]].data
                at = part[[i]].indices
                keys = [*at, 80] if kind == "sparse" else [*(explained.names[j] for j in at), "(base)"]
                assert row[outputs[1]] == keys
            np.testing.assert_allclose(values[:-1], wanted, atol=1e-12)
    monkeypatch.setattr(contributions, "BLOCK_NUMBERS", 50)  # dense rows are explained a few at a time
    again = prediction.predict_batch(model, features, columns, outputs, 1)
    for one, other in zip(found.to_pylist(), again.to_pylist(), strict=True):
        np.testing.assert_allclose(one["contributions"], other["contributions"], rtol=1e-2, atol=1e-4)
    assert len(prediction.predict_batch(model, features[:0], columns, outputs, 1)) == 0


def test_batches_of_contributions_that_cannot_be_kept_are_refused(monkeypatch):
    model = gbun.train({"n_neurons": 16, "n_estimators": 1}, ([["a"], ["(base)"]] * 9, [0.0, 1.0] * 9))
    columns = InputColumns("tokens", ("f",))
    batch = pa.array([{"tokens": ["(base)"]}])
    with pytest.raises(ValueError, match=r"a token is '\(base\)', which is the key of the base .*column 'f'"):
        prediction.predict_batch(model, batch, columns, ["contributions", "tokens"], 1)
    model = gbun.train({"n_neurons": 16, "n_estimators": 1}, (X, Y))
    monkeypatch.setattr(contributions, "MAX_NUMBERS", 20)
    batch = vectors([dense(row) for row in X[:4]])
    with pytest.raises(ValueError, match=r"4 rows of a batch have 24 contributions.*maxRecordsPerBatch to at most 3"):
        prediction.predict_batch(model, batch, InputColumns("vector", ("f",)), ["contributions"], 1)


def test_a_process_keeps_the_last_models(monkeypatch):
    reads = []
    monkeypatch.setattr(prediction, "_model_cache", {})
    monkeypatch.setattr(prediction, "model_from_bytes", lambda content, name: reads.append(content) or object())
    contents = [bytes([i]) for i in range(prediction.MAX_CACHED_MODELS)]
    models = [prediction.cached_model(content, content) for content in contents]
    assert [prediction.cached_model(content, content) for content in contents] == models
    prediction.cached_model(b"new", b"new")
    assert prediction.cached_model(contents[1], contents[1]) is models[1]
    assert reads == [*contents, b"new"]
    assert prediction.cached_model(contents[0], contents[0]) is not models[0]
    assert len(prediction._model_cache) == prediction.MAX_CACHED_MODELS


def test_null_vectors_of_pandas_are_refused():
    columns = InputColumns("vector", ("f",))
    frame = pd.DataFrame({"type": [1.0, None], "size": [0.0, None], "indices": [[], None], "values": [[1.0], None]})
    with pytest.raises(ValueError, match="column 'f' is null in 1 rows"):
        make_reader(columns).add(prediction._to_struct(frame, columns))
