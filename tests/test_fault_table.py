"""Each line of docs/faults.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEADING = ["fault", "how it shows", "how long", "what is lost", "test"]
LINES = [line.strip("|").split("|") for line in (ROOT / "docs/faults.md").read_text().splitlines() if line[:1] == "|"]
ROWS = [[cell.strip() for cell in line] for line in LINES]
FAULTS = [row for row in ROWS if row != HEADING and set(row[0]) != {"-"}]


def test_every_table_has_the_same_columns():
    assert {len(row) for row in ROWS} == {len(HEADING)}
    assert FAULTS


@pytest.mark.parametrize("row", FAULTS, ids=[row[0] for row in FAULTS])
def test_a_fault_has_a_sign_a_loss_and_a_test(row):
    fault, shows, _, lost, test = row
    assert all((fault, shows, lost))
    path, name = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", test).groups()
    tree = ast.parse((ROOT / path).read_text())
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
