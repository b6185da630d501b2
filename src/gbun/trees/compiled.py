"""How kernels of trees are compiled: without wrappers that nobody calls, a fifth of the time of the first training."""

from typing import Any

KERNEL: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
"""Kept on disk; called from Python, which lets other threads run."""
INLINED: dict[str, Any] = {"forceinline": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}
"""Part of the kernels that call it."""
