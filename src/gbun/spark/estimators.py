"""Estimators and models of pyspark.ml: `GBUNClassifier`, `GBUNRegressor`, and their fitted models."""

from __future__ import annotations

import hashlib
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

from gbun.config import make_parameters, parameter_fields
from gbun.explain import Importance
from gbun.model import Model, model_from_bytes
from gbun.spark import cluster
from gbun.spark.columns import check_matches_training, column, feature_struct, force_row_evaluation, resolve_columns
from gbun.spark.contributions import CONTRIBUTIONS, contribution_column, contribution_outputs
from gbun.spark.importance import importance
from gbun.spark.params import ClassifierParams, GBUNParams, add_accessors
from gbun.spark.prediction import PREDICTION, PROBABILITY, RAW, make_predictor
from gbun.spark.progress import RoundProgress
from gbun.spark.storage import SavedInFiles
from gbun.spark.worker import Outcome, TrainingJob

log = logging.getLogger("gbun.spark")


@dataclass(frozen=True)
class Summary:
    """Summary of a training.

    Attributes
    ----------
    evals_result : dict
        {evaluation set: {metric: [a value for each round]}}.
    start : dict
        {evaluation set: {metric: value}} before the first round.
    seconds : list of float
        For each round, seconds from the beginning of the first round to its end.
    workers : tuple of Outcome
        `rows`, `seconds` and so on of each worker, in rank order.
    """

    evals_result: Mapping[str, Any]
    start: Mapping[str, Any]
    seconds: list[float]
    workers: tuple[Outcome, ...]

    def __repr__(self) -> str:
        last = {data: {name: v[-1] for name, v in metrics.items()} for data, metrics in self.evals_result.items()}
        rows = [worker.rows for worker in self.workers]
        seconds = self.seconds[-1] if self.seconds else 0.0
        return f"Summary({len(self.seconds)} rounds in {seconds:.1f} s, rows of each worker {rows}, at the end {last})"


class _SparkEstimator(Estimator, GBUNParams, SavedInFiles):  # type: ignore[type-arg]
    """Common part of both estimators."""

    _task: ClassVar[str]
    _model: ClassVar[type[_Model]]

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self.setParams(**params)

    def _fit(self, dataset: Any) -> _Model:
        parameters = self.training_parameters()
        _check_functions(parameters)
        make_parameters(parameters)  # rules between parameters are checked before a job starts
        columns = resolve_columns(dataset.schema, self, training=True)
        folder = _checkpoint_folder(self.get_or_none("checkpointPath"))
        timeout, transport, interval = map(self.getOrDefault, ("timeout", "transport", "checkpointInterval"))
        job = TrainingJob(parameters, self._task, columns, timeout, transport, folder, interval)
        n_workers, repartition = self.getOrDefault("numWorkers"), self.getOrDefault("repartition")
        outcomes = cluster.train(dataset, job, n_workers, repartition, self._report_progress)
        model = self._model()
        model._content = outcomes[0].model or b""
        workers = tuple(replace(outcome, model=None) for outcome in outcomes)
        model._summary = Summary(**outcomes[0].history, workers=workers)
        model._resetUid(self.uid)
        return self._copyValues(model)

    def _report_progress(self, report: RoundProgress) -> None:
        log.info("%s", report)
        if self.getOrDefault("verbose"):
            sys.stderr.write(f"{report}\n")
        on_progress = self.getOrDefault("onProgress")
        if callable(on_progress):
            try:
                on_progress(report)
            except Exception:
                log.exception("onProgress failed; training goes on")


class _Model(SparkModel, GBUNParams, SavedInFiles):
    """Common part of both models. `_content` is set by `fit` or by the reader of files."""

    _content: bytes
    _booster: Model | None = None
    _summary: Summary | None = None
    _broadcast: Any = None

    def get_booster(self) -> Model:
        """Return the `gbun.Model`, which predicts the same without Spark."""
        if self._booster is None:
            self._booster = model_from_bytes(self._content, "the model")
        return self._booster

    @property
    def hasSummary(self) -> bool:
        return self._summary is not None

    @property
    def summary(self) -> Summary:
        """The summary of the training; a model that was loaded from a file has none."""
        if self._summary is None:
            raise RuntimeError("no training summary: this model was loaded from a file")
        return self._summary

    @property
    def numFeatures(self) -> int:
        """The number of columns; -1 if features have names only, as tokens do."""
        n_columns = self.get_booster().description.schema.n_columns
        return -1 if n_columns is None else n_columns

    def _outputs(self) -> dict[str, str]:
        """Map each output to the name of its column."""
        return {PREDICTION: self.get_or_none("predictionCol"), CONTRIBUTIONS: self.get_or_none("contributionsCol")}

    def _transform(self, dataset: Any) -> Any:
        columns = resolve_columns(dataset.schema, self)
        check_matches_training(dataset.schema, columns, self.get_booster().description.schema)
        outputs = {output: name for output, name in self._outputs().items() if name is not None}
        taken = {name.lower() for name in dataset.columns}  # Spark ignores the case of names
        existing = [name for name in outputs.values() if name.lower() in taken]
        if existing:
            raise ValueError(f"columns {existing} are already there; drop them, or choose other names for predictions")
        contributions = outputs.get(CONTRIBUTIONS, "")
        same = [output for output, name in outputs.items() if name.lower() == contributions.lower()]
        if len(same) > 1:
            raise ValueError(
                f"columns of predictions must have different names, got {contributions!r} for "
                f"{' and '.join(f'{output}Col' for output in same)}"
            )
        if not outputs:
            return dataset
        made = [output for output in outputs if output != CONTRIBUTIONS]
        if CONTRIBUTIONS in outputs:
            made += contribution_outputs(self.get_booster())
        broadcast, n_jobs = self._prepare_executors(dataset)
        predict = make_predictor(broadcast, columns, made, n_jobs)
        packed = f"{self.uid}_predicted"
        result = dataset.withColumn(packed, force_row_evaluation(feature_struct(dataset.schema, columns)))
        result = result.withColumn(packed, predict(column(packed)))
        for output, name in outputs.items():
            if output == CONTRIBUTIONS:
                values = contribution_column(self.get_booster(), column(packed))
            else:
                values = column(packed)[output]
                values = values if output == PREDICTION else array_to_vector(values)
            result = result.withColumn(name, values)
        return result.drop(packed)

    def importance(self, dataset: Any = None, top: int | None = None, *, kind: str | None = None) -> Importance:
        """Compute one number for each column of the features: how much it matters.

        Parameters
        ----------
        dataset : DataFrame, optional
            Rows with the features' columns; executors explain them, and sums alone go to the driver.
        top : int, optional
            Keep so many columns or tokens, the most important first; only these go to the driver. Give it where there
            are very many columns.
        kind : {"gain", "contribution"}, optional
            What splits by a column gained in training; the mean absolute contribution to the scores of the rows.
            None: "contribution" with rows, "gain" without.

        Returns
        -------
        gbun.explain.Importance
            As `gbun.Model.importance`: ``names`` are those of plain columns, numbers of vectors' elements, or tokens.
        """
        kind = kind or ("gain" if dataset is None else "contribution")
        if kind not in ("gain", "contribution"):
            raise ValueError(
                f"kind must be 'gain' or 'contribution' on Spark, got {kind!r}; get_booster().importance has all kinds"
            )
        if (dataset is None) != (kind == "gain"):
            raise ValueError(f"kind={kind!r} needs {'a data frame' if dataset is None else 'no rows'}")
        model = self.get_booster()
        if dataset is None:
            return model.importance(kind=kind, top=top)
        columns = resolve_columns(dataset.schema, self)
        check_matches_training(dataset.schema, columns, model.description.schema)
        return importance(dataset, model, columns, top, *self._prepare_executors(dataset))

    def _prepare_executors(self, dataset: Any) -> tuple[Any, int]:
        """Broadcast the model; return it and the number of threads of a task."""
        context = cluster.context_of(dataset)
        n_jobs = self.getOrDefault("n_jobs") or int(context.getConf().get("spark.task.cpus", "1"))
        return self._broadcast_model(context), n_jobs

    def _broadcast_model(self, context: Any) -> Any:
        """Broadcast the model, once for each Spark context."""
        if self._broadcast is None or self._broadcast[0] is not context:
            digest = hashlib.sha256(self._content).digest()
            self._broadcast = context, context.broadcast((digest, self._content))
        return self._broadcast[1]


@add_accessors
class GBUNRegressionModel(_Model):
    """A fitted `GBUNRegressor`."""


@add_accessors
class GBUNClassificationModel(_Model, ClassifierParams):
    """A fitted `GBUNClassifier`."""

    @property
    def numClasses(self) -> int:
        classes = self.get_booster().classes
        return 0 if classes is None else len(classes)

    def _outputs(self) -> dict[str, str]:
        vectors = {RAW: self.get_or_none("rawPredictionCol"), PROBABILITY: self.get_or_none("probabilityCol")}
        return {**vectors, **super()._outputs()}


@add_accessors
class GBUNRegressor(_SparkEstimator):
    """Gradient boosting of untrained networks and trees for regression, on Spark."""

    _task = "regression"
    _model = GBUNRegressionModel


@add_accessors
class GBUNClassifier(_SparkEstimator, ClassifierParams):
    """Gradient boosting of untrained networks and trees for classes, on Spark. Labels and predictions are numbers."""

    _task = "classification"
    _model = GBUNClassificationModel


def _check_functions(parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, str) and item.startswith("<"):
                raise ValueError(
                    f"{name} {item} is a function, which the file of this estimator does not hold; set it again, "
                    f"setParams({name}=...), to train"
                )


def _checkpoint_folder(path: str | None) -> str | None:
    """Check that checkpoints are on a file system that executors mount, and return their folder."""
    if path is None:
        return None
    parts = urlparse(path)
    if parts.scheme not in ("", "file") or (parts.scheme == "file" and parts.netloc not in ("", "localhost")):
        raise ValueError(
            f"checkpointPath must be a folder of a shared file system, plain or file:, got {path!r}; mount "
            f"{parts.scheme}: where executors reach it as files"
        )
    return str(Path(parts.path if parts.scheme else path).absolute())


_TRAINING_DOCS = {
    f.name: f"{f.name} : {f.metadata['range']}, default {f.default!r}\n    {f.metadata['sentence']}"
    for f in parameter_fields()
}
for _cls in (GBUNClassifier, GBUNRegressor):
    _lines = [f"{param.name} : {param.doc}" for param in _cls().params if param.name not in _TRAINING_DOCS]
    _cls.__doc__ = "\n".join([f"{_cls.__doc__}\n\nParameters\n----------", *_lines, *_TRAINING_DOCS.values()])
