"""The arithmetic of a round, row chunk by row chunk. `Kernels` is the only door; everything below it is replaceable."""

from gbun.kernels.dispatch import Kernels

__all__ = ["Kernels"]
