"""Explanations: which features, how much, for whom."""

from gbun.explain.explainer import METHODS, Explainer
from gbun.explain.explanation import Explanation
from gbun.explain.importance import Importance, LinearWeights

__all__ = ["METHODS", "Explainer", "Explanation", "Importance", "LinearWeights"]
