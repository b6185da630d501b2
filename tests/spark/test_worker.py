"""The work of one worker and its progress reports, without Spark."""

from __future__ import annotations

import functools
import itertools
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import numpy as np
import pytest

import gbun
from gbun.collectives import WorkerError, async_collective, health
from gbun.collectives.channels import connect, make_secret
from gbun.collectives.store import StoreClient
from gbun.model import model_from_bytes

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytest.importorskip("torch")
from gbun.spark import worker
from gbun.spark.progress import ProgressListener, ProgressSender, RoundProgress
from gbun.spark.rows import InputColumns
from gbun.spark.worker import work
from tests.spark.arrow_batches import InThreads, S, X, Y, dense, dense_batches, in_batches, job, sparse

WITH_INDICATOR = InputColumns("vector", ("features",), label="label", indicator="v")
VALIDATION = np.arange(900) % 4 == 0


def model_of(outcome):
    return model_from_bytes(outcome.model, "outcome")


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", ["dense", "sparse", "classes", "mixed"])
def test_the_model_is_that_of_one_process(kind, size):
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
    columns = InputColumns("vector", ("features",), label="label", weight="w")
    batches = in_batches(rows, y, weight=weight)
    shares = {1: [batches], 3: [batches[:2], [], batches[2:]]}[size]  # one of them has no rows
    outcomes = InThreads(size).work(shares, job(columns, task))
    assert [o.error for o in outcomes] == [None] * size
    assert [o.rows for o in outcomes] == [sum(b.num_rows for b in share) for share in shares]
    assert all(o.model is None for o in outcomes[1:])
    wanted = gbun.train(job().parameters, (data, y, weight), task=task).decision_function(data)
    np.testing.assert_allclose(model_of(outcomes[0]).decision_function(data), wanted, atol=1e-9 * wanted.std())


def test_validation_rows_are_evaluated_and_history_is_returned():
    batches = dense_batches(indicator=VALIDATION)
    parameters = {"n_estimators": 30, "learning_rate": 1.0, "early_stopping_rounds": 3}
    outcomes = InThreads(2).work([batches[:5], batches[5:]], job(WITH_INDICATOR, parameters=parameters))
    history = gbun.callbacks.History()
    one = gbun.train(
        {**job().parameters, **parameters}, (X[~VALIDATION], Y[~VALIDATION]),
        evals={"validation": (X[VALIDATION], Y[VALIDATION])}, callbacks=[history],
    )  # fmt: skip
    assert [o.validation_rows for o in outcomes] == [125, 100]
    assert model_of(outcomes[0]).n_rounds == one.n_rounds < 30
    values = outcomes[0].history["evals_result"]["validation"]["rmse"]
    np.testing.assert_allclose(values, history.values["validation"]["rmse"])


@pytest.mark.parametrize(("value", "words"), [(True, "every row: none is left to train"), (False, "no row: none")])
@pytest.mark.parametrize("size", [1, 2])
def test_an_indicator_that_divides_nothing_is_refused(size, value, words):
    batches = dense_batches(indicator=np.full(900, value))
    shares = [batches] if size == 1 else [batches[:5], batches[5:]]
    for outcome in InThreads(size).work(shares, job(WITH_INDICATOR)):
        assert f"validationIndicatorCol='v' is true in {words}" in outcome.error["text"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (outcome,) = InThreads(1).work([dense_batches()], job(checkpoint_folder=str(tmp_path / "file" / "x")))
    assert outcome.error["kind"] == "ValueError"
    assert "checkpointPath must be a folder that executors write to" in outcome.error["text"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_an_error_is_an_outcome_that_names_the_failed_worker(size):
    y = Y.copy()
    y[-1] = np.nan
    batches = dense_batches(y)
    outcomes = InThreads(size).work([batches] if size == 1 else [batches[:4], batches[4:]], job())
    assert {o.error["failed_rank"] for o in outcomes} == {str(size - 1)}
    error = outcomes[-1].error
    assert (error["kind"], error["text"]) == ("ValueError", "y has NaN or infinite targets; drop or fill those rows")
    assert "targets.py" in error["trace"]
    if size == 2:
        assert outcomes[0].error["kind"] == "WorkerError"
        assert "worker 1 of 2 failed: ValueError: y has NaN" in outcomes[0].error["text"]


def test_the_first_worker_fails_and_the_others_get_the_cause():
    def objective(y, scores, weight):
        if threading.current_thread().name.endswith("_0") and len(y) < 500:
            raise ZeroDivisionError("of the user's")
        return weight * (scores - y), weight

    batches = dense_batches()
    parameters = {"objective": objective, "init": "constant"}
    outcomes = InThreads(3).work([batches[:2], batches[2:7], batches[7:]], job(parameters=parameters))
    assert "ZeroDivisionError" in [o.error["kind"] for o in outcomes]
    assert all("of the user's" in o.error["text"] for o in outcomes)


def test_workers_need_no_torch(monkeypatch):
    for module in ("arrays", "distributed", "launcher"):
        monkeypatch.setattr(f"gbun.{module}.load_torch", lambda purpose: pytest.fail(f"{purpose} needs torch"))
    batches = dense_batches()
    assert [o.error for o in InThreads(2).work([batches[:4], batches[4:]], job())] == [None, None]


def test_no_worker_waits_for_one_that_cannot_open_its_store(monkeypatch):
    def fail(peer):
        if threading.current_thread().name.endswith("_1"):
            raise ValueError("no such interface")
        return "127.0.0.1"

    monkeypatch.setattr(worker, "find_local_address", fail)
    outcomes = InThreads(2).work([[], []], job())
    assert sorted(o.error["kind"] for o in outcomes) == ["ValueError", "WorkerError"]
    assert all("no such interface" in o.error["text"] for o in outcomes)


def test_a_lost_worker_is_raised_with_its_host(monkeypatch):
    def lost(*_):
        raise WorkerError("worker 0 of 1 failed: gone", 0, lost=True)

    monkeypatch.setattr(worker, "_train_on_batches", lost)
    with pytest.raises(WorkerError, match=r"gone \(worker 0 was on host 127.0.0.1\)"):
        InThreads(1).work([[]], job())


@pytest.fixture
def silent_peer(monkeypatch):
    """The rendezvous of worker 0 with a worker that sends its address, and nothing after it."""
    rendezvous = InThreads(1).rendezvous(0)
    rendezvous.hosts = ["127.0.0.1"] * 2
    rendezvous.all_gather = lambda text: [text, "{}"]
    return rendezvous


def test_the_first_worker_does_not_wait_for_one_that_is_lost(monkeypatch, silent_peer):
    # Each look at a clock is some time later, so that silence and grace last as long as they should on any machine.
    silence, grace = itertools.count(start=1000.0, step=health.MAX_PULSE_INTERVAL), itertools.count(step=1.0)
    monkeypatch.setattr(health, "monotonic", lambda: next(silence))
    monkeypatch.setattr(worker, "monotonic", lambda: next(grace))
    monkeypatch.setattr(async_collective, "CHECK_INTERVAL", 0.01)
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: no sign of life") as raised:
        work([], silent_peer, job())
    assert raised.value.lost
    assert next(grace) <= worker.FAILURE_GRACE + 3.0


@pytest.mark.parametrize("n_clones", [0, 1])
def test_a_store_that_cannot_be_reached_again_is_lost(monkeypatch, silent_peer, n_clones):
    """A worker has connections for its pulse and for messages; one that cannot be made must not look like a bug."""
    clones = itertools.count()

    def clone(store):
        if next(clones) == n_clones:
            raise TimeoutError("timed out")
        return original(store)

    original = StoreClient.clone
    monkeypatch.setattr(StoreClient, "clone", clone)
    with pytest.raises(WorkerError, match=r"worker 0, which keeps the store .*\(timed out") as raised:
        work([], silent_peer, job())
    assert raised.value.lost


def test_training_resumes_from_a_checkpoint_of_the_same_rows_and_parameters_only(tmp_path):
    batches, calls = dense_batches(), []

    def objective(y, scores, weight):
        calls.append(len(y))
        if len(calls) == 18:
            raise ZeroDivisionError("once")
        return weight * (scores - y), weight

    parameters = {"objective": objective, "init": "constant", "n_estimators": 12}
    checkpointed = job(parameters=parameters, checkpoint_folder=str(tmp_path / "new"), checkpoint_every=2)
    (first,) = InThreads(1).work([batches], checkpointed)
    assert first.error["kind"] == "ZeroDivisionError"
    (file,) = (tmp_path / "new").iterdir()
    n_rounds = gbun.load_model(file).n_rounds
    assert 0 < n_rounds < 12
    for rows, same_but in ((batches[1:], {}), (batches, {"parameters_digest": "another"})):
        (other,) = InThreads(1).work([rows], replace(checkpointed, **same_but))
        assert (other.error, other.resumed_rounds) == (None, 0)
    outcomes = InThreads(2).work([batches[3:], batches[:3]], checkpointed)
    assert [o.resumed_rounds for o in outcomes] == [n_rounds, 0]
    (complete,) = (Path(o.checkpoint) for o in outcomes if o.checkpoint is not None)
    assert gbun.load_model(complete).n_rounds == 12  # it stays until the driver has the model
    again = InThreads(2).work([batches[3:], batches[:3]], checkpointed)
    assert [o.resumed_rounds for o in again] == [12, 0]
    assert len(again[0].history["seconds"]) == 12
    np.testing.assert_array_equal(model_of(again[0]).predict(X), model_of(outcomes[0]).predict(X))
    one = gbun.train({**job().parameters, **parameters}, (X, Y), task="regression")
    np.testing.assert_allclose(model_of(outcomes[0]).predict(X), one.predict(X), atol=1e-9)


def test_a_wrong_number_of_workers_is_refused():
    batches = dense_batches()
    for outcome in InThreads(2).work([batches[:5], batches[5:]], job(n_workers=3)):
        assert outcome.error["kind"] == "ValueError"
        assert "numWorkers=3 workers are to train, but Spark made 2 tasks of the rows" in outcome.error["text"]


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, y, scores, weight):
        return self.scale * (scores - y), weight


def test_digests_tell_functions_apart():
    dumps = pytest.importorskip("pyspark.cloudpickle").dumps

    def make(scale):
        def loss(y, scores, weight):
            return scale * (scores - y), weight

        return loss

    def with_default(y, scores, weight, scale=1.0):
        return scale * (scores - y), weight

    def digest(value):
        return worker.digest_parameters({"objective": value, "eval_metric": [value, "rmse"]}, dumps)

    one, other = make(1.0), make(2.0)
    partial = functools.partial(with_default, scale=2.0)
    losses = [one, other, with_default, partial, functools.partial(with_default, scale=3.0), Scaled(1.0), Scaled(2.0)]
    losses += [gbun.TorchLoss(one), gbun.TorchLoss(other), "huber", None]
    digests = [digest(loss) for loss in losses]
    assert len(set(digests)) == len(digests)
    assert digests == [digest(loss) for loss in losses]
    assert digest(make(2.0)) == digest(other)
    values = {"n_neurons": 5, "random_state": 1, "n_jobs": 1}
    same, changed = {**values, "n_jobs": 2}, {**values, "random_state": 2}
    first, second, third = (worker.digest_parameters(v, dumps) for v in (values, same, changed))
    assert first == second != third


# Progress


def test_the_driver_gets_reports_of_every_round_and_from_nobody_else():
    reports = []
    wanted = job(WITH_INDICATOR)
    listener = ProgressListener("127.0.0.1", wanted.secret, reports.append)
    try:
        with pytest.raises(ConnectionError):
            connect(listener.address, make_secret(), "progress", timeout=60.0)
        batches = dense_batches(indicator=VALIDATION)
        (outcome,) = InThreads(1).work([batches], replace(wanted, listener=listener.address))
    finally:
        listener.close()
    assert [report.round for report in reports] == [0, 1, 2, 3]
    values = [report.evaluations["validation"]["rmse"] for report in reports]
    assert values == outcome.history["evals_result"]["validation"]["rmse"]
    assert str(reports[1]).startswith("round 2 of 4, ")
    assert outcome.progress_error == ""


def test_rounds_of_a_checkpoint_are_not_reported_again():
    reports = Queue()
    secret = make_secret()
    listener = ProgressListener("127.0.0.1", secret, reports.put)
    progress = ProgressSender(listener.address, secret)
    progress.before_training(None, 5)
    for number in range(5):
        report = gbun.callbacks.RoundReport(number, {}, 0.1 * number)
        progress.after_round(SimpleNamespace(trial=False, n_resumed=2), report)
    progress.close()
    assert [reports.get(timeout=60).round for _ in range(3)] == [2, 3, 4]
    listener.close()
    assert reports.empty()


def test_training_continues_where_the_driver_cannot_be_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (outcome,) = InThreads(1).work([dense_batches()], job(listener=("127.0.0.1", port)))
    assert outcome.model is not None
    assert "refused" in outcome.progress_error
    assert ProgressSender(None, make_secret()).progress_error == ""
    assert str(RoundProgress(4, 10, {}, 1.25, True)) == "trial round 5 of 10, 1.2 s"


def test_training_continues_where_the_driver_is_lost_on_the_way():
    reports, secret = Queue(), make_secret()
    listener = ProgressListener("127.0.0.1", secret, reports.put)
    progress = ProgressSender(listener.address, secret)
    progress.before_training(None, 9)
    found = []
    for number in range(9):
        report = gbun.callbacks.RoundReport(number, {}, 0.1 * number)
        found.append(progress.after_round(SimpleNamespace(trial=False, n_resumed=0), report))
        if number == 0:
            assert reports.get(timeout=60).round == 0
            listener.close()
    assert found == [False] * 9  # no report raises, none stops training
    assert re.match("BrokenPipeError|ConnectionResetError|ConnectionAbortedError", progress.progress_error)
    assert reports.empty()


def test_a_closed_listener_ignores_reports(monkeypatch):
    monkeypatch.setattr("gbun.spark.progress.DRIVER_TIMEOUT", 0.2)
    reports = Queue()
    secret = make_secret()
    listener = ProgressListener("127.0.0.1", secret, reports.put)
    report = b'{"round": 0, "n_rounds": 1, "evaluations": {}, "seconds": 0, "trial": false}'
    late = connect(listener.address, secret, "progress", timeout=60.0)
    late.send(report)
    reports.get(timeout=60)
    (reader,) = listener._listener.connections.values()
    listener.close()
    with pytest.raises(OSError, match=r"."):
        late.receive(0)
    late.close()
    reader.join(60)
    assert not reader.is_alive()
    assert reports.empty()
    listener.close()  # twice is harmless
