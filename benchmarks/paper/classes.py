"""What classes cost: seconds and bytes of a round against their number, from 10 to 1000.

    python -m benchmarks.paper.classes [--quick]

Rows are generated, equally many of each class. All learners of a cell are alive, each in its own process, and take
turns, a round each; a learner that takes longer than a minute for its first round has no other. gbun counts its bytes
on two workers of this machine; those of the peers are upper bounds by formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.cells import Cell, Finding
from benchmarks.data import Source
from benchmarks.paper.experiment import Experiment, Picture, Plan, draw_panels, main
from benchmarks.peers import rounds as peers
from benchmarks.peers.hosts import SEEDS
from benchmarks.report import COLOURS, Row, plot_line
from benchmarks.timing import PEERS, Times, Worker, interleave, ratio, start_all

CLASSES, QUICK_CLASSES = (10, 30, 100, 300, 1000), (20,)
ROWS, QUICK_ROWS = 50_000, 1_000  # of 1000 classes 50 each: a leaf of LightGBM has 20 at least
SENT_ROWS = 20_000  # few rows would travel in float64
SWEEPS, SENT_ROUNDS, WORKERS = 3, 6, 2
NEURONS = 64  # K, also LightGBM's leaves and, at full depth, XGBoost's: a power of two
MOST_SECONDS = 60.0
PACKAGES = ("gbun", "numba", "lightgbm", "xgboost", "xgboost-cpu")
DENSE, SPARSE = "dense", "sparse"
COLUMNS = {DENSE: 100, SPARSE: 20_000}
WORDS, CLASS_WORDS = 20, 20  # in a sparse row; of a class, half of a row's words are from these
OURS, PER_CLASS, LIGHTGBM, XGBOOST = "gbun", "gbun as the paper's", "LightGBM", "XGBoost"
LEARNERS = (OURS, PER_CLASS, LIGHTGBM, XGBOOST)
SECONDS = "classes: median seconds of a round, {}, K = {}"
BYTES = "classes: bytes a round that a worker of two sends, K = {}"
GROWTH = "classes: the cost of the most classes over that of the fewest"
TEXT = f"""\
The paper says that a network serves all classes, so that rows are forwarded once however many there are; it measures
nothing of that, and its diagonal Hessian needs a Gram matrix for each class. gbun shares one Hessian among classes;
the paper's form (hessian=per_class) is measured beside it. Rows are generated: {ROWS:,} rows of 100 dense columns,
and of 20 words among 20,000. LightGBM and XGBoost grow a tree for each class, of K leaves and of depth log2 K at
most: where classes have few rows, as with 300 and 1000 of them, trees stay small and rounds get cheaper. gbun counts
its bytes on two workers. By formula are the Gram matrices of the paper's form, and the histograms of the 100 dense
columns that two workers of LightGBM or XGBoost send at most, where all trees have the leaves they may have."""


def cells(plan: Plan) -> list[Cell]:
    n_rows, sweeps = (QUICK_ROWS, 1) if plan.quick else (ROWS, SWEEPS)
    planned, kinds = (QUICK_CLASSES, (DENSE,)) if plan.quick else (CLASSES, (DENSE, SPARSE))
    found, K = [], NEURONS
    for n_classes in planned:
        settings = {"classes": n_classes, "n_rows": SENT_ROWS, "K": K, "rounds": SENT_ROUNDS, "workers": WORKERS}
        run = partial(count_bytes, n_classes, SENT_ROWS, K, SENT_ROUNDS)
        name, seeds = f"bytes, {n_classes} classes, K = {K}", {"rows": seed_of(n_classes), "gbun": 0}
        found.append(Cell(name, settings, run, ("gbun", "torch"), ["torch"], seeds))
    for kind, n_classes in product(kinds, planned):
        settings = {"kind": kind, "n_rows": n_rows, "n_classes": n_classes, "K": K, "threads": plan.threads}
        run = partial(compare, **settings, sweeps=sweeps)
        settings |= {"sweeps": sweeps, "columns": COLUMNS[kind], "depth": depth(K)}
        name, seeds = f"{kind}, {n_classes} classes, K = {K}", {"rows": seed_of(n_classes), **SEEDS}
        found.append(Cell(name, settings, run, PACKAGES, ("lightgbm", "xgboost"), seeds))
    return found


def make_rows(kind: str, n_rows: int, n_classes: int) -> tuple[Any, Any]:
    """Dense columns around a centre for each class, or rows of words half of which are their class's."""
    rng = np.random.default_rng(seed_of(n_classes))
    y, m = rng.permutation(np.arange(n_rows) % n_classes), COLUMNS[kind]
    if kind == DENSE:
        centres = rng.standard_normal((n_classes, m), dtype=np.float32)
        return 0.3 * centres[y] + rng.standard_normal((n_rows, m), dtype=np.float32), y
    class_words = y[:, None] * CLASS_WORDS + rng.integers(0, CLASS_WORDS, (n_rows, WORDS))
    ids = np.where(rng.random((n_rows, WORDS)) < 0.5, class_words, rng.integers(0, m, (n_rows, WORDS)))
    at = np.repeat(np.arange(n_rows), WORDS), ids.ravel()
    return sp.csr_array((np.ones(n_rows * WORDS, dtype=np.float32), at), shape=(n_rows, m)), y


def seed_of(n_classes: int) -> list[int]:
    return [n_classes, 0]


def gbun_settings(K: int, hessian: str = "shared") -> dict[str, Any]:
    return {"n_neurons": K, "objective": "softmax", "init": "constant", "hessian": hessian}


def depth(K: int) -> int:
    """Depth of XGBoost's trees: at most K leaves, as LightGBM's have."""
    return K.bit_length() - 1


def compare(kind: str, n_rows: int, n_classes: int, K: int, threads: int, sweeps: int) -> dict[str, Any]:
    """Seconds of rounds of all learners, taking turns."""
    source = Source(kind, partial(make_rows, kind, n_rows, n_classes))
    times = take_turns(make_starters(source, K, threads), sweeps)
    medians = {f"{name} s": found.median for name, found in times.items()}
    return {**medians, "learners": {name: found.row() for name, found in times.items()}}


def make_starters(source: Source, K: int, threads: int) -> dict[str, Callable[[], Worker]]:
    """All with the same limits of memory and time."""
    models = {
        OURS: (peers.gbun, gbun_settings(K)),
        PER_CLASS: (peers.gbun, gbun_settings(K, "per_class")),
        LIGHTGBM: (peers.lightgbm, K),
        XGBOOST: (peers.xgboost, depth(K)),
    }
    return {
        name: partial(Worker, build, source, model, threads, limits=PEERS) for name, (build, model) in models.items()
    }


def take_turns(
    starters: dict[str, Callable[[], Worker]], sweeps: int, most_seconds: float = MOST_SECONDS
) -> dict[str, Times]:
    """Rounds of each, in turn. A learner whose first round took longer than `most_seconds` has only that one."""
    with start_all(starters) as (workers, failed):
        first = {name: worker.facts["first round"] for name, worker in workers.items()}
        quick = {name: workers[name].unit("round") for name in workers if first[name] <= most_seconds}
        times = interleave(quick, sweeps, most_seconds)
    times |= {name: Times([first[name]], "its first round") for name in workers if name not in quick}
    times |= {name: Times([], note) for name, note in failed.items()}
    return {name: times[name] for name in starters}


def count_bytes(n_classes: int, n_rows: int, K: int, n_rounds: int) -> dict[str, Any]:
    """Bytes that workers sent a round, on average and by the one that sent most."""
    from gbun.distributed import launch

    sent = np.array(launch(_train_worker, WORKERS, (n_rows, n_classes, K, n_rounds))[0])
    return {"bytes": float(sent.mean()), "most": float(sent.mean(axis=1).max()), "rounds": n_rounds}


def _train_worker(n_rows: int, n_classes: int, K: int, n_rounds: int) -> list[list[int]]:
    """Train on one worker's rows; bytes of all workers and rounds, without those before the first."""
    import torch.distributed as dist

    from gbun.distributed import TrafficReport, train

    X, y = make_rows(DENSE, n_rows, n_classes)
    shard, report = slice(dist.get_rank(), None, WORKERS), TrafficReport()
    train(gbun_settings(K), (X[shard], y[shard]), n_rounds, task="classification", report=report)
    return [[int(number) for number in row] for row in report.sent[:, 1:]]


def bytes_by_formula(n_classes: int, K: int) -> dict[str, int]:
    """Bytes of a round's histograms that a worker of two sends on the dense columns, a tree for each class.

    A histogram has sums of gradients and Hessians, 16 bytes, for each bin of each column. With siblings by subtraction
    a tree of L leaves needs L of them. LightGBM scatters sums (half of them are sent); XGBoost's are known to all
    afterwards (a ring sends each once). The paper's form of gbun sends a Gram matrix for each class, in float32.
    """
    histograms = n_classes * COLUMNS[DENSE] * 16
    return {
        PER_CLASS: 4 * (n_classes * (K * (K + 1) // 2 + K) + 2 * K),
        LIGHTGBM: histograms * K * 255 // 2,
        XGBOOST: histograms * 2 ** (depth(K) - 1) * 256,
    }


def tables(findings: Sequence[Finding]) -> list[Row]:
    """Seconds, bytes, and how both grow."""
    rows = [_bytes_row(finding) if "rounds" in finding.settings else _seconds_row(finding) for finding in findings]
    return sorted(rows, key=lambda row: row["table"], reverse=True) + growth(rows)


def _seconds_row(finding: Finding) -> Row:
    at, found = finding.settings, finding.found
    seconds = {name: found.get(f"{name} s") for name in LEARNERS}
    notes = [f"{name}: {row['note']}" for name, row in found.get("learners", {}).items() if row["note"]]
    row = {"table": SECONDS.format(at["kind"], at["K"]), "classes": at["n_classes"], **seconds}
    row |= {f"{name} / gbun": ratio(seconds[name], seconds[OURS]) for name in (LIGHTGBM, XGBOOST)}
    return {**row, "note": finding.failed or "; ".join(notes)}


def _bytes_row(finding: Finding) -> Row:
    at, found = finding.settings, finding.found
    row = {"table": BYTES.format(at["K"]), "classes": at["classes"], OURS: found.get("bytes")}
    row["most of a worker"] = found.get("most")
    for name, value in bytes_by_formula(at["classes"], at["K"]).items():
        # Trees may have fewer leaves than they are allowed.
        row[f"{name}, {'by formula' if name == PER_CLASS else 'at most, by formula'}"] = value
    return {**row, "note": finding.failed}


def growth(rows: Sequence[Row]) -> list[Row]:
    """Of each table and learner, where both ends are known."""
    found: list[Row] = []
    for title in sorted({row["table"] for row in rows}, reverse=True):
        series = sorted((row for row in rows if row["table"] == title), key=lambda row: row["classes"])
        first, last = series[0], series[-1]
        if first is last:
            continue
        grown = {key.split(",")[0]: ratio(last[key], first[key]) for key in first if key.split(",")[0] in LEARNERS}
        classes = {"fewest": first["classes"], "most": last["classes"]}
        found.append({"table": GROWTH, "of": title.removeprefix("classes: "), **classes, **grown})
    return found


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    rows = [row for row in tables(findings) if "classes" in row]
    titles = dict.fromkeys(row["table"] for row in rows)
    caption = "Seconds and bytes of a round against the number of classes; dashed lines are by formula."
    panels = [partial(_panel, [row for row in rows if row["table"] == title]) for title in titles]
    return draw_panels(panels, folder / "classes.png", caption, 3.0)


def _panel(rows: Sequence[Row], ax: Any) -> None:
    for key in (key for key in rows[0] if key.split(",")[0] in LEARNERS):
        style = "--" if key.endswith("by formula") else "o-"
        plot_line(ax, [(row["classes"], row[key]) for row in rows], style, COLOURS[key.split(",")[0]], key)
    ax.set(xscale="log", yscale="log", xlabel="classes")
    ax.set_title(rows[0]["table"].removeprefix("classes: "))


EXPERIMENT = Experiment("classes", "What classes cost", TEXT, cells, tables, draw)

if __name__ == "__main__":
    main(EXPERIMENT)
