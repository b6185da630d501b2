"""The arithmetic of a round. `Kernels`, on devices `BatchedKernels`, are the doors; what is behind is replaceable."""

from gbun.kernels.batched import BatchedKernels, BatchedTrainingKernels
from gbun.kernels.device_plan import DevicePlan, TooLittle, make_device_plan, place
from gbun.kernels.dispatch import Kernels, Step, TrainingKernels
from gbun.kernels.plan import Plan, make_plan

__all__ = [
    "BatchedKernels",
    "BatchedTrainingKernels",
    "DevicePlan",
    "Kernels",
    "Plan",
    "Step",
    "TooLittle",
    "TrainingKernels",
    "make_device_plan",
    "make_plan",
    "place",
]
