"""The command line: complete runs with every file format, and the exit code and message of each failure."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import gbun
from gbun.cli.application import app
from gbun.cli.labels import guess_task_from_summaries, summarize_labels
from gbun.cli.options import option_name
from gbun.config import parameter_fields
from tests.data.test_svmlight import write_svmlight
from tests.learners.random_cuts import RandomCuts

SMALL = ("--n-neurons", "16", "--n-estimators", "5")
N, TRAIN = 240, 180


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write the same rows in every format: training rows, and test rows whose largest feature id is smaller."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    X = scipy.sparse.csr_array(scipy.sparse.random(N, 50, 0.2, "csr", np.float32, rng))
    y = np.where(X[:, :10].sum(axis=1) > X[:, 10:20].sum(axis=1), 1, -1)
    y3 = np.digitize(X[:, :10].sum(axis=1), [0.5, 1.0])
    frame = pd.DataFrame({"size": rng.normal(size=N), "colour": rng.choice(["red", "[b]blue[/b]"], N)})
    frame["age"] = rng.normal(size=N)
    frame["w"] = rng.uniform(1.0, 2.0, N)
    frame["kind"] = np.where(frame["size"] + (frame["colour"] == "red") > 0.5, "apple", "plum, dark")
    frame["price"] = frame["size"] * 2.5 + 10.0
    for name, rows in (("train", slice(0, TRAIN)), ("test", slice(TRAIN, N))):
        sparse = X[rows] if name == "train" else X[rows, :45]
        for ending in (".svm", ".svm.gz", ".libsvm.xz"):
            write_svmlight(folder / f"{name}{ending}", sparse, y[rows])
        frame[rows].to_csv(folder / f"{name}.csv", index=False)
        frame[rows].to_parquet(folder / f"{name}.parquet")
        np.savez(folder / f"{name}.npz", X=X[rows].toarray(), y=y3[rows])
        scipy.sparse.save_npz(folder / f"{name}-sparse.npz", X[rows])
        np.save(folder / f"{name}-labels.npy", y[rows])
    write_svmlight(folder / "wide.svm", scipy.sparse.csr_array([[0.0] * 60 + [1.0]]), [1])
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("GBUN_TRACEBACK", raising=False)


def exit_code(*arguments):
    """Run a command in this process."""
    with pytest.raises(SystemExit) as stop:
        app([str(a) for a in arguments], prog_name="gbun")
    return stop.value.code or 0


def unwrap(text):
    """Remove line breaks, runs of spaces and the frames of help."""
    return " ".join(text.replace("│", " ").split())


@pytest.fixture
def call(capsys):
    """A function that runs a command, checks its exit code and returns its output."""

    def run(*arguments, code=0):
        capsys.readouterr()
        found = exit_code(*arguments)
        out, err = capsys.readouterr()
        assert found == code, f"exit code {found}\n{out}\n{err}"
        return SimpleNamespace(out=out, err=unwrap(err))

    return run


@pytest.fixture(scope="module")
def models(folder):
    """Model files of sparse rows, of a frame with categories, and of dense columns."""
    rows = {
        "sparse": ["train.svm"],
        "frame": ["train.csv", "--target", "kind", "--weight", "w"],
        "dense": ["train.npz"],
    }
    for name, arguments in rows.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert exit_code("train", *arguments, "--model", f"{name}.gbun", "--quiet", *SMALL) == 0
    return {name: f"{name}.gbun" for name in rows}


@pytest.mark.parametrize(
    ("given", "test", "task"),
    [
        (["train.svm", "--valid", "test.svm"], ["test.svm.gz"], "classification"),
        (["train.svm.gz", "--scale", "standard"], ["test.libsvm.xz"], "classification"),
        (["train.libsvm.xz", "--task", "regression"], ["test.svm"], "regression"),
        (["train.csv", "--target", "kind"], ["test.csv", "--target", "kind"], "classification"),
        (["train.parquet", "--target", "price"], ["test.csv", "--target", "price"], "regression"),
        (["train.npz", "--valid", "test.npz"], ["test.npz"], "classification"),
        (["train-sparse.npz", "--labels", "train-labels.npy"], ["test.svm"], "classification"),
        (["train.npz", "--objective", "poisson"], ["test.npz"], "regression"),
    ],
)
def test_train_and_evaluate_every_format(call, tmp_path, given, test, task):
    result = call("train", *given, "--model", tmp_path / "m.gbun", *SMALL)
    assert f"task: {task}" in result.err
    assert "this run made 5 in" in result.out
    assert ("valid" in result.out) == ("--valid" in given)
    assert gbun.load_model(tmp_path / "m.gbun").description.task == task
    values = json.loads(call("evaluate", tmp_path / "m.gbun", *test, "--json").out)
    assert values["rows"] == N - TRAIN
    assert all(np.isfinite(value) for value in values["metrics"].values())
    assert ("rmse" in values["metrics"]) == (task == "regression")


def test_training_is_the_same_as_in_python(call, models, folder):
    from gbun.data.files import read_table

    table = read_table(folder / "train.svm")
    model = gbun.train({"n_neurons": 16}, (table.X, table.y.astype(int)), 5, task="classification")
    stored = gbun.load_model(models["sparse"])
    np.testing.assert_array_equal(stored.ensemble.heads, model.ensemble.heads)
    assert stored.classes.tolist() == [-1, 1]


def test_every_parameter_has_an_option_with_its_sentence_and_default(call):
    text = unwrap(call("train", "--help").out)
    assert "torchrun" in text
    for field in parameter_fields():
        entry = re.split(rf"{option_name(field.name)} (?:NAME|INTEGER|NUMBER|VALUE|true\|false) ", text)[1]
        assert entry.startswith(field.metadata["sentence"])
        if field.default is not None:
            assert entry[entry.index("[default: ") :].startswith(f"[default: {field.default}]")


def test_every_parameter_reaches_the_training(call, tmp_path):
    given = {
        "objective": "softmax", "n_estimators": 3, "n_neurons": 32, "learning_rate": 0.5, "reg_lambda": 0.02,
        "reg_form": "absolute", "temperature": 1.5, "group_size": 8, "density": 0.5, "scale": "none",
        "network": "hashed", "hessian": "per_class", "quantile": 0.25, "huber_delta": 2.0,
        "tweedie_power": 1.2, "eval_metric": "accuracy", "early_stopping_rounds": 2, "validation_fraction": 0.2,
        "n_jobs": 1, "random_state": 7, "verbose": 1, "gram_rows": 0.5, "memory_budget": "300MB", "init": "linear",
        "linear_l2": 0.5, "linear_bits": 12, "refit": False, "device": "torch:cpu", "tf32": True,
        "learner": "network", "temperature_doublings": 2,
    }  # fmt: skip
    of_trees = {"learner": "tree", "n_leaves": 7, "min_leaf_rows": 3, "n_projections": 4, "n_candidates": 9}
    of_trees |= {"n_estimators": 2, "categorical_features": [0, 2]}
    texts = of_trees | {"categorical_features": "0, 2"}
    options = [text for name, value in texts.items() for text in (option_name(name), value)]
    call("train", "train.npz", "--model", tmp_path / "t.gbun", *options)
    assert of_trees.items() <= dict(gbun.load_model(tmp_path / "t.gbun").description.parameters).items()
    assert set(given) | set(of_trees) == {f.name for f in parameter_fields()}, "a new parameter belongs into this test"
    options = [text for name, value in given.items() for text in (option_name(name), value)]
    call("train", "train.npz", "--model", tmp_path / "m.gbun", *options)
    assert gbun.load_model(tmp_path / "t.gbun").description.schema.categorical == ("0", "2")
    defaults = {"n_leaves": None, "min_leaf_rows": 5, "n_projections": 24, "n_candidates": 64}
    defaults["categorical_features"] = "from_dtype"
    assert dict(gbun.load_model(tmp_path / "m.gbun").description.parameters) == given | defaults
    found = json.loads(call("inspect", tmp_path / "m.gbun", "--json").out)
    assert found["parameters"] == given
    assert found["network"]["seed"] == 7
    assert found["network"]["group_size"] == 8
    assert found["best_round"] == found["rounds"] - 1


def test_columns_of_text_are_named_and_mistakes_pointed_at(call, folder, tmp_path):
    frame = pd.read_csv("train.csv").astype({"size": object})
    frame.loc[50, "size"] = "abc"
    frame["id"] = [f"row {i}" for i in range(len(frame))]
    frame.to_csv(tmp_path / "odd.csv", index=False)
    err = call("train", tmp_path / "odd.csv", "--target", "kind", "--model", tmp_path / "m.gbun", *SMALL).err
    assert "columns of categories: size, colour, id " in err
    assert "note: column 'size' holds categories instead of numbers because of 'abc'; empty such cells" in err
    assert "note: column 'id' has 180 different texts in 180 rows" in err
    assert "'colour'" not in err


@pytest.mark.parametrize("name", ["frame", "dense", "sparse"])
def test_rows_are_explained(call, models, name):
    rows = {"frame": "test.csv", "dense": "test.npz", "sparse": "test.svm"}[name]
    more = ["--target", "kind"] if name == "frame" else []
    found = json.loads(call("explain", models[name], rows, "--row", "3", "--top", "4", "--json", *more).out)
    assert found["score"] == pytest.approx(found["base"] + sum(found["contributions"].values()), abs=1e-3)
    assert len(found["contributions"]) <= 5
    shown = call("explain", models[name], rows, "--row", "3", "--top", "4", *more).out
    assert "of row 3: " in shown
    assert "█" in shown
    assert "--row must be from 0 to 59" in call("explain", models[name], rows, "--row", "60", *more, code=1).err


def test_importances_are_printed(call, models, folder, tmp_path):
    call(
        "train",
        "train.csv",
        "--target",
        "kind",
        "--learner",
        "tree",
        "--n-estimators",
        "5",
        "--model",
        tmp_path / "t.gbun",
    )
    gains = json.loads(call("importance", tmp_path / "t.gbun", "--json").out)
    assert gains["kind"] == "gain"
    assert next(iter(gains["importance"])) in ("size", "price", "colour")
    assert "importance by contribution" in call("importance", tmp_path / "t.gbun", "test.csv", "--target", "kind").out
    told = call("importance", tmp_path / "t.gbun", "test.csv", "--kind", "permutation", "--target", "kind").out
    assert "importance by permutation" in told
    assert "kind must be one of" in call("importance", tmp_path / "t.gbun", "--kind", "splits", code=1).err


def test_early_stopping_and_several_metrics(call, tmp_path):
    options = ("--early-stopping-rounds", 2, "--eval-metric", "auc,log_loss", "--temperature", "none")
    result = call(
        "train", "train.svm", "--valid", "test.svm", "--model", tmp_path / "m.gbun", "--quiet", *options,
        "--n-neurons", 16, "--learning-rate", 0.1, "--init", "constant",
    )  # fmt: skip
    assert result.err == ""
    model = gbun.load_model(tmp_path / "m.gbun")
    assert f"best round {model.n_rounds}," in " ".join(result.out.split())
    shown = next(line for line in result.out.splitlines() if line.startswith("valid log_loss"))
    assert float(shown.split()[-1]) == pytest.approx(model.description.best_score, rel=1e-5)
    values = json.loads(call("evaluate", tmp_path / "m.gbun", "test.svm", "--json").out)["metrics"]
    assert values["log_loss"] == pytest.approx(model.description.best_score, rel=1e-9)


def test_continue_and_time_budget(call, models, tmp_path):
    options = ("--n-estimators", 1000, "--time-budget", 0.001, "--checkpoint", tmp_path / "c.gbun")
    call("train", "test.svm", "--init-model", models["sparse"], "--model", tmp_path / "m.gbun", *options)
    model = gbun.load_model(tmp_path / "m.gbun")
    assert 5 < model.n_rounds < 1000
    assert gbun.load_model(tmp_path / "c.gbun").n_rounds == model.n_rounds
    np.testing.assert_array_equal(model.ensemble.heads[:5], gbun.load_model(models["sparse"]).ensemble.heads)


def test_rounds_are_printed_when_asked_for(call, tmp_path):
    shown = call("train", "train.svm", "--model", tmp_path / "m.gbun", "--verbose", 2, *SMALL)
    assert [int(r) for r in re.findall(r"\bround (\d+) +[\d.]+ s", shown.err)] == [1, 2, 3, 4, 5]


def test_predictions_are_those_of_python(call, models, folder, tmp_path):
    model, frame = gbun.load_model(models["frame"]), pd.read_csv(folder / "test.csv")
    X = frame[["size", "colour", "age", "price"]]
    call("predict", models["frame"], "test.csv", "--target", "kind", "--output", tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["prediction"].tolist() == model.predict(X).tolist()
    call("predict", models["frame"], "test.parquet", "--scores", "--rounds", 2, "-o", tmp_path / "s.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), model.decision_function(X, n_rounds=2))
    result = call("predict", models["frame"], "test.csv", "--proba", "--output", "-")
    assert "ignored w, kind, as the model has no such column" in result.err
    names, *rows = csv.reader(io.StringIO(result.out))
    assert names == ["probability_apple", "probability_plum, dark"]
    np.testing.assert_array_equal(np.array(rows, dtype=float), model.predict_proba(X))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.csv", "s.npy"]


def test_devices_predict_alike(call, models, tmp_path):
    for device, name in (("cpu", "a.npy"), ("torch:cpu", "b.npy")):
        call("predict", models["sparse"], "test.svm", "--scores", "--device", device, "-o", tmp_path / name)
    a, b = np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")
    np.testing.assert_allclose(a, b, atol=1e-5 * a.std())
    evaluate = ("evaluate", models["sparse"], "test.svm", "--json", "--device")
    values = [json.loads(call(*evaluate, d).out)["metrics"]["log_loss"] for d in ("cpu", "torch:cpu")]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_prediction_goes_by_name_not_by_place(call, models, folder, tmp_path):
    pd.read_csv(folder / "test.csv").iloc[:, ::-1].to_csv(tmp_path / "turned.csv", index=False)
    straight = call("predict", models["frame"], "test.csv", "--scores").out
    assert call("predict", models["frame"], tmp_path / "turned.csv", "--scores").out == straight


def test_labels_that_look_like_numbers_are_read_as_the_classes_are(call, folder, tmp_path):
    frame = pd.DataFrame({"a": np.arange(40.0), "y": ["1", "2", "x", "2"] * 10})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[frame["y"] != "x"].to_csv(tmp_path / "b.csv", index=False)
    call(
        "train", tmp_path / "a.csv", "--target", "y", "--valid", tmp_path / "b.csv", "--model",
        tmp_path / "m.gbun", *SMALL,
    )  # fmt: skip
    result = call("evaluate", tmp_path / "m.gbun", tmp_path / "b.csv", "--target", "y", "--metric", "accuracy")
    assert "accuracy" in result.out


def test_inspect_prints_a_table(call, models):
    text = unwrap(call("inspect", models["frame"]).out)
    for words in (
        "task classification", "objective logistic", "K = 16 outputs", "'apple', 'plum, dark'",
        "a data frame of 4 columns", "categorical colour", "n_neurons=16", "head norms",
    ):  # fmt: skip
        assert words in text
    assert "sparse rows of 50 columns" in unwrap(call("inspect", models["sparse"]).out)


def test_inspect_prints_json(call, models):
    found = json.loads(call("inspect", models["dense"], "--json").out)
    assert found["classes"] == [0, 1, 2]
    assert found["scores"] == 3
    assert found["input"]["n_columns"] == 50
    assert len(found["head_norms"]) == found["rounds"] == 5
    assert found["network"] == {
        "kind": "simhash++", "n_outputs": 16, "temperature": 2.0, "density": 0.1, "sparse_density": 1.0,
        "group_size": 16, "seed": 0,
    }  # fmt: skip


def test_inspect_describes_any_learner(call, tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60.0)
    gbun.train({}, rows, 3, learner=RandomCuts(n_columns=2)).save_model(tmp_path / "m.gbun")
    found = json.loads(call("inspect", tmp_path / "m.gbun", "--json").out)
    assert "network" not in found
    assert found["learner"] == {"kind": "random_cuts", "parameters": {"n_columns": 2, "depth": 3, "seed": 0}}
    assert "learner random_cuts (n_columns = 2, depth = 3, seed = 0)" in unwrap(
        call("inspect", tmp_path / "m.gbun").out
    )


def test_json_has_no_nan(call, models, folder, tmp_path):
    (tmp_path / "one.svm").write_text("1 3:1\n1 4:1\n")
    result = call("evaluate", models["sparse"], tmp_path / "one.svm", "--metric", "auc", "--json")
    assert json.loads(result.out, parse_constant=pytest.fail)["metrics"] == {"auc": None}


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (np.array(["a", "b"], dtype=object), "classification"),
        (np.array([True, False]), "classification"),
        (np.array([1.0, 1.0]), "classification"),
        (np.array([-5, 900]), "classification"),
        (np.arange(1000) % 100, "classification"),
        (np.arange(1000) % 101, "regression"),
        (np.repeat([1, 2, 3, 900], 50), "regression"),
        (np.repeat(np.arange(1001), 10), "regression"),
        (np.arange(100) / 2, "regression"),
        (np.array([0.0, np.inf, 1.0] * 10), "regression"),
        (np.array([-(2**63), 0, 2**63 - 1] * 20), "regression"),
    ],
)
def test_task_rule(y, task):
    assert guess_task_from_summaries([summarize_labels(y)])[0] == task


def test_demo_is_called(call, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setitem(sys.modules, "gbun.demo", SimpleNamespace(run=lambda *given: calls.append(given)))
    call("demo", "--output", tmp_path, "--quick")
    assert calls == [(tmp_path, True)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "none.svm", "--model", "m.gbun"], "none.svm: no such file"),
        (["train", "sparse.gbun", "--model", "m.gbun"], "got the ending '.gbun', expected one of .svm"),
        (["train", "train.csv", "--model", "m.gbun"], "name their column with --target"),
        (["train", "train.csv", "--model", "m.gbun", "--target", "knid"], "did you mean 'kind'?"),
        (["train", "train.svm", "--model", "m.gbun", "--target", "kind"], "svmlight has no named columns"),
        (["train", "train.svm", "--model", "no/m.gbun"], "there is no folder"),
        (["train", "train.svm", "--model", "m.gbun", "--checkpoint", "no/m.gbun"], "there is no folder"),
        (["train", "train.svm", "--model", "m.gbun", "--valid", "wide.svm"], "got the feature id 60"),
        (["train", "train.svm", "--model", "m.gbun", "--valid", "test.npz"], "got dense columns"),
        (["train", "train.svm", "--model", "m.gbun", "--objective", "gamma", "--quiet"], "positive targets only"),
        (["train", "train-sparse.npz", "--model", "m.gbun"], "name their .npy file with --labels"),
        (["train", "train.svm", "--init-model", "dense.gbun", "--model", "m.gbun"], "got sparse rows"),
        (["predict", "none.gbun", "test.svm"], "none.gbun: there is no such model file"),
        (["predict", "train.csv", "test.svm"], "train.csv:"),
        (["predict", "sparse.gbun", "test.csv"], "got dense columns, expected sparse rows of 50 columns"),
        (["predict", "frame.gbun", "test.svm"], "expected a table with the columns size, colour, age, price"),
        (["predict", "dense.gbun", "test.csv", "--target", "kind"], "X must be an array of 50 columns"),
        (["predict", "sparse.gbun", "wide.svm"], "got the feature id 60, expected ids below 50"),
        (["evaluate", "sparse.gbun", "test.svm", "--device", "cuda:77"], "device='cuda:77' is absent"),
        (["predict", "sparse.gbun", "test.svm", "--rounds", "6"], "n_rounds must be from 0 to the model's 5"),
        (["predict", "sparse.gbun", "test.svm", "--output", "no/p.csv"], "there is no folder"),
        (["evaluate", "frame.gbun", "test.csv"], "name their column with --target"),
        (["evaluate", "frame.gbun", "test.csv", "--target", "colour"], "got no column 'colour'"),
        (["inspect", "."], "is a folder"),
    ],
)  # fmt: skip
def test_unusable_data(call, models, arguments, words):
    result = call(*arguments, code=1)
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert words in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("option", ["--model", "--checkpoint", "--output"])
def test_outputs_are_probed_before_data_are_read(call, models, option):
    command = ["predict", models["sparse"]] if option == "--output" else ["train", "--model", "m.gbun"]
    assert "there is no folder" in call(*command, "none.svm", option, "no/file.csv", code=1).err


def test_unusable_content(call, models, folder, tmp_path):
    content = bytearray((folder / "sparse.gbun").read_bytes())
    content[-3] ^= 1
    (tmp_path / "broken.gbun").write_bytes(content)
    assert "altered or damaged" in call("inspect", tmp_path / "broken.gbun", code=1).err
    frame = pd.DataFrame({"a": range(9), "y": ["one"] * 9})
    frame.to_csv(tmp_path / "one.csv", index=False)
    train = ("train", tmp_path / "one.csv", "--target", "y", "--model", tmp_path / "m.gbun")
    assert "at least 2 classes" in call(*train, code=1).err
    frame.assign(y=["a", "b", None] * 3).to_csv(tmp_path / "one.csv", index=False)
    assert "got 3 rows without a label" in call(*train, code=1).err
    pd.DataFrame({"size": [1.0], "age": [1.0]}).to_csv(tmp_path / "few.csv", index=False)
    assert "got no column 'colour', 'price'" in call("predict", models["frame"], tmp_path / "few.csv", code=1).err
    (tmp_path / "other.svm").write_text("7 1:1\n")
    assert "labels that training has not" in call("evaluate", models["sparse"], tmp_path / "other.svm", code=1).err
    assert not (tmp_path / "m.gbun").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--learning-rate", "2.5"], "Invalid value for --learning-rate: got '2.5', expected a number in (0, 1]"),
        (["--n-neurons", "many"], "Invalid value for --n-neurons: got 'many', expected an integer in [2, 16384]"),
        (["--n-neurons", "30.5"], "expected an integer"),
        (["--n-neurons", "30", "--group-size", "7"], "group_size must divide n_neurons"),
        (["--objective", "hinge"], "expected one of auto, squared_error"),
        (["--eval-metric", "auc,rsme"], "Did you mean 'rmse'"),
        (["--n-neurones", "3"], "No such option"),
        (["--task", "ranking"], "--task"),
        (["--checkpoint-every", "5"], "give --checkpoint"),
        (["--time-budget", "-1"], "seconds must be positive"),
        (["--resume", "--workers", "2"], "--checkpoint"),
        (["--workers", "0"], "--workers"),
        (["--transport", "float8"], "--transport"),
    ],
)
def test_wrong_usage_of_train(call, options, words):
    assert words in call("train", "train.svm", "--model", "m.gbun", *options, code=2).err


def test_wrong_usage_of_the_others(call, models):
    assert "not both" in call("predict", models["sparse"], "test.svm", "--proba", "--scores", code=2).err
    assert ".csv or .npy" in call("predict", models["sparse"], "test.svm", "--output", "p.txt", code=2).err
    assert "unknown name" in call("evaluate", models["sparse"], "test.svm", "--metric", "best", code=2).err
    for command in (["predict"], ["evaluate", "--metric", "auc"]):
        assert "--device: got 'gpu'" in call(*command, models["sparse"], "test.svm", "--device", "gpu", code=2).err
    call("predict", code=2)


@pytest.mark.parametrize("how", ["option", "environment"])
def test_traceback_on_demand(monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv("GBUN_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        app(["inspect", "none.gbun", *(["--traceback"] if how == "option" else [])], prog_name="gbun")


def test_a_bug_keeps_its_traceback(monkeypatch, models):
    monkeypatch.setattr("gbun.model.load_model", lambda path: {}["bug"])
    with pytest.raises(KeyError):
        app(["inspect", "sparse.gbun"], prog_name="gbun")


def test_a_reader_that_is_not_installed_is_no_bug(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    result = call("train", "train.csv", "--target", "kind", "--model", "m.gbun", code=1)
    assert result.err.startswith("error: train.csv: reading it needs pandas")
    assert "pip install" in result.err


def test_too_little_memory_is_no_bug(call, monkeypatch):
    def refuse(path):
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr("gbun.model.load_model", refuse)
    result = call("inspect", "sparse.gbun", code=1)
    assert "error: not enough memory (Unable to allocate 9 TiB); free some" in result.err


# In a new process


def start(*arguments):
    command = [sys.executable, "-m", "gbun", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_to_continue_from(call, tmp_path):
    wait_for = pytest.importorskip("tests.worker_jobs").wait_for
    checkpoint = tmp_path / "c.gbun"
    process = start(
        "train", "train.svm", "--model", tmp_path / "m.gbun", "--n-estimators", 10**6, "--n-neurons", 16,
        "--checkpoint", checkpoint, "--checkpoint-every", 3,
    )  # fmt: skip
    wait_for(lambda: checkpoint.exists() or process.poll() is not None, 120.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    rounds = gbun.load_model(checkpoint).n_rounds
    assert rounds >= 3
    assert f"interrupted: {rounds} rounds are in the checkpoint {checkpoint}" in err
    assert "Traceback" not in out + err
    assert not (tmp_path / "m.gbun").exists()
    call("train", "train.svm", "--model", tmp_path / "m.gbun", "--init-model", checkpoint, "--n-estimators", 2)
    assert gbun.load_model(tmp_path / "m.gbun").n_rounds == rounds + 2


def test_ctrl_c_without_a_checkpoint(call, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gbun.boosting.apply_update", interrupted)
    train = ("train", "train.svm", "--model", "m.gbun", *SMALL)
    assert "interrupted: nothing was saved; --checkpoint FILE" in call(*train, code=130).err
    assert "no round was complete" in call(*train, "--checkpoint", "c.gbun", code=130).err
    monkeypatch.setattr("gbun.data.worker_files.read_table", interrupted)
    assert call(*train, code=130).err == "interrupted"


IMPORT_INTERRUPTED = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from gbun.cli import main
sys.argv[1:] = ["inspect", "none.gbun"]
main()
"""


@pytest.mark.parametrize("module", ["typer", "gbun.cli.training", "gbun.model"])
def test_ctrl_c_while_modules_are_imported(module):
    wanted = IMPORT_INTERRUPTED.replace("sys.argv[1]:\n", f"{module!r}:\n")
    done = subprocess.run([sys.executable, "-c", wanted], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_checkpoint_that_is_overwritten_is_announced(call, tmp_path):
    file = tmp_path / "c.gbun"
    train = ("train", "train.svm", "--model", tmp_path / "m.gbun", "--checkpoint", file, *SMALL)
    note = f"note: {file} exists, and without --resume training starts again: it will be overwritten"
    assert "note:" not in call(*train).err
    assert note in call(*train).err
    assert "note:" not in call(*train, "--resume").err
    assert "note:" not in call(*train, "--init-model", file).err
    assert "note:" not in call(*train, "--quiet").err


def test_files_are_named_in_errors_of_their_content(call, models, tmp_path):
    rows = pd.read_csv("test.csv")
    rows["age"] = rows["age"].astype(object)
    rows.loc[3, "age"] = "unknown"
    rows.to_csv(tmp_path / "text.csv", index=False)
    found = call("predict", models["frame"], tmp_path / "text.csv", code=1).err
    assert f"{tmp_path / 'text.csv'}: got the text 'unknown' in column 'age', row 4 (counted from 1" in found
    np.savez(tmp_path / "empty.npz", X=np.zeros((4, 0)), y=np.arange(4))
    train = ("train", tmp_path / "empty.npz", "--model", tmp_path / "m.gbun")
    assert f"{tmp_path / 'empty.npz'}: got rows without columns" in call(*train, code=1).err
    (tmp_path / "labels.csv").write_text("a,y\n1,2\n2,3\n3,\n")
    found = call("train", tmp_path / "labels.csv", "--target", "y", "--model", tmp_path / "m.gbun", code=1).err
    assert "got 1 row without a label, the first is row 3 (counted from 1" in found


@pytest.mark.slow
def test_a_closed_pipe_prints_no_traceback(models):
    process = start("predict", models["sparse"], "train.svm")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait(timeout=120)
