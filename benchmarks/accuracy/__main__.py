"""Runs the comparison and writes a table, JSON and a picture. See the package's docstring for how to call it."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy.learners import LEARNERS, PEER_SETTINGS, score
from benchmarks.accuracy.memory import memory_table
from benchmarks.accuracy.picture import draw
from benchmarks.accuracy.problems import PROBLEMS, Problem, Split, split
from benchmarks.accuracy.wide.command import main as wide

REPORTED = {
    "accuracy": ("accuracy", "macro_precision", "average_precision", "log_loss"),
    "auc": ("auc", "accuracy", "log_loss"),
}
LEAST_BUDGET = 120.0


def run(problem: Problem, data: Split, learner: str, budget: float) -> dict[str, Any]:
    """Try each setting on the validation rows within the budget, refit the best on all training rows, judge it."""
    began, best = perf_counter(), (-np.inf, 0, {})
    candidates = problem.settings if learner == "gbun" else PEER_SETTINGS[learner]
    if len(candidates) == 1:
        best = (np.nan, candidates[0]["n_estimators"], candidates[0])
    for settings in candidates if len(candidates) > 1 else ():
        left = budget - (perf_counter() - began)
        if left <= 0:
            break
        value, rounds = LEARNERS[learner].choose(
            settings,
            (data.X_fit, data.y_fit),
            (data.X_valid, data.y_valid),
            problem.metric,
            problem.patience,
            left,
        )
        if value > best[0]:
            best = (value, rounds, settings)
    chosen_in, began = perf_counter() - began, perf_counter()
    predict = LEARNERS[learner].refit(best[2], best[1], (data.X_train, data.y_train))
    trained_in = perf_counter() - began
    probabilities = predict(data.X_test)
    scores = {name: score(name, data.y_test, probabilities) for name in REPORTED[problem.metric]}
    return {
        "problem": problem.name,
        "learner": learner,
        "validation": best[0],
        "rounds": int(best[1]),
        "settings": best[2],
        "choosing_seconds": round(chosen_in, 1),
        "training_seconds": round(trained_in, 1),
        **scores,
    }


def compare(problems: list[Problem], folder: Path, peers: bool, console: Console) -> list[dict[str, Any]]:
    results = []
    for problem in problems:
        data = split(problem, folder)
        ours = run(problem, data, "gbun", np.inf)
        results.append(ours)
        console.print(ours)
        # Peers get the time our own search took, and never less than two minutes.
        budget = max(LEAST_BUDGET, ours["choosing_seconds"])
        for peer in problem.peers if peers else ():
            results.append(run(problem, data, peer, budget))
            console.print(results[-1])
    return results


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="Test scores; settings and rounds chosen on a fifth of the training rows")
    for column in (
        "data",
        "goal",
        "learner",
        "metric",
        "test",
        "validation",
        "other scores",
        "rounds",
        "seconds",
    ):
        table.add_column(column)
    problems = {p.name: p for p in PROBLEMS}
    for r in results:
        p = problems[r["problem"]]
        others = ", ".join(f"{m} {r[m]:.4f}" for m in REPORTED[p.metric] if m != p.metric)
        table.add_row(
            p.name,
            p.goal,
            r["learner"],
            p.metric,
            f"{r[p.metric]:.4f}",
            f"{r['validation']:.4f}",
            others,
            str(r["rounds"]),
            f"{r['training_seconds']:.1f}",
        )
    console.print(table)


def main() -> None:
    if "--wide" in sys.argv[1:]:  # a comparison of its own, with its own arguments
        wide()
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--wide", action="store_true", help="eight wide sets instead; --wide --help says more")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", default="", help="comma-separated names; all by default")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("results/accuracy"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="lightgbm|xgboost|sklearn")
    console = Console(width=180)
    names = [n for n in args.only.split(",") if n] or [p.name for p in PROBLEMS]
    unknown = set(names) - {p.name for p in PROBLEMS} - {"memory"}
    if unknown:
        parser.error(f"--only has unknown names {sorted(unknown)}; known are {[p.name for p in PROBLEMS]}")
    results = compare([p for p in PROBLEMS if p.name in names], args.data, not args.no_peers, console)
    memory = [] if args.no_memory or (args.only and "memory" not in names) else memory_table(console)
    if results:
        show(results, console)
    args.output.mkdir(parents=True, exist_ok=True)
    packages = {name: version(name) for name in ("gbun", "numpy", "numba", "lightgbm", "xgboost-cpu")}
    report = {"python": platform.python_version(), "packages": packages, "results": results, "memory": memory}
    (args.output / "accuracy.json").write_text(json.dumps(report, indent=1))
    if results:
        draw(results, {p.name: p.metric for p in PROBLEMS}, args.output / "accuracy.png")
    console.print(f"versions {packages}\nwritten to {args.output}")


if __name__ == "__main__":
    main()
