"""Rounds on their way through the two passes, and the buffers in which they keep Z and then P.

One process finishes a round before it begins the next: one buffer. Workers forward two rounds ahead, while sums travel:
there are then up to three rounds under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gbun.arrays import Array

AHEAD = 3
"""Rounds under way at a time where sums travel: one waits for its head, one for its normalisation, one is forwarded."""


@dataclass(eq=False)
class Round:
    """Its weights, where its Z and then P are kept (None: nowhere), and, once known, how Z becomes P."""

    made: Any
    buffer: Array | None
    split: tuple[Array, Array] | None = None


class UnderWay:
    """The oldest first. Without buffers nothing is kept, and every pass makes Z again."""

    def __init__(self, buffers: Sequence[Array]) -> None:
        self._free, self._holds, self._rounds = list(buffers), bool(buffers), list[Round]()

    def begin(self, made: Any, after: Round | None = None) -> Round:
        """A round to be forwarded, in the place of the round `after` which it comes if that is given."""
        if after is None and self._holds and not self._free:
            after = self._rounds[0]  # given up before its end
        if after is not None:
            self.end(after)
        begun = Round(made, self._free.pop() if self._holds else None)
        self._rounds.append(begun)
        if not self._holds:
            del self._rounds[:-AHEAD]
        return begun

    def end(self, done: Round) -> None:
        self._rounds.remove(done)
        if done.buffer is not None:
            self._free.append(done.buffer)

    @property
    def newest(self) -> Round:
        assert self._rounds, "the first pass comes first"
        return self._rounds[-1]

    @property
    def forwarded(self) -> Round:
        """The oldest round that has a Z but no P."""
        found = next((r for r in self._rounds if r.split is None), None)
        assert found is not None, "the first pass comes first"
        return found

    @property
    def split(self) -> Round:
        """The round whose P is known and whose head is to come."""
        found = next((r for r in reversed(self._rounds) if r.split is not None), None)
        assert found is not None, "the second pass comes second"
        return found
