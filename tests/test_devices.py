"""Devices: torch computes the models of the compiled kernels, up to rounding.

Differences are measured in standard deviations of the scores. Up to 4096 rows normal equations are float64, so only
outputs and memberships are rounded differently; with more rows, float32 sums over a batch are as well.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import threading
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone

import gbun
from gbun.callbacks import Checkpoint, History
from gbun.devices import TorchDevice, make_device
from gbun.objectives import OBJECTIVES, Custom

torch = pytest.importorskip("torch")

PREDICTED = 5e-6  # the same model on another device
EXACT, ROUNDED = 5e-6, 1e-4  # another model: up to 4096 rows, and beyond
FEW, MANY = 300, 4200
SMALL = {"n_neurons": 16}
DEVICES = ("cpu", "torch:cpu")


def columns(n=FEW, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return X, X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=n)


def counts(n=FEW, seed=0):
    rng = np.random.default_rng(seed)
    D = rng.poisson(0.3, size=(n, 20)).astype(np.float32)
    D[3] = 0.0  # a row without entries
    return scipy.sparse.csr_array(D), D[:, 0] - D[:, 1] + 2.0 * ((D[:, 2] > 0) == (D[:, 3] > 0)) + rng.normal(size=n)


def frame(n=FEW, seed=0):
    X, y = columns(n, seed)
    city = np.array(["Rome", "Oslo", "Bonn"])[np.arange(n) % 3]
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "city": city, "c": X[:, 2]}), y + (city == "Oslo")


def named(n=FEW):
    X, y = frame(n)
    rows = X.to_dict("records")
    for row in rows[::7]:
        row["b"] = None
    return rows, y


def tokens(n=FEW):
    X, y = counts(n)
    return [[f"t{j}" for j in X[[i]].indices] for i in range(n)], y


def difference(a, b):
    return float(np.abs(a - b).max() / np.std(a))


def both(params, data, rounds=6, task=None, tolerance=None, **more):
    """Train on both devices and check that the models agree; the first is the compiled kernels'."""
    models = [gbun.train({**SMALL, **params, "device": d}, data, rounds, task=task, **more) for d in DEVICES]
    known = {"base_margin": data[3] if len(data) > 3 else None}
    wanted, found = (m.decision_function(data[0], **known) for m in models)
    tolerance = tolerance or (EXACT if len(data[1]) <= 4096 else ROUNDED)
    assert models[0].n_rounds == models[1].n_rounds > 0
    assert difference(wanted, found) < tolerance
    for model, scores in zip(models, (wanted, found), strict=True):
        assert difference(scores, model.decision_function(data[0], device="torch:cpu", **known)) < PREDICTED
    return models


# Every objective


def cubic(y, scores, weight):
    r = scores - y
    return weight * r**3, weight * (3 * r**2 + 0.1)


def of_two(y, scores, weight):
    """A Hessian for each output."""
    r, w = scores - y, weight[:, None]
    return w * np.tanh(r), w * (0.1 + 1 / np.cosh(r) ** 2)


def targets(n):
    X, y = columns(n)
    rng = np.random.default_rng(1)
    rate = np.exp(0.5 * (X[:, 0] * X[:, 1] + X[:, 2]))
    levels = np.digitize(y, [-1.0, 0.0, 1.0])
    several = np.column_stack([y > 0, X[:, 3] > 0.5, y > 1]).astype(int)
    return X, {
        "squared error": (y, {}),
        "huber": (y, {"objective": "huber"}),
        "quantile": (y, {"objective": "quantile", "quantile": 0.7}),
        "poisson": (rng.poisson(rate).astype(float), {"objective": "poisson"}),
        "gamma": (rate * rng.gamma(2.0, size=n), {"objective": "gamma"}),
        "tweedie": (1.5 * rng.poisson(rate), {"objective": "tweedie"}),
        "logistic": (y > 0, {"objective": "logistic"}),
        "softmax": (levels, {"objective": "softmax"}),
        "softmax per class": (levels, {"objective": "softmax", "hessian": "per_class"}),
        "several outputs": (np.column_stack([y, X[:, 3] ** 2]), {}),
        "several labels": (several, {"objective": "multi_logistic"}),
        "several labels per label": (several, {"objective": "multi_logistic", "hessian": "per_class"}),
        "a function": (y, {"objective": cubic}),
        "a function of two": (np.column_stack([y, X[:, 3]]), {"objective": of_two}),
    }


CASES = list(targets(10)[1])


@pytest.mark.parametrize("n", [FEW, MANY])
@pytest.mark.parametrize("case", CASES)
def test_every_objective_gives_the_same_model(case, n):
    X, cases = targets(n)
    y, params = cases[case]
    weight = np.random.default_rng(2).choice([0.0, 1.0, 2.0], size=n)
    both(params, (X, y, weight))


def test_all_objectives_are_tested():
    X, cases = targets(60)
    tried = {gbun.train({**SMALL, **params}, (X, y), 0).ensemble.objective.name for y, params in cases.values()}
    assert tried == {*OBJECTIVES, "custom"}


# Every kind of rows


@pytest.mark.parametrize("n", [FEW, MANY])
@pytest.mark.parametrize("rows", [columns, counts, frame])
@pytest.mark.parametrize("init", ["constant", "linear"])
def test_dense_sparse_and_both_side_by_side_give_the_same_model(rows, init, n):
    models = both({"init": init, "linear_l2": 1.0} if init == "linear" else {"init": init}, rows(n))
    assert (models[1].ensemble.linear is None) == (init == "constant")


@pytest.mark.parametrize("rows", [named, tokens])
def test_rows_of_names_and_tokens_give_the_same_model(rows):
    both({}, rows())


@pytest.mark.parametrize(
    "params",
    [
        {"group_size": 4},
        {"group_size": 16},
        {"density": 0.05},
        {"density": 1.0, "temperature": 3.0},
        {"scale": "log+unit"},
        {"scale": "none"},
        {"gram_rows": 0.3},
        {"learning_rate": 0.7, "reg_lambda": 3.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [columns, counts])
def test_networks_of_every_kind_give_the_same_model(rows, params):
    for n in (FEW, MANY) if "gram_rows" in params else (FEW,):
        model, _ = both({"init": "constant", **params}, rows(n))
    if params.get("density") == 0.05:  # nearly all outputs are revived
        assert len(model.ensemble.learner.family.draw(0).revived(0.05)) > 0


def test_scores_to_start_from_and_weights():
    X, y = columns()
    weight = np.random.default_rng(1).choice([0.0, 0.3, 2.0], size=FEW)
    both({}, (X, y, weight, 0.5 * y + 1.0))
    both({"objective": "softmax"}, (X, np.digitize(y, [0.0, 1.0]), weight, np.column_stack([y, -y, 0 * y])))
    X, y = counts()
    both({}, (X, y, weight, 0.1 * y))


def test_large_offsets_of_outputs_do_not_cost_accuracy():
    """Outputs are a hundred deviations from zero, so float32 sums of squares would not be accurate."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.csr_array(np.column_stack([np.full(FEW, 100.0), rng.normal(size=(FEW, 3))]).astype(np.float32))
    both({"scale": "none", "init": "constant"}, (X, X[:, [1]].toarray()[:, 0]), tolerance=1e-3)


# Around the loop


@pytest.mark.slow
@pytest.mark.parametrize("rows", [columns, counts])
def test_evaluation_sets_and_the_number_of_rounds_agree(rows):
    noise, found = np.random.default_rng(5).normal(size=300), []
    data, other = ((X, y + noise[: len(y)]) for X, y in (rows(200), rows(100, seed=1)))
    for device in DEVICES:
        history = History()
        params = {**SMALL, "learning_rate": 0.5, "init": "constant", "device": device}
        model = gbun.train(params, data, evals={"other": other}, callbacks=[history])
        found.append((model, history.values["validation"]["rmse"], history.values["other"]["rmse"]))
    assert found[0][0].n_rounds == found[1][0].n_rounds > 0
    for wanted, series in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_allclose(series, wanted, rtol=1e-5)
    assert found[1][0].description.best_score == pytest.approx(found[0][0].description.best_score, rel=1e-5)
    both({"early_stopping_rounds": 3, "init": "constant"}, data, 40, evals={"other": other})


@pytest.mark.parametrize("first", DEVICES)
def test_a_model_is_continued_on_another_device(first, tmp_path):
    data, second = columns(), DEVICES[1 - DEVICES.index(first)]
    whole = gbun.train({**SMALL, "device": first}, data, 6)
    half = gbun.train({**SMALL, "device": first}, data, 3)
    half.save_model(tmp_path / "half.gbun")
    for initial in (half, tmp_path / "half.gbun"):
        continued = gbun.train({**SMALL, "device": second}, data, 3, init_model=initial)
        assert continued.n_rounds == 6
        assert difference(whole.predict(data[0]), continued.predict(data[0], device=second)) < EXACT


def test_files_hold_the_same_model_for_every_device(tmp_path):
    X, y = columns()
    files = [tmp_path / f"{i}.gbun" for i in range(2)]
    for device, path in zip(DEVICES, files, strict=True):
        model = gbun.GBUNRegressor(**SMALL, n_estimators=3, device=device).fit(X, y)
        model.save_model(path)
        for other in DEVICES:
            np.testing.assert_array_equal(
                gbun.load_model(path).predict(X, device=other), model.model_.predict(X, device=other)
            )
    assert difference(*(gbun.load_model(path).predict(X) for path in files)) < EXACT
    assert gbun.GBUNRegressor.load_model(files[1]).predict(X).shape == y.shape


def test_stages_checkpoints_folds_clones_and_pickles(tmp_path):
    X, y = columns()
    kept = Checkpoint(tmp_path / "kept.gbun", every=2)
    model = gbun.train({**SMALL, "device": "torch:cpu"}, (X, y), 5, callbacks=[kept])
    stages = [list(model.staged_predict(X, device=d)) for d in DEVICES]
    assert len(stages[1]) == 6
    np.testing.assert_allclose(stages[1], stages[0], atol=1e-5)
    assert np.ptp(stages[1][0]) == 0.0  # each stage is its own array
    np.testing.assert_array_equal(gbun.load_model(tmp_path / "kept.gbun").predict(X), stages[0][5])
    np.testing.assert_array_equal(model.predict(X, n_rounds=2, device="torch:cpu"), stages[1][2])
    series = [gbun.cv({**SMALL, "device": d}, (X, y), 3, nfold=3)["valid rmse-mean"] for d in DEVICES]
    np.testing.assert_allclose(series[1], series[0], rtol=1e-5)
    estimator = gbun.GBUNClassifier(**SMALL, n_estimators=3, device="torch:cpu", tf32=True)
    again = clone(estimator).fit(X, y > 0)
    assert (again.device, again.tf32) == ("torch:cpu", True)
    for proba in (pickle.loads(pickle.dumps(again)).predict_proba(X), list(again.staged_predict_proba(X))[-1]):
        np.testing.assert_array_equal(proba, again.predict_proba(X))


# Names, absence


NO_DEVICES = ["gpu", "CUDA", "cuda:", "cuda:x", "torch:cuda", "cpu:0", "", None, 0, "cuda\n", torch.device("meta")]


@pytest.mark.parametrize(
    ("name", "hint"),
    [*((name, "") for name in NO_DEVICES), *((torch.device(n), f"; use {n!r}") for n in ("cuda:1", "cpu"))],
)
def test_a_device_has_one_of_a_few_names(name, hint):
    X, y = columns(60)
    model = gbun.train(SMALL, (X, y), 1)
    for action in (
        lambda: model.predict(X, device=name),
        lambda: gbun.train({"device": name}, (X, y), 1),
        lambda: gbun.GBUNRegressor(**SMALL, device=name).fit(X, y),
    ):
        with pytest.raises(ValueError, match="device must be 'cpu', 'cuda', 'cuda:1', 'mps', 'xpu' or") as raised:
            action()
        assert str(raised.value).endswith(f"got {name!r}{hint}")


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "mps", "xpu"])
def test_the_error_of_an_absent_device_lists_those_present(name):
    kind = name.split(":")[0]
    module = torch.backends.mps if kind == "mps" else getattr(torch, kind)
    if module.is_available() and name != "cuda:7":
        pytest.skip("it is present")
    words = rf"device='{name}' is absent; here are \(by torch {re.escape(torch.__version__)}\): cpu, torch:cpu"
    with pytest.raises(ValueError, match=words):
        gbun.train({"device": name}, columns(60), 1)
    with pytest.raises(ValueError, match=words):
        gbun.train(SMALL, columns(60), 1).predict(columns(60)[0], device=name)


def test_without_torch_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"device='cuda' needs torch, .* not installed: pip install 'gbun\[torch\]'"):
        make_device("cuda")
    assert make_device("cpu").name == "cpu"


@pytest.mark.slow
def test_the_compiled_kernels_need_neither_torch_nor_triton():
    code = (
        "import sys, numpy as np, gbun; X = np.random.default_rng(0).normal(size=(60, 3));"
        "model = gbun.train({'n_neurons': 16, 'device': 'cpu'}, (X, X[:, 0]), 2); model.predict(X);"
        "assert not {'torch', 'triton'} & {m.split('.')[0] for m in sys.modules}"
    )
    subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", code], check=True, timeout=120)


# Numbers: TF32, float64, threads


def precision():
    """Of float32 products, on CUDA and on the processor."""
    return torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision


@pytest.mark.parametrize(("tf32", "wanted"), [(False, "ieee"), (True, "tf32")])
@pytest.mark.parametrize("before", ["highest", "high", "medium", "tf32 by the newer setting"])
def test_products_are_exact_while_rounds_are_computed_and_settings_return(tf32, wanted, before):
    seen = []

    def watching(y, scores, weight):
        seen.append((precision(), torch.is_grad_enabled()))
        with make_device("torch:cpu").compute_context():  # another model that predicts here has its own
            assert precision() == ("ieee", "ieee")
        if len(seen) == 20:
            raise ArithmeticError("enough")
        return weight * (scores - y), weight

    is_new = before.startswith("tf32")
    torch.set_float32_matmul_precision("highest" if is_new else before)
    try:
        if is_new:
            torch.backends.cuda.matmul.fp32_precision = "tf32"
        kept, kept_for_all = precision(), None if is_new else torch.get_float32_matmul_precision()
        with pytest.raises(ArithmeticError, match="enough"):
            gbun.train({**SMALL, "objective": watching, "device": "torch:cpu", "tf32": tf32}, columns(), 50)
        assert kept_for_all is None or torch.get_float32_matmul_precision() == kept_for_all == before
        assert precision() == kept
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
    assert ((wanted, "ieee"), False) in seen
    assert torch.is_grad_enabled()
    assert {setting for setting, graph in seen if not graph} == {(wanted, "ieee")}


def test_concurrent_computations_restore_the_number_of_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = (make_device("torch:cpu", n_threads=1).compute_context() for _ in range(2))
        first.__enter__()
        other = threading.Thread(target=second.__enter__)
        other.start()
        other.join()
        first.__exit__(None, None, None)
        found = []
        other = threading.Thread(
            target=lambda: (second.__exit__(None, None, None), found.append(torch.get_num_threads()))
        )
        other.start()
        other.join()
        assert (torch.get_num_threads(), found) == (2, [2])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("case", ["squared error", "softmax", "a function of two"])
def test_settings_of_torch_outside_change_no_bit(case):
    X, cases = targets(FEW)
    y, params = cases[case]
    params = {**SMALL, **params, "device": "torch:cpu"}
    wanted = gbun.train(params, (X, y), 3)
    for outside in (torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode(), torch.no_grad()):
        with outside:
            found = gbun.train(params, (X, y), 3)
            predicted = found.predict(X, device="torch:cpu")
        np.testing.assert_array_equal(found.ensemble.heads, wanted.ensemble.heads)
        np.testing.assert_array_equal(predicted, wanted.predict(X, device="torch:cpu"))


# A user's function


@pytest.mark.parametrize("device", DEVICES)
def test_a_function_is_never_called_without_rows(device):
    X, cases = targets(FEW)
    for case in ("a function", "a function of two"):
        y, params = cases[case]
        called = []

        def watched(y, scores, weight, function=params["objective"], called=called):
            assert isinstance(y, np.ndarray)
            y.min()  # an error of an empty array
            called.append(len(y))
            return function(y, scores, weight)

        params = {**SMALL, "objective": watched, "device": device}
        ten = gbun.train(params, (X, y), 2)
        gbun.train(params, (X, y), 2, init_model=ten)
        assert min(called) > 0


@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize("kind", ["one", "shared", "each"])
@pytest.mark.parametrize("asked_before", [False, True])
def test_derivatives_of_no_rows_have_the_shapes_of_the_functions_result(kind, asked_before, as_tensors):
    rows = []

    def function(y, scores, weight):
        rows.append(len(y))
        assert y.min() > 0
        g = (scores - y) * (weight if scores.ndim == 1 else weight[:, None])
        return g, weight if kind != "each" else 0 * g + 1.0

    C = 1 if kind == "one" else 2
    custom = Custom(function, C)
    shape = () if C == 1 else (C,)
    if asked_before:
        custom.derivatives(np.full((3, *shape), 2.0), np.zeros((3, C)), np.ones(3))
    given = np.zeros((0, *shape)), np.zeros((0, C)), np.zeros(0)
    g, h = custom.derivatives(*(torch.from_numpy(a) for a in given) if as_tensors else given)
    assert g.shape == (0, C)
    assert h.shape == ((0, C) if kind == "each" else (0,))
    assert torch.is_tensor(h) == as_tensors
    assert rows == ([3] if asked_before else [] if kind == "one" else [1])


def test_the_error_of_other_functions_names_torch_loss():
    X, y = columns(60)
    message = r"objective must be a function of three arguments, \(y, scores, weight\) .*gbun.TorchLoss\(...\)"
    for objective, words in (
        (lambda y, scores: (scores - y) ** 2, message),
        (gbun.TorchLoss, r"objective must be an object, got the class TorchLoss; use TorchLoss\(...\)"),
        (OBJECTIVES["huber"], r"objective must be an object, got the class Huber; use Huber\(...\)"),
    ):
        with pytest.raises(ValueError, match=words):
            gbun.train({**SMALL, "objective": objective}, (X, y), 1)
    more = lambda y, scores, weight, power=3: cubic(y, scores, weight)  # noqa: E731
    for objective in (partial(more, power=2), lambda *given: cubic(*given), Cubic()):
        gbun.train({**SMALL, "objective": objective}, (X, y), 1)


class Cubic:
    def __call__(self, y, scores, weight):
        return cubic(y, scores, weight)


class Widths(torch.utils._python_dispatch.TorchDispatchMode):
    """Records the dtypes of all computed tensors."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.seen |= {a.dtype for a in torch.utils._pytree.tree_leaves(made) if isinstance(a, torch.Tensor)}
        return made


@pytest.mark.parametrize("case", [*CASES[:-2], "a sample", "an evaluation set"])  # functions get the host's arrays
def test_a_device_without_float64_never_sees_it(case, monkeypatch):
    made = TorchDevice.__init__

    def narrow(self, *args):
        made(self, *args)
        self.has_float64 = False

    n = 600
    X, cases = targets(n)
    y, params = cases.get(case, (cases["squared error"][0], {}))
    data, evals = (X, y, np.random.default_rng(2).choice([0.0, 1.0, 2.0], size=n)), {}
    if case == "a sample":
        params = {"gram_rows": 0.5}
    if case == "an evaluation set":
        evals = {"again": data}
    wanted = gbun.train({**SMALL, **params}, data, 4, evals=evals).decision_function(X)
    with monkeypatch.context() as m, Widths() as widths:
        m.setattr(TorchDevice, "__init__", narrow)
        model = gbun.train({**SMALL, **params, "device": "torch:cpu"}, data, 4, evals=evals)
        predicted = model.decision_function(X, device="torch:cpu")
    assert torch.float32 in widths.seen
    assert torch.float64 not in widths.seen
    assert difference(wanted, predicted) < 1e-3


def test_an_error_about_float64_names_the_device():
    device = TorchDevice("torch:cpu")
    refused = TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
    for has_float64, words in ((True, "^Cannot convert"), (False, "'torch:cpu' has no float64: .* an objective must")):
        device.has_float64 = has_float64
        with pytest.raises(TypeError, match=words), device.compute_context():
            raise refused
    with pytest.raises(TypeError, match=r"^another$"), device.compute_context():
        raise TypeError("another")


def test_read_only_memory_is_read_without_a_warning():
    X, y = counts()
    weight = np.ones(FEW)
    for array in (X.data, X.indices, X.indptr, y, weight):
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gbun.train({**SMALL, "scale": "none", "device": "torch:cpu"}, (X, y, weight), 2).predict(X, device="torch:cpu")
