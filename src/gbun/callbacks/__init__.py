"""Observers of a training run: progress, history, early stopping, checkpoints, learning rates, time budgets."""

from gbun.callbacks.base import Callback, CallbackRunner, Evaluations, RoundReport
from gbun.callbacks.progress import Log, ProgressBar, callbacks_for_verbosity
from gbun.callbacks.records import Checkpoint, History, LearningRateSchedule
from gbun.callbacks.stopping import EarlyStopping, TimeBudget

__all__ = [
    "Callback",
    "CallbackRunner",
    "Checkpoint",
    "EarlyStopping",
    "Evaluations",
    "History",
    "LearningRateSchedule",
    "Log",
    "ProgressBar",
    "RoundReport",
    "TimeBudget",
    "callbacks_for_verbosity",
]
