"""What a long-lived process does with gbun: small jobs, each of another kind. They repeat with the same few seeds."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import dump_svmlight_file

import gbun
from gbun.callbacks import Callback, Checkpoint
from gbun.collectives.threads import in_threads
from gbun.data.files import read_table
from tests import worker_jobs

N = 2000


@dataclass
class Turn:
    """The circumstances of a cycle, and the count of what was done in it."""

    seed: int
    n_jobs: int
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    lock: Any = field(default_factory=Lock)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def train(self, data: Any, rounds: int | None = 4, *, params: Any = (), **options: Any) -> gbun.Model:
        self.count("trainings")
        params = {"objective": "squared_error", "n_neurons": 32, "n_jobs": self.n_jobs, **dict(params)}
        return gbun.train(params, data, rounds, **options)

    def fit(self, estimator: Any, X: Any, y: Any, **options: Any) -> Any:
        self.count("trainings")
        return estimator.set_params(n_jobs=self.n_jobs).fit(X, y, **options)

    def scores(self, model: Any, X: Any, **options: Any) -> np.ndarray:
        self.count("predictions")
        return model.decision_function(X, **options)

    def dense(self, kind: str = "dense", n: int = N) -> tuple[Any, Any]:
        return worker_jobs.rows(kind, n, self.seed)


def predict_dense_rows_singly_and_in_batches(turn: Turn) -> np.ndarray:
    X, y = turn.dense("binary", 30_000)
    model = turn.fit(gbun.GBUNClassifier(n_estimators=6, n_neurons=64), X, y)
    all_at_once = turn.scores(model, X)
    batches = [X[i : i + 2999] for i in range(0, len(X), 2999)] + [X[i : i + 1] for i in range(20)]
    scores = np.concatenate([turn.scores(model, batch) for batch in batches])
    np.testing.assert_array_equal(scores, np.concatenate([all_at_once, all_at_once[:20]]))
    return all_at_once


def choose_everything_in_a_trial(turn: Turn) -> np.ndarray:
    X, y = turn.dense("sparse", 500)
    return turn.scores(turn.fit(gbun.GBUNClassifier(), X, y), X)


def read_frames(turn: Turn) -> np.ndarray:
    X, y = turn.dense("classes")
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"]).assign(city=np.array(["Rome", "Paris", "Bonn"])[y % 3])
    model = turn.fit(gbun.GBUNClassifier(n_estimators=4, n_neurons=16), frame, y)
    other = turn.fit(gbun.GBUNClassifier(n_estimators=4, n_neurons=16), pl.from_pandas(frame), y)
    return np.stack([turn.scores(model, frame), turn.scores(other, pl.from_pandas(frame))])


def read_names_and_tokens(turn: Turn) -> np.ndarray:
    X, y = turn.dense("binary", 400)
    people = [{"age": row[0], "city": f"city {i % 7}"} for i, row in enumerate(X)]
    words = [[f"w{int(9 * abs(v))}" for v in row] for row in X]
    models = [turn.fit(gbun.GBUNClassifier(n_estimators=4), kind, y) for kind in (people, words)]
    return np.stack([turn.scores(model, kind) for model, kind in zip(models, (people, words), strict=True)])


def stop_early_with_an_objective_of_ones_own(turn: Turn) -> np.ndarray:
    X, y = turn.dense()
    data = X[:1500], y[:1500]
    params = {"objective": lambda y, scores, weight: (weight * (scores - y), weight), "early_stopping_rounds": 2}
    model = turn.train(data, 30, params=params, evals={"valid": (X[1500:], y[1500:])}, task="regression")
    return turn.scores(model, X)


def leave_stages_halfway(turn: Turn) -> np.ndarray:
    X, y = turn.dense()
    model = turn.train((X, np.column_stack([y, -y])), params={"objective": "multi_squared_error"})
    stages = model.staged_decision_function(X, n_jobs=turn.n_jobs)
    next(stages)
    turn.count("predictions")
    return next(stages)


def write_and_read_files(turn: Turn) -> np.ndarray:
    X, y = turn.dense("sparse")
    dump_svmlight_file(X, y, str(turn.folder / "rows.svm"))
    table = read_table(turn.folder / "rows.svm")
    model = turn.train((table.X, table.y), params={"objective": "logistic"})
    model.save_model(turn.folder / "m.gbun")
    copies = gbun.load_model(turn.folder / "m.gbun"), pickle.loads(pickle.dumps(model))
    return np.stack([turn.scores(copy, table.X) for copy in copies])


def predict_and_train_in_threads(turn: Turn) -> np.ndarray:
    X, y = turn.dense(n=30_000)
    model = turn.train((X, y))
    with ThreadPoolExecutor(4) as pool:
        trained = pool.submit(turn.train, (X, -y))
        futures = [pool.submit(turn.scores, model, X, n_jobs=1 + i % 2) for i in range(6)]
        return np.stack([*(future.result() for future in futures), turn.scores(trained.result(), X)])


def cross_validate_and_plan(turn: Turn) -> np.ndarray:
    params = {"objective": "squared_error", "n_neurons": 16, "n_jobs": turn.n_jobs}
    folds = gbun.cv(params, turn.dense(), 3, nfold=3)
    turn.counts["trainings"] += 3
    str(gbun.plan(params, turn.dense()))
    return np.array(folds["valid rmse-mean"])


class Failure(Callback):
    """Raises an error in a round."""

    def __init__(self, error: BaseException, round_: int = 2) -> None:
        self.error, self.round = error, round_

    def before_round(self, training: Any, round_: int) -> None:
        if round_ == self.round:
            raise self.error


def continue_after_an_interrupt(turn: Turn) -> np.ndarray:
    X, y = turn.dense()
    path = turn.folder / "checkpoint.gbun"
    path.unlink(missing_ok=True)
    with pytest.raises(KeyboardInterrupt):
        turn.train((X, y), 6, callbacks=[Checkpoint(path, every=2), Failure(KeyboardInterrupt(), 3)])
    resumed = turn.train((X, y), 6, callbacks=[Checkpoint(path, every=2)], resume=path)
    longer = turn.train((X, y), 3, init_model=turn.train((X, y), 3))
    np.testing.assert_array_equal(turn.scores(longer, X), turn.scores(resumed, X))
    return turn.scores(resumed, X)


def raise_errors(turn: Turn) -> np.ndarray:
    X, y = turn.dense(n=20_000)
    infinite, path = X.copy(), turn.folder / "broken.gbun"
    infinite[5, 1] = np.inf

    def wrong(y: Any, scores: Any, weight: Any) -> Any:
        raise ArithmeticError("an objective that fails in every thread")

    attempts: list[tuple[type[BaseException], Callable[[], Any]]] = [
        (ValueError, lambda: turn.train((infinite, y))),
        (ValueError, lambda: turn.train((X, y[1:]))),
        (ValueError, lambda: turn.train((X, y), params={"n_neuron": 16})),
        (ValueError, lambda: turn.train((X, y), params={"n_neurons": 256, "memory_budget": "1kB"})),
        (ArithmeticError, lambda: turn.train((X, y), params={"objective": wrong}, task="regression")),
        (RuntimeError, lambda: turn.train((X, y), params={"verbose": 1}, callbacks=[Failure(RuntimeError("here"))])),
        (ValueError, lambda: turn.scores(turn.train((X, y)), X[:, 1:])),
        (ValueError, lambda: gbun.load_model(path)),
    ]
    path.write_bytes(turn.train((X, y)).to_bytes()[:-9])
    for error, attempt in attempts:
        with redirect_stderr(io.StringIO()), pytest.raises(error):
            attempt()
        turn.count("errors")
    return np.zeros(0)


def stay_within_a_memory_budget(turn: Turn) -> np.ndarray:
    X, y = turn.dense(n=20_000)
    short, plenty = (turn.train((X, y), params={"memory_budget": budget}) for budget in ("9MB", "1GB"))
    np.testing.assert_array_equal(turn.scores(short, X), turn.scores(plenty, X))
    return turn.scores(short, X)


def train_on_workers_in_threads(turn: Turn) -> np.ndarray:
    X, y = turn.dense("sparse")

    def work(collective: Any, **options: Any) -> np.ndarray:
        share = slice(collective.rank, None, 2)
        params = {"objective": "logistic"}
        return turn.scores(turn.train((X[share], y[share]), params=params, collective=collective, **options), X)

    def fail(collective: Any) -> np.ndarray:
        return work(collective, callbacks=[Failure(ArithmeticError("on one worker"))] if collective.rank == 0 else [])

    with pytest.raises((ArithmeticError, gbun.WorkerError)):
        in_threads(2, fail)
    turn.count("errors")
    return np.stack(in_threads(2, work))


def compute_with_torch(turn: Turn) -> np.ndarray:
    X, y = turn.dense()
    model = turn.train((X, y), params={"device": "torch:cpu"})
    loss = turn.train((X, y), params={"objective": gbun.TorchLoss(lambda y, s: (s - y) ** 2)}, task="regression")
    return np.stack([turn.scores(model, X, device="torch:cpu", n_jobs=turn.n_jobs), turn.scores(loss, X)])


def train_in_processes(turn: Turn) -> np.ndarray:
    scores, *_ = gbun.distributed.launch(worker_jobs.train, 2, ("binary", {}, 3))[0]
    turn.count("trainings")
    turn.count("predictions")
    with pytest.raises(gbun.WorkerError):
        gbun.distributed.launch(worker_jobs.train, 2, ("binary", {"n_neurons": -1}, 3))
    turn.count("errors")
    return scores


Job = Callable[[Turn], np.ndarray]
JOBS: tuple[Job, ...] = (
    predict_dense_rows_singly_and_in_batches,
    choose_everything_in_a_trial,
    read_frames,
    read_names_and_tokens,
    stop_early_with_an_objective_of_ones_own,
    leave_stages_halfway,
    write_and_read_files,
    predict_and_train_in_threads,
    cross_validate_and_plan,
    continue_after_an_interrupt,
    raise_errors,
    stay_within_a_memory_budget,
    train_on_workers_in_threads,
)
RARE_JOBS: tuple[Job, ...] = (compute_with_torch, train_in_processes)
