"""The paper's figures for the sets and hosts that are measured here."""

# Table 1. The paper calls its metric of several classes mAP; by its values it is the macro-averaged precision of the
# predicted class, and so it is named here. Two classes have AUC.
SCORES: dict[str, dict[str, float]] = {
    "letter": {"xgboost": 0.9517, "lightgbm": 0.9615, "gbun": 0.9618},
    "news20_binary": {"xgboost": 0.9885, "lightgbm": 0.9916, "gbun": 0.9938},
    "news20_multi": {"xgboost": 0.7919, "lightgbm": 0.8092, "gbun": 0.8505},
    "rcv1_binary": {"xgboost": 0.9921, "lightgbm": 0.9937, "gbun": 0.9932},
    "aloi": {"xgboost": 0.9507, "lightgbm": 0.9084, "gbun": 0.9651},
    "epsilon": {"xgboost": 0.9405, "lightgbm": 0.9451, "gbun": 0.9596},
}
TITLES = {"gbun": "GBUN", "xgboost": "XGB", "lightgbm": "LGB"}  # the paper's names

# The appendix: mean and deviation of the seconds of a round, on 24 cores and a P40 graphics card.
ROUND_SECONDS: dict[str, dict[str, tuple[float, float]]] = {
    "letter": {"xgboost": (0.04, 0.01), "lightgbm": (0.03, 0.02), "gbun": (0.55, 0.01)},
    "news20_binary": {"xgboost": (1.01, 0.05), "lightgbm": (0.55, 0.06), "gbun": (0.79, 0.16)},
    "news20_multi": {"xgboost": (1.01, 0.05), "lightgbm": (1.22, 0.01), "gbun": (0.59, 0.02)},
    "rcv1_binary": {"xgboost": (0.10, 0.01), "lightgbm": (0.12, 0.03), "gbun": (2.50, 0.02)},
    "aloi": {"xgboost": (20.36, 8.50), "lightgbm": (5.50, 0.51), "gbun": (2.73, 0.30)},
    "epsilon": {"xgboost": (9.01, 1.21), "lightgbm": (0.54, 0.06), "gbun": (0.84, 0.11)},
}

# The grid of its search, each point with 300 rounds, of which the best on test rows was taken.
ROUNDS = 300
MODEL_SIZES = (32, 64, 128, 256, 512, 1024)
SHRINKAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # the paper begins at 0, which learns nothing
PENALTIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
GRID = len(MODEL_SIZES) * len(SHRINKAGES) * len(PENALTIES)  # points

# Seconds of a round by the number of machines: KDD12.sub on 4 to 64, and all of KDD12 on 16 to 96.
_SUB = {
    (64, "XGBoost"): (2.09, 1.94, 1.71, 1.55, 1.47),
    (64, "LightGBM"): (1.27, 1.45, 1.96, 2.46, 2.67),
    (64, "GBUN"): (0.86, 0.49, 0.31, 0.21, 0.20),
    (1024, "XGBoost"): (7.50, 7.84, 11.63, 17.13, 24.98),
    (1024, "LightGBM"): (7.52, 15.59, 29.60, 35.40, 39.58),
    (1024, "GBUN"): (31.89, 16.19, 9.18, 5.62, 3.77),
}
_WHOLE = {64: (26.46, 15.97, 11.00, 8.25, 7.16, 6.38), 1024: (45.77, 30.77, 23.30, 18.89, 16.17, 14.29)}
SCALING_SECONDS = {
    ("KDD12.sub", size, learner, machines): seconds
    for (size, learner), row in _SUB.items()
    for machines, seconds in zip((4, 8, 16, 32, 64), row, strict=True)
} | {
    ("KDD12", size, "GBUN", machines): seconds
    for size, row in _WHOLE.items()
    for machines, seconds in zip((16, 32, 48, 64, 80, 96), row, strict=True)
}
KDD12_ALL_ROWS, KDD12_ALL_FEATURES = 149_639_105, 54_686_452

# Seconds of a round on 16 machines, KDD12.sub, by bandwidth.
HOSTS, BANDWIDTHS = 16, ("1GB", "100MB", "10MB", "1MB", "100KB")
_BANDWIDTH = {
    (64, "XGBoost"): (1.71, 8.28, 54.42, 559.67, 5778.38),
    (64, "LightGBM"): (1.96, 2.56, 2.98, 9.29, 114.70),
    (64, "GBUN"): (0.31, 0.29, 0.30, 0.37, 1.25),
    (1024, "XGBoost"): (11.63, 58.68, 195.09, 1820.2295, 25728.60),
    (1024, "LightGBM"): (29.61, 36.42, 46.90, 148.13, 1249.92),
    (1024, "GBUN"): (9.18, 9.27, 10.09, 17.19, 97.32),
}
BANDWIDTH_SECONDS = {
    ("KDD12.sub", HOSTS, size, learner, bandwidth): seconds
    for (size, learner), row in _BANDWIDTH.items()
    for bandwidth, seconds in zip(BANDWIDTHS, row, strict=True)
}
