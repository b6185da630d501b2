"""The study behind the defaults for dense columns: before and after, and settings beside each other.

    python -m benchmarks.accuracy.defaults --data DIR [--rows 5000] [--seeds 2] [--only adult,letter] [--study]
        [--output results/defaults]

"before" is gbun 0.1: 100 rounds on all rows from a constant. "defaults" is GBUNClassifier() or GBUNRegressor(). With
--study further columns change one setting each. LightGBM has its defaults. Scores are accuracy, or R2 of regression,
on test rows; means over seeds, each of which divides tabular sets anew and draws other networks. Finished sets are
kept in the JSON and not run again.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

from lightgbm import LGBMClassifier, LGBMRegressor
from rich.console import Console

from benchmarks import report
from benchmarks.accuracy.sets import DenseSet, dense_sets
from benchmarks.report import new_figure, save
from gbun import GBUNClassifier, GBUNRegressor

PLAIN: dict[str, dict[str, Any]] = {"before": {"n_estimators": 100, "init": "constant"}, "defaults": {}}
STUDY: dict[str, dict[str, Any]] = {
    "linear start": {"init": "linear"},
    "one softmax": {"group_size": 112, "n_neurons": 112},
    "groups of 8": {"group_size": 8},
    "tau 1": {"temperature": 1.0},
    "tau 3": {"temperature": 3.0},
    "density .3": {"density": 0.3},
    "eta .3": {"learning_rate": 0.3},
    "lambda 1e-3": {"reg_lambda": 1e-3},
    "no refit": {"refit": False},
}
NO_PEER = ("aloi",)  # a thousand classes: LightGBM grows a thousand trees a round


def measure(data: DenseSet, settings: dict[str, dict[str, Any]], seeds: int) -> dict[str, dict[str, float]]:
    ours, theirs = (GBUNRegressor, LGBMRegressor) if data.regression else (GBUNClassifier, LGBMClassifier)
    runs: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(seeds):
        X, y, X_test, y_test = data.load(seed)
        models = {name: ours(random_state=seed, **given) for name, given in settings.items()}
        if data.name not in NO_PEER:
            models["lightgbm"] = theirs(verbose=-1, random_state=seed)
        for name, model in models.items():
            began = perf_counter()
            model.fit(X, y)
            seconds = perf_counter() - began
            runs.setdefault(name, []).append((model.score(X_test, y_test), seconds, model.n_estimators_))
    means = {name: map(statistics.mean, zip(*values, strict=True)) for name, values in runs.items()}
    return {name: dict(zip(("score", "seconds", "rounds"), map(float, m), strict=True)) for name, m in means.items()}


def main() -> None:
    parser = report.make_parser("accuracy.defaults", __doc__, "results/defaults")
    parser.add_argument("--rows", type=int, default=5000, help="most rows of a tabular set")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="comma-separated names of sets; all by default")
    parser.add_argument("--study", action="store_true", help="also change one setting at a time")
    args = parser.parse_args()
    sets, settings = dense_sets(args.data, args.rows), PLAIN | (STUDY if args.study else {})
    wanted = args.only.split(",") if args.only else list(sets)
    if unknown := sorted(set(wanted) - sets.keys()):
        parser.error(f"--only names unknown sets {unknown}; known are {', '.join(sets)}")
    args.output.mkdir(parents=True, exist_ok=True)
    store, console = args.output / f"defaults_{args.rows}{'_study' if args.study else ''}.json", Console(width=200)
    results = json.loads(store.read_text()) if store.exists() else {}
    for name in wanted:
        if name not in results:
            results[name] = measure(sets[name], settings, args.seeds)
            store.write_text(json.dumps(results, indent=1))
            console.print(name, {column: round(cell["score"], 4) for column, cell in results[name].items()})
    report.show(make_rows(results, [*settings, "lightgbm"]), console)
    draw(results, store.with_suffix(".png"))


def make_rows(results: dict[str, Any], columns: list[str]) -> list[report.Row]:
    """A row for each set, then the mean and the median of the sets that LightGBM has a score of."""
    title = {"table": "R2 or accuracy on test rows, rounds that were kept and seconds of training"}
    rows = []
    for name, row in results.items():
        scores = {c: f"{row[c]['score']:.4f}" for c in columns if c in row}
        before, now = (f"{row[column]['seconds']:.1f}" for column in PLAIN)
        rounds = f"{row['defaults']['rounds']:.0f}"
        rows.append({**title, "data": name, **scores, "rounds": rounds, "seconds before": before, "seconds now": now})
    complete = [row for row in results.values() if "lightgbm" in row]
    for name, mean in (("mean", statistics.mean), ("median", statistics.median)) if complete else ():
        rows.append({**title, "data": name, **{c: f"{mean(row[c]['score'] for row in complete):.4f}" for c in columns}})
    return rows


def draw(results: dict[str, Any], path: Path) -> None:
    """What the defaults changed, set by set."""
    gains = sorted((row["defaults"]["score"] - row["before"]["score"], name) for name, row in results.items())
    figure = new_figure(6, 0.22 * len(gains) + 1)
    ax = figure.subplots()
    ax.barh([name for _, name in gains], [gain for gain, _ in gains], color="#1b6ca8")
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_title("score with the new defaults minus score before", fontsize=9)
    ax.tick_params(labelsize=7)
    save(figure, path)


if __name__ == "__main__":
    main()
