"""Runs the comparison and writes a table, JSON and a picture. See the package's docstring for how to call it."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.model_selection import train_test_split

from benchmarks import report
from benchmarks.accuracy.memory import measure_memory
from benchmarks.accuracy.problems import PEER_SETTINGS, PROBLEMS, Problem, score
from benchmarks.accuracy.sets import VALIDATION_SEED
from benchmarks.accuracy.tables.__main__ import main as compare_tables
from benchmarks.accuracy.wide.command import main as wide
from benchmarks.peers.base import Task, Watch
from benchmarks.peers.learners import Gbun, LightGBM, XGBoost
from benchmarks.report import COLOURS, new_figure, save

LEARNERS = {learner.name: learner for learner in (Gbun(), LightGBM(), XGBoost())}
REPORTED = {
    "accuracy": ("accuracy", "macro_precision", "average_precision", "log_loss"),
    "auc": ("auc", "accuracy", "log_loss"),
}
LEAST_BUDGET = 120.0


def run(problem: Problem, data: tuple[Any, Any, Any, Any], learner: str, budget: float) -> dict[str, Any]:
    """Try each setting on the validation rows within the budget, refit the best on all training rows, judge it."""
    X, y, X_test, y_test = data
    labels = np.searchsorted(np.unique(y), y)
    X_fit, X_valid, y_fit, y_valid = train_test_split(
        X, labels, test_size=0.2, random_state=VALIDATION_SEED, stratify=labels
    )
    task = Task(problem.metric, int(labels.max()) + 1, -1)
    began, best, candidates = perf_counter(), (-np.inf, {}, {}), PEER_SETTINGS.get(learner, problem.settings)
    if len(candidates) == 1:
        best = (np.nan, candidates[0], candidates[0])
    for settings in candidates if len(candidates) > 1 else ():
        left = budget - (perf_counter() - began)
        if left <= 0:
            break
        fit, valid = (X_fit, y_fit), (X_valid, y_valid)
        value, chosen = LEARNERS[learner].choose(task, settings, fit, valid, Watch(problem.patience, left))
        if value > best[0]:
            best = (value, chosen, settings)
    choosing, began = perf_counter() - began, perf_counter()
    predict = LEARNERS[learner].fit(replace(task, metric="probabilities"), (X, labels), best[1])
    training = perf_counter() - began
    probabilities = predict(X_test)
    return {
        "problem": problem.name,
        "learner": learner,
        "validation": best[0],
        "rounds": int(best[1]["n_estimators"]),
        "settings": best[2],
        "choosing_seconds": round(choosing, 1),
        "training_seconds": round(training, 1),
        **{name: score(name, y_test, probabilities) for name in REPORTED[problem.metric]},
    }


def compare(problems: list[Problem], folder: Path, peers: bool, console: Console) -> list[dict[str, Any]]:
    results = []
    for problem in problems:
        data = problem.load(folder)
        results.append(run(problem, data, "gbun", np.inf))
        console.print(results[-1])
        # Peers get the time gbun's own search took, and never less than two minutes.
        budget = max(LEAST_BUDGET, results[-1]["choosing_seconds"])
        for peer in problem.peers if peers else ():
            results.append(run(problem, data, peer, budget))
            console.print(results[-1])
    return results


def make_rows(results: list[dict[str, Any]]) -> list[report.Row]:
    rows, problems = [], {problem.name: problem for problem in PROBLEMS}
    for result in results:
        problem = problems[result["problem"]]
        metric = problem.metric
        row = {"data": problem.name, "goal": problem.goal, "learner": result["learner"], "metric": metric}
        row |= {"test": f"{result[metric]:.4f}", "validation": f"{result['validation']:.4f}"}
        scores = ", ".join(f"{name} {result[name]:.4f}" for name in REPORTED[metric] if name != metric)
        row |= {"other scores": scores, "rounds": result["rounds"], "seconds": result["training_seconds"]}
        rows.append({"table": "Test scores; settings and rounds chosen on a fifth of the training rows", **row})
    return rows


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Bars, a panel for each data set."""
    metrics = {problem.name: problem.metric for problem in PROBLEMS}
    names = list(dict.fromkeys(result["problem"] for result in results))
    figure = new_figure(2.6 * len(names) + 1, 3.4)
    for ax, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        rows = [result for result in results if result["problem"] == name]
        values = [row[metrics[name]] for row in rows]
        colours = [COLOURS[LEARNERS[row["learner"]].title] for row in rows]
        ax.bar_label(ax.bar([row["learner"] for row in rows], values, color=colours), [f"{v:.4f}" for v in values])
        spread = max(values) - min(values)
        ax.set_ylim(max(0.0, min(values) - max(0.01, spread)), min(1.005, max(values) + max(0.004, 0.3 * spread)))
        ax.set_title(f"{name}\n{metrics[name]} on test rows", fontsize=9)
        ax.tick_params(labelsize=8)
    save(figure, path)


def main() -> None:
    if "--wide" in sys.argv[1:]:  # another comparison with other arguments
        wide()
        return
    if "--tables" in sys.argv[1:]:
        compare_tables()
        return
    known = [problem.name for problem in PROBLEMS]
    parser = report.make_parser("accuracy", __doc__, "results/accuracy")
    parser.add_argument("--wide", action="store_true", help="eight wide sets instead; --wide --help says more")
    parser.add_argument("--tables", action="store_true", help="tables instead; --tables --help says more")
    parser.add_argument("--only", type=report.names_of([*known, "memory"]), help="names; all by default")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="lightgbm|xgboost|sklearn")
    console = Console(width=180)
    names = args.only or [*known, "memory"]
    results = compare([p for p in PROBLEMS if p.name in names], args.data, not args.no_peers, console)
    memory = [] if args.no_memory or "memory" not in names else measure_memory(console)
    report.show(make_rows(results), console)
    args.output.mkdir(parents=True, exist_ok=True)
    about = report.about(-1, quick=False)
    versions = {"python": about["python"], "packages": about["packages"]}
    text = json.dumps({**versions, "results": results, "memory": memory}, indent=1)
    (args.output / "accuracy.json").write_text(text)
    if results:
        draw(results, args.output / "accuracy.png")
    console.print(f"versions {versions['packages']}\nwritten to {args.output}")


if __name__ == "__main__":
    main()
