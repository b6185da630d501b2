"""Estimators and models of pyspark.ml: `GBUNClassifier`, `GBUNRegressor`, and what they fit."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlparse

from pyspark.ml.base import Estimator
from pyspark.ml.base import Model as SparkModel
from pyspark.ml.functions import array_to_vector

from gbun.config import parameter_fields, parameters_from
from gbun.model import Model
from gbun.spark import cluster
from gbun.spark.columns import by_rows, check_as_trained, column, columns_of, features
from gbun.spark.params import ClassifierParams, GBUNParams, with_setters
from gbun.spark.prediction import PREDICTION, PROBABILITY, RAW, digest_of, model_from, predictor
from gbun.spark.progress import Report
from gbun.spark.storage import Stored
from gbun.spark.worker import Job, Outcome

log = logging.getLogger("gbun.spark")


@dataclass(frozen=True)
class Summary:
    """How a training went.

    `evals_result`: {evaluation set: {metric: [one a round]}}, and `start` what the start was worth, before the first
    round; `seconds`: since the beginning of the rounds, after each; `workers`: what each worker says of itself.
    """

    evals_result: Mapping[str, Any]
    start: Mapping[str, Any]
    seconds: list[float]
    workers: tuple[Outcome, ...]

    def __repr__(self) -> str:
        last = {data: {name: values[-1] for name, values in own.items()} for data, own in self.evals_result.items()}
        rows = [worker.rows for worker in self.workers]
        taken = self.seconds[-1] if self.seconds else 0.0
        return f"Summary({len(self.seconds)} rounds in {taken:.1f} s, rows of each worker {rows}, at the end {last})"


class _Estimator(Estimator, GBUNParams, Stored):  # type: ignore[type-arg]
    """What both estimators share."""

    _task: ClassVar[str]
    _model: ClassVar[type[_Model]]

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self.setParams(**params)

    def _fit(self, dataset: Any) -> _Model:
        parameters = self.training_parameters()
        _check_functions(parameters)
        parameters_from(parameters)
        job = Job(
            parameters,
            self._task,
            columns_of(dataset.schema, self, training=True),
            self.getOrDefault("timeout"),
            self.getOrDefault("transport"),
            _folder(self.given("checkpointPath")),
            self.getOrDefault("checkpointInterval"),
        )
        n_workers, repartition = self.getOrDefault("numWorkers"), self.getOrDefault("repartition")
        trained = cluster.train(dataset, job, n_workers, repartition, self._heard)
        model = self._model()
        model._content = trained.model
        told = tuple(replace(outcome, model=None) for outcome in trained.outcomes)
        model._summary = Summary(**trained.outcomes[0].history, workers=told)
        model._resetUid(self.uid)
        return self._copyValues(model)

    def _heard(self, report: Report) -> None:
        log.info("%s", report)
        if self.getOrDefault("verbose"):
            sys.stderr.write(f"{report}\n")
        told = self.getOrDefault("onProgress")
        if callable(told):
            try:
                told(report)
            except Exception:
                log.exception("onProgress failed; training goes on")


class _Model(SparkModel, GBUNParams, Stored):
    """What both models share. Without a `_content` it is still to be read."""

    _content: bytes
    _booster: Model | None = None
    _summary: Summary | None = None
    _broadcast: Any = None

    def get_booster(self) -> Model:
        """The plain gbun model, which predicts the same without Spark."""
        if self._booster is None:
            self._booster = model_from(self._content)
        return self._booster

    @property
    def hasSummary(self) -> bool:
        return self._summary is not None

    @property
    def summary(self) -> Summary:
        """How the training went; a model that was loaded from a file does not know."""
        if self._summary is None:
            raise RuntimeError("no training summary: this model was loaded from a file")
        return self._summary

    @property
    def numFeatures(self) -> int:
        """The number of columns; -1 where features have names only, as tokens do."""
        found = self.get_booster().description.schema.n_columns
        return -1 if found is None else found

    def _outputs(self) -> dict[str, str]:
        """What is predicted, and the column it goes to."""
        return {PREDICTION: self.given("predictionCol")}

    def _transform(self, dataset: Any) -> Any:
        columns = columns_of(dataset.schema, self)
        check_as_trained(dataset.schema, columns, self.get_booster().description.schema)
        outputs = {made: name for made, name in self._outputs().items() if name is not None}
        taken = {name.lower() for name in dataset.columns}  # Spark does not tell them apart by case
        there = [name for name in outputs.values() if name.lower() in taken]
        if there:
            raise ValueError(f"columns {there} are already there; drop them, or choose other names for predictions")
        if not outputs:
            return dataset
        context = cluster.context_of(dataset)
        cpus = int(context.getConf().get("spark.task.cpus", "1"))
        function = predictor(self._sent(context), columns, list(outputs), self.getOrDefault("n_jobs") or cpus)
        packed = f"{self.uid}_predicted"
        found = dataset.withColumn(packed, by_rows(features(dataset.schema, columns)))
        found = found.withColumn(packed, function(column(packed)))
        for made, name in outputs.items():
            values = column(packed)[made]
            found = found.withColumn(name, values if made == PREDICTION else array_to_vector(values))
        return found.drop(packed)

    def _sent(self, context: Any) -> Any:
        """The model, broadcast once to the executors of this context."""
        if self._broadcast is None or self._broadcast[0] is not context:
            self._broadcast = context, context.broadcast((digest_of(self._content), self._content))
        return self._broadcast[1]


@with_setters
class GBUNRegressionModel(_Model):
    """A fitted `GBUNRegressor`."""


@with_setters
class GBUNClassificationModel(_Model, ClassifierParams):
    """A fitted `GBUNClassifier`."""

    @property
    def numClasses(self) -> int:
        classes = self.get_booster().classes
        return 0 if classes is None else len(classes)

    def _outputs(self) -> dict[str, str]:
        others = {RAW: self.given("rawPredictionCol"), PROBABILITY: self.given("probabilityCol")}
        return {**others, **super()._outputs()}


@with_setters
class GBUNRegressor(_Estimator):
    """Gradient boosting of untrained networks for numbers, on Spark."""

    _task = "regression"
    _model = GBUNRegressionModel


@with_setters
class GBUNClassifier(_Estimator, ClassifierParams):
    """Gradient boosting of untrained networks for classes, on Spark. Labels are numbers, and so are predictions."""

    _task = "classification"
    _model = GBUNClassificationModel


def _check_functions(parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, str) and one.startswith("<"):
                raise ValueError(
                    f"{name} {one} is a function, which the file of this estimator does not hold; say it again, "
                    f"setParams({name}=...), to train"
                )


def _folder(path: str | None) -> str | None:
    """A folder of a file system that executors see as such."""
    if path is None:
        return None
    parts = urlparse(path)
    if parts.scheme not in ("", "file") or (parts.scheme == "file" and parts.netloc not in ("", "localhost")):
        raise ValueError(
            f"checkpointPath must be a folder of a shared file system, plain or file:, got {path!r}; mount "
            f"{parts.scheme}: where executors reach it as files"
        )
    return str(Path(parts.path if parts.scheme else path).absolute())


def _describe(cls: type) -> None:
    """Add every parameter to the docstring: Spark's with their sentences, gbun's from `gbun.config`."""
    own = [param for param in cls().params if param.name not in {field.name for field in parameter_fields()}]
    lines = [f"{param.name} : {param.doc}" for param in own]
    lines += [
        f"{f.name} : {f.metadata['range']}, default {f.default!r}\n    {f.metadata['sentence']}"
        for f in parameter_fields()
    ]
    cls.__doc__ = f"{cls.__doc__}\n\nParameters\n----------\n" + "\n".join(lines)


_describe(GBUNClassifier)
_describe(GBUNRegressor)
