"""Files that torch.save wrote, read without torch: every tensor bit-equal to what torch.load gives.

The elements are gathered in plain Python from the bytes of the file, at the offsets and strides that the reader tells.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections import OrderedDict, defaultdict
from functools import partial
from types import SimpleNamespace

import pytest

from repokit.errors import UnsupportedSource
from repokit.formats.tensors import DTYPE_BITS, HEADER_NAMES
from repokit.formats.torch_file import Grade, check_trusted, read_torch_file, scan

pytestmark = pytest.mark.oracle

FORMATS = {"zip": {}, "legacy": {"_use_new_zipfile_serialization": False}}
DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "uint16",
    "uint32",
    "uint64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]
CONTAINERS = {
    "": lambda state: state,
    "state_dict": lambda state: {"epoch": 3, "state_dict": state, "pytorch-lightning_version": "2.5.0"},
    "model": lambda state: {"model": state, "optimizer": {"state": {0: {"exp_avg": zeros(2)}}, "param_groups": [{}]}},
    "module": lambda state: {"module": state, "ds_version": "0.17", "param_shapes": [OrderedDict()]},
    "model_state_dict": lambda state: {"epoch": 1, "model_state_dict": state, "loss": zeros()},
    "state_dict.state_dict": lambda state: {"state_dict": {"state_dict": state, "step": 7}},
    "state_dict.model": lambda state: {"state_dict": {"model": state, "ema": OrderedDict(state)}},
}


def zeros(*shape):
    import torch

    return torch.zeros(shape)


def random_bytes(dtype, *shape):
    """A tensor with random bits: NaNs and infinities too. A bool has only two valid ones."""
    import torch

    width = torch.empty(0, dtype=dtype).element_size()
    count = width
    for dimension in shape:
        count *= dimension
    high = 2 if dtype == torch.bool else 256
    return torch.randint(0, high, (count,), dtype=torch.uint8).view(dtype).reshape(shape)


def state_dict():
    """Every dtype in every way in which a tensor can lie in a storage."""
    import torch

    torch.manual_seed(0)
    state = OrderedDict()
    for name in DTYPES:
        base = random_bytes(getattr(torch, name), 6, 4)
        state[f"{name}.plain"] = base
        state[f"{name}.tied"] = base
        state[f"{name}.view"] = base[2:5]
        state[f"{name}.transposed"] = base.t()
        state[f"{name}.stepped"] = base[1::2, ::3]
        state[f"{name}.expanded"] = base[:1].expand(5, 4)
        state[f"{name}.scalar"] = random_bytes(getattr(torch, name), 1).reshape(())
        state[f"{name}.empty"] = torch.empty(0, 3, dtype=getattr(torch, name))
        state[f"{name}.empty_view"] = base[3:3]
        if base.is_floating_point() or base.is_complex():
            state[f"{name}.parameter"] = torch.nn.Parameter(random_bytes(getattr(torch, name), 3, 2))
    state["buffer"] = torch.nn.Buffer(torch.arange(3))
    state["attributed"] = torch.ones(2)
    state["attributed"].note = "torch keeps attributes of tensors"
    return state


def reader(path):
    content = path.read_bytes()
    return lambda offset, length: content[offset : offset + length]


def opened(path, **options):
    return read_torch_file(reader(path), path.stat().st_size, path.name, **options)


def gathered(content, tensor):
    """The bytes of a tensor written row by row."""
    width = DTYPE_BITS[tensor.dtype] // 8
    parts = []
    for index in itertools.product(*map(range, tensor.shape)):
        begin = tensor.offset + width * sum(i * stride for i, stride in zip(index, tensor.strides, strict=True))
        assert tensor.offset <= begin <= tensor.offset + tensor.span - width
        assert tensor.storage_offset <= begin <= tensor.storage_offset + tensor.storage_size - width
        parts.append(content[begin : begin + width])
    return b"".join(parts)


def bytes_of(tensor):
    import torch

    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


def assert_equal(path, expected):
    """All of a state dict: names and their order, dtypes, shapes, values, Parameters, and what shares memory."""
    file, content = opened(path), path.read_bytes()
    assert list(file.tensors) == list(expected)
    for name, tensor in expected.items():
        found = file.tensors[name]
        assert (found.name, HEADER_NAMES[found.dtype], found.shape) == (
            name,
            str(tensor.dtype)[6:],
            tuple(tensor.shape),
        )
        assert gathered(content, found) == bytes_of(tensor), name
        assert found.size == len(bytes_of(tensor)), name
        assert found.contiguous == tensor.is_contiguous(), name
        assert not found.contiguous or content[found.offset : found.offset + found.size] == bytes_of(tensor), name
    shared = {name: tensor.untyped_storage().data_ptr() for name, tensor in expected.items() if tensor.numel()}
    for one, two in itertools.combinations(shared, 2):
        ours = file.tensors[one].storage == file.tensors[two].storage
        assert ours == (shared[one] == shared[two]), (one, two)
    return file


@pytest.fixture(scope="module")
def state():
    return state_dict()


def loadable(state, form):
    """Without the dtypes that torch.load of this version cannot read from its own legacy files: uint16, float8 ..."""
    new = ("uint16.", "uint32.", "uint64.", "float8_")
    return OrderedDict(item for item in state.items() if form == "zip" or not item[0].startswith(new))


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("form", FORMATS)
def test_every_tensor_is_bit_equal(form, container, state, tmp_path):
    import torch

    path = tmp_path / "checkpoint.pt"
    torch.save(CONTAINERS[container](loadable(state, form)), path, **FORMATS[form])
    loaded = torch.load(path, weights_only=False)
    for key in container.split(".") if container else ():
        loaded = loaded[key]
    file = assert_equal(path, loaded)
    assert (file.format, file.container) == (form, container)
    assert file.refused == ()


def test_dtypes_that_torch_cannot_load_from_its_own_legacy_format_are_what_was_saved(state, tmp_path):
    import torch

    torch.save(state, tmp_path / "checkpoint.pt", **FORMATS["legacy"])
    assert_equal(tmp_path / "checkpoint.pt", state)


@pytest.mark.parametrize("form", FORMATS)
def test_parameters_are_told_from_tensors(form, state, tmp_path):
    import torch

    torch.save(state, tmp_path / "checkpoint.pt", **FORMATS[form])
    tensors = opened(tmp_path / "checkpoint.pt").tensors
    expected = {name for name, tensor in state.items() if isinstance(tensor, torch.nn.Parameter)}
    assert {name for name, tensor in tensors.items() if tensor.is_parameter} == expected


def test_float4_counts_elements_and_not_pairs(tmp_path):
    import torch

    packed = torch.arange(24, dtype=torch.uint8).reshape(4, 6)
    torch.save({"w": packed.view(torch.float4_e2m1fn_x2)}, tmp_path / "fp4.pt")
    found = opened(tmp_path / "fp4.pt").tensors["w"]
    assert (found.dtype, found.shape, found.size, found.contiguous) == ("F4", (4, 12), 24, True)
    assert (tmp_path / "fp4.pt").read_bytes()[found.offset : found.offset + 24] == bytes(range(24))


def test_the_state_dict_of_a_module_is_read(tmp_path):
    import torch

    model = torch.nn.TransformerEncoderLayer(8, 2, 16)
    torch.save(model.state_dict(), tmp_path / "model.bin")
    assert_equal(tmp_path / "model.bin", model.state_dict())


# ------------------------------------------------------------------------------------------------ trainers


class Unheard:
    """A class that no allow-list knows."""


def lightning_like(state):
    import torch

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 4)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "global_step": 10,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": OrderedDict((f"model.{name}", tensor) for name, tensor in state.items()),
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.5)}},
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": argparse.Namespace(lr=1e-4, extra=Unheard(), table=defaultdict(list, a=[1])),
    }


@pytest.mark.parametrize("form", FORMATS)
def test_a_lightning_checkpoint_that_weights_only_refuses_is_opened(form, state, tmp_path):
    import torch

    path = tmp_path / "last.ckpt"
    torch.save(lightning_like(loadable(state, form)), path, **FORMATS[form])
    with pytest.raises(Exception, match=r"[Ww]eights"):
        torch.load(path, weights_only=True)
    file = assert_equal(path, torch.load(path, weights_only=False)["state_dict"])
    check_trusted(file)
    told = {left.path: (left.what, left.tensors) for left in file.left_out}
    assert told["epoch"] == ("3 (int)", 0)
    assert told["optimizer_states"] == ("a list of 1 with 6 tensors", 6)
    assert told["hyper_parameters"] == ("an object of the class argparse.Namespace", 0)


def test_globals_of_a_lightning_checkpoint_are_graded(state, tmp_path):
    import torch

    torch.save(lightning_like(state), tmp_path / "last.ckpt")
    grades = {one.dotted: one.grade for one in opened(tmp_path / "last.ckpt").globals}
    assert grades["argparse.Namespace"] is Grade.INERT_KNOWN
    assert grades["collections.defaultdict"] is Grade.INERT_KNOWN
    assert grades[f"{Unheard.__module__}.Unheard"] is Grade.UNKNOWN
    assert grades["torch._utils._rebuild_tensor_v2"] is Grade.SAFE


def test_a_dict_with_the_arguments_of_a_trainer_is_opened(state, tmp_path):
    import torch
    from transformers import TrainingArguments

    path = tmp_path / "run.pt"
    arguments = TrainingArguments(output_dir=str(tmp_path / "out"), report_to=[], use_cpu=True)
    torch.save({"model_state_dict": state, "args": arguments, "rng_state": torch.get_rng_state()}, path)
    with pytest.raises(Exception, match=r"[Ww]eights"):
        torch.load(path, weights_only=True)
    file = assert_equal(path, state)
    check_trusted(file)
    assert {one.grade for one in file.globals} == {Grade.SAFE, Grade.INERT_KNOWN}


def test_training_args_bin_names_nothing_that_executes(tmp_path):
    import torch
    from transformers import TrainingArguments

    path = tmp_path / "training_args.bin"
    torch.save(TrainingArguments(output_dir=str(tmp_path / "out"), report_to=[], use_cpu=True), path)
    found = scan(reader(path), path.stat().st_size, path.name)
    assert {one.grade for one in found} <= {Grade.SAFE, Grade.INERT_KNOWN}, found


# ------------------------------------------------------------------------------------------------ what is refused


def unsupported():
    import torch

    yield "complex128", torch.zeros(2, dtype=torch.complex128), "complex128"
    yield "quantized", torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8), "quantized"
    yield "sparse", torch.eye(3).to_sparse(), "sparse"
    yield "csr", torch.eye(3).to_sparse_csr(), "sparse"
    yield "nested", torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "nested"
    yield "meta", torch.zeros(2, device="meta"), "meta"
    yield "conjugated", torch.zeros(2, dtype=torch.complex64).conj(), "resolve_conj"


@pytest.mark.parametrize("kind", ["complex128", "quantized", "sparse", "csr", "nested", "meta", "conjugated"])
def test_a_tensor_that_safetensors_cannot_hold_is_refused_by_name(kind, tmp_path):
    import torch

    tensor, word = next((tensor, word) for name, tensor, word in unsupported() if name == kind)
    torch.save({"good": torch.zeros(1), "the.bad.one": tensor}, tmp_path / "model.bin")
    with pytest.raises(UnsupportedSource, match=word) as caught:
        opened(tmp_path / "model.bin")
    assert caught.value.place == "the.bad.one"


@pytest.mark.parametrize("kind", ["complex128", "quantized", "sparse", "csr", "nested", "meta", "conjugated"])
def test_such_a_tensor_outside_of_the_state_dict_is_left_out(kind, tmp_path):
    import torch

    tensor = next(tensor for name, tensor, _ in unsupported() if name == kind)
    torch.save({"state_dict": {"w": torch.zeros(1)}, "other": {"x": tensor}}, tmp_path / "model.bin")
    file = opened(tmp_path / "model.bin")
    assert list(file.tensors) == ["w"]
    assert [(left.path, left.what) for left in file.left_out] == [("other", "a dict of 1 with 1 tensor")]


@pytest.mark.parametrize("form", FORMATS)
def test_a_whole_module_is_refused_with_the_way_out(form, tmp_path):
    import torch

    torch.save(torch.nn.Linear(4, 4), tmp_path / "model.pt", **FORMATS[form])
    with pytest.raises(UnsupportedSource, match=r"module of the class torch\.nn\.modules\.linear\.Linear") as caught:
        opened(tmp_path / "model.pt")
    assert "state_dict()" in caught.value.hint


def test_a_torchscript_program_is_refused_by_name(tmp_path):
    import torch

    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), tmp_path / "model.pt")
    with pytest.raises(UnsupportedSource, match="TorchScript"):
        opened(tmp_path / "model.pt")


def test_an_exported_program_is_refused_by_name(tmp_path):
    import torch

    program = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    torch.export.save(program, tmp_path / "model.pt2")
    with pytest.raises(UnsupportedSource, match=r"torch\.export"):
        opened(tmp_path / "model.pt2")


def test_the_state_of_an_optimizer_is_refused_by_name(tmp_path):
    import torch

    model = torch.nn.Linear(2, 2)
    torch.save(torch.optim.SGD(model.parameters()).state_dict(), tmp_path / "optimizer.pt")
    with pytest.raises(UnsupportedSource, match="optimizer"):
        opened(tmp_path / "optimizer.pt")


def test_a_file_of_many_storages_and_64_bit_records_is_read(tmp_path):
    import torch

    state = {f"layers.{number}.weight": torch.tensor([float(number)]) for number in range(3000)}
    torch.save(state, tmp_path / "many.bin")
    assert (tmp_path / "many.bin").read_bytes().count(b"PK\x06\x06") == 1
    file, content = opened(tmp_path / "many.bin"), (tmp_path / "many.bin").read_bytes()
    assert all(gathered(content, file.tensors[name]) == bytes_of(tensor) for name, tensor in state.items())


def test_a_pickle_of_python_objects_runs_nothing(tmp_path):
    import torch

    canary = tmp_path / "canary"
    payload = SimpleNamespace(call=partial(os.mkdir, str(canary)))
    torch.save({"w": torch.zeros(1), "extra": payload}, tmp_path / "model.bin")
    refused = opened(tmp_path / "model.bin").refused
    assert {one.dotted for one in refused} >= {"functools.partial", f"{os.mkdir.__module__}.mkdir"}
    assert not canary.exists()
