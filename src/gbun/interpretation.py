"""What a model can say about itself: contributions to scores, importances, the weights of its linear start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from gbun.agreement import SINGLE_WORKER, run_or_raise_everywhere
from gbun.arrays import Array
from gbun.collectives import Collective, Solo
from gbun.data.features import Features
from gbun.data.ingest import conform, is_empty
from gbun.data.tensors import to_matrix
from gbun.description import Description
from gbun.devices import Device, make_device
from gbun.ensemble import Ensemble
from gbun.explain import Explainer, Explanation, Importance, LinearWeights
from gbun.explain.importance import (
    KINDS,
    draw_standard_rows,
    gain_of_columns,
    linear_weights,
    make_single_features,
    mean_contributions,
)
from gbun.explain.permutation import choose_groups, permutation_importance
from gbun.kernels.threads import thread_pool
from gbun.metrics import get_metric
from gbun.scored_rows import Place, ScoredRows
from gbun.targets import Target

MAX_BACKGROUND = 1000  # rows


class Interpretation(ABC):
    """The part of `Model` that explains."""

    ensemble: Ensemble
    description: Description

    @abstractmethod
    def _read(self, X: Any, base_margin: Any, device: Device) -> tuple[Features, Array | None]: ...

    @abstractmethod
    def _scores(self, X: Any, base_margin: Any, n_rounds: int | None, n_jobs: int | None, device: str) -> Array: ...

    def explain(
        self,
        X: Any,
        *,
        method: str = "auto",
        output: int | str | None = None,
        top: int | None = None,
        background: Any = None,
        n_permutations: int = 32,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> Explanation:
        """Explain the scores of rows: what each column adds to them, beginning at a baseline.

        Parameters
        ----------
        X : array, sparse matrix, frame, list of dicts or of tokens
            n rows, as in training.
        method : {"auto", "linear", "gradients", "shapley"}, default="auto"
            "auto" takes exact Shapley values for trees, integrated gradients for networks, sampled Shapley values for
            learners of your own, and theta x value for the linear start; "shapley" samples networks too. "linear"
            explains the linear start alone. "gradients" is "auto" for models of networks, and refuses others.
        output : int or str, optional
            Explain one of several scores, by its number from 0 or, of classes that are words, by its class; None: all.
        top : int, optional
            Keep so many columns, those with the largest mean absolute contribution; the others become one.
        background : rows like X, optional
            Baselines, of whose explanations the mean is taken; at most 1000. None: sparse features and categories
            are absent, dense columns have their mean.
        n_permutations : int, default=32
            Orders of the features from which values are sampled; an even number.
        random_state : int, default=0
            The seed of these orders.
        n_jobs : int, optional
            Threads; None: all cores.

        Returns
        -------
        Explanation
            With ``values`` (n, m), ``base`` and ``residual``: score = base + sum of values + residual.
        """
        features, _ = self._read(X, None, make_device("cpu"))
        return self._explain(X, features, method, output, top, background, n_permutations, random_state, n_jobs)

    def _explain(
        self, X: Any, features: Features, method: str = "auto", output: int | str | None = None, top: int | None = None,
        background: Any = None, n_permutations: int = 32, random_state: int = 0, n_jobs: int | None = None,
    ) -> Explanation:  # fmt: skip
        """Explain rows X, whose features have been read; the arguments are those of `explain`."""
        if isinstance(n_permutations, bool) or not isinstance(n_permutations, Integral):
            raise ValueError(f"n_permutations must be an even number of at least 2, got {n_permutations!r}")
        others = None
        if background is not None:
            others = conform(background, self.description.schema, self.ensemble.scaling.dense is not None, "background")
            if not 1 <= others.n_rows <= MAX_BACKGROUND:
                raise ValueError(f"background must have 1 to {MAX_BACKGROUND} rows, got {others.n_rows}")
        with thread_pool(n_jobs) as pool:
            explainer = Explainer(
                self.ensemble, self.description.schema, method, int(n_permutations), random_state, pool
            )
            found = explainer.explain(X, features, others)
        found = found if output is None else found.output(self._output_number(output))
        return found if top is None else found.top(top)

    def _output_number(self, output: Any) -> int:
        """Return the number of a score that is given by its number, or by its class where that is a word."""
        classes = (
            [] if self.description.classes is None or self.ensemble.n_scores == 1 else self.description.classes.tolist()
        )
        if isinstance(output, str) and output in classes:
            return classes.index(output)
        if isinstance(output, bool) or not isinstance(output, Integral):
            words = f"one of the classes {classes[:10]}, or " if any(isinstance(c, str) for c in classes) else ""
            raise ValueError(f"output must be {words}the number of a score, got {output!r}")
        return int(output)

    def importance(
        self,
        X: Any = None,
        y: Any = None,
        *,
        kind: str | None = None,
        top: int | None = None,
        groups: Mapping[str, Sequence[Any]] | None = None,
        metric: Any = None,
        n_repeats: int = 5,
        random_state: int = 0,
        n_jobs: int | None = None,
        collective: Collective = SINGLE_WORKER,
        **explain: Any,
    ) -> Importance:
        """Compute one number for each column: how much it matters.

        Parameters
        ----------
        X : rows, optional
            n rows, as in training; "gain" needs none.
        y : array, optional
            Their targets, for "permutation".
        kind : {"gain", "contribution", "permutation"}, optional
            What splits by a column gained in training; the mean absolute contribution to the scores of rows
            (`explain`); how much worse a metric gets when a column is shuffled. None: "permutation" with y,
            "contribution" with X alone; without rows "gain", or, where there are networks alone or a linear start,
            "contribution" to the scores of rows drawn at random, whose columns are independent and standard normal, or
            which have one sparse feature each.
        top : int, optional
            Keep so many columns, the most important first.
        groups : {name: columns}, optional
            Columns, by name or number, that are shuffled together: those of one-hot encoding, for example.
        metric : str, optional
            Of "permutation"; None: that of the objective.
        n_repeats : int, default=5
            How many times each column is shuffled.
        random_state : int, default=0
        n_jobs : int, optional
        collective : Collective, optional
            The workers that call this together, each with its share of the rows X, for "contribution"; a share may be
            empty. All get the importance over all rows. `gbun.distributed.workers` connects them.
        **explain
            More arguments of `explain`, for "contribution".

        Returns
        -------
        Importance
            With ``values`` (m,), ``names`` and ``ranked()``.
        """
        if kind is None and X is None and not explain and self._has_better_than_gain():
            return self._importance_without_rows(top, random_state, n_jobs)
        if kind is None:
            kind = "gain" if X is None else "contribution" if y is None else "permutation"
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
        if kind != "gain" and (X is None or (kind == "permutation" and y is None)):
            raise ValueError(f"kind={kind!r} needs {'X' if X is None else 'y'}, got None")
        if kind != "contribution" and collective.size > 1:
            raise ValueError(f"kind={kind!r} is that of one process; workers sum kind='contribution' alone")
        if kind != "permutation" and not (groups is None and metric is None):
            raise ValueError(f"groups and metric are arguments of kind='permutation', got kind={kind!r}")
        if kind != "contribution" and explain:
            raise ValueError(f"{sorted(explain)} are no arguments of kind={kind!r}")
        schema = self.description.schema
        if kind == "gain":
            found = Importance(gain_of_columns(self.ensemble, schema), schema.column_names, kind)
        elif kind == "contribution":
            explain = {"random_state": random_state, "n_jobs": n_jobs, **explain}
            explained = run_or_raise_everywhere(collective, lambda: self._explain_share(X, collective, explain))
            found = mean_contributions(explained, schema, self.ensemble.linear, collective)
        else:
            found = self._permutation_importance(X, y, groups, metric, n_repeats, random_state, n_jobs)
        return found if top is None else found.top(top)

    def _has_better_than_gain(self) -> bool:
        """Whether contributions to drawn rows say more than gains, which know nothing of networks and linear starts."""
        e = self.ensemble
        if self.description.schema.categorical or self.description.schema.n_columns is None:  # rows cannot be drawn
            return False
        return not e.learner.splits_columns or e.linear is not None

    def _importance_without_rows(self, top: int | None, seed: int, n_jobs: int | None) -> Importance:
        """Contributions to the scores of rows drawn at random, where no data are at hand."""
        e, schema = self.ensemble, self.description.schema
        m = int(schema.n_columns or 0)
        with thread_pool(n_jobs) as pool:
            if e.scaling.dense is not None:
                drawn = draw_standard_rows(e.scaling, m, seed)
                values = Explainer(e, schema, "auto", 2, seed, pool).explain(None, drawn, None).mean_abs()
            else:
                place, single = Place(make_device("cpu"), pool), make_single_features(m)
                nothing = make_single_features(1, value=0.0)
                one, none = (e.add_scores(ScoredRows(rows, e.start, None, place)) for rows in (single, nothing))
                values = np.abs(one - none).mean(axis=1)
        found = Importance(values, schema.column_names, "contribution")
        return found if top is None else found.top(top)

    def _explain_share(self, X: Any, collective: Collective, explain: Mapping[str, Any]) -> Explanation | None:
        """Explain this worker's share of the rows; None if it is empty and there are other workers."""
        if collective.size == 1:
            return self.explain(X, **explain)
        X = to_matrix(X, False)
        if is_empty(X):
            return None
        dense = self.ensemble.scaling.dense is not None
        return self._explain(X, conform(X, self.description.schema, dense, is_shard=True), **explain)

    def _permutation_importance(
        self,
        X: Any,
        y: Any,
        groups: Mapping[str, Sequence[Any]] | None,
        metric: Any,
        n_repeats: int,
        seed: int,
        n_jobs: int | None,
    ) -> Importance:
        d, objective = self.description, self.ensemble.objective
        if n_repeats < 1:
            raise ValueError(f"n_repeats must be at least 1, got {n_repeats}")
        chosen = choose_groups(X, groups)
        judge = get_metric(objective.default_metric() if metric is None else metric)
        targets = Target(y, d.task, objective, d.classes).encode(y, "y")
        weight, sign = np.ones(len(targets)), 1.0 if judge.higher_is_better else -1.0

        def score(rows: Any) -> float:
            response = objective.response(self._scores(rows, None, None, n_jobs, "cpu"))
            return sign * judge.evaluate(targets, response, weight, Solo())

        return Importance(*permutation_importance(X, score, chosen, n_repeats, seed))

    def linear_weights(self, names: Sequence[str] | None = None) -> LinearWeights:
        """Look up the weights theta of the linear start; they multiply scaled features.

        Parameters
        ----------
        names : sequence of str, optional
            Columns, or features such as "city=Paris" and tokens; None: all columns, where there is one weight for each.

        Returns
        -------
        LinearWeights
            With ``values``, and ``shared_with``: which of these names have one weight together, by their hash.
        """
        linear = self.ensemble.linear
        if linear is None:
            raise ValueError("this model begins with a constant: it has no linear start, and no weights of one")
        return linear_weights(linear, self.description.schema, names)

    @property
    def coef_(self) -> Array:
        """The weights of the linear start for all columns, (m,) or (m, C)."""
        return self.linear_weights().values
