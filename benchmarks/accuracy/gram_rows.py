"""What sampling rows for the Hessian sums costs in accuracy, and which default follows.

    python -m benchmarks.accuracy.gram_rows --data DIR [--only letter,a9a] [--seeds 3] [--output results/gram_rows]

Each set is trained with all rows, and then with shares of them that leave 256, 128, ... rows for each output. The
score is that of the test rows (accuracy, or AUC for two classes) after each fifth of the rounds, mean and deviation
over seeds of the networks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import report
from benchmarks.accuracy.sets import Split, book_crossing, given_split, letter, news20_multi, score
from benchmarks.report import new_figure, save
from gbun import GBUNClassifier

ROWS_PER_OUTPUT = (256, 128, 64, 32, 16)
FAST = {"n_estimators": 60, "learning_rate": 0.3}

SETS: dict[str, tuple[Callable[[Path], Split], dict[str, Any]]] = {
    "letter": (letter, {**FAST, "n_neurons": 256, "temperature": 4.0, "density": 0.3}),
    "a9a": (given_split("a9a"), {**FAST, "n_neurons": 64, "learning_rate": 0.1}),
    "rcv1_binary": (given_split("rcv1_binary"), {**FAST, "n_neurons": 256}),
    "news20_multi": (news20_multi, {**FAST, "n_neurons": 512, "temperature": 0.25}),
    "book_crossing": (partial(book_crossing, stratify=False), {**FAST, "n_neurons": 256, "n_estimators": 30}),
}


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
            curves.append([])
            for m in marks:
                probabilities = model.model_.predict_proba(X_test, n_rounds=m)
                if probabilities.shape[1] == 2:
                    curves[-1].append(score("auc", y_test, probabilities[:, 1]))
                else:
                    curves[-1].append(score("accuracy", y_test, model.classes_[probabilities.argmax(axis=1)]))
        found["shares"][f"{share:.4f}"] = {
            "rows_per_output": round(share * n / settings["n_neurons"]),
            "curve": np.mean(curves, axis=0).round(5).tolist(),
            "mean": float(np.mean([c[-1] for c in curves])),
            "deviation": float(np.std([c[-1] for c in curves])),
            "seconds": seconds / seeds,
        }
    return found


def draw(results: dict[str, Any], path: Path) -> None:
    figure = new_figure(4 * len(results), 3.2)
    axes = figure.subplots(1, len(results), squeeze=False)[0]
    for axis, (name, found) in zip(axes, results.items(), strict=True):
        for share, row in found["shares"].items():
            axis.plot(found["marks"], row["curve"], marker=".", label=share)
        axis.set_title(name)
        axis.set_xlabel("rounds")
    axes[0].set_ylabel("test score")
    axes[-1].legend(title="gram_rows")
    save(figure, path)


def main() -> None:
    parser = report.make_parser("accuracy.gram_rows", __doc__, "results/gram_rows")
    parser.add_argument("--only", type=report.names_of(SETS), default=list(SETS), help="names of sets; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    console, results = Console(width=140), {}
    for name in args.only:
        found = results[name] = measure(name, args.data, args.seeds)
        rows = []
        for share, of in found["shares"].items():
            row = {"table": f"{name}: {found['rows']} rows, {SETS[name][1]}", "gram_rows": share}
            row |= {"rows per output": f"{of['rows_per_output']:.0f}", "score": f"{of['mean']:.4f}"}
            row |= {"deviation": f"{of['deviation']:.4f}", "seconds": f"{of['seconds']:.1f}"}
            rows.append({**row, "curve": " ".join(f"{value:.4f}" for value in of["curve"])})
        report.show(rows, console)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "gram_rows.json").write_text(json.dumps(results, indent=1))
    draw(results, args.output / "gram_rows.png")


if __name__ == "__main__":
    main()
