"""Loads repositories with transformers as those who download them do: a program of its own, started by load_process.py.

The only file of repokit that imports torch, transformers and peft. Of repokit it takes the file beside it, and repokit
never imports it. One JSON request on stdin; on stdout one line of JSON when the libraries are imported, then one for
each repository. Whatever else is printed goes to stderr. No code of a repository runs: trust_remote_code is never true.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType
    from typing import TypeAlias

    Request = Mapping[str, Any]
    # What the libraries are and make: the type checker does not follow them.
    Torch: TypeAlias = Any
    Loaded: TypeAlias = Any


def _beside(name: str) -> ModuleType:
    """A module of this folder. repokit is not on the child's path: the environment that is judged is the user's."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING or __name__ != "__main__":
    from repokit.verifier.load_trial import PROMPT, Fault, Skipped, Trial, finite, told
else:
    beside = _beside("load_trial")
    PROMPT, Fault, Skipped, Trial = beside.PROMPT, beside.Fault, beside.Skipped, beside.Trial
    finite, told = beside.finite, beside.told

LONGEST: Final = 500  # characters of what a library says
LOCAL: Final[Mapping[str, Any]] = {"local_files_only": True, "trust_remote_code": False}

# Classes for an adapter, by what peft calls its task; for others the class that the base names.
TASK_CLASSES: Final = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoModel",
}


class Unchecked(Exception):
    """Why something could not be looked at; the repository may be sound."""


class Check:
    """One repository: its steps in order, and what they found."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.directory: str = request["directory"]
        self.steps: list[dict[str, str]] = []
        self.keys: dict[str, list[Any]] = {}
        self.started = time.monotonic()

    def step(self, name: str, do: Callable[[], tuple[str, Loaded]]) -> Loaded:
        """Does one step and writes down how it went; what it loaded, or None."""
        try:
            what, loaded = do()
        except BaseException as error:  # noqa: BLE001 - the panics of tokenizers are no Exceptions
            outcome, what, loaded = *outcome_of(error), None
        else:
            outcome = "passed"
        self.steps.append({"name": name, "outcome": outcome, "what": what[:LONGEST]})
        return loaded

    def run(self) -> dict[str, Any]:
        config = self.step("config", self.config)
        tokenizer = self.step("tokenizer", self.tokenizer) if self.request["tokenizer"] else None
        processor = self.step("processor", self.processor) if self.request["processor"] else None
        if config is not None:
            load = self.adapter if self.request["kind"] == "adapter" else self.weights
            model = self.step("weights", lambda: load(config))
            if model is not None and not any(step["outcome"] == "failed" for step in self.steps):
                trial = self.trial(model, tokenizer, processor)
                self.step("generation" if trial.generates else "forward", trial.run)
        if self.request["note"]:
            self.steps.append({"name": "modules", "outcome": "skipped", "what": self.request["note"]})
        return {"steps": self.steps, "keys": self.keys, "seconds": time.monotonic() - self.started}

    def trial(self, model: Loaded, tokenizer: Loaded, processor: Loaded) -> Trial:
        import torch
        import transformers

        return Trial(self.directory, model, tokenizer, processor, torch=torch, transformers=transformers)

    def config(self) -> tuple[str, Loaded]:
        if self.request["kind"] == "adapter":
            import peft

            adapter = peft.PeftConfig.from_pretrained(self.directory, local_files_only=True)
            return f"{named(adapter.peft_type)} adapter, {named(adapter.task_type) or 'no task type'}", adapter
        import transformers

        raw = json.loads(Path(self.directory, "config.json").read_bytes())
        kind = raw.get("model_type") if isinstance(raw, dict) and "auto_map" not in raw else None
        if isinstance(kind, str) and kind not in transformers.CONFIG_MAPPING:
            raise Unchecked(f"transformers {transformers.__version__} does not know the model type {kind}")
        config = transformers.AutoConfig.from_pretrained(self.directory, **LOCAL)
        return f"{config.model_type}, {', '.join(config.architectures or ['names no class'])}", config

    def tokenizer(self) -> tuple[str, Loaded]:
        import transformers

        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.directory, **LOCAL)
        except ValueError as error:
            if "Couldn't instantiate the backend tokenizer" not in str(error):
                raise
            raise Fault("there is no vocabulary that its class reads, such as tokenizer.json") from error
        # A tokenizer of transformers 5 that finds no vocabulary makes an empty one, without a word.
        if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
            raise Fault("has no vocabulary: there are no tokens but the special ones")
        tokenizer.decode(tokenizer(PROMPT)["input_ids"])
        return f"{type(tokenizer).__name__}, {len(tokenizer):,} tokens", tokenizer

    def processor(self) -> tuple[str, Loaded]:
        import transformers

        processor = transformers.AutoProcessor.from_pretrained(self.directory, **LOCAL)
        return type(processor).__name__, processor

    def weights(self, config: Loaded) -> tuple[str, Loaded]:
        import transformers

        chosen, why = model_class(transformers, config)
        model, info = self.loaded(chosen, self.directory)
        self.keys = {
            "missing": sorted(info["missing_keys"]),
            "unexpected": sorted(info["unexpected_keys"]),
            "mismatched": sorted([name, list(ours), list(theirs)] for name, ours, theirs in info["mismatched_keys"]),
            **left_over(model),
        }
        return self.whole(f"{type(model).__name__}{why}", model)

    def whole(self, what: str, model: Loaded) -> tuple[str, Loaded]:
        """A model in which every weight is one of the repository's.

        Raises:
            Fault: Some are not; `keys` names them.
        """
        if found := [f"{len(names):,} {fault.replace('_', ' ')}" for fault, names in self.keys.items() if names]:
            raise Fault(f"{what}: {', '.join(found)}")
        return f"{what}, {told_size(model)}, none missing", model

    def loaded(self, chosen: Loaded, directory: str) -> tuple[Loaded, Any]:
        """The model, and what `from_pretrained` says of its keys: wrong shapes too, at which it raises otherwise."""
        arguments: dict[str, Any] = {**LOCAL, "device_map": "auto", "dtype": "auto", "output_loading_info": True}
        if self.request["variant"] and directory == self.directory:
            arguments["variant"] = self.request["variant"]
        return chosen.from_pretrained(directory, ignore_mismatched_sizes=True, **arguments)  # type: ignore[no-any-return]

    def adapter(self, config: Loaded) -> tuple[str, Loaded]:
        """Puts the adapter on its base; a base that does not load says nothing of the adapter."""
        import peft
        import transformers

        base_path: str = self.request["base"]
        try:
            base_config = transformers.AutoConfig.from_pretrained(base_path, **LOCAL)
            name = TASK_CLASSES.get(named(config.task_type))
            chosen = getattr(transformers, name) if name else model_class(transformers, base_config)[0]
            base, _ = self.loaded(chosen, base_path)
        except Exception as error:
            raise Unchecked(f"the base does not load: {told(error)}") from error
        model = peft.PeftModel.from_pretrained(base, self.directory, local_files_only=True)
        # Once more, because only this says which keys it did not find a place for.
        result = model.load_adapter(self.directory, "default", local_files_only=True)
        self.keys = {
            "missing": sorted(result.missing_keys),
            # peft reads these by another way than the rest, and calls them unexpected (save_and_load.py)
            "unexpected": sorted(set(result.unexpected_keys) - {"prompt_embeddings"}),
            **left_over(model),
        }
        return self.whole(f"{type(base).__name__} with the adapter", model)


# ---------------------------------------------------------------- what went wrong


def outcome_of(error: BaseException) -> tuple[str, str]:
    """Whether an error speaks of the repository or of this machine, and its words."""
    text = str(error)
    match error:
        case Skipped():
            return "skipped", text
        case Fault():
            return "failed", text
        case Unchecked():
            return "unchecked", text
        case ImportError():
            package = missing_package(error)
            return "unchecked", f"needs the package {package}: pip install {package}" if package else told(error)
    if "trust_remote_code" in text:
        return "unchecked", "needs its own code, which is not run here"
    if isinstance(error, MemoryError) or re.search(r"out of memory|can't allocate memory|offloaded to the disk", text):
        return "unchecked", f"does not fit into the memory of this machine: {told(error)}"
    if re.search(r"\b(?:No GPU|GPU is needed|needs? a GPU|requires? (?:a )?(?:GPU|CUDA))|CUDA is not available", text):
        return "unchecked", f"needs a GPU: {told(error)}"
    return "failed", told(error)


def missing_package(error: ImportError) -> str | None:
    """What must be installed, as the library that misses it says."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return error.name.partition(".")[0]
    for pattern in (
        r"pip install (?:-U |--upgrade )*[`'\"]*([\w.-]+)",
        r"requires the (\w+) library",
        r"A valid (\w+) version",
        r"`([\w-]+)`",
    ):
        if found := re.search(pattern, str(error)):
            return found[1].lower()
    return None


def named(value: object) -> str:
    return "" if value is None else str(getattr(value, "value", value))


# ---------------------------------------------------------------- the model


def model_class(transformers: Torch, config: Loaded) -> tuple[Loaded, str]:
    """The class that config.json names, else the one that transformers would choose for its type; and a remark."""
    names = config.architectures or []
    for name in names:
        found = getattr(transformers, str(name), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found, ""
    remark = (
        f" ({names[0]} is not in transformers {transformers.__version__})" if names else " (config.json names none)"
    )
    causal = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    chosen = "AutoModelForCausalLM" if type(config) in causal else "AutoModel"
    return getattr(transformers, chosen), remark


def told_size(model: Loaded) -> str:
    parameters = [parameter for _, parameter in model.named_parameters()]
    return f"{len(parameters):,} tensors, {sum(parameter.numel() for parameter in parameters):,} parameters"


def left_over(model: Loaded) -> dict[str, list[Any]]:
    """Parameters that hold NaN or an infinity, and those that were never filled."""
    import torch

    offloaded = {"cpu", "disk"} & {str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}
    found: dict[str, list[Any]] = {"not_finite": [], "unfilled": []}
    for name, parameter in model.named_parameters():
        if parameter.device.type == "meta":
            if not offloaded:
                found["unfilled"].append(name)
        elif parameter.is_floating_point() and not finite(torch, parameter.detach()):
            found["not_finite"].append(name)
    return found


# ---------------------------------------------------------------- the process


def prepare(threads: int) -> dict[str, str]:
    """Imports the libraries, which takes seconds and may fail, before any repository is judged."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    gc.freeze()  # what the libraries hold stays: collecting it with every model takes longer than a small model
    return {"transformers": transformers.__version__, "torch": torch.__version__}


def answers(request: Request) -> Iterator[dict[str, Any]]:
    try:
        yield {"libraries": prepare(request["threads"])}
    except BaseException as error:  # noqa: BLE001 - a broken installation raises what it likes
        yield {"unusable": told(error)[:LONGEST]}
        return
    for repository in request["repositories"]:
        yield Check(repository).run()
        gc.collect()  # a model is a circle of references: before the next one needs its memory


def volunteer() -> None:
    """Ends with repokit, however that ends; and where memory runs out, this process does and no other.

    Linux: PR_SET_PDEATHSIG, prctl(2), and proc_pid_oom_score_adj(5). Elsewhere nothing of it.
    """
    with contextlib.suppress(OSError, AttributeError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    channel = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints is no answer
    volunteer()
    for answer in answers(json.load(sys.stdin.buffer)):
        channel.write(json.dumps(answer) + "\n")
        channel.flush()
