"""How kernels of trees are compiled: without wrappers that nobody calls, a fifth of the time of the first training."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

njit: Any = numba.njit  # its stub does not know all options
F = TypeVar("F", bound=Callable[..., Any])


def kernel(**more: Any) -> Callable[[F], F]:
    """Compile a function that Python calls too, keep it on disk, and let other threads run meanwhile."""
    compiled: Callable[[F], F] = njit(cache=True, nogil=True, no_cfunc_wrapper=True, **more)
    return compiled


def inlined(**more: Any) -> Callable[[F], F]:
    """Compile a function as part of the kernels that call it; a call from Python would end the process."""
    compiled: Callable[[F], F] = njit(forceinline=True, no_cfunc_wrapper=True, no_cpython_wrapper=True, **more)
    return compiled
