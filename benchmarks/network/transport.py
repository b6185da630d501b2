"""What narrow numbers on the way do to accuracy: the same training by each transport, on real rows.

    python -m benchmarks.network.transport --data FOLDER [--sets letter,a9a,epsilon] [--workers 4] [--rounds 100]
                                           [--seeds 3] [--output FOLDER]

FOLDER has the data sets as `benchmarks.accuracy` reads them. Workers are processes of this machine that send each other
what workers of many machines would. A difference is that of two trainings with the same seed, which draw the same
networks; its spread is the standard deviation over seeds. With up to 4096 rows sums travel as float64, whatever is
asked for: epsilon's sample shows that.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from rich.console import Console

from benchmarks.accuracy.learners import score
from benchmarks.accuracy.problems import PROBLEMS
from benchmarks.speed import report
from gbun import distributed

TRANSPORTS = ("float64", "float32", "int16")
TABLE = "transport: test scores by how sums were written on the way, and their differences from float64"
Rows = tuple[Any, Any, Any, Any]  # X, y, and those of the test


@dataclass(frozen=True)
class Found:
    """Test scores by metric, and the bytes that a worker sent in a round."""

    scores: dict[str, float]
    sent: float


def epsilon(folder: Path) -> Rows:
    data = np.load(folder / "epsilon_5k" / "epsilon_5k.npz")
    return data["X_train"], data["y_train"], data["X_test"], data["y_test"]


KNOWN = {problem.name: problem for problem in PROBLEMS}
SETS = {
    "letter": (KNOWN["letter"].load, KNOWN["letter"].settings[0], ("accuracy", "log_loss")),
    "a9a": (KNOWN["a9a"].load, KNOWN["a9a"].settings[0], ("auc", "log_loss")),
    "epsilon": (epsilon, {"n_neurons": 64}, ("auc", "log_loss")),
}


def trained(name: str, folder: Path, rounds: int, seeds: int) -> dict[str, list[Found]]:
    """What one worker of several finds, for each transport and seed; rank 0 judges."""
    load, settings, metrics = SETS[name]
    X, y, X_test, y_test = load(folder)
    own = slice(dist.get_rank(), None, dist.get_world_size())
    found: dict[str, list[Found]] = {transport: [] for transport in TRANSPORTS}
    for seed in range(seeds):
        for transport in TRANSPORTS:
            told, params = distributed.Report(), {**settings, "random_state": seed, "n_jobs": 1}
            model = distributed.train(
                params, (X[own], y[own]), rounds, task="classification", transport=transport, report=told
            )
            if dist.get_rank() == 0:
                probabilities = model.predict_proba(X_test)
                scores = {metric: score(metric, y_test, probabilities) for metric in metrics}
                found[transport].append(Found(scores, float(told.sent[:, 1:].mean())))
    return found


def compared(name: str, workers: int, found: dict[str, list[Found]]) -> list[report.Row]:
    """Means over seeds, and of the differences from float64 also the spread."""
    rows = []
    for transport, own in found.items():
        row: report.Row = {"table": TABLE, "data": name, "workers": workers, "seeds": len(own), "transport": transport}
        for metric in own[0].scores:
            values, exact = (np.array([one.scores[metric] for one in ones]) for ones in (own, found["float64"]))
            row[metric] = float(values.mean())
            if transport != "float64":
                row[f"{metric} difference"] = float((values - exact).mean())
                row[f"{metric} spread"] = float((values - exact).std(ddof=1)) if len(own) > 1 else None
        rows.append({**row, "sent a round": round(np.mean([one.sent for one in own]))})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network.transport", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("results/network"))
    args = parser.parse_args()
    unknown = set(args.sets.split(",")) - set(SETS)
    if unknown:
        parser.error(f"--sets has unknown names {sorted(unknown)}; known are {list(SETS)}")
    rows: list[report.Row] = []
    for name in args.sets.split(","):
        found = distributed.launch(trained, args.workers, (name, args.data.resolve(), args.rounds, args.seeds))[0]
        rows += compared(name, args.workers, found)
        report.show(rows[-len(TRANSPORTS) :], Console(width=200))
    args.output.mkdir(parents=True, exist_ok=True)
    report.write(
        args.output / "transport.json", {"transport": {"about": report.about(args.workers, False), "rows": rows}}
    )


if __name__ == "__main__":
    main()
