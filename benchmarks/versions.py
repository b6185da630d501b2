"""Is another version of gbun faster or slower? Two checkouts take turns, some boosting rounds or one prediction each.

    git worktree add ../before REVISION
    python -m benchmarks.versions --before ../before [--turns 60] [--only "dense"] [--output results/versions]

Each version trains in a process of its own. A callback stops it after its rounds until it is its turn again, and the
order of the two changes from turn to turn, so that both meet the same noise. Reported is the median over turns of
after / before, with its 95 % interval (bootstrap), and the ratio of the shortest times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.datasets import make_friedman1

import gbun
from benchmarks import report
from benchmarks.data import clicks
from gbun import distributed
from gbun.callbacks import Callback

THREADS = 2
WARM_UP = 3  # turns that are not counted: machine code is read, buffers are touched for the first time
Rows = tuple[Any, Any]


def make_dense(n_rows: int, n_classes: int) -> Rows:
    X, score = make_friedman1(n_rows, 50, noise=1.0, random_state=0)
    return X, np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))


class TakeTurns(Callback):
    """Reports the seconds of a round, and waits for the other version after it; a turn has `n` rounds."""

    def __init__(self, n: int) -> None:
        self.n = n

    def after_start(self, training: Any, report: Any) -> None:
        self.began = wait_for_turn()

    def after_round(self, training: Any, report: Any) -> bool:
        if (report.round + 1) % self.n == 0:
            tell((perf_counter() - self.began) / self.n)
            self.began = wait_for_turn()
        return False


def boost(rows: Callable[[], Rows], rounds_a_turn: int = 1, **params: Any) -> None:
    params = {"objective": "logistic", "init": "constant", "n_jobs": THREADS, **params}
    gbun.train(params, rows(), 100_000, callbacks=[TakeTurns(rounds_a_turn)], task="classification")


def predict(rows: Callable[[], Rows]) -> None:
    X, y = rows()
    model = gbun.train({"n_neurons": 64, "init": "constant", "n_jobs": THREADS}, (X, y), 20, task="classification")
    while True:
        began = wait_for_turn()
        model.decision_function(X)
        tell(perf_counter() - began)


def boost_on_workers(K: int) -> None:
    """A turn is a training of two workers; its time is the shortest round but the first three and the last two."""
    while True:
        wait_for_turn()
        tell(min(distributed.launch(train_share, THREADS, (K,))[0]))


def train_share(K: int) -> list[float]:
    import torch.distributed as dist

    X, y = clicks(300_000).load()
    history, share = gbun.callbacks.History(), slice(dist.get_rank(), None, THREADS)
    params = {"objective": "logistic", "n_neurons": K, "init": "constant", "n_jobs": 1}
    distributed.train(params, (X[share], y[share]), 14, callbacks=[history], task="classification")
    return np.diff(history.seconds)[WARM_UP - 1 : -2].tolist()


CASES: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "clicks 1.2M x 390k, K=64": (boost, {"rows": lambda: clicks(1_200_000).load(), "n_neurons": 64}),
    "clicks 300k x 390k, K=256": (boost, {"rows": lambda: clicks(300_000).load(), "n_neurons": 256}),
    "dense 200k x 50, K=64": (boost, {"rows": lambda: make_dense(200_000, 2), "n_neurons": 64}),
    "dense 20k x 50, 26 classes, K=256": (
        boost,
        {"rows": lambda: make_dense(20_000, 26), "n_neurons": 256, "objective": "softmax"},
    ),
    "dense 300 x 50, K=16": (boost, {"rows": lambda: make_dense(300, 2), "n_neurons": 16, "rounds_a_turn": 50}),
    "dense 4,000 x 50, K=64": (boost, {"rows": lambda: make_dense(4_000, 2), "n_neurons": 64, "rounds_a_turn": 10}),
    "prediction, clicks 300k, 20 x K=64": (predict, {"rows": lambda: clicks(300_000).load()}),
    "prediction, dense 200k x 50, 20 x K=64": (predict, {"rows": lambda: make_dense(200_000, 2)}),
    "two workers, clicks 300k, K=64": (boost_on_workers, {"K": 64}),
    "two workers, clicks 300k, K=256": (boost_on_workers, {"K": 256}),
}


def tell(seconds: float) -> None:
    os.write(1, f"{seconds!r}\n".encode())


def wait_for_turn() -> float:
    if not sys.stdin.readline():
        os._exit(0)  # the parent has enough
    return perf_counter()


class Version:
    """A checkout whose process does one unit of work at each turn."""

    def __init__(self, folder: Path, case: str) -> None:
        here = Path(__file__).parent.parent
        environment = {**os.environ, "PYTHONPATH": f"{folder.resolve() / 'src'}{os.pathsep}{here}"}
        command = [sys.executable, "-m", "benchmarks.versions", "--serve", case]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def turn(self) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a version ended before its turn; its error is above")
        return float(line)

    def __enter__(self) -> Version:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def take_turns(before: Path, after: Path, case: str, turns: int) -> Iterator[tuple[float, float]]:
    """Yield the seconds of both versions, turn by turn."""
    with Version(before, case) as old, Version(after, case) as new:
        for turn in range(turns + WARM_UP):
            first, second = (old, new) if turn % 2 else (new, old)
            seconds = {first: first.turn(), second: second.turn()}
            if turn >= WARM_UP:
                yield seconds[old], seconds[new]


def compare(case: str, seconds: np.ndarray) -> report.Row:
    """Summarise the seconds of both versions, turns x 2."""
    ratios = seconds[:, 1] / seconds[:, 0]
    draws = np.random.default_rng(0).integers(0, len(ratios), (2000, len(ratios)))
    low, high = np.quantile(np.median(ratios[draws], axis=1), [0.025, 0.975])
    best = seconds.min(axis=0)
    return {
        "table": "seconds of a round or prediction, after / before", "case": case, "turns": len(seconds),
        "before": best[0], "after": best[1], "of bests": best[1] / best[0],
        "median of ratios": float(np.median(ratios)), "from": float(low), "to": float(high),
    }  # fmt: skip


def draw(rows: list[report.Row], path: Path) -> None:
    figure = report.new_figure(8.0, 0.45 * len(rows) + 1.0)
    ax = figure.subplots()
    middle = np.array([row["median of ratios"] for row in rows])
    spread = [middle - [row["from"] for row in rows], [row["to"] for row in rows] - middle]
    ax.errorbar(middle, range(len(rows)), xerr=np.maximum(spread, 0.0), fmt="o")
    ax.axvline(1.0, color="grey", linewidth=0.8)
    ax.set_yticks(range(len(rows)), [row["case"] for row in rows])
    ax.set_title("seconds after / before, median over turns, 95 % interval")
    report.save(figure, path)


def main() -> None:
    parser = report.make_parser("versions", __doc__, "results/versions", data=False)
    parser.add_argument("--before", type=Path, help="a checkout of the other version")
    parser.add_argument("--turns", type=int, default=60, help="of each case; a tenth where a turn is a whole training")
    parser.add_argument(
        "--only", default=[""], nargs="+", metavar="WORDS", help="cases whose name contains one of these"
    )
    parser.add_argument("--serve", choices=CASES, help="used by this program for its own children")
    args = parser.parse_args()
    if args.serve:
        work, options = CASES[args.serve]
        work(**options)
    elif args.before is None or not (args.before / "src" / "gbun").is_dir():
        parser.error(f"--before must be a checkout of gbun, got {args.before}")
    else:
        compare_all(args)


def compare_all(args: argparse.Namespace) -> None:
    rows, here = [], Path(__file__).parent.parent
    for case in [case for case in CASES if any(words in case for words in args.only)]:
        turns = max(args.turns // 10, 3) if CASES[case][0] is boost_on_workers else args.turns
        seconds = np.array(list(track(take_turns(args.before, here, case, turns), case, turns, transient=True)))
        rows.append(compare(case, seconds))
    report.show(rows, Console(width=160))
    args.output.mkdir(parents=True, exist_ok=True)
    report.write(args.output / "versions.json", {"versions": {"about": report.about(THREADS, False), "rows": rows}})
    draw(rows, args.output / "versions.png")


if __name__ == "__main__":
    main()
