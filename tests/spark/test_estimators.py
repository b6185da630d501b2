"""gbun.spark on Spark: in one process, and on a standalone cluster of this machine whose executors are killed."""

from __future__ import annotations

import logging
import os
import re
import signal
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.metrics import roc_auc_score

import gbun
from gbun.collectives import WorkerError
from tests.spark import spark_jobs

pytest.importorskip("pyspark")
from pyspark.ml import Pipeline, PipelineModel, evaluation, tuning
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.sql import Window
from pyspark.sql import functions as F

from gbun.spark import GBUNClassificationModel, GBUNClassifier, GBUNRegressionModel, GBUNRegressor
from tests.spark.spark_cluster import Standalone, executor_of, session, wait_for_slots

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

SMALL = {"n_neurons": 16, "n_estimators": 4, "timeout": 120.0}
rng = np.random.default_rng(0)
N = 300
X = rng.normal(size=(N, 4))
Y = X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=N)
W = rng.uniform(0.5, 2.0, size=N)
S = scipy.sparse.csr_array(scipy.sparse.random(N, 60, 0.08, "csr", random_state=rng))
CLASSES = np.digitize(Y, [-0.4, 0.4])


@pytest.fixture(scope="module")
def places():
    """A function that starts a session, local or on the cluster, and stops the session before it.

    Kernels are compiled here first: workers find them on disk, and their timeouts do not have to include a compiler.
    """
    for data, y, task in ((X, Y, "regression"), (S, Y > 0, "classification"), (X, CLASSES, "classification")):
        train_alone(data, y, W, task)
    train_alone(X, CLASSES, W, "classification", n_neurons=None, learner="tree")
    state = {}

    def start(place, master=None, **settings):
        if state.get("place") != place:
            stop()
            if master is None and "cluster" not in state:
                state["cluster"] = Standalone(2)
            state["spark"] = session(master or state["cluster"].master, **settings)
            state["place"] = place
        return state["spark"], state.get("cluster")

    def stop():
        if "spark" in state:
            state.pop("spark").stop()

    yield start
    stop()
    if "cluster" in state:
        state["cluster"].stop()


@pytest.fixture
def local(places):
    cores = {"spark.executor.cores": "4", "spark.task.cpus": "2", "spark.default.parallelism": "2"}
    return places("local", "local[4]", **cores)[0]


@pytest.fixture
def cluster(places):
    # Settings of the first session are the defaults of later ones.
    spark, processes = places("cluster", **{"spark.executor.cores": "1", "spark.task.cpus": "1"})
    wait_for_slots(spark)  # the test before may have killed an executor
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


def train_alone(data, y, weight=None, task=None, **more):
    return gbun.train({"n_neurons": 16, "n_estimators": 4, **more}, (data, y, weight), task=task)


def assert_model(model, one, data):
    wanted = one.decision_function(data)
    np.testing.assert_allclose(model.get_booster().decision_function(data), wanted, atol=1e-7 * wanted.std())


def column(df, name):
    return np.array([row[0] for row in df.select(name).collect()])


def predict(model, df, name="prediction"):
    return column(model.transform(df), name)


# In one process


def test_classes_probabilities_and_raw_predictions(local, tmp_path, monkeypatch):
    two = (Y > 0).astype(float)
    df = frame(local, sparse(), label=two, weight=W).repartition(3)
    model = GBUNClassifier(weightCol="weight", numWorkers=2, **SMALL).fit(df)
    one = train_alone(S, two, W, "classification")
    assert_model(model, one, S)
    found = model.transform(frame(local, sparse(), label=two).coalesce(1))
    np.testing.assert_array_equal(column(found, "prediction"), model.get_booster().predict(S))
    probability = column(found, "probability")
    np.testing.assert_allclose(probability, one.predict_proba(S), atol=1e-6)
    raw = column(found, "rawPrediction")
    np.testing.assert_allclose(raw[:, 1], one.decision_function(S), atol=1e-6)
    np.testing.assert_array_equal(raw[:, 0], -raw[:, 1])
    wanted = roc_auc_score(two, one.decision_function(S))
    assert evaluation.BinaryClassificationEvaluator().evaluate(found) == pytest.approx(wanted, abs=1e-3)
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
    np.testing.assert_array_equal(predict(again, df), predict(model, df))
    plain = gbun.load_model(tmp_path / "m" / "model.gbun")
    np.testing.assert_array_equal(plain.predict(S), model.get_booster().predict(S))
    with pytest.raises(ValueError, match=r"holds a gbun.spark.estimators.GBUNClassificationModel"):
        GBUNRegressionModel.load(str(tmp_path / "m"))
    with pytest.raises(ValueError, match=r"columns \['prediction'\] are already there"):
        model.setProbabilityCol("").setRawPredictionCol("").transform(found)


def test_every_kind_of_features(local, monkeypatch):
    """Arrays, plain columns with words and categories, and tokens give the models that gbun.train gives."""
    table = pd.DataFrame({
        "x": X[:, 0], "n": np.where(X[:, 1] > 1, np.nan, X[:, 1]), "city": rng.choice(["Rom", "Oslo", "Kiew"], N),
        "code": rng.integers(0, 5, N), "y": Y,
    })  # fmt: skip
    table.loc[::7, "city"] = None
    wanted = table.assign(code=table["code"].astype("category"))
    df = local.createDataFrame(table.astype(object).where(table.notna(), None))
    names = ["x", "n", "city", "code"]
    model = GBUNRegressor(featuresCol=names, categoricalCols=["code"], labelCol="y", **SMALL).fit(df)
    assert_model(model, train_alone(wanted[names], Y), wanted[names])
    predicted = predict(model, df)
    np.testing.assert_array_equal(predicted, model.get_booster().predict(wanted[names]))

    declared = GBUNRegressor(featuresCol=["x", "code"], categorical_features=["code"], labelCol="y", **SMALL).fit(df)
    assert declared.get_booster().description.schema.declared == ("code",)
    np.testing.assert_array_equal(predict(declared, df), declared.get_booster().predict(table[["x", "code"]]))

    arrays = frame(local, X.tolist(), label=Y)
    by_arrays = GBUNRegressor(numWorkers=1, **SMALL).fit(arrays)
    assert_model(by_arrays, train_alone(X, Y), X)

    words = [[str(w) for w in rng.choice(list("abcdefgh"), rng.integers(1, 6))] for _ in range(N)]
    y = np.array([row.count("a") + 0.5 * row.count("b") for row in words])
    tokens = GBUNRegressor(predictionCol="p", **SMALL).fit(frame(local, words, label=y))
    assert_model(tokens, train_alone(words, y), words)
    assert tokens.numFeatures == -1
    np.testing.assert_array_equal(predict(tokens, frame(local, words), "p"), tokens.get_booster().predict(words))

    monkeypatch.delattr("pyspark.sql.functions.arrow_udf", raising=False)  # what Spark before 4.1 lacks
    np.testing.assert_array_equal(predict(model, df), predicted)
    for features in (arrays, frame(local, dense())):
        np.testing.assert_array_equal(predict(by_arrays, features), by_arrays.get_booster().predict(X))
    np.testing.assert_array_equal(predict(tokens, frame(local, words), "p"), tokens.get_booster().predict(words))


def test_vectors_in_parquet_files_are_predicted(local, tmp_path):
    """Spark reads Parquet column by column, and passes vectors on."""
    spark, rows = local, [(float(y), Vectors.dense(x)) for x, y in zip(X, Y, strict=True)]
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
    assert evaluation.MulticlassClassificationEvaluator(metricName="accuracy").evaluate(model.transform(df)) > 0.95


def test_pipelines_are_tuned_saved_and_loaded(local, tmp_path):
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.array(["low", "middle", "high"])[CLASSES]})
    df = local.createDataFrame(table).repartition(2).cache()
    indexer = StringIndexer(inputCol="kind", outputCol="label")
    learner = GBUNClassifier(numWorkers=1, **SMALL)  # so that two run side by side
    pipeline = Pipeline(stages=[indexer, VectorAssembler(inputCols=["a", "b"], outputCol="features"), learner])
    grid = tuning.ParamGridBuilder().addGrid(learner.learning_rate, [0.01, 0.5]).build()
    evaluator = evaluation.MulticlassClassificationEvaluator(metricName="logLoss")
    search = tuning.CrossValidator(
        estimator=pipeline, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, parallelism=2, seed=1
    )
    found = search.fit(df)
    assert found.avgMetrics[0] > found.avgMetrics[1]
    assert found.bestModel.stages[-1].getOrDefault("learning_rate") == 0.5
    pipeline.save(str(tmp_path / "pipeline"))
    assert Pipeline.load(str(tmp_path / "pipeline")).getStages()[-1].getOrDefault("n_neurons") == 16
    found.bestModel.save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    found.save(str(tmp_path / "search"))
    search = tuning.CrossValidatorModel.load(str(tmp_path / "search"))
    assert search.avgMetrics == found.avgMetrics
    for one in (again, search):
        np.testing.assert_array_equal(predict(one, df), predict(found.bestModel, df))

    learner = GBUNRegressor(featuresCol=["a", "b"], labelCol="b", numWorkers=1, **SMALL)
    split = tuning.TrainValidationSplit(
        estimator=learner, estimatorParamMaps=tuning.ParamGridBuilder().addGrid(learner.n_estimators, [1, 8]).build(),
        evaluator=evaluation.RegressionEvaluator(labelCol="b"), seed=1,
    ).fit(df)  # fmt: skip
    assert split.validationMetrics[1] < 0.8 * split.validationMetrics[0]
    split.save(str(tmp_path / "split"))
    loaded = tuning.TrainValidationSplitModel.load(str(tmp_path / "split"))
    assert loaded.validationMetrics == split.validationMetrics
    assert loaded.bestModel.get_booster().n_rounds == 8
    np.testing.assert_array_equal(predict(loaded, df), predict(split, df))


def test_validation_rows_early_stopping_progress_and_user_functions(local, caplog):
    torch = pytest.importorskip("torch")

    def loss(y, scores):
        return (y - scores) ** 2 / 2

    distance = gbun.metrics.RowMetric("distance", lambda y, response: np.abs(y - response[:, 0]))
    aside = np.arange(N) % 3 == 0
    df = frame(local, dense(), label=Y, aside=aside)
    reports = []
    params = {**SMALL, "n_estimators": 40, "learning_rate": 1.0, "early_stopping_rounds": 3, "init": "constant"}
    estimator = GBUNRegressor(
        validationIndicatorCol="aside", objective=gbun.TorchLoss(loss), eval_metric=["mae", distance, "rmse"],
        onProgress=reports.append, numWorkers=2, **params,
    )  # fmt: skip
    with caplog.at_level(logging.INFO, logger="gbun.spark"):
        model = estimator.fit(df)
    one = gbun.train(
        {"n_neurons": 16, "n_estimators": 40, "learning_rate": 1.0, "early_stopping_rounds": 3, "init": "constant",
         "eval_metric": "rmse"}, (X[~aside], Y[~aside]), evals={"validation": (X[aside], Y[aside])},
    )  # fmt: skip
    assert torch is not None
    assert_model(model, one, X)
    history = model.summary.evals_result["validation"]
    assert list(history) == ["mae", "distance", "rmse"]
    np.testing.assert_allclose(history["distance"], history["mae"])
    assert [report.round for report in reports] == list(range(len(history["rmse"])))
    assert reports[-1].evaluations["validation"]["rmse"] == history["rmse"][-1]
    assert sum(w.validation_rows for w in model.summary.workers) == aside.sum()
    assert sum(w.rows for w in model.summary.workers) == (~aside).sum()
    lines = [record.getMessage() for record in caplog.records]
    assert any("rows are distributed evenly to 2 workers" in line for line in lines)
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
    assert_model(model, train_alone(X, Y), X)
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
    ({"labelCol": "same"}, r"only one class: \[1.0\].*\(X is column 'features'; y is column 'same'\)"),
    ({"labelCol": "gap"}, r"column 'gap' is null in 1 rows"),
    ({"objective": spark_jobs.failing, "init": "constant", "labelCol": "label"}, "in the user's objective"),
])  # fmt: skip
def test_errors_are_raised_with_their_cause(local, params, message):
    rows = [
        (Vectors.dense([float(i), 1.0]), "w", None, float(i % 2), 1.0, None if i == 3 else 1.0 * (i % 2))
        for i in range(8)
    ]
    schema = "word string, date date, label double, same double, gap double"
    udt = frame(local, dense(X[:1])).schema["features"]
    from pyspark.sql.types import StructType, _parse_datatype_string

    df = local.createDataFrame(rows, StructType([udt, *_parse_datatype_string(schema).fields]))
    with pytest.raises((ValueError, WorkerError), match=message) as raised:
        GBUNClassifier(**{**SMALL, **params}).fit(df)
    assert "at org.apache" not in str(raised.value)
    if "objective" in params:
        assert isinstance(raised.value, WorkerError)
        assert "ZeroDivisionError" in str(raised.value)


CONVERTED = {
    "timestamp": ("timestamp'2026-01-01 00:00:00' + make_interval(0, 0, 0, id)", "timestamp"),
    "naive": ("timestamp_ntz'2026-01-01 00:00:00' + make_interval(0, 0, 0, id)", "timestamp_ntz"),
    "day": ("date_add(date'2026-01-01', id)", "date"),
    "map": ("map('key', id)", "map<string,int>"),
    "struct": ("named_struct('field', id)", "struct<field:int>"),
    "arrays": ("array(timestamp_seconds(id))", "array<timestamp>"),
    "bytes": ("cast(cast(id as string) as binary)", "binary"),
    "span": ("make_dt_interval(id)", "interval day to second"),
    "nothing": ("null", "void"),
    "with.dot": ("date_add(date'2026-01-01', id)", "date"),
}


def test_columns_of_other_types_are_refused_with_a_conversion(local):
    """The line of code in the error converts the column."""
    columns = [F.expr(made).alias(name) for name, (made, _) in CONVERTED.items()]
    ids = local.range(40).selectExpr("cast(id as int) as id")
    df = ids.select(*columns, F.col("id").cast("double").alias("label"), F.expr("decimal(id)").alias("price"))
    for name, (_, kind) in CONVERTED.items():
        with pytest.raises(ValueError, match=re.escape(f"featuresCol: column {name!r} has type {kind}; ")) as raised:
            GBUNRegressor(featuresCol=name, **SMALL).fit(df)
        line = re.search(r"convert it: (df\.withColumn\(.*\)), ", str(raised.value))[1]
        converted = eval(line, {"df": df, "F": F})
        features = name if kind.startswith("array") else [name, "price"]
        model = GBUNRegressor(featuresCol=features, numWorkers=1, **SMALL).fit(converted)
        assert sum(w.rows for w in model.summary.workers) == 40
    for params, what in (({"labelCol": "day"}, "must hold numbers, got date"), ({"weightCol": "day"}, "numbers, got")):
        with pytest.raises(ValueError, match=rf'column \'day\' .*{what}.*; convert it: df.withColumn\("day", F\.'):
            GBUNRegressor(featuresCol="price", **SMALL, **params).fit(df)


def test_a_column_with_another_type_than_in_training_is_refused(local):
    df = local.range(40).selectExpr("cast(id as double) as label", "cast(id % 3 as string) as word", "id as number")
    model = GBUNRegressor(featuresCol=["word", "number"], numWorkers=1, **SMALL).fit(df)
    wanted = predict(model, df)
    for name, was, kind, cast in (
        ("word", "categories", "bigint", "string"),
        ("number", "numbers", "string", "double"),
    ):
        other = df.withColumn(name, F.col(name).cast(kind))
        message = f"column {name!r} held {was} in training and has type {kind} now; convert it: "
        line = f'df.withColumn("{name}", F.col("{name}").cast("{cast}"))'
        with pytest.raises(ValueError, match=re.escape(message + line)):
            model.transform(other)
        converted = eval(line, {"df": other, "F": F})
        np.testing.assert_array_equal(predict(model, converted), wanted)


def test_each_worker_has_one_partition_for_any_query(local, monkeypatch):
    """Adaptive execution is on by default, and joins small partitions unless their number is given."""
    assert local.conf.get("spark.sql.adaptive.enabled") == "true"
    df = local.range(60).selectExpr("cast(id % 7 as double) as a", "cast(id as double) as label")
    other = local.range(7).selectExpr("cast(id as double) as a", "id as b")
    means = df.groupBy("a").agg(F.sum("label").alias("label"))
    frames = {
        "one row": (df.limit(1), 1), "cached": (means.cache(), 7), "join": (df.hint("merge").join(other, "a"), 60),
        "first": (df.orderBy("label").limit(3), 3),
        "window": (df.withColumn("label", F.sum("label").over(Window.partitionBy("a"))), 60),
    }  # fmt: skip
    params = {**SMALL, "n_estimators": 1, "featuresCol": ["a"], "numWorkers": 2}
    for name, (rows, n) in frames.items():
        workers = GBUNRegressor(**params).fit(rows).summary.workers
        assert (len(workers), sum(w.rows for w in workers)) == (2, n), name
    for none in (df.where("a > 100"), df.where("false")):  # for the latter Spark makes no task at all
        with pytest.raises(ValueError, match="X has no rows"):
            GBUNRegressor(**params).fit(none)
    with pytest.raises(ValueError, match="Spark runs no barrier stage on rows of coalesce, union or limit"):
        GBUNRegressor(repartition=False, **params).fit(df.repartition(3).coalesce(2))
    monkeypatch.setattr("gbun.spark.cluster._distribute_rows", lambda rows, *_: rows.repartition(1))
    with pytest.raises(ValueError, match="numWorkers=2 workers are to train, but Spark made 1 tasks of the rows"):
        GBUNRegressor(**params).fit(df)


def test_a_task_has_as_many_threads_as_cpus(local, tmp_path, monkeypatch):
    df = frame(local, dense(), label=Y)
    monkeypatch.setattr("gbun.spark.cluster.run_task", partial(spark_jobs.record_threads, folder=str(tmp_path)))
    model = GBUNRegressor(**SMALL).fit(df)
    assert len(model.summary.workers) == 2
    assert [(tmp_path / f"{rank}.threads").read_text() for rank in range(2)] == ["2", "2"]
    GBUNRegressor(n_jobs=1, **SMALL).fit(df)
    assert [(tmp_path / f"{rank}.threads").read_text() for rank in range(2)] == ["1", "1"]
    with pytest.raises(
        ValueError,
        match=r"numWorkers=3 workers .* there are 2 task slots \(spark.task.cpus=2\); set numWorkers to at most 2",
    ):
        GBUNRegressor(numWorkers=3, **SMALL).fit(df)


def test_ctrl_c_ends_the_workers_and_the_next_training_gets_their_slots(local):
    reported = []

    def interrupt(report):
        reported.append(report.round)
        if report.round == 3:
            os.kill(os.getpid(), signal.SIGINT)

    df, n_rounds = frame(local, dense(), label=Y), 10**5
    with pytest.raises(KeyboardInterrupt):
        GBUNRegressor(onProgress=interrupt, **{**PATIENT, "n_estimators": n_rounds}).fit(df)
    assert 3 <= reported[-1] < n_rounds - 1
    model = GBUNRegressor(**SMALL).fit(df)
    assert len(model.summary.workers) == 2
    assert_model(model, train_alone(X, Y), X)


# On a cluster


@pytest.mark.parametrize("kind", ["classes", "sparse", "trees"])
def test_the_model_of_a_cluster_is_that_of_one(cluster, kind):
    """Classification; the tests of lost executors have regression."""
    spark, _ = cluster
    data, y, features = S, (Y > 0).astype(int), sparse()
    if kind != "sparse":
        data, y, features = X, CLASSES + 5, dense()  # any numbers may be labels
    more = {"n_neurons": None, "learner": "tree"} if kind == "trees" else {}
    model = GBUNClassifier(weightCol="w", **{**SMALL, **more}).fit(frame(spark, features, label=y, w=W))
    one = train_alone(data, y, W, "classification", **more)
    assert_model(model, one, data)
    if kind == "trees":  # the same splits, bit for bit
        found, wanted = (m.ensemble.steps for m in (model.get_booster(), one))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a.partition.tree.threshold, b.partition.tree.threshold)
    assert len(model.summary.workers) == 2
    predicted = column(model.transform(frame(spark, features).repartition(5)), "prediction")
    np.testing.assert_array_equal(np.sort(predicted), np.sort(model.get_booster().predict(data)))


def test_more_workers_than_slots_are_refused_at_once(cluster, monkeypatch):
    monkeypatch.setattr("gbun.spark.cluster.STARTUP_SECONDS", 0.0)  # as if the application had run for a while
    monkeypatch.setattr("gbun.spark.cluster.sleep", pytest.fail)
    df = frame(cluster[0], dense(), label=Y)
    with pytest.raises(ValueError, match="numWorkers=3 workers train at the same time, but there are 2 task slots"):
        GBUNRegressor(numWorkers=3, **SMALL).fit(df)


PATIENT = {**SMALL, "n_estimators": 30, "objective": spark_jobs.patient, "init": "constant"}


def test_a_frozen_worker_is_given_up(cluster):
    params = {**PATIENT, "objective": spark_jobs.frozen, "timeout": 3.0}
    with pytest.raises(WorkerError, match="worker 1 of 2 failed: no sign of life for 3 s") as raised:
        GBUNRegressor(numWorkers=2, **params).fit(frame(cluster[0], dense(), label=Y))
    assert raised.value.rank == 1


class Killer:
    """Kills the executor of a rank, once, after some rounds."""

    def __init__(self, cluster, known, rank, after):
        self.cluster, self.known, self.rank, self.after, self.killed = cluster, known, rank, after, 0

    def __call__(self, report):
        if report.round >= self.after and not self.killed:
            self.killed = executor_of(self.known.process(self.rank), self.cluster.executors())
            os.kill(self.killed, signal.SIGKILL)


def test_the_first_workers_executor_is_killed_and_training_resumes_from_the_checkpoint(cluster, tmp_path):
    spark, processes = cluster
    known = spark_jobs.Known(tmp_path)
    killer = Killer(processes, known, 0, 12)
    params = {**PATIENT, "objective": known, "weightCol": "w", "onProgress": killer, "checkpointInterval": 5}
    model = GBUNRegressor(checkpointPath=f"file://{tmp_path}/run", **params).fit(frame(spark, dense(), label=Y, w=W))
    assert killer.killed
    assert model.summary.workers[0].resumed_rounds >= 10
    assert_model(model, train_alone(X, Y, W, "regression", n_estimators=30, init="constant"), X)
    assert list((tmp_path / "run").iterdir()) == []


def assert_names_lost_worker(error):
    """The error names worker 1 and its host, and was not raised by the timeout."""
    assert error.lost
    assert error.rank == 1
    assert str(error).startswith("worker 1 ")
    assert "(worker 1 was on host 127.0.0.1)" in str(error)
    assert "at org.apache" not in str(error)
    assert "no sign of life" not in str(error)


def test_another_workers_executor_is_killed_and_the_error_names_the_cause(cluster, tmp_path):
    spark, processes = cluster
    known = spark_jobs.Known(tmp_path)
    killer = Killer(processes, known, 1, 3)
    with pytest.raises(WorkerError, match="with checkpointPath Spark tries again") as raised:
        GBUNRegressor(onProgress=killer, **{**PATIENT, "objective": known}).fit(frame(spark, dense(), label=Y))
    assert_names_lost_worker(raised.value)


def test_a_python_worker_is_killed_and_the_error_names_the_cause(cluster, tmp_path):
    params = {**PATIENT, "objective": spark_jobs.Dying(tmp_path, 5)}
    with pytest.raises(WorkerError, match="with checkpointPath Spark tries again") as raised:
        GBUNRegressor(**params).fit(frame(cluster[0], dense(), label=Y))
    assert_names_lost_worker(raised.value)


def test_a_worker_that_is_killed_after_training_costs_no_round(cluster, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("gbun.spark.cluster.run_task", partial(spark_jobs.die_at_the_end, folder=str(tmp_path)))
    model = GBUNRegressor(checkpointPath=str(tmp_path / "run"), **SMALL).fit(frame(cluster[0], dense(), label=Y))
    assert (tmp_path / "killed").exists()
    assert model.summary.workers[0].resumed_rounds == SMALL["n_estimators"]
    assert "nothing was left to train: all 4 rounds are those of checkpoint" in caplog.text
    assert_model(model, train_alone(X, Y), X)
    assert list((tmp_path / "run").iterdir()) == []


def test_executors_that_do_not_come_back_end_the_job(cluster, tmp_path):
    """The last test of the cluster, which has one worker less afterwards."""
    spark, processes = cluster

    def kill(report):
        if report.round == 3:
            os.killpg(processes.processes[1].pid, signal.SIGKILL)

    params = {**PATIENT, "timeout": 3.0, "numWorkers": 2, "onProgress": kill}
    with pytest.raises(WorkerError, match="executors were lost: for 3 s there have been 1 task slots for 2 workers"):
        GBUNRegressor(checkpointPath=str(tmp_path), **params).fit(frame(spark, dense(), label=Y))
