"""Trees and networks in turn: what one kind of cell cannot express, the other one learns from the residual.

Rounds 0, 1 and 2 are trees, round 3 is a network, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gbun.checks import record, rule
from gbun.collectives import Collective
from gbun.learners.base import (
    Arrays,
    FittedRound,
    Learner,
    LearnerRows,
    Partition,
    RoundFitter,
    StatelessFitter,
    register_learner,
)
from gbun.learners.network import NetworkLearner
from gbun.learners.tree import TreeLearner
from gbun.networks import Family

CYCLE = 4  # rounds; the last one of each cycle is a network
PART = rule("an object", lambda value: isinstance(value, dict))
PARTS = record({"network": PART, "tree": PART})


def is_network_round(t: int) -> bool:
    return t % CYCLE == CYCLE - 1


@dataclass(frozen=True)
class MixedFitter:
    """A tree or a network, whichever round it is."""

    trees: RoundFitter
    networks: RoundFitter

    def restart(self) -> None:
        self.trees.restart()
        self.networks.restart()

    def take_rounds(self, partitions: Sequence[Partition]) -> None:
        self.trees.take_rounds([partition for partition in partitions if partition.network is None])

    def fit_round(self, t: int) -> FittedRound[Any]:
        return (self.networks if is_network_round(t) else self.trees).fit_round(t)


@register_learner
@dataclass(frozen=True)
class MixedLearner(Learner[Partition]):
    """Three trees and one network in turn."""

    network: NetworkLearner
    tree: TreeLearner
    kind = "mixed"
    splits_columns = True

    @property
    def family(self) -> Family:  # type: ignore[override]
        return self.network.family

    @property
    def n_outputs(self) -> int:
        return max(self.network.n_outputs, self.tree.n_outputs)

    @property
    def row_bytes(self) -> int:
        return self.tree.row_bytes

    def kept_bytes(self, n_rows: int, n_scores: int) -> int:
        return self.tree.kept_bytes(n_rows, n_scores)

    def begin(self, rows: LearnerRows, collective: Collective) -> MixedFitter:
        networks = StatelessFitter(self.network, rows, collective.sum)
        return MixedFitter(self.tree.begin(rows, collective), networks)

    def parameters(self) -> dict[str, Any]:
        return {"network": self.network.parameters(), "tree": self.tree.parameters()}

    @classmethod
    def from_parameters(cls, parameters: Any, n_columns: int | None) -> MixedLearner:
        parts = PARTS("header.learner.parameters", parameters)
        network = NetworkLearner.from_parameters(parts["network"], n_columns)
        return cls(network, TreeLearner.from_parameters(parts["tree"], n_columns))

    def pack(self, partitions: Sequence[Any]) -> Arrays:
        networks = [partition for t, partition in enumerate(partitions) if is_network_round(t)]
        trees = [partition for t, partition in enumerate(partitions) if not is_network_round(t)]
        arrays = {f"network.{name}": array for name, array in self.network.pack(networks).items()}
        return arrays | {f"tree.{name}": array for name, array in self.tree.pack(trees).items()}

    def unpack(self, arrays: Arrays, rounds: Sequence[int]) -> list[Partition]:
        parts: dict[str, dict[str, Any]] = {"network": {}, "tree": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            if part not in parts:
                raise ValueError(f"arrays must belong to the network or the tree, got {name!r}")
            parts[part][rest] = array
        of_networks = [t for t in rounds if is_network_round(t)]
        networks = iter(self.network.unpack(parts["network"], of_networks))
        trees = iter(self.tree.unpack(parts["tree"], [t for t in rounds if not is_network_round(t)]))
        return [next(networks) if is_network_round(t) else next(trees) for t in rounds]
