"""What test rows contribute to the score of a cell's learner, kept in its finding.

Contributions (`judging.py`) are means over the seeds, in thousandths; rows are in the order of the test set. Only the
variance of differences is computed of them, which rounding changed by .16 % at most on the ten sets.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.accuracy.judging import Contributions

DECIMALS = 3


@dataclass(frozen=True)
class Answers:
    """`strata` are the groups of rows, over each of which the mean of `contributions` is the score."""

    contributions: NDArray[np.float32]
    strata: NDArray[np.int8]

    @classmethod
    def of(cls, seeds: Sequence[Contributions], strata: NDArray[np.int8]) -> Answers:
        return cls(np.mean(seeds, axis=0).round(DECIMALS).astype(np.float32), strata)

    def to_json(self) -> dict[str, str]:
        """Both arrays as a compressed file of NumPy, in base 64: a few kB, as many rows contribute the same.

        Without slashes: the report takes folders of a machine out of all it says.
        """
        file = BytesIO()
        np.savez_compressed(file, contributions=self.contributions, strata=self.strata)
        return {"npz": urlsafe_b64encode(file.getvalue()).decode()}

    @classmethod
    def from_json(cls, told: Mapping[str, str]) -> Answers:
        with np.load(BytesIO(urlsafe_b64decode(told["npz"])), allow_pickle=False) as arrays:
            return cls(arrays["contributions"], arrays["strata"])
