"""What each learner tries when it is tuned, in this order; the first is its default.

A booster's number of rounds is not in the list: validation rows find it. Where the time is up early, the rest of a list
is not tried, so likelier gains come first.
"""

from __future__ import annotations

from typing import Any

CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "gbun": [
        {},
        {"n_neurons": 64},
        {"temperature": 2.0, "group_size": 16},
        {"temperature": 0.5},
        {"scale": "log+idf+unit"},
        {"n_neurons": 1024, "learning_rate": 0.2},
        {"linear_l2": 0.03},
        {"learning_rate": 0.05},
        {"init": "constant"},
    ],
    "lightgbm": [
        {},
        {"num_leaves": 63},
        {"learning_rate": 0.05},
        {"min_child_samples": 5},
        {"learning_rate": 0.05, "num_leaves": 127, "min_child_samples": 5},
        {"colsample_bytree": 0.3, "reg_lambda": 5.0},
        {"learning_rate": 0.2, "num_leaves": 15},
    ],
    "xgboost": [
        {},
        {"learning_rate": 0.1},
        {"max_depth": 10},
        {"learning_rate": 0.1, "max_depth": 10},
        {"colsample_bytree": 0.3, "reg_lambda": 5.0},
        {"learning_rate": 0.1, "max_depth": 4},
        {"learning_rate": 0.1, "grow_policy": "lossguide", "max_depth": 0, "max_leaves": 64},
    ],
    "catboost": [
        {},
        {"learning_rate": 0.1},
        {"learning_rate": 0.3},
        {"depth": 8},
        {"depth": 4, "learning_rate": 0.1},
        {"l2_leaf_reg": 10.0, "rsm": 0.3},
    ],
    "logistic": [
        {"scale": "raw", "C": 1.0},
        {"scale": "tfidf", "C": 10.0},
        {"scale": "raw", "C": 0.1},
        {"scale": "log", "C": 10.0},
        {"scale": "raw", "C": 10.0},
        {"scale": "tfidf", "C": 100.0},
        {"scale": "log", "C": 100.0},
        {"scale": "raw", "C": 0.01},
        {"scale": "tfidf", "C": 1.0},
        {"scale": "raw", "C": 100.0},
        {"scale": "log", "C": 1.0},
        {"scale": "tfidf", "C": 1000.0},
    ],
    "vowpal_wabbit": [
        {},
        {"scale": "tfidf", "passes": 10},
        {"passes": 1},
        {"scale": "log", "passes": 10},
        {"passes": 10},
        {"scale": "tfidf", "passes": 10, "learning_rate": 2.0},
        {"passes": 3, "learning_rate": 0.1},
        {"passes": 10, "l2": 1e-6},
        {"scale": "tfidf", "passes": 20, "l2": 1e-7},
        {"scale": "log", "passes": 20, "learning_rate": 2.0},
    ],
}
