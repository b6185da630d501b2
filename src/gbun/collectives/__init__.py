"""How workers agree: sums, broadcasts and gathers of small arrays. One process is a cluster of one."""

from gbun.collectives.base import Collective, Wire, WorkerError
from gbun.collectives.courier import Courier
from gbun.collectives.solo import Solo

__all__ = ["Collective", "Courier", "Solo", "Wire", "WorkerError"]
