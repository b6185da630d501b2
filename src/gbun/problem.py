"""What a training works on: rows and evaluation sets in any accepted form, read, checked and divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.agreement import (
    SINGLE_WORKER,
    check_same,
    conform_share,
    decide_at_root,
    format_groups,
    format_ranks,
    group_ranks,
    ingest_share,
    run_or_raise_everywhere,
)
from gbun.collectives import Collective, Solo
from gbun.config import Parameters, printable_parameters
from gbun.data.features import Features, Schema, Shard
from gbun.data.tensors import foreign_to_numpy
from gbun.defaults import FOLDS, NETWORK_PARAMETERS, resolve_seed
from gbun.dtypes import SUM, FloatArray
from gbun.learners import AnyLearner, Learner, RowTotals, check_learner
from gbun.model import Model, margin_array
from gbun.splits import choose_held_out, hash_folds, sum_weights_by_part
from gbun.targets import Target, check_weights, make_target, to_weight_array


@dataclass
class Dataset:
    """Rows to train or evaluate on: features in any accepted form, targets, weights, scores to start from."""

    X: Any
    y: Any
    weight: Any = None
    base_margin: Any = None


Data = Dataset | tuple[Any, ...]

PARAMETERS_OF_PARTS = {
    "networks": NETWORK_PARAMETERS,
    "trees": ("n_leaves", "min_leaf_rows", "n_projections", "n_candidates"),
    "normal equations": ("gram_rows", "hessian"),
}
DEFAULTS = Parameters()
LOCAL_PARAMETERS = ("n_jobs", "device", "tf32", "memory_budget", "network", "verbose", "random_state")
"""Parameters in which workers may differ; the seed is the root's."""


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
    totals: RowTotals
    initial: Model | None = None
    collective: Collective = field(default_factory=Solo)
    learner: AnyLearner | None = None  # that the caller gave
    copies: Sequence[Shard] = ()  # those of the rows and sets that were copied from a problem that is kept

    @property
    def seed(self) -> int:
        return resolve_seed(self.parameters.random_state)

    @property
    def held_out_name(self) -> str:
        """What held-out rows are called among the evaluation sets of the user."""
        return "validation" if "validation" not in self.shards else "held out"

    def with_rows(self, shard: Shard, shards: dict[str, Shard]) -> Problem:
        """Return the problem of copies of some rows, and of evaluation sets."""
        copies = [shard, *(s for name, s in shards.items() if s is not self.shards.get(name))]
        totals = sum_row_totals(shard, self.collective)
        return replace(self, shard=shard, shards=shards, totals=totals, copies=copies)

    def choose_held_out(self, several: bool) -> list[NDArray[np.bool_]]:
        """Choose the rows to judge by; the others are those to fit.

        `several` chooses several times, so that each row judges once: for few rows. All workers return as many choices,
        though a worker's share may be empty; none where equal rows, which stay together, leave a side empty.
        """
        local, collective = self.shard, self.collective
        if several:
            fold = hash_folds(local.features, local.y, self.seed, FOLDS)
            weights = collective.sum(sum_weights_by_part(fold, local.weight, FOLDS))
            filled = np.flatnonzero(weights > 0.0)
            return [fold == k for k in filled] if len(filled) > 1 else []
        fraction, by_class = self.parameters.validation_fraction, self.target.task == "classification"
        held = choose_held_out(local.features, local.y, local.weight, fraction, self.seed, by_class, collective)
        return [] if held is None else [held]


def sum_row_totals(rows: Shard, collective: Collective) -> RowTotals:
    """Count the rows of all workers and sum their weights."""
    local = np.array([rows.n_rows, np.count_nonzero(rows.weight), rows.weight.sum()], dtype=SUM)
    n_rows, n_weighted, weight = collective.sum(local).tolist()
    return RowTotals(int(n_rows), int(n_weighted), weight)


def divide_rows(rows: Shard, held: NDArray[np.bool_]) -> tuple[Shard, Shard]:
    """Return the rows that are not held out, and those that are."""
    return rows.take(np.flatnonzero(~held)), rows.take(np.flatnonzero(held))


def read_problem(
    parameters: Parameters,
    dataset: Dataset,
    evals: Mapping[str, Dataset],
    initial: Model | None = None,
    task: str | None = None,
    collective: Collective = SINGLE_WORKER,
    learner: AnyLearner | None = None,
) -> Problem:
    """Read and check rows in any accepted form.

    Each worker brings a share of the rows and of each evaluation set, which may be empty. Decisions are based on the
    rows of all workers; if one share is bad, no worker goes on.
    """
    if not (learner is None or isinstance(learner, Learner)):
        raise ValueError(f"learner must be a gbun.learners.Learner or None, got {type(learner).__name__}")
    shared = {name: v for name, v in printable_parameters(parameters).items() if name not in LOCAL_PARAMETERS}
    if learner is not None:
        shared["learner"] = [learner.kind, learner.parameters()]
    decide_at_root(collective, shared, lambda values: check_same(values, "on all workers"))
    parameters = _share_seed(parameters, collective)
    decide_at_root(collective, list(evals), _check_same_sets)
    tensors = parameters.device != "cpu"
    if initial is None:
        features, schema = ingest_share(dataset.X, collective, tensors, parameters.categorical_features)
        target = make_target(parameters, dataset.y, task, collective=collective)
    else:
        schema, dense = initial.description.schema, initial.ensemble.scaling.dense is not None
        features = conform_share(dataset.X, schema, dense, "X", tensors, collective)
        task = task or initial.description.task.replace("multilabel", "classification")
        target = make_target(parameters, dataset.y, task, initial.classes, collective)
    shard = make_shard(features, target.y, dataset, target, "", collective)
    shards = {}
    for name, d in evals.items():
        conformed = conform_share(d.X, schema, features.dense is not None, f"X of {name!r}", tensors, collective)
        y = target.encode(d.y, f"y of {name!r}", collective)
        shards[name] = make_shard(conformed, y, d, target, f" of {name!r}", collective)
    if learner is not None:
        check_learner(learner, schema.n_columns if schema.kind == "array" else None)
        check_unused_parameters(parameters, learner)
    totals = sum_row_totals(shard, collective)
    return Problem(parameters, target, schema, shard, shards, totals, initial, collective, learner)


def check_unused_parameters(parameters: Parameters, learner: AnyLearner) -> None:
    """Refuse parameters that this learner would ignore."""
    uses = {
        "networks": learner.family is not None,
        "trees": learner.splits_columns,
        "normal equations": learner.family is not None or not learner.splits_columns,  # trees bring their own
    }
    for parts, names in PARAMETERS_OF_PARTS.items():
        for name in () if uses[parts] else names:
            if getattr(parameters, name) != getattr(DEFAULTS, name):
                raise ValueError(
                    f"{name}={getattr(parameters, name)!r} is a parameter of {parts}, which learner {learner.kind!r} "
                    "does not use; leave it out"
                )


def make_shard(
    features: Features,
    y: FloatArray,
    dataset: Dataset,
    target: Target,
    of: str = "",
    collective: Collective = SINGLE_WORKER,
) -> Shard:
    """Check the rows of this worker, and that all workers agree on base margins; `of` names the set in errors."""
    is_shard = collective.size > 1  # one of several workers may have no rows, a single one must have some
    shard = run_or_raise_everywhere(collective, lambda: _local_shard(features, y, dataset, target, of, is_shard))
    has_margin = shard.base_margin is not None
    summary = shard.n_rows, has_margin, float(shard.weight.sum())
    with_margin = decide_at_root(collective, summary, lambda summaries: _check_summaries(summaries, of))
    if with_margin == has_margin:
        return shard
    return replace(shard, base_margin=np.zeros((0, target.objective.n_outputs(y))) if with_margin else None)


def _local_shard(features: Features, y: FloatArray, dataset: Dataset, target: Target, of: str, is_shard: bool) -> Shard:
    n = features.n_rows
    if n == 0 and not is_shard:
        raise ValueError(f"X{of} has no rows")
    if len(y) != n:
        raise ValueError(f"X{of} has {n} rows, y{of} has {len(y)}: one target for each row is needed")
    margin = None
    if dataset.base_margin is not None and n:
        margin = margin_array(dataset.base_margin, n, target.objective.n_outputs(y))
    return Shard(features, y, to_weight_array(dataset.weight, n, share=is_shard), margin)


def _check_summaries(summaries: list[Any], of: str) -> bool:
    """Return whether there are margins, from (rows, has margins, weight) of each worker."""
    margins = group_ranks({rank: bool(margin) for rank, (n, margin, _) in enumerate(summaries) if n})
    if len(margins) > 1:
        raise ValueError(
            f"base_margin{of} must be given on all workers or on none, got it on {format_ranks(margins[True])} and not "
            f"on {format_ranks(margins[False])}"
        )
    check_weights(sum(weight for *_, weight in summaries))
    return True in margins


def _check_same_sets(names_by_rank: list[Any]) -> None:
    sets = group_ranks({rank: ", ".join(map(repr, names)) or "none" for rank, names in enumerate(names_by_rank)})
    if len(sets) > 1:
        raise ValueError(
            f"evals must name the same sets in the same order on all workers, empty ones too, got {format_groups(sets)}"
        )


def _share_seed(parameters: Parameters, collective: Collective) -> Parameters:
    """Draw the seed once, and give all workers that of the root: they draw the same networks."""
    given = parameters.random_state
    drawn = run_or_raise_everywhere(collective, lambda: None if given is None else resolve_seed(given))
    seed = decide_at_root(collective, drawn, lambda seeds: seeds[0])
    return parameters if seed == given else replace(parameters, random_state=seed)


def as_dataset(data: Data, name: str = "data") -> Dataset:
    """Return a `Dataset` whose targets, weights and margins are on the host, whatever library they come from."""
    if isinstance(data, tuple) and 2 <= len(data) <= 4:
        data = Dataset(*data)
    if isinstance(data, Dataset):
        arrays = {"y": data.y, "sample_weight": data.weight, "base_margin": data.base_margin}
        return Dataset(data.X, *(foreign_to_numpy(values, name) for name, values in arrays.items()))
    raise ValueError(
        f"{name} must be a gbun.Dataset or a tuple (X, y[, weight[, base_margin]]), got {type(data).__name__}"
    )


def named_sets(evals: Mapping[str, Data] | Iterable[tuple[Data, str]]) -> dict[str, Dataset]:
    """Return evaluation sets by name."""
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
