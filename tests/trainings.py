"""Trainings and models as tests look at them: states after some rounds, and all arrays of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.testing import assert_array_equal

from gbun.boosting import Training
from gbun.config import Parameters
from gbun.kernels.threads import ThreadPool, thread_pool
from gbun.model import Model
from gbun.preparation import prepare
from gbun.problem import Dataset, read_problem
from gbun.rounds import apply_update, compute_update


def prepare_training(parameters: Parameters, data: tuple[Any, ...], pool: ThreadPool, **options: Any) -> Training:
    """A training before its first round; options are those of `read_problem`."""
    return prepare(read_problem(parameters, Dataset(*data), options.pop("evals", {}), **options), pool)


def add_round(training: Training, t: int | None = None) -> None:
    """Add a round, by default the next; `t` is the round whose partition is drawn."""
    apply_update(training, compute_update(training, training.n_rounds if t is None else t))


def train_rounds(data: tuple[Any, ...], rounds: int, parameters: Parameters, **options: Any) -> Training:
    """The state of a training after some rounds."""
    with thread_pool(1) as pool:
        training = prepare_training(parameters, data, pool, **options)
        for _ in range(rounds):
            add_round(training)
    return training


def arrays_of(model: Model | Training) -> dict[str, Any]:
    """The start, the heads, and what the learner stores of its partitions."""
    ensemble = model.ensemble if isinstance(model, Model) else model.ensemble()
    heads = np.concatenate([*(step.head for step in ensemble.steps), np.zeros((0, ensemble.n_scores))])
    partitions = ensemble.learner.pack([step.partition for step in ensemble.steps])
    linear = {} if ensemble.linear is None else {"weights": ensemble.linear.weights}
    return {
        "start": ensemble.start.constant,
        "heads": heads,
        **linear,
        **partitions,
    }


def assert_same_model(a: Any, b: Any) -> None:
    """Both have the same bits."""
    first, second = (arrays_of(getattr(model, "model_", model)) for model in (a, b))
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert_array_equal(array, second[name], err_msg=name)


def assert_close_models(a: Any, b: Any, **tolerance: float) -> None:
    first, second = (arrays_of(getattr(model, "model_", model)) for model in (a, b))
    for name, array in first.items():
        np.testing.assert_allclose(array, second[name], err_msg=name, **tolerance)
