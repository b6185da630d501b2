"""What test rows contribute to the score of a cell's learner, kept beside the findings as RESULTS/answers/CELL.npz.

Contributions (`judging.py`) are means over the seeds, in float32; rows are in the order of the test set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.accuracy.judging import Contributions

ROUNDED = 1e-5  # by which a mean of float32 may differ


@dataclass(frozen=True)
class Answers:
    """`strata` are the groups of rows, over each of which the mean of `contributions` is the score."""

    contributions: NDArray[np.float32]
    strata: NDArray[np.int8]

    @classmethod
    def of(cls, seeds: Sequence[Contributions], strata: NDArray[np.int8]) -> Answers:
        return cls(np.mean(seeds, axis=0).astype(np.float32), strata)

    @property
    def score(self) -> float:
        return float(self.contributions[self.strata == 0].mean(dtype=float))

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, contributions=self.contributions, strata=self.strata)

    @classmethod
    def read(cls, path: Path, score: float) -> Answers:
        """Of the cell that has found this score; a file of another run is an error."""
        if not path.exists():
            raise FileNotFoundError(f"{path}: got no file, expected answers of a score of {score:.4f}; measure --again")
        with np.load(path, allow_pickle=False) as told:
            found = cls(told["contributions"], told["strata"])
        if abs(found.score - score) > ROUNDED * max(1.0, abs(score)):
            raise ValueError(f"{path}: got answers of a score of {found.score:.4f}, not {score:.4f}; measure --again")
        return found


def path_of(results: Path, cell: str) -> Path:
    """
    >>> path_of(Path("results/paper"), "letter / gbun").as_posix()
    'results/paper/answers/letter-gbun.npz'
    """
    return results / "answers" / f"{cell.replace(' / ', '-')}.npz"
