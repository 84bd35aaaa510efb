"""What the globals of a pickle do when a loader resolves them: a grade for each module and name.

A grade informs people and decides whether a file is converted at all. The safety of reading never depends on it:
repokit.formats.inert_pickle imports and calls nothing, whatever the table says.
"""

from __future__ import annotations

import re
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple


class Grade(StrEnum):
    """How far a global can be trusted, from best to worst."""

    SAFE = "safe"  # what tensors and plain data are made of
    INERT_KNOWN = "inert-known"  # data classes of known training software: dropped without harm
    UNKNOWN = "unknown"  # of a package that this version does not know: dropped, with a warning
    EXECUTES = "executes"  # can run code, or reach something that does: the file is not converted


class FoundGlobal(NamedTuple):
    """A global that a pickle names.

    Attributes:
        module: As the pickle spells it; empty where the pickle computes it.
        name: With dots where the pickle walks into attributes.
        grade: What resolving it can do.
        via: The opcode that names it: GLOBAL, STACK_GLOBAL, INST, EXT1 ..., or REDUCE, NEWOBJ, OBJ, BUILD for a
            call of something that the pickle computes.
        position: Of the first opcode that does so, in bytes from the beginning of the pickle's file or member.
        times: How many opcodes do so.
        member: The member of a zip archive in which the pickle lies, or "".
    """

    module: str
    name: str
    grade: Grade
    via: str
    position: int
    times: int = 1
    member: str = ""

    @property
    def dotted(self) -> str:
        """`os.system`, as a message names it; escape it with `printable`."""
        return f"{self.module}.{self.name}" if self.module else self.name


@lru_cache(maxsize=4096)
def grade(module: str, name: str) -> Grade:
    """The grade of one global, spelled as in a pickle of Python 3 or of Python 2 (`__builtin__.eval`).

    A name with dots walks through attributes (`torch hub.os.system`), so only a chain of class names may be better
    than `executes`.
    """
    module, name = modern(module, name)
    if not is_name(module, name):
        return Grade.EXECUTES  # look-alike letters, spaces, nothing at all: no package is called so
    if (found := _EXACT.get(f"{module}.{name}")) is not None:
        return found
    if "." in name and not all(map(_CLASS.match, name.split("."))):
        return Grade.EXECUTES
    if _within(module, _RUNS) or f"{module}.{name}" in _RUNS or module.partition(".")[0] in sys.stdlib_module_names:
        return Grade.EXECUTES
    if "." not in name and _CLASS.match(name) and _within(module, _CLASSES_OF):
        return Grade.EXECUTES if name in _BORROWED else Grade.INERT_KNOWN
    return Grade.INERT_KNOWN if module in _FUNCTIONS_OF and name in _FUNCTIONS else Grade.UNKNOWN


def is_enumeration(module: str) -> bool:
    """Whether the classes of a known module are enumerations and other names: to call one with a text does no harm.

    A class elsewhere may open what the text names: `ultralytics.nn.tasks.DetectionModel("x.yaml")` evaluates an
    expression in it, `transformers.models.rag.retrieval_rag.LegacyIndex` loads a pickle from the Hub.
    """
    return module in _ENUMERATIONS or module.rpartition(".")[2] in {"enums", "enum", "constants", "placement_types"}


def is_listed(module: str, name: str) -> bool:
    """Whether a global has its grade by itself, not by the package that it is from."""
    module, name = modern(module, name)
    return f"{module}.{name}" in _EXACT


def is_name(module: str, name: str) -> bool:
    """Whether a module and a name are spelled as Python's own are: a line of text is not."""
    return _PLAIN.fullmatch(module) is not None and _PLAIN.fullmatch(name) is not None


def modern(module: str, name: str) -> tuple[str, str]:
    """As Python 3 resolves what Python 2 wrote: `__builtin__.unicode` is `builtins.str`."""
    if (renamed := NAME_MAPPING.get((module, name))) is not None:
        return renamed
    return IMPORT_MAPPING.get(module, module), name


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_CLASS: Final = re.compile(r"_?[A-Z]")  # how classes are named, and modules and functions are not


def _within(module: str, packages: frozenset[str]) -> bool:
    """Whether a module is one of these packages, or below one."""
    while module:
        if module in packages:
            return True
        module = module.rpartition(".")[0]
    return False


def _names(module: str, names: str) -> list[str]:
    return [f"{module}.{name}" for name in names.split()]


# The storage classes and dtypes of torch/storage.py; _utils: `torch._weights_only_unpickler._get_allowed_globals`.
_SAFE: Final = [
    *_names("collections", "OrderedDict"),
    *_names("_codecs", "encode"),
    *_names("builtins", "set frozenset bytearray bytes complex"),
    *_names("torch", "Size device Tensor strided sparse_coo"),
    *_names("torch", "per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric"),
    *_names("torch", "per_channel_affine_float_qparams"),
    *_names("torch", "FloatStorage HalfStorage BFloat16Storage DoubleStorage LongStorage IntStorage ShortStorage"),
    *_names("torch", "CharStorage ByteStorage BoolStorage ComplexFloatStorage ComplexDoubleStorage"),
    *_names("torch", "QInt8Storage QUInt8Storage QInt32Storage QUInt4x2Storage QUInt2x4Storage UntypedStorage"),
    *_names("torch.storage", "UntypedStorage _UntypedStorage TypedStorage _TypedStorage"),
    *_names("torch", "float64 float32 float16 bfloat16 double float half complex32 complex64 complex128"),
    *_names("torch", "int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool long int short"),
    *_names("torch", "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"),
    *_names("torch", "qint8 quint8 qint32 quint4x2 quint2x4 bits8 bits16 bits1x8 bits2x4 bits4x2"),
    *_names("torch", " ".join(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8))),
    *_names("torch._utils", "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3"),
    *_names("torch._utils", "_rebuild_parameter _rebuild_parameter_with_state"),
    *_names("torch._utils", "_rebuild_qtensor _rebuild_sparse_tensor _rebuild_sparse_csr_tensor"),
    *_names("torch._utils", "_rebuild_meta_tensor_no_storage _rebuild_nested_tensor _rebuild_wrapper_subclass"),
    *_names("torch._utils", "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor"),
    *_names("torch._utils", "_rebuild_xla_tensor"),
    *_names("torch._tensor", "_rebuild_from_type _rebuild_from_type_v2"),
    *_names("torch.tensor", "_rebuild_from_type"),  # where torch before 1.8 had it
    *_names("torch.nn.parameter", "Parameter Buffer UninitializedParameter UninitializedBuffer"),
    *_names("torch.serialization", "_get_layout"),
    *_names("numpy", "dtype ndarray"),
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")),
]

# Of the standard library, where everything else is graded `executes`: what configurations and counters are kept in.
_INERT: Final = [
    *_names("argparse", "Namespace"),
    *_names("types", "SimpleNamespace MappingProxyType"),
    *_names("builtins", "object dict list tuple int float str bool slice range NoneType Ellipsis NotImplemented"),
    *_names("collections", "defaultdict deque Counter ChainMap UserDict UserList UserString"),
    *_names("copyreg", "_reconstructor __newobj__ __newobj_ex__"),
    *_names("datetime", "datetime date time timedelta timezone"),
    *_names("decimal", "Decimal"),
    *_names("fractions", "Fraction"),
    *_names("uuid", "UUID SafeUUID"),
    *_names("enum", "Enum IntEnum StrEnum Flag IntFlag"),
    *_names("pathlib", "Path PurePath PosixPath PurePosixPath WindowsPath PureWindowsPath"),
    *_names("pathlib._local", "Path PurePath PosixPath PurePosixPath WindowsPath PureWindowsPath"),
    *_names("random", "Random"),
    *_names("re", "_compile"),
    *_names("array", "array _array_reconstructor"),
    *_names("io", "BytesIO StringIO"),  # TransformerEngine keeps its `_extra_state` in a BytesIO
    *_names("_io", "BytesIO StringIO"),
    *_names("logging", "Logger getLogger"),  # hyper-parameters of Lightning carry the logger of their module
    *_names("string", "Template"),
    *_names("zoneinfo", "ZoneInfo"),
    *_names("numpy", "bool_ bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 longdouble"),
    *_names("numpy", "complex64 complex128 str_ bytes_ void object_ datetime64 timedelta64"),
    *_names("numpy.random._pickle", "__randomstate_ctor __generator_ctor __bit_generator_ctor"),
    *_names("numpy.random._mt19937", "MT19937"),
    *_names("numpy.random._pcg64", "PCG64"),
    *_names("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    *_names("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"),
    *_names("torch.utils._pytree", "_identity"),
    *_names("deepspeed.utils.tensor_fragment", "fragment_address"),  # a dataclass: where a parameter lies in its group
]
_EXACT: Final = dict.fromkeys(_INERT, Grade.INERT_KNOWN) | dict.fromkeys(_SAFE, Grade.SAFE)

# Packages whose classes are configuration, records and modules. Their functions are not vouched for: some launch
# programs.
_CLASSES_OF: Final = frozenset(
    {
        "transformers.training_args",
        "transformers.training_args_seq2seq",
        "transformers.trainer_utils",
        "transformers.trainer_pt_utils",
        "transformers.debug_utils",
        "transformers.utils.generic",
        "transformers.integrations.deepspeed",
        "transformers.deepspeed",
        "transformers.generation.configuration_utils",
        "transformers.configuration_utils",
        "transformers.models",
        "transformers.tokenization_utils_base",
        "transformers.feature_extraction_utils",
        "transformers.image_processing_base",
        "trl.trainer",
        "trl.core",
        "peft.utils",
        "peft.tuners",
        "peft.config",
        "accelerate.utils.dataclasses",
        "accelerate.state",
        "accelerate.parallelism_config",
        "accelerate.accelerator",
        "omegaconf",
        "lightning",
        "lightning_fabric",
        "lightning_utilities",
        "pytorch_lightning",
        "torchmetrics",
        "deepspeed.runtime",
        "deepspeed.utils.tensor_fragment",
        "numpy.dtypes",
        "torch.nn",
        "torch.optim",
        "torch.cuda.amp",
        "torch.amp",
        "torch.torch_version",
        "torch.ao.quantization",
        "torch.ao.nn",
        "torch.distributed.checkpoint.metadata",
        "torch.distributed.tensor",
        "torch.distributed._tensor",
        "torch.distributed._shard",
        "torch.distributed.fsdp",
        "torch.distributed.device_mesh",
        "torchao.dtypes",
        "torchao.quantization",
        "timm",
        "torchvision.models",
        "torchvision.transforms",
        "fairseq.data.dictionary",
        "fairseq.dataclass",
        "megatron",
        "ultralytics.nn",
        "sentence_transformers",
        "addict",
        "easydict",
        "yacs.config",
        "munch",
        "ml_collections",
        "box",
        "attrdict",
    }
)
_ENUMERATIONS: Final = frozenset(
    {
        "transformers.training_args",
        "transformers.trainer_utils",
        "transformers.debug_utils",
        "transformers.utils.generic",
        "accelerate.utils.dataclasses",
        "peft.utils.peft_types",
        "trl.trainer.utils",
        "torch.torch_version",
        "torch.distributed.checkpoint.metadata",
        "torch.distributed.fsdp.api",
        "deepspeed.runtime.zero.config",
    }
)

# Classes that modules of these packages import from elsewhere, under their own names, and that run code: found by
# importing every module of torch, transformers, peft and accelerate, and reading the others.
_BORROWED: Final = frozenset(
    {
        *("GraphModule", "FusedGraphModule", "ObservedGraphModule", "ObservedStandaloneGraphModule"),
        *("QuantizedGraphModule", "ExportedProgram"),
        *("Popen", "Process", "Thread", "ThreadPoolExecutor", "ProcessPoolExecutor", "Connection"),
        *("MethodType", "FunctionType", "CodeType", "ModuleType", "Unpickler", "_Unpickler", "HfApi", "CliRunner"),
        *("StreamHandler", "FileHandler", "TemporaryDirectory", "NamedTemporaryFile", "ZipFile", "TarFile"),
        "CDLL",
    }
)

_FUNCTIONS_OF: Final = frozenset({"torch.nn.functional", "torch._C._nn"})
# Activations and losses of pickled modules. Beside them stand modules (`torch.nn.functional.importlib`) and functions
# that call what they are given (`handle_torch_function`).
_FUNCTIONS: Final = frozenset(
    {
        *("relu", "relu_", "relu6", "elu", "elu_", "selu", "celu", "leaky_relu", "leaky_relu_", "prelu", "rrelu"),
        *("glu", "gelu", "logsigmoid", "log_sigmoid", "hardshrink", "tanhshrink", "softsign", "softplus", "softmin"),
        *("softmax", "softshrink", "gumbel_softmax", "log_softmax", "tanh", "sigmoid", "hardsigmoid", "silu", "silu_"),
        *("mish", "hardswish", "hardtanh", "threshold", "normalize", "dropout", "layer_norm", "group_norm", "pad"),
        *("linear", "bilinear", "embedding", "interpolate", "cosine_similarity", "pairwise_distance", "one_hot"),
        *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d"),
        *("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "scaled_dot_product_attention"),
    }
)

# Beside the whole standard library: what loads further pickles, code or addresses. A name here stands for itself and,
# where it is a module, for all below it.
_RUNS: Final = frozenset(
    {
        *_names("torch", "hub jit package load save compile ops classes utils.cpp_extension utils.model_zoo"),
        *_names("torch", "utils.collect_env utils.bottleneck utils._cxx_pytree distributed.rpc distributed.launch"),
        *_names(
            "torch", "distributed.run distributed.elastic multiprocessing export fx onnx _dynamo _inductor library"
        ),
        *_names("torch", "ao.quantization.fx ao.quantization.quantize_fx ao.quantization.pt2e"),
        *_names("torch", "distributed._shard.checkpoint distributed.tensor.experimental"),  # they start processes
        *_names("torch", "testing utils.benchmark utils.dlpack utils.checkpoint _ops _classes _import_utils"),
        *_names("torch.serialization", "load save _load _legacy_load find_source"),
        *_names("torch.storage", "_load_from_bytes"),  # torch.load over bytes that lie inside this pickle
        *_names("numpy", "load loads save savez loadtxt genfromtxt fromfile fromregex memmap f2py distutils testing"),
        *_names("numpy", "ctypeslib lib.npyio lib._npyio_impl lib.format lib._format_impl lib.utils compat"),
        *_names("pandas", "read_pickle read_csv read_json read_html read_xml read_sql eval io core.computation"),
        *_names("joblib", "load memory parallel externals numpy_pickle.load"),
        *_names("lightning.pytorch", "cli"),
        *_names("lightning", "fabric.cli app"),
        *_names("pytorch_lightning", "cli utilities.cli"),
        *_names("transformers", "pipeline pipelines dynamic_module_utils commands utils.hub"),
        *_names("accelerate", "commands launchers utils.launch utils.torch_xla utils.other"),
        "dill",
        "cloudpickle",
        "pip",
        "setuptools",
        "pkg_resources",
        "distutils",
        "IPython",
        "jupyter_client",
        "requests",
        "httpx",
        "urllib3",
        "aiohttp",
        "fsspec",
        "paramiko",
        "fabric",
        "invoke",
        "pexpect",
        "sh",
        "plumbum",
        "psutil",
        "yaml",
        "jsonpickle",
        "keras",
        "tensorflow",
        "cffi",
        "numexpr",
        "sympy",
        "django",
        "flask",
        "win32api",
        "win32com",
        "commands",  # Python 2
        "popen2",
        "pytest",
        "nose",
        "py",
        "hydra",
        "fire",
        "click",
        "huggingface_hub",
        "asteval",
        "idlelib",
        "test",
        "_testcapi",
    }
)
