"""What users of a repository would see of it: transformers, tokenizers, peft and the template engine, in this process.

`observe` gives one short text for each thing that they would see; two repositories with the same texts are the same to
them. Whatever a library raises is such a text too. What depends on the same files is observed once (Observer.seen).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from subjects import Subject

Seen = dict[str, str]

PROBES = (
    "The quick brown fox jumps over 13 lazy dogs.",
    " leading space, trailing space ",
    "line one\nline two\n\n\ttabbed",
    "Grüße aus 東京 🙂 naïve café",
    "a  b   c    d",
    "<s>hello</s> <|im_start|>user\nhi<|im_end|> <unk> [CLS] [MASK] [SEP] <pad> <|endoftext|> <image>",
    "",
    "UPPER lower MiXeD don't can't we'll 1234567 3.14",
)
CONVERSATIONS = (
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"},
        {"role": "user", "content": "Three"},
    ],
)
GENERATION = (
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id"),
    *("forced_eos_token_id", "max_length", "max_new_tokens", "min_length", "do_sample", "num_beams"),
    *("suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids"),
)
ADAPTER_FIELDS = ("base_model_name_or_path", "revision")  # which model peft loads
SECONDS = 30  # for one observation; far above what a tiny model takes

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "chat_template.jinja"),
)
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "chat_template.json")


class Observer:
    """Observes the mutants of one repository.

    Attributes:
        subject: The unmutated repository.
        kept: Digest of the files of one group to what was seen of them. May be filled from an earlier run.
    """

    def __init__(self, subject: Subject, kept: dict[str, Seen] | None = None) -> None:
        self.subject = subject
        self.kept = {} if kept is None else kept
        self._inputs: dict[str, Any] | None = None

    def seen(self, files: Mapping[str, bytes]) -> Seen:
        """All that is seen of a repository."""
        found: Seen = {}
        for group, part in _parts(self.subject, files).items():
            key = f"{group} {digest(part)}"
            if key not in self.kept:
                self.kept[key] = {f"{group}: {what}": text for what, text in self._look(group, part).items()}
            found |= self.kept[key]
        return found

    def differs(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """What is seen otherwise than of the unmutated repository, in words."""
        before, after = self.seen(self.subject.files), self.seen(files)
        names = sorted(before.keys() | after.keys())
        return tuple(f"{name} {after.get(name, 'gone')[:100]}" for name in names if before.get(name) != after.get(name))

    def _look(self, group: str, files: Mapping[str, bytes]) -> Seen:
        with tempfile.TemporaryDirectory(dir=_memory()) as folder, _quiet(), _limited():
            directory = Path(folder)
            write(files, directory)
            looks: dict[str, Callable[[Path], Seen]] = {
                "model": self._model,
                "tokenizer": tokenizer,
                "processor": processor,
                "adapter": self._adapter,
                "quantization": lambda folder: quantization(folder, self.subject.name.partition(":")[2]),
                "gguf": gguf,
            }
            try:
                return looks[group](directory)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever is raised is what is observed, a panic of Rust too
                return {"error": f"{type(error).__name__}"}

    def _model(self, directory: Path) -> Seen:
        model, info = load(directory)
        return {
            **keys_of(info),
            "generation": generation_of(model),
            "logits": logits(model, self._prepared()),
        }

    def _prepared(self) -> dict[str, Any]:
        """Inputs that suit the unmutated model; the same for all its mutants."""
        if self._inputs is None:
            with tempfile.TemporaryDirectory(dir=_memory()) as folder:
                directory = Path(folder)
                files = {
                    **self.subject.files,
                    **_loadable(self.subject, self.subject.files),
                    **(self.subject.base or {}),
                }
                write(files, directory)
                model, _info = load(directory)
                self._inputs = inputs_for(model, directory)
        return self._inputs

    def _adapter(self, directory: Path) -> Seen:
        import peft

        base = directory / "base"
        config = peft.PeftConfig.from_pretrained(str(directory))
        model, _info = load(base, {"SEQ_CLS": "AutoModelForSequenceClassification"}.get(str(config.task_type)))
        adapted = peft.PeftModel.from_pretrained(model, str(directory))
        again = adapted.load_adapter(str(directory), adapter_name="again")
        seen = logits(adapted, self._prepared())
        missing = sorted(name for name in again.missing_keys if "again" in name or "modules_to_save" in name)
        chosen = {field: str(getattr(config, field, None)) for field in ADAPTER_FIELDS}
        return {
            "config": str(chosen),
            "missing": str(missing),
            "unexpected": str(again.unexpected_keys),
            "logits": seen,
        }


def _parts(subject: Subject, files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """The groups of files that one library reads together."""
    config = chosen(files, "config.json")
    tokens = chosen(files, *TOKENIZER_FILES)
    parts: dict[str, dict[str, bytes]] = {}
    if any(path.endswith(".gguf") for path in subject.files):
        return {"gguf": {path: content for path, content in files.items() if path.endswith(".gguf")}}
    if subject.base is None:
        parts["model"] = {**weights(files), **config, **chosen(files, "generation_config.json")}
    else:
        base = {f"base/{path}": content for path, content in subject.base.items()}
        parts["adapter"] = {**base, **adapter_files(files)}
    if subject.twin is not None:
        parts["quantization"] = {**config, **weights(files)}
        parts["model"] = {**_loadable(subject, files), **chosen(files, "generation_config.json")}
    if any(name in subject.files for name in TOKENIZER_FILES):
        parts["tokenizer"] = {**tokens, **config}
    if any(name in subject.files for name in PROCESSOR_FILES):
        parts["processor"] = {**tokens, **config, **chosen(files, *PROCESSOR_FILES)}
    return parts


def chosen(files: Mapping[str, bytes], *names: str) -> dict[str, bytes]:
    """Those of the files that have these names."""
    return {name: files[name] for name in names if name in files}


def weights(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Weight files and their index."""
    return {path: content for path, content in files.items() if ".safetensors" in path}


def adapter_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What peft reads."""
    return {path: content for path, content in files.items() if path.startswith("adapter_")}


def _loadable(subject: Subject, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The twin of a quantization that nothing here loads: config.json without it, and plain weights."""
    if subject.twin is None:
        return {}
    plain = chosen(files, "config.json")
    try:
        config = json.loads(files["config.json"])
        plain["config.json"] = json.dumps(
            {key: value for key, value in config.items() if key not in {"quantization_config", "quantization"}}
        ).encode()
    except (KeyError, ValueError, AttributeError):
        pass
    return {**weights(subject.twin), **plain}


# ---------------------------------------------------------------- models


def load(directory: Path, auto_class: str | None = None) -> tuple[Any, dict[str, Any]]:
    """The model, offline, by the class that config.json names, and what the loader said of its keys."""
    import torch
    import transformers

    torch.manual_seed(0)
    name = auto_class or json.loads((directory / "config.json").read_bytes())["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(
        directory, output_loading_info=True, dtype="auto", local_files_only=True
    )
    return model.eval(), info


def keys_of(info: Mapping[str, Any]) -> Seen:
    """What the loader said of the keys."""
    return {
        "missing": str(sorted(info["missing_keys"])),
        "unexpected": str(sorted(info["unexpected_keys"])),
        "mismatched": str(sorted(str(item) for item in info["mismatched_keys"])),
    }


def generation_of(model: Any) -> str:
    """With what `generate` would start and end."""
    config = getattr(model, "generation_config", None)
    if config is None:
        return ""
    values = {key: getattr(config, key, None) for key in GENERATION}
    ends = values["eos_token_id"]
    if values["pad_token_id"] is None:  # `generate` pads with the first end of text
        values["pad_token_id"] = ends[0] if isinstance(ends, list) and ends else ends
    if isinstance(ends, list):
        values["eos_token_id"] = sorted(set(ends)) if len(set(ends)) > 1 else next(iter(ends), None)
    return str(values)


def inputs_for(model: Any, directory: Path) -> dict[str, Any]:
    """Tokens, an image, a sound: what the forward of a model takes."""
    import torch

    torch.manual_seed(1)
    config = model.config
    text = config.get_text_config()
    names = set(model.forward.__code__.co_varnames[: model.forward.__code__.co_argcount]) | {model.main_input_name}
    has_processor = any((directory / name).exists() for name in PROCESSOR_FILES)
    if has_processor and (given := processed(directory)) is not None:
        return given
    prepared: dict[str, Any] = {}
    if model.main_input_name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        prepared["pixel_values"] = torch.randn(1, 3, vision.image_size, vision.image_size)
    if model.main_input_name == "input_features":
        prepared["input_features"] = torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)
    if model.main_input_name == "input_values":
        prepared["input_values"] = torch.randn(1, 4000)
    if "input_ids" in names or model.main_input_name == "input_ids":
        prepared["input_ids"] = ids(text, 7)
    if getattr(config, "is_encoder_decoder", False):
        prepared["decoder_input_ids"] = ids(text, 8)
    return prepared


def ids(text: Any, seed: int) -> Any:
    """Tokens that fill most of the positions, so that windows and tables of positions are used."""
    import torch

    longest = getattr(text, "max_position_embeddings", None) or getattr(text, "max_target_positions", None) or 80
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, text.vocab_size - 8, (1, min(longest - 4, 80)), generator=generator)


def processed(directory: Path) -> dict[str, Any] | None:
    """An image and a text as the repository's processor gives them; None where it takes no images beside text."""
    import transformers

    try:
        whole = transformers.AutoProcessor.from_pretrained(directory, local_files_only=True)
        token = getattr(whole, "image_token", None) or getattr(whole, "boi_token", None) or ""
        return dict(whole(text=f"{token} a cat", images=image(), return_tensors="pt"))
    except Exception:  # noqa: BLE001 - a processor of sounds, say: `inputs_for` makes the input itself
        return None


def image() -> Any:
    """A small picture in which no two places are equal."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(np.random.default_rng(3).integers(0, 255, (40, 48, 3), dtype=np.uint8))


def logits(model: Any, prepared: Mapping[str, Any]) -> str:
    """A digest of all that the forward gives."""
    import torch

    with torch.no_grad():
        given = model(**{key: _as_input(value, model) for key, value in prepared.items()})
    return digest_of_tensors(given)


def _as_input(value: Any, model: Any) -> Any:
    return value.to(model.dtype) if value.is_floating_point() else value


def digest_of_tensors(value: Any) -> str:
    """Of tensors in any nesting; caches are left out."""
    import torch

    found = hashlib.sha256()
    for tensor in _tensors(value):
        found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


# ---------------------------------------------------------------- tokenizers, processors, the rest


def tokenizer(directory: Path) -> Seen:
    """Ids and texts."""
    import transformers

    return of_tokenizer(transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True))


def of_tokenizer(loaded: Any) -> Seen:
    """What a tokenizer gives."""
    long_text = "the lazy dog and a fox " * 200
    return {
        "ids": str([loaded(probe)["input_ids"] for probe in PROBES]),
        "plain ids": str([loaded(probe, add_special_tokens=False)["input_ids"] for probe in PROBES]),
        "pairs": guarded(lambda: str(dict(loaded(PROBES[0], PROBES[1])))),
        "padded": guarded(lambda: str(dict(loaded(list(PROBES[:3]), padding=True)))),
        "cut": guarded(lambda: str(loaded(long_text, truncation=True)["input_ids"][-600:])),
        "texts": guarded(lambda: str([_decoded(loaded, probe) for probe in PROBES])),
        "special": str(
            [getattr(loaded, f"{role}_token_id") for role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask")]
        ),
        "chats": str([rendered(loaded, index) for index in range(len(CONVERSATIONS))]),
    }


def _decoded(loaded: Any, probe: str) -> tuple[str, str]:
    encoded = loaded(probe)["input_ids"]
    return loaded.decode(encoded), loaded.decode(encoded, skip_special_tokens=True)


def rendered(loaded: Any, index: int) -> list[str]:
    """One conversation, without and with the opening of an answer."""
    return [
        guarded(
            lambda add=add: loaded.apply_chat_template(CONVERSATIONS[index], tokenize=False, add_generation_prompt=add)
        )
        for add in (False, True)
    ]


def processor(directory: Path) -> Seen:
    """What a picture or a sound becomes."""
    import numpy as np
    import transformers

    loaded = transformers.AutoProcessor.from_pretrained(directory, local_files_only=True)
    sound = np.random.default_rng(4).normal(size=8000).astype(np.float32)
    token = getattr(loaded, "image_token", None) or getattr(loaded, "boi_token", None) or ""
    tries: tuple[Callable[[], Any], ...] = (
        lambda: loaded(text=f"{token} a cat", images=image(), return_tensors="pt"),
        lambda: loaded(images=image(), return_tensors="pt"),
        lambda: loaded(sound, sampling_rate=16000, return_tensors="pt"),
        lambda: loaded([sound, sound[:4000]], sampling_rate=16000, return_tensors="pt", padding=True),
    )
    return {
        f"try {number}": guarded(lambda call=call: digest_of_tensors(dict(call()))) for number, call in enumerate(tries)
    }


# What the loaders of the methods that nothing here loads read of a quantization_config (GPTQModel, AutoAWQ, bitsandbytes
# through transformers, mlx-lm, vLLM's modelopt.py). The rest are notes of the quantizer.
READ = {
    "gptq": (
        "bits",
        "desc_act",
        "group_size",
        "quant_method",
        "sym",
        "checkpoint_format",
        "modules_in_block_to_quantize",
    ),
    "awq": ("bits", "group_size", "zero_point", "version", "quant_method", "modules_to_not_convert"),
    "bitsandbytes": (
        *("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "quant_method"),
        *("bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "llm_int8_skip_modules", "llm_int8_threshold"),
    ),
    "mlx": ("bits", "group_size", "mode"),
    "modelopt": ("quant_algo", "quant_method", "ignore", "exclude_modules", "kv_cache_scheme", "group_size"),
}
PLAIN = {"BF16": "float", "F16": "float", "F32": "float"}  # loaders cast these into the dtype of the model


def _parameters(raw: Any, method: str) -> str:
    """What is read; null is what false and 0 are, and what is of 4 bits alone does not matter to 8."""
    if not isinstance(raw, Mapping):
        return str(raw)
    keys = READ[method]
    if raw.get("load_in_8bit") is True:
        keys = tuple(key for key in keys if not key.startswith("bnb_4bit"))
    return str([(key, str(raw.get(key) or None)) for key in keys])


def quantization(directory: Path, subject: str) -> Seen:
    """Of a quantization that nothing here loads: its parameters, and the tensors by name, dtype and shape."""
    from safetensors import safe_open
    from tensor_mutants import read
    from transformers.quantizers.auto import AutoQuantizationConfig

    config = json.loads((directory / "config.json").read_bytes())
    raw = config.get("quantization_config", config.get("quantization"))
    method = METHODS.get(subject, subject)
    tensors = {}
    for path in sorted(directory.glob("model*.safetensors")):
        with safe_open(path, "np"):
            stored = read(path.read_bytes())[0]
        tensors |= {
            name: (PLAIN.get(one.dtype, one.dtype), () if one.shape == (1,) else one.shape)
            for name, one in stored.items()
        }
    # The class of the method refuses what it cannot read, and fills in its defaults.
    parsed = raw if method in {"mlx", "modelopt"} else AutoQuantizationConfig.from_dict(dict(raw)).to_dict()
    if method == "gptq" and not parsed.get("desc_act"):  # without an order of columns loaders work the groups out
        tensors = {name: one for name, one in tensors.items() if not name.endswith(".g_idx")}
    return {"parameters": _parameters(parsed, method), "tensors": str(sorted(tensors.items()))}


METHODS = {"bnb4": "bitsandbytes", "bnb8": "bitsandbytes"}


def gguf(directory: Path) -> Seen:
    """Of a GGUF file: the model and the tokenizer that transformers makes of it."""
    import torch
    import transformers

    path = next(directory.glob("*.gguf"))
    fill_gguf(path)
    asked = {"gguf_file": path.name, "local_files_only": True}
    model, info = transformers.AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True, **asked)
    loaded = transformers.AutoTokenizer.from_pretrained(directory, **asked)
    given = logits(model.eval(), {"input_ids": torch.arange(1, 20)[None]})
    return {**keys_of(info), "generation": generation_of(model), "logits": given, **of_tokenizer(loaded)}


def fill_gguf(path: Path) -> None:
    """Puts small numbers into the tensors: those of the example are texts, with which nothing runs."""
    import zlib

    import numpy as np
    from gguf import GGUFReader

    for tensor in GGUFReader(path, "r+").tensors:
        if tensor.data.dtype == np.float32:
            random = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            tensor.data[...] = random.normal(0, 0.3, tensor.data.shape)


# ---------------------------------------------------------------- around all of them


def guarded(call: Callable[[], str]) -> str:
    """What a call gives, or the name of what it raises."""
    try:
        return str(call())
    except Exception as error:  # noqa: BLE001 - whatever is raised is what is observed
        return f"raises {type(error).__name__}"


def write(files: Mapping[str, bytes], directory: Path) -> None:
    """Files into a folder."""
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)


def digest(files: Mapping[str, bytes]) -> str:
    """Of names and contents."""
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(f"{path} {len(files[path])} ".encode())
        found.update(files[path])
    return found.hexdigest()[:24]


def digest_of_text(text: str) -> str:
    """Of a text that is too long to keep."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _memory() -> str | None:
    return "/dev/shm" if shutil.os.access("/dev/shm", shutil.os.W_OK) else None  # noqa: S108 - a folder in memory


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _limited() -> Iterator[None]:
    """A reader that hangs is a reader that fails."""

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
