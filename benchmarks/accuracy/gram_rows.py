"""What sampling rows for the Hessian sums costs in accuracy, and which default follows.

    python -m benchmarks.accuracy.gram_rows --data DIR [--only letter,a9a] [--seeds 3] [--output results/gram_rows]

Each set is trained with all rows, and then with shares of them that leave 256, 128, ... rows for each output. The
score is that of the test rows (accuracy, or AUC for two classes) after each fifth of the rounds, mean and deviation
over seeds of the networks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split

from benchmarks.accuracy.problems import given_split, letter, news20_multi
from gbun import GBUNClassifier

ROWS_PER_OUTPUT = (256, 128, 64, 32, 16)
FAST = {"n_estimators": 60, "learning_rate": 0.3}

Loader = Callable[[Path], tuple[Any, Any, Any, Any]]


def book_crossing(folder: Path) -> tuple[Any, Any, Any, Any]:
    X, y = sp.load_npz(folder / "book_crossing" / "X.npz"), np.load(folder / "book_crossing" / "y.npz")["explicit"]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    return X_train, y_train, X_test, y_test


SETS: dict[str, tuple[Loader, dict[str, Any]]] = {
    "letter": (letter, {**FAST, "n_neurons": 256, "temperature": 4.0, "density": 0.3}),
    "a9a": (given_split("a9a"), {**FAST, "n_neurons": 64, "learning_rate": 0.1}),
    "rcv1_binary": (given_split("rcv1_binary"), {**FAST, "n_neurons": 256}),
    "news20_multi": (news20_multi, {**FAST, "n_neurons": 512, "temperature": 0.25}),
    "book_crossing": (book_crossing, {**FAST, "n_neurons": 256, "n_estimators": 30}),
}


def score(y: Any, probabilities: Any, classes: Any) -> float:
    if probabilities.shape[1] == 2:
        return float(roc_auc_score(y, probabilities[:, 1]))
    return float(accuracy_score(y, classes[probabilities.argmax(axis=1)]))


def measure(name: str, folder: Path, seeds: int) -> dict[str, Any]:
    load, settings = SETS[name]
    X_train, y_train, X_test, y_test = load(folder)
    rounds, n = settings["n_estimators"], X_train.shape[0]
    marks = [rounds * part // 5 for part in range(1, 6)]
    found: dict[str, Any] = {"rows": n, "settings": settings, "marks": marks, "shares": {}}
    shares = [1.0, *(r * settings["n_neurons"] / n for r in ROWS_PER_OUTPUT if r * settings["n_neurons"] < n)]
    for share in shares:
        curves, seconds = [], 0.0
        for seed in range(seeds):
            began = perf_counter()
            model = GBUNClassifier(**settings, gram_rows=share, random_state=seed).fit(X_train, y_train)
            seconds += perf_counter() - began
            curves.append(
                [score(y_test, model.model_.predict_proba(X_test, n_rounds=m), model.classes_) for m in marks]
            )
        found["shares"][f"{share:.4f}"] = {
            "rows_per_output": round(share * n / settings["n_neurons"]),
            "curve": np.mean(curves, axis=0).round(5).tolist(),
            "mean": float(np.mean([c[-1] for c in curves])),
            "deviation": float(np.std([c[-1] for c in curves])),
            "seconds": seconds / seeds,
        }
    return found


def draw(results: dict[str, Any], path: Path) -> None:
    figure, axes = plt.subplots(1, len(results), figsize=(4 * len(results), 3.2), squeeze=False)
    for axis, (name, found) in zip(axes[0], results.items(), strict=True):
        for share, row in found["shares"].items():
            axis.plot(found["marks"], row["curve"], marker=".", label=share)
        axis.set_title(name)
        axis.set_xlabel("rounds")
    axes[0][0].set_ylabel("test score")
    axes[0][-1].legend(title="gram_rows")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.gram_rows", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", default=",".join(SETS), help="comma-separated names of sets; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("results/gram_rows"))
    args = parser.parse_args()
    console, results = Console(width=140), {}
    for name in args.only.split(","):
        results[name] = measure(name, args.data, args.seeds)
        table = Table(title=f"{name}: {results[name]['rows']} rows, {SETS[name][1]}")
        for column in ("gram_rows", "rows per output", "score", "deviation", "seconds", "curve"):
            table.add_column(column, justify="right")
        for share, row in results[name]["shares"].items():
            curve = " ".join(f"{v:.4f}" for v in row["curve"])
            table.add_row(
                share,
                f"{row['rows_per_output']:.0f}",
                f"{row['mean']:.4f}",
                f"{row['deviation']:.4f}",
                f"{row['seconds']:.1f}",
                curve,
            )
        console.print(table)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "gram_rows.json").write_text(json.dumps(results, indent=1))
    draw(results, args.output / "gram_rows.png")


if __name__ == "__main__":
    main()
