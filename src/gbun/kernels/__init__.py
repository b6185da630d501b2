"""The arithmetic of a round: kernels for networks on the host and on devices, kernels for other learners, plans."""

from __future__ import annotations

from gbun.data.features import Features
from gbun.devices import Device
from gbun.dtypes import FloatArray
from gbun.kernels.costs import Workload
from gbun.kernels.device import DeviceKernels, DeviceTrainingKernels
from gbun.kernels.host import HostKernels, HostTrainingKernels
from gbun.kernels.interface import NetworkKernels, NormalEquations, RowKernels, TrainingKernels
from gbun.kernels.placement import place
from gbun.kernels.plan import BudgetTooSmallError, Plan, make_plan
from gbun.kernels.threads import ThreadPool
from gbun.kernels.unfused import UnfusedKernels
from gbun.networks import Family

__all__ = [
    "BudgetTooSmallError",
    "NetworkKernels",
    "NormalEquations",
    "Plan",
    "RowKernels",
    "TrainingKernels",
    "UnfusedKernels",
    "Workload",
    "make_plan",
    "network_kernels",
    "network_training_kernels",
]


def network_kernels(
    features: Features,
    family: Family,
    n_scores: int,
    threads: ThreadPool,
    device: Device,
    budget: int = 0,
    form: str = "auto",
) -> RowKernels:
    """Make the kernels of rows that are predicted or evaluated.

    Parameters
    ----------
    features : Features
        n scaled rows.
    family : Family
        The networks of all rounds.
    n_scores : int
        C.
    threads, device : Threads, Device
        Where the rows are computed.
    budget : int
        Bytes of a device that the rows and their scores may take.
    form : {"auto", "dense", "hashed"}
        How the host's kernels make weights.
    """
    if device.compiled:
        return HostKernels(features, family, n_scores, threads, form)
    placement = place(features, family.n_outputs, n_scores, budget, device)
    return DeviceKernels(features, family, n_scores, device, placement)


def network_training_kernels(
    features: Features,
    family: Family,
    n_scores: int,
    plan: Plan,
    threads: ThreadPool,
    device: Device,
    weight: FloatArray,
    exact: bool,
) -> NetworkKernels:
    """Make the kernels of training rows; the other parameters are those of `network_kernels`.

    Parameters
    ----------
    plan : Plan
        What is kept in memory: `make_plan` for this device.
    weight : ndarray of shape (n,), float64
        Weights of rows, for the moments of outputs.
    exact : bool
        Whether the normal equations are float64 throughout, on a device that has float64.
    """
    if device.compiled:
        return HostTrainingKernels(features, family, n_scores, plan, threads, weight, exact)
    return DeviceTrainingKernels(features, family, n_scores, plan, device, weight, exact)
