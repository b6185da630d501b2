"""What a training works on: rows and evaluation sets in any accepted form, read, checked and divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.agreement import ALONE, by_value, check_alike, conform_share, decided, ingest_share, listed, ranks, together
from gbun.collectives import Collective, Solo
from gbun.config import Parameters, check, parameter_fields
from gbun.data.features import Features, Schema, Shard
from gbun.data.tensors import on_host
from gbun.defaults import FOLDS, seed_of
from gbun.dtypes import FloatArray
from gbun.model import Model, margin_array
from gbun.splits import folds, held_out, weights_of
from gbun.targets import Target, check_weights, make_target, weight_array


@dataclass
class Dataset:
    """Rows to train or evaluate on: features in any accepted form, targets, weights, scores to start from."""

    X: Any
    y: Any
    weight: Any = None
    base_margin: Any = None


Data = Dataset | tuple[Any, ...]

A_WORKERS_OWN = ("n_jobs", "device", "tf32", "memory_budget", "network", "verbose", "random_state")
"""Parameters in which workers may differ; of seeds, the first one's is used."""


@dataclass
class Problem:
    """What a training works on, read and checked: rows, evaluation sets, and what the model must remember of them.

    Rows are those of this worker; everything else is the same on all workers of the `collective`.
    """

    parameters: Parameters
    target: Target
    schema: Schema
    shard: Shard
    shards: dict[str, Shard]
    initial: Model | None = None
    collective: Collective = field(default_factory=Solo)

    @property
    def seed(self) -> int:
        return seed_of(self.parameters.random_state)

    def parts(self, few: bool, rows: Shard, collective: Collective | None = None) -> list[tuple[Shard, Shard]]:
        """`rows`, which are this problem's in whatever scaling, as those to fit and those to judge by.

        Workers get as many parts as each other, though their own share of a part may be empty.

        Where they are few, several divisions, so that each row judges once. None at all where rows cannot be divided:
        equal ones stay together.
        """
        own, collective = self.shard, collective or self.collective
        if few:
            fold = folds(own.features, own.y, self.seed, FOLDS)
            weights = collective.sum(weights_of(fold, own.weight, FOLDS))
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
    collective: Collective = ALONE,
) -> Problem:
    """Rows in any accepted form, as a `Problem`.

    Each worker brings a share of the rows and of each evaluation set, which may be empty. What is found out and what is
    asked of the rows is that of all shares; where one of them is bad, no worker goes on.
    """
    together(collective, lambda: check(parameters))
    if collective.size > 1:
        decided(collective, _told_of(parameters), lambda told: check_alike(told, "on all workers"))
        parameters = _with_one_seed(parameters, collective)
        decided(collective, list(evals), _check_sets)
    tensors = parameters.device != "cpu"
    if initial is None:
        features, schema = ingest_share(dataset.X, collective, tensors)
        target = make_target(parameters, dataset.y, task, collective=collective)
    else:
        schema, dense = initial.description.schema, initial.ensemble.scaling.dense is not None
        features = conform_share(dataset.X, schema, dense, "X", tensors, collective)
        task = task or _plain(initial.description.task)
        target = make_target(parameters, dataset.y, task, initial.classes, collective)
    shard = make_shard(features, target.y, dataset, target, "", collective)
    shards = {}
    for name, d in evals.items():
        watched = conform_share(d.X, schema, features.dense is not None, f"X of {name!r}", tensors, collective)
        y = target.encode(d.y, f"y of {name!r}", collective)
        shards[name] = make_shard(watched, y, d, target, f" of {name!r}", collective)
    return Problem(parameters, target, schema, shard, shards, initial, collective)


def make_shard(
    features: Features, y: FloatArray, dataset: Dataset, target: Target, of: str = "", collective: Collective = ALONE
) -> Shard:
    share = collective.size > 1
    shard = together(collective, lambda: _own_shard(features, y, dataset, target, of, share))
    if not share:
        return shard
    has_margin = shard.base_margin is not None
    said = shard.n_rows, has_margin, float(shard.weight.sum())
    with_margin = decided(collective, said, lambda told: _check_rows(told, of))
    if with_margin == has_margin:
        return shard
    return replace(shard, base_margin=np.zeros((0, target.objective.n_outputs(y))) if with_margin else None)


def _own_shard(features: Features, y: FloatArray, dataset: Dataset, target: Target, of: str, share: bool) -> Shard:
    n = features.n_rows
    if n == 0 and not share:
        raise ValueError(f"X{of} has no rows")
    if len(y) != n:
        raise ValueError(f"X{of} has {n} rows, y{of} has {len(y)}: one target for each row is needed")
    margin = None
    if dataset.base_margin is not None and n:
        margin = margin_array(dataset.base_margin, n, target.objective.n_outputs(y))
    return Shard(features, y, weight_array(dataset.weight, n, share=share), margin)


def _check_rows(said: list[Any], of: str) -> bool:
    """Of (rows, whether they have margins, their weight) of all workers: whether there are margins."""
    margins = by_value({rank: bool(margin) for rank, (n, margin, _) in enumerate(said) if n})
    if len(margins) > 1:
        raise ValueError(
            f"base_margin{of} must be given on all workers or on none, got it on {ranks(margins[True])} and not on "
            f"{ranks(margins[False])}"
        )
    check_weights(sum(weight for *_, weight in said))
    return True in margins


def _told_of(parameters: Parameters) -> dict[str, Any]:
    """Parameters that must be the same on all workers, in words; of an object of the user's own, its kind."""
    names = [field_.name for field_ in parameter_fields() if field_.name not in A_WORKERS_OWN]
    return {name: _in_words(getattr(parameters, name)) for name in names}


def _in_words(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_in_words(one) for one in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else type(value).__name__


def _check_sets(said: list[Any]) -> None:
    sets = by_value({rank: ", ".join(map(repr, names)) or "none" for rank, names in enumerate(said)})
    if len(sets) > 1:
        raise ValueError(
            f"evals must name the same sets in the same order on all workers, empty ones too, got {listed(sets)}"
        )


def _with_one_seed(parameters: Parameters, collective: Collective) -> Parameters:
    """Networks are drawn alike by all workers: with the first one's seed, which a generator may have to draw."""
    own = parameters.random_state
    drawn = together(collective, lambda: None if own is None else seed_of(own))
    seed = decided(collective, drawn, lambda said: said[0])
    return parameters if seed == own else replace(parameters, random_state=seed)


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
