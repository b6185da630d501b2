"""Linear models: scikit-learn's, and Vowpal Wabbit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.preprocessing import MaxAbsScaler, StandardScaler, normalize

from benchmarks.peers.base import Learner, Predict, Rows, Run, Settings, Task, Watch

MOST_STEPS = 300  # of L-BFGS; its own default of 100 is too few for raw counts
STEPS = 10  # of L-BFGS in a round of `Linear`
SCORES = {"auc": roc_auc_score, "accuracy": accuracy_score, "r2": r2_score}


def fit_scale(kind: str, X: Any) -> Any:
    """Return a function of rows: "raw", "log" (log(1 + x), rows of length 1), "tfidf", "max_abs" or "standard"."""
    if kind == "tfidf":
        # 1 + log(x) is for counts: entries that are weights already may be below 1/e
        return TfidfTransformer(sublinear_tf=bool(X.data.min() >= 1)).fit(X).transform
    if kind in ("standard", "max_abs"):
        return (StandardScaler() if kind == "standard" else MaxAbsScaler()).fit(X).transform
    return (lambda X: normalize(X.log1p())) if kind == "log" else (lambda X: X)


def _predict(task: Task, model: Any, X: Any) -> Any:
    return model.decision_function(X) if task.metric == "auc" else model.predict(X)


class LinearLearner(Learner):
    """Without rounds: a model is fitted, and its score is that of the validation rows."""

    kind, quick = "linear", {}

    def choose(self, task: Task, settings: Settings, fit: Rows, valid: Rows, watch: Watch) -> tuple[float, Settings]:
        return float(SCORES[task.metric](valid[1], self.fit(task, fit, settings)(valid[0]))), settings


class Logistic(LinearLearner):
    name, title, module, packages = "logistic", "logistic regression", "sklearn", ("scikit-learn",)

    def fit(self, task: Task, rows: Rows, settings: Settings) -> Predict:
        scale = fit_scale(settings.get("scale", "raw"), rows[0])
        model = LogisticRegression(C=settings.get("C", 1.0), max_iter=MOST_STEPS).fit(scale(rows[0]), rows[1])
        return lambda X: _predict(task, model, scale(X))


class LogisticTfidf(Logistic):
    """With tf-idf, for texts; when tuned, `logistic` chooses its scale itself."""

    name = "logistic_tfidf"

    def fit(self, task: Task, rows: Rows, settings: Settings) -> Predict:
        return super().fit(task, rows, {"scale": "tfidf", **settings})


class Linear(LinearLearner):
    """Logistic or ridge regression. Dense columns are standardised; sparse ones have a scale to choose.

    L-BFGS takes its steps in rounds of ten, each from where the last one ended, so that it looks at the clock and at
    validation rows as boosters do.
    """

    name, title, module, packages = "linear", "linear", "sklearn", ("scikit-learn",)

    def train(self, task: Task, settings: Settings, rows: Rows, run: Run) -> tuple[Predict, Settings]:
        scale = fit_scale(settings.get("scale", "raw" if task.sparse else "standard"), rows[0])
        X, C = scale(rows[0]), settings.get("C", 1.0)
        X_valid = None if run.valid is None else scale(run.valid[0])
        ridge = task.regression
        model = Ridge(1.0 / C) if ridge else LogisticRegression(C=C, max_iter=STEPS, warm_start=True)
        for _ in range(1 if ridge else run.rounds):
            model.fit(X, rows[1])
            score = SCORES[task.metric](run.valid[1], _predict(task, model, X_valid)) if run.valid else 0.0
            if run.watch.add(score) or ridge or model.n_iter_.max() < STEPS:
                break
        return (lambda X: _predict(task, model, scale(X))), settings


class VowpalWabbit(LinearLearner):
    """Logistic loss, one against all for more than two classes, three passes over shuffled rows.

    It reads files in its own text format; writing them is part of its seconds.
    """

    name, title, module, packages = "vowpal_wabbit", "Vowpal Wabbit", "vowpalwabbit", ("vowpalwabbit",)

    def fit(self, task: Task, rows: Rows, settings: Settings) -> Predict:
        options = {"passes": 3, **settings}
        scale = fit_scale(options.pop("scale", "raw"), rows[0])
        # It learns row by row, and some files have their rows in the order of classes.
        order = np.random.default_rng(0).permutation(len(rows[1]))
        X, y = rows[0][order], rows[1][order]
        home = TemporaryDirectory(prefix="vowpal_wabbit_")
        file, model = Path(home.name) / "rows.txt", Path(home.name) / "model"
        several = task.n_classes > 2
        write_rows(file, scale(X), [f"{c + 1}" for c in y] if several else ["1" if c else "-1" for c in y])
        run_vowpal(
            *("--data", file, "--cache_file", Path(home.name) / "cache", "--kill_cache", "--final_regressor", model),
            *("--loss_function", "logistic", "--holdout_off"),
            *(("--oaa", task.n_classes, "--bit_precision", 24) if several else ("--bit_precision", 22)),
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        )

        def predict(X: Any) -> Any:
            predictions = Path(home.name) / "predictions.txt"  # the folder lives as long as this function
            write_rows(file, scale(X), [""] * X.shape[0])
            run_vowpal("--testonly", "--initial_regressor", model, "--data", file, "--predictions", predictions)
            values = np.loadtxt(predictions)
            return values if task.metric == "auc" else (values - 1 if several else values > 0).astype(int)

        return predict


def write_rows(path: Path, X: Any, labels: list[str]) -> None:
    """Write a line for each row: `label | column:value ...`, where a value of 1 is left out."""
    if (X.data == 1).all():
        entries = [f" {j}" for j in X.indices]
    else:
        entries = [f" {j}:{value:.6g}" for j, value in zip(X.indices.tolist(), X.data.tolist(), strict=True)]
    with path.open("w") as file:
        for i, label in enumerate(labels):
            file.write(f"{label} |{''.join(entries[X.indptr[i] : X.indptr[i + 1]])}\n")


def run_vowpal(*arguments: Any) -> None:
    from vowpalwabbit import Workspace

    Workspace(arg_list=[str(argument) for argument in arguments] + ["--quiet"]).finish()
