"""All contestants by name."""

from __future__ import annotations

from benchmarks.accuracy.wide.base import Learner
from benchmarks.accuracy.wide.linear import Logistic, LogisticTfidf
from benchmarks.accuracy.wide.ours import Gbun
from benchmarks.accuracy.wide.trees import CatBoost, LightGBM, XGBoost
from benchmarks.accuracy.wide.vowpal import VowpalWabbit

_ALL: tuple[Learner, ...] = (Gbun(), LightGBM(), XGBoost(), CatBoost(), Logistic(), LogisticTfidf(), VowpalWabbit())
LEARNERS = {learner.name: learner for learner in _ALL}
