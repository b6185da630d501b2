"""What a split is worth, up to what all splits of a leaf have in common."""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(forceinline=True)
def quality(g: Any, h: Any, G: Any, H: Any, penalty: Any, least: Any) -> Any:
    """G_L^2 / (H_L + lambda) + G_R^2 / (H_R + lambda) with one division; 0 where a child is too small."""
    rest_g, rest_h = G - g, H - h
    a, b = h + penalty, rest_h + penalty
    found = (g * g * b + rest_g * rest_g * a) / (a * b)
    return found if min(h, rest_h) >= least else 0.0
