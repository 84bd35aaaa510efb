"""A LoRA adapter of PEFT, as far as merging needs it: what it holds, and what its config says of that.

Source: peft 0.21.2 tuners/lora/{layer,model,dora,variants}.py, tuners/{adalora,trainable_tokens}/layer.py
and utils/{save_and_load,other}.py.
"""

from __future__ import annotations

import re
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Final

from repokit.architectures.adapters_lora import rank
from repokit.architectures.adapters_targets import Settings, by_pattern
from repokit.architectures.errors import NotCovered
from repokit.builder.checkpoints.sources import Checkpoint
from repokit.builder.kinds import ADAPTER_CONFIG
from repokit.builder.naming import repaired
from repokit.builder.transforms.merge import looked_at
from repokit.errors import InputError, MalformedFile, MissingInput, UnsupportedSource
from repokit.formats.tensors import FLOATS
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repokit.builder.checkpoints.stored import Stored, TensorAt
    from repokit.builder.transforms.merge import Values
    from repokit.formats.urls import Place
    from repokit.repo.document import Document

WEIGHTS: Final = ("adapter_model.safetensors", "adapter_model.bin")
MERGED: Final = ("LORA", "ADALORA", "TRAINABLE_TOKENS")
# Methods whose change is no change of a weight: PEFT does not merge them either.
_PROMPTS: Final = frozenset(
    {
        "PROMPT_TUNING",
        "MULTITASK_PROMPT_TUNING",
        "P_TUNING",
        "PREFIX_TUNING",
        "ADAPTION_PROMPT",
        "CPT",
        "CARTRIDGE",
        "XLORA",
    }
)
_LARGEST: Final = 1e30  # rank or alpha: beyond it, a scale is none any more
_MERGE: Final = "merge it where it was trained: model.merge_and_unload(), then save_pretrained, and build from that"
_PUBLISH: Final = "publish it as an adapter: kind: adapter"
# Variants of LoRA that are something else than W + scale x B x A, and why.
_VARIANTS: Final = {
    "alora_invocation_tokens": ("is an activated LoRA", "it holds for the tokens after its invocation alone", _PUBLISH),
    "use_qalora": ("is a QALoRA", "it changes the zero points of a quantized weight", _PUBLISH),
    "arrow_config": ("is a router between adapters (Arrow)", "what it adds depends on the token", _PUBLISH),
    "layer_replication": ("stacks copies of layers (layer_replication)", "the merged model has other layers", _MERGE),
    "use_bdlora": ("has block-diagonal factors (BD-LoRA)", "this version does not put them together", _MERGE),
    "kasa_config": ("is a KaSA adapter", "it stands on weights that its start has changed", _MERGE),
    "monteclora_config": ("is a MonteCLoRA adapter", "it is merged as a mean over samples", _MERGE),
}
# Starts that take the factors out of the weights; the adapter holds on what is left of them (peft 0.21 lora/layer.py).
_MUTATING: Final = re.compile(r"pissa(?:_niter_\d+)?|olora|corda|loftq|lora_ga", re.IGNORECASE)

_FACTOR: Final = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_(?:A|B|E|embedding_A|embedding_B|magnitude_vector))"
    r"(?:\.(?!weight$|bias$)(?P<adapter>[^.]+))?(?:\.(?P<leaf>weight|bias))?"
)
_TOKENS: Final = re.compile(r"(?P<module>.+?)(?:\.token_adapter)?\.trainable_tokens_delta(?:\.[^.]+)?")
# Around a module that is trained in full, and around one that is adapted.
_COPY: Final = re.compile(r"\.modules_to_save(?:\.default)?(?=\.)")
_ORIGINAL: Final = re.compile(r"\.original_module(?=\.)")
_INSIDE: Final = re.compile(r"\.base_layer(?=\.)")
_AROUND: Final = re.compile(r"\.base_layer(?=\.(?!base_layer(?:\.|$)))")
_PREFIX: Final = "base_model.model."


class Adapter:
    """One adapter that is to be merged.

    Attributes:
        label: What people know it by: its path, as the recipe has it.
        weight: What its change is multiplied by.
        factors: By module, as the base has it in memory: `lora_A`, `lora_B`, `lora_B.bias`, ... -> tensor.
        tokens: By embedding: new rows.
        plain: Tensors that take the place of one of the base, by its name in memory.
        inside: Those of them that were saved as what an adapted module has inside: mostly the base's, unchanged.
        config: adapter_config.json.
    """

    def __init__(self, root: Place, label: str, weight: float = 1.0) -> None:
        """Reads the config and the headers.

        Args:
            root: Its folder.
            label: See above.
            weight: See above.

        Raises:
            InputError: It is no adapter, or one that cannot be merged.
        """
        self.label = label
        self.weight = weight
        self.root = root
        folder = Checkpoint(root)
        found = folder.repository.document(ADAPTER_CONFIG)
        if found is None:
            hint = "name the folder that holds it; a second adapter lies in a folder of its own name"
            raise MissingInput(f"has no {ADAPTER_CONFIG}", path=str(root), hint=hint)
        self.config: Document = found
        self._check_method()
        self.file = next((name for name in WEIGHTS if folder.repository.has(name)), None)
        if self.file is None:
            raise MissingInput(f"has no {WEIGHTS[0]}", path=str(root), hint="copy the adapter again")
        checkpoint = Checkpoint(root, self.file)
        checkpoint.check_read()
        self.stored: Stored = checkpoint.weights
        self.factors: dict[str, dict[str, TensorAt]] = {}
        self.tokens: dict[str, TensorAt] = {}
        self.plain: dict[str, TensorAt] = {}
        self.inside: set[str] = set()
        self._sort()
        self._check_factors()

    @property
    def config_path(self) -> str:
        """For messages."""
        return str(self.root / ADAPTER_CONFIG)

    @property
    def weights_path(self) -> str:
        """For messages."""
        return str(self.root / (self.file or ""))

    @property
    def method(self) -> str:
        """Its peft_type."""
        return self.config.string("peft_type") or ""

    def settings(self, model_type: str) -> Settings:
        """Its config with PEFT's defaults, for a base of a model type."""
        return Settings(self.config.raw, self.method, model_type)

    def _check_method(self) -> None:
        method = self.config.string("peft_type")
        if method is None:
            raise MalformedFile("names no peft_type", path=self.config_path, place="/peft_type")
        if method not in MERGED:
            never = method in _PROMPTS
            which = "which cannot be merged" if never else "which this version does not merge"
            what = f"is an adapter of {printable(method, 40)}, {which}"
            why = "it is no change of a weight" if never else None
            hint = _PUBLISH if never else _MERGE
            raise UnsupportedSource(what, why=why, path=self.config_path, place="/peft_type", hint=hint)
        for key, (what, why, hint) in _VARIANTS.items():
            if self.config.raw.get(key):
                raise UnsupportedSource(
                    f"{what}, which is not merged", why=why, path=self.config_path, place=f"/{key}", hint=hint
                )
        start = self.config.string("init_lora_weights")
        if start is not None and _MUTATING.fullmatch(start):
            what = f"stands on weights that its start has changed ({printable(start, 40)})"
            why = "merged into the weights as they were published, it would give another model"
            hint = "save it as plain LoRA: save_pretrained(DIR, path_initial_model_for_weight_conversion=START)"
            raise UnsupportedSource(what, why=why, path=self.config_path, place="/init_lora_weights", hint=hint)

    # ------------------------------------------------------------ what it holds

    def _sort(self) -> None:
        """Takes the names apart: wrappers, the prefix of PEFT and the adapter's name come off."""
        adapters: set[str] = set()
        for name, inner in repaired(self.stored.tensors).items():
            path = inner.removeprefix(_PREFIX)
            tensor = self.stored.tensors[name]
            self._check_dtype(name, tensor)
            if match := _FACTOR.fullmatch(path):
                part = match["part"] + (".bias" if match["leaf"] == "bias" else "")
                adapters.add(match["adapter"] or "")
                self._put(self.factors.setdefault(_module(match["module"]), {}), part, tensor, name)
            elif match := _TOKENS.fullmatch(path):
                self._put(self.tokens, _INSIDE.sub("", match["module"]), tensor, name)
            elif _ORIGINAL.search(path):
                continue
            else:
                plain = _INSIDE.sub("", _COPY.sub("", path))
                self._put(self.plain, plain, tensor, name)
                if _INSIDE.search(path):
                    self.inside.add(plain)
        if len(adapters) > 1:
            what = f"holds several adapters: {some(sorted(name or 'one without a name' for name in adapters))}"
            raise InputError(what, path=self.weights_path, hint="save each into a folder of its own")
        if self.method == "ADALORA":  # a module of which it kept no value
            self.factors = {
                module: parts
                for module, parts in self.factors.items()
                if all(0 not in part.shape for part in parts.values())
            }

    def _put(self, place: dict[str, TensorAt], key: str, tensor: TensorAt, name: str) -> None:
        if key in place:
            what = "is in the file twice, under names that mean the same"
            raise MalformedFile(what, path=self.weights_path, place=name, hint="save the adapter again")
        place[key] = tensor

    def _check_dtype(self, name: str, tensor: TensorAt) -> None:
        if tensor.dtype not in FLOATS and not name.endswith("num_batches_tracked"):
            what = f"is stored as {tensor.dtype}"
            why = "factors of full precision are what can be merged"
            raise UnsupportedSource(what, why=why, path=self.weights_path, place=name, hint=_MERGE)

    def _check_factors(self) -> None:
        if not self.stored.tensors:
            raise MissingInput("holds no tensor", path=self.weights_path, hint="save the adapter again")
        for module, parts in self.factors.items():
            for part, partner in (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B")):
                for one, other in ((part, partner), (partner, part)):
                    if one in parts and other not in parts:
                        self._refuse(module, f"has {one} and no {other}", "save the adapter again")
            if "lora_A" not in parts and "lora_embedding_A" not in parts:
                self._refuse(module, f"has {some(sorted(parts))} and no factors", "save the adapter again")
            for part, tensor in parts.items():
                if part in _MATRICES and (len(tensor.shape) < 2 or 0 in tensor.shape[1:]):
                    self._refuse(
                        module,
                        f"has a {part} of the shape {list(tensor.shape)}",
                        "gather the shards before saving (deepspeed.zero.GatheredParameters, FSDP summon_full_params)",
                    )
        self._check_promised("use_dora", "lora_magnitude_vector")
        self._check_promised("lora_bias", "lora_B.bias")
        if self.method == "ADALORA":
            self._check_promised(None, "lora_E")

    def _check_promised(self, key: str | None, part: str) -> None:
        """Refuses a config and a file of which one has a part and the other has not."""
        promised = key is None or self.config.flag(key) is True
        holding = [module for module, parts in self.factors.items() if part in parts]
        lacking = [
            module for module, parts in self.factors.items() if part not in parts and self._may_have(parts, part)
        ]
        if promised and lacking:
            what = f"lacks {part} of {count(len(lacking), 'module')}: {some(lacking)}"
            raise MalformedFile(what, path=self.weights_path, hint="save the adapter again")
        if not promised and holding:
            what = f"says {key}: false, and {count(len(holding), 'module')} of the weights have {part}: {some(holding)}"
            hint = f"set {key}: true if it was trained so"
            raise MalformedFile(what, path=self.config_path, place=f"/{key}", hint=hint)

    @staticmethod
    def _may_have(parts: Mapping[str, TensorAt], part: str) -> bool:
        return part != "lora_B.bias" or "lora_B" in parts

    def _refuse(self, module: str, what: str, hint: str) -> None:
        raise MalformedFile(what, path=self.weights_path, place=module, hint=hint)

    # ------------------------------------------------------------ what its config says of that

    def rank_and_scale(self, settings: Settings, path: str) -> tuple[int, float]:
        """The rank of a module, and what its product is multiplied by.

        Args:
            settings: See `settings`.
            path: Of the module; of `target_parameters` with the parameter.

        Raises:
            InputError: The config does not say.
        """
        try:
            size = rank(settings, path)
            alpha = by_pattern(settings.mapping("alpha_pattern"), path)
        except NotCovered as error:
            raise UnsupportedSource(str(error), path=self.config_path, hint=_MERGE) from None
        alpha = settings["lora_alpha"] if alpha is None else alpha
        if size is None or size > _LARGEST or type(alpha) not in {int, float} or not abs(alpha) < _LARGEST:
            what = f"says no rank and alpha for {printable(path)}"
            raise MalformedFile(what, path=self.config_path, place="/r", hint="save the adapter again")
        return size, float(alpha) / (sqrt(size) if settings["use_rslora"] else size)

    def adalora_scale(self, settings: Settings, rows: int) -> float:
        """AdaLoRA divides by the number of values that it kept (peft 0.21 adalora/layer.py get_delta_weight)."""
        alpha = settings["lora_alpha"]
        alpha = float(alpha) if type(alpha) in {int, float} and 0 < alpha < _LARGEST else float(rows)
        return alpha / (rows + 1e-5)

    # ------------------------------------------------------------ its values

    @cached_property
    def values(self) -> Mapping[TensorAt, Values]:
        """What the values of every floating-point tensor are like: reads the file once.

        Raises:
            MalformedFile: One is an infinity or not a number.
        """
        found: dict[TensorAt, Values] = {}
        broken: list[str] = []
        for name, tensor in self.stored.tensors.items():
            if tensor.dtype in FLOATS:
                found[tensor] = looked_at(self.stored.contents(tensor), tensor.dtype)
                if not found[tensor].finite:
                    broken.append(name)
        if broken:
            what = f"has values that are no numbers (NaN or infinity) in {count(len(broken), 'tensor')}: {some(broken)}"
            hint = "take an earlier checkpoint: the training has diverged"
            raise MalformedFile(what, why="the merged model would answer with NaN", path=self.weights_path, hint=hint)
        return found

    def idle(self) -> list[str]:
        """Modules whose product is zero: one of the factors was never trained."""
        return [module for module, parts in self.factors.items() if self._is_idle(parts)]

    def _is_idle(self, parts: Mapping[str, TensorAt]) -> bool:
        if "lora_magnitude_vector" in parts:
            return False
        factors: Iterable[str] = ("lora_A", "lora_B", "lora_E", "lora_embedding_A", "lora_embedding_B")
        others = [parts[name] for name in ("lora_B.bias",) if name in parts]
        return any(self.values[parts[name]].zero for name in factors if name in parts) and all(
            self.values[tensor].zero for tensor in others
        )

    @property
    def changes_nothing(self) -> bool:
        """Whether merging it would leave every weight as it is."""
        return not self.weight or (not self.plain and not self.tokens and len(self.idle()) == len(self.factors))


_MATRICES: Final = frozenset({"lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B"})


def _module(path: str) -> str:
    """A module without the wrappers around those that it lies in; those around itself tell parameters apart."""
    return _AROUND.sub("", path)
