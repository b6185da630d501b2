"""What a split is worth, up to what all splits of a leaf have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbun.trees.compiled import inlined


@inlined()
def quality(packed: Any, G: Any, H: Any, penalty: Any, least: Any) -> Any:
    """G_L^2 / (H_L + lambda) + G_R^2 / (H_R + lambda) with one division; 0 where a child is too small."""
    g, h = np.float64(np.int32(packed >> 32)), np.float64(np.int32(packed))  # int32: several at a time
    rest_g, rest_h = G - g, H - h
    a, b = h + penalty, rest_h + penalty
    found = (g * g * b + rest_g * rest_g * a) / (a * b)
    return found if min(h, rest_h) >= least else 0.0
