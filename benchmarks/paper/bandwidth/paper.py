"""The paper's figures: seconds of a round on 16 machines, KDD12.sub, by bandwidth."""

HOSTS, DATA = 16, "KDD12.sub"
BANDWIDTHS = ("1GB", "100MB", "10MB", "1MB", "100KB")
_ROWS = {
    64: {
        "XGBoost": (1.71, 8.28, 54.42, 559.67, 5778.38),
        "LightGBM": (1.96, 2.56, 2.98, 9.29, 114.70),
        "GBUN": (0.31, 0.29, 0.30, 0.37, 1.25),
    },
    1024: {
        "XGBoost": (11.63, 58.68, 195.09, 1820.2295, 25728.60),
        "LightGBM": (29.61, 36.42, 46.90, 148.13, 1249.92),
        "GBUN": (9.18, 9.27, 10.09, 17.19, 97.32),
    },
}
SECONDS = {
    (size, learner, bandwidth): seconds
    for size, learners in _ROWS.items()
    for learner, row in learners.items()
    for bandwidth, seconds in zip(BANDWIDTHS, row, strict=True)
}


def seconds(data: str, hosts: int, size: int, learner: str, bandwidth: str) -> float | None:
    """Where the paper has measured the same."""
    return SECONDS.get((size, learner, bandwidth)) if (data, hosts) == (DATA, HOSTS) else None
