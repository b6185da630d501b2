"""Tensors as input and output, and rows that streams copy to a device."""

from __future__ import annotations

from contextlib import contextmanager
from random import Random

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import gbun
from gbun import preparation
from gbun.arrays import to_host
from gbun.collectives import Solo
from gbun.data.features import Features
from gbun.data.ingest import conform, ingest
from gbun.data.scaling import fit_scaling
from gbun.devices import TorchDevice
from gbun.kernels.batches import Batches, choose_capacity
from tests.kernels.test_batches import KINDS, ON_TORCH, data_of, features_of, placed

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant)")  # warnings of torch about its CSR tensors
SMALL = {"n_neurons": 16, "n_estimators": 3}
devices = pytest.mark.parametrize("device", ["cpu", "torch:cpu"])


X = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
X[X < -1.0] = 0.0
Y, T = X[:, 0] * X[:, 1] + X[:, 2], torch.from_numpy(X)


def csr(tensor, index=torch.int64):
    plain = tensor.to_sparse_csr()
    parts = plain.crow_indices().to(index), plain.col_indices().to(index), plain.values()
    return torch.sparse_csr_tensor(*parts, size=plain.shape)


class Foreign:
    """An array of an unknown library that supports DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **more):
        return self._array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


# Input

FORMS = {  # a tensor, and the same numbers in NumPy or scipy
    "float32": (lambda: T, X),
    "float64": (lambda: T.double(), X.astype(np.float64)),
    "float16": (lambda: T.half(), T.half().numpy()),
    "bfloat16": (lambda: T.bfloat16(), T.bfloat16().float().numpy()),
    "float8": (lambda: T.to(torch.float8_e5m2), T.to(torch.float8_e5m2).float().numpy()),
    "int64": (lambda: (3 * T).long(), (3 * X).astype(np.int64)),
    "bool": (lambda: T > 0, X > 0),
    "not contiguous": (lambda: T.T.contiguous().T, X),
    "every other row": (lambda: T.repeat_interleave(2, 0)[::2], X),
    "requires grad": (lambda: T.clone().requires_grad_(), X),
    "missing": (lambda: torch.where(T > 1.5, torch.nan, T), np.where(X > 1.5, np.nan, X)),
    "csr": (lambda: csr(T), scipy.sparse.csr_array(X)),
    "csr, int32": (lambda: csr(T, torch.int32), scipy.sparse.csr_array(X)),
    "csr, bfloat16": (lambda: csr(T.bfloat16()), scipy.sparse.csr_array(T.bfloat16().float().numpy())),
    "csr, requires grad": (lambda: csr(T).requires_grad_(), scipy.sparse.csr_array(X)),
    "coo": (lambda: T.to_sparse(), scipy.sparse.csr_array(X)),
    "csc": (lambda: T.to_sparse_csc(), scipy.sparse.csr_array(X)),
    "dlpack": (lambda: Foreign(X), X),
}


@devices
@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_gives_the_model_of_its_numbers(form, device):
    make, same = FORMS[form]
    weight, margin, params = np.arange(200) % 3 + 0.5, 0.1 * Y, {**SMALL, "device": device}
    given_, other = (make(), *(torch.from_numpy(a) for a in (Y, weight, margin))), (make(), torch.from_numpy(Y))
    found = gbun.train(params, given_, evals={"other": other})
    wanted = gbun.train(params, (same, Y, weight, margin), evals={"other": (same, Y)})
    predicted = wanted.predict(same, base_margin=margin, device=device)
    for values in (make(), same):
        np.testing.assert_allclose(found.predict(values, base_margin=given_[3], device=device), predicted, atol=1e-6)


def test_duplicates_and_unsorted_indices_of_tensors_are_summed_and_sorted():
    parts = torch.tensor([0, 3, 4]), torch.tensor([2, 0, 2, 1]), torch.tensor([1.0, 5.0, 2.0, 7.0])
    features = ingest(torch.sparse_csr_tensor(*parts, size=(2, 3)))[0].sparse
    assert [a.tolist() for a in (features.indptr, features.ids, features.values)] == [[0, 2, 3], [0, 2, 1], [5, 3, 7]]
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]), (1, 2))
    assert ingest(twice)[0].sparse.values.tolist() == [3.0]


def test_nothing_is_copied_on_the_host():
    for tensors in (False, True):
        for tensor in (T, T.double(), T.T.contiguous().T, T.clone().requires_grad_()):
            dense = ingest(tensor, tensors=tensors)[0].dense
            assert torch.is_tensor(dense) == tensors
            assert (dense.data_ptr() if tensors else dense.ctypes.data) == tensor.data_ptr()
    assert ingest(Foreign(X))[0].dense.ctypes.data == X.ctypes.data
    for index in (torch.int32, torch.int64):
        tensor = csr(T, index)
        entries = ingest(tensor)[0].sparse
        pairs = (tensor.crow_indices(), entries.indptr), (tensor.col_indices(), entries.ids)
        for ours, theirs in (*pairs, (tensor.values(), entries.values)):
            assert theirs.ctypes.data == ours.data_ptr()


def test_dense_tensors_stay_tensors_for_torch_devices():
    features, schema = ingest(T, tensors=True)
    scaled = fit_scaling("standard", features, np.ones(200), Solo(), schema).apply(features)
    for found in (scaled, conform(T, schema, dense=True, tensors=True), features.take(np.array([3, 1]))):
        assert torch.is_tensor(found.dense)
    assert features.block(2, 5).dense.data_ptr() == T[2:].data_ptr()


STEPS = ["none", "auto", "log", "standard", "max_abs", "idf", "unit", "log+standard", "log+idf+unit", "log+max_abs"]


@pytest.mark.parametrize("scale", STEPS)
def test_tensors_are_scaled_as_arrays_are(scale):
    numbers = np.vstack([X, 1e3 + X, 0 * X]).astype(np.float64)
    numbers[::7, 1] = np.nan
    numbers[:, 4] = 2.0
    weight = np.arange(len(numbers)) % 3.0
    found = []
    for dense in (numbers, torch.from_numpy(numbers), torch.from_numpy(numbers.astype(np.float32))):
        features = Features(len(numbers), dense)
        found.append(to_host(fit_scaling(scale, features, weight, Solo()).apply(features).dense))
    assert {a.dtype for a in found} == {np.dtype(np.float32)}
    np.testing.assert_allclose(found[1], found[0], atol=1e-6 * np.abs(found[0]).max())
    np.testing.assert_allclose(found[2], found[0], atol=1e-4 * np.abs(found[0]).max())  # rounded to float32


# Output


@devices
@pytest.mark.parametrize("form", ["float32", "csr", "coo", "requires grad"])
def test_output_has_the_library_of_the_input_on_request(form, device):
    tensor, classes = FORMS[form][0](), np.digitize(Y, [-0.5, 0.5])
    params = {**SMALL, "device": device}
    model = gbun.GBUNClassifier(**params).fit(tensor, torch.from_numpy(classes), eval_set=(tensor, classes))
    assert model.evals_result_["eval_0"]["log_loss"][-1] < 1.0
    for predictor, more in ((model, {}), (model.model_, {"device": device})):
        for name in ("predict", "predict_proba", "decision_function"):
            call = getattr(predictor, name)
            plain, alike = call(tensor, **more), call(tensor, output="input", **more)
            assert type(plain) is type(call(tensor, output="numpy", **more)) is np.ndarray
            assert type(alike) is torch.Tensor
            assert (alike.device, alike.requires_grad) == (tensor.device, False)
            np.testing.assert_array_equal(to_host(alike), plain)
            assert type(call(FORMS[form][1], output="input", **more)) is np.ndarray
    assert type(gbun.GBUNRegressor(**params).fit(tensor, T[:, 0]).predict(tensor, output="input")) is torch.Tensor


def train(x=T, y=Y, **more):
    return gbun.train({**SMALL, **more}, (x, y))


def with_value(value):
    return T.index_put((torch.tensor([7]), torch.tensor([2])), torch.tensor(value))


REFUSED = {
    "1-d": (lambda: T[:, 0], ["X must be", "(200,)", "reshape(-1, 1)"]),
    "3-d": (lambda: T[:, :, None], ["X must be", "(200, 5, 1)"]),
    "infinite": (lambda: with_value(torch.inf), ["X has an infinite value in row 7, column 2"]),
    "-infinite, half": (lambda: with_value(-torch.inf).half(), ["X has an infinite value in row 7, column 2"]),
    "complex": (lambda: T + 0j, ["X must hold real numbers", "complex64"]),
    "infinite, csr": (lambda: csr(with_value(torch.inf)), ["X has a", "infinite", "row 7, column 2"]),
    "complex, csr": (lambda: csr(T + 0j), ["X must hold real numbers", "complex64"]),
    "1-d, coo": (lambda: T[:, 0].to_sparse(), ["X must be rows and columns", "(200,)", "sparse_coo"]),
    "3-d, coo": (lambda: T[:, :, None].to_sparse(), ["X must be rows and columns", "(200, 5, 1)"]),
    "blocks": (lambda: T[:, :4].to_sparse_bsr((2, 2)), ["X must be rows and columns", "sparse_bsr"]),
}


@devices
@pytest.mark.parametrize("case", REFUSED)
def test_tensors_that_are_not_rows_of_numbers_are_refused(case, device):
    (make, words), model = REFUSED[case], train(device=device)
    for action in (lambda: train(make(), device=device), lambda: model.predict(make(), device=device)):
        with pytest.raises(ValueError, match=words[0]) as raised:
            action()
        assert all(word in str(raised.value) for word in words)
    with pytest.raises(ValueError, match=words[0]):
        gbun.GBUNRegressor(**SMALL, device=device).fit(make(), Y)


def test_other_bad_tensors_and_outputs_are_refused():
    model, named = train(), train(y=np.where(Y > 0, "up", "down"))
    for action, words in (
        (lambda: train(y=torch.from_numpy(Y)[:9]), "X has 200 rows, y has 9"),
        (lambda: model.predict(T[:, :3]), "X has 3 features, the model was trained on 5"),
        (lambda: gbun.GBUNRegressor(**SMALL).fit(T, Y).predict(T[:, :3]), "X has 3 features, but"),
        (lambda: model.predict(T, output="torch"), "output must be 'numpy' or 'input', got 'torch'"),
        (lambda: model.predict(X, output=None), "output must be 'numpy' or 'input', got None"),
        (lambda: named.predict(T, output="input"), "output='input' needs numbers, .* classes are <U4; use output='n"),
    ):
        with pytest.raises(ValueError, match=words):
            action()
    assert named.predict_proba(T, output="input").shape == (200, 2)
    with pytest.raises(ValueError, match="X of 'bad' has an infinite value in row 7, column 2"):
        gbun.train({**SMALL, "device": "torch:cpu"}, (T, Y), evals={"bad": (with_value(torch.inf), Y)})


# Streams


class Stream:
    """Operations of a device in their order, executed some time later."""

    def __init__(self, machine):
        self.machine, self.work = machine, []
        machine.streams.append(self)

    def wait_event(self, event):
        mark = event.mark
        self.work.append(lambda: mark is None or mark["done"])
        self.machine.asked(self)


class Machine(torch.overrides.TorchFunctionMode):
    """A simulation of torch.cuda whose streams are delayed at random, within what events allow."""

    def __init__(self, seed, compute_now=False):
        super().__init__()
        self.chance, self.compute_now, self.streams = Random(seed), compute_now, []
        self.compute = self.current = Stream(self)
        self.Stream, self.Event = lambda device: Stream(self), lambda: Event(self)
        self.current_stream = lambda device: self.current

    def __enter__(self):
        torch.Tensor.record_stream = lambda tensor, stream: None  # memory is never reused here
        return super().__enter__()

    def __exit__(self, *error):
        del torch.Tensor.record_stream
        return super().__exit__(*error)

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.copy_ and kwargs.get("non_blocking"):
            self.current.work.append(lambda: torch.Tensor.copy_(*args) is not None)
            return args[0]
        return func(*args, **kwargs)

    def asked(self, stream):
        while stream is self.compute and self.compute_now and self.compute.work:
            self.advance()
        while self.chance.random() < 0.6 and self.advance():
            pass

    def advance(self):
        """Execute the next operation of some stream."""
        for stream in self.chance.sample(self.streams, len(self.streams)):
            if stream.work and stream.work[0]():
                stream.work.pop(0)
                return True
        return False

    def until(self, done):
        while not done():
            assert self.advance(), "streams wait for each other"


class Event:
    def __init__(self, machine):
        self.machine, self.mark = machine, None

    def record(self, stream):
        mark = self.mark = {"done": False}
        stream.work.append(lambda: mark.update(done=True) is None)
        self.machine.asked(stream)

    def synchronize(self):
        if self.mark is not None:
            self.machine.until(lambda: self.mark["done"])


def streaming(machine):
    device = TorchDevice("torch:cpu")
    device.stream_api, device.empty_pinned, made = machine, device.empty, device.empty

    def used_before(*shape, **more):
        """Return memory that an earlier owner still writes to."""
        array = made(*shape, **more)
        machine.compute.work.append(lambda: array.fill_(-7) is not None)
        return array

    device.empty = made if machine.compute_now else used_before
    return device


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(KINDS), st.sampled_from([2, 3, 9]))
def test_a_delayed_device_computes_with_the_right_batch(seed, kind, n_batches):
    features, machine, seen = features_of(kind, 60), Machine(seed), []
    with machine:
        batches = Batches(features, streaming(machine), choose_capacity(features, n_batches, 100), resident=False)
        for _ in range(2):
            for batch in batches:
                names = [name for name in ("dense", "indptr", "low", "values") if getattr(batch, name) is not None]
                arrays = {name: getattr(batch, name) for name in names}
                machine.compute.work.append(
                    lambda a=arrays: seen.append({name: to_host(v).copy() for name, v in a.items()}) is None
                )
                machine.asked(machine.compute)
        machine.until(lambda: not any(stream.work for stream in machine.streams))
    wanted = [
        *Batches(features, TorchDevice("torch:cpu"), choose_capacity(features, n_batches, 100), resident=True)
    ] * 2
    for found, batch in zip(seen, wanted, strict=True):
        for name, values in found.items():
            np.testing.assert_array_equal(values, to_host(getattr(batch, name)))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_streams_give_the_same_model(kind, monkeypatch):
    data, machine = data_of(kind, 300), Machine(1, compute_now=True)
    with placed(monkeypatch, False, False, 64):
        wanted = gbun.train(ON_TORCH, data, 3)
        monkeypatch.setattr(preparation, "make_device", lambda *args: streaming(machine))
        with machine:
            found = gbun.train({**ON_TORCH, "memory_budget": "1GB"}, data, 3)
    np.testing.assert_array_equal(found.ensemble.heads, wanted.ensemble.heads)


# Tensors that cannot be read

TARGETS = ("y", "sample_weight", "base_margin")
UNREADABLE = {  # a tensor of some shape, the error, and the arguments that refuse it
    "meta": (lambda shape: torch.empty(shape, device="meta"), "tensor of numbers, .* holds none", ("X", *TARGETS)),
    "quantised": (
        lambda shape: torch.quantize_per_tensor(torch.rand(shape), 0.1, 0, torch.quint8),
        "must be a tensor of numbers, got one of dtype torch.quint8",
        ("X", *TARGETS),
    ),
    "nested": (
        lambda shape: torch.nested.nested_tensor([torch.zeros(3)] * 60, layout=torch.jagged),
        "must be a tensor with rows of one length, got a nested",
        ("X", *TARGETS),
    ),
    "sparse": (
        lambda shape: torch.eye(60).to_sparse_coo(),
        "must be a dense tensor, got one with layout torch.sparse_coo",
        TARGETS,
    ),
    "complex": (lambda shape: 1j * torch.rand(shape), "must hold real numbers", TARGETS[1:]),
}


@pytest.mark.parametrize(("kind", "argument"), [(kind, name) for kind in UNREADABLE for name in UNREADABLE[kind][2]])
def test_unreadable_tensors_are_refused_by_name(kind, argument):
    make, message, _ = UNREADABLE[kind]
    tensor = make((60, 3) if argument == "X" else (60,))
    given = {"X": torch.rand(60, 3), "y": torch.rand(60), "sample_weight": None, "base_margin": None, argument: tensor}
    for device in ("cpu", "torch:cpu"):
        with pytest.raises(ValueError, match=f"^{argument} .*{message}"):
            gbun.train({"device": device}, tuple(given.values()), 1)


@devices
def test_tensors_with_a_negative_bit_are_read(device):
    z = torch.complex(torch.zeros(60, 4), torch.randn(60, 4)).conj()
    lazy, plain = z.imag, z.imag.resolve_neg()
    assert (lazy.is_neg(), plain.is_neg()) == (True, False)
    for X, y in ((lazy[:, :3], lazy[:, 3]), (plain[:, :3], plain[:, 3])):
        model = gbun.GBUNRegressor(**SMALL, device=device).fit(X, y, abs(y))
        np.testing.assert_array_equal(model.predict(lazy[:, :3]), model.predict(plain[:, :3]))
        assert model.score(X, y) == model.score(plain[:, :3], plain[:, 3])
    np.testing.assert_array_equal(to_host(lazy), to_host(plain))


@pytest.mark.parametrize(
    "change", [torch.Tensor.bfloat16, torch.Tensor.requires_grad_, lambda t: t.to(torch.float8_e5m2)]
)
def test_score_takes_what_fit_takes(change):
    y = torch.from_numpy(np.digitize(Y, [-0.5, 0.5]))
    weight = torch.rand(200)
    for cls, target in ((gbun.GBUNRegressor, change(T[:, 0].clone())), (gbun.GBUNClassifier, change(y.float()))):
        model = cls(**SMALL).fit(T, target, change(weight))
        plain = to_host(target.detach().float()), to_host(change(weight).detach().float())
        assert model.score(T, target, change(weight)) == model.score(X, *plain) > 0.2
        assert isinstance(model.score(T, target), float)


def test_dlpack_of_dtypes_that_numpy_lacks_goes_through_torch():
    narrow = T.bfloat16()
    wanted = gbun.train(SMALL, (narrow, Y)).predict(narrow)
    model = gbun.train(SMALL, (Foreign(narrow), Foreign(torch.from_numpy(Y))))
    np.testing.assert_array_equal(model.predict(Foreign(narrow)), wanted)
    for argument, more in (
        ("X", (Foreign(T.clone().requires_grad_()), Y)),
        ("y", (T, Foreign(T[:, 0].requires_grad_()))),
    ):
        with pytest.raises(ValueError, match=f"^{argument} cannot be read through DLPack, from a Foreign: .*detach"):
            gbun.train(SMALL, more)


class Library:
    """A minimal library with the array API."""

    @staticmethod
    def asarray(values, device=None):
        return OfLibrary(np.asarray(values))


class OfLibrary(Foreign):
    device = "cpu"

    def __array_namespace__(self, api_version=None):
        return Library


def test_estimators_give_back_arrays_of_the_library_they_were_given():
    model = gbun.GBUNRegressor(**SMALL).fit(OfLibrary(X), OfLibrary(Y))
    for predictor in (model, model.model_):
        found = predictor.predict(OfLibrary(X), output="input")
        assert type(found) is OfLibrary
        np.testing.assert_array_equal(found._array, predictor.predict(X))
        with pytest.raises(ValueError, match="output='input' cannot make a Foreign; use output='numpy'"):
            predictor.predict(Foreign(X), output="input")
