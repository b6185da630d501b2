"""Objectives for tests on Spark: functions of a module, as workers import them."""

from __future__ import annotations

import os
import signal
import time


def patient(y, scores, weight):
    """Squared error that takes its time, so that something may happen meanwhile."""
    time.sleep(0.05)
    return weight * (scores - y), weight


def failing(y, scores, weight):
    if len(y) and scores[0].any():
        raise ZeroDivisionError("in the user's objective")
    return weight * (scores - y), weight


def frozen(y, scores, weight):
    from pyspark import BarrierTaskContext

    if scores.any() and BarrierTaskContext.get().partitionId() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return weight * (scores - y), weight
