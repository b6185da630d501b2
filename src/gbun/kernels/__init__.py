"""The arithmetic of a round, row chunk by row chunk. `Kernels` is the only door; everything below it is replaceable."""

from gbun.kernels.dispatch import Kernels, Step, TrainingKernels
from gbun.kernels.plan import Plan, make_plan

__all__ = ["Kernels", "Plan", "Step", "TrainingKernels", "make_plan"]
