"""Prediction: a million rows at once, and one row at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from benchmarks.data import KDD12_FEATURES, KDD12_ROWS, Options, clicks
from benchmarks.peers.rounds import TRAINING_SHARE, predict_rows
from benchmarks.report import Row, bars
from benchmarks.timing import NONE, PEERS, Times, Worker, ratio, take_turns
from gbun import train
from gbun.datasets import make_clicks

SWEEPS = 5


def run(options: Options) -> list[Row]:
    return [*many_rows(options), *one_row(options)]


def many_rows(options: Options) -> list[Row]:
    source, rounds = clicks(options.rows(KDD12_ROWS)), options.pick(100, 10)
    starters = {}
    for learner, size in (("gbun", "K=64"), ("LightGBM", "64 leaves"), ("XGBoost", "depth 6")):
        limits = NONE if learner == "gbun" else PEERS
        start = partial(Worker, predict_rows, source, learner, rounds, options.threads, limits=limits)
        starters[f"{learner} {rounds} x {size}"] = start
    times = take_turns(starters, "predict", options.sweeps(SWEEPS))
    ours = next(iter(times.values())).median
    n = options.rows(KDD12_ROWS) * (TRAINING_SHARE - 1) // TRAINING_SHARE
    table = {"table": f"prediction: seconds for {n:,} rows"}
    return [
        {**table, "learner": name, **found.row(), "gbun's / this": ratio(ours, found.median)}
        for name, found in times.items()
    ]


def one_row(options: Options) -> list[Row]:
    """The first prediction of a fresh process, from its start on, and those after it; several processes."""
    K, rounds = options.pick((256, 300), (64, 30))
    X, y = make_clicks(20_000, KDD12_FEATURES)
    settings = {"objective": "logistic", "n_neurons": K, "n_jobs": options.threads}
    with tempfile.TemporaryDirectory() as folder:
        model, row = Path(folder) / "model.gbun", Path(folder) / "row.npz"
        train(settings, (X, y), rounds, task="classification").save_model(model)
        sp.save_npz(row, X[:1])
        command = [sys.executable, "-m", "benchmarks.speed.latency", str(model), str(row), str(options.threads)]
        runs = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(options.sweeps(5))
        ]
    table = f"prediction: one row, K = {K}, {rounds} rounds, seconds"
    return [{"table": table, "step": step, **Times([run[step] for run in runs]).row()} for step in runs[0]]


def draw(ax: Any, rows: list[Row]) -> None:
    known = [row for row in rows if "step" not in row and row.get("median") is not None]
    names, medians = [row["learner"] for row in known], [row["median"] for row in known]
    bars(ax, names, medians, [f"{m:.3g} s" for m in medians], names)
    later = next((row["median"] for row in rows if row.get("step") == "later predictions"), None)
    ax.set_title(known[0]["table"] + (f"; one row {1e3 * later:.2f} ms" if later else ""))
