"""How the number format of messages affects accuracy: the same training with each transport, on real rows.

    python -m benchmarks.network.transport --data FOLDER [--sets letter,a9a,epsilon] [--workers 4] [--rounds 100]
                                           [--seeds 3] [--output FOLDER]

FOLDER has the data sets as `benchmarks.accuracy` reads them. Workers are processes of this machine. They send the same
messages as workers on several machines. A difference is that of two trainings with the same seed, which draw the same
networks; its spread is the standard deviation over seeds. With up to 4096 rows, sums are always sent as float64; the
sample of epsilon shows that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch.distributed as dist
from rich.console import Console

from benchmarks import report
from benchmarks.accuracy.problems import PROBLEMS, score
from benchmarks.accuracy.sets import epsilon
from gbun import distributed

TRANSPORTS = ("float64", "float32", "int16")
TABLE = "transport: test scores by how sums were written on the way, and their differences from float64"


@dataclass(frozen=True)
class Found:
    """Test scores by metric, and the bytes that a worker sent in a round."""

    scores: dict[str, float]
    sent: float


KNOWN = {problem.name: problem for problem in PROBLEMS}
SETS = {
    "letter": (KNOWN["letter"].load, KNOWN["letter"].settings[0], ("accuracy", "log_loss")),
    "a9a": (KNOWN["a9a"].load, KNOWN["a9a"].settings[0], ("auc", "log_loss")),
    "epsilon": (epsilon, {"n_neurons": 64}, ("auc", "log_loss")),
}


def train_worker(name: str, folder: Path, rounds: int, seeds: int) -> dict[str, list[Found]]:
    """Train as one worker of several, for each transport and seed; rank 0 judges."""
    load, settings, metrics = SETS[name]
    X, y, X_test, y_test = load(folder)
    shard = slice(dist.get_rank(), None, dist.get_world_size())
    found: dict[str, list[Found]] = {transport: [] for transport in TRANSPORTS}
    for seed in range(seeds):
        for transport in TRANSPORTS:
            bytes_report, params = distributed.TrafficReport(), {**settings, "random_state": seed, "n_jobs": 1}
            model = distributed.train(
                params, (X[shard], y[shard]), rounds, task="classification", transport=transport, report=bytes_report
            )
            if dist.get_rank() == 0:
                probabilities = model.predict_proba(X_test)
                scores = {metric: score(metric, y_test, probabilities) for metric in metrics}
                found[transport].append(Found(scores, float(bytes_report.sent[:, 1:].mean())))
    return found


def compare(name: str, workers: int, found: dict[str, list[Found]]) -> list[report.Row]:
    """Means over seeds, and of the differences from float64 also the spread."""
    rows = []
    for transport, results in found.items():
        row: report.Row = {"table": TABLE, "data": name, "workers": workers}
        row |= {"seeds": len(results), "transport": transport}
        for metric in results[0].scores:
            values, exact = (np.array([one.scores[metric] for one in ones]) for ones in (results, found["float64"]))
            row[metric] = float(values.mean())
            if transport != "float64":
                row[f"{metric} difference"] = float((values - exact).mean())
                row[f"{metric} spread"] = float((values - exact).std(ddof=1)) if len(results) > 1 else None
        rows.append({**row, "sent a round": round(np.mean([one.sent for one in results]))})
    return rows


def main() -> None:
    parser = report.make_parser("network.transport", __doc__, "results/network")
    parser.add_argument("--sets", type=report.names_of(SETS), default=list(SETS))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    rows: list[report.Row] = []
    for name in args.sets:
        found = distributed.launch(train_worker, args.workers, (name, args.data.resolve(), args.rounds, args.seeds))[0]
        rows += compare(name, args.workers, found)
        report.show(rows[-len(TRANSPORTS) :], Console(width=200))
    part = {"about": report.about(args.workers, False), "rows": rows}
    report.write(args.output / "transport.json", {"transport": part})


if __name__ == "__main__":
    main()
