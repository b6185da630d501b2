"""All contestants, in the order of the table."""

from __future__ import annotations

from benchmarks.paper.accuracy.base import Learner
from benchmarks.paper.accuracy.linear import Linear
from benchmarks.paper.accuracy.ours import Gbun
from benchmarks.paper.accuracy.trees import CatBoost, LightGBM, XGBoost

LEARNERS: dict[str, Learner] = {one.name: one for one in (Gbun(), XGBoost(), LightGBM(), CatBoost(), Linear())}
BOOSTERS = tuple(name for name, one in LEARNERS.items() if one.booster)
