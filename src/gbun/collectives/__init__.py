"""Communication among workers: all-reduce, broadcast and gather of small arrays. One process is a cluster of one."""

from gbun.collectives.async_collective import AsyncCollective, can_overlap, record_round
from gbun.collectives.base import Collective, Solo, WireFormat, WorkerError

__all__ = ["AsyncCollective", "Collective", "Solo", "WireFormat", "WorkerError", "can_overlap", "record_round"]
