"""Where in a checkpoint the model's tensors are: `state_dict`, `model`, `module` ..., and what is beside them.

A checkpoint is a dict that its trainer made up. What is taken is a rule that can be told in a sentence, and whatever is
not taken is named; where two places qualify, a person decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.pickle_values import Global, Opaque, Pairs, Unordered, Value
from repokit.formats.safetensors import MAX_NAME, METADATA_KEY
from repokit.formats.torch_tensors import Budget, OutOfBudget, is_tensor, tensors_below
from repokit.printable import count, printable, some

MAX_LEVELS: Final = 4  # containers in containers: {"state_dict": {"state_dict": ...}} is met, a third is not
MAX_NESTING: Final = 32  # dicts of modules in dicts of modules
MAX_TENSORS: Final = 200_000  # the largest published checkpoints have 60,000, in many files
MAX_LEFT_OUT: Final = 200_000
MAX_KEY: Final = 1024  # characters of a key; as many as a tensor's whole name may have
MAX_SHOWN: Final = 20  # places in a message
MAX_STEPS: Final = 10_000_000  # that the search for tensors may take: a file of 60,000 tensors takes 100,000

# What trainers call the model. Each was met in published checkpoints or is written by a known trainer: Lightning and
# timm (state_dict), DeepSpeed (module), fairseq, Megatron and accelerate scripts (model), torch's tutorial
# (model_state_dict), BasicSR (params), and older recipes.
MODEL_KEYS: Final = frozenset(
    {
        "state_dict",
        "model",
        "module",
        "model_state_dict",
        "model_state",
        "net",
        "network",
        "params",
        "weights",
    }
)
# An average of the model's weights over training: a second model. Taken only where there is no other.
AVERAGE_KEYS: Final = frozenset(
    {
        "ema",
        "model_ema",
        "ema_model",
        "ema_state_dict",
        "state_dict_ema",
        "model_state_dict_ema",
        "ema_model_state_dict",
        "params_ema",
        "ema_weights",
        "average_model",
        "swa_model",
    }
)
# State of the training run. Never taken.
TRAINING_KEYS: Final = frozenset(
    {
        "optimizer",
        "optimizers",
        "optim",
        "optimizer_state",
        "optimizer_states",
        "optimizer_state_dict",
        "optimizer_states_dict",
        "optim_state_dict",
        "last_optimizer_state",
        "optimizer_history",
        "lr_scheduler",
        "lr_schedulers",
        "lr_scheduler_state_dict",
        "scheduler",
        "schedulers",
        "scheduler_state_dict",
        "scaler",
        "grad_scaler",
        "scaler_state_dict",
        "native_amp_scaling_state",
        "amp",
        "amp_scaler",
        "rng_state",
        "rng_states",
        "random_rng_state",
        "np_rng_state",
        "torch_rng_state",
        "cuda_rng_state",
        "global_step",
        "callbacks",
        "loops",
        "MixedPrecision",
        "MixedPrecisionPlugin",
        "hyper_parameters",
        "hparams",
        "datamodule_hyper_parameters",
        "args",
        "cfg",
        "config",
        "criterion",
        "task_state",
        "extra_state",
        "dataloader",
        "train_loader",
        "random_ltd",
        "sparse_tensor_module_names",
        "shared_params",
        "frozen_param_fragments",
        "frozen_param_shapes",
        "param_shapes",
    }
)


class LeftOut(NamedTuple):
    """An entry of the checkpoint that is not taken.

    Attributes:
        path: Its keys from the top, joined by dots; as they stand in the file: escape with `printable`.
        what: One line that can be shown: `3 (int)`, `412 tensors`.
        tensors: How many tensors it holds.
    """

    path: str
    what: str
    tensors: int


class Chosen(NamedTuple):
    """The place that was chosen.

    Attributes:
        container: Its keys from the top, joined by dots; "" where the tensors are at the top.
        tensors: Names and tensors, in order.
        left_out: Everything else in the checkpoint, in order.
    """

    container: str
    tensors: list[tuple[str, Opaque]]
    left_out: tuple[LeftOut, ...]


def choose(value: Value, path: str, container: str | None = None) -> Chosen:
    """Finds the model's tensors in a checkpoint.

    Args:
        value: What the file holds.
        path: For messages.
        container: The place to take, where a person has said it: keys joined by dots.

    Raises:
        MalformedFile: A name is no tensor's name, or stands there twice.
        UnsupportedSource: There is no state dict, or more than one that could be meant.
    """
    return _Search(path, container).run(value)


class _Search:
    def __init__(self, path: str, container: str | None) -> None:
        self.path = path
        self.wanted = container
        self.left_out: list[LeftOut] = []
        self.budget = Budget(MAX_STEPS)
        self.optimizers: dict[int, bool] = {}
        self.held: dict[int, int] = {}

    def run(self, value: Value) -> Chosen:
        try:
            return self.found(value)
        except OutOfBudget:
            raise MalformedFile(
                "holds the same containers in one another too often", why=_SHARED, path=self.path
            ) from None

    def found(self, value: Value) -> Chosen:
        mapping, at = self.descend(self.state_dict(value, ()), ())
        tensors: list[tuple[str, Opaque]] = []
        self.flatten(mapping, at, tensors)
        self.check_names(tensors)
        return Chosen(".".join(at), tensors, tuple(self.left_out))

    # -------------------------------------------------------------------------------------------- what values hold

    def holds_tensors(self, value: Value) -> bool:
        return next(tensors_below(value, self.budget), None) is not None

    def tensors_in(self, value: Value) -> int:
        """How many; of a value that many entries share, counted once."""
        if (known := self.held.get(id(value))) is None:
            known = self.held[id(value)] = sum(1 for _ in tensors_below(value, self.budget))
        return known

    def is_optimizer(self, value: Pairs) -> bool:
        if (known := self.optimizers.get(id(value))) is None:
            known = self.optimizers[id(value)] = is_optimizer(value)
        return known

    # -------------------------------------------------------------------------------------------- the container

    def descend(self, mapping: Pairs, at: tuple[str, ...]) -> tuple[Pairs, tuple[str, ...]]:
        """Through containers, to the one that holds the tensors. What stands beside the way is left out."""
        for _ in range(MAX_LEVELS):
            key = self.asked_for(mapping, at) if self.wanted is not None else self.choice(mapping, at)
            if key is None:
                return mapping, at
            inner = self.unique(mapping, key, at)
            self.leave_out_all_but(mapping, key, at)
            at = (*at, key)
            mapping = self.state_dict(inner, at)
        raise UnsupportedSource(f"has its tensors deeper than {'.'.join(at)}", hint=_SAVE, path=self.path)

    def asked_for(self, mapping: Pairs, at: tuple[str, ...]) -> str | None:
        assert self.wanted is not None  # noqa: S101 - the caller has looked
        done = ".".join(at)
        if done == self.wanted:
            return None
        rest = self.wanted.removeprefix(f"{done}.") if done else self.wanted
        keys = [key for key, _ in mapping.text_items() if rest == key or rest.startswith(f"{key}.")]
        if not keys:
            what = f"has no container {printable(self.wanted, 80)!r}"
            held = some([key for key, _ in mapping.text_items()], 8)
            raise UnsupportedSource(what, hint=f"it holds {held or 'nothing'}", path=self.path)
        return max(keys, key=len)

    def choice(self, mapping: Pairs, at: tuple[str, ...]) -> str | None:
        """The key to go on with, or None where the tensors are here."""
        if self.is_optimizer(mapping):
            raise self.nothing(mapping, at)
        tensors = [key for key, value in mapping.pairs if is_tensor(value)]
        direct = [key if isinstance(key, str) else describe(key) for key in tensors if at or not _is_of_run(key)]
        holders = self.holders(mapping)
        models = [key for key in holders if key in MODEL_KEYS]
        inside = bool(at) and at[-1] in MODEL_KEYS
        if len(models) == 1 and not any("." in key for key in direct):
            return models[0]
        if direct and (inside or not holders):
            return None
        if direct or len(models) > 1:
            raise self.undecided([*models, *(key for key in holders if key not in models)], direct, at)
        if inside and holders:
            return None
        candidates = [key for key in holders if key not in AVERAGE_KEYS] or holders
        if len(candidates) == 1:
            return candidates[0]
        raise self.undecided(candidates, [], at) if candidates else self.nothing(mapping, at)

    def holders(self, mapping: Pairs) -> list[str]:
        """Keys of the dicts that have tensors in them, those of the training run left out."""
        found = []
        for key, value in mapping.text_items():
            nested = isinstance(value, Pairs) and key not in TRAINING_KEYS and not self.is_optimizer(value)
            if nested and self.holds_tensors(value):
                found.append(key)
        return found

    def undecided(self, holders: list[str], direct: list[str], at: tuple[str, ...]) -> UnsupportedSource:
        places = [".".join((*at, printable(key, 80))) for key in holders[:MAX_SHOWN]]
        if direct:
            places.insert(0, ".".join(at) or "the top level")
        number = len(holders) + bool(direct)
        what = f"holds tensors in {number} places, and no rule says which are the model: {some(places, 6)}"
        return UnsupportedSource(what, hint=_SAVE, path=self.path)

    def nothing(self, mapping: Pairs, at: tuple[str, ...]) -> UnsupportedSource:
        """Why a dict is no state dict."""
        if self.is_optimizer(mapping):
            what = "is the state of an optimizer, not of a model"
            return UnsupportedSource(what, hint="resuming a training run needs it; publishing does not", path=self.path)
        for key, value in mapping.text_items():
            if isinstance(value, Opaque) and not is_tensor(value) and key in MODEL_KEYS | AVERAGE_KEYS:
                return self.an_object(value, (*at, key))
        keys = [key if isinstance(key, str) else describe(key) for key, _ in mapping.pairs]
        where = f"{printable('.'.join(at), 80)} " if at else ""
        what = f"{where}holds no tensors, but {some(keys, 6)}" if keys else f"{where}is an empty dict"
        return UnsupportedSource(what, hint=_SAVE, path=self.path)

    def state_dict(self, value: Value, at: tuple[str, ...]) -> Pairs:
        """A value as a dict, or an error that says what it is instead."""
        if isinstance(value, Pairs):
            return value
        if isinstance(value, Opaque) and not is_tensor(value):
            raise self.an_object(value, at)
        if is_tensor(value):
            raise UnsupportedSource("holds one tensor without a name", hint=_SAVE, path=self.path)
        where = f"{printable('.'.join(at), 80)} " if at else ""
        held = self.tensors_in(value)
        inside = f" with {count(held, 'tensor')}" if held else ""
        raise UnsupportedSource(f"{where}holds {describe(value)}{inside}, not a state dict", hint=_SAVE, path=self.path)

    def an_object(self, value: Opaque, at: tuple[str, ...]) -> UnsupportedSource:
        where = f"{printable('.'.join(at), 80)} is" if at else "is"
        kind = "module" if _is_module(value) else "object"
        what = f"{where} a whole pickled {kind} of the class {class_of(value)}, not a state dict"
        return UnsupportedSource(
            what, why="its classes would have to be imported to read it", hint=_SAVE, path=self.path
        )

    def unique(self, mapping: Pairs, key: str, at: tuple[str, ...]) -> Value:
        found = [value for name, value in mapping.text_items() if name == key]
        if len(found) > 1:
            place = printable(".".join((*at, key)), 120)
            raise MalformedFile("stands there twice", why=_TWICE, path=self.path, place=place)
        return found[0]

    # -------------------------------------------------------------------------------------------- its tensors

    def flatten(self, top: Pairs, at: tuple[str, ...], tensors: list[tuple[str, Opaque]]) -> None:
        """Tensors of a state dict, and of dicts of modules in it, in order, under names joined by dots."""
        waiting: list[Iterator[tuple[tuple[Value, ...], Value]]] = [self.entries(top, (), at)]
        while waiting:
            entry = next(waiting[-1], None)
            if entry is None:
                waiting.pop()
                continue
            keys, value = entry
            if self.wanted is None and not at and len(keys) == 1 and _is_of_run(keys[0]):
                self.leave_out(keys, value)
            elif isinstance(value, Opaque) and is_tensor(value):
                tensors.append((self.name(keys), value))
            elif isinstance(value, Pairs) and self.is_nested(keys, value):
                waiting.append(self.entries(value, keys, at))
            else:
                self.leave_out((*at, *keys), value)
            if len(waiting) > MAX_NESTING:
                raise MalformedFile(f"nests more than {MAX_NESTING} dicts", path=self.path)
            if len(tensors) > MAX_TENSORS or len(self.left_out) > MAX_LEFT_OUT:
                what = f"has more than {MAX_TENSORS:,} tensors, or {MAX_LEFT_OUT:,} entries beside them"
                raise MalformedFile(what, path=self.path)

    def entries(
        self, mapping: Pairs, prefix: tuple[Value, ...], at: tuple[str, ...]
    ) -> Iterator[tuple[tuple[Value, ...], Value]]:
        """What a dict in a state dict holds, under its keys.

        Raises:
            MalformedFile: A key stands in it twice, or is longer than any name.
        """
        seen: set[str] = set()
        for key, value in mapping.pairs:
            if isinstance(key, str):
                if len(key) > MAX_KEY:
                    what = f"is the name of a tensor and has {len(key):,} characters"
                    raise MalformedFile(what, why=_NAME, path=self.path, place=printable(key, 120))
                if key in seen:
                    place = printable(
                        ".".join(map(printable, (*at, *(k for k in prefix if isinstance(k, str)), key))), 120
                    )
                    raise MalformedFile("stands there twice", why=_TWICE, path=self.path, place=place or None)
                seen.add(key)
            yield (*prefix, key), value

    def is_nested(self, keys: tuple[Value, ...], value: Pairs) -> bool:
        if self.wanted is None and _is_of_run(keys[-1]):
            return False
        return not self.is_optimizer(value) and self.holds_tensors(value)

    def name(self, keys: tuple[Value, ...]) -> str:
        for key in keys:
            if not isinstance(key, str):
                what = f"has a tensor under {describe(key)}, which is no name"
                raise MalformedFile(what, why=_NAME, path=self.path)
        return ".".join(map(str, keys))

    def check_names(self, tensors: list[tuple[str, Opaque]]) -> None:
        seen: set[str] = set()
        for name, _ in tensors:
            fault = fault_of(name) or ("stands there twice" if name in seen else None)
            if fault:
                raise MalformedFile(
                    f"is the name of a tensor and {fault}",
                    why=_NAME,
                    path=self.path,
                    place=printable(name, 120) or None,
                )
            seen.add(name)

    # -------------------------------------------------------------------------------------------- the rest

    def leave_out_all_but(self, mapping: Pairs, chosen: str, at: tuple[str, ...]) -> None:
        for key, value in mapping.pairs:
            if key != chosen or not isinstance(key, str):
                self.leave_out((*at, key), value)

    def leave_out(self, keys: tuple[Value, ...], value: Value) -> None:
        path = ".".join(key[:MAX_KEY] if isinstance(key, str) else describe(key) for key in keys)
        held = self.tensors_in(value)
        what = describe(value)
        if held and not is_tensor(value):
            what = f"{what} with {count(held, 'tensor')}"
        self.left_out.append(LeftOut(path, what, held))


_SAVE: Final = "save the state dict alone: torch.save(model.state_dict(), ...)"
_TWICE: Final = "Python keeps the last, other readers the first"
_SHARED: Final = "no checkpoint is made so; to walk through it would take hours"
_NAME: Final = "no module has such a name; it can rewrite a terminal, forge a log line, or lead a converter astray"


def fault_of(name: str) -> str | None:
    """Why no tensor can have such a name, as words that follow it; None where one can."""
    if not name:
        return "is empty"
    if len(name) > MAX_NAME:
        return f"has {len(name):,} characters"
    if not name.isprintable():
        return "has control characters"
    if name.startswith("/") or "../" in name:
        return "is a path"
    return "is a word of the safetensors format" if name == METADATA_KEY else None


def _is_of_run(key: Value) -> bool:
    # Only a str is looked up: the hash of a tuple can take years.
    return isinstance(key, str) and key in TRAINING_KEYS


def is_optimizer(value: Pairs) -> bool:
    """Whether a dict is what torch.optim.Optimizer.state_dict() gives."""
    return {"state", "param_groups"} <= {key for key, _ in value.text_items()}


def _is_module(value: Opaque) -> bool:
    """Whether an object was a torch.nn.Module: its state says so."""
    state = value.state[0] if isinstance(value.state, tuple) and value.state else value.state
    return isinstance(state, Pairs) and "_modules" in {key for key, _ in state.text_items()}


# ------------------------------------------------------------------------------------------------ in words


def class_of(value: Opaque) -> str:
    """The class of an object, as far as the pickle says it, to be shown."""
    callee, first = value.callee, value.args[0] if value.args else None
    if callee in _RECONSTRUCTORS if isinstance(callee, Global) else False:
        callee = first
    return printable(callee, 80) if isinstance(callee, Global) else "that the pickle computes"


_RECONSTRUCTORS: Final = frozenset(
    {
        ("copyreg", "_reconstructor"),
        ("copy_reg", "_reconstructor"),
        ("copyreg", "__newobj__"),
    }
)


def describe(value: Value) -> str:
    """A value in a few words that can be shown."""
    match value:
        case None | Global():
            return "None" if value is None else f"the name {printable(value, 80)}"
        case bool() | int() | float() | complex():
            return f"{printable(value, 40)} ({type(value).__name__})"
        case str():
            return f"'{printable(value, 40)}' (str)"
        case bytes():
            return count(len(value), "byte")
        case Opaque():
            return "a tensor" if is_tensor(value) else f"an object of the class {class_of(value)}"
    return _described_container(value)


def _described_container(value: Value) -> str:
    match value:
        case list() | tuple():
            return f"a {type(value).__name__} of {len(value):,}"
        case Pairs(pairs=pairs):
            return f"a dict of {len(pairs):,}"
        case Unordered(items=items):
            return f"a set of {len(items):,}"
    return "a storage"
