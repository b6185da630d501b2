"""Finished cells, kept in a file from the moment they are there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Finished = dict[str, Any]


class Store:
    """Cells by part, set and learner. Others may write to the same file: it is read again before each change."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text())) if self.path.exists() else {"about": {}, "cells": []}

    def cells(self, part: str) -> list[Finished]:
        return [cell for cell in self.read()["cells"] if cell["part"] == part]

    def find(self, part: str, data: str, learner: str) -> Finished | None:
        return next((c for c in self.cells(part) if (c["data"], c["learner"]) == (data, learner)), None)

    def put(self, cell: Finished, about: Mapping[str, Any]) -> None:
        """In the place of an earlier one of the same name, if there is one."""
        whole = self.read()
        name = (cell["part"], cell["data"], cell["learner"])
        others = [c for c in whole["cells"] if (c["part"], c["data"], c["learner"]) != name]
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({"about": about, "cells": [*others, cell]}, indent=1))
        beside.replace(self.path)  # at once, so that an interrupt leaves the old file or the new one
