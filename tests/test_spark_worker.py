"""What a worker of a training on Spark does, without Spark: rows from Arrow, the meeting, progress, parameters."""

from __future__ import annotations

import functools
import json
import socket
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import gbun
from gbun.collectives import WorkerError

pa = pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")
from gbun.spark import worker  # noqa: E402
from gbun.spark.progress import Address, Listener, Progress, Report  # noqa: E402
from gbun.spark.rows import Columns, Matrix, Share, read, reader  # noqa: E402
from gbun.spark.worker import Job, Outcome, work  # noqa: E402

TIMEOUT = 20.0
VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)
rng = np.random.default_rng(0)
X = rng.normal(size=(900, 5))
Y = X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=900)
S = scipy.sparse.random_array((900, 80), density=0.06, rng=rng, format="csr")


class InThreads:
    """Workers that are threads, and meet at a barrier."""

    def __init__(self, size):
        self.barrier, self.said, self.size = threading.Barrier(size), [""] * size, size

    def place(self, rank):
        place = type("Place", (), {"rank": rank, "hosts": ["127.0.0.1"] * self.size})()

        def tell(text):
            self.said[rank] = text
            self.barrier.wait(TIMEOUT)
            return list(self.said)

        place.tell = tell
        return place

    def work(self, shares, job) -> list[Outcome]:
        with ThreadPoolExecutor(self.size) as pool:
            futures = [pool.submit(work, shares[rank], self.place(rank), job) for rank in range(self.size)]
            return [future.result(60) for future in futures]


def dense(row):
    return {"type": 1, "size": None, "indices": None, "values": list(row)}


def sparse(row, size=None):
    row = np.asarray(row)
    at = np.flatnonzero(row)
    return {"type": 0, "size": size or len(row), "indices": at.tolist(), "values": row[at].tolist()}


def vectors(rows):
    return pa.array(rows, VECTOR)


def batch(features, y, **more):
    columns = {"features": features, "label": pa.array(y), **{name: pa.array(values) for name, values in more.items()}}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def in_batches(rows, y, size=100, **more):
    """Batches of vectors."""
    n = len(rows)
    return [
        batch(vectors(rows[i : i + size]), y[i : i + size], **{k: v[i : i + size] for k, v in more.items()})
        for i in range(0, n, size)
    ]


def job(columns=None, task="regression", **more):
    parameters = {"n_neurons": 16, "n_estimators": 4, "n_jobs": 1, "device": "cpu", **more.pop("parameters", {})}
    return Job(parameters, task, columns or Columns("vector", ("features",), label="label"), TIMEOUT, **more)


def matrix(*batches):
    found = Matrix("vector", "f")
    for one in batches:
        found.add(vectors(one))
    return found


# Rows


def test_vectors_keep_their_form_and_a_mixture_takes_the_smaller_one():
    rows = [[0.0, 2.0, 0.0, np.nan], [1.0, 0.0, 3.0, 0.0], [0.0] * 4]
    for form, kind in ((dense, np.ndarray), (sparse, scipy.sparse.csr_array)):
        found = matrix([form(r) for r in rows[:1]], [], [form(r) for r in rows[1:]])
        X = found.rows(Matrix.is_dense([found.said()]))
        assert isinstance(X, kind)
        np.testing.assert_array_equal(X if kind is np.ndarray else X.toarray(), rows)
    mixed = [[dense(rows[0]), sparse(rows[1])], [dense(rows[2])], [sparse(rows[0])]]
    for is_dense in (True, False):
        X = matrix(*mixed).rows(is_dense)
        np.testing.assert_array_equal(X if is_dense else X.toarray(), [rows[0], rows[1], rows[2], rows[0]])
    full, empty = matrix([dense([1.0] * 9), sparse([1.0] * 9)]), matrix([dense([0.0] * 9), sparse([1.0] + [0.0] * 8)])
    assert Matrix.is_dense([full.said()])
    assert not Matrix.is_dense([empty.said()])
    assert Matrix.is_dense([matrix([dense([1.0] * 9)]).said(), matrix().said()])  # a worker that has no rows


def test_fifty_four_million_columns_take_no_memory():
    found = matrix([sparse([1.0, 2.0], size=54_686_452)] * 3)
    X = found.rows(Matrix.is_dense([found.said()]))
    assert X.shape == (3, 54_686_452)
    assert X.data.nbytes + X.indices.nbytes < 100


def test_arrays_tokens_and_plain_columns():
    arrays = reader(Columns("array", ("a",)))
    arrays.add(pa.array([{"array": [1.0, None]}, {"array": [3.0, 4.0]}]))
    np.testing.assert_array_equal(arrays.rows(True), [[1.0, np.nan], [3.0, 4.0]])
    tokens = reader(Columns("tokens", ("t",)))
    tokens.add(pa.array([{"tokens": ["a", "b", "a"]}, {"tokens": []}]))
    assert tokens.rows(False) == [["a", "b", "a"], []]
    frame = reader(Columns("columns", ("n", "s", "c"), ("c",)))
    plain = pa.struct([("n", pa.float64()), ("s", pa.string()), ("c", pa.float64())])
    for n, s, c in ((1.0, "x", 1.0), (None, None, 2.0), (3.0, "y", None)):
        frame.add(pa.array([{"n": n, "s": s, "c": c}], plain))
    found = frame.rows(False)
    wanted = pd.DataFrame({"n": [1.0, None, 3.0], "s": ["x", None, "y"], "c": pd.Categorical([1.0, 2.0, None])})
    same, schema = (gbun.data.ingest.ingest(one) for one in (found, wanted))
    np.testing.assert_array_equal(same[0].sparse.ids, schema[0].sparse.ids)
    assert same[1] == schema[1]
    assert reader(Columns("columns", ("n", "s"))).rows(False).shape == (0, 2)


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
def test_what_is_missing_is_told_by_its_column(columns, features, more, message):
    one = batch(features, more.pop("label", [0.0, 1.0]), **more)
    with pytest.raises(ValueError, match=message):
        read([one], Columns(features=("f",), label="target", **columns))


def test_a_fingerprint_goes_with_rows_not_with_their_order_division_or_form():
    columns = Columns("vector", ("f",), label="y", weight="w")
    rows, y, w = X[:40].copy(), Y[:40], np.abs(Y[:40])
    rows[:, 1] = 0.0

    def fingerprint(order, size, form=dense, more=0.0, y=y, w=w):
        share = Share.empty(columns)
        for one in in_batches([form(r + more) for r in rows[order]], y[order], size, weight=w[order]):
            share.add(one)
        return share.fingerprint()

    first, other = np.arange(40), np.random.default_rng(1).permutation(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fingerprint(first, 7) == fingerprint(other, 40) == fingerprint(other, 9, sparse)
    halves = fingerprint(other[:11], 5) + fingerprint(other[11:], 5)
    assert halves % 2**64 == fingerprint(first, 40)
    assert fingerprint(first, 7) != fingerprint(first, 7, more=1e-9)
    assert fingerprint(first[:-1], 7) != fingerprint(first, 7)
    # The same values in other rows are other rows.
    assert fingerprint(first, 7) != fingerprint(first, 7, y=y[other])
    assert fingerprint(first, 7) != fingerprint(first, 7, w=w[other])
    assert fingerprint(first, 7) != fingerprint(first, 7, y=w, w=y)


@pytest.mark.parametrize(("kind", "features"), [
    ("tokens", [{"tokens": ["a", "b"]}, {"tokens": []}, {"tokens": ["c"]}]),
    ("columns", [{"n": 1.0, "s": "x"}, {"n": None, "s": None}, {"n": 2.0, "s": "x"}]),
])  # fmt: skip
def test_fingerprints_of_words_and_of_plain_columns(kind, features):
    columns = Columns(kind, ("n", "s") if kind == "columns" else ("t",), label="y")

    def fingerprint(*batches):
        share = Share.empty(columns)
        for some, y in batches:
            share.add(batch(pa.array([features[i] for i in some], pa.array(features).type), y))
        return share.fingerprint()

    whole = fingerprint(([0, 1, 2], [1, 2, 3]))
    assert whole == fingerprint(([2, 0], [3, 1]), ([1], [2])) != fingerprint(([0, 1, 2], [1, 3, 2]))
    assert (fingerprint(([0], [1])) + fingerprint(([1, 2], [2, 3]))) % 2**64 == whole
    assert fingerprint() == 0


def test_labels_do_not_keep_batches_in_memory(tmp_path):
    """Batches of a stream are one piece of memory each: who holds a view of one column holds all of them."""
    columns, wide = Columns("vector", ("f",), label="y", weight="w"), np.ones((100, 1000))
    whole = in_batches([dense(r) for r in wide], np.zeros(100), 25, weight=np.ones(100))
    path = str(tmp_path / "stream")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, whole[0].schema) as stream:
        for one in whole:
            stream.write_batch(one)
    before = pa.total_allocated_bytes()
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
        share, _ = read(stream, columns)
    assert pa.total_allocated_bytes() - before >= wide.nbytes
    assert share.features.rows(True).nbytes == wide.nbytes
    assert pa.total_allocated_bytes() - before < wide.nbytes / 10
    assert (share.target().sum(), share.weight().sum()) == (0.0, 100.0)
    assert (share.y, share.weights, share.features.parts) == ([], [], [])


# Workers


def loaded(outcome, tmp_path):
    (tmp_path / "m.gbun").write_bytes(outcome.model)
    return gbun.load_model(tmp_path / "m.gbun")


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", ["dense", "sparse", "classes", "mixed"])
def test_the_model_is_that_of_one(kind, size, tmp_path):
    data, y, task = X, Y, "regression"
    if kind == "classes":
        y, task = np.digitize(Y, [-0.5, 0.5]), "classification"
    rows = [dense(r) for r in X]
    if kind in ("sparse", "mixed"):
        data = S if kind == "sparse" else np.where(X > -0.5, X, 0.0)
        rows = [sparse(r) for r in (S.toarray() if kind == "sparse" else data)]
        if kind == "mixed":
            rows = [dense(r) if i % 3 else rows[i] for i, r in enumerate(data)]
    weight = np.linspace(0.5, 1.5, 900)
    columns = Columns("vector", ("features",), label="label", weight="w")
    batches = in_batches(rows, y, weight=weight)
    cuts = {1: [batches], 3: [batches[:2], [], batches[2:]]}[size]  # one of them has no rows
    outcomes = InThreads(size).work(cuts, job(columns, task))
    assert [o.error for o in outcomes] == [None] * size
    assert [o.rows for o in outcomes] == [sum(b.num_rows for b in cut) for cut in cuts]
    assert all(o.model is None for o in outcomes[1:])
    one = gbun.train(job().parameters, (data, y, weight), task=task)
    wanted = one.decision_function(data)
    np.testing.assert_allclose(loaded(outcomes[0], tmp_path).decision_function(data), wanted, atol=1e-9 * wanted.std())


def test_rows_set_aside_are_watched_and_history_comes_back(tmp_path):
    aside = np.arange(900) % 4 == 0
    columns = Columns("vector", ("features",), label="label", indicator="v")
    batches = in_batches([dense(r) for r in X], Y, indicator=aside)
    parameters = {"n_estimators": 30, "learning_rate": 1.0, "early_stopping_rounds": 3}
    found = InThreads(2).work([batches[:5], batches[5:]], job(columns, parameters=parameters))
    history = gbun.callbacks.History()
    one = gbun.train(
        {**job().parameters, **parameters}, (X[~aside], Y[~aside]), evals={"validation": (X[aside], Y[aside])},
        callbacks=[history],
    )  # fmt: skip
    assert [o.watched for o in found] == [125, 100]
    assert loaded(found[0], tmp_path).n_rounds == one.n_rounds < 30
    watched = found[0].history["evals_result"]["validation"]["rmse"]
    np.testing.assert_allclose(watched, history.values["validation"]["rmse"])


@pytest.mark.parametrize(
    ("all_of_them", "words"), [(True, "every row: none is left to train"), (False, "no row: none")]
)
@pytest.mark.parametrize("size", [1, 2])
def test_an_indicator_that_divides_nothing_is_named(size, all_of_them, words):
    columns = Columns("vector", ("features",), label="label", indicator="v")
    batches = in_batches([dense(r) for r in X], Y, indicator=np.full(900, all_of_them))
    for outcome in InThreads(size).work([batches] if size == 1 else [batches[:5], batches[5:]], job(columns)):
        assert f"validationIndicatorCol='v' is true in {words}" in outcome.error["text"]


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (outcome,) = InThreads(1).work(
        [in_batches([dense(r) for r in X], Y)], job(checkpoints=str(tmp_path / "file" / "x"))
    )
    assert outcome.error["kind"] == "ValueError"
    assert "checkpointPath must be a folder that executors write to" in outcome.error["text"]


def test_rounds_of_a_checkpoint_are_not_told_again():
    heard = []
    listener = Listener("127.0.0.1", heard.append)
    progress = Progress(listener.address)
    progress.before_training(None, 5)
    for number in range(5):
        report = gbun.callbacks.RoundReport(number, {}, 0.1 * number)
        progress.after_round(SimpleNamespace(trial=False, n_known=2), report)
    progress.close()
    until = time.monotonic() + 10.0
    while len(heard) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    listener.close()
    assert [report.round for report in heard] == [2, 3, 4]


@pytest.mark.parametrize("size", [1, 2])
def test_an_error_is_an_outcome_and_says_whose_it_is(size):
    y = Y.copy()
    y[-1] = np.nan
    batches = in_batches([dense(r) for r in X], y)
    outcomes = InThreads(size).work([batches] if size == 1 else [batches[:4], batches[4:]], job())
    assert {o.error["whose"] for o in outcomes} == {str(size - 1)}
    own = outcomes[-1].error
    assert (own["kind"], own["text"]) == ("ValueError", "y has NaN or infinite targets; drop or fill those rows")
    assert "numbers_of" in own["trace"]
    if size == 2:
        assert outcomes[0].error["kind"] == "WorkerError"
        assert "worker 1 of 2 failed: ValueError: y has NaN" in outcomes[0].error["text"]


def test_the_first_worker_fails_and_the_others_hear_why():
    def objective(y, scores, weight):
        if threading.current_thread().name.endswith("_0") and len(y) < 500:
            raise ZeroDivisionError("of the user's")
        return weight * (scores - y), weight

    batches = in_batches([dense(r) for r in X], Y)
    parameters = {"objective": objective, "init": "constant"}
    outcomes = InThreads(3).work([batches[:2], batches[2:7], batches[7:]], job(parameters=parameters))
    kinds = [o.error["kind"] for o in outcomes]
    assert kinds.count("ZeroDivisionError") >= 1
    assert all("of the user's" in o.error["text"] for o in outcomes)


def test_a_worker_that_cannot_open_its_store_keeps_nobody_waiting(monkeypatch):
    def fail(what):
        if threading.current_thread().name.endswith("_1"):
            raise ImportError("no torch here")
        return torch

    monkeypatch.setattr(worker, "load_torch", fail)
    outcomes = InThreads(2).work([[], []], job())
    assert sorted(o.error["kind"] for o in outcomes) == ["ImportError", "WorkerError"]
    assert all("no torch here" in o.error["text"] for o in outcomes)


def test_a_lost_worker_is_raised(monkeypatch):
    def lost(*_):
        raise WorkerError("worker 0 of 1 failed: gone", 0, lost=True)

    monkeypatch.setattr(worker, "_trained", lost)
    with pytest.raises(WorkerError, match=r"gone \(worker 0 was on host 127.0.0.1\)"):
        InThreads(1).work([[]], job())


def test_the_first_worker_does_not_wait_for_one_that_is_lost(monkeypatch):
    waits = []

    def wait(store, keys, patience):
        waits.append((keys, patience))
        return torch.distributed.Store.wait(store, keys, patience)

    monkeypatch.setattr(worker, "LAST_WORDS", timedelta(seconds=0.5))
    monkeypatch.setattr(torch.distributed.TCPStore, "wait", wait, raising=False)
    place = InThreads(2)
    second = threading.Thread(target=place.place(1).tell, args=['{"host": "127.0.0.1", "port": 0}'])
    second.start()  # it meets the first one, and is never heard of again
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: no sign of life") as told:
        work([], place.place(0), replace(job(), timeout=2.0))
    assert told.value.lost
    assert waits[-1] == (["gone/0", "gone/1"], timedelta(seconds=0.5))
    second.join()


def test_training_goes_on_from_a_checkpoint_of_the_same_rows_and_parameters_only(tmp_path):
    batches = in_batches([dense(r) for r in X], Y)
    calls = [0]

    def objective(y, scores, weight):
        calls[0] += 1
        if calls[0] == 18:
            raise ZeroDivisionError("once")
        return weight * (scores - y), weight

    parameters = {"objective": objective, "init": "constant", "n_estimators": 12}
    own = job(parameters=parameters, checkpoints=str(tmp_path / "new"), every=2)
    (first,) = InThreads(1).work([batches], own)
    assert first.error["kind"] == "ZeroDivisionError"
    (file,) = (tmp_path / "new").iterdir()
    reached = gbun.load_model(file).n_rounds
    assert 0 < reached < 12
    (other,) = InThreads(1).work([batches[1:]], own)
    assert (other.error, other.resumed) == (None, 0)
    (other,) = InThreads(1).work([batches], replace(own, identity="another"))
    assert (other.error, other.resumed) == (None, 0)
    outcomes = InThreads(2).work([batches[3:], batches[:3]], own)
    assert [o.resumed for o in outcomes] == [reached, 0]
    (whole,) = (Path(o.checkpoint) for o in outcomes if o.checkpoint is not None)
    assert gbun.load_model(whole).n_rounds == 12  # it stays until the driver has the model
    again = InThreads(2).work([batches[3:], batches[:3]], own)
    assert [o.resumed for o in again] == [12, 0]
    assert len(again[0].history["seconds"]) == 12
    np.testing.assert_array_equal(loaded(again[0], tmp_path).predict(X), loaded(outcomes[0], tmp_path).predict(X))
    one = gbun.train({**job().parameters, **parameters}, (X, Y), task="regression")
    np.testing.assert_allclose(loaded(outcomes[0], tmp_path).predict(X), one.predict(X), atol=1e-9)


def test_a_checkpoint_is_removed_when_the_driver_has_the_model(tmp_path, caplog):
    cluster = pytest.importorskip("gbun.spark.cluster")
    file = tmp_path / "a.gbun"
    file.write_bytes(b"a model")
    cluster._remove_checkpoint(Outcome(0, checkpoint=str(file)))
    cluster._remove_checkpoint(Outcome(0))
    assert not file.exists()
    assert not caplog.records
    cluster._remove_checkpoint(Outcome(0, checkpoint=str(file)))  # of a folder that the driver does not see
    assert f"checkpoint {file} is not needed any more, but the driver cannot remove it (No such file" in caplog.text
    caplog.clear()
    cluster._log_rows([Outcome(0, 5, resumed=3, checkpoint="c", history={"seconds": [0.1] * 3})], True)
    assert "nothing was left to train: all 3 rounds are those of checkpoint c" in caplog.text


def test_workers_are_as_many_as_are_wanted():
    batches = in_batches([dense(r) for r in X], Y)
    for outcome in InThreads(2).work([batches[:5], batches[5:]], job(n_workers=3)):
        assert outcome.error["kind"] == "ValueError"
        assert "numWorkers=3 workers are to train, but Spark made 2 tasks of the rows" in outcome.error["text"]


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, y, scores, weight):
        return self.scale * (scores - y), weight


def test_parameters_with_functions_are_told_apart():
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")

    def made(scale):
        def loss(y, scores, weight):
            return scale * (scores - y), weight

        return loss

    def with_default(y, scores, weight, scale=1.0):
        return scale * (scores - y), weight

    def identity(value):
        return worker.identity({"objective": value, "eval_metric": [value, "rmse"]}, cloudpickle.dumps)

    one, other = made(1.0), made(2.0)
    partial = functools.partial(with_default, scale=2.0)
    losses = [one, other, with_default, partial, functools.partial(with_default, scale=3.0), Scaled(1.0), Scaled(2.0)]
    losses += [gbun.TorchLoss(one), gbun.TorchLoss(other), "huber", None]
    found = [identity(loss) for loss in losses]
    assert len(set(found)) == len(found)
    assert found == [identity(loss) for loss in losses]
    assert identity(made(2.0)) == identity(other)
    some = {"n_neurons": 5, "random_state": 1, "n_jobs": 1}
    assert worker.identity(some, cloudpickle.dumps) == worker.identity({**some, "n_jobs": 2}, cloudpickle.dumps)
    assert worker.identity(some, cloudpickle.dumps) != worker.identity({**some, "random_state": 2}, cloudpickle.dumps)


# Progress


def test_the_driver_hears_of_every_round_and_of_nobody_else():
    heard = []
    listener = Listener("127.0.0.1", heard.append)
    try:
        with socket.create_connection((listener.address.host, listener.address.port)) as stranger:
            stranger.sendall(b'who?\n{"round": 0, "n_rounds": 1, "evaluations": {}, "seconds": 0}\n')
        aside = np.arange(900) % 4 == 0
        columns = Columns("vector", ("features",), label="label", indicator="v")
        batches = in_batches([dense(r) for r in X], Y, indicator=aside)
        (outcome,) = InThreads(1).work([batches], job(columns, listener=listener.address))
    finally:
        listener.close()
    assert [report.round for report in heard] == [0, 1, 2, 3]
    values = [report.evaluations["validation"]["rmse"] for report in heard]
    assert values == outcome.history["evals_result"]["validation"]["rmse"]
    assert str(heard[1]).startswith("round 2 of 4, ")
    assert outcome.unheard == ""


def test_training_goes_on_where_the_driver_cannot_be_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nobody = Address("127.0.0.1", port, "token")
    (outcome,) = InThreads(1).work([in_batches([dense(r) for r in X], Y)], job(listener=nobody))
    assert outcome.model is not None
    assert "refused" in outcome.unheard
    assert Progress(None).unheard == ""
    assert str(Report(4, 10, {}, 1.25, True)) == "trial round 5 of 10, 1.2 s"


def test_a_listener_that_is_closed_hears_nothing(monkeypatch):
    monkeypatch.setattr("gbun.spark.progress.PATIENCE", 0.2)
    heard = []
    listener = Listener("127.0.0.1", heard.append)
    line = b'{"round": 0, "n_rounds": 1, "evaluations": {}, "seconds": 0}\n'
    with socket.create_connection((listener.address.host, listener.address.port)) as late:
        late.sendall(listener.address.token.encode() + b"\n" + line)
        while not heard:
            time.sleep(0.01)
        listener.close()
        with suppress(OSError):
            late.sendall(line)
        assert late.recv(1) == b""
        (reading, _), *_ = listener._busy
        reading.join(5)
        assert not reading.is_alive()
    assert len(heard) == 1
    listener.close()  # twice is harmless


# What the driver makes of it


def test_what_spark_says_of_a_lost_worker_is_told_by_its_cause():
    failures = pytest.importorskip("gbun.spark.failures")
    text = (
        "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure "
        "reason: Stage failed because barrier task ResultTask(7, 1) finished unsuccessfully.\n{}\n\tat org.apache.spark"
    )
    causes = {
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: worker lost": True,
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)": True,
        "": False,
    }
    for cause, is_told in causes.items():
        found = failures.explained(RuntimeError(text.format(cause)), [])
        assert (found.lost, found.rank) == (True, 1)
        assert str(found).startswith("worker 1 was lost: ")
        assert str(found).endswith(failures.RETRY)
        found = failures.explained(RuntimeError(text.format(cause)), [], "", lambda *task: {(7, 1): "there"}[task])
        assert str(found).endswith(" (worker 1 was on host there)")
        assert ("Could not recover" in str(found)) == (not is_told)
        assert cause.split(": ", 1)[-1] in str(found)
        assert "checkpointPath" not in str(failures.explained(RuntimeError(text.format(cause)), [], ""))
    found = failures.explained(RuntimeError("x\ngbun.WorkerError: worker 3 of 4 failed: gone\n at"), [], "")
    assert (str(found), found.rank) == ("worker 3 of 4 failed: gone", 3)
    assert str(failures.explained(RuntimeError("any"), ["executors were lost"])) == "executors were lost"
    assert failures.explained(RuntimeError("column not found"), []) is None


def test_a_value_error_stays_one_on_many_workers():
    failures = pytest.importorskip("gbun.spark.failures")

    def failed(rank, kind, text, whose=1):
        return Outcome(rank, error={"whose": str(whose), "kind": kind, "text": text, "trace": "Traceback"})

    follows = failed(0, "WorkerError", "worker 1 of 2 failed: ValueError: y has NaN")
    with pytest.raises(ValueError, match=r"^worker 1 of 2 failed: y has NaN \(X is column 'features'; y is"):
        failures.raise_failure([follows, failed(1, "ValueError", "y has NaN")], job())
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: KeyError: 'a'") as told:
        failures.raise_failure([follows, failed(1, "KeyError", "'a'")], job())
    assert told.value.rank == 1
    with pytest.raises(ValueError, match=r"^only one class \("):
        failures.raise_failure([failed(r, "ValueError", "only one class", r) for r in range(2)], job())


@pytest.mark.parametrize(("conf", "wanted", "coming", "found"), [
    ({}, None, [1, 1, 2, 3], 3),  # until nobody has come for a while
    ({}, None, [0, 0, 0, 0, 0, 0, 0, 2], 2),  # the first may take its time
    ({"spark.cores.max": "2"}, None, [1, 2, 9], 2),
    ({"spark.executor.instances": "2", "spark.executor.cores": "4", "spark.task.cpus": "2"}, None, [1, 4, 9], 4),
    ({}, 2, [1, 1, 1, 1, 1, 1, 1, 2, 9], 2),  # who says how many waits for them
])  # fmt: skip
def test_executors_that_are_still_starting_are_waited_for(monkeypatch, conf, wanted, coming, found):
    cluster = pytest.importorskip("gbun.spark.cluster")
    now = [0.0]
    monkeypatch.setattr(cluster, "sleep", lambda seconds: now.append(now[-1] + 1.0))
    monkeypatch.setattr(cluster, "monotonic", lambda: now[-1])
    monkeypatch.setattr(cluster, "slots", lambda context: coming[min(len(now) - 1, len(coming) - 1)])
    context = SimpleNamespace(master="spark://host", startTime=1000 * time.time(), getConf=lambda: conf)
    assert cluster._admitted(context, wanted) == found
    context.startTime = 0  # the application has run for a while
    now[1:] = []
    if coming[0] >= (wanted or 1):
        assert cluster._admitted(context, wanted) == coming[0]


def test_an_executors_python_without_a_module_is_told():
    failures = pytest.importorskip("gbun.spark.failures")
    told = failures.explained(RuntimeError("... ModuleNotFoundError: No module named 'gbun' SQLSTATE: 38000"), [])
    assert "the Python of the executors has no module 'gbun'" in str(told)
    assert "PYSPARK_PYTHON" in str(told)


@pytest.mark.parametrize(("params", "message"), [
    ({"max_depth": 6}, "unknown parameter 'max_depth'; it is one of trees; n_neurons is"),
    ({"missing": 0.0}, "unknown parameter 'missing'; leave it out"),
    ({"class_weight": "balanced"}, "unknown parameter 'class_weight'; give rows weights by weightCol"),
    ({"learningRate": 0.1}, "did you mean 'learning_rate'"),
    ({"num_workers": 2, "numWorkers": 1}, "numWorkers is given twice, also as 'numWorkers'"),
])  # fmt: skip
def test_parameters_of_others_are_told_what_to_say_instead(params, message):
    spark = pytest.importorskip("gbun.spark")
    with pytest.raises(ValueError, match=message):
        spark.GBUNClassifier(**params)


def test_a_summary_is_short():
    estimators = pytest.importorskip("gbun.spark.estimators")
    workers = (Outcome(0, rows=150), Outcome(1, rows=149))
    summary = estimators.Summary({"validation": {"auc": [0.5, 0.75]}}, {}, [0.1, 0.25], workers)
    wanted = "2 rounds in 0.2 s, rows of each worker [150, 149], at the end {'validation': {'auc': 0.75}}"
    assert repr(summary) == f"Summary({wanted})"


@pytest.mark.parametrize(("master", "enabled", "refused"), [
    ("spark://host:7077", "true", True), ("yarn", "True", True), ("spark://host:7077", "false", False),
    ("local[2]", "true", False),  # Spark itself takes no notice of it there
])  # fmt: skip
def test_dynamic_allocation_is_refused(master, enabled, refused):
    cluster = pytest.importorskip("gbun.spark.cluster")
    conf = pytest.importorskip("pyspark").SparkConf(loadDefaults=False)
    conf.set("spark.dynamicAllocation.enabled", enabled)
    context = SimpleNamespace(master=master, getConf=lambda: conf)
    if not refused:
        cluster._check_static(context)
        return
    with pytest.raises(ValueError, match=r"spark.dynamicAllocation.enabled is true: Spark runs no barrier stage"):
        cluster._check_static(context)


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
    """Spark below 4.1 hands out the struct as a frame of pandas."""
    prediction = pytest.importorskip("gbun.spark.prediction")
    known = {
        "vector": X[:, :2], "array": X[:, :2], "tokens": [["a"] * (i % 3) + ["b"] for i in range(900)],
        "columns": pd.DataFrame({"n": X[:, 0], "s": np.where(X[:, 1] > 0, "x", "y")}),
    }[kind]  # fmt: skip
    model = gbun.train({"n_neurons": 16, "n_estimators": 3}, (known, Y), task="regression")
    columns = Columns(kind, ("n", "s") if kind == "columns" else ("f",))
    names = [field.name for field in features.type]
    frame = pd.DataFrame({name: features.field(name).to_pandas() for name in names})
    struct = prediction._struct(frame, columns)
    found, same = (prediction.predicted(model, s, columns, ["prediction"], 1) for s in (struct, features))
    assert found.equals(same)
    if data is not None:
        np.testing.assert_array_equal(found.field("prediction").to_numpy(), model.predict(data))
    assert len(prediction.predicted(model, prediction._struct(frame[:0], columns), columns, ["prediction"], 1)) == 0


def test_a_process_keeps_the_last_models(monkeypatch, tmp_path):
    prediction = pytest.importorskip("gbun.spark.prediction")
    read_again = []
    monkeypatch.setattr(prediction, "_known", {})
    monkeypatch.setattr(prediction, "model_from", lambda content: read_again.append(content) or object())
    contents = [bytes([i]) for i in range(prediction.KEPT)]
    models = [prediction.known_model(one, one) for one in contents]
    assert [prediction.known_model(one, one) for one in contents] == models
    prediction.known_model(b"new", b"new")
    assert prediction.known_model(contents[1], contents[1]) is models[1]
    assert read_again == [*contents, b"new"]
    assert prediction.known_model(contents[0], contents[0]) is not models[0]
    assert len(prediction._known) == prediction.KEPT


def test_null_vectors_of_pandas_are_told():
    prediction = pytest.importorskip("gbun.spark.prediction")
    columns = Columns("vector", ("f",))
    frame = pd.DataFrame({"type": [1.0, None], "size": [0.0, None], "indices": [[], None], "values": [[1.0], None]})
    with pytest.raises(ValueError, match="column 'f' is null in 1 rows"):
        reader(columns).add(prediction._struct(frame, columns))


# Parameters, which need pyspark but no session


def test_parameters_are_those_of_gbun_and_of_spark():
    spark = pytest.importorskip("gbun.spark")
    known = {f.name: f for f in gbun.config.parameter_fields()}
    classifier, regressor = spark.GBUNClassifier(), spark.GBUNRegressor()
    for estimator in (classifier, regressor):
        names = {param.name: param for param in estimator.params}
        assert known.keys() <= names.keys()
        for name, field in known.items():
            assert names[name].doc == field.metadata["sentence"]
            assert estimator.getOrDefault(name) == field.default
    own = {param.name for param in classifier.params} - known.keys()
    assert own - {param.name for param in regressor.params} == {"probabilityCol", "rawPredictionCol"}
    assert {"featuresCol", "labelCol", "weightCol", "validationIndicatorCol", "numWorkers", "checkpointPath"} <= own
    assert classifier.setFeaturesCol(["a", "b"]).getFeaturesCol() == ["a", "b"]
    assert "huber_delta : " in spark.GBUNRegressor.__doc__


def test_names_may_be_written_as_xgboost_spark_does():
    spark = pytest.importorskip("gbun.spark")
    learner = spark.GBUNClassifier(features_col="x", label_col="y", num_workers=4, validation_indicator_col="v")
    found = [learner.getOrDefault(name) for name in ("featuresCol", "labelCol", "numWorkers", "validationIndicatorCol")]
    assert found == ["x", "y", 4, "v"]
    with pytest.raises(ValueError, match="unknown parameter 'max_depth'"):
        spark.GBUNClassifier(max_depth=6)


def test_defaults_may_be_said():
    spark = pytest.importorskip("gbun.spark")
    for estimator in (spark.GBUNClassifier(), spark.GBUNRegressor()):
        for param in estimator.params:
            if estimator.hasDefault(param):
                value = estimator.getOrDefault(param)
                written = json.loads(json.dumps(worker.words(value)))
                estimator.set(param, written)
                assert estimator.isSet(param)
                assert estimator.getOrDefault(param) == value
    chain = estimator.setTimeout(5).setTransport("int16").setRepartition(False).setNumWorkers(None)
    assert [chain.getTimeout(), chain.getTransport(), chain.getRepartition(), chain.getNumWorkers()] == [
        5.0, "int16", False, None,
    ]  # fmt: skip


@pytest.mark.parametrize(("params", "error", "message"), [
    ({"learning_rate": 2.5}, TypeError, r"learning_rate must be a number in \(0, 1\], got 2.5"),
    ({"n_neurons": "many"}, TypeError, "n_neurons must be an integer"),
    ({"learning_rat": 0.5}, ValueError, "unknown parameter 'learning_rat'; did you mean 'learning_rate'?"),
    ({"numWorkers": 0}, TypeError, "numWorkers must be an integer of at least 1, got 0"),
    ({"timeout": -1}, TypeError, "timeout must be a positive number of seconds, got -1"),
    ({"transport": "int8"}, TypeError, "transport must be one of float64, float32, int16, got 'int8'"),
    ({"featuresCol": 7}, TypeError, "featuresCol"),
])  # fmt: skip
def test_wrong_parameters_are_told(params, error, message):
    spark = pytest.importorskip("gbun.spark")
    with pytest.raises(error, match=message):
        spark.GBUNClassifier(**params)


def test_parameters_take_functions_and_numpys_numbers():
    spark = pytest.importorskip("gbun.spark")

    def loss(y, scores, weight):
        return scores - y, weight

    seed = np.random.default_rng(1)
    estimator = spark.GBUNRegressor(objective=loss, learning_rate=np.float32(0.5), random_state=seed)
    assert estimator.getOrDefault("objective") is loss
    assert type(estimator.getOrDefault("learning_rate")) is float
    assert isinstance(estimator.getOrDefault("random_state"), int)
    assert worker.words([loss, "rmse", gbun.TorchLoss(loss)]) == ["<loss>", "rmse", "<TorchLoss>"]
    copied = estimator.copy({estimator.learning_rate: 0.25})
    assert (copied.getOrDefault("learning_rate"), estimator.getOrDefault("learning_rate")) == (0.25, 0.5)


@pytest.mark.parametrize("path", ["hdfs://host/run", "s3a://bucket/run", "file://host/run"])
def test_checkpoints_go_to_a_shared_file_system(path):
    estimators = pytest.importorskip("gbun.spark.estimators")
    with pytest.raises(ValueError, match="checkpointPath must be a folder of a shared file system"):
        estimators._folder(path)
    assert estimators._folder("file:///shared/run") == estimators._folder("/shared/run") == "/shared/run"
