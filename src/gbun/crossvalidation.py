"""Cross-validation: all folds boosted in step, so that their mean can decide when to stop."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from gbun.assembly import assemble
from gbun.boosting import Training, add_round
from gbun.callbacks import EarlyStopping
from gbun.config import Parameters, parameters_from
from gbun.data.ingest import ingest
from gbun.defaults import MOST_ROUNDS, PATIENCE
from gbun.kernels.threads import Threads, threads
from gbun.problem import Data, Problem, as_dataset, make_shard
from gbun.rounds import evaluate
from gbun.splits import deal
from gbun.targets import make_target
from gbun.training import with_rounds


def cv(
    params: Mapping[str, Any] | Parameters | None,
    data: Data,
    num_boost_round: int | None = None,
    *,
    nfold: int = 5,
    stratified: bool = True,
    seed: int = 0,
    task: str | None = None,
) -> dict[str, list[float]]:
    """Cross-validation, all folds in step: {"valid rmse-mean": [one a round], "valid rmse-std": [...]}.

    With `early_stopping_rounds` the mean of the last metric over the folds decides, and the lists end at the best
    round. Rows are dealt to folds at random, class by class when `stratified`.
    """
    parameters = with_rounds(parameters_from(params), num_boost_round)
    n_rounds, patience = parameters.n_estimators, parameters.early_stopping_rounds
    if n_rounds is None:
        n_rounds, patience = MOST_ROUNDS, patience or PATIENCE
    if n_rounds == 0:
        raise ValueError("cv compares rounds: n_estimators, or num_boost_round, must be at least 1, got 0")
    stopper = None if patience is None else EarlyStopping(patience)
    results: dict[str, list[float]] = {}
    with threads(parameters.n_jobs) as pool:
        runs = _folds(parameters, data, nfold, stratified, seed, task, pool)
        if stopper is not None:
            stopper.before_training(runs[0], n_rounds)
        for t in range(n_rounds):
            for run in runs:
                add_round(run, t)
            values = [evaluate(run)["valid"] for run in runs]
            for metric in values[0]:
                per_fold = [v[metric] for v in values]
                results.setdefault(f"valid {metric}-mean", []).append(float(np.mean(per_fold)))
                results.setdefault(f"valid {metric}-std", []).append(float(np.std(per_fold)))
            if stopper is not None:
                means = {metric: results[f"valid {metric}-mean"][-1] for metric in values[0]}
                if stopper.improves_no_more(means, t):
                    break
    if stopper is not None:
        results = {name: series[: stopper.best_round + 1] for name, series in results.items()}
    return results


def _folds(
    parameters: Parameters, data: Data, nfold: int, stratified: bool, seed: int, task: str | None, pool: Threads
) -> list[Training]:
    """A training for each fold, with the fold's own rows to watch."""
    dataset = as_dataset(data)
    features, schema = ingest(dataset.X, tensors=parameters.device != "cpu")
    target = make_target(parameters, dataset.y, task)
    shard = make_shard(features, target.y, dataset, target)
    if not isinstance(nfold, Integral) or not 2 <= nfold <= shard.n_rows:
        raise ValueError(f"nfold must be from 2 to the number of rows ({shard.n_rows}), got {nfold!r}")
    fold = deal(target.y, nfold, seed, stratified and target.task == "classification")
    parts = [(shard.take(np.flatnonzero(fold != k)), shard.take(np.flatnonzero(fold == k))) for k in range(nfold)]
    problems = [Problem(parameters, target, schema, train, {"valid": valid}) for train, valid in parts]
    return [assemble(problem, pool, side_by_side=nfold) for problem in problems]
