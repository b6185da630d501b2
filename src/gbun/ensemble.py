"""The fitted ensemble: recipes, normalisations and heads; and the running scores of a set of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gbun.data.features import Features
from gbun.data.scaling import Scaling
from gbun.dtypes import SUM, FloatArray
from gbun.kernels import Kernels
from gbun.kernels.threads import Threads
from gbun.networks import Family, Network
from gbun.objectives import Objective
from gbun.solve import Normaliser


@dataclass(frozen=True)
class Ensemble:
    """scores(x) = start + sum_t P_t(x) W_t: T networks by recipe, their normalisation (T x K) and heads (T x K x C).

    Heads are stored as they are added: shrinkage and step length are multiplied in.
    """

    family: Family
    scaling: Scaling
    objective: Objective
    start: FloatArray
    centres: FloatArray
    factors: FloatArray
    heads: FloatArray

    @property
    def n_rounds(self) -> int:
        return len(self.heads)

    @property
    def n_scores(self) -> int:
        return len(self.start)

    def first(self, n_rounds: int) -> Ensemble:
        """The ensemble as it was after `n_rounds` rounds."""
        return replace(
            self,
            centres=self.centres[:n_rounds],
            factors=self.factors[:n_rounds],
            heads=self.heads[:n_rounds],
        )

    def staged_scores(self, rows: Rows) -> Iterator[FloatArray]:
        """Scores after 1, 2, ..., T rounds; the same array each time, growing."""
        for t in range(self.n_rounds):
            normaliser = Normaliser(self.centres[t], self.factors[t])
            rows.add_round(self.family.draw(t), normaliser, self.heads[t])
            yield rows.scores

    def scores(self, rows: Rows) -> FloatArray:
        for _ in self.staged_scores(rows):
            pass
        return rows.scores


class Rows:
    """Rows on their way through the rounds: their features, scaled, and their scores so far.

    Training rows, evaluation rows and rows to predict differ only in who watches.
    """

    def __init__(
        self,
        features: Features,
        family: Family,
        start: FloatArray,
        base_margin: FloatArray | None,
        threads: Threads,
        network: str = "auto",
    ) -> None:
        self.family = family
        self.kernels = Kernels(features, family.n_outputs, len(start), threads, network)
        self.scores: FloatArray = np.empty((features.n_rows, len(start)), dtype=SUM)
        # A base margin takes the place of the start value, as a score that was known before.
        self.scores[:] = start if base_margin is None else base_margin

    def add_round(self, network: Network, normaliser: Normaliser, head: FloatArray) -> None:
        self.kernels.forward(network)
        self.split(normaliser)
        self.add(head)

    def split(self, normaliser: Normaliser) -> None:
        """Turn the network's outputs into memberships: softmax of tau x normalised output."""
        factor = normaliser.factor * np.float32(self.family.temperature)
        self.kernels.memberships(normaliser.centre, factor, self.family.softmax_width)

    def add(self, head: FloatArray) -> None:
        """scores += P W"""

        def receive(rows: slice, step: FloatArray) -> None:
            self.scores[rows] += step

        self.kernels.apply(head, receive)
