"""The package as it is installed and imported: few imports, types, and no paths of the machine it was written on."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gbun
from gbun.config import parameter_fields, parameter_table

ROOT = Path(__file__).parents[1]
EXTRAS = {"pandas", "polars", "torch", "pyspark", "lightgbm", "xgboost", "matplotlib"}
HEAVY = {"sklearn", "numba", "rich", "typer", *EXTRAS}


def modules_after(statement):
    """Return the modules that are imported in a new interpreter after a statement."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    return set(json.loads(done.stdout))


STARTUP = {name.partition(".")[0] for name in modules_after("pass")}  # what the interpreter imports by itself


def test_import_takes_the_standard_library_only():
    other = {name.partition(".")[0] for name in modules_after("import gbun")} - sys.stdlib_module_names
    assert other <= {"gbun", *STARTUP}


@pytest.mark.parametrize("statement", ["import gbun; gbun.Parameters()", "import gbun; dir(gbun)"])
def test_import_brings_no_engine_along(statement):
    assert modules_after(statement).isdisjoint(HEAVY)


@pytest.mark.slow
def test_training_needs_no_extras():
    train = "import gbun; gbun.train({'n_neurons': 4}, ([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0]), 2)"
    assert modules_after(train).isdisjoint(EXTRAS)


def test_the_version_is_that_of_the_installation():
    assert gbun.__version__ == importlib.metadata.version("gbun")


def test_the_metadata_name_python_licence_and_requirements():
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
def test_no_file_has_a_path_of_a_machine(path):
    assert MACHINE.findall(path.read_text(encoding="utf-8")) == []


def test_help_and_version_need_few_modules():
    version = "import contextlib, io, gbun.cli; sys.argv = ['gbun', '--version']"
    quiet = "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): gbun.cli.main()"
    assert modules_after(f"{version}\n{quiet}").isdisjoint({"sklearn", "numba", "pandas", "scipy", "pyarrow"})
