"""Losses in torch as users write them, and data for them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional


def squared(y, scores):
    return (scores - y) ** 2 / 2


def squared_outputs(y, scores):
    return ((scores - y) ** 2).sum(dim=1) / 2


def logistic(y, scores):
    return F.softplus(scores) - y * scores


def labels(y, scores):
    return F.binary_cross_entropy_with_logits(scores, y, reduction="none").sum(dim=1)


def poisson(y, scores):
    return scores.exp() - y * scores


def cross_entropy(y, scores):
    return F.cross_entropy(scores, y.long(), reduction="none")


def focal(y, scores):
    right = torch.where(y > 0.5, scores, -scores)
    return -F.logsigmoid(right) * torch.sigmoid(-right) ** 2


def focal_classes(y, scores):
    loss = cross_entropy(y, scores)
    return (1 - torch.exp(-loss)) ** 2 * loss


def cauchy(y, scores):
    return torch.log1p((scores - y) ** 2)


def geman_mcclure(y, scores):
    r2 = (scores - y) ** 2
    return r2 / (1 + r2)


def geman_mcclure_outputs(y, scores):
    r2 = ((scores - y) ** 2).sum(dim=1)
    return r2 / (1 + r2)


def normal(y, scores):
    """Negative log-likelihood of a normal distribution: scores are the mean and the log of the deviation."""
    return scores[:, 1] + ((y - scores[:, 0]) * torch.exp(-scores[:, 1])) ** 2 / 2


def one_sum(y, scores):
    """A loss of the sum of all outputs: the diagonal of its Hessian 11' is far from a bound."""
    return (scores.sum(dim=1) - y) ** 2 / 2


def pinball(y, scores):
    q, r = y.new_tensor([0.1, 0.5, 0.9]), y[:, None] - scores
    return torch.maximum(q * r, (q - 1) * r).sum(dim=1)


def numbers(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    f = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2])
    return X, f + 0.3 * rng.normal(size=n), rng.integers(1, 4, size=n).astype(float)


def outliers(n=400):
    X, y, weight = numbers(n)
    wild = np.arange(n) % 5 == 0
    return X, y + wild * np.random.default_rng(1).normal(size=n) * 20, weight


def classes(y):
    return np.digitize(y, [-0.5, 0.5])
