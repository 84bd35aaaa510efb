"""The first answer of a loaded model: a few tokens, or one forward pass. A part of load_child.py, which imports it.

It is handed the libraries and imports none.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing import TypeAlias

    Inputs = dict[str, Any]
    # What the libraries are and make: the type checker does not follow them.
    Library: TypeAlias = Any
    Loaded: TypeAlias = Any

NEW_TOKENS: Final = 8
PROMPT: Final = "Hello"
CHUNK: Final = 1 << 24  # elements that are looked at once: 64 MB as float32


class Fault(Exception):
    """What is wrong with the repository."""


class Skipped(Exception):
    """Why something was not tried, and does not have to be."""


def told(error: BaseException) -> str:
    """The last line of a traceback; of a message with several lines the one that says something."""
    if "Weights only load failed" in str(error):  # what it goes on to say is how to run the pickle after all
        reason = re.search(
            r"WeightsUnpickler error: ([^\n]+?)(?: was not an allowed global by default|\n|$)", str(error)
        )
        return f"torch refuses the pickle: {reason[1] if reason else 'it holds more than tensors, or is broken'}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = " ".join(lines[:2]) if lines and lines[0].endswith((":", ",")) else "".join(lines[:1])
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def finite(torch: Library, tensor: Loaded) -> bool:
    """Looks at a piece at a time, as float32: there is no isfinite for the 8-bit types."""
    flat = tensor.reshape(-1)
    return all(
        bool(torch.isfinite(flat[start : start + CHUNK].float()).all()) for start in range(0, flat.numel(), CHUNK)
    )


class Trial:
    """Asks a loaded model for a few tokens; one that generates nothing for one forward pass."""

    def __init__(
        self,
        directory: str,
        model: Loaded,
        tokenizer: Loaded,
        processor: Loaded,
        *,
        torch: Library,
        transformers: Library,
    ) -> None:
        self.torch = torch
        self.transformers = transformers
        self.directory = directory
        self.model = model.eval()
        self.processor = processor
        self.tokenizer = tokenizer or getattr(processor, "tokenizer", None)
        self.generates = bool(model.can_generate())
        self.templated = False

    def run(self) -> tuple[str, Loaded]:
        with self.torch.no_grad():
            return (self._generation() if self.generates else self._forward()), None

    # ------------------------------------------------------------ generation

    def _generation(self) -> str:
        self._check_generation_config()
        media = self.model.main_input_name != "input_ids"
        inputs = self._placed(self._media_inputs() if media else self._prompt())
        self._check_ids(inputs)
        answer = self.model.generate(
            **inputs,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            num_beams=1,
            return_dict_in_generate=True,
            output_logits=True,
        )
        for logits in answer.get("logits") or ():
            if not finite(self.torch, logits):
                raise Fault("the logits are not finite: the model answers with NaN or infinity")
        return self._told(answer["sequences"][0].tolist(), inputs)

    def _check_generation_config(self) -> None:
        """`from_pretrained` passes over a file that does not parse."""
        if Path(self.directory, "generation_config.json").is_file():
            self.transformers.GenerationConfig.from_pretrained(self.directory, local_files_only=True)

    def _prompt(self) -> Inputs:
        for renderer in (self.tokenizer, self.processor):
            if template := getattr(renderer, "chat_template", None):
                self.templated = True
                return self._rendered(renderer, template)
        return self._text()

    def _rendered(self, renderer: Loaded, template: Loaded) -> Inputs:
        """Through the chat template, with the content as text, or as the list of parts that some templates expect."""
        asked = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
        if isinstance(template, dict) and "default" not in template:
            asked["chat_template"] = next(iter(template.values()))
        try:
            return dict(renderer.apply_chat_template([{"role": "user", "content": PROMPT}], **asked))
        except Exception as error:
            parts = [{"type": "text", "text": PROMPT}]
            with contextlib.suppress(Exception):
                return dict(renderer.apply_chat_template([{"role": "user", "content": parts}], **asked))
            raise Fault(f"the chat template does not render a question: {told(error)}") from error

    def _text(self) -> Inputs:
        if self.tokenizer is not None:
            inputs = dict(self.tokenizer(PROMPT, return_tensors="pt"))
            if inputs["input_ids"].numel():
                return inputs
        start = self.model.config.get_text_config().bos_token_id
        ids = self.torch.tensor([[start if isinstance(start, int) and start >= 0 else 0]])
        return {"input_ids": ids, "attention_mask": self.torch.ones_like(ids)}

    def _rows(self) -> int | None:
        try:
            weight = getattr(self.model.get_input_embeddings(), "weight", None)
        except NotImplementedError:  # models with two towers have no embedding to speak of
            return None
        return None if weight is None or weight.dim() != 2 else int(weight.shape[0])

    def _check_ids(self, inputs: Inputs) -> None:
        """An id beyond the embedding stops a processor with an IndexError, and a GPU for every process on it."""
        rows = self._rows() if self.model.main_input_name == "input_ids" else None
        largest = int(inputs["input_ids"].max()) if "input_ids" in inputs else 0
        if rows is not None and largest >= rows:
            raise Fault(f"the tokenizer gives the id {largest:,}, and the embedding has {rows:,} rows")

    def _told(self, sequence: list[int], inputs: Inputs) -> str:
        prompt = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
        new = sequence[1:] if self.model.config.is_encoder_decoder else sequence[prompt:]
        if not new:
            raise Fault("the model answers nothing, not even the end of its answer")
        rows = self._rows()
        if rows is not None and not all(0 <= number < rows for number in new):
            raise Fault(f"the model answers with the id {max(new):,}, and the embedding has {rows:,} rows")
        text = self.tokenizer.decode(new, skip_special_tokens=True) if self.tokenizer is not None else ""
        through = " through the chat template" if self.templated else ""
        return f"{text[:60]!r}, {len(new)} token{'s' * (len(new) != 1)}{through}"

    # ------------------------------------------------------------ forward

    def _forward(self) -> str:
        accepted = inspect.signature(self.model.forward).parameters
        inputs = self._text() if "input_ids" in accepted else {}
        if set(accepted) & {"pixel_values", "input_values", "input_features"}:
            inputs |= self._media_inputs()
        if self.model.config.is_encoder_decoder and "decoder_input_ids" in accepted and "input_ids" in inputs:
            inputs["decoder_input_ids"] = inputs["input_ids"][:, :1]
        inputs = self._placed({name: value for name, value in inputs.items() if name in accepted})
        self._check_ids(inputs)
        try:
            output = self.model(**inputs)
        except (TypeError, ValueError) as error:  # a class may want boxes, masks or labels, which we do not make up
            raise Skipped(f"not tried: it takes other inputs: {told(error)}") from error
        for name, value in output.items():
            if self.torch.is_tensor(value) and value.is_floating_point() and not finite(self.torch, value):
                raise Fault(f"{name} is not finite: the model answers with NaN or infinity")
        shapes = [f"{name} {list(value.shape)}" for name, value in output.items() if self.torch.is_tensor(value)]
        return f"finite: {', '.join(shapes[:2])}"

    def _media_inputs(self) -> Inputs:
        """A gray picture or a second of silence, through the repository's own processor."""
        for part in (getattr(self.processor, name, None) for name in ("image_processor", "feature_extractor")):
            if part is not None:
                return self._through(part)
        if self.processor is None or self.processor is self.tokenizer:
            raise Skipped("not tried: there is no processor to make its inputs with")
        return self._through(self.processor)

    def _through(self, part: Loaded) -> Inputs:
        rate = getattr(part, "sampling_rate", None)
        if rate is not None:
            return dict(part([0.0] * rate, sampling_rate=rate, return_tensors="pt"))
        return dict(part(images=self.torch.full((3, 64, 64), 128, dtype=self.torch.uint8), return_tensors="pt"))

    def _placed(self, inputs: Inputs) -> Inputs:
        """On the device of the first layer; pictures and sounds in the dtype of the weights."""
        dtype, device = self.model.dtype, self.model.device
        return {
            name: value.to(device, dtype) if value.is_floating_point() else value.to(device)
            for name, value in inputs.items()
        }
