"""The arithmetic of a round on one batch of rows, written as formulas, for NumPy arrays and torch tensors.

Both libraries compute the same weights and, entry by entry, the same sums of sparse rows. Nothing of the size rows x
outputs is allocated here: P takes the place of Z, and other memory of that size is given (`Buffers`).

Hashes are int32, because torch has no arithmetic of unsigned words. Sums, products and shifts to the left wrap around
in both types; a shift to the right copies the sign, which a mask removes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import array_api_compat
import numpy as np

from gbun.arrays import Array, has_float64, is_tensor, namespace, to_host
from gbun.dtypes import FEATURE_ID, MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.networks import Network
from gbun.networks.simhash import HALF, PRIME_2, PRIME_3, PRIME_4, UNUSED_ID, half_width, initial_hash_state

WORD_BITS = 32
FLOAT32_PRODUCT_ROWS = 2**12  # rows whose products are summed in float32, as the compiled kernels do
FLOAT32_SUM_ROWS = 256  # rows whose moments are summed in float32, with an error of about 3e-7


# the int32 with the same bits
P2, P3, P4 = (word - (word >> WORD_BITS - 1 << WORD_BITS) for word in (PRIME_2, PRIME_3, PRIME_4))


@dataclass(frozen=True)
class Buffers:
    """Working memory for batches of up to b rows, allocated once; smaller batches use its first rows.

    `weights` and `hashes` hold R features at a time, entries or dense columns. On a processor a few fit the cache; a
    GPU needs millions of weights to be busy, and dense columns are multiplied fastest all at once.
    """

    outputs: Array  # b x K, float32: the one further array of the size of Z
    weights: Array  # R x K, float32
    hashes: Array  # R x K, int32

    @classmethod
    def allocate(cls, n_rows: int, n_outputs: int, n_features: int, like: Array) -> Buffers:
        """Allocate with b = n_rows, K = n_outputs, R = n_features, in the library and on the device of `like`."""
        xp, device = namespace(like), array_api_compat.device(like)

        def empty(n: int, dtype: object) -> Array:
            return xp.empty((n, n_outputs), dtype=dtype, device=device)

        return cls(empty(n_rows, xp.float32), empty(n_features, xp.float32), empty(n_features, xp.int32))


@dataclass(frozen=True)
class HashedWeights:
    """The weights of a round at one density, as a device holds them: K numbers from which all are computed.

    `revivers` are the outputs that zeroing left without any input (int64), and the input that each was given: the two
    words of the feature's id, and the weight; see `Network.revived`.
    """

    states: Array  # K, int32: where the hashes of outputs begin
    half: int  # N in gbun.networks.simhash
    revivers: tuple[Array, ...] | None

    @cached_property
    def by_output(self) -> tuple[Array, Array, Array]:
        """For each output the words and the weight of the feature that revives it; for most an id that is not used."""
        if self.revivers is None:
            return self.states, self.states, self.states  # not read
        xp, (outputs, *revivers) = namespace(self.states), self.revivers
        word = UNUSED_ID - 2**64 >> 32  # both of its words
        low, high = xp.full_like(self.states, word), xp.full_like(self.states, word)
        weights = xp.zeros_like(self.states, dtype=xp.float32)
        for array, values in zip((low, high, weights), revivers, strict=True):
            array[outputs] = values
        return low, high, weights

    @classmethod
    def from_network(cls, network: Network, density: float, like: Array) -> HashedWeights:
        """Prepare the weights of a network, in the library and on the device of `like`."""
        xp, device = namespace(like), array_api_compat.device(like)
        revivers = None
        if revived := network.revived(density):
            outputs, features, weights = zip(*revived, strict=True)
            parts = np.array(outputs), *id_words(np.array(features)), np.array(weights, dtype=MEMBERSHIP)
            revivers = tuple(xp.asarray(part, device=device) for part in parts)
        states = xp.asarray(initial_hash_state(network.seeds).view(np.int32), device=device)
        return cls(states, half_width(density), revivers)


# Weights


def id_words(ids: IntArray) -> tuple[IntArray, IntArray]:
    """Return the lower and the upper 32 bits of feature ids, as int32.

    >>> id_words(np.array([5, 2**32 - 1, 2**33], dtype=np.uint64))
    (array([ 5, -1,  0], dtype=int32), array([0, 0, 2], dtype=int32))
    """
    ids = ids.astype(FEATURE_ID)
    low, high = ids & FEATURE_ID(0xFFFFFFFF), ids >> FEATURE_ID(WORD_BITS)
    return low.astype(np.uint32).view(np.int32), high.astype(np.uint32).view(np.int32)


def device_id_words(ids: Array) -> tuple[Array, Array]:
    """Return `id_words` of a tensor of int32 or int64, as views of it."""
    xp = namespace(ids)
    if ids.dtype == xp.int32 or not len(ids):
        return ids.to(xp.int32), xp.zeros(1, dtype=xp.int32, device=ids.device).expand(len(ids))
    pairs = ids.view(xp.int32)  # the lower word comes first on all machines of torch
    return pairs[0::2], pairs[1::2]


def fill_weights(weights: HashedWeights, low: Array, high: Array, hashes: Array, out: Array) -> None:
    """out[e, k] = w(feature e, output k), the bits of `simhash.weights_from_hashes`; `low`, `high` are words of ids.

    `hashes` is int32 and overwritten. It has the shape of out, which until the end is the second register of the hash:
    nothing else of that size is needed.
    """
    xp = namespace(out)
    h, t = hashes, out.view(xp.int32)
    # h = xxHash32(id; state), step by step as in simhash.xxhash32
    xp.add(weights.states[None, :], (low * P3)[:, None], out=h)
    _rotate_and_multiply(h, t)
    h += (high * P3)[:, None]
    _rotate_and_multiply(h, t)
    for bits, prime in (15, P2), (13, P3), (16, 1):
        _shift_right(h, bits, t)
        h ^= t
        if prime != 1:
            h *= prime
    # u = h >> 8; w = (u - N) x float32(1 / N) if u < 2N else 0
    _shift_right(h, 8, h)
    if weights.half < HALF:
        xp.subtract(h, 2 * weights.half, out=t)
        t >>= WORD_BITS - 1  # all bits where u < 2N, none elsewhere
        h -= weights.half
        h &= t
    else:
        h -= weights.half
    out[...] = h
    out *= float(MEMBERSHIP(1.0 / weights.half))
    if weights.revivers is not None:
        outputs, reviver_low, reviver_high, reviver_weights = weights.revivers
        # A lookup of what was found would make the device wait for the host, so weights are replaced everywhere.
        found = (low[:, None] == reviver_low) & (high[:, None] == reviver_high)
        out[:, outputs] = xp.where(found, reviver_weights, out[:, outputs])


def _rotate_and_multiply(h: Array, t: Array) -> None:
    """h <- rotate_left(h, 17) x prime4"""
    _shift_right(h, 15, t)
    h <<= 17
    h |= t
    h *= P4


def _shift_right(h: Array, bits: int, out: Array) -> None:
    """out = h >> bits, zeros coming in from the left."""
    namespace(h).bitwise_right_shift(h, bits, out=out)
    out &= (1 << WORD_BITS - bits) - 1


# Z = X N


def forward_dense(X: Array, weights: HashedWeights, buffers: Buffers, z: Array, made: bool = False) -> None:
    """z = X N. The weights of R columns are computed at a time; where that is not all, buffers.outputs is used.

    `made`: there are at most R columns, and buffers.weights has their weights already.
    """
    xp, device = namespace(z), array_api_compat.device(z)
    if X.shape[1] == 0:
        z[...] = 0.0
    for first in range(0, X.shape[1], len(buffers.weights)):
        some = X[:, first : first + len(buffers.weights)]
        n = some.shape[1]
        if not made:
            columns = xp.arange(first, first + n, dtype=xp.int32, device=device)
            fill_weights(weights, columns, xp.zeros_like(columns), buffers.hashes[:n], buffers.weights[:n])
        product = z if first == 0 else buffers.outputs[: len(z)]
        xp.matmul(some, buffers.weights[:n], out=product)
        if first > 0:
            z += product


def forward_sparse(
    indptr: Array,
    low: Array,
    high: Array,
    values: Array,
    weights: HashedWeights,
    buffers: Buffers,
    z: Array,
    fresh: bool,
) -> None:
    """z[i] = sum over row i's entries of value x weights of its feature, added to what is there unless `fresh`.

    The entries begin with the first one of these rows; indptr[0] may be any number. R entries are computed at a time.
    On the CPU the products of a row are rounded and added in the order of its entries; GPUs add in any order.
    """
    xp, device = namespace(z), array_api_compat.device(z)
    if fresh:
        z[...] = 0.0
    for first in range(0, len(values), len(buffers.weights)):
        at = slice(first, first + len(buffers.weights))
        n = len(values[at])
        products = buffers.weights[:n]
        fill_weights(weights, low[at], high[at], buffers.hashes[:n], products)
        products *= values[at][:, None]
        entries = xp.arange(first, first + n, dtype=indptr.dtype, device=device) + indptr[0]
        rows = xp.searchsorted(indptr, entries, side="right") - 1
        if is_tensor(z):
            z.index_add_(0, rows, products)
        else:
            np.add.at(z, rows, products)


# Moments


def sum_centred(z: Array, weight: Array, total: float, buffers: Buffers) -> Array:
    """Sum for `combine_moments` without float64: the mean m in float32, then sums of w d and w d^2, with d = z - m.

    Plain float32 sums would lose 6e-8 r^2 of the variance of outputs r deviations away from zero. The subtraction loses
    nothing, and sums of d and d^2 have an error of about 3e-7 of the deviation.
    """
    xp, d = namespace(z), buffers.outputs[: len(z)]
    mean = xp.sum(_sum_runs(z, weight), axis=0) / (total or 1.0)
    xp.subtract(z, mean, out=d)
    first = _sum_runs(d, weight)
    d *= d
    return xp.concat([mean[None, :], first, _sum_runs(d, weight)])


def combine_moments(sums: Array, total: float) -> FloatArray:
    """Compute [sum w z; sum w z^2] from `sum_centred`, on the host in float64:

        sum w z = sum w d + N m        sum w z^2 = sum w d^2 + 2 m sum w d + N m^2        N = sum w

    N is `total`, the part of this batch in the float64 sum of weights that divides the moments. N m^2 is r^2 times
    larger than the variance, so a sum of weights in float32 would not do.
    """
    m, *parts = to_host(sums).astype(SUM)
    first, second = np.reshape(parts, (2, -1, len(m))).sum(axis=1)
    return np.stack([first + total * m, second + 2.0 * m * first + total * m**2])


def _sum_runs(d: Array, weight: Array) -> Array:
    """Compute w'D of 256 rows at a time and of the rest: b / 256 x K numbers, few enough for the host to add."""
    xp, runs, K = namespace(d), len(d) // FLOAT32_SUM_ROWS, d.shape[1]
    whole = runs * FLOAT32_SUM_ROWS
    sums = xp.matmul(
        xp.reshape(weight[:whole], (runs, 1, FLOAT32_SUM_ROWS)), xp.reshape(d[:whole], (runs, FLOAT32_SUM_ROWS, K))
    )
    rest = xp.matmul(weight[whole:], d[whole:])
    return xp.concat([sums[:, 0], rest[None, :]])


# P, its step and its part of the normal equations


def to_memberships(z: Array, centre: Array, factor: Array, width: int) -> Array:
    """z <- softmax over groups of `width` outputs of (z - centre) x factor, in place. The factor includes tau."""
    xp = namespace(z)
    z -= centre
    z *= factor
    groups = xp.reshape(z, (len(z), z.shape[1] // width, width))
    groups -= xp.max(groups, axis=2, keepdims=True)
    xp.exp(groups, out=groups)
    groups /= xp.sum(groups, axis=2, keepdims=True)
    return z


def grams(p: Array, h: Array, q: Array | None = None) -> Array:
    """Compute P'HP, K x K, as Q'Q with Q = sqrt(H) P: half the arithmetic of (HP)'P.

    It is C x K x K where h has a column for each score. If `q` is given, Q is written to its first rows, in its dtype.
    """
    xp = namespace(p)
    if h.ndim == 2:
        return xp.stack([grams(p, h[:, c], q) for c in range(h.shape[1])])
    root = xp.sqrt(h)[:, None]
    # roots of a wider dtype would copy Q to that dtype
    q = p * root if q is None else xp.multiply(p, xp.astype(root, q.dtype, copy=False), out=q[: len(p)])
    return _sum_products(q, q)


def multiply_transposed(p: Array, g: Array, room: Array) -> Array:
    """Compute P'G; `room` is for a copy of G in the dtype of P."""
    g_like_p = room[: len(g)]
    g_like_p[...] = g
    return _sum_products(p, g_like_p)


def _sum_products(a: Array, b: Array) -> Array:
    """Compute a'b: products of 4096 rows at a time in their dtype, whose sum is float64 if the device has it."""
    xp, runs = namespace(a), len(a) // FLOAT32_PRODUCT_ROWS
    if runs < 2 or a.dtype == xp.float64:
        return xp.matmul(a.T, b)
    whole, wide = runs * FLOAT32_PRODUCT_ROWS, xp.float64 if has_float64(array_api_compat.device(a)) else xp.float32
    first, second = (xp.reshape(x[:whole], (runs, FLOAT32_PRODUCT_ROWS, x.shape[1])) for x in (a, b))
    total = xp.sum(xp.matmul(xp.permute_dims(first, (0, 2, 1)), second), axis=0, dtype=wide)
    total += xp.matmul(a[whole:].T, b[whole:])
    return total


def take_rows_into(p: Array, rows: Array, room: Array) -> Array:
    """Copy some rows of P to the first rows of `room`."""
    if is_tensor(p):
        return namespace(p).take(p, rows, axis=0, out=room[: len(rows)])
    # with a mode that cannot fail NumPy makes no copy
    return np.take(p, rows, axis=0, out=room[: len(rows)], mode="clip")
