"""What is tuned of each learner: the space of an Optuna study, and the point of it next to the learner's defaults."""

from __future__ import annotations

from typing import Any

from benchmarks.internals import DENSE_DENSITY, DENSE_GROUP, DENSE_TEMPERATURE, SPARSE_TEMPERATURE, choose_n_neurons
from benchmarks.peers.base import Learner, Settings, Task
from benchmarks.peers.learners import CatBoost, Gbun, LightGBM, XGBoost
from benchmarks.peers.linear import Linear

LEARNERS: dict[str, Learner] = {one.name: one for one in (Gbun(), XGBoost(), LightGBM(), CatBoost(), Linear())}
"""All contestants, in the order of the table."""
BOOSTERS = tuple(name for name, one in LEARNERS.items() if one.booster)

LOG = {"log": True}
SPACES: dict[str, dict[str, Any]] = {
    "gbun": {
        "groups": (1, 64, LOG),  # times 16: the number of neurons
        "learning_rate": (0.03, 1.0, LOG),
        "reg_lambda": (1e-4, 1.0, LOG),
        "temperature": (0.25, 8.0, LOG),
        "density": (0.03, 1.0, LOG),
    },
    "xgboost": {
        "max_depth": (2, 12, {}),
        "learning_rate": (0.02, 1.0, LOG),
        "reg_lambda": (0.01, 100.0, LOG),
        "min_child_weight": (0.01, 20.0, LOG),
        "colsample_bytree": (0.2, 1.0, {}),
    },
    # With its defaults it diverges where many classes are rare; min_child_weight is here for that.
    "lightgbm": {
        "num_leaves": (4, 512, LOG),
        "learning_rate": (0.01, 0.5, LOG),
        "reg_lambda": (1e-3, 100.0, LOG),
        "min_child_samples": (1, 100, LOG),
        "min_child_weight": (1e-3, 10.0, LOG),
        "colsample_bytree": (0.2, 1.0, {}),
    },
    "catboost": {
        "depth": (2, 10, {}),
        "learning_rate": (0.02, 1.0, LOG),
        "l2_leaf_reg": (0.1, 100.0, LOG),
        "random_strength": (0.1, 10.0, LOG),
        "rsm": (0.2, 1.0, {}),  # columns of a split, as colsample of the others
    },
    "linear": {"C": (1e-3, 1e3, LOG)},
}
DEFAULTS: dict[str, Settings] = {
    "xgboost": dict(zip(SPACES["xgboost"], (6, 0.3, 1.0, 1.0, 1.0), strict=True)),
    "lightgbm": dict(zip(SPACES["lightgbm"], (31, 0.1, 1e-3, 20, 1e-3, 1.0), strict=True)),
    "catboost": dict(zip(SPACES["catboost"], (6, 0.1, 3.0, 1.0, 1.0), strict=True)),
    "linear": {"C": 1.0},
}


def space_of(learner: str, sparse: bool, words: bool) -> dict[str, Any]:
    """(low, high, options) by name, or a list of choices."""
    space = dict(SPACES[learner])
    if learner == "linear" and sparse:
        space["scale"] = ["raw", "log", "tfidf"] if words else ["raw", "max_abs"]
    return space


def suggest(trial: Any, learner: str, task: Task) -> Settings:
    """Settings that an Optuna trial suggests."""
    settings = suggest_in(trial, space_of(learner, task.sparse, task.words))
    if "groups" in settings:
        settings = {"n_neurons": DENSE_GROUP * settings.pop("groups"), **settings}
    return settings


def suggest_in(trial: Any, space: dict[str, Any]) -> Settings:
    """A value of each name in a space."""
    settings: Settings = {}
    for name, values in space.items():
        if isinstance(values, list):
            settings[name] = trial.suggest_categorical(name, values)
        else:
            low, high, options = values
            draw = trial.suggest_int if isinstance(low, int) else trial.suggest_float
            settings[name] = draw(name, low, high, **options)
    return settings


def default_point(learner: str, task: Task) -> Settings:
    """The point of the space that is next to the learner's defaults."""
    if learner != "gbun":
        return {**DEFAULTS[learner], **({"scale": "raw"} if learner == "linear" and task.sparse else {})}
    return {
        "groups": choose_n_neurons(task.n_rows) // DENSE_GROUP,
        "learning_rate": 0.1,
        "reg_lambda": 0.01,
        "temperature": SPARSE_TEMPERATURE if task.sparse else DENSE_TEMPERATURE,
        "density": 1.0 if task.sparse else DENSE_DENSITY,
    }


def fixed_settings(learner: str, sparse: bool) -> Settings:
    """Settings of all trainings. LightGBM finds its own out on sparse rows, in seconds that it says can be spared."""
    if learner == "lightgbm":
        return {"force_row_wise": True} if sparse else {}
    return {"tree_method": "hist"} if learner == "xgboost" else {}
