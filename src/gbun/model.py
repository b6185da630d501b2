"""The fitted model: it predicts, can be saved, and describes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gbun.arrays import Array, to_real_numbers
from gbun.data.features import Features
from gbun.data.ingest import conform
from gbun.data.tensors import convert_output, foreign_to_numpy
from gbun.description import Description
from gbun.devices import Device, make_device
from gbun.dtypes import FloatArray
from gbun.ensemble import Ensemble
from gbun.interpretation import Interpretation
from gbun.kernels.costs import round_bytes
from gbun.kernels.placement import MIN_BATCH_ROWS, max_prediction_bytes, min_prediction_bytes, smallest_placement
from gbun.kernels.threads import ThreadPool, blas_limit, thread_count, thread_pool
from gbun.memory import FRACTION_OF_FREE
from gbun.model_io import model_bytes, read_model, read_model_bytes, write_model
from gbun.networks import Family
from gbun.scored_rows import Place, ScoredRows, scale

BLOCK = 2**18
Made = TypeVar("Made")


class Model(Interpretation):
    """What `gbun.train` and `gbun.load_model` return, and what every fitted estimator holds as `model_`."""

    def __init__(self, ensemble: Ensemble, description: Description) -> None:
        self.ensemble = ensemble
        self.description = description

    def __repr__(self) -> str:
        e, d = self.ensemble, self.description
        is_network = e.learner.family is not None and not e.learner.splits_columns
        unit = "neurons" if is_network else f"outputs ({e.learner.kind})"
        return (
            f"<gbun.Model: {d.task}, objective {e.objective.name}, "
            f"{'' if e.linear is None else 'a linear start and '}{e.n_rounds} rounds of {e.learner.n_outputs} "
            f"{unit}, {e.n_scores} score{'s' if e.n_scores > 1 else ''} a row>"
        )

    @property
    def n_rounds(self) -> int:
        return self.ensemble.n_rounds

    @property
    def classes(self) -> Array | None:
        return self.description.classes

    def save_model(self, path: str | Path) -> None:
        """Write a `.gbun` file; an existing file is replaced only once the new one is complete."""
        write_model(path, self.ensemble, self.description)

    def to_bytes(self) -> bytes:
        """Return the bytes of the model's `.gbun` file."""
        return model_bytes(self.ensemble, self.description)

    # Prediction: scores -> response -> label, each from the one before.

    def decision_function(
        self,
        X: Any,
        *,
        base_margin: Any = None,
        n_rounds: int | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        output: str = "numpy",
    ) -> Array:
        """Compute scores before the link.

        Parameters
        ----------
        X : array, sparse matrix, frame, tensor, list of dicts or of tokens
            n rows, as in training.
        base_margin : array of shape (n,) or (n, C), optional
            Scores to begin with, in place of the constant start.
        n_rounds : int, optional
            Use the first rounds only.
        n_jobs : int, optional
            Threads; None: all cores.
        device : str, default="cpu"
            Where rounds are computed, as in training.
        output : {"numpy", "input"}, default="numpy"
            "input" returns what X is, for example a tensor on the device of X.

        Returns
        -------
        ndarray of shape (n,), or (n, C) with several outputs, float64
        """
        scores = self._scores(X, base_margin, n_rounds, n_jobs, device)
        return convert_output(self._flat(scores), X, output)

    def predict_proba(
        self,
        X: Any,
        *,
        base_margin: Any = None,
        n_rounds: int | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        output: str = "numpy",
    ) -> Array:
        """Compute class probabilities; the parameters are those of `decision_function`.

        Returns
        -------
        ndarray of shape (n, C), float64
            For several labels, the probability of each label.
        """
        self._check_probabilities()
        scores = self._scores(X, base_margin, n_rounds, n_jobs, device)
        return convert_output(self._probabilities(scores), X, output)

    def predict(
        self,
        X: Any,
        *,
        base_margin: Any = None,
        n_rounds: int | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        output: str = "numpy",
    ) -> Array:
        """Predict labels of a classifier or values of a regressor; the parameters are those of `decision_function`.

        Returns
        -------
        ndarray of shape (n,), or (n, C) with several outputs or labels
        """
        scores = self._scores(X, base_margin, n_rounds, n_jobs, device)
        return convert_output(self._prediction(scores), X, output)

    def staged_predict(
        self, X: Any, *, base_margin: Any = None, n_jobs: int | None = None, device: str = "cpu"
    ) -> Iterator[Array]:
        """Yield the prediction of the start and after each round: one more than there are rounds."""
        return map(self._prediction, self._staged_scores(X, base_margin, n_jobs, device))

    def staged_predict_proba(
        self, X: Any, *, base_margin: Any = None, n_jobs: int | None = None, device: str = "cpu"
    ) -> Iterator[Array]:
        self._check_probabilities()
        return map(self._probabilities, self._staged_scores(X, base_margin, n_jobs, device))

    def staged_decision_function(
        self, X: Any, *, base_margin: Any = None, n_jobs: int | None = None, device: str = "cpu"
    ) -> Iterator[Array]:
        return map(self._flat, self._staged_scores(X, base_margin, n_jobs, device))

    def _staged_scores(self, X: Any, base_margin: Any, n_jobs: int | None, device: str) -> Iterator[Array]:
        # BLAS is not limited between stages: the caller may never ask for the next.
        where = make_device(device, n_threads=thread_count(n_jobs))
        features, margin = self._read(X, base_margin, where)
        e = self.ensemble
        with closing(ThreadPool(n_jobs)) as pool:
            place = Place(where, pool)
            features = scale(features, e.scaling, where, e.learner, e.start)
            if not where.compiled:  # all rows' scores stay there
                least, most = prediction_bytes(features, e, where)
                least += round_bytes(self._family(where), e.n_scores)
                made = within_memory(
                    lambda budget: self._rehearsed(features, margin, place, budget), least, most, where
                )
                if made is None:
                    raise short_of(where, least)
                rows = made
            else:
                rows, least = ScoredRows(features, e.start, margin, place), 0
            stages = e.staged_scores(rows)
            for _ in range(self.n_rounds + 1):
                with blas_limit.hold():
                    scores = where.try_to_allocate(lambda: next(stages).copy()) if least else next(stages).copy()
                if scores is None:
                    raise short_of(where, least)
                yield scores

    def _rehearsed(self, features: Features, margin: Array | None, place: Place, budget: int) -> ScoredRows:
        rows = ScoredRows(features, self.ensemble.start, margin, replace(place, budget=budget))
        rows.rehearse(self.ensemble.learner)
        return rows

    def _first(self, n_rounds: int | None) -> Ensemble:
        if n_rounds is None:
            return self.ensemble
        if not isinstance(n_rounds, Integral) or not 0 <= n_rounds <= self.n_rounds:
            raise ValueError(f"n_rounds must be from 0 to the model's {self.n_rounds} rounds, got {n_rounds!r}")
        return self.ensemble.first(n_rounds)

    def _scores(self, X: Any, base_margin: Any, n_rounds: int | None, n_jobs: int | None, device: str) -> Array:
        where = make_device(device, n_threads=thread_count(n_jobs))
        features, margin = self._read(X, base_margin, where)
        ensemble = self._first(n_rounds)
        n, first, at_a_time, parts = features.n_rows, 0, BLOCK, []
        needs_blas = ensemble.learner.uses_blas or ensemble.linear is not None
        with thread_pool(n_jobs) if needs_blas else closing(ThreadPool(n_jobs)) as pool:
            # Rows do not depend on each other: block by block, what is made of them does not grow with n.
            while first < n:
                last = min(first + at_a_time, n)
                some = None if margin is None else margin[first:last]
                scores = self._block_scores(ensemble, features.block(first, last), some, Place(where, pool))
                if scores is not None:
                    parts.append(scores)
                    first = last
                elif last - first > MIN_BATCH_ROWS:
                    at_a_time = max(MIN_BATCH_ROWS, (last - first) // 2)
                else:
                    family, size = self._family(where), (ensemble.n_scores, ensemble.n_rounds)
                    raise short_of(where, min_prediction_bytes(features, family, *size, where))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _block_scores(self, ensemble: Ensemble, features: Features, margin: Array | None, place: Place) -> Array | None:
        """Compute the scores of some rows; None where a device has too little memory for so many."""
        features = scale(features, ensemble.scaling, place.device, ensemble.learner, ensemble.start)

        def score(budget: int) -> Array:
            return ensemble.add_scores(ScoredRows(features, ensemble.start, margin, replace(place, budget=budget)))

        if place.device.compiled:
            return ensemble.add_scores(ScoredRows(features, ensemble.start, margin, place))
        return within_memory(score, *prediction_bytes(features, ensemble, place.device), place.device)

    def _read(self, X: Any, base_margin: Any, device: Device) -> tuple[Features, Array | None]:
        e = self.ensemble
        if not device.compiled:
            self._family(device)
        dense, tensors = e.scaling.dense is not None, not device.compiled
        features = conform(X, self.description.schema, dense, tensors=tensors)
        if features.n_rows == 0:
            raise ValueError("X has no rows")
        return features, None if base_margin is None else margin_array(base_margin, features.n_rows, e.n_scores)

    def _family(self, device: Device) -> Family:
        """Return the networks that a device computes; other learners predict on the host only."""
        learner = self.ensemble.learner
        if learner.family is None or learner.splits_columns:
            raise ValueError(
                f"a model with learner {learner.kind!r} predicts on device='cpu' only, got {device.name!r}"
            )
        return learner.family

    def _check_probabilities(self) -> None:
        if self.description.task == "regression":
            name = self.ensemble.objective.name
            raise ValueError(f"predict_proba needs a model of probabilities; this one's objective is {name!r}")

    def _flat(self, scores: Array) -> Array:
        single = self.ensemble.n_scores == 1 and self.description.single_column
        return scores[:, 0] if single else scores

    def _probabilities(self, scores: Array) -> Array:
        response = self.ensemble.objective.response(scores)
        if self.description.task == "classification" and response.shape[1] == 1:
            return np.column_stack([1.0 - response[:, 0], response[:, 0]])
        return response

    def _prediction(self, scores: Array) -> Array:
        if self.description.task == "regression":
            return self._flat(self.ensemble.objective.response(scores))
        if self.description.task == "multilabel":
            return (self.ensemble.objective.response(scores) > 0.5).astype(np.int64)
        codes = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0.0).astype(np.intp)
        classes = self.description.classes
        assert classes is not None
        return classes[codes]


def model_from_bytes(data: bytes, name: str | Path) -> Model:
    """Read a model from the bytes of a `.gbun` file; `name` is what errors call it."""
    return Model(*read_model_bytes(data, name))


def load_model(path: str | Path) -> Model:
    """Read the model in a `.gbun` file.

    A file that is truncated, altered or not a model gives a ValueError that says so; nothing in it is executed.
    """
    return Model(*read_model(path))


def prediction_bytes(features: Features, ensemble: Ensemble, device: Device) -> tuple[int, int]:
    """Return the least and the most memory of a device that predictions use."""
    size = features, ensemble.learner.n_outputs, ensemble.n_scores, device
    return smallest_placement(*size).n_bytes, max_prediction_bytes(*size)


def within_memory(make: Callable[[int], Made], least: int, most: int, device: Device) -> Made | None:
    """What `make` gives within a budget, smaller ones where a device turns out to have less memory than it said.

    It uses no more than `most` bytes. None where even `least` are too many.
    """
    budget = min(int(FRACTION_OF_FREE * device.free_bytes()), max(least, most))
    while True:
        made = device.try_to_allocate(lambda: make(budget))  # noqa: B023 - called here
        if made is not None or budget <= least:
            return made
        budget = max(least, budget // 2)


def short_of(device: Device, n_bytes: int) -> MemoryError:
    return MemoryError(
        f"device={device.name!r} ran out of memory with the smallest batches there are: {n_bytes} bytes must be free "
        "there"
    )


def margin_array(base_margin: Any, n_rows: int, n_scores: int) -> FloatArray:
    margin = to_real_numbers(foreign_to_numpy(base_margin, "base_margin"), "base_margin")
    if margin.ndim == 1 and n_scores == 1:
        margin = margin[:, None]
    if margin.shape != (n_rows, n_scores):
        raise ValueError(
            f"base_margin must hold {n_scores} score(s) for each of {n_rows} rows, got shape {np.shape(base_margin)}"
        )
    if not np.isfinite(margin).all():
        raise ValueError("base_margin must be finite")
    return margin
