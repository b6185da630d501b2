"""The Triton kernel, in Triton's interpreter and as code for GPUs: the portable kernel's sums, bit for bit.

The interpreter must be asked for before Triton is imported, and then holds for the whole process. So this file is also
a script: run in a process of its own it computes all cases, which the tests then look at.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gbun.arrays import to_host
from gbun.kernels import portable, triton_forward
from gbun.kernels.portable import Buffers, HashedWeights
from gbun.networks import Family
from gbun.networks.simhash import PRIME_2, PRIME_3, PRIME_4
from tests.kernels.kernel_cases import HUGE, entries, random_rows

MISSING = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

BEYOND = [*HUGE, 2**63, 2**64 - 2]
ROWS = {  # of (id, value); few, as the interpreter takes milliseconds for an entry
    "short and empty": random_rows([0, 2, 0, 3, 1, 0], 40),
    "unsorted, repeated": [[(9, 1.0), (3, 2.5), (9, -0.25), (7, -1.5), (0, 0.125)], [(39, 3.0), (0, 1.0)]],
    "beyond 32 and 63 bits": [[(i, 1.0 + j) for j, i in enumerate(BEYOND)], [(2**63 + 5, -1.0)]],
    "weights": [[(i, 1.0)] for i in (0, 1, 39, *BEYOND)],
}
OUTPUTS = (1, 16, 64, 100, 256, 300)
DENSITIES = (1.0, 0.3, 0.01)  # with 40 columns, the last leaves two of three outputs without any input
CASES = [
    *(("short and empty", K, 1.0, 2, True) for K in OUTPUTS),
    *(("short and empty", 100, density, 3, False) for density in DENSITIES),
    *(("unsorted, repeated", K, density, 2, True) for K in OUTPUTS[:-1] for density in DENSITIES),
    *(("beyond 32 and 63 bits", K, 1.0, 2, True) for K in (1, 100, 256)),
    *(("weights", 100, density, round_, True) for density in DENSITIES for round_ in (0, 7)),
]


def network(n_outputs, density, round_):
    return Family(5, n_outputs, sparse_density=density, n_columns=40).draw(round_)


def case(rows, n_outputs, density, round_, fresh):
    """Arguments of both kernels and a Z to fill or to add to, as tensors."""
    import torch

    sparse = entries(ROWS[rows], np.uint64)
    words = torch.from_numpy(sparse.ids.view("<u4").view(np.int32).reshape(-1, 2))
    index = np.int32 if n_outputs % 3 == 1 else np.int64
    indptr = torch.from_numpy((sparse.indptr + 10**9).astype(index))  # rows from the midst of the data
    start = np.random.default_rng(0).normal(size=(len(ROWS[rows]), n_outputs)).astype(np.float32)
    z = torch.from_numpy(np.full_like(start, np.nan) if fresh else start)
    weights = HashedWeights.from_network(network(n_outputs, density, round_), density, z)
    return (indptr, words[:, 0], words[:, 1], torch.from_numpy(sparse.values), weights), z


def compute(path):
    """All cases by the kernel: what the script does."""
    found = {}
    for number, (*which, fresh) in enumerate(CASES):
        arguments, z = case(*which, fresh)
        assert triton_forward.is_available(z.device)
        triton_forward.forward_sparse(*arguments, z, fresh)
        found[str(number)] = z.numpy()
    arguments, z = case("short and empty", 4, 1.0, 0, True)
    triton_forward.forward_sparse(arguments[0][:1], *arguments[1:], z[:0], True)  # no rows at all
    np.savez(path, **found)


def run(code_or_file, *arguments, **environment):
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", *code_or_file, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    path = tmp_path_factory.mktemp("triton") / "cases.npz"
    run([__file__], str(path), TRITON_INTERPRET="1")
    with np.load(path) as found:
        return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)), ids=["-".join(map(str, which)) for which in CASES])
def test_the_sums_are_the_portable_kernels(interpreted, number):
    rows, K, density, round_, fresh = CASES[number]
    arguments, z = case(*CASES[number])
    portable.forward_sparse(*arguments, Buffers.allocate(len(z), K, 5, z), z, fresh)
    found = interpreted[str(number)]
    assert (found.view(np.int32) == to_host(z).view(np.int32)).all()
    if rows == "weights":  # one entry a row, of value 1
        wanted = network(K, density, round_).sparse_weights(entries(ROWS[rows], np.uint64).ids)
        np.testing.assert_array_equal(found, wanted)


def test_the_cases_have_revived_outputs():
    assert all(network(K, 0.01, 2).revived(0.01) for K in OUTPUTS)


def test_every_output_is_in_a_tile():
    for K in (*range(1, 600), 1000, 4096, 16384):
        tile = triton_forward.choose_tile(K)
        assert tile in triton_forward.TILES
        assert -(-K // tile) * tile < K + 32


# As code for GPUs, which need not be there


TARGETS = {"cuda-70": ("cuda", 70, 32), "cuda-80": ("cuda", 80, 32), "amd": ("hip", "gfx90a", 64)}
FORMS = {"all": (256, True, False, False), "some zero": (64, False, True, False), "revived": (32, True, True, True)}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TARGETS)
def test_it_compiles_without_fused_multiply_adds(name, form, tmp_path, monkeypatch):
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("the interpreter compiles nothing")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = triton_forward._kernel()
    lanes, fresh, some_zero, revived = FORMS[form]
    constants = {"LANES": lanes, "FRESH": fresh, "SOME_ZERO": some_zero, "REVIVED": revived}
    constants |= {"P2": PRIME_2, "P3": PRIME_3, "P4": PRIME_4}
    floats, integers = ("values", "reviver_weights", "z"), ("K", "low_stride", "high_stride", "half")
    types = {name: "*fp32" if name in floats else "i32" if name in integers else "*i32" for name in kernel.arg_names}
    types |= {"indptr": "*i64", "inverse": "fp32"} | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, types, constants)
    made = triton.compile(source, target=GPUTarget(*TARGETS[name]), options={"enable_fp_fusion": False}).asm
    code = made.get("ptx") or made["amdgcn"]
    assert "xor" in code
    assert not re.search(r"\b(v_)?(pk_)?(fma|mad)[\w.]*f32", code)


# Where there is no Triton, and where nobody asked


def test_only_gpus_are_served():
    assert os.environ.get("TRITON_INTERPRET") != "1", "the tests of this process want no interpreter"
    assert not any(map(triton_forward.is_available, ("cpu", "mps", "xpu", "torch:cpu")))


@pytest.mark.slow
def test_triton_waits_until_it_is_wanted_and_without_it_the_portable_kernel_serves():
    code = "import sys\nfrom gbun.kernels import triton_forward as t\nt.is_available('cpu')\nprint(*sys.modules)"
    assert not {"triton", "torch"} & set(run(["-c", code]).split())
    hidden = "import sys\nsys.modules['triton'] = None\n"
    code = hidden + "from gbun.kernels import triton_forward as t\nprint(t.is_available('cuda'))"
    assert run(["-c", code], TRITON_INTERPRET="1").strip() == "False"


def test_want_of_memory_is_not_taken_for_want_of_triton(monkeypatch):
    import torch

    errors = [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("no compiler")]

    def fails(*arguments):
        raise errors[0]

    monkeypatch.setattr(triton_forward, "forward_sparse", fails)
    with pytest.raises(torch.OutOfMemoryError):
        triton_forward._can_launch(torch, "cpu")
    errors.pop(0)
    with pytest.warns(UserWarning, match="no compiler"):
        assert not triton_forward._can_launch(torch, "cpu")


def test_only_sparse_features_ask_for_it_and_before_they_are_placed(monkeypatch):
    import gbun
    from gbun.kernels import device as device_kernels

    order, batches = [], device_kernels.Batches
    monkeypatch.setattr(triton_forward, "is_available", lambda device: order.append("asked") is not None)
    monkeypatch.setattr(device_kernels, "Batches", lambda *a: order.append("placed") or batches(*a))
    X, y = training_rows()
    gbun.train(TWO_ROUNDS, (X.toarray(), y), 0)
    assert order == ["placed"]
    order.clear()
    gbun.train(TWO_ROUNDS, (X, y), 0)
    assert order == ["asked", "placed"]


# A training, all of it

TWO_ROUNDS = {"n_neurons": 8, "init": "constant", "device": "torch:cpu", "objective": "squared_error"}


def training_rows():
    import scipy.sparse

    X = scipy.sparse.csr_array(scipy.sparse.random(12, 20, 0.1, "csr", np.float32, np.random.default_rng(0)))
    return X, np.arange(12.0) % 5


def train_two_rounds(path):
    """What the script does for the test below."""
    import gbun
    from gbun.kernels.device import DeviceKernels

    used, forward = [], DeviceKernels._forward
    DeviceKernels._forward = lambda self, *a: used.append(self._uses_triton) or forward(self, *a)
    model = gbun.train(TWO_ROUNDS, training_rows(), 2)
    np.savez(path, heads=model.ensemble.heads, used=used)


@pytest.mark.slow
def test_a_training_with_it_is_the_portable_one(tmp_path):
    import gbun

    path = tmp_path / "heads.npz"
    run([__file__], str(path), "train", TRITON_INTERPRET="1")
    wanted = gbun.train(TWO_ROUNDS, training_rows(), 2)
    with np.load(path) as found:
        assert found["used"].all()
        np.testing.assert_array_equal(found["heads"], wanted.ensemble.heads)


if __name__ == "__main__":
    (train_two_rounds if "train" in sys.argv[2:] else compute)(sys.argv[1])
