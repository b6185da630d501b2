"""A booster tuned: an Optuna study of so many seconds of the processor, chosen on held-out rows."""

from __future__ import annotations

from time import process_time
from typing import Any

from benchmarks.accuracy.tables.boosters import TUNABLE, Settings, loss
from benchmarks.accuracy.tables.sets import Rows
from benchmarks.internals import choose_n_leaves
from benchmarks.paper.accuracy.spaces import LOG, suggest_in

RANDOM_TRIALS = 6  # before the sampler draws on what it has seen
SPACES: dict[str, dict[str, Any]] = {
    "gbun": {
        "learner": ["mixed", "tree", "network"],
        "learning_rate": (0.02, 0.3, LOG),
        "n_leaves": (4, 255, LOG),
        "min_leaf_rows": (1, 100, LOG),
        "n_projections": (0, 64, {}),
        "reg_lambda": (1e-4, 1.0, LOG),
        "temperature": (0.5, 8.0, LOG),
    },
    "LightGBM": {
        "learning_rate": (0.02, 0.3, LOG),
        "num_leaves": (4, 255, LOG),
        "min_child_samples": (1, 100, LOG),
        "subsample": (0.4, 1.0, {}),
        "colsample_bytree": (0.3, 1.0, {}),
        "reg_lambda": (1e-3, 100.0, LOG),
    },
    "XGBoost": {
        "learning_rate": (0.02, 0.3, LOG),
        "max_depth": (2, 12, {}),
        "min_child_weight": (0.01, 50.0, LOG),
        "subsample": (0.4, 1.0, {}),
        "colsample_bytree": (0.3, 1.0, {}),
        "reg_lambda": (0.01, 100.0, LOG),
    },
    "CatBoost": {
        "learning_rate": (0.02, 0.3, LOG),
        "depth": (2, 10, {}),
        "l2_leaf_reg": (0.1, 100.0, LOG),
        "random_strength": (0.1, 10.0, LOG),
        "rsm": (0.3, 1.0, {}),
    },
}
"""(low, high, options) by name, or a list of choices."""

UNUSED = {"tree": {"temperature"}, "network": {"n_leaves", "min_leaf_rows", "n_projections"}, "mixed": set[str]()}
"""Parameters that a learner of gbun does not have."""

FIXED: dict[str, Settings] = {"LightGBM": {"subsample_freq": 1}, "CatBoost": {"boosting_type": "Plain"}}
STARTS: dict[str, Settings] = {  # tuned defaults; what is not named by them is the library's
    "LightGBM": dict(zip(SPACES["LightGBM"], (0.04, 50, 40, 0.75, 1.0, 1e-3), strict=True)),
    "XGBoost": dict(zip(SPACES["XGBoost"], (0.08, 6, 1.0, 0.65, 1.0, 1.0), strict=True)),
    "CatBoost": dict(zip(SPACES["CatBoost"], (0.08, 7, 3.0, 1.0, 1.0), strict=True)),
}


def start_of(learner: str, rows: Rows) -> Settings:
    """The point of the first trial. gbun's is next to its defaults, which the first trial then has exactly."""
    if learner != "gbun":
        return STARTS[learner]
    n_leaves = choose_n_leaves(len(rows.y), rows.n_classes if rows.n_classes > 2 else 1)
    return dict(zip(SPACES["gbun"], ("mixed", 0.1, n_leaves, 5, 24, 0.01, 2.0), strict=True))


def settings_of_gbun(point: Settings) -> Settings:
    """
    >>> settings_of_gbun({"learner": "tree", "n_leaves": 8, "temperature": 2.0})
    {'learner': 'tree', 'n_leaves': 8}
    """
    return {name: value for name, value in point.items() if name not in UNUSED[point["learner"]]}


def tune(learner: str, rows: Rows, seconds: float) -> dict[str, Any]:
    """The loss on test rows of the model that is best on the held-out rows, and how it was found.

    A round that runs may end when the time is up, so `seconds` may be a little more.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=rows.seed, n_startup_trials=RANDOM_TRIALS))
    study.enqueue_trial(start_of(learner, rows))
    best: dict[str, Any] = {"validation": float("inf")}
    n_trials, began = 0, process_time()

    def late() -> bool:
        return process_time() - began >= seconds

    while n_trials == 0 or not late():
        trial = study.ask()
        settings = suggest_in(trial, SPACES[learner])
        if learner == "gbun":
            settings = settings_of_gbun(settings) if n_trials else {}
        model = TUNABLE[learner](rows, {**FIXED.get(learner, {}), **settings}, late)
        value = loss(model, rows.X_held, rows.y_held, rows.regression)
        study.tell(trial, value)
        n_trials += 1
        if value < best["validation"]:
            best = {"validation": value, "settings": settings, "model": model}
    spent = process_time() - began
    value = loss(best.pop("model"), rows.X_test, rows.y_test, rows.regression)
    return {"loss": value, "seconds": spent, "trials": n_trials, **best}
