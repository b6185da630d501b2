"""The arithmetic of a round: kernels for networks on the host and on devices, kernels for other learners, plans."""

from __future__ import annotations

from gbun.data.features import Features
from gbun.devices import Device
from gbun.dtypes import FloatArray
from gbun.kernels.costs import Workload
from gbun.kernels.device import DeviceKernels, DeviceTrainingKernels
from gbun.kernels.host import HostKernels, HostTrainingKernels
from gbun.kernels.interface import NetworkKernels, RowKernels
from gbun.kernels.placement import place
from gbun.kernels.plan import BudgetTooSmallError, Plan, make_plan
from gbun.kernels.threads import ThreadPool
from gbun.kernels.unfused import UnfusedKernels
from gbun.networks import Family

__all__ = [
    "BudgetTooSmallError",
    "Plan",
    "UnfusedKernels",
    "Workload",
    "make_plan",
    "network_kernels",
    "network_training_kernels",
]


def network_kernels(
    features: Features, family: Family, n_scores: int, threads: ThreadPool, device: Device, budget: int, form: str
) -> RowKernels:
    """Make the kernels of scaled rows that are predicted or evaluated.

    `budget` is how many bytes of a device the rows and their scores may take; `form` ("auto", "dense", "hashed") is how
    the host's kernels make weights.
    """
    if device.compiled:
        return HostKernels(features, family, n_scores, threads, form)
    placement = place(features, family.n_outputs, n_scores, budget, device)
    return DeviceKernels(features, family, n_scores, device, placement)


def network_training_kernels(
    features: Features, family: Family, plan: Plan, threads: ThreadPool, device: Device, weight: FloatArray
) -> NetworkKernels:
    """Make the kernels of scaled training rows with a plan for this device.

    `weight` (n, float64) weights the rows in the moments of outputs.
    """
    if device.compiled:
        return HostTrainingKernels(features, family, plan, threads, weight)
    return DeviceTrainingKernels(features, family, plan, device, weight)
