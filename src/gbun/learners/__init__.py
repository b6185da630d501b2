"""Base learners: the softmax network, and the interface by which others plug in."""

from gbun.dtypes import Reduce
from gbun.learners.base import (
    AnyLearner,
    Arrays,
    DataIndependentLearner,
    FittedRound,
    Learner,
    LearnerRows,
    Partition,
    RoundFitter,
    RowTotals,
    Step,
    StepRun,
    check_learner,
    group_steps,
    learner_from,
    register_learner,
)
from gbun.learners.mixed import MixedFitter, MixedLearner
from gbun.learners.network import NetworkLearner, NetworkPartition
from gbun.learners.tree import TreeLearner
from gbun.learners.tree_partition import TreePartition

__all__ = [
    "AnyLearner",
    "Arrays",
    "DataIndependentLearner",
    "FittedRound",
    "Learner",
    "LearnerRows",
    "MixedFitter",
    "MixedLearner",
    "NetworkLearner",
    "NetworkPartition",
    "Partition",
    "Reduce",
    "RoundFitter",
    "RowTotals",
    "Step",
    "StepRun",
    "TreeLearner",
    "TreePartition",
    "check_learner",
    "group_steps",
    "learner_from",
    "register_learner",
]  # fmt: skip
