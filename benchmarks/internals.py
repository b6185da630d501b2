"""Everything that benchmarks use of gbun beyond its public names, in one place: a rename in gbun changes this file."""

# ruff: noqa: F401 - imported from here
from contextlib import suppress
from pathlib import Path

from gbun import Dataset, Parameters
from gbun.boosting import Training
from gbun.collectives import Solo
from gbun.collectives.tree import choose_tree
from gbun.data.features import Features
from gbun.data.ingest import ingest
from gbun.data.streams import WHOLE_FILE, open_content
from gbun.data.svmlight import read_svmlight
from gbun.defaults import (
    DENSE_DENSITY,
    DENSE_GROUP,
    DENSE_TEMPERATURE,
    SPARSE_TEMPERATURE,
    choose_n_leaves,
    choose_n_neurons,
    gram_share,
)
from gbun.demo import peak_megabytes
from gbun.devices import make_device
from gbun.kernels import Plan, hashed, portable, products, rows
from gbun.kernels.chunks import Chunk, FeatureColumns, FeatureTable
from gbun.kernels.forward import forward, make_weights
from gbun.kernels.host import HostKernels
from gbun.kernels.threads import ThreadPool, allocate_aligned, thread_pool
from gbun.memory import format_megabytes, return_free_memory
from gbun.networks import Family, simhash
from gbun.preparation import prepare
from gbun.problem import read_problem
from gbun.rounds import apply_update, compute_update
from gbun.solve import make_normaliser, solve_head
from gbun.trees.binned_rows import allocate_binned_rows
from gbun.trees.grower import Grower
from gbun.trees.projections import ColumnStatistics, bin_projections, draw_projections, fill_columns


def prepare_training(parameters: Parameters, dataset: Dataset, pool: ThreadPool) -> Training:
    """Make a training that is ready for its first round."""
    return prepare(read_problem(parameters, dataset, {}), pool)


def resident_megabytes() -> float | None:
    """Megabytes that this process has now, without those that arrays have left; None where it is not known."""
    return_free_memory()
    with suppress(OSError):
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) / 1024
    return None


def add_round(training: Training, t: int) -> None:
    """Add one round, outside of the boosting loop."""
    apply_update(training, compute_update(training, t))
