"""Cross-validation: all folds are boosted round by round together, so that their mean can decide when to stop."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from gbun.boosting import Training
from gbun.callbacks import EarlyStopping
from gbun.config import Parameters, make_parameters
from gbun.defaults import MAX_ROUNDS, PATIENCE
from gbun.kernels.threads import ThreadPool, thread_pool
from gbun.learners import AnyLearner
from gbun.preparation import plan_training, prepare
from gbun.problem import Data, Problem, as_dataset, divide_rows, read_problem
from gbun.rounds import apply_update, compute_update, evaluate
from gbun.splits import assign_folds
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
    learner: AnyLearner | None = None,
) -> dict[str, list[float]]:
    """Cross-validate: boost all folds together, round by round, and evaluate each on its held-out rows.

    Parameters
    ----------
    params : dict, Parameters or None
        The names of `gbun.Parameters`. With `early_stopping_rounds`, the mean of the last metric over the folds
        decides.
    data : Dataset or tuple (X, y[, weight[, base_margin]])
    num_boost_round : int, optional
        Another name of n_estimators.
    nfold : int
    stratified : bool
        Deal the rows of each class to the folds separately.
    seed : int
        Of the random order in which rows are dealt to folds.
    task : {"classification", "regression"}, optional
        None lets the objective decide, and the type of y if the objective is "auto".
    learner : gbun.learners.Learner, optional
        What divides the rows of each round; None: softmax networks.

    Returns
    -------
    dict of list of float
        {"valid rmse-mean": [one for each round], "valid rmse-std": [...]}, up to the best round with early stopping.
    """
    parameters = with_rounds(make_parameters(params), num_boost_round)
    n_rounds, patience = parameters.n_estimators, parameters.early_stopping_rounds
    if n_rounds is None:
        n_rounds, patience = MAX_ROUNDS, patience or PATIENCE
    if n_rounds == 0:
        raise ValueError("cv compares rounds: n_estimators, or num_boost_round, must be at least 1, got 0")
    stopper = None if patience is None else EarlyStopping(patience)
    results: dict[str, list[float]] = {}
    with thread_pool(parameters.n_jobs) as pool:
        problem = read_problem(parameters, as_dataset(data), {}, task=task, learner=learner)
        runs = _folds(problem, nfold, stratified, seed, pool)
        if stopper is not None:
            stopper.before_training(runs[0], n_rounds)
        for t in range(n_rounds):
            for run in runs:
                apply_update(run, compute_update(run, t))
            values = [evaluate(run)["valid"] for run in runs]
            for metric in values[0]:
                per_fold = [v[metric] for v in values]
                results.setdefault(f"valid {metric}-mean", []).append(float(np.mean(per_fold)))
                results.setdefault(f"valid {metric}-std", []).append(float(np.std(per_fold)))
            if stopper is not None:
                means = {metric: results[f"valid {metric}-mean"][-1] for metric in values[0]}
                if stopper.update_and_check_patience(means, t):
                    break
    if stopper is not None:
        results = {name: series[: stopper.best_round + 1] for name, series in results.items()}
    return results


def _folds(problem: Problem, nfold: int, stratified: bool, seed: int, pool: ThreadPool) -> list[Training]:
    """Prepare a training for each fold, with the rows of the fold as evaluation set."""
    shard, y = problem.shard, problem.target.y
    if not isinstance(nfold, Integral) or not 2 <= nfold <= shard.n_rows:
        raise ValueError(f"nfold must be from 2 to the number of rows ({shard.n_rows}), got {nfold!r}")
    fold = assign_folds(y, nfold, seed, stratified and problem.target.task == "classification")
    plan_training(problem, pool.count, nfold, judged=False)  # refuses a budget before rows are copied
    parts = (divide_rows(shard, fold == k) for k in range(nfold))
    return [prepare(problem.with_rows(rows, {"valid": valid}), pool, n_in_step=nfold) for rows, valid in parts]
