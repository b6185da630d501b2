"""gbun.spark on real Spark: in one process, and on a standalone cluster of this machine whose executors are killed."""

from __future__ import annotations

import logging
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import gbun
import spark_jobs
from gbun.collectives import WorkerError

pytest.importorskip("pyspark")
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import (
    BinaryClassificationEvaluator,
    MulticlassClassificationEvaluator,
    RegressionEvaluator,
)
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder, TrainValidationSplit

from gbun.spark import GBUNClassificationModel, GBUNClassifier, GBUNRegressionModel, GBUNRegressor
from spark_cluster import Standalone, session, wait_for_slots

pytestmark = pytest.mark.xdist_group("spark")

SMALL = {"n_neurons": 16, "n_estimators": 4, "timeout": 20.0}
rng = np.random.default_rng(0)
N = 300
X = rng.normal(size=(N, 4))
Y = X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=N)
W = rng.uniform(0.5, 2.0, size=N)
S = scipy.sparse.random_array((N, 60), density=0.08, rng=rng, format="csr")
CLASSES = np.digitize(Y, [-0.4, 0.4])


@pytest.fixture(scope="module")
def places():
    """One Spark at a time: whoever asks for another place ends the one before."""
    now = {}

    def at(place):
        if now.get("place") != place:
            leave()
            if place == "cluster":
                now["cluster"] = Standalone(2)
            now["spark"] = session(now["cluster"].master if place == "cluster" else "local[2]")
            now["place"] = place
        return now["spark"], now.get("cluster")

    def leave():
        if "spark" in now:
            now.pop("spark").stop()
        if "cluster" in now:
            now.pop("cluster").stop()
        now.clear()

    yield at
    leave()


@pytest.fixture
def local(places):
    return places("local")[0]


@pytest.fixture
def cluster(places):
    spark, processes = places("cluster")
    wait_for_slots(spark)  # one of them may have been killed by the test before
    return spark, processes


def frame(spark, features, **columns):
    names = ["features", *columns]
    rows = zip(features, *(np.asarray(values).tolist() for values in columns.values()), strict=True)
    return spark.createDataFrame(list(rows), names)


def dense(data=X):
    return [Vectors.dense(row) for row in data.tolist()]


def sparse(data=S):
    rows = [data[[i]] for i in range(data.shape[0])]
    return [Vectors.sparse(data.shape[1], row.indices.tolist(), row.data.tolist()) for row in rows]


def alone(data, y, weight=None, task=None, **more):
    return gbun.train({"n_neurons": 16, "n_estimators": 4, **more}, (data, y, weight), task=task)


def same(model, one, data):
    wanted = one.decision_function(data)
    np.testing.assert_allclose(model.get_booster().decision_function(data), wanted, atol=1e-7 * wanted.std())


def column(df, name):
    return np.array([row[0] for row in df.select(name).collect()])


# In one process


def test_classes_probabilities_and_raw_predictions(local, tmp_path, monkeypatch):
    two = (Y > 0).astype(float)
    df = frame(local, sparse(), label=two, weight=W).repartition(3)
    model = GBUNClassifier(weightCol="weight", numWorkers=2, **SMALL).fit(df)
    one = alone(S, two, W, "classification")
    same(model, one, S)
    found = model.transform(frame(local, sparse(), label=two).coalesce(1))
    np.testing.assert_array_equal(column(found, "prediction"), model.get_booster().predict(S))
    probability = column(found, "probability")
    np.testing.assert_allclose(probability, one.predict_proba(S), atol=1e-6)
    raw = column(found, "rawPrediction")
    np.testing.assert_allclose(raw[:, 1], one.decision_function(S), atol=1e-6)
    np.testing.assert_array_equal(raw[:, 0], -raw[:, 1])
    assert BinaryClassificationEvaluator().evaluate(found) > 0.5
    assert (model.numClasses, model.numFeatures, model.hasSummary) == (2, 60, True)
    assert [worker.rows for worker in model.summary.workers] in ([150, 150], [149, 151], [151, 149])
    monkeypatch.delattr("pyspark.sql.functions.arrow_udf", raising=False)  # what Spark before 4.1 lacks
    by_pandas = model.transform(frame(local, sparse(), label=two).coalesce(1))
    np.testing.assert_array_equal(column(by_pandas, "probability"), probability)
    np.testing.assert_array_equal(column(by_pandas, "prediction"), column(found, "prediction"))
    # Saved and loaded, by Spark and without
    model.write().overwrite().save(str(tmp_path / "m"))
    again = GBUNClassificationModel.load(str(tmp_path / "m"))
    assert (again.uid, again.getOrDefault("n_neurons"), again.getWeightCol()) == (model.uid, 16, "weight")
    np.testing.assert_array_equal(column(again.transform(df), "prediction"), column(model.transform(df), "prediction"))
    plain = gbun.load_model(tmp_path / "m" / "model.gbun")
    np.testing.assert_array_equal(plain.predict(S), model.get_booster().predict(S))
    with pytest.raises(ValueError, match=r"holds a gbun.spark.estimators.GBUNClassificationModel"):
        GBUNRegressionModel.load(str(tmp_path / "m"))
    with pytest.raises(ValueError, match=r"columns \['prediction'\] are already there"):
        model.setProbabilityCol("").setRawPredictionCol("").transform(found)


def test_every_kind_of_features(local, monkeypatch):
    """Arrays, plain columns with words and categories, tokens: read as gbun reads them."""
    table = pd.DataFrame({
        "x": X[:, 0], "n": np.where(X[:, 1] > 1, np.nan, X[:, 1]), "city": rng.choice(["Rom", "Oslo", "Kiew"], N),
        "code": rng.integers(0, 5, N), "y": Y,
    })  # fmt: skip
    table.loc[::7, "city"] = None
    wanted = table.assign(code=table["code"].astype("category"))
    df = local.createDataFrame(table.astype(object).where(table.notna(), None))
    names = ["x", "n", "city", "code"]
    model = GBUNRegressor(featuresCol=names, categoricalCols=["code"], labelCol="y", **SMALL).fit(df)
    same(model, alone(wanted[names], Y), wanted[names])
    predicted = column(model.transform(df), "prediction")
    np.testing.assert_array_equal(predicted, model.get_booster().predict(wanted[names]))

    arrays = frame(local, X.tolist(), label=Y)
    by_arrays = GBUNRegressor(numWorkers=1, **SMALL).fit(arrays)
    same(by_arrays, alone(X, Y), X)

    words = [[str(w) for w in rng.choice(list("abcdefgh"), rng.integers(1, 6))] for _ in range(N)]
    y = np.array([row.count("a") + 0.5 * row.count("b") for row in words])
    tokens = GBUNRegressor(predictionCol="p", **SMALL).fit(frame(local, words, label=y))
    same(tokens, alone(words, y), words)
    assert tokens.numFeatures == -1
    np.testing.assert_array_equal(
        column(tokens.transform(frame(local, words)), "p"), tokens.get_booster().predict(words)
    )

    monkeypatch.delattr("pyspark.sql.functions.arrow_udf", raising=False)  # what Spark before 4.1 lacks
    np.testing.assert_array_equal(column(model.transform(df), "prediction"), predicted)
    for features in (arrays, frame(local, dense())):
        found = column(by_arrays.transform(features), "prediction")
        np.testing.assert_array_equal(found, by_arrays.get_booster().predict(X))
    np.testing.assert_array_equal(
        column(tokens.transform(frame(local, words)), "p"), tokens.get_booster().predict(words)
    )


def test_vectors_in_parquet_files_are_predicted(places, tmp_path):
    """Rows that Spark reads column by column, with vectors among what is handed on."""
    spark, _ = places("local")
    rows = [(float(y), Vectors.dense(x)) for x, y in zip(X, Y, strict=True)]
    spark.createDataFrame(rows, ["label", "features"]).write.parquet(str(tmp_path / "rows"))
    df = spark.read.parquet(str(tmp_path / "rows"))
    model = GBUNRegressor(**SMALL).fit(df)
    found = model.transform(df).select("features", "prediction").collect()
    wanted = model.get_booster().predict(np.array([row.features.toArray() for row in found]))
    np.testing.assert_array_equal([row.prediction for row in found], wanted)


def test_fifty_four_million_columns(local):
    width = 54_686_452
    rows = [Vectors.sparse(width, [i % 50, width - 1 - i % 7], [1.0, 1.0]) for i in range(N)]
    df = frame(local, rows, label=[float(i % 50 < 20) for i in range(N)])
    model = GBUNClassifier(linear_bits=12, **SMALL).fit(df)
    assert model.numFeatures == width
    assert MulticlassClassificationEvaluator(metricName="accuracy").evaluate(model.transform(df)) > 0.95


def test_pipelines_are_tuned_saved_and_loaded(local, tmp_path):
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.array(["low", "middle", "high"])[CLASSES]})
    df = local.createDataFrame(table).repartition(2).cache()
    indexer = StringIndexer(inputCol="kind", outputCol="label")
    learner = GBUNClassifier(numWorkers=1, **SMALL)  # so that two run side by side
    pipeline = Pipeline(stages=[indexer, VectorAssembler(inputCols=["a", "b"], outputCol="features"), learner])
    grid = ParamGridBuilder().addGrid(learner.learning_rate, [0.01, 0.5]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="logLoss")
    search = CrossValidator(
        estimator=pipeline, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, parallelism=2, seed=1
    )
    found = search.fit(df)
    assert found.avgMetrics[0] > found.avgMetrics[1]
    assert found.bestModel.stages[-1].getOrDefault("learning_rate") == 0.5
    pipeline.save(str(tmp_path / "pipeline"))
    assert Pipeline.load(str(tmp_path / "pipeline")).getStages()[-1].getOrDefault("n_neurons") == 16
    found.bestModel.save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(
        column(again.transform(df), "prediction"), column(found.bestModel.transform(df), "prediction")
    )
    regression = TrainValidationSplit(
        estimator=GBUNRegressor(featuresCol=["a", "b"], labelCol="b", numWorkers=1, **SMALL), estimatorParamMaps=[{}],
        evaluator=RegressionEvaluator(labelCol="b"), seed=1,
    )  # fmt: skip
    assert regression.fit(df).validationMetrics[0] < 1.0


def test_validation_rows_early_stopping_progress_and_functions_of_the_users(local, caplog):
    torch = pytest.importorskip("torch")

    def loss(y, scores):
        return (y - scores) ** 2 / 2

    distance = gbun.metrics.RowMetric("distance", lambda y, response: np.abs(y - response[:, 0]))
    aside = np.arange(N) % 3 == 0
    df = frame(local, dense(), label=Y, aside=aside)
    heard = []
    params = {**SMALL, "n_estimators": 40, "learning_rate": 1.0, "early_stopping_rounds": 3, "init": "constant"}
    estimator = GBUNRegressor(
        validationIndicatorCol="aside", objective=gbun.TorchLoss(loss), eval_metric=["mae", distance, "rmse"],
        onProgress=heard.append, numWorkers=2, **params,
    )  # fmt: skip
    with caplog.at_level(logging.INFO, logger="gbun.spark"):
        model = estimator.fit(df)
    one = gbun.train(
        {"n_neurons": 16, "n_estimators": 40, "learning_rate": 1.0, "early_stopping_rounds": 3, "init": "constant",
         "eval_metric": "rmse"}, (X[~aside], Y[~aside]), evals={"validation": (X[aside], Y[aside])},
    )  # fmt: skip
    assert torch is not None
    same(model, one, X)
    history = model.summary.evals_result["validation"]
    assert list(history) == ["mae", "distance", "rmse"]
    np.testing.assert_allclose(history["distance"], history["mae"])
    assert [report.round for report in heard] == list(range(len(history["rmse"])))
    assert heard[-1].evaluations["validation"]["rmse"] == history["rmse"][-1]
    assert [w.watched for w in model.summary.workers] != [0, 0]
    lines = [record.getMessage() for record in caplog.records]
    assert any("rows are dealt out evenly to 2 workers" in line for line in lines)
    assert any(line.startswith("round 1 of 40, ") and "validation mae" in line for line in lines)
    assert any(line.startswith("rows of each worker: ") for line in lines)


def test_parameters_that_are_none_and_models_cut_short(local, tmp_path):
    nothing = {"numWorkers": None, "checkpointPath": None, "weightCol": None, "onProgress": None}
    estimator = GBUNClassifier(**nothing)
    estimator.setParams(**{p.name: estimator.getOrDefault(p) for p in estimator.params if estimator.hasDefault(p)})
    estimator.save(str(tmp_path / "e"))
    again = GBUNClassifier.load(str(tmp_path / "e"))
    assert {p.name: v for p, v in again._paramMap.items()} == {p.name: v for p, v in estimator._paramMap.items()}
    model = GBUNRegressor(**nothing, **SMALL).fit(frame(local, dense(), label=Y))
    assert model.get_booster() is model.get_booster()
    model.save(str(tmp_path / "m"))
    assert GBUNRegressionModel.load(str(tmp_path / "m")).getNumWorkers() is None
    (tmp_path / "m" / ".model.gbun.crc").unlink()  # Hadoop's own
    (tmp_path / "m" / "model.gbun").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"m/model.gbun: "):
        GBUNRegressionModel.load(str(tmp_path / "m"))
    (tmp_path / "m" / "model.gbun").unlink()
    with pytest.raises(ValueError, match=r"m has no model.gbun: it was not written completely"):
        GBUNRegressionModel.load(str(tmp_path / "m"))


def test_functions_are_saved_by_name(local, tmp_path):
    GBUNRegressor(objective=spark_jobs.patient).save(str(tmp_path / "e"))
    loaded = GBUNRegressor.load(str(tmp_path / "e"))
    assert loaded.getOrDefault("objective") == "<patient>"
    with pytest.raises(ValueError, match=r"objective <patient> is a function, which the file .* does not hold"):
        loaded.fit(frame(local, dense(X[:5]), label=Y[:5]))


def test_partitions_that_stay_skewed_and_empty(local, caplog):
    rows = local.sparkContext.parallelize(range(2), 2).flatMap(_all_in_the_first(X.tolist(), Y.tolist()))
    skewed = local.createDataFrame(rows, "features array<double>, label double")
    with caplog.at_level(logging.INFO, logger="gbun.spark"):
        model = GBUNRegressor(repartition=False, **SMALL).fit(skewed)
    same(model, alone(X, Y), X)
    assert [w.rows for w in model.summary.workers] == [N, 0]
    assert "worker 0 has 300 of 300 rows: the others wait for it; repartition=True" in caplog.text
    with pytest.raises(ValueError, match=r"repartition=False needs a partition for each of 2 workers, .* has 3"):
        GBUNRegressor(repartition=False, **SMALL).fit(skewed.repartition(3))
    # fewer rows than workers, and a chain of partitions of which Spark makes no barrier stage by itself
    few = GBUNRegressor(**SMALL).fit(skewed.repartition(4).coalesce(3).limit(1).union(skewed.limit(1)))
    assert sum(w.rows for w in few.summary.workers) == 2


def _all_in_the_first(features, y):
    return lambda part: [] if part else list(zip(features, y, strict=True))


@pytest.mark.parametrize(("params", "message"), [
    ({"labelCol": "word"}, "labelCol: column 'word' holds strings; StringIndexer"),
    ({"featuresCol": "date"}, "featuresCol: column 'date' has type date"),
    ({"featuresCol": "nothing"}, "featuresCol='nothing' is no column of the data frame; it has features, word, date"),
    ({"featuresCol": ["features", "word"]}, "column 'features' has type vector; a list must name plain columns"),
    ({"weightCol": "word"}, "weightCol: column 'word' must hold numbers, got string"),
    ({"validationIndicatorCol": "label"}, "column 'label' must be boolean, got double"),
    ({"categoricalCols": ["label"]}, "categoricalCols must be some of the plain columns"),
    ({"checkpointPath": "hdfs://a/b"}, "checkpointPath must be a folder of a shared file system"),
    ({"numWorkers": 3}, r"numWorkers=3 workers train at the same time, but there are 2 task slots"),
    ({"labelCol": "same"}, r"only one class: \[1.0\].*\(X is column 'features'; y is column 'same'\)"),
    ({"labelCol": "gap"}, r"column 'gap' is null in 1 rows"),
    ({"objective": spark_jobs.failing, "init": "constant", "labelCol": "label"}, "in the user's objective"),
])  # fmt: skip
def test_what_is_wrong_is_told_at_once(local, params, message):
    rows = [
        (Vectors.dense([float(i), 1.0]), "w", None, float(i % 2), 1.0, None if i == 3 else 1.0 * (i % 2))
        for i in range(8)
    ]
    schema = "word string, date date, label double, same double, gap double"
    udt = frame(local, dense(X[:1])).schema["features"]
    from pyspark.sql.types import StructType, _parse_datatype_string

    df = local.createDataFrame(rows, StructType([udt, *_parse_datatype_string(schema).fields]))
    began = time.monotonic()
    with pytest.raises((ValueError, WorkerError), match=message) as told:
        GBUNClassifier(**{**SMALL, **params}).fit(df)
    assert time.monotonic() - began < 20
    assert "at org.apache" not in str(told.value)
    if "objective" in params:
        assert isinstance(told.value, WorkerError)
        assert "ZeroDivisionError" in str(told.value)


def test_dynamic_allocation_is_refused(cluster):
    spark, _ = cluster
    conf = spark.sparkContext._conf
    conf.set("spark.dynamicAllocation.enabled", "true")
    try:
        with pytest.raises(ValueError, match=r"spark.dynamicAllocation.enabled is true: Spark runs no barrier stage"):
            GBUNRegressor(**SMALL).fit(frame(spark, dense(), label=Y))
    finally:
        conf.set("spark.dynamicAllocation.enabled", "false")


# On a cluster


@pytest.mark.parametrize("kind", ["regression", "classes", "sparse"])
def test_the_model_of_a_cluster_is_that_of_one(cluster, kind):
    spark, _ = cluster
    data, y, features = (S, (Y > 0).astype(int), sparse()) if kind == "sparse" else (X, Y, dense())
    if kind == "classes":
        y = CLASSES + 5  # any numbers are labels
    estimator = (GBUNRegressor if kind == "regression" else GBUNClassifier)(weightCol="w", **SMALL)
    model = estimator.fit(frame(spark, features, label=y, w=W))
    same(model, alone(data, y, W, "regression" if kind == "regression" else "classification"), data)
    assert len(model.summary.workers) == 2
    predicted = column(model.transform(frame(spark, features).repartition(5)), "prediction")
    np.testing.assert_array_equal(np.sort(predicted), np.sort(model.get_booster().predict(data)))


def test_more_workers_than_slots_are_refused_at_once(cluster, monkeypatch):
    monkeypatch.setattr("gbun.spark.cluster.STARTING", 0.0)  # as if the application had run for a while
    df, began = frame(cluster[0], dense(), label=Y), time.monotonic()
    with pytest.raises(ValueError, match="numWorkers=3 workers train at the same time, but there are 2 task slots"):
        GBUNRegressor(numWorkers=3, **SMALL).fit(df)
    assert time.monotonic() - began < 2


PATIENT = {**SMALL, "n_estimators": 30, "objective": spark_jobs.patient, "init": "constant"}


def test_a_frozen_worker_is_given_up(cluster):
    began = time.monotonic()
    params = {**PATIENT, "objective": spark_jobs.frozen, "timeout": 3.0}
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: no sign of life for 3 s") as told:
        GBUNRegressor(numWorkers=2, **params).fit(frame(cluster[0], dense(), label=Y))
    assert told.value.rank == 1
    assert time.monotonic() - began < 40


class Killer:
    """Kills an executor, once, when so many rounds are done."""

    def __init__(self, cluster, after):
        self.cluster, self.after, self.killed = cluster, after, []

    def __call__(self, report):
        if report.round == self.after and not self.killed:
            self.killed = self.cluster.executors()[:1]
            os.kill(self.killed[0], signal.SIGKILL)


def test_an_executor_is_killed_and_training_goes_on_from_the_checkpoint(cluster, tmp_path):
    spark, processes = cluster
    killer = Killer(processes, 12)
    estimator = GBUNRegressor(
        checkpointPath=f"file://{tmp_path}/run",
        checkpointInterval=5,
        onProgress=killer,
        **{**PATIENT, "timeout": 120.0},
    )
    model = estimator.fit(frame(spark, dense(), label=Y))
    assert killer.killed
    assert model.summary.workers[0].resumed >= 10
    same(model, alone(X, Y, None, "regression", n_estimators=30, init="constant"), X)
    assert list((tmp_path / "run").iterdir()) == []


def test_an_executor_is_killed_and_the_cause_is_told(cluster):
    spark, processes = cluster
    killer, began = Killer(processes, 3), time.monotonic()
    with pytest.raises(WorkerError, match="with checkpointPath Spark tries again") as told:
        GBUNRegressor(onProgress=killer, **PATIENT).fit(frame(spark, dense(), label=Y))
    assert killer.killed
    assert "at org.apache" not in str(told.value)
    assert time.monotonic() - began < 40


def test_executors_that_do_not_come_back_end_the_job(cluster, tmp_path):
    """The last test of the cluster, which is not whole any more."""
    spark, processes = cluster

    def kill(report):
        if report.round == 3:
            os.killpg(processes.processes[1].pid, signal.SIGKILL)

    estimator = GBUNRegressor(
        checkpointPath=str(tmp_path), numWorkers=2, onProgress=kill, **{**PATIENT, "timeout": 3.0}
    )
    began = time.monotonic()
    with pytest.raises(WorkerError, match="executors were lost: for 3 s there have been 1 task slots for 2 workers"):
        estimator.fit(frame(spark, dense(), label=Y))
    assert time.monotonic() - began < 60
