"""Base learners: the softmax network, and the interface by which others plug in."""

from gbun.learners.base import (
    AnyLearner,
    Arrays,
    DataIndependentLearner,
    Learner,
    LearnerRows,
    Partition,
    Reduce,
    RowTotals,
    Step,
    check_learner,
    learner_from,
    register_learner,
)
from gbun.learners.network import NetworkLearner, NetworkPartition

__all__ = [
    "AnyLearner", "Arrays", "DataIndependentLearner", "Learner", "LearnerRows", "NetworkLearner", "NetworkPartition",
    "Partition", "Reduce", "RowTotals", "Step", "check_learner", "learner_from", "register_learner",
]  # fmt: skip
