"""What the driver does without a Spark session: number of workers, errors of workers, parameters of estimators."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

import gbun
from gbun.collectives import WorkerError
from gbun.config import to_printable

pyspark = pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
from gbun.spark import GBUNClassifier, GBUNRegressor, cluster, estimators, failures  # noqa: E402
from gbun.spark.params import SPARK_PARAMETERS  # noqa: E402
from gbun.spark.worker import Outcome  # noqa: E402
from tests.spark.arrow_batches import job  # noqa: E402


def test_errors_of_spark_are_explained_by_their_cause():
    text = (
        "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure "
        "reason: Stage failed because barrier task ResultTask(7, 1) finished unsuccessfully.\n{}\n\tat org.apache.spark"
    )
    causes = {
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: worker lost": True,
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)": True,
        "": False,
    }
    for cause, has_cause in causes.items():
        error = RuntimeError(text.format(cause))
        found = failures.explain_failure(error, None)
        assert (found.lost, found.rank) == (True, 1)
        assert str(found).startswith("worker 1 was lost: ")
        assert str(found).endswith(failures.RETRY_ADVICE)
        found = failures.explain_failure(error, None, "", lambda *task: {(7, 1): "there"}[task])
        assert str(found).endswith(" (worker 1 was on host there)")
        assert ("Could not recover" in str(found)) == (not has_cause)
        assert cause.split(": ", 1)[-1] in str(found)
        assert "checkpointPath" not in str(failures.explain_failure(error, None, ""))
    found = failures.explain_failure(RuntimeError("x\ngbun.WorkerError: worker 3 of 4 failed: gone\n at"), None, "")
    assert (str(found), found.rank) == ("worker 3 of 4 failed: gone", 3)
    assert str(failures.explain_failure(RuntimeError("any"), "executors were lost")) == "executors were lost"
    assert failures.explain_failure(RuntimeError("column not found"), None) is None
    missing = RuntimeError("... ModuleNotFoundError: No module named 'gbun' SQLSTATE: 38000")
    found = str(failures.explain_failure(missing, None))
    assert "the Python of the executors has no module 'gbun'" in found
    assert "PYSPARK_PYTHON" in found


def test_a_value_error_stays_one_on_many_workers():
    def failed(rank, kind, text, failed_rank=1):
        error = {"failed_rank": str(failed_rank), "kind": kind, "text": text, "trace": "Traceback"}
        return Outcome(rank, error=error)

    follower = failed(0, "WorkerError", "worker 1 of 2 failed: ValueError: y has NaN")
    with pytest.raises(ValueError, match=r"^worker 1 of 2 failed: y has NaN \(X is column 'features'; y is"):
        failures.raise_failure([follower, failed(1, "ValueError", "y has NaN")], job())
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: KeyError: 'a'") as raised:
        failures.raise_failure([follower, failed(1, "KeyError", "'a'")], job())
    assert raised.value.rank == 1
    with pytest.raises(ValueError, match=r"^only one class \("):
        failures.raise_failure([failed(r, "ValueError", "only one class", r) for r in range(2)], job())


def test_a_checkpoint_is_removed_when_the_driver_has_the_model(tmp_path, caplog):
    file = tmp_path / "a.gbun"
    file.write_bytes(b"a model")
    cluster._remove_checkpoint(Outcome(0, checkpoint=str(file)))
    cluster._remove_checkpoint(Outcome(0))
    assert not file.exists()
    assert not caplog.records
    cluster._remove_checkpoint(Outcome(0, checkpoint=str(file)))  # in a folder that the driver does not see
    assert f"checkpoint {file} is not needed any more, but the driver cannot remove it (No such file" in caplog.text
    caplog.clear()
    cluster._log_outcomes([Outcome(0, 5, resumed_rounds=3, checkpoint="c", history={"seconds": [0.1] * 3})], True)
    assert "nothing was left to train: all 3 rounds are those of checkpoint c" in caplog.text


@pytest.mark.parametrize(("conf", "wanted", "slots", "n_workers"), [
    ({}, None, [1, 1, 2, 3], 3),  # until no executor has started for a while
    ({}, None, [0, 0, 0, 0, 0, 0, 0, 2], 2),  # the first may take longer
    ({"spark.cores.max": "2"}, None, [1, 2, 9], 2),
    ({"spark.executor.instances": "2", "spark.executor.cores": "4", "spark.task.cpus": "2"}, None, [1, 4, 9], 4),
    ({}, 2, [1, 1, 1, 1, 1, 1, 1, 2, 9], 2),  # a number that is asked for is waited for
])  # fmt: skip
def test_fit_waits_for_executors_that_are_starting(monkeypatch, conf, wanted, slots, n_workers):
    clock = [0.0]
    monkeypatch.setattr(cluster, "sleep", lambda seconds: clock.append(clock[-1] + 1.0))
    monkeypatch.setattr(cluster, "monotonic", lambda: clock[-1])
    monkeypatch.setattr(cluster, "count_task_slots", lambda context: slots[min(len(clock) - 1, len(slots) - 1)])
    context = SimpleNamespace(master="spark://host", startTime=1000 * time.time(), getConf=lambda: conf)
    assert cluster._choose_n_workers(context, wanted) == n_workers
    context.startTime = 0  # the application has run for a while
    clock[1:] = []
    if slots[0] >= (wanted or 1):
        assert cluster._choose_n_workers(context, wanted) == slots[0]


@pytest.mark.parametrize(("master", "enabled", "refused"), [
    ("spark://host:7077", "true", True), ("yarn", "True", True), ("spark://host:7077", "false", False),
    ("local[2]", "true", False),  # Spark itself ignores it there
])  # fmt: skip
def test_dynamic_allocation_is_refused(master, enabled, refused):
    conf = pyspark.SparkConf(loadDefaults=False).set("spark.dynamicAllocation.enabled", enabled)
    context = SimpleNamespace(master=master, getConf=lambda: conf)
    if not refused:
        cluster._check_no_dynamic_allocation(context)
        return
    with pytest.raises(ValueError, match=r"spark.dynamicAllocation.enabled is true: Spark runs no barrier stage"):
        cluster._check_no_dynamic_allocation(context)


def test_a_summary_is_short():
    workers = (Outcome(0, rows=150), Outcome(1, rows=149))
    summary = estimators.Summary({"validation": {"auc": [0.5, 0.75]}}, {}, [0.1, 0.25], workers)
    wanted = "2 rounds in 0.2 s, rows of each worker [150, 149], at the end {'validation': {'auc': 0.75}}"
    assert repr(summary) == f"Summary({wanted})"


# Parameters


def test_parameters_are_those_of_gbun_and_of_spark():
    fields = {f.name: f for f in gbun.config.parameter_fields()}
    classifier, regressor = GBUNClassifier(), GBUNRegressor()
    for estimator in (classifier, regressor):
        params = {param.name: param for param in estimator.params}
        assert fields.keys() <= params.keys()
        for name, field in fields.items():
            assert params[name].doc == field.metadata["sentence"]
            assert estimator.getOrDefault(name) == field.default
    of_spark = {param.name for param in classifier.params} - fields.keys()
    assert of_spark - {param.name for param in regressor.params} == {"probabilityCol", "rawPredictionCol"}
    assert of_spark >= {"labelCol", "weightCol", "validationIndicatorCol", *SPARK_PARAMETERS}
    assert classifier.setFeaturesCol(["a", "b"]).getFeaturesCol() == ["a", "b"]
    assert "huber_delta : " in GBUNRegressor.__doc__


def test_names_may_be_written_as_in_xgboost_spark():
    learner = GBUNClassifier(features_col="x", label_col="y", num_workers=4, validation_indicator_col="v")
    names = ("featuresCol", "labelCol", "numWorkers", "validationIndicatorCol")
    assert [learner.getOrDefault(name) for name in names] == ["x", "y", 4, "v"]


def test_defaults_may_be_set():
    for estimator in (GBUNClassifier(), GBUNRegressor()):
        for param in estimator.params:
            if estimator.hasDefault(param):
                value = estimator.getOrDefault(param)
                estimator.set(param, json.loads(json.dumps(to_printable(value))))
                assert estimator.isSet(param)
                assert estimator.getOrDefault(param) == value
    chain = estimator.setTimeout(5).setTransport("int16").setRepartition(False).setNumWorkers(None)
    values = [chain.getTimeout(), chain.getTransport(), chain.getRepartition(), chain.getNumWorkers()]
    assert values == [5.0, "int16", False, None]


@pytest.mark.parametrize(("params", "error", "message"), [
    ({"learning_rate": 2.5}, TypeError, r"learning_rate must be a number in \(0, 1\], got 2.5"),
    ({"n_neurons": "many"}, TypeError, "n_neurons must be an integer"),
    ({"n_neurons": "<many>"}, TypeError, "n_neurons must be an integer"),
    ({"numWorkers": 0}, TypeError, r"numWorkers must be an integer in \[1, inf\) or None, got 0"),
    ({"timeout": -1}, TypeError, r"timeout must be a number in \(0, inf\), got -1"),
    ({"transport": "int8"}, TypeError, "transport must be one of 'float64', 'float32', 'int16', got 'int8'"),
    ({"featuresCol": 7}, TypeError, "featuresCol"),
    ({"learning_rat": 0.5}, ValueError, "unknown parameter 'learning_rat'; did you mean 'learning_rate'?"),
    ({"learningRate": 0.1}, ValueError, "did you mean 'learning_rate'"),
    ({"max_depth": 6}, ValueError, "unknown parameter 'max_depth'; it is one of trees; n_neurons is"),
    ({"missing": 0.0}, ValueError, "unknown parameter 'missing'; leave it out"),
    ({"class_weight": "balanced"}, ValueError, "unknown parameter 'class_weight'; give rows weights by weightCol"),
    ({"num_workers": 2, "numWorkers": 1}, ValueError, "numWorkers is given twice, also as 'numWorkers'"),
])  # fmt: skip
def test_wrong_parameters_are_refused(params, error, message):
    with pytest.raises(error, match=message):
        GBUNClassifier(**params)


def test_parameters_take_functions_and_numbers_of_numpy():
    def loss(y, scores, weight):
        return scores - y, weight

    seed = np.random.default_rng(1)
    estimator = GBUNRegressor(objective=loss, learning_rate=np.float32(0.5), random_state=seed)
    assert estimator.getOrDefault("objective") is loss
    assert type(estimator.getOrDefault("learning_rate")) is float
    assert isinstance(estimator.getOrDefault("random_state"), int)
    assert to_printable([loss, "rmse", gbun.TorchLoss(loss)]) == ["<loss>", "rmse", "<TorchLoss>"]
    copied = estimator.copy({estimator.learning_rate: 0.25})
    assert (copied.getOrDefault("learning_rate"), estimator.getOrDefault("learning_rate")) == (0.25, 0.5)


@pytest.mark.parametrize("path", ["hdfs://host/run", "s3a://bucket/run", "file://host/run"])
def test_checkpoints_must_be_on_a_shared_file_system(path):
    with pytest.raises(ValueError, match="checkpointPath must be a folder of a shared file system"):
        estimators._checkpoint_folder(path)
    for folder in ("file:///shared/run", "/shared/run"):
        assert estimators._checkpoint_folder(folder) == "/shared/run"
