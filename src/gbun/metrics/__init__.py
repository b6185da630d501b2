"""Metrics: how well the response of a model fits y. They are given by name, as objects or as functions of the user.

>>> import numpy as np
>>> from gbun.collectives import Solo
>>> y, response, weight = np.array([1.0, 2.0]), np.array([[1.0], [4.0]]), np.ones(2)
>>> get_metric("mae").evaluate(y, response, weight, Solo())
1.0
>>> get_metric("pinball:0.75").evaluate(y, response, weight, Solo())
0.25
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gbun.metrics.base import MeanMetric, Metric, RankingMetric, SumMetric
from gbun.metrics.classification import Accuracy, Brier, ErrorRate, LogLoss, MacroF1, MacroPrecision
from gbun.metrics.function import FunctionMetric, RowMetric
from gbun.metrics.ranking import AUC, AveragePrecision
from gbun.metrics.regression import DEVIANCES, MAE, MAPE, MSE, R2, RMSE, HuberLoss, Pinball

__all__ = [
    "ALIASES", "METRICS", "FunctionMetric", "MeanMetric", "Metric", "RankingMetric", "RowMetric", "SumMetric",
    "get_metric",
]  # fmt: skip

MetricLike: TypeAlias = str | Metric | type[Metric] | Callable[..., Any] | tuple[str, Callable[..., Any], bool]

METRICS: Mapping[str, type[Metric]] = {
    metric.name: metric
    for metric in (
        *(RMSE, MSE, MAE, R2, MAPE, Pinball, HuberLoss, *DEVIANCES),
        *(LogLoss, Brier, ErrorRate, Accuracy, MacroPrecision, MacroF1, AUC, AveragePrecision),
    )
}

# Names of other libraries. A metric is always reported under the name it has in METRICS.
ALIASES: Mapping[str, str] = {
    "l1": "mae", "l2": "mse", "mean_absolute_error": "mae", "mean_squared_error": "mse",
    "root_mean_squared_error": "rmse", "mean_absolute_percentage_error": "mape", "r2_score": "r2",
    "quantile": "pinball", "poisson": "poisson_deviance", "gamma": "gamma_deviance", "tweedie": "tweedie_deviance",
    "logloss": "log_loss", "cross_entropy": "log_loss", "brier_score": "brier", "precision_macro": "macro_precision",
    "f1_macro": "macro_f1", "roc_auc": "auc", "ap": "average_precision",
}  # fmt: skip


def get_metric(metric: MetricLike) -> Metric:
    """Return the metric that is given by name, as a function or as an object.

    Parameters
    ----------
    metric : str, callable, tuple, Metric or subclass of Metric
        A name of `METRICS` or `ALIASES`, perhaps with a parameter as in "pinball:0.9"; a function
        f(y, response, weight) -> float; or a tuple (name, function, higher_is_better).

    Returns
    -------
    Metric

    Examples
    --------
    >>> get_metric("quantile:0.9")
    <metric pinball:0.9>
    >>> get_metric(("gain", lambda y, response, weight: 1.0, True)).higher_is_better
    True
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        return _metric_by_name(metric)
    if isinstance(metric, type) and issubclass(metric, Metric):
        return metric()
    if isinstance(metric, tuple) and len(metric) == 3:
        return FunctionMetric(*metric)
    if callable(metric):
        return FunctionMetric(getattr(metric, "__name__", type(metric).__name__), metric)
    raise ValueError(
        f"metric: came as {metric!r}, expected a name (one of {', '.join(METRICS)}), a function "
        "f(y, response, weight) -> float, a tuple (name, function, higher_is_better) or a Metric."
    )


def _metric_by_name(text: str) -> Metric:
    """Return the metric called "name" or "name:parameter"."""
    given, colon, parameter = text.strip().lower().partition(":")
    name = ALIASES.get(given, given)
    if name not in METRICS:
        near = difflib.get_close_matches(given, [*METRICS, *ALIASES], n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(
            f"metric: unknown name {text!r}.{hint} Names are {', '.join(METRICS)}; "
            "or give a function f(y, response, weight) -> float."
        )
    make: Callable[..., Metric] = METRICS[name]
    if not colon:
        return make()
    if METRICS[name].parameter is None:
        raise ValueError(f"metric: {text!r} came with a parameter, but {name!r} takes none; write {name!r}.")
    try:
        value = float(parameter)
    except ValueError:
        raise ValueError(
            f"metric: {text!r} came with {parameter!r} after the colon, expected a number, "
            f"the {METRICS[name].parameter} of {name}."
        ) from None
    return make(value)


def metrics_for(eval_metric: Any, objective: Any) -> list[Metric]:
    """Return the metrics of `eval_metric`: one, a list of them, or the default metric of the objective if None."""
    given = objective.default_metric() if eval_metric is None else eval_metric
    if isinstance(given, (list, tuple)) and not given:
        raise ValueError("eval_metric must name at least one metric, got an empty list")
    is_one_function = isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str) and callable(given[1])
    several = isinstance(given, (list, tuple)) and not is_one_function
    try:
        return [get_metric(m) for m in (given if several else [given])]
    except ValueError as error:
        raise ValueError(f"eval_metric: {error}") from None
