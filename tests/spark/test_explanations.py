"""Contributions and importances on Spark: those of the plain model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

pytest.importorskip("pyspark")
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors
from pyspark.sql import functions as F

from gbun.spark import GBUNClassificationModel, GBUNClassifier, GBUNRegressor
from tests.spark.spark_cluster import session

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

SMALL = {"n_neurons": 16, "n_estimators": 4, "timeout": 120.0, "numWorkers": 1, "contributionsCol": "c"}
rng = np.random.default_rng(0)
N = 120
X = rng.normal(size=(N, 4))
Y = X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=N)
CLASSES = np.digitize(Y, [-0.4, 0.4])
S = scipy.sparse.csr_array(scipy.sparse.random(N, 60, 0.08, "csr", random_state=rng))
WORDS = [[str(word) for word in rng.choice(list("abcdefgh"), rng.integers(0, 6))] for _ in range(N)]
FORMS = {
    "vectors": (X, [Vectors.dense(row) for row in X.tolist()]),
    "arrays": (X, X.tolist()),
    "sparse": (S, [Vectors.sparse(60, S[[i]].indices.tolist(), S[[i]].data.tolist()) for i in range(N)]),
    "tokens": (WORDS, WORDS),
}


@pytest.fixture(scope="module")
def spark():
    made = session("local[2]", **{"spark.executor.cores": "2", "spark.task.cpus": "1"})
    yield made
    made.stop()


def frame(spark, features, y):
    rows = zip(range(N), features, np.asarray(y, dtype=float).tolist(), strict=True)
    return spark.createDataFrame(list(rows), ["id", "features", "label"])


def contributions(model, df):
    return [row["c"] for row in model.transform(df.repartition(2)).orderBy("id").select("c").collect()]


def assert_contributions(found, explained, c, tolerance):
    """Compare the vectors or maps of score c with an explanation of the same rows."""
    one = explained.output(c)
    for i, value in enumerate(found):
        if isinstance(value, dict):
            row = one.values[[i]]
            wanted = {one.names[j]: v for j, v in zip(row.indices, row.data, strict=True)}
            assert value.keys() == wanted.keys() | {"(base)"}
            values, wanted = [value[key] for key in wanted] + [value["(base)"]], [*wanted.values(), one.base[i]]
        elif isinstance(value, SparseVector):
            row = one.values[[i]]
            np.testing.assert_array_equal(value.indices, [*row.indices, 60])
            assert value.size == 61
            values, wanted = value.values, [*row.data, one.base[i]]
        else:
            assert isinstance(value, DenseVector)
            values, wanted = value.values, [*one.values[i], one.base[i]]
        np.testing.assert_allclose(values, wanted, atol=tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_contributions_and_importances_are_those_of_the_model(spark, form, monkeypatch):
    data, features = FORMS[form]
    for estimator, y in ((GBUNRegressor, Y), (GBUNClassifier, CLASSES), (GBUNClassifier, Y > 0)):
        df = frame(spark, features, y)
        model = estimator(**SMALL).fit(df)
        plain = model.get_booster()
        explained = plain.explain(data)
        tolerance = 1e-3 * float(np.abs(explained.scores).max())
        found = contributions(model, df)
        n_scores = plain.ensemble.n_scores
        assert n_scores == (3 if y is CLASSES else 1)
        for c in range(n_scores):
            scores = found if n_scores == 1 else [row[c] for row in found]
            assert_contributions(scores, explained, c, tolerance)
        wanted = plain.importance(data)
        importance = model.importance(df.repartition(3))
        assert (importance.names, importance.kind) == (wanted.names, "contribution")
        np.testing.assert_allclose(importance.values, wanted.values, atol=tolerance)
        best = model.importance(df, top=3)
        assert len(best.names) == 3
        np.testing.assert_allclose(best.values, np.sort(importance.values)[::-1][:3], atol=tolerance)
        assert (np.diff(best.values) <= 0).all()
        with monkeypatch.context() as patched:
            patched.delattr("pyspark.sql.functions.arrow_udf", raising=False)  # what Spark before 4.1 lacks
            assert contributions(model, df) == found


def test_plain_columns_have_names_and_trees_have_gains(spark):
    table = pd.DataFrame({
        "x": X[:, 0], "city": np.where(X[:, 1] > 0, "Rome", "Oslo"), "id": np.arange(N), "label": Y,
    })  # fmt: skip
    table.loc[::7, "city"] = None
    df = spark.createDataFrame(table.astype(object).where(table.notna(), None))
    names = ["x", "city"]
    parameters = {**SMALL, "n_neurons": None, "learner": "tree", "featuresCol": names}
    model = GBUNRegressor(**parameters).fit(df)
    plain = model.get_booster()
    explained = plain.explain(table[names])
    assert_contributions(contributions(model, df), explained, 0, 1e-9)
    wanted = plain.importance(table[names])
    found = model.importance(df)
    assert found.names == wanted.names == ("x", "city")
    np.testing.assert_allclose(found.values, wanted.values)
    gain = model.importance()
    assert (gain.kind, gain.names) == ("gain", ("x", "city"))
    np.testing.assert_array_equal(gain.values, plain.importance().values)
    assert model.importance(top=1).ranked() == gain.ranked(1)


def test_very_wide_vectors_stay_sparse(spark):
    width = 54_686_452
    rows = [Vectors.sparse(width, [i % 50, width - 1 - i % 7], [1.0, 1.0]) for i in range(N)]
    df = frame(spark, rows, [float(i % 50 < 20) for i in range(N)])
    model = GBUNClassifier(linear_bits=12, **SMALL).fit(df)
    for row, vector in zip(rows, contributions(model, df), strict=True):
        assert isinstance(vector, SparseVector)
        assert vector.indices.tolist() == [*row.indices, width]
    best = model.importance(df, top=60)
    assert set(best.names) == {*map(str, range(50)), *(str(width - 1 - i) for i in range(7))}
    assert best.values[0] > 0.0


def test_the_column_is_a_parameter_like_others(spark, tmp_path):
    df = frame(spark, FORMS["vectors"][1], Y > 0)
    learner = GBUNClassifier(**{**SMALL, "contributionsCol": None})
    assert learner.getContributionsCol() is None
    model = learner.fit(df)
    assert model.transform(df).columns == [*df.columns, "rawPrediction", "probability", "prediction"]
    model.setContributionsCol("why").setPredictionCol("").setProbabilityCol("").setRawPredictionCol("")
    found = model.transform(df)
    assert found.columns == [*df.columns, "why"]
    model.save(str(tmp_path / "m"))
    again = GBUNClassificationModel.load(str(tmp_path / "m"))
    assert again.getContributionsCol() == "why"
    assert again.transform(df).collect() == found.collect()
    pipeline = Pipeline(stages=[GBUNClassifier(**SMALL)]).fit(df)
    pipeline.save(str(tmp_path / "p"))
    assert "c" in PipelineModel.load(str(tmp_path / "p")).transform(df).columns
    assert GBUNClassifier(contributions_col="c").getContributionsCol() == "c"


def test_bad_input_is_refused(spark):
    df = frame(spark, FORMS["vectors"][1], Y)
    model = GBUNRegressor(**SMALL).fit(df)
    with pytest.raises(ValueError, match=r"columns \['C'\] are already there; drop them"):
        model.setContributionsCol("C").transform(df.withColumn("c", F.lit(1)))
    message = "must have different names, got 'Prediction' for predictionCol and contributionsCol"
    with pytest.raises(ValueError, match=message):
        model.setContributionsCol("Prediction").transform(df)
    with pytest.raises(ValueError, match=r"unknown parameter 'pred_contrib_col'; it is contributionsCol here"):
        GBUNRegressor(pred_contrib_col="c")
    with pytest.raises(TypeError, match="contributionsCol"):
        model.setContributionsCol(3)
    for arguments, words in (
        ({"kind": "gains"}, "kind must be 'gain' or 'contribution' on Spark, got 'gains'; get_booster"),
        ({"kind": "contribution"}, "kind='contribution' needs a data frame"),
        ({"dataset": df, "kind": "gain"}, "kind='gain' needs no rows"),
        ({"dataset": df, "top": 0}, "top must be a whole number of at least 1, got 0"),
        ({"dataset": df.where("id < 0")}, r"X has no rows \(X is column 'features'\)"),
        ({"dataset": df.where("false")}, "X has no rows"),
        ({"dataset": df.drop("features")}, "featuresCol='features' is no column of the data frame; it has id, label"),
        ({}, "kind='gain' needs trees, and this model has learner 'network'"),
    ):
        with pytest.raises(ValueError, match=words):
            model.importance(**arguments)
    narrow = frame(spark, [Vectors.dense(row) for row in X[:, :2].tolist()], Y)
    with pytest.raises(ValueError, match=r"^X has 2 features, the model was trained on 4 \(X is column 'features'\)$"):
        model.importance(narrow)


def test_the_document_runs(spark):
    """The code of the section on explanations."""
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    section = text.split("## Explanations\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    table = pd.DataFrame({"age": X[:, 0], "income": X[:, 1], "city": np.where(X[:, 2] > 0, "Rome", "Oslo")})
    df = spark.createDataFrame(table.assign(clicked=(Y > 0).astype(float)))
    names = {"featuresCol": ["age", "income", "city"], "labelCol": "clicked", "numWorkers": 1}
    model = GBUNClassifier(n_neurons=16, n_estimators=4, **names).fit(df)
    known = {"model": model, "test": df}
    exec(code, known)
    row = known["rows"].first()
    assert len(row["contributions"]) == 4
    margin = row["rawPrediction"][1]
    assert sum(row["contributions"]) == pytest.approx(margin, abs=0.01)
    assert set(known["importance"].names) <= {"age", "income", "city"}
