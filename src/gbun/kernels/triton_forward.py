"""Z = X N for sparse rows in one Triton kernel: a weight is computed where it is used and never leaves the registers.

The portable kernel writes and reads every weight some twenty times while it is hashed; here a GPU reads entries and
writes Z. Products are rounded and added in the order of the portable kernel, so the bits are the same.

Triton is imported when the kernel is first used. Where there is none, `available` is false and the portable kernel is
used.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from gbun.arrays import Array
from gbun.devices import OUT_OF_MEMORY_WORDS
from gbun.kernels.portable import HashedWeights
from gbun.networks.simhash import HALF, PRIME_2, PRIME_3, PRIME_4

if TYPE_CHECKING:
    import triton.language as tl

MIN_CAPABILITY = 7  # Triton supports NVIDIA's Volta and later; the numbers of AMD are all above
TILES = (32, 64, 128, 256)
LANES_OF_WARP = 128  # four outputs a thread, whose hashes do not depend on each other


@cache
def is_available(device: Any) -> bool:
    """Return whether the kernel runs on this torch device: on GPUs that Triton knows, or anywhere in its interpreter.

    The interpreter is for tests; TRITON_INTERPRET=1 must be set before Triton is imported.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    if os.environ.get("TRITON_INTERPRET") == "1":
        return True
    if not str(device).startswith("cuda"):
        return False
    import torch

    return bool(torch.cuda.get_device_capability(device)[0] >= MIN_CAPABILITY) and _can_launch(torch, device)


def _can_launch(torch: Any, device: Any) -> bool:
    """Return whether a launch succeeds: Triton may be installed without its compiler or the driver it needs.

    An error for want of memory decides nothing and is raised.
    """
    ids, z = torch.ones(1, dtype=torch.int32, device=device), torch.ones(1, 1, device=device)
    indptr, weights = torch.tensor([0, 1], device=device), HashedWeights(ids, HALF, None)
    try:
        forward_sparse(indptr, ids, ids, torch.ones_like(z)[0], weights, z, True)
        torch.cuda.synchronize(device)
    except Exception as error:
        message, kinds = str(error).lower(), (MemoryError, torch.OutOfMemoryError)
        if isinstance(error, kinds) or any(words in message for words in OUT_OF_MEMORY_WORDS):
            raise
        warnings.warn(f"Triton does not run on {device}, the portable kernel does its work: {error}", stacklevel=2)
        return False
    return True


def forward_sparse(
    indptr: Array, low: Array, high: Array, values: Array, weights: HashedWeights, z: Array, fresh: bool
) -> None:
    """Compute `portable.forward_sparse` of tensors, without its buffers.

    `low` and `high` may be strided, as the words of 64-bit ids are in memory; the other arrays are contiguous.
    """
    import torch

    n_rows, K = z.shape
    if n_rows == 0:
        return
    lanes = choose_tile(K)
    with torch.cuda.device_of(z):  # kernels run on the current device, which need not be where these rows are
        _kernel()[n_rows, -(-K // lanes)](
            indptr, low, high, values, weights.states, *weights.by_output, z, K, low.stride(0), high.stride(0),
            weights.half, 1.0 / weights.half, P2=PRIME_2, P3=PRIME_3, P4=PRIME_4, LANES=lanes, FRESH=fresh,
            SOME_ZERO=weights.half < HALF, REVIVED=weights.revivers is not None,
            num_warps=max(1, lanes // LANES_OF_WARP),
            enable_fp_fusion=False,  # a fused multiply-add would round once where the portable kernel rounds twice
        )  # fmt: skip


def choose_tile(n_outputs: int) -> int:
    """Return the outputs of one program: the largest tile among those that compute the fewest outputs beyond K.

    >>> [choose_tile(K) for K in (1, 100, 256, 300, 1024)]
    [32, 128, 256, 64, 256]
    """
    return min(TILES, key=lambda lanes: (-(-n_outputs // lanes) * lanes, -lanes))


@cache
def _kernel() -> Any:
    import triton
    import triton.language

    globals()["tl"] = triton.language  # Triton compiles the source below with the names of this module
    return triton.jit(_forward_rows)


# Triton takes arrays and numbers one by one: this is the only function of the package with more than eight arguments.
def _forward_rows(
    indptr, lows, highs, values, states, reviver_lows, reviver_highs, reviver_weights, z, K, low_stride, high_stride,
    half, inverse, P2: tl.constexpr, P3: tl.constexpr, P4: tl.constexpr, LANES: tl.constexpr, FRESH: tl.constexpr,
    SOME_ZERO: tl.constexpr, REVIVED: tl.constexpr,
):  # fmt: skip
    """Compute one tile of outputs of one row, its entries one after the other."""
    row = tl.program_id(0).to(tl.int64)  # row x K, and entries, may be beyond 2^31
    outputs = tl.program_id(1) * LANES + tl.arange(0, LANES)
    inside = outputs < K
    state = tl.load(states + outputs, mask=inside, other=0).to(tl.uint32, bitcast=True)
    if REVIVED:
        reviver_low = tl.load(reviver_lows + outputs, mask=inside, other=0)
        reviver_high = tl.load(reviver_highs + outputs, mask=inside, other=0)
        reviver_weight = tl.load(reviver_weights + outputs, mask=inside, other=0.0)
    at = z + row * K + outputs
    total = tl.zeros((LANES,), dtype=tl.float32) if FRESH else tl.load(at, mask=inside, other=0.0)
    begin = tl.load(indptr).to(tl.int64)
    first, last = tl.load(indptr + row).to(tl.int64) - begin, tl.load(indptr + row + 1).to(tl.int64) - begin
    for e in range(first, last):
        low, high = tl.load(lows + e * low_stride), tl.load(highs + e * high_stride)
        # h = xxHash32(id; state), in the steps of simhash.xxhash32
        h = state + low.to(tl.uint32, bitcast=True) * P3
        h = (h << 17 | h >> 15) * P4
        h = h + high.to(tl.uint32, bitcast=True) * P3
        h = (h << 17 | h >> 15) * P4
        h = (h ^ h >> 15) * P2
        h = (h ^ h >> 13) * P3
        u = ((h ^ h >> 16) >> 8).to(tl.int32)
        w = (u - half).to(tl.float32) * inverse
        if SOME_ZERO:
            w = tl.where(u < 2 * half, w, 0.0)
        if REVIVED:
            w = tl.where((low == reviver_low) & (high == reviver_high), reviver_weight, w)
        total += tl.load(values + e) * w
    tl.store(at, total, mask=inside)
