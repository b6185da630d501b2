"""What each part of the defaults brings: the linear start, the scaling, the networks, groups and temperature.

    python -m benchmarks.accuracy.ablations --data DIR [--sets a9a,letter] [--output results/ablations]

Each column changes one thing; all else is GBUNClassifier(). Test accuracy, or AUC of book_crossing and a9a; seconds of
training in brackets, 120 at most: then the best round so far is kept. "other start" is a constant on sparse sets and a
linear model on dense ones, "other softmax" groups of 16 on sparse sets and one softmax on dense ones. Finished cells
are kept in the JSON and not run again.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.accuracy.sets import WIDE_SETS as SETS
from benchmarks.accuracy.sets import Split, dense_sets, score
from benchmarks.report import new_figure, save
from gbun import GBUNClassifier
from gbun.callbacks import TimeBudget

MOST_SECONDS = 120
DENSE = ("letter", "usps", "satimage", "optdigits")
CHANGES = ("nothing", "other start", "no networks", "no scaling", "other softmax", "temperature / 2", "temperature x 2")


def settings_of(change: str, dense: bool) -> dict[str, Any]:
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


def measure(split: Split, settings: dict[str, Any], auc: bool) -> dict[str, float]:
    X, y, X_test, y_test = split
    began = perf_counter()
    model = GBUNClassifier(**settings).fit(X, y, callbacks=[TimeBudget(MOST_SECONDS)])
    seconds = perf_counter() - began
    predicted = model.predict_proba(X_test)[:, 1] if auc else model.predict(X_test)
    value = score("auc" if auc else "accuracy", y_test, predicted)
    return {"score": value, "seconds": seconds, "rounds": model.n_estimators_}


def main() -> None:
    known = [*SETS, *DENSE]
    parser = report.make_parser("accuracy.ablations", __doc__, "results/ablations")
    parser.add_argument("--sets", type=report.names_of(known), default=known, help=f"some of {','.join(known)}")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    store, console = args.output / "ablations.json", Console(width=180)
    results: dict[str, dict[str, dict[str, float]]] = json.loads(store.read_text()) if store.exists() else {}
    for name in args.sets:
        row = results.setdefault(name, {})
        missing = [change for change in CHANGES if change not in row]
        if missing:
            split = SETS[name].load(args.data) if name in SETS else dense_sets(args.data, 20_000)[name].load(0)
        for change in missing:
            auc = name in SETS and SETS[name].metric == "auc"
            row[change] = measure(split, settings_of(change, name in DENSE), auc)
            store.write_text(json.dumps(results, indent=1))
            console.print(name, change, row[change])
    results = {name: results[name] for name in args.sets}
    title = "Test score (seconds of training) when one thing is changed"
    columns = {
        name: {c: f"{row[c]['score']:.4f} ({row[c]['seconds']:.0f})" for c in CHANGES} for name, row in results.items()
    }
    report.show([{"table": title, "data": name, **cells} for name, cells in columns.items()], console)
    draw(results, store.with_suffix(".png"))


def draw(results: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """What each change takes from the score of the defaults."""
    figure = new_figure(2.2 * (len(CHANGES) - 1), 0.3 * len(results) + 1.2)
    for ax, change in zip(figure.subplots(1, len(CHANGES) - 1, sharey=True), CHANGES[1:], strict=True):
        ax.barh(list(results), [row[change]["score"] - row["nothing"]["score"] for row in results.values()])
        ax.axvline(0.0, color="black", linewidth=0.8)
        ax.set_xscale("symlog", linthresh=1e-3)
        ax.set_title(change, fontsize=8)
        ax.tick_params(labelsize=7)
    save(figure, path)


if __name__ == "__main__":
    main()
