"""The round's arithmetic on one batch of rows, as the formulas have it, for arrays of any library.

NumPy's arrays and torch's, wherever torch puts them, take the same way through the same lines, and make the same
weights and, entry by entry, the same sums of sparse rows. Nothing of the size rows x outputs is allocated here: Z is
turned into P where it is, and what else is needed of that size is given (`Buffers`).

Hashes are made in int32: torch computes with no unsigned words. Sums, products and shifts to the left wrap around in
both; a shift to the right brings the sign along, which a mask takes away again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import array_api_compat
import numpy as np

from gbun.arrays import Array, has_float64, host, is_tensor, namespace
from gbun.dtypes import FEATURE_ID, MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.networks import Network
from gbun.networks.simhash import HALF, PRIME_2, PRIME_3, PRIME_4, UNUSED_ID, half_width, initial_state

WORD_BITS = 32
SUMMED = 2**12  # rows whose products are summed in float32, as compiled kernels do
RUN = 256  # rows whose sums stay float32: about as many roundings as make 3e-7


def _signed(word: int) -> int:
    """The int32 with the same bits."""
    return word - (word >> WORD_BITS - 1 << WORD_BITS)


P2, P3, P4 = _signed(PRIME_2), _signed(PRIME_3), _signed(PRIME_4)


@dataclass(frozen=True)
class Buffers:
    """Working memory for batches of up to b rows, allocated once; smaller batches use its first rows.

    `weights` and `hashes` hold R features at a time, entries or dense columns. A few at a time stay in a processor's
    cache; a GPU is busy with millions of weights, and dense columns are multiplied fastest all at once.
    """

    outputs: Array  # b x K, float32: the one further array of the size of Z
    weights: Array  # R x K, float32
    hashes: Array  # R x K, int32

    @classmethod
    def for_batches(cls, n_rows: int, n_outputs: int, n_features: int, like: Array) -> Buffers:
        """b = n_rows, K = n_outputs, R = n_features, in the library and on the device of `like`."""
        xp, device = namespace(like), array_api_compat.device(like)

        def empty(n: int, dtype: object) -> Array:
            return xp.empty((n, n_outputs), dtype=dtype, device=device)

        return cls(empty(n_rows, xp.float32), empty(n_features, xp.float32), empty(n_features, xp.int32))


@dataclass(frozen=True)
class Revivers:
    """Outputs that zeroing left without any input, and the one input each was given: see `Network.revived`."""

    outputs: Array  # int64
    low: Array  # the two words of the feature's id
    high: Array
    weights: Array


@dataclass(frozen=True)
class HashedWeights:
    """A round's weights at one density, as a device holds them: K numbers from which all can be made."""

    states: Array  # K, int32: where the outputs' hashes begin
    half: int  # N in gbun.networks.simhash
    revivers: Revivers | None

    @cached_property
    def by_output(self) -> tuple[Array, Array, Array]:
        """For each output the words and the weight of the feature that revives it; an id no feature has for others."""
        revivers, xp = self.revivers, namespace(self.states)
        if revivers is None:
            return self.states, self.states, self.states  # not looked at
        word = UNUSED_ID - 2**64 >> 32  # both of its words
        low, high = xp.full_like(self.states, word), xp.full_like(self.states, word)
        own = xp.zeros_like(self.states, dtype=xp.float32)
        for array, values in (low, revivers.low), (high, revivers.high), (own, revivers.weights):
            array[revivers.outputs] = values
        return low, high, own

    @classmethod
    def of(cls, network: Network, density: float, like: Array) -> HashedWeights:
        """In the library and on the device of `like`."""
        xp, device = namespace(like), array_api_compat.device(like)
        revivers = None
        if revived := network.revived(density):
            outputs, features, weights = zip(*revived, strict=True)
            parts = np.array(outputs), *words(np.array(features)), np.array(weights, dtype=MEMBERSHIP)
            revivers = Revivers(*(xp.asarray(part, device=device) for part in parts))
        states = xp.asarray(initial_state(network.seeds).view(np.int32), device=device)
        return cls(states, half_width(density), revivers)


# Weights


def words(ids: IntArray) -> tuple[IntArray, IntArray]:
    """The lower and the upper 32 bits of feature ids, as int32.

    >>> words(np.array([5, 2**32 - 1, 2**33], dtype=np.uint64))
    (array([ 5, -1,  0], dtype=int32), array([0, 0, 2], dtype=int32))
    """
    ids = ids.astype(FEATURE_ID)
    low, high = ids & FEATURE_ID(0xFFFFFFFF), ids >> FEATURE_ID(WORD_BITS)
    return low.astype(np.uint32).view(np.int32), high.astype(np.uint32).view(np.int32)


def words_there(ids: Array) -> tuple[Array, Array]:
    """`words` of a tensor of int32 or int64, looked at where they are."""
    xp = namespace(ids)
    if ids.dtype == xp.int32 or not len(ids):
        return ids.to(xp.int32), xp.zeros(1, dtype=xp.int32, device=ids.device).expand(len(ids))
    pairs = ids.view(xp.int32)  # the lower word comes first on every machine that torch runs on
    return pairs[0::2], pairs[1::2]


def weights_into(weights: HashedWeights, low: Array, high: Array, hashes: Array, out: Array) -> None:
    """out[e, k] = w(feature e, output k), the bits of `simhash.weights_of`; `low`, `high` are the features' `words`.

    `hashes` is int32 and overwritten. Both are of out's shape, so nothing else of that size is needed: until there
    are weights, out is the second register of the hash.
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
        _revive(weights.revivers, low, high, out)


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


def _revive(revivers: Revivers, low: Array, high: Array, out: Array) -> None:
    # Where nothing is found the weight stays: looking up what was found would make a device wait for the host.
    found = (low[:, None] == revivers.low) & (high[:, None] == revivers.high)
    out[:, revivers.outputs] = namespace(out).where(found, revivers.weights, out[:, revivers.outputs])


# Z = X N


def forward_dense(X: Array, weights: HashedWeights, buffers: Buffers, z: Array, made: bool = False) -> None:
    """z = X N. The weights of R columns are made at a time; where that is not all, buffers.outputs is used.

    `made`: there are no more than R columns, and buffers.weights holds theirs already.
    """
    xp, device = namespace(z), array_api_compat.device(z)
    if X.shape[1] == 0:
        z[...] = 0.0
    for first in range(0, X.shape[1], len(buffers.weights)):
        some = X[:, first : first + len(buffers.weights)]
        n = some.shape[1]
        if not made:
            columns = xp.arange(first, first + n, dtype=xp.int32, device=device)
            weights_into(weights, columns, xp.zeros_like(columns), buffers.hashes[:n], buffers.weights[:n])
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

    The entries begin with the first one of these rows, wherever in the data that is: indptr[0] may be any number.
    R of them are taken at a time. A row's products are rounded and added one after the other in the order of its
    entries, on the CPU; torch's other devices add in no certain order.
    """
    xp, device = namespace(z), array_api_compat.device(z)
    if fresh:
        z[...] = 0.0
    for first in range(0, len(values), len(buffers.weights)):
        at = slice(first, first + len(buffers.weights))
        n = len(values[at])
        products = buffers.weights[:n]
        weights_into(weights, low[at], high[at], buffers.hashes[:n], products)
        products *= values[at][:, None]
        entries = xp.arange(first, first + n, dtype=indptr.dtype, device=device) + indptr[0]
        _add_rows(z, xp.searchsorted(indptr, entries, side="right") - 1, products)


def _add_rows(z: Array, rows: Array, terms: Array) -> None:
    """z[rows[e]] += terms[e] for one e after the other; a row may come more than once."""
    if is_tensor(z):
        z.index_add_(0, rows, terms)
    else:
        np.add.at(z, rows, terms)


# Moments


def moments(z: FloatArray, weight: FloatArray) -> FloatArray:
    """[sum w z ; sum w z^2], 2 x K, of NumPy's arrays.

    z is float32 and the sums are float64: for outputs r deviations away from zero the variance loses 1e-16 r^2 of
    itself where z has already lost 6e-8 r, so these plain sums are never what limits accuracy.
    """
    z64 = z.astype(SUM)
    first = weight @ z64
    np.square(z64, out=z64)
    return np.stack([first, weight @ z64])


def centred_sums(z: Array, weight: Array, total: float, buffers: Buffers) -> Array:
    """What `moments_of` makes these sums of, without float64: the mean m in float32, then sums of w d and of w d^2.

    Plain float32 sums would lose 6e-8 r^2 of the variance. With d = z - m nothing is lost by subtracting, and sums of
    d and d^2 are good to about 3e-7 of the deviation.
    """
    xp, d = namespace(z), buffers.outputs[: len(z)]
    mean = xp.sum(_sums_of_runs(z, weight), axis=0) / (total or 1.0)
    xp.subtract(z, mean, out=d)
    first = _sums_of_runs(d, weight)
    d *= d
    return xp.concat([mean[None, :], first, _sums_of_runs(d, weight)])


def moments_of(sums: Array, total: float) -> FloatArray:
    """[sum w z ; sum w z^2] from `centred_sums`, put together on the host in float64:

        sum w z = sum w d + N m        sum w z^2 = sum w d^2 + 2 m sum w d + N m^2        N = sum w

    N must be `total`, the batch's part of the float64 sum of weights by which the moments will be divided: N m^2 is
    r^2 times larger than what is left of it in the end, too large for a sum of weights rounded to float32.
    """
    m, *parts = host(sums).astype(SUM)
    first, second = np.reshape(parts, (2, -1, len(m))).sum(axis=1)
    return np.stack([first + total * m, second + 2.0 * m * first + total * m**2])


def _sums_of_runs(d: Array, weight: Array) -> Array:
    """w'D of RUN rows at a time, and of those that are left: b / RUN x K numbers, few enough for the host to add."""
    xp, runs, K = namespace(d), len(d) // RUN, d.shape[1]
    whole = runs * RUN
    sums = xp.matmul(xp.reshape(weight[:whole], (runs, 1, RUN)), xp.reshape(d[:whole], (runs, RUN, K)))
    rest = xp.matmul(weight[whole:], d[whole:])
    return xp.concat([sums[:, 0], rest[None, :]])


# P, its step and its part of the normal equations


def memberships(z: Array, centre: Array, factor: Array, width: int) -> Array:
    """z <- softmax over groups of `width` outputs of (z - centre) x factor, in place. tau is part of the factor."""
    xp = namespace(z)
    z -= centre
    z *= factor
    groups = xp.reshape(z, (len(z), z.shape[1] // width, width))
    groups -= xp.max(groups, axis=2, keepdims=True)
    xp.exp(groups, out=groups)
    groups /= xp.sum(groups, axis=2, keepdims=True)
    return z


def product(p: Array, head: Array, out: Array) -> None:
    """out = P W"""
    namespace(p).matmul(p, head, out=out)


def gram(p: Array, h: Array, q: Array | None = None) -> Array:
    """P'HP for one Hessian value a row. (HP)'P is written as Q'Q, Q = sqrt(H) P: half the arithmetic.

    Q goes into the first rows of `q` if that is given, and is of its dtype.
    """
    xp, root = namespace(p), namespace(p).sqrt(h)[:, None]
    # roots of another dtype would make a copy of Q in the wider one
    q = p * root if q is None else xp.multiply(p, xp.astype(root, q.dtype, copy=False), out=q[: len(p)])
    return _summed_products(q, q)


def grams(p: Array, h: Array, q: Array | None = None) -> Array:
    """P'HP: K x K, or C x K x K when h has a column per output."""
    if h.ndim == 1:
        return gram(p, h, q)
    return namespace(p).stack([gram(p, h[:, c], q) for c in range(h.shape[1])])


def transposed_product(p: Array, g: Array, room: Array) -> Array:
    """P'G, with G in P's dtype; `room` is for a copy of G in it."""
    g_like_p = room[: len(g)]
    g_like_p[...] = g
    return _summed_products(p, g_like_p)


def _summed_products(a: Array, b: Array) -> Array:
    """a'b: products of SUMMED rows at a time in their own dtype, and the sum of those in float64 if there is any."""
    xp, runs = namespace(a), len(a) // SUMMED
    if runs < 2 or a.dtype == xp.float64:
        return xp.matmul(a.T, b)
    whole, wide = runs * SUMMED, xp.float64 if has_float64(a) else xp.float32
    in_runs = (xp.reshape(x[:whole], (runs, SUMMED, x.shape[1])) for x in (a, b))
    first, second = in_runs
    total = xp.sum(xp.matmul(xp.permute_dims(first, (0, 2, 1)), second), axis=0, dtype=wide)
    total += xp.matmul(a[whole:].T, b[whole:])
    return total


def rows_into(p: Array, rows: Array, room: Array) -> Array:
    """Some rows of P, in the first rows of `room`."""
    if is_tensor(p):
        return namespace(p).take(p, rows, axis=0, out=room[: len(rows)])
    # a mode that cannot fail halfway lets NumPy do without a copy of what it takes
    return np.take(p, rows, axis=0, out=room[: len(rows)], mode="clip")
