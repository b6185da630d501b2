"""The data sets, how each is split, what it is judged by, and which settings are tried on its validation rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

SPLIT_SEED, VALIDATION_SEED = 0, 1


@dataclass(frozen=True)
class Problem:
    """`goal` is the test score the project set itself; `settings` are gbun's candidates, tried in turn.

    Where there is one candidate only, nothing is chosen: it is trained for its number of rounds.
    """

    name: str
    load: Callable[[Path], tuple[Any, Any, Any, Any]]
    metric: str
    goal: str
    settings: list[dict[str, Any]]
    peers: tuple[str, ...] = ("lightgbm", "xgboost")
    patience: int = 30


@dataclass(frozen=True)
class Split:
    """Training rows divided into those that fit and those that choose, and the test rows that judge."""

    X_fit: Any
    y_fit: Any
    X_valid: Any
    y_valid: Any
    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any


def split(problem: Problem, folder: Path) -> Split:
    X, y, X_test, y_test = problem.load(folder)
    X_fit, X_valid, y_fit, y_valid = train_test_split(X, y, test_size=0.2, random_state=VALIDATION_SEED, stratify=y)
    return Split(X_fit, y_fit, X_valid, y_valid, X, y, X_test, y_test)


def letter(folder: Path) -> tuple[Any, Any, Any, Any]:
    """The paper's rows: the first 10500 and the last 5000 of 20000."""
    data = np.load(folder / "letter" / "letter_libsvm_order.npz")
    return data["X_train"][:10500], data["y_train"][:10500], data["X_test"], data["y_test"]


def aloi(folder: Path) -> tuple[Any, Any, Any, Any]:
    data = np.load(folder / "aloi" / "aloi_108000x131.npz")
    order = np.random.default_rng(SPLIT_SEED).permutation(108000)
    X, y = data["X"].astype(np.float32), data["y"].astype(np.int64)
    train, test = order[:75600], order[75600:]
    return X[train], y[train], X[test], y[test]


def news20_binary(folder: Path) -> tuple[Any, Any, Any, Any]:
    X, y = sp.load_npz(folder / "news20_binary" / "X.npz"), np.load(folder / "news20_binary" / "y.npz")["y"]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=SPLIT_SEED, stratify=y)
    return X_train, y_train, X_test, y_test


def given_split(name: str) -> Callable[[Path], tuple[Any, Any, Any, Any]]:
    def load(folder: Path) -> tuple[Any, Any, Any, Any]:
        y = np.load(folder / name / "y.npz")
        X_train, X_test = (sp.load_npz(folder / name / f"X_{part}.npz") for part in ("train", "test"))
        return X_train, y["y_train"], X_test, y["y_test"]

    return load


def news20_multi(folder: Path) -> tuple[Any, Any, Any, Any]:
    """log(1 + count), rows of length 1; the same for every learner."""
    X_train, y_train, X_test, y_test = given_split("news20_multi")(folder)
    return normalize(X_train.log1p()), y_train, normalize(X_test.log1p()), y_test


FAST = {"n_neurons": 256, "learning_rate": 0.3, "reg_lambda": 1e-3}
LETTER = {**FAST, "n_estimators": 300, "temperature": 4.0, "group_size": 16, "density": 0.3}

PROBLEMS = [
    Problem(
        "letter",
        letter,
        "accuracy",
        ">= .965",
        [
            {**LETTER, "learning_rate": 0.3},
            {**LETTER, "learning_rate": 0.15},
            {**LETTER, "learning_rate": 0.15, "n_neurons": 512},
            {**LETTER, "learning_rate": 0.15, "temperature": 3.0, "group_size": 256, "density": 1.0, "scale": "none"},
        ],
        patience=100,
    ),
    Problem(
        "news20_multi",
        news20_multi,
        "accuracy",
        ">= .83",
        [
            {**FAST, "n_estimators": 120, "n_neurons": 1024, "temperature": 0.25},
            {**FAST, "n_estimators": 200, "n_neurons": 512, "temperature": 0.25},
        ],
    ),
    Problem(
        "news20_binary",
        news20_binary,
        "auc",
        ">= .992",
        [{"n_estimators": 300, "n_neurons": 512, "temperature": 0.25, "learning_rate": 1.0, "reg_lambda": 0.1}],
        peers=(),
    ),
    Problem(
        "rcv1_binary",
        given_split("rcv1_binary"),
        "auc",
        ">= .993",
        [
            {**FAST, "n_estimators": 300, "n_neurons": 256, "temperature": 1.0},
            {**FAST, "n_estimators": 300, "n_neurons": 512, "temperature": 0.5},
        ],
    ),
    Problem(
        "a9a",
        given_split("a9a"),
        "auc",
        "LightGBM - .003",
        [
            {"n_estimators": 300, "n_neurons": 64, "reg_lambda": 1e-3},
            {"n_estimators": 300, "n_neurons": 256, "learning_rate": 0.05},
            {
                "n_estimators": 300,
                "n_neurons": 64,
                "temperature": 2.0,
                "density": 0.3,
                "group_size": 8,
                "reg_lambda": 1e-3,
            },
        ],
    ),
    Problem(
        "aloi",
        aloi,
        "accuracy",
        ">= .96",
        [{**FAST, "n_estimators": 120, "temperature": 2.0, "group_size": 256}],
        peers=(),
    ),
]
