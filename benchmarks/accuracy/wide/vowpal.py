"""Vowpal Wabbit, fed by files in its own text format; writing them is part of its seconds."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.accuracy.wide.base import Answer, Learner, Settings, Task
from benchmarks.accuracy.wide.linear import Scale
from benchmarks.accuracy.wide.sets import Rows, take


class VowpalWabbit(Learner):
    """Logistic loss, one against all where there are more than two classes, three passes over shuffled rows."""

    name, kind, package = "vowpal_wabbit", "linear", "vowpalwabbit"

    def fit(self, task: Task, train: Rows, settings: Settings) -> Answer:
        options = {"passes": 3, **settings}
        scale = Scale(options.pop("scale", "raw"), train[0])
        # It learns row by row, and some files have their rows in the order of classes.
        X, y = take(train, np.random.default_rng(0).permutation(len(train[1])))
        home = TemporaryDirectory(prefix="vowpal_wabbit_")
        rows, model = Path(home.name) / "rows.txt", Path(home.name) / "model"
        several = task.n_classes > 2
        write(rows, scale(X), [f"{c + 1}" for c in y] if several else ["1" if c else "-1" for c in y])
        run(
            *("--data", rows, "--cache_file", Path(home.name) / "cache", "--kill_cache", "--final_regressor", model),
            *("--loss_function", "logistic", "--holdout_off"),
            *(("--oaa", task.n_classes, "--bit_precision", 24) if several else ("--bit_precision", 22)),
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        )

        def answer(X: Any) -> Any:
            said = Path(home.name) / "said.txt"  # named here, the folder lives as long as the model
            write(rows, scale(X), [""] * X.shape[0])
            run("--testonly", "--initial_regressor", model, "--data", rows, "--predictions", said)
            found = np.loadtxt(said)
            return found if task.ranks else (found - 1 if several else found > 0).astype(int)

        return answer


def write(path: Path, X: Any, labels: list[str]) -> None:
    """A line for each row: `label | column:value ...`, where a value of 1 needs no saying."""
    if (X.data == 1).all():
        entries = [f" {j}" for j in X.indices]
    else:
        entries = [f" {j}:{value:.6g}" for j, value in zip(X.indices.tolist(), X.data.tolist(), strict=True)]
    with path.open("w") as file:
        for i, label in enumerate(labels):
            file.write(f"{label} |{''.join(entries[X.indptr[i] : X.indptr[i + 1]])}\n")


def run(*arguments: Any) -> None:
    from vowpalwabbit import Workspace

    Workspace(arg_list=[str(a) for a in arguments] + ["--quiet"]).finish()
