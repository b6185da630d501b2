"""Threads that work on one tree meet in shared memory: joining, and a barrier, with atomic numbers alone.

No lock is held at any time, so that nothing is left locked when a process forks or a thread never comes. Those who
wait look again and again for a while, then give up the processor: on a busy machine the others need it.

Memory of a meeting, int64, each number in a cache line of its own:

    sync[JOINED]    how many have come, + CLOSED when no more are taken
    sync[SIZE]      how many take part; 0 while that is open
    sync[ARRIVED]   arrivals at barriers so far; barrier number b is open when it is b x size
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.np import arrayobj

from gbun.dtypes import IntArray
from gbun.trees.compiled import inlined, kernel

# Numba's own functions have no types
intrinsic: Callable[[Any], Any] = extending.intrinsic
make_array: Any = arrayobj.make_array
get_or_insert_function: Any = cgutils.get_or_insert_function

LINE = 16  # int64 numbers between two that are written by different threads: two cache lines, which come in pairs
JOINED, SIZE, ARRIVED = 0, LINE, 2 * LINE
CLOSED = 2**32
LOOKS = 4096  # before the processor is given up
PATIENCE = 20_000  # how often it is given up before those who have not come are left out
PAUSE = {"x86_64": ("llvm.x86.sse2.pause", None), "aarch64": ("llvm.aarch64.hint", 1)}
MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())

_give_up_processor = types.ExternalFunction(
    "SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32()
)


def new_meeting() -> IntArray:
    return np.zeros(3 * LINE, dtype=np.int64)


def _element(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(make_array(kind)(context, builder, array).data, [index])


@intrinsic
def _atomic_add(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index] += value; return what it was before."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _element(context, builder, sig.args[0], *args[:2]), args[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), build


@intrinsic
def _load(typing: Any, array: Any, index: Any) -> Any:
    """array[index], and all that other threads wrote before they changed it."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_element(context, builder, sig.args[0], *args), "acquire", 8)

    return types.int64(array, types.intp), build


@intrinsic
def _pause(typing: Any) -> Any:
    """Tell the processor that this thread waits for another one."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name, number = PAUSE.get(MACHINE, (None, None))
        if name is not None:
            given = [] if number is None else [ir.Constant(ir.IntType(32), number)]
            kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
            builder.call(get_or_insert_function(builder.module, kind, name), given)
        return context.get_dummy_value()

    return types.void(), build


@kernel()
def join(sync: Any, wanted: int) -> tuple[int, int]:
    """Return this thread's number and how many take part; the number is negative for one that comes too late.

    The first waits for the others, but not for ever: where a pool is busy with other work, those who are there begin.
    """
    number = _atomic_add(sync, JOINED, 1)
    if number >= CLOSED:
        return -1, 0
    waited = 0
    if number == 0:
        while _load(sync, JOINED) < wanted and waited < LOOKS + PATIENCE:
            _wait(waited)
            waited += 1
        _atomic_add(sync, SIZE, _atomic_add(sync, JOINED, CLOSED))
    while _load(sync, SIZE) == 0:
        _wait(waited)
        waited += 1
    return number, _load(sync, SIZE)


@kernel()
def meet(sync: Any, size: int, barrier: int) -> None:
    """Wait until all have arrived at barrier number 1, 2, ...; what one wrote before, all can read afterwards."""
    if size == 1:
        return
    _atomic_add(sync, ARRIVED, 1)
    waited = 0
    while _load(sync, ARRIVED) < barrier * size:
        _wait(waited)
        waited += 1


@inlined()
def _wait(waited: Any) -> None:
    if waited < LOOKS:
        _pause()
    else:
        _give_up_processor()
