"""What each learner is told on hosts, and the packages it is: for the workers, and for the settings of a cell.

All have one thread on each host. XGBoost grows trees level by level, as it does by default: a level's histograms are
then summed at once. LightGBM shares histograms by rows (tree_learner=data), with its bundles of features and all else
as it comes.
"""

from __future__ import annotations

import math
from typing import Any

Parameters = dict[str, Any]
PACKAGES = {
    "GBUN": ("gbun", "numpy", "scipy", "numba", "torch"),
    "LightGBM": ("lightgbm",),
    "XGBoost": ("xgboost", "xgboost-cpu"),
}
MODULES = {"GBUN": "torch", "LightGBM": "lightgbm", "XGBoost": "xgboost"}  # to be imported, beside what everybody has
SEEDS = {"GBUN": 0, "LightGBM": "its defaults", "XGBoost": 0}  # nobody is told another than it comes with


def gbun(neurons: int) -> Parameters:
    return {"objective": "logistic", "n_neurons": neurons, "n_jobs": 1, "init": "constant", "scale": "none"}


def lightgbm(leaves: int, n_hosts: int) -> Parameters:
    alone = {"objective": "binary", "num_leaves": leaves, "num_threads": 1, "verbosity": 1}
    return alone if n_hosts == 1 else {**alone, "tree_learner": "data", "pre_partition": True}


def xgboost(leaves: int) -> Parameters:
    own = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1}
    return {**own, "grow_policy": "depthwise", "max_depth": levels(leaves)}


def levels(leaves: int) -> int:
    """Of a tree that has about so many leaves.

    >>> [levels(leaves) for leaves in (2, 64, 100, 1024)]
    [1, 6, 7, 10]
    """
    return max(1, round(math.log2(leaves)))


def of(learner: str, size: int, n_hosts: int, transport: str) -> Parameters:
    """`size` is K or the leaves of a tree."""
    if learner == "GBUN":
        return {**gbun(size), "transport": transport}
    return lightgbm(size, n_hosts) if learner == "LightGBM" else xgboost(size)
