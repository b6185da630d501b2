"""What the paper prints of the sets that are measured here: Table 1, and the time costs of its appendix.

The paper calls its metric of several classes mAP. By its values it is the macro-averaged precision of the predicted
class, and so it is named here. Its column of two classes is AUC.
"""

from __future__ import annotations

Figures = dict[str, float]
"""By learner."""

SCORES: dict[str, Figures] = {
    "letter": {"xgboost": 0.9517, "lightgbm": 0.9615, "gbun": 0.9618},
    "news20_binary": {"xgboost": 0.9885, "lightgbm": 0.9916, "gbun": 0.9938},
    "news20_multi": {"xgboost": 0.7919, "lightgbm": 0.8092, "gbun": 0.8505},
    "rcv1_binary": {"xgboost": 0.9921, "lightgbm": 0.9937, "gbun": 0.9932},
    "aloi": {"xgboost": 0.9507, "lightgbm": 0.9084, "gbun": 0.9651},
    "epsilon": {"xgboost": 0.9405, "lightgbm": 0.9451, "gbun": 0.9596},
}

# Mean and deviation of the seconds of a round, on 24 cores and a P40 graphics card.
SECONDS: dict[str, dict[str, tuple[float, float]]] = {
    "letter": {"xgboost": (0.04, 0.01), "lightgbm": (0.03, 0.02), "gbun": (0.55, 0.01)},
    "news20_binary": {"xgboost": (1.01, 0.05), "lightgbm": (0.55, 0.06), "gbun": (0.79, 0.16)},
    "news20_multi": {"xgboost": (1.01, 0.05), "lightgbm": (1.22, 0.01), "gbun": (0.59, 0.02)},
    "rcv1_binary": {"xgboost": (0.10, 0.01), "lightgbm": (0.12, 0.03), "gbun": (2.50, 0.02)},
    "aloi": {"xgboost": (20.36, 8.50), "lightgbm": (5.50, 0.51), "gbun": (2.73, 0.30)},
    "epsilon": {"xgboost": (9.01, 1.21), "lightgbm": (0.54, 0.06), "gbun": (0.84, 0.11)},
}

# The grid of its search, each of them with 300 rounds, of which the best on test rows was taken.
ROUNDS = 300
MODEL_SIZES = (32, 64, 128, 256, 512, 1024)
SHRINKAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # it says from 0 on, which learns nothing
PENALTIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
GRID = len(MODEL_SIZES) * len(SHRINKAGES) * len(PENALTIES)  # points
