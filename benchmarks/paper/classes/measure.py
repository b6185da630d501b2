"""What is measured of classes: rows with any number of them, seconds of rounds, bytes that workers send."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.speed import learners
from benchmarks.speed.children import PEERS, Worker, together
from benchmarks.speed.data import Source
from benchmarks.speed.timing import Times, interleave

DENSE, SPARSE = "dense", "sparse"
COLUMNS = {DENSE: 100, SPARSE: 20_000}
WORDS, OWN_WORDS = 20, 20  # in a sparse row; that a class has, of which half of a row's are
MOST_SECONDS = 60.0
OURS, PER_CLASS, LIGHTGBM, XGBOOST = "gbun", "gbun as the paper's", "LightGBM", "XGBoost"
LEARNERS = (OURS, PER_CLASS, LIGHTGBM, XGBOOST)
WORKERS = 2  # whose bytes are counted


def rows_of(kind: str, n_rows: int, n_classes: int) -> tuple[Any, Any]:
    """Dense columns about a centre for each class, or rows of words half of which are their class's."""
    rng = np.random.default_rng(seed_of(n_classes))
    y, m = rng.permutation(np.arange(n_rows) % n_classes), COLUMNS[kind]
    if kind == DENSE:
        centres = rng.standard_normal((n_classes, m), dtype=np.float32)
        return 0.3 * centres[y] + rng.standard_normal((n_rows, m), dtype=np.float32), y
    own = y[:, None] * OWN_WORDS + rng.integers(0, OWN_WORDS, (n_rows, WORDS))
    ids = np.where(rng.random((n_rows, WORDS)) < 0.5, own, rng.integers(0, m, (n_rows, WORDS)))
    at = np.repeat(np.arange(n_rows), WORDS), ids.ravel()
    return sp.csr_array((np.ones(n_rows * WORDS, dtype=np.float32), at), shape=(n_rows, m)), y


def seed_of(n_classes: int) -> list[int]:
    return [n_classes, 0]


def settings(K: int, hessian: str = "shared") -> dict[str, Any]:
    return {"n_neurons": K, "objective": "softmax", "init": "constant", "hessian": hessian}


def depth(K: int) -> int:
    """Of XGBoost's trees: at most K leaves, as LightGBM's have.

    >>> depth(64)
    6
    """
    return K.bit_length() - 1


def compared(kind: str, n_rows: int, n_classes: int, K: int, threads: int, sweeps: int) -> dict[str, Any]:
    """Seconds of rounds of all learners, taking turns."""
    source = Source(kind, partial(rows_of, kind, n_rows, n_classes))
    times = taking_turns(starters(source, K, threads), sweeps)
    medians = {f"{name} s": found.median for name, found in times.items()}
    return {**medians, "learners": {name: found.row() for name, found in times.items()}}


def starters(source: Source, K: int, threads: int) -> dict[str, Callable[[], Worker]]:
    """All with the same limits of memory and time."""
    return {
        OURS: partial(Worker, learners.gbun, source, settings(K), threads, limits=PEERS),
        PER_CLASS: partial(Worker, learners.gbun, source, settings(K, "per_class"), threads, limits=PEERS),
        LIGHTGBM: partial(Worker, learners.lightgbm, source, K, threads, limits=PEERS),
        XGBOOST: partial(Worker, learners.xgboost, source, depth(K), threads, limits=PEERS),
    }


def taking_turns(
    started: dict[str, Callable[[], Worker]], sweeps: int, most_seconds: float = MOST_SECONDS
) -> dict[str, Times]:
    """Rounds of each, in turn. Of who took longer than `most_seconds` for its first that one is all there is."""
    with together(started) as (workers, failed):
        first = {name: worker.facts["first round"] for name, worker in workers.items()}
        quick = {name: workers[name].unit("round") for name in workers if first[name] <= most_seconds}
        times = interleave(quick, sweeps, most_seconds)
    times |= {name: Times([first[name]], "its first round") for name in workers if name not in quick}
    times |= {name: Times([], note) for name, note in failed.items()}
    return {name: times[name] for name in started}


def counted(n_classes: int, n_rows: int, K: int, n_rounds: int) -> dict[str, Any]:
    """Bytes that workers sent a round, on average and by the one that sent most."""
    from gbun.distributed import launch

    sent = np.array(launch(_trained, WORKERS, (n_rows, n_classes, K, n_rounds))[0])
    return {"bytes": float(sent.mean()), "most": float(sent.mean(axis=1).max()), "rounds": n_rounds}


def _trained(n_rows: int, n_classes: int, K: int, n_rounds: int) -> list[list[int]]:
    """What one worker does; bytes of all workers and rounds, without those before the first."""
    import torch.distributed as dist

    from gbun.distributed import Report, train

    X, y = rows_of(DENSE, n_rows, n_classes)
    own, report = slice(dist.get_rank(), None, WORKERS), Report()
    train(settings(K), (X[own], y[own]), n_rounds, task="classification", report=report)
    return [[int(number) for number in row] for row in report.sent[:, 1:]]


def by_formula(n_classes: int, K: int) -> dict[str, int]:
    """Bytes a worker of two sends of a round's histograms on the dense columns, a tree for each class.

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
