"""The fitted model as users meet it: it predicts, it can be saved, and it says what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gbun.arrays import Array, real_numbers
from gbun.data.features import Features
from gbun.data.ingest import conform
from gbun.data.tensors import like_input, on_host
from gbun.description import Description
from gbun.devices import Device, TorchDevice, device_of
from gbun.dtypes import FloatArray
from gbun.ensemble import Ensemble, Rows, scaled
from gbun.kernels.device_plan import FEW_ROWS, least_bytes, most_bytes, round_bytes, smallest
from gbun.kernels.threads import Threads, one_blas_thread, thread_count, threads
from gbun.memory import SHARE_OF_FREE
from gbun.model_io import read_model, write_model

BLOCK = 2**18
Made = TypeVar("Made")


class Model:
    """What `gbun.train` and `gbun.load_model` return, and what every fitted estimator holds as `model_`."""

    def __init__(self, ensemble: Ensemble, description: Description) -> None:
        self.ensemble = ensemble
        self.description = description

    def __repr__(self) -> str:
        e, d = self.ensemble, self.description
        return (
            f"<gbun.Model: {d.task}, objective {e.objective.name}, "
            f"{'' if e.linear is None else 'a linear start and '}{e.n_rounds} rounds of {e.family.n_outputs} "
            f"neurons, {e.n_scores} score{'s' if e.n_scores > 1 else ''} a row>"
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
        """Scores before the link: n of them, or n x C with several outputs."""
        scores = self._scores(X, base_margin, n_rounds, n_jobs, device)
        return like_input(self._flat(scores), X, output)

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
        """Class probabilities, n x C; for several labels, the probability of each label."""
        self._check_probabilities()
        scores = self._scores(X, base_margin, n_rounds, n_jobs, device)
        return like_input(self._probabilities(scores), X, output)

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
        """Labels of a classifier, values of a regressor.

        Of all predictions: `n_rounds` uses the first rounds only; `device` is where they are computed, as in training;
        `output="input"` gives what X is, a torch tensor on X's device for one, instead of NumPy's array.
        """
        scores = self._scores(X, base_margin, n_rounds, n_jobs, device)
        return like_input(self._prediction(scores), X, output)

    def staged_predict(
        self, X: Any, *, base_margin: Any = None, n_jobs: int | None = None, device: str = "cpu"
    ) -> Iterator[Array]:
        """The prediction of the start, and after each round: one more than there are rounds."""
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
        # Nothing is held while the caller looks at a stage: he may never ask for the next.
        where = device_of(device, n_threads=thread_count(n_jobs))
        features, margin = self._read(X, base_margin, where)
        pool, e = Threads(n_jobs), self.ensemble
        features = scaled(features, e.scaling, where)
        if isinstance(where, TorchDevice):  # all rows' scores stay there
            size = features, e.family.n_outputs, e.n_scores, where
            least, most = smallest(*size).n_bytes + round_bytes(e.family, e.n_scores), most_bytes(*size)
            rows = within_memory(partial(self._rehearsed, features, margin, pool, where), least, most, where)
            if rows is None:
                raise short_of(where, least)
        else:
            rows, least = self._rows(features, margin, pool, where), 0
        stages = e.staged_scores(rows)
        for _ in range(self.n_rounds + 1):
            with one_blas_thread():
                scores = where.unless_out_of_memory(lambda: next(stages).copy()) if least else next(stages).copy()
            if scores is None:
                raise short_of(where, least)
            yield scores

    def _rehearsed(self, features: Features, margin: Array | None, pool: Threads, device: Device, budget: int) -> Rows:
        rows = self._rows(features, margin, pool, device, budget)
        rows.rehearse()
        return rows

    def _first(self, n_rounds: int | None) -> Ensemble:
        if n_rounds is None:
            return self.ensemble
        if not isinstance(n_rounds, Integral) or not 0 <= n_rounds <= self.n_rounds:
            raise ValueError(f"n_rounds must be from 0 to the model's {self.n_rounds} rounds, got {n_rounds!r}")
        return self.ensemble.first(n_rounds)

    def _scores(self, X: Any, base_margin: Any, n_rounds: int | None, n_jobs: int | None, device: str) -> Array:
        where = device_of(device, n_threads=thread_count(n_jobs))
        features, margin = self._read(X, base_margin, where)
        ensemble = self._first(n_rounds)
        n, first, at_a_time, parts = features.n_rows, 0, BLOCK, []
        with threads(n_jobs) as pool:
            # Rows do not depend on each other: block by block, what is made of them does not grow with n.
            while first < n:
                last = min(first + at_a_time, n)
                own = None if margin is None else margin[first:last]
                scores = self._block_scores(ensemble, features.block(first, last), own, pool, where)
                if scores is not None:
                    parts.append(scores)
                    first = last
                elif last - first > FEW_ROWS:
                    at_a_time = max(FEW_ROWS, (last - first) // 2)
                else:
                    raise short_of(
                        where, least_bytes(features, ensemble.family, ensemble.n_scores, ensemble.n_rounds, where)
                    )
        return np.concatenate(parts)

    def _block_scores(
        self, ensemble: Ensemble, features: Features, margin: Array | None, pool: Threads, device: Device
    ) -> Array | None:
        """Scores of some rows; None where a device has too little memory for so many."""
        features = scaled(features, ensemble.scaling, device)
        if not isinstance(device, TorchDevice):
            return ensemble.scores(self._rows(features, margin, pool, device))
        size = features, ensemble.family.n_outputs, ensemble.n_scores, device
        return within_memory(
            lambda budget: ensemble.scores(self._rows(features, margin, pool, device, budget)),
            smallest(*size).n_bytes,
            most_bytes(*size),
            device,
        )

    def _read(self, X: Any, base_margin: Any, device: Device) -> tuple[Features, Array | None]:
        e = self.ensemble
        dense, tensors = e.scaling.dense is not None, isinstance(device, TorchDevice)
        features = conform(X, self.description.schema, dense, tensors=tensors)
        if features.n_rows == 0:
            raise ValueError("X has no rows")
        return features, None if base_margin is None else margin_array(base_margin, features.n_rows, e.n_scores)

    def _rows(self, features: Features, margin: Array | None, pool: Threads, device: Device, budget: int = 0) -> Rows:
        """`features` are scaled."""
        e = self.ensemble
        return Rows(features, e.family, e.start, margin, pool, linear=e.linear, device=device, budget=budget)

    def _check_probabilities(self) -> None:
        objective = self.ensemble.objective
        if self.description.task == "regression":
            raise ValueError(
                f"predict_proba needs a model of probabilities; this one's objective is {objective.name!r}"
            )

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
        return self.description.labels(codes)


def load_model(path: str | Path) -> Model:
    """The model in a `.gbun` file.

    A file that is truncated, altered or not a model gives a ValueError that says so; nothing in it is executed.
    """
    return Model(*read_model(path))


def within_memory(make: Callable[[int], Made], least: int, most: int, device: Device) -> Made | None:
    """What `make` gives within a budget, smaller ones where a device turns out to have less memory than it said.

    It uses no more than `most` bytes. None where even `least` are too many.
    """
    budget = min(int(SHARE_OF_FREE * device.free_bytes()), max(least, most))
    while True:
        made = device.unless_out_of_memory(lambda: make(budget))  # noqa: B023 - called here
        if made is not None or budget <= least:
            return made
        budget = max(least, budget // 2)


def short_of(device: Device, n_bytes: int) -> MemoryError:
    return MemoryError(
        f"device={device.name!r} ran out of memory with the smallest batches there are: {n_bytes} bytes must be free "
        "there"
    )


def margin_array(base_margin: Any, n_rows: int, n_scores: int) -> FloatArray:
    margin = real_numbers(on_host(base_margin, "base_margin"), "base_margin")
    if margin.ndim == 1 and n_scores == 1:
        margin = margin[:, None]
    if margin.shape != (n_rows, n_scores):
        raise ValueError(
            f"base_margin must hold {n_scores} score(s) for each of {n_rows} rows, got shape {np.shape(base_margin)}"
        )
    if not np.isfinite(margin).all():
        raise ValueError("base_margin must be finite")
    return margin
