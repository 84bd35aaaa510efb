"""The grades of globals: nothing that runs code may be graded as harmless, and no ordinary checkpoint as an attack."""

from __future__ import annotations

import sys

import pytest

from repokit.formats.pickle_globals import Grade, grade

SAFE = [
    ("collections", "OrderedDict"),
    ("torch", "FloatStorage"),
    ("torch", "bfloat16"),
    ("torch", "Size"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch.storage", "UntypedStorage"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
    ("__builtin__", "set"),
]
INERT = [
    ("argparse", "Namespace"),
    ("pathlib", "PosixPath"),
    ("collections", "defaultdict"),
    ("transformers.training_args", "TrainingArguments"),
    ("transformers.trainer_utils", "IntervalStrategy"),
    ("accelerate.utils.dataclasses", "DistributedType"),
    ("omegaconf.dictconfig", "DictConfig"),
    ("pytorch_lightning.utilities.parsing", "AttributeDict"),
    ("lightning.fabric.utilities.data", "AttributeDict"),
    ("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"),
    ("torch.nn.modules.linear", "Linear"),
    ("copy_reg", "_reconstructor"),
    ("datetime", "timedelta"),
]
RUNS = [
    ("os", "system"),
    ("posix", "system"),
    ("nt", "system"),
    ("subprocess", "Popen"),
    ("commands", "getoutput"),
    ("builtins", "eval"),
    ("__builtin__", "eval"),
    ("builtins", "exec"),
    ("builtins", "getattr"),
    ("builtins", "__import__"),
    ("builtins", "open"),
    ("builtins", "compile"),
    ("importlib", "import_module"),
    ("runpy", "run_path"),
    ("pty", "spawn"),
    ("socket", "socket"),
    ("ctypes", "CDLL"),
    ("pickle", "loads"),
    ("_pickle", "loads"),
    ("marshal", "loads"),
    ("shutil", "rmtree"),
    ("webbrowser", "open"),
    ("sys", "exit"),
    ("code", "InteractiveInterpreter"),
    ("timeit", "timeit"),
    ("bdb", "Bdb"),
    ("pdb", "run"),
    ("torch", "load"),
    ("torch.hub", "load"),
    ("torch.serialization", "load"),
    ("torch.storage", "_load_from_bytes"),
    ("torch.jit", "load"),
    ("torch.fx.graph_module", "reduce_graph_module"),
    ("numpy", "load"),
    ("numpy.testing._private.utils", "runstring"),
    ("operator", "attrgetter"),
    ("operator", "methodcaller"),
    ("functools", "partial"),
    ("joblib", "load"),
    ("dill._dill", "_create_function"),
    ("cloudpickle.cloudpickle", "_make_function"),
    ("pip", "main"),
    ("torch.ao.quantization.fx.graph_module", "GraphModule"),
    ("torch.ao.quantization.quantize_fx", "GraphModule"),
    ("transformers.trainer_pt_utils", "StreamHandler"),
    ("accelerate.accelerator", "MethodType"),
    ("torch.distributed._shard.checkpoint.filesystem", "FileSystemReader"),
]


@pytest.mark.parametrize("pair", SAFE, ids=".".join)
def test_what_tensors_are_made_of_is_safe(pair):
    assert grade(*pair) is Grade.SAFE


@pytest.mark.parametrize("pair", INERT, ids=".".join)
def test_classes_of_training_software_are_known_to_be_inert(pair):
    assert grade(*pair) is Grade.INERT_KNOWN


@pytest.mark.parametrize("pair", RUNS, ids=".".join)
def test_what_runs_code_is_named_so(pair):
    assert grade(*pair) is Grade.EXECUTES


def test_a_package_that_is_not_known_is_unknown():
    assert grade("my_package.models", "Model") is Grade.UNKNOWN


def test_every_module_of_the_standard_library_executes_unless_it_is_listed():
    names = sorted(sys.stdlib_module_names)
    assert {grade(module, "anything") for module in names} == {Grade.EXECUTES}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch", "hub.os.system"),
        ("torch._utils", "os.system"),
        ("transformers.training_args", "os.system"),
        ("pathlib", "Path.touch"),
        ("collections", "OrderedDict.fromkeys"),
        ("my_package", "os.system"),
        ("torch.nn.functional", "boolean_dispatch.__globals__"),
    ],
)
def test_a_walk_through_attributes_executes(module, name):
    assert grade(module, name) is Grade.EXECUTES


def test_a_nested_class_is_no_more_than_unknown():
    assert grade("transformers.training_args", "Outer.Inner") is Grade.UNKNOWN


@pytest.mark.parametrize(
    "module", ["transformers.training_args", "omegaconf", "lightning.pytorch", "deepspeed.runtime"]
)
def test_functions_of_known_packages_are_not_vouched_for(module):
    assert grade(module, "launch") is Grade.UNKNOWN


@pytest.mark.parametrize("name", ["importlib", "torch", "warnings", "handle_torch_function", "boolean_dispatch"])
def test_what_stands_beside_the_activations_is_not_vouched_for(name):
    assert grade("torch.nn.functional", name) is Grade.UNKNOWN


@pytest.mark.parametrize("name", ["gelu", "silu", "relu"])
def test_activations_are_known_to_be_inert(name):
    assert grade("torch.nn.functional", name) is Grade.INERT_KNOWN


def test_a_package_whose_name_begins_like_a_known_one_is_unknown():
    assert grade("omegaconfig", "DictConfig") is Grade.UNKNOWN


@pytest.mark.parametrize("module", ["\u043es", "o s", "os\x00", "", ".os", "os..path", "os\nposix"])
def test_what_is_no_name_executes(module):
    assert grade(module, "system") is Grade.EXECUTES


def test_what_python_2_called_otherwise_is_graded_under_its_new_name():
    assert grade("urllib2", "urlopen") is Grade.EXECUTES
