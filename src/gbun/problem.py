"""What a training works on: rows and evaluation sets in any accepted form, read, checked and divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.collectives import Collective
from gbun.config import Parameters, check
from gbun.data.features import Features, Schema, Shard
from gbun.data.ingest import conform, ingest
from gbun.data.tensors import on_host
from gbun.defaults import FOLDS, seed_of
from gbun.dtypes import FloatArray
from gbun.model import Model, margin_array
from gbun.splits import folds, held_out
from gbun.targets import Target, make_target, weight_array


@dataclass
class Dataset:
    """Rows to train or evaluate on: features in any accepted form, targets, weights, scores to start from."""

    X: Any
    y: Any
    weight: Any = None
    base_margin: Any = None


Data = Dataset | tuple[Any, ...]


@dataclass
class Problem:
    """What a training works on, read and checked: rows, evaluation sets, and what the model must remember of them."""

    parameters: Parameters
    target: Target
    schema: Schema
    shard: Shard
    shards: dict[str, Shard]
    initial: Model | None = None

    @property
    def seed(self) -> int:
        return seed_of(self.parameters.random_state)

    def parts(self, few: bool, rows: Shard, collective: Collective) -> list[tuple[Shard, Shard]]:
        """`rows`, which are this problem's in whatever scaling, as those to fit and those to judge by.

        Where they are few, several divisions, so that each row judges once. None at all where rows cannot be divided:
        equal ones stay together.
        """
        own = self.shard
        if few:
            fold = folds(own.features, own.y, self.seed, FOLDS)
            weights = collective.sum(np.bincount(fold, own.weight, FOLDS))
            filled = np.flatnonzero(weights > 0.0)
            return [_parted(rows, fold == k) for k in filled] if len(filled) > 1 else []
        fraction, by_class = self.parameters.validation_fraction, self.target.task == "classification"
        held = held_out(own.features, own.y, own.weight, fraction, self.seed, by_class, collective)
        return [] if held is None else [_parted(rows, held)]


def _parted(rows: Shard, held: NDArray[np.bool_]) -> tuple[Shard, Shard]:
    return rows.take(np.flatnonzero(~held)), rows.take(np.flatnonzero(held))


def read(
    parameters: Parameters,
    dataset: Dataset,
    evals: Mapping[str, Dataset],
    initial: Model | None = None,
    task: str | None = None,
) -> Problem:
    """Rows in any accepted form, as a `Problem`."""
    check(parameters)
    tensors = parameters.device != "cpu"
    if initial is None:
        features, schema = ingest(dataset.X, tensors=tensors)
        target = make_target(parameters, dataset.y, task)
    else:
        schema = initial.description.schema
        features = conform(dataset.X, schema, initial.ensemble.scaling.dense is not None, tensors=tensors)
        target = make_target(parameters, dataset.y, task or _plain(initial.description.task), initial.classes)
    shard = make_shard(features, target.y, dataset, target)
    shards = {}
    for name, d in evals.items():
        watched = conform(d.X, schema, features.dense is not None, f"X of {name!r}", tensors)
        shards[name] = make_shard(watched, target.encode(d.y, f"y of {name!r}"), d, target, f" of {name!r}")
    return Problem(parameters, target, schema, shard, shards, initial)


def make_shard(features: Features, y: FloatArray, dataset: Dataset, target: Target, of: str = "") -> Shard:
    n = features.n_rows
    if n == 0:
        raise ValueError(f"X{of} has no rows")
    if len(y) != n:
        raise ValueError(f"X{of} has {n} rows, y{of} has {len(y)}: one target for each row is needed")
    margin = None
    if dataset.base_margin is not None:
        margin = margin_array(dataset.base_margin, n, target.objective.n_outputs(y))
    return Shard(features, y, weight_array(dataset.weight, n), margin)


def as_dataset(data: Data, name: str = "data") -> Dataset:
    """Targets, weights and margins are read on the host, whatever library they come from."""
    if isinstance(data, tuple) and 2 <= len(data) <= 4:
        data = Dataset(*data)
    if isinstance(data, Dataset):
        own = {"y": data.y, "sample_weight": data.weight, "base_margin": data.base_margin}
        return Dataset(data.X, *(on_host(values, name) for name, values in own.items()))
    raise ValueError(
        f"{name} must be a gbun.Dataset or a tuple (X, y[, weight[, base_margin]]), got {type(data).__name__}"
    )


def named_sets(evals: Mapping[str, Data] | Iterable[tuple[Data, str]]) -> dict[str, Dataset]:
    if isinstance(evals, Mapping):
        return {str(name): as_dataset(data, f"evals[{name!r}]") for name, data in evals.items()}
    named: dict[str, Dataset] = {}
    for item in evals if isinstance(evals, (list, tuple)) else [evals]:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], str)):
            raise ValueError(f"evals must be {{name: data}} or a list of pairs (data, name), got {type(item).__name__}")
        if item[1] in named:
            raise ValueError(f"evals has two sets named {item[1]!r}; names must differ")
        named[item[1]] = as_dataset(item[0], f"evals[{item[1]!r}]")
    return named


def _plain(task: str) -> str:
    return "classification" if task == "multilabel" else task
