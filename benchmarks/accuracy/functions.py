"""Functions of one column, and a linear one of ten: how well each learner follows 500 rows without noise.

    python -m benchmarks.accuracy.functions [--output results/functions]

R2 on the rows that were trained on. x is evenly spaced from -3 to 3, or standard normal, which has few rows far out;
the columns of X are standard normal. "defaults" is GBUNRegressor().
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import report
from gbun import GBUNRegressor

ROWS, COLUMNS = 500, 10
ONE_COLUMN, LINEAR = 0.995, 0.999  # goals
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "x": lambda x: x,
    "x^2": lambda x: x**2,
    "sin 2x": lambda x: np.sin(2 * x),
    "step": lambda x: (x > 0.3).astype(float),
}
LEARNERS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "trees": {"learner": "tree"},
    "networks": {"learner": "network"},
    "mixed": {"learner": "mixed"},
    "linear start": {"init": "linear"},
}


def problems(n_rows: int = ROWS) -> dict[str, tuple[Any, Any]]:
    """X and y by name."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(n_rows, COLUMNS)), rng.normal(size=COLUMNS)
    columns = {"": np.linspace(-3, 3, n_rows)[:, None], ", normal x": X[:, :1]}
    found = {f"{name}{how}": (x, f(x[:, 0])) for how, x in columns.items() for name, f in FUNCTIONS.items()}
    return {**found, "X @ w": (X, X @ w)}


def make_learners(**settings: Any) -> dict[str, Any]:
    from lightgbm import LGBMRegressor

    ours = {name: GBUNRegressor(n_jobs=1, **given, **settings) for name, given in LEARNERS.items()}
    return {**ours, "LightGBM": LGBMRegressor(n_jobs=1, verbose=-1)}


def measure(learners: dict[str, Any], n_rows: int = ROWS) -> list[report.Row]:
    title = {"table": f"R2 on {n_rows} training rows; seconds of the processor"}
    rows = []
    for name, model in learners.items():
        model.fit(*problems(n_rows)["x"])  # imports and compiled code
        began = process_time()
        found = {what: float(model.fit(X, y).score(X, y)) for what, (X, y) in problems(n_rows).items()}
        rows.append({**title, "learner": name, **found, "seconds": process_time() - began})
    return rows


def goals(row: report.Row) -> list[report.Row]:
    """What the defaults are to reach."""
    return [
        report.goal(name, "R2 of the defaults", row[name], least=LINEAR if name == "X @ w" else ONE_COLUMN)
        for name in (*FUNCTIONS, "X @ w")
    ]


def main() -> None:
    args = report.make_parser("accuracy.functions", __doc__, "results/functions", data=False).parse_args()
    warnings.filterwarnings("ignore")
    console = Console(width=150)
    rows = measure(make_learners())
    report.show([*rows, *goals(rows[0])], console)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "functions.json").write_text(json.dumps({"packages": report.versions(), "rows": rows}, indent=1))
    console.print(f"{report.versions()}\nwritten to {args.output}")


if __name__ == "__main__":
    main()
