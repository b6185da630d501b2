"""The package as it is installed and imported: light, typed, and without traces of the machine it was made on."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import threadpoolctl

import gbun
from gbun.config import parameter_fields, parameter_table
from gbun.kernels.threads import threads

ROOT = Path(__file__).parents[1]
EXTRAS = {"pandas", "polars", "torch", "pyspark", "lightgbm", "xgboost", "matplotlib"}
HEAVY = {"sklearn", "numba", "rich", "typer", *EXTRAS}


def fresh(code):
    """What `code` prints, as JSON, in an interpreter that has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    return json.loads(done.stdout)


def modules_after(statement):
    return set(fresh(f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"))


def test_import_is_fast():
    code = "import time; began = time.perf_counter(); import gbun; print(time.perf_counter() - began)"
    assert min(fresh(code) for _ in range(3)) < 0.5  # the best of three: others use this machine, too


@pytest.mark.parametrize("statement", ["import gbun", "import gbun; gbun.Parameters()", "import gbun; dir(gbun)"])
def test_import_brings_no_engine_along(statement):
    assert modules_after(statement).isdisjoint(HEAVY)


def test_training_needs_no_extras():
    train = "import gbun; gbun.train({'n_neurons': 4}, ([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0]), 2)"
    assert modules_after(train).isdisjoint(EXTRAS)


def test_the_version_is_that_of_the_installation():
    assert gbun.__version__ == importlib.metadata.version("gbun")


def test_the_metadata_say_what_was_promised():
    metadata = importlib.metadata.metadata("gbun")
    assert metadata["Requires-Python"] == ">=3.10"
    assert "Apache-2.0" in (metadata["License-Expression"] or metadata["License"])
    needed = {re.split(r"[^\w-]", r)[0] for r in importlib.metadata.requires("gbun") if "extra ==" not in r}
    assert needed.isdisjoint({*EXTRAS, "xgboost-cpu"})
    assert (Path(gbun.__file__).parent / "py.typed").exists()


def test_public_names_resolve():
    assert len(set(gbun.__all__)) == len(gbun.__all__)
    for name in gbun.__all__:
        assert getattr(gbun, name) is not None
        assert name in dir(gbun)
    with pytest.raises(AttributeError, match="module 'gbun' has no attribute 'nothing'"):
        _ = gbun.nothing


def test_the_documentation_has_the_table_of_parameters():
    assert parameter_table() in (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
    for field in parameter_fields():
        assert f"| `{field.name}` | `{field.default!r}` |" in parameter_table()
        assert field.metadata["sentence"].endswith(".")


MACHINE = re.compile(r"(?<![\w.:/])/(?:home|work|root|Users|mnt|scratch|data)/\w|[A-Z]:\\\\?Users")
WRITTEN = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "benchmarks").rglob("*.py"),
    *(ROOT / "docs").glob("*.md"),
    *ROOT.glob("*.md"),
    ROOT / "pyproject.toml",
]


@pytest.mark.parametrize("path", WRITTEN, ids=[str(path.relative_to(ROOT)) for path in WRITTEN])
def test_no_file_knows_the_machine_it_was_written_on(path):
    assert MACHINE.findall(path.read_text(encoding="utf-8")) == []


def test_blas_keeps_to_one_thread_until_the_last_training_has_ended():
    """Bits do not depend on what else the process trains, and the process has its threads back afterwards."""

    def blas():
        return {lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"}

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        first, second = threads(1), threads(1)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        while_one_runs = blas()
        second.__exit__(None, None, None)
        assert (while_one_runs, blas()) == ({1}, {2})


def test_help_and_version_are_light():
    code = (
        "import sys, time; began = time.perf_counter()\n"
        "import gbun.cli; spent = time.perf_counter() - began\n"
        "heavy = {'sklearn', 'numba', 'pandas', 'scipy', 'pyarrow'} & set(sys.modules)\n"
        "sys.argv = ['gbun', '--version']; print(heavy, spent < 2); gbun.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["set() True", f"gbun {gbun.__version__}"], done.stderr
