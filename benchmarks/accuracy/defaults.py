"""The study behind the defaults for dense columns: settings beside each other on small tabular sets.

    python -m benchmarks.accuracy.defaults --data DIR [--rows 2500] [--only adult,churn] [--output results/defaults]

Each set is cut to `--rows` rows, 70 % of them to train. Scores are R2 (names that begin with a number) or accuracy.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import train_test_split

from gbun import GBUNClassifier, GBUNRegressor

COMMON = {"n_estimators": 100}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one softmax": {"group_size": 112, "n_neurons": 112},
    "groups of 8": {"group_size": 8},
    "tau 3": {"temperature": 3.0},
    "density .3": {"density": 0.3},
    "eta .3": {"learning_rate": 0.3},
    "lambda 1e-3": {"reg_lambda": 1e-3},
    "K 256": {"n_neurons": 256},
}


def scores(path: Path, n_rows: int) -> dict[str, float]:
    data = np.load(path)
    rows = np.random.default_rng(0).permutation(len(data["y"]))[:n_rows]
    X_train, X_test, y_train, y_test = train_test_split(data["X"][rows], data["y"][rows], test_size=0.3, random_state=0)
    regression = path.name[0].isdigit()
    ours, theirs = (GBUNRegressor, LGBMRegressor) if regression else (GBUNClassifier, LGBMClassifier)
    found = {}
    for name, settings in SETTINGS.items():
        found[name] = float(ours(**COMMON, **settings).fit(X_train, y_train).score(X_test, y_test))
    found["lightgbm"] = float(theirs(verbose=-1).fit(X_train, y_train).score(X_test, y_test))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.defaults", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets; tabular_small is read")
    parser.add_argument("--rows", type=int, default=2500)
    parser.add_argument("--only", default="", help="comma-separated names of sets; all by default")
    parser.add_argument("--output", type=Path, default=Path("results/defaults"))
    args = parser.parse_args()
    table = Table(title="R2 or accuracy on held-out rows")
    for column in ("data", *SETTINGS, "lightgbm"):
        table.add_column(column, justify="right")
    names = args.only.split(",") if args.only else None
    paths = [p for p in sorted((args.data / "tabular_small").glob("*.npz")) if names is None or p.stem in names]
    results = {path.stem: scores(path, args.rows) for path in paths}
    results["median"] = {name: statistics.median(r[name] for r in results.values()) for name in (*SETTINGS, "lightgbm")}
    results["mean"] = {
        name: statistics.mean(r[name] for key, r in results.items() if key != "median")
        for name in (*SETTINGS, "lightgbm")
    }
    for name, row in results.items():
        table.add_row(name, *(f"{row[key]:.4f}" for key in (*SETTINGS, "lightgbm")))
    Console(width=160).print(table)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "defaults.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
