"""The paper's sets with tuned networks: what each is judged by, and the settings tried on its validation rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.sets import Split, aloi, given_split, letter, news20_binary, news20_multi
from benchmarks.internals import Solo
from gbun.metrics import get_metric


@dataclass(frozen=True)
class Problem:
    """`goal` is the test score the project set itself; `settings` are gbun's candidates, tried in turn.

    With one candidate only, nothing is chosen: it is trained for its number of rounds.
    """

    name: str
    load: Callable[[Path], Split]
    metric: str
    goal: str
    settings: list[dict[str, Any]]
    peers: tuple[str, ...] = ("lightgbm", "xgboost")
    patience: int = 30


def score(metric: str, y: Any, probabilities: Any) -> float:
    """A metric by its name, on class probabilities whose columns are the sorted labels."""
    codes = np.searchsorted(np.unique(y), y).astype(float)
    response = probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities
    return get_metric(metric).evaluate(codes, np.asarray(response, dtype=float), np.ones(len(y)), Solo())


PEER_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "lightgbm": [
        {"learning_rate": 0.1, "num_leaves": 31},
        {"learning_rate": 0.05, "num_leaves": 64},
        {"learning_rate": 0.1, "num_leaves": 128, "min_child_samples": 5},
    ],
    "xgboost": [
        {"learning_rate": 0.3, "max_depth": 6},
        {"learning_rate": 0.1, "max_depth": 6},
        {"learning_rate": 0.1, "max_depth": 10},
    ],
}
FAST = {"n_neurons": 256, "learning_rate": 0.3, "reg_lambda": 1e-3}
SLOW = {**FAST, "n_estimators": 300}
LETTER = {**SLOW, "temperature": 4.0, "group_size": 16, "density": 0.3, "learning_rate": 0.15}
LETTER_SETTINGS = [
    {**LETTER, "learning_rate": 0.3},
    LETTER,
    {**LETTER, "n_neurons": 512},
    {**LETTER, "temperature": 3.0, "group_size": 256, "density": 1.0, "scale": "none"},
]
NEWS_SETTINGS = [
    {**FAST, "n_estimators": 120, "n_neurons": 1024, "temperature": 0.25},
    {**FAST, "n_estimators": 200, "n_neurons": 512, "temperature": 0.25},
]
NEWS_BINARY = {"n_estimators": 300, "n_neurons": 512, "temperature": 0.25, "learning_rate": 1.0, "reg_lambda": 0.1}
RCV1_SETTINGS = [{**SLOW, "temperature": 1.0}, {**SLOW, "n_neurons": 512, "temperature": 0.5}]
SMALL = {"n_estimators": 300, "n_neurons": 64, "reg_lambda": 1e-3}
A9A_SETTINGS = [
    SMALL,
    {"n_estimators": 300, "n_neurons": 256, "learning_rate": 0.05},
    {**SMALL, "temperature": 2.0, "density": 0.3, "group_size": 8},
]
ALOI = {**FAST, "n_estimators": 120, "temperature": 2.0, "group_size": 256}
PROBLEMS = [
    Problem("letter", letter, "accuracy", ">= .965", LETTER_SETTINGS, patience=100),
    Problem("news20_multi", news20_multi, "accuracy", ">= .83", NEWS_SETTINGS),
    Problem("news20_binary", news20_binary, "auc", ">= .992", [NEWS_BINARY], peers=()),
    Problem("rcv1_binary", given_split("rcv1_binary"), "auc", ">= .993", RCV1_SETTINGS),
    Problem("a9a", given_split("a9a"), "auc", "LightGBM - .003", A9A_SETTINGS),
    Problem("aloi", aloi, "accuracy", ">= .96", [ALOI], peers=()),
]
