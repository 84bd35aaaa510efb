"""Vision, audio, and text with either: models with the processors that prepare their inputs."""

from __future__ import annotations

import json
from functools import partial
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from tiny_models.case import Case, table
from tiny_models.config import TOWER, VISION_TOWER, tiny_config
from tiny_models.tokenizer import CHATML, add_special, byte_level, roberta, sentencepiece_bpe, unigram

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PretrainedConfig, PreTrainedTokenizerFast

IMAGE = {"height": 32, "width": 32}
CLIP_IMAGE = {"size": {"shortest_edge": 32}, "crop_size": IMAGE}


def _vit(directory: Path) -> None:
    import transformers

    transformers.ViTForImageClassification(tiny_config("vit")).save_pretrained(directory)
    transformers.ViTImageProcessor(size=IMAGE).save_pretrained(directory)


def _dinov2(directory: Path) -> None:
    import transformers

    transformers.Dinov2Model(tiny_config("dinov2")).save_pretrained(directory)
    transformers.BitImageProcessor(size=IMAGE).save_pretrained(directory)


def _swin(directory: Path) -> None:
    import transformers

    config = transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=2
    )
    transformers.SwinForImageClassification(config).save_pretrained(directory)
    transformers.ViTImageProcessor(size=IMAGE).save_pretrained(directory)


def _clip(directory: Path) -> None:
    import transformers

    tokenizer = roberta()
    text = TOWER | {
        "vocab_size": len(tokenizer), "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 2,
    }  # fmt: skip
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION_TOWER, projection_dim=16)
    transformers.CLIPModel(config).save_pretrained(directory)
    image_processor = transformers.CLIPImageProcessor(**CLIP_IMAGE)
    transformers.CLIPProcessor(image_processor=image_processor, tokenizer=tokenizer).save_pretrained(directory)


def _siglip(directory: Path) -> None:
    import transformers

    tokenizer = unigram()
    text = TOWER | {"vocab_size": len(tokenizer), "max_position_embeddings": 64}
    config = transformers.SiglipConfig(text_config=text, vision_config=VISION_TOWER)
    transformers.SiglipModel(config).save_pretrained(directory)
    image_processor = transformers.SiglipImageProcessor(size=IMAGE)
    transformers.SiglipProcessor(image_processor=image_processor, tokenizer=tokenizer).save_pretrained(directory)


def _llava(directory: Path) -> None:
    import transformers

    tokenizer = byte_level()
    config = transformers.LlavaConfig(
        text_config=tiny_config("llama", vocab_size=len(tokenizer)),
        vision_config=transformers.CLIPVisionConfig(**VISION_TOWER),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=16,
    )
    transformers.LlavaForConditionalGeneration(config).save_pretrained(directory)
    transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(**CLIP_IMAGE),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        chat_template=CHATML,
    ).save_pretrained(directory)


QWEN_TEXT = TOWER | {
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
}
QWEN_VISION = {
    "depth": 2, "embed_dim": 32, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "patch_size": 4,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 32, "fullatt_block_indexes": [1],
    "window_size": 16, "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
}  # fmt: skip


def _qwen_vl(directory: Path, *, model_type: str, architecture: str) -> None:
    """Without the video processor, which needs torchvision: the image processor and the tokenizer stand alone."""
    import transformers
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokenizer = byte_level()
    config = _qwen_vl_config(model_type, tokenizer)
    getattr(transformers, architecture)(config).save_pretrained(directory)
    Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, min_pixels=64, max_pixels=4096).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _qwen_vl_config(model_type: str, tokenizer: PreTrainedTokenizerFast) -> PretrainedConfig:
    from transformers import CONFIG_MAPPING

    known = CONFIG_MAPPING[model_type]().vision_config
    token_id = tokenizer.convert_tokens_to_ids
    return CONFIG_MAPPING[model_type](
        text_config=QWEN_TEXT | {"vocab_size": len(tokenizer)},
        vision_config={name: value for name, value in QWEN_VISION.items() if hasattr(known, name)},
        image_token_id=token_id("<image>"),
        video_token_id=token_id("<video>"),
        vision_start_token_id=token_id("<|im_start|>"),
        vision_end_token_id=token_id("<|im_end|>"),
    )


def _paligemma(directory: Path) -> None:
    import transformers

    tokenizer = sentencepiece_bpe(chat_template=None)
    add_special(tokenizer, "<image>")
    image_processor = transformers.SiglipImageProcessor(size=IMAGE)
    image_processor.image_seq_length = 16
    # Adds 1152 tokens of its own, so the embeddings are sized after it.
    processor = transformers.PaliGemmaProcessor(image_processor=image_processor, tokenizer=tokenizer)
    config = transformers.PaliGemmaConfig(
        text_config=tiny_config("gemma", vocab_size=len(tokenizer)),
        vision_config=transformers.SiglipVisionConfig(**VISION_TOWER),
        vocab_size=len(tokenizer),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    transformers.PaliGemmaForConditionalGeneration(config).save_pretrained(directory)
    processor.save_pretrained(directory)


GEMMA3_TOKENS = {"image": "<image_soft_token>", "boi": "<start_of_image>", "eoi": "<end_of_image>"}


def _gemma3(directory: Path) -> None:
    import transformers

    tokenizer = sentencepiece_bpe()
    add_special(tokenizer, *GEMMA3_TOKENS.values())
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in GEMMA3_TOKENS.items()}
    # The processor asks for them by attribute: a loaded tokenizer has those that its config names.
    tokenizer._set_model_specific_special_tokens({f"{name}_token": token for name, token in GEMMA3_TOKENS.items()})
    config = transformers.Gemma3Config(
        text_config=tiny_config("gemma3_text", vocab_size=len(tokenizer)),
        vision_config=transformers.SiglipVisionConfig(**VISION_TOWER),
        mm_tokens_per_image=4,
        **{f"{name}_token_index": token_id for name, token_id in ids.items()},
    )
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(directory)
    image_processor = transformers.Gemma3ImageProcessor(size=IMAGE)
    transformers.Gemma3Processor(
        image_processor=image_processor, tokenizer=tokenizer, image_seq_length=4, chat_template=CHATML
    ).save_pretrained(directory)


def _idefics3(directory: Path) -> None:
    import transformers

    tokenizer = byte_level()
    add_special(tokenizer, "<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    config = transformers.Idefics3Config(
        text_config=tiny_config("llama", vocab_size=len(tokenizer)),
        vision_config=VISION_TOWER,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    transformers.Idefics3ForConditionalGeneration(config).save_pretrained(directory)
    image_processor = transformers.Idefics3ImageProcessor(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    transformers.Idefics3Processor(
        image_processor=image_processor, tokenizer=tokenizer, image_seq_len=4, chat_template=CHATML
    ).save_pretrained(directory)


def _whisper(directory: Path) -> None:
    import transformers

    tokenizer = roberta()
    special_ids: dict[str, Any] = {
        "decoder_start_token_id": 0, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
        "suppress_tokens": None, "begin_suppress_tokens": None,
    }  # fmt: skip
    config = tiny_config("whisper", vocab_size=len(tokenizer), max_source_positions=100, **special_ids)
    transformers.WhisperForConditionalGeneration(config).save_pretrained(directory)
    transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=2).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _wav2vec2(directory: Path) -> None:
    """The one slow tokenizer here: a vocab.json and no tokenizer.json."""
    import transformers

    vocabulary = directory / "vocab.json"
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "|", *ascii_lowercase]
    vocabulary.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    config = transformers.Wav2Vec2Config(
        vocab_size=len(tokens), pad_token_id=0, **TOWER,
        conv_dim=[16, 16], conv_stride=[5, 2], conv_kernel=[10, 3],
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    transformers.Wav2Vec2ForCTC(config).save_pretrained(directory)
    transformers.Wav2Vec2Processor(
        feature_extractor=transformers.Wav2Vec2FeatureExtractor(),
        tokenizer=transformers.Wav2Vec2CTCTokenizer(str(vocabulary)),
    ).save_pretrained(directory)


_QWEN_VL = {
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}

CASES = table(
    Case("vit", "vision", _vit),
    Case("dinov2", "vision", _dinov2),
    Case("swin", "vision", _swin),
    Case("clip", "multimodal", _clip),
    Case("siglip", "multimodal", _siglip),
    Case("llava", "vlm", _llava),
    *(
        Case(name, "vlm", partial(_qwen_vl, model_type=name, architecture=architecture))
        for name, architecture in _QWEN_VL.items()
    ),
    Case("paligemma", "vlm", _paligemma),
    Case("gemma3", "vlm", _gemma3),
    Case("idefics3", "vlm", _idefics3),
    Case("whisper", "audio", _whisper),
    Case("wav2vec2", "audio", _wav2vec2),
)
