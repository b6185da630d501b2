"""The same rules as the kernels', written plainly in NumPy and Python, and rows to try them on."""

import math
import threading

import numpy as np

from gbun.kernels.threads import allocate_aligned

N_BINS, PROJECTION_BINS = 64, 33


def make_rows(n, n_columns, seed=0, *, bundles=(), projections=False, few_bins=True):
    """Random binned rows in both forms, and gradients that depend on them. Column 1 has missing values."""
    rng = np.random.default_rng(seed)
    top = np.where(np.arange(n_columns) % 3 == 2, 5, 64) if few_bins else np.full(n_columns, 64)
    columns = (1 + rng.integers(0, top[:, None] - 1, (n_columns, n))).astype(np.uint8)
    if projections:
        columns = rng.integers(1, PROJECTION_BINS, (n_columns, n)).astype(np.uint8)
    elif n_columns > 1:
        columns[1, rng.random(n) < 0.3] = 0
    for j in bundles:
        columns[j] = rng.integers(0, 7, n)
    return by_row(columns), columns


def by_row(columns):
    c, n = columns.shape
    width = (c + 7) // 8 * 8
    rows = allocate_aligned(n * width, np.uint8).reshape(n, width)
    rows[:] = 0
    rows[:, :c] = columns.T
    return rows


def make_derivatives(columns, seed=0):
    rng = np.random.default_rng(seed)
    n = columns.shape[1]
    signal = (columns[0] > 20) * 1.0 + np.sin(columns[-1] / 3.0) + (columns[min(1, len(columns) - 1)] == 0) * 0.7
    g = (signal + rng.normal(size=n)).astype(np.float32)
    return g, (rng.random(n) + 0.05).astype(np.float32)


def exponent(values, most, most_sum=2.0**31 - 1):
    """The largest e with sizes rounded up to a quarter of a power of two."""
    sizes = np.abs(values.astype(np.float64))
    sizes = sizes[sizes > 0]
    e = np.frexp(sizes)[1]
    e = np.maximum(e - 1, -126)
    upper = (np.floor(np.ldexp(sizes, -e) * 4) + 1) / 4 * np.ldexp(1.0, e)
    top, total = upper.max(initial=0.0), math.fsum(upper)
    fits = [e for e in range(-126, 127) if top * 2.0**e <= most and total * 2.0**e + len(sizes) / 2 <= most_sum]
    return max(fits)


def quantise(g, h):
    e_g, e_h = exponent(g, 32767.0), exponent(h, 65535.0)
    half = np.float32(0.5)
    q_g = np.floor(g * np.float32(2.0**e_g) + half).astype(np.int64)
    q_h = np.floor(h * np.float32(2.0**e_h) + half).astype(np.int64)
    return q_g, q_h, e_g, e_h


def category_splits(sums_g, sums_h, smoothing):
    """Which bins go left, and whether they are a subset: one against the others, then beginnings of the order."""
    filled = [b for b in range(N_BINS) if sums_g[b] or sums_h[b]]
    for b in filled:
        yield np.arange(N_BINS) != b, False
    order = sorted(filled, key=lambda b: (float(sums_g[b]) / (float(sums_h[b]) + smoothing), b))
    for k in range(1, len(order) if len(order) >= 4 else 0):
        yield np.isin(np.arange(N_BINS), order[:k]), True


def to_mask(goes_left):
    return sum(1 << b for b in np.flatnonzero(goes_left).tolist())


def best_split(columns, is_bundle, n_base, q_g, q_h, rows, penalty, min_rows, n_plain=None, variance=0.0):
    """(gain, column, bin, missing_right, goes_left) or None; all candidates one after the other."""
    n_plain = n_base if n_plain is None else n_plain
    G, H = int(q_g[rows].sum()), int(q_h[rows].sum())
    n = int(((q_g[rows] != 0) | (q_h[rows] != 0)).sum())
    if H <= 0:
        return None
    base = G * G / (H + penalty)
    least, best, found = max(1.0, H * min_rows / n), base + base * 2.0**-36, None
    for j, column in enumerate(columns):
        bins = column[rows]
        sums_g = np.bincount(bins, q_g[rows], N_BINS).astype(np.int64)
        sums_h = np.bincount(bins, q_h[rows], N_BINS).astype(np.int64)
        if n_plain <= j < n_base:
            smoothing, empty = 10.0 * float(H) / n, (sums_g == 0) & (sums_h == 0)
            for left, subset in category_splits(sums_g, sums_h, smoothing):
                g, h = float(sums_g[left].sum()), float(sums_h[left].sum())
                if not subset:  # the kernel begins with the one bin
                    g, h = G - g, H - h
                rest_g, rest_h, more = G - g, H - h, smoothing if subset else 0.0
                if min(h, rest_h) < least:
                    continue
                a, c = h + (penalty + more), rest_h + (penalty + more)
                quality = (g * g * c + rest_g * rest_g * a) / (a * c)
                if subset:
                    quality -= 2 / math.pi * ((~empty).sum() - 1) * variance
                if quality > best:
                    heavier_left = 2 * sums_h[left].sum() > H
                    best, goes_left = quality, np.where(empty, heavier_left, left)
                    found = (quality - base, j, 0, int(not goes_left[0]), goes_left)
            continue
        bundle = j < n_base and is_bundle[j]
        missing = not bundle and (sums_g[0] != 0 or sums_h[0] != 0)
        for b in range(1, N_BINS if j < n_base else PROJECTION_BINS):
            for missing_left in (False, True) if missing else (False,):
                left = (np.arange(N_BINS) != b) if bundle else (np.arange(N_BINS) <= b)
                if not bundle:
                    left[0] = missing_left
                g, h = float(sums_g[left].sum()), float(sums_h[left].sum())
                rest_g, rest_h = G - g, H - h
                if min(h, rest_h) < least:
                    continue
                if bundle:
                    g, h, rest_g, rest_h = rest_g, rest_h, g, h
                a, c = h + penalty, rest_h + penalty
                quality = (g * g * c + rest_g * rest_g * a) / (a * c)
                if quality > best:
                    best = quality
                    heavier_right = (h > rest_h) if bundle else (rest_h > h)
                    right = not missing_left if missing else heavier_right
                    goes_left = left.copy()
                    if j < n_base and not bundle:
                        goes_left[0] = not right
                    found = (quality - base, j, b, int(right), goes_left)
    return found


def grow(columns, is_bundle, g, h, penalty, n_leaves, min_rows, projections=None, n_categories=0):
    """A tree by the rule of waves: nodes as tuples, leaf of each row, sums of leaves."""
    n_base, everything = len(columns), columns if projections is None else np.concatenate([columns, projections])
    q_g, q_h, e_g, e_h = quantise(g, h)
    lambda_ = penalty * 2.0**e_h
    n_plain, variance = n_base - n_categories, int((q_g**2).sum()) / max(1, int(q_h.sum()))

    def split(rows):
        return best_split(everything, is_bundle, n_base, q_g, q_h, rows, lambda_, min_rows, n_plain, variance)

    leaves = [np.arange(len(g))]
    splits, nodes, hangs = [split(leaves[0])], [], [None]
    while True:
        able = sorted((k for k in range(len(leaves)) if splits[k]), key=lambda k: (-splits[k][0], k))
        wave = able[: min((len(able) + 1) // 2, n_leaves - len(leaves))]
        if not wave:
            break
        for k in wave:
            gain, column, b, right, goes_left = splits[k]
            new, number, left = len(leaves), len(nodes), goes_left[everything[column][leaves[k]]]
            nodes.append([column, b, right, ~k, ~new, np.float32(min(gain * 2.0 ** (e_h - 2 * e_g), 3e38)), 0])
            if n_plain <= column < n_base:
                nodes[-1][6] = to_mask(goes_left)
            if hangs[k] is not None:
                nodes[hangs[k][0]][hangs[k][1]] = number
            leaves.append(leaves[k][~left])
            leaves[k] = leaves[k][left]
            hangs[k], splits[k] = (number, 3), None
            hangs.append((number, 4))
            splits.append(None)
            for child in (k, new):
                splits[child] = split(leaves[child])
    leaf_of_row = np.empty(len(g), dtype=np.int64)
    for k, rows in enumerate(leaves):
        leaf_of_row[rows] = k
    sums = [[float(q[rows].sum()) / 2.0**e for rows in leaves] for q, e in ((q_g, e_g), (q_h, e_h))]
    return [tuple(node) for node in nodes], leaf_of_row, np.array(sums)


def among_workers(n_workers, job):
    """Return job(worker, reduce) of each of some workers, threads that sum by a barrier."""
    barrier, given, results = threading.Barrier(n_workers, timeout=60), [None] * n_workers, [None] * n_workers

    def run(worker):
        def reduce(array):
            given[worker] = array.copy()
            barrier.wait()
            total = np.sum(given, axis=0)
            barrier.wait()
            return total

        try:
            results[worker] = job(worker, reduce)
        except BaseException as error:
            results[worker] = error
            barrier.abort()

    threads = [threading.Thread(target=run, args=(w,)) for w in range(n_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [r for r in results if isinstance(r, BaseException) and not isinstance(r, threading.BrokenBarrierError)]
    if errors:
        raise errors[0]
    return results
