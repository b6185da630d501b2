"""The paper's figures: seconds of a round by the number of machines."""

_SUB = {
    64: {
        "XGBoost": (2.09, 1.94, 1.71, 1.55, 1.47),
        "LightGBM": (1.27, 1.45, 1.96, 2.46, 2.67),
        "GBUN": (0.86, 0.49, 0.31, 0.21, 0.20),
    },
    1024: {
        "XGBoost": (7.50, 7.84, 11.63, 17.13, 24.98),
        "LightGBM": (7.52, 15.59, 29.60, 35.40, 39.58),
        "GBUN": (31.89, 16.19, 9.18, 5.62, 3.77),
    },
}
_WHOLE = {64: (26.46, 15.97, 11.00, 8.25, 7.16, 6.38), 1024: (45.77, 30.77, 23.30, 18.89, 16.17, 14.29)}
SECONDS = {
    ("KDD12.sub", size, learner, machines): seconds
    for size, learners in _SUB.items()
    for learner, row in learners.items()
    for machines, seconds in zip((4, 8, 16, 32, 64), row, strict=True)
} | {
    ("KDD12", size, "GBUN", machines): seconds
    for size, row in _WHOLE.items()
    for machines, seconds in zip((16, 32, 48, 64, 80, 96), row, strict=True)
}
KDD12_ALL_ROWS, KDD12_ALL_FEATURES = 149_639_105, 54_686_452
