"""What each part of the defaults brings: the linear start, the scaling, the networks, groups and temperature.

    python -m benchmarks.accuracy.ablations --data DIR [--sets a9a,letter] [--output results/ablations]

Each column changes one thing; all else is GBUNClassifier(). Test accuracy, or AUC of book_crossing and a9a; seconds of
training in brackets, 120 at most: then the best round so far is kept. "other start" is a constant on sparse sets and a
linear model on dense ones, "other softmax" groups of 16 on sparse sets and one softmax on dense ones. Finished cells
are kept in the JSON and not run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from sklearn.metrics import accuracy_score, roc_auc_score

from benchmarks.accuracy.dense import dense_sets
from benchmarks.accuracy.wide.sets import SETS
from gbun import GBUNClassifier
from gbun.callbacks import TimeBudget

MOST_SECONDS = 120
DENSE = ("letter", "usps", "satimage", "optdigits")
CHANGES = ("nothing", "other start", "no networks", "no scaling", "other softmax", "temperature / 2", "temperature x 2")


def changed(change: str, dense: bool) -> dict[str, Any]:
    temperature = 2.0 if dense else 1.0
    return {
        "nothing": {},
        "other start": {"init": "linear" if dense else "constant"},
        "no networks": {"init": "linear", "n_estimators": 0},
        "no scaling": {"scale": "none"},
        "other softmax": {"group_size": 256 if dense else 16, "n_neurons": 256},
        "temperature / 2": {"temperature": temperature / 2},
        "temperature x 2": {"temperature": temperature * 2},
    }[change]


def cell(split: tuple[Any, Any, Any, Any], settings: dict[str, Any], auc: bool) -> dict[str, float]:
    X, y, X_test, y_test = split
    began = perf_counter()
    model = GBUNClassifier(**settings).fit(X, y, callbacks=[TimeBudget(MOST_SECONDS)])
    seconds = perf_counter() - began
    found = roc_auc_score(y_test, model.predict_proba(X_test)[:, 1]) if auc else None
    score = accuracy_score(y_test, model.predict(X_test)) if found is None else found
    return {"score": float(score), "seconds": seconds, "rounds": model.n_estimators_}


def main() -> None:
    known = [*SETS, *DENSE]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.ablations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--sets", default=",".join(known), help=f"some of {','.join(known)}")
    parser.add_argument("--output", type=Path, default=Path("results/ablations"))
    args = parser.parse_args()
    wanted = args.sets.split(",")
    if set(wanted) - set(known):
        parser.error(f"--sets names unknown sets {sorted(set(wanted) - set(known))}; known are {', '.join(known)}")
    args.output.mkdir(parents=True, exist_ok=True)
    store, console = args.output / "ablations.json", Console(width=180)
    results: dict[str, dict[str, dict[str, float]]] = json.loads(store.read_text()) if store.exists() else {}
    for name in wanted:
        row = results.setdefault(name, {})
        missing = [change for change in CHANGES if change not in row]
        if missing:
            split = SETS[name].load(args.data) if name in SETS else dense_sets(args.data, 20_000)[name].load(0)
        for change in missing:
            row[change] = cell(split, changed(change, name in DENSE), name in SETS and SETS[name].metric == "auc")
            store.write_text(json.dumps(results, indent=1))
            console.print(name, change, row[change])
    show({name: results[name] for name in wanted}, console)
    draw({name: results[name] for name in wanted}, store.with_suffix(".png"))


def show(results: dict[str, dict[str, dict[str, float]]], console: Console) -> None:
    table = Table(title="Test score (seconds of training) when one thing is changed")
    for column in ("data", *CHANGES):
        table.add_column(column, justify="right")
    for name, row in results.items():
        table.add_row(name, *(f"{row[c]['score']:.4f} ({row[c]['seconds']:.0f})" for c in CHANGES))
    console.print(table)


def draw(results: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """What each change takes from the score of the defaults."""
    figure = Figure(figsize=(2.2 * (len(CHANGES) - 1), 0.3 * len(results) + 1.2), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, change in zip(figure.subplots(1, len(CHANGES) - 1, sharey=True), CHANGES[1:], strict=True):
        ax.barh(list(results), [row[change]["score"] - row["nothing"]["score"] for row in results.values()])
        ax.axvline(0.0, color="black", linewidth=0.8)
        ax.set_xscale("symlog", linthresh=1e-3)
        ax.set_title(change, fontsize=8)
        ax.tick_params(labelsize=7)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
