"""Tables as they come: gbun's defaults and its learners beside other boosters with early stopping.

    python -m benchmarks.accuracy.tables --data DIR [--rows 10000] [--splits 5] [--only adult,letter] [--output FOLDER]

Every learner gets the same rows. gbun finds its rounds itself. LightGBM, XGBoost, CatBoost and scikit-learn's HGB have
their defaults and up to 1000 rounds, stopped early on a tenth of the training rows (patience 50). The loss is log loss
or RMSE on test rows. A set is won against a learner where the mean difference over splits is more than two standard
errors, lost likewise, otherwise tied. Seconds are those of the processor, one thread each. Finished sets are in the
JSON and not run again.
"""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import report
from benchmarks.accuracy.sets import DenseSet, dense_sets
from benchmarks.report import new_figure, save
from gbun import GBUNClassifier, GBUNRegressor

Fit = Callable[[Any, Any, bool, int], Any]  # X, y, whether it is regression, seed -> a fitted model
ROUNDS, PATIENCE, HELD_OUT = 1000, 50, 0.1


def fit_gbun(X: Any, y: Any, regression: bool, seed: int, **settings: Any) -> Any:
    return (GBUNRegressor if regression else GBUNClassifier)(n_jobs=1, random_state=seed, **settings).fit(X, y)


def hold_out(X: Any, y: Any, regression: bool, seed: int) -> tuple[Any, Any, Any, Any]:
    few = not regression and np.unique(y, return_counts=True)[1].min() < 2
    return tuple(
        train_test_split(X, y, test_size=HELD_OUT, random_state=seed, stratify=None if regression or few else y)
    )


def fit_lightgbm(X: Any, y: Any, regression: bool, seed: int) -> Any:
    import lightgbm

    a, b, ya, yb = hold_out(X, y, regression, seed)
    kind = lightgbm.LGBMRegressor if regression else lightgbm.LGBMClassifier
    model = kind(n_estimators=ROUNDS, n_jobs=1, random_state=seed, verbose=-1)
    return model.fit(a, ya, eval_set=[(b, yb)], callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)])


def fit_xgboost(X: Any, y: Any, regression: bool, seed: int) -> Any:
    import xgboost

    a, b, ya, yb = hold_out(X, y, regression, seed)
    kind = xgboost.XGBRegressor if regression else xgboost.XGBClassifier
    model = kind(n_estimators=ROUNDS, early_stopping_rounds=PATIENCE, n_jobs=1, random_state=seed)
    return model.fit(a, ya, eval_set=[(b, yb)], verbose=False)


def fit_catboost(X: Any, y: Any, regression: bool, seed: int) -> Any:
    import catboost

    a, b, ya, yb = hold_out(X, y, regression, seed)
    kind = catboost.CatBoostRegressor if regression else catboost.CatBoostClassifier
    model = kind(iterations=ROUNDS, thread_count=1, random_seed=seed, verbose=False, allow_writing_files=False)
    return model.fit(a, ya, eval_set=(b, yb), early_stopping_rounds=PATIENCE)


def fit_hgb(X: Any, y: Any, regression: bool, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    model = kind(max_iter=ROUNDS, early_stopping=True, n_iter_no_change=PATIENCE, random_state=seed)
    return model.fit(X, y)


def fit_linear(X: Any, y: Any, regression: bool, seed: int) -> Any:
    model = Ridge() if regression else LogisticRegression(max_iter=1000)
    return make_pipeline(StandardScaler(), model).fit(np.nan_to_num(X), y)


LEARNERS: dict[str, Fit] = {
    "gbun": fit_gbun,
    "gbun, trees": partial(fit_gbun, learner="tree"),
    "gbun, networks": partial(fit_gbun, learner="network"),
    "LightGBM": fit_lightgbm,
    "XGBoost": fit_xgboost,
    "CatBoost": fit_catboost,
    "HGB": fit_hgb,
    "linear": fit_linear,
}
OURS, PEERS = "gbun", ("LightGBM", "XGBoost", "CatBoost")


def measure(data: DenseSet, splits: int) -> dict[str, dict[str, list[float]]]:
    """Return the losses and seconds of each learner, one for each split."""
    found: dict[str, dict[str, list[float]]] = {name: {"loss": [], "seconds": []} for name in LEARNERS}
    for seed in range(splits):
        X, y, X_test, y_test = data.load(seed)
        if not data.regression:
            labels, y = np.unique(y, return_inverse=True)
            known = np.isin(y_test, labels)
            X_test, y_test = X_test[known], np.searchsorted(labels, y_test[known])
        for name, fit in LEARNERS.items():
            began = process_time()
            model = fit(X, y, data.regression, seed)
            found[name]["seconds"].append(process_time() - began)
            found[name]["loss"].append(loss(model, X_test, y_test, data.regression))
    return found


def loss(model: Any, X: Any, y: Any, regression: bool) -> float:
    if regression:
        return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    q = np.full((len(y), int(y.max()) + 1), 0.0)
    classes = np.asarray(model.classes_, dtype=int)
    inside = classes < q.shape[1]
    q[:, classes[inside]] = model.predict_proba(np.nan_to_num(X) if "Pipeline" in str(type(model)) else X)[:, inside]
    return float(-np.log(q[np.arange(len(y)), y].clip(1e-15)).mean())


def verdict(ours: list[float], theirs: list[float]) -> str:
    """Judge paired losses."""
    gains = np.subtract(theirs, ours)
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return "tied" if abs(gains.mean()) <= 2 * error else "won" if gains.mean() > 0 else "lost"


def make_rows(results: dict[str, Any]) -> list[report.Row]:
    """Losses set by set, then mean ranks, verdicts and seconds."""
    names, rows = list(LEARNERS), []
    ranks: dict[str, list[float]] = {name: [] for name in names}
    against: dict[str, list[str]] = {name: [] for name in [*names, "best of three"]}
    for data, found in results.items():
        means = {name: statistics.mean(found[name]["loss"]) for name in names}
        for rank, name in enumerate(sorted(names, key=means.__getitem__), 1):
            ranks[name].append(rank)
        best = min(PEERS, key=means.__getitem__)
        for name in names:
            against[name].append(verdict(found[OURS]["loss"], found[name]["loss"]))
        against["best of three"].append(verdict(found[OURS]["loss"], found[best]["loss"]))
        title = {"table": "Log loss or RMSE on test rows, means over splits"}
        judged = {f"against the best, {best}": against["best of three"][-1]}
        rows.append(
            {**title, "data": data, **{n: f"{means[n]:.4g}" for n in names}, "verdict": "; ".join(judged.values())}
        )
    for name in [*names, "best of three"]:
        counts = {kind: against[name].count(kind) for kind in ("won", "tied", "lost")}
        row: report.Row = {"table": "gbun's defaults against each", "learner": name, **counts}
        if name in ranks:
            seconds = sum(statistics.mean(found[name]["seconds"]) for found in results.values())
            row |= {"mean rank": f"{statistics.mean(ranks[name]):.2f}", "seconds, all sets": f"{seconds:.1f}"}
        rows.append(row)
    return rows


def draw(results: dict[str, Any], path: Path) -> None:
    """Loss of gbun relative to the best of the three peers, set by set."""
    ratios = sorted(
        (
            statistics.mean(found[OURS]["loss"]) / max(1e-12, min(statistics.mean(found[p]["loss"]) for p in PEERS)),
            name,
        )
        for name, found in results.items()
    )
    figure = new_figure(6, 0.22 * len(ratios) + 1)
    ax = figure.subplots()
    ax.barh([name for _, name in ratios], [np.log(max(r, 1e-3)) for r, _ in ratios], color="#1b6ca8")
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_title("log of gbun's loss / that of the best of LightGBM, XGBoost, CatBoost", fontsize=9)
    ax.tick_params(labelsize=7)
    save(figure, path)


def main() -> None:
    parser = report.make_parser("accuracy.tables", __doc__, "results/tables")
    parser.add_argument("--rows", type=int, default=10_000, help="most rows of a set to train on")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--only", default="", help="comma-separated names of sets; all by default")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    sets = dense_sets(args.data, args.rows)
    wanted = args.only.split(",") if args.only else [name for name in sets if name != "aloi"]
    if unknown := sorted(set(wanted) - sets.keys()):
        parser.error(f"--only names unknown sets {unknown}; known are {', '.join(sets)}")
    args.output.mkdir(parents=True, exist_ok=True)
    store, console = args.output / f"tables_{args.rows}_{args.splits}.json", Console(width=200)
    results = json.loads(store.read_text()) if store.exists() else {}
    for name in wanted:
        if name not in results:
            results[name] = measure(sets[name], args.splits)
            store.write_text(json.dumps(results, indent=1))
            means = {n: round(statistics.mean(found["loss"]), 4) for n, found in results[name].items()}
            console.print(name, means)
    report.show(make_rows(results), console)
    draw(results, store.with_suffix(".png"))
    console.print(report.versions())


if __name__ == "__main__":
    main()
