"""What real configs of a few types give that no default says: without it their models cannot be built.

Only what is needed to build one model; what the values mean for the tensors is found out by changing them.
"""

from __future__ import annotations

from repokit.architectures.deriver.fields import Value

# Composite configs that have no default parts: which to take. By the name of the config class.
REQUIRED_SUBS: dict[str, dict[str, dict[str, Value]]] = {
    "EncoderDecoderConfig": {
        "encoder": {"model_type": "bert"},
        "decoder": {"model_type": "bert", "is_decoder": True, "add_cross_attention": True},
    },
    "VisionEncoderDecoderConfig": {
        "encoder": {"model_type": "vit"},
        "decoder": {"model_type": "gpt2", "add_cross_attention": True},
    },
    "SpeechEncoderDecoderConfig": {
        "encoder": {"model_type": "wav2vec2"},
        "decoder": {"model_type": "bert", "is_decoder": True, "add_cross_attention": True},
    },
    "VisionTextDualEncoderConfig": {
        "vision_config": {"model_type": "clip_vision_model"},
        "text_config": {"model_type": "bert"},
    },
    "RagConfig": {"question_encoder": {"model_type": "dpr"}, "generator": {"model_type": "bart"}},
    "MusicgenConfig": {
        "text_encoder": {"model_type": "t5"},
        "audio_encoder": {"model_type": "encodec"},
        "decoder": {"model_type": "musicgen_decoder"},
    },
    "MusicgenMelodyConfig": {
        "text_encoder": {"model_type": "t5"},
        "audio_encoder": {"model_type": "encodec"},
        "decoder": {"model_type": "musicgen_melody_decoder"},
    },
    "Gemma4AssistantConfig": {
        "text_config": {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    },
}

_DEFAULT_ROPE: dict[str, Value] = {
    f"rope_parameters.{kind}.{key}": value
    for kind in ("full_attention", "sliding_attention")
    for key, value in (("rope_type", "default"), ("rope_theta", 10000.0))
}

# As in the configs of PP-OCRv5_server_det: kernel size, stride, padding.
_RATIOS: dict[str, tuple[Value, Value, Value]] = {
    "vertical_long_to_small_conv": (((7, 1), (1, 1), (3, 0)), ((5, 1), (1, 1), (2, 0)), ((3, 1), (1, 1), (1, 0))),
    "horizontal_small_to_long_conv": (((1, 7), (1, 1), (0, 3)), ((1, 5), (1, 1), (0, 2)), ((1, 3), (1, 1), (0, 1))),
    "symmetric_conv_long": ((7, 1, 3), (5, 1, 2), (3, 1, 1)),
}
_INTRACLASS_BLOCK: dict[str, Value] = {
    "intraclass_block_config.reduce_channel": (1, 1, 0),
    "intraclass_block_config.return_channel": (1, 1, 0),
    **{
        f"intraclass_block_config.{name}_{part}ratio": value
        for name, values in _RATIOS.items()
        for part, value in zip(("long", "mid", "short"), values, strict=True)
    },
}

_INDEXER: dict[str, Value] = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 256,
    "indexer_budget": 64,
    "indexer_compress_ratio": 4,
    "ple_embed_dim": 64,
}

# Dotted key to value, by the name of the config class.
BY_CLASS: dict[str, dict[str, Value]] = {
    "ChameleonConfig": {"vocabulary_map.<image>": 8711},
    "CohereCompassConfig": {f"text_config.{key}": value for key, value in _DEFAULT_ROPE.items()},
    "CohereCompassTextConfig": _DEFAULT_ROPE,
    "DbrxConfig": {"attn_config.rope_theta": 10000.0},
    "DeepseekOcr2Config": {"text_config.mlp_layer_types": ("dense", "sparse", "sparse", "sparse")},
    "DeepseekOcr2TextConfig": {"mlp_layer_types": ("dense", "sparse", "sparse", "sparse")},
    "Dots3NoteConfig": {"text_config.num_hidden_layers": 4, "vision_config.pyramid_num_routed": None},
    "EdgeTamConfig": {"vision_config.backbone_config.num_classes": 2},
    "EdgeTamVisionConfig": {"backbone_config.num_classes": 2},
    "Emu3Config": {"vocabulary_map.<image>": 151851, "vocabulary_map.<|extra_200|>": 151846},
    "BayesianDetectorConfig": {"watermarking_depth": 16},
    "Granite4VisionConfig": {"deepstack_layer_map": ((-3, 0), (-2, 1)), "downsample_rate": "4/8"},
    "Lfm2MoeConfig": {"layer_types": ("conv", "full_attention", "conv", "conv")},
    "PerceptionLMConfig": {
        "vision_config.architecture": "vit_pe_lang_large_patch14_448",
        "vision_config.model_args.embed_dim": 1024,
    },
    "PPOCRV5ServerDetConfig": {**_INTRACLASS_BLOCK, "scale_factor_list": (1, 2, 4, 8), "kernel_list": (3, 2, 2)},
    "Qwen4ExpConfig": {f"text_config.{key}": value for key, value in _INDEXER.items()},
    "Qwen4ExpTextConfig": _INDEXER,
    "PPOCRV6MediumDetConfig": {**_INTRACLASS_BLOCK, "scale_factor_list": (1, 2, 4, 8), "kernel_list": (3, 2, 2)},
    "ViltConfig": {"num_images": 2, "modality_type_vocab_size": 3},
}

# What stands for a key of this name that is None, zero or missing.
BY_NAME: dict[str, Value] = {
    "head_dim": 64,
    "num_key_value_heads": 4,
    "prediction_length": 8,
    "context_length": 16,
    "vocab_size": 96,
    "image_size": 32,
    "patch_size": 4,
    "is_decoder": True,
    "out_indices": (1, 2, 3, 4),
    "decoder_hidden_size": 64,
    "decoder_depth": 2,
    "decoder_num_heads": 4,
    "num_images": 2,
    "modality_type_vocab_size": 3,
    "rope_theta": 10000.0,
    "dropout_rate": 0.0,
    "logit_scale_init_value": 2.5,
    "backbone": "resnet18",
    "pad_token_id": 0,
}

# What config classes make of a list in two spellings, a string with a letter per layer, or nothing: three sources of
# one value are more than is searched for. Rules of the member format, verified like those that are found.
_LAYERS = "hybrid_override_pattern if layers_block_type is None else layers_block_type"
RULES: dict[str, dict[str, dict[str, object]]] = {
    "NemotronHConfig": {
        "layers_block_type": {
            "given": False,
            "len": f"4 if layers_block_type is None and hybrid_override_pattern is None else len({_LAYERS})",
            "elem": "(('linear_attention' if i==0 else 'moe' if i==1 else 'full_attention' if i==2 else 'mlp')"
            " if layers_block_type is None and hybrid_override_pattern is None"
            f" else 'linear_attention' if ({_LAYERS})[i] in ('M','mamba')"
            f" else 'moe' if ({_LAYERS})[i]=='E'"
            f" else 'full_attention' if ({_LAYERS})[i] in ('*','attention')"
            f" else 'mlp' if ({_LAYERS})[i]=='-'"
            f" else ({_LAYERS})[i])",
        }
    }
}
