"""The fitted numbers of a model: where scores start, and the rounds that are added to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gbun.arrays import to_host
from gbun.data.scaling import Scaling
from gbun.dtypes import HEAD, FloatArray
from gbun.learners import AnyLearner, Step, StepRun, group_steps
from gbun.linear import LinearStart
from gbun.objectives import Objective
from gbun.scored_rows import ScoredRows, Start


@dataclass(frozen=True)
class Ensemble:
    """scores(x) = start + phi(x) theta + sum_t P_t(x) W_t.

    `learner` made the partitions P_t of the steps, and would make those of further rounds. Heads W_t are stored as they
    are added: shrinkage and step length are multiplied in.
    """

    learner: AnyLearner
    scaling: Scaling
    objective: Objective
    start: Start
    steps: tuple[Step, ...] = ()
    _runs: list[StepRun] = field(default_factory=list, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": []}  # they keep what prediction makes of the steps: not for pickles

    @property
    def runs(self) -> list[StepRun]:
        """The steps, grouped once, so that what prediction makes of them is kept."""
        if self.steps and not self._runs:
            self._runs[:] = group_steps(self.steps)
        return self._runs

    @property
    def n_rounds(self) -> int:
        return len(self.steps)

    @property
    def n_scores(self) -> int:
        return self.start.n_scores

    @property
    def linear(self) -> LinearStart | None:
        return self.start.linear

    @property
    def heads(self) -> FloatArray:
        """The heads of all rounds, T x K x C, of a learner that has the same K in each."""
        shape = (self.n_rounds, self.learner.n_outputs, self.n_scores)
        return np.array([step.head for step in self.steps], dtype=HEAD).reshape(shape)

    def first(self, n_rounds: int) -> Ensemble:
        """Return the ensemble as it was after `n_rounds` rounds."""
        return replace(self, steps=self.steps[:n_rounds])

    def staged_scores(self, rows: ScoredRows) -> Iterator[FloatArray]:
        """Yield the scores of rows after 0, 1, ..., T rounds; the same array each time, growing."""
        yield to_host(rows.scores)
        for step in self.steps:
            rows.add_rounds([step])
            yield to_host(rows.scores)

    def add_scores(self, rows: ScoredRows) -> FloatArray:
        """Add all rounds to the rows and return their scores, n x C."""
        rows.add_runs(self.runs)
        return to_host(rows.scores)
