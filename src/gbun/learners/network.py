"""The softmax network, the paper's base learner: drawn from a seed, normalised by sums, never trained.

    Z = X N_t,   P = softmax(tau (Z - centre) x factor)

N_t is made by hashing (`gbun.networks`). Centre and factor are the mean and 1 / deviation of each output over all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gbun.checks import check_array, check_names, integer, number, one_of, optional, record
from gbun.dtypes import MEMBERSHIP, FloatArray
from gbun.learners.base import Arrays, DataIndependentLearner, LearnerRows, Partition, RowTotals, register_learner
from gbun.networks import Family, Network
from gbun.solve import Normaliser, make_normaliser

DENSITY = number("from 0.001 to 1", lambda x: 0.001 <= x <= 1.0)
COUNT = integer(0, 2**63 - 1)
PARAMETERS = record(
    {
        "kind": one_of("simhash++"),
        "seed": COUNT,
        "n_outputs": integer(2, 16384),
        "group_size": optional(integer(2, 16384)),
        "density": DENSITY,
        "sparse_density": DENSITY,
        "temperature": number("above 0", lambda x: x > 0.0),
        "n_columns": optional(COUNT),
    }
)
DOUBLINGS = integer(0, 16)


@dataclass(frozen=True)
class NetworkPartition(Partition):
    """A network and the normalisation of its outputs; the network kernels compute its memberships."""

    network: Network = field()  # no default, unlike the attribute of the base class
    normaliser: Normaliser

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.network, self.normaliser)  # without caches: a pickle does not grow with use

    @property
    def n_outputs(self) -> int:
        return self.network.family.n_outputs

    @property
    def centre(self) -> FloatArray:
        """The mean of each output, (K,)."""
        return self.normaliser.centre

    @cached_property
    def slope(self) -> FloatArray:
        """The factor that normalises outputs times the temperature, (K,)."""
        return np.asarray(self.normaliser.factor * self.network.temperatures)


@register_learner
@dataclass(frozen=True)
class NetworkLearner(DataIndependentLearner[NetworkPartition]):
    """Draws the network of round t from its family and normalises it."""

    family: Family = field()
    kind = "network"

    @property
    def n_outputs(self) -> int:
        return self.family.n_outputs

    def local_sums(self, t: int, rows: LearnerRows) -> FloatArray:
        return rows.forward(self.family.draw(t))

    def no_sums(self) -> FloatArray:
        return np.zeros((2, self.n_outputs))

    def complete(self, t: int, sums: FloatArray, totals: RowTotals) -> NetworkPartition:
        return NetworkPartition(self.family.draw(t), make_normaliser(totals.weight, totals.n_weighted, sums))

    def to_array(self, partition: NetworkPartition | None) -> FloatArray:
        if partition is None:
            return np.zeros((2, self.n_outputs), dtype=MEMBERSHIP)
        return np.stack([partition.normaliser.centre, partition.normaliser.factor])

    def from_array(self, t: int, array: FloatArray) -> NetworkPartition:
        return NetworkPartition(self.family.draw(t), Normaliser(*array))

    def parameters(self) -> dict[str, Any]:
        parameters = asdict(self.family)
        if not self.family.temperature_doublings:  # files written before there were any stay the same
            del parameters["temperature_doublings"]
        return parameters

    @classmethod
    def from_parameters(cls, parameters: Any, n_columns: int | None) -> NetworkLearner:
        stated, doublings = parameters, 0
        if isinstance(parameters, dict) and "temperature_doublings" in parameters:
            stated = {name: value for name, value in parameters.items() if name != "temperature_doublings"}
            doublings = DOUBLINGS(
                "header.learner.parameters.temperature_doublings", parameters["temperature_doublings"]
            )
        family = {**PARAMETERS("header.learner.parameters", stated), "temperature_doublings": doublings}
        outputs, group, columns = family["n_outputs"], family["group_size"], family["n_columns"]
        if group is not None and outputs % group:
            raise ValueError(f"header.learner.parameters.group_size must divide n_outputs ({outputs}), got {group}")
        # Kernels keep a table of n_columns rows and read it without a check: ids beyond must be impossible.
        if columns not in (None, n_columns):
            raise ValueError(
                f"header.learner.parameters.n_columns must be null or the schema's ({n_columns}), got {columns}"
            )
        return cls(Family(**family))

    def pack(self, partitions: Sequence[NetworkPartition]) -> Arrays:
        arrays = np.zeros((len(partitions), 2, self.n_outputs), dtype=MEMBERSHIP)
        for t, partition in enumerate(partitions):
            if partition.normaliser.centre.shape != (self.n_outputs,):
                shape = partition.normaliser.centre.shape
                raise ValueError(f"centre and factor must have shape ({self.n_outputs},), got {shape} in round {t}")
            arrays[t] = self.to_array(partition)
        return {"centres": arrays[:, 0], "factors": arrays[:, 1]}

    def unpack(self, arrays: Arrays, rounds: Sequence[int]) -> list[NetworkPartition]:
        check_names(arrays, ("centres", "factors"))
        for name in ("centres", "factors"):
            check_array(name, arrays[name], "float32", (len(rounds), self.n_outputs))
        pairs = zip(arrays["centres"], arrays["factors"], strict=True)
        return [self.from_array(t, np.stack(pair)) for t, pair in zip(rounds, pairs, strict=True)]
