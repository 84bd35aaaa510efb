"""Adapters of every method of PEFT on small bases: what is asked for, by name."""

from __future__ import annotations

from typing import Any

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EVERY = "all-linear"
CAUSAL, SEQ2SEQ, LABELS = "CAUSAL_LM", "SEQ_2_SEQ_LM", "SEQ_CLS"
PROMPT = {"num_virtual_tokens": 4}

# The class of transformers, and its config.
TEXT = {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "hidden_size": 32}
GROUPED = {**TEXT, "num_key_value_heads": 2, "intermediate_size": 88, "head_dim": 8}
BASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "llama biased": ("LlamaForCausalLM", {**GROUPED, "attention_bias": True, "mlp_bias": True}),
    "llama tied": ("LlamaForCausalLM", {**GROUPED, "tie_word_embeddings": True}),
    "llama classifier": ("LlamaForSequenceClassification", {**GROUPED, "pad_token_id": 0, "num_labels": 5}),
    "llama body": ("LlamaModel", GROUPED),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 80, "vocab_size": 100}),
    "bert": ("BertForSequenceClassification", {**TEXT, "intermediate_size": 72, "num_labels": 5}),
    "t5": (
        "T5ForConditionalGeneration",
        {
            "d_model": 32,
            "d_kv": 12,
            "d_ff": 72,
            "num_layers": 2,
            "num_decoder_layers": 3,
            "num_heads": 4,
            "vocab_size": 100,
        },
    ),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "intermediate_size": 40, "num_local_experts": 3}),
    "gpt-oss": ("GptOssForCausalLM", {**GROUPED, "intermediate_size": 40, "num_local_experts": 3}),
    "qwen2.5-vl": (
        "Qwen2_5_VLForConditionalGeneration",
        {
            "text_config": {
                **{key: value for key, value in GROUPED.items() if key != "head_dim"},
                "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
            },
            "vision_config": {
                "depth": 2,
                "hidden_size": 16,
                "intermediate_size": 40,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 4,
                "in_chans": 3,
                "fullatt_block_indexes": [1],
            },
        },
    ),
    "resnet": (
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [16, 16], "depths": [1, 1], "num_labels": 3},
    ),
}

# Base, method, config.
LORA: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"target_modules": EVERY, "use_dora": True}),
    ("llama biased", {"target_modules": ["q_proj"], "bias": "all", "lora_bias": True}),
    ("llama biased", {"target_modules": ["q_proj"], "bias": "lora_only"}),
    (
        "llama",
        {
            "target_modules": ALL,
            "rank_pattern": {"q_proj": 2, r"layers\.1\..*(up|down)_proj": 6, "^model.layers.0.self_attn.k_proj": 3},
        },
    ),
    ("llama", {"target_modules": ALL, "layers_to_transform": [1], "layers_pattern": "layers"}),
    ("llama", {"target_modules": ALL, "exclude_modules": ["0.mlp.up_proj", "k_proj"]}),
    ("llama", {"target_modules": r"^(?!.*down).*layers\.[0-9]+\.(?:self_attn|mlp)\.(?:q_proj|down_proj|up_proj)$"}),
    ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens", "norm"]}),
    ("llama", {"target_modules": ["q_proj", "embed_tokens", "lm_head"], "use_dora": True}),
    ("llama", {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [1, 2], "lm_head": [1]}}),
    ("llama", {"layer_replication": [[0, 2], [1, 2], [0, 1]]}),
    ("llama", {"target_modules": ["q_proj"], "target_parameters": ["mlp.up_proj.weight"]}),
    ("llama tied", {"target_modules": ["q_proj", "embed_tokens", "lm_head"], "ensure_weight_tying": True}),
    ("llama tied", {"target_modules": ["q_proj"], "trainable_token_indices": [1, 2, 3]}),
    ("llama classifier", {"target_modules": EVERY, "task_type": LABELS}),
    ("llama body", {"task_type": "FEATURE_EXTRACTION"}),
    ("gpt2", {}),
    ("gpt2", {"target_modules": EVERY, "use_dora": True, "bias": "all"}),
    ("gpt2", {"target_modules": ["mlp.c_proj", "attn.c_attn", "wte"]}),
    ("bert", {"task_type": LABELS}),
    ("t5", {"task_type": SEQ2SEQ, "target_modules": EVERY}),
    ("t5", {"task_type": SEQ2SEQ, "target_modules": ["q", "shared"]}),
    ("qwen2.5-vl", {"target_modules": ALL}),
    ("qwen2.5-vl", {"target_modules": EVERY, "modules_to_save": ["merger"]}),
    ("mixtral", {"target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}),
    ("mixtral", {"target_modules": ["q_proj", "w1", "w2", "w3", "gate"]}),
    ("gpt-oss", {"target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}),
    (
        "resnet",
        {"target_modules": ["convolution"], "modules_to_save": ["classifier"], "use_dora": True, "task_type": None},
    ),
]
OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    ("ADALORA", "llama", {"total_step": 10, "target_modules": EVERY, "init_r": 6}),
    ("ADAPTION_PROMPT", "gpt2", {"adapter_len": 3, "adapter_layers": 2}),
    ("BEFT", "bert", {"task_type": LABELS}),
    ("BOFT", "llama", {"boft_block_size": 0, "boft_block_num": 4, "target_modules": EVERY}),
    ("C3A", "llama", {"block_size": 8, "block_size_pattern": {"q_proj": 4}, "target_modules": EVERY}),
    ("CARTRIDGE", "llama", {**PROMPT, "num_frozen_tokens": 1}),
    ("CPT", "llama", {"cpt_token_ids": [1, 2], "cpt_mask": [1, 1], "cpt_tokens_type_mask": [1, 1]}),
    ("DEFT", "llama", {"r": 20, "target_modules": EVERY}),
    ("DELORA", "llama", {"r": 2, "target_modules": EVERY, "rank_pattern": {"q_proj": 3}}),
    ("FOURIERFT", "llama", {"n_frequency": 5, "n_frequency_pattern": {"q_proj": 7}, "target_modules": EVERY}),
    ("FROD", "bert", {"task_type": LABELS, "target_modules": ["dense"], "modules_to_save": ["classifier"]}),
    ("GLORA", "llama biased", {"r": 4, "config_A_B": "vector", "config_C": "vector", "config_D_E": "vector"}),
    ("GLORA", "llama biased", {"r": 4, "config_A_B": "constant", "config_C": "lora", "config_D_E": "constant"}),
    ("GRALORA", "llama", {"r": 4, "hybrid_r": 2, "gralora_k": 4}),
    ("HIRA", "llama", {"r": 4, "target_modules": ["q_proj", "embed_tokens"]}),
    ("HRA", "resnet", {"target_modules": ["convolution"], "r": 4, "task_type": None}),
    ("IA3", "llama", {}),
    ("IA3", "gpt2", {}),
    ("IA3", "t5", {"task_type": SEQ2SEQ}),
    ("LILY", "llama", {"r": 4, "num_B": 3, "stride_A": 2, "target_modules": EVERY}),
    ("LN_TUNING", "gpt2", {}),
    ("LOHA", "resnet", {"target_modules": ["convolution"], "r": 3, "use_effective_conv2d": True, "task_type": None}),
    ("LOHA", "llama", {"target_modules": EVERY, "rank_pattern": {"q_proj": 3}}),
    ("LOKR", "llama", {"target_modules": EVERY, "r": 1, "decompose_both": True, "decompose_factor": 8}),
    ("LOKR", "llama", {"target_modules": EVERY, "r": 2, "decompose_factor": 5}),
    ("LOKR", "resnet", {"target_modules": ["convolution"], "r": 1, "use_effective_conv2d": True, "task_type": None}),
    ("MISS", "llama", {"r": 4, "init_weights": "bat", "target_modules": EVERY}),
    ("MISS", "bert", {"r": 4, "task_type": LABELS, "bias": "miss_only"}),
    ("MULTITASK_PROMPT_TUNING", "t5", {**PROMPT, "task_type": SEQ2SEQ}),
    ("OFT", "llama", {"r": 0, "oft_block_size": 12, "target_modules": EVERY}),
    ("OFT", "llama", {"r": 7, "oft_block_size": 0, "target_modules": EVERY, "block_share": True}),
    ("OSF", "llama", {"effective_rank": 0.25, "target_modules": ["q_proj", "down_proj"]}),
    ("PEANUT", "llama", {"r": 4, "depth": 2, "target_modules": EVERY}),
    ("POLY", "llama", {"r": 4, "n_tasks": 3, "n_skills": 2, "n_splits": 4}),
    ("PREFIX_TUNING", "llama", PROMPT),
    ("PREFIX_TUNING", "qwen2.5-vl", PROMPT),
    ("PROMPT_TUNING", "t5", {**PROMPT, "task_type": SEQ2SEQ}),
    ("PSOFT", "llama", {"r": 4, "psoft_orth": False, "psoft_mag_a": False}),
    ("PVERA", "gpt2", {"r": 4, "target_modules": EVERY}),
    ("P_TUNING", "bert", {**PROMPT, "task_type": LABELS}),
    ("RANDLORA", "llama", {"target_modules": EVERY, "r": 5}),
    ("ROAD", "llama", {"group_size": 8, "variant": "road_4", "target_modules": EVERY}),
    ("SHIRA", "llama", {"r": 2, "target_modules": EVERY}),
    ("SUPERTUNING", "llama", {"sparsity": 0.9, "r": 2}),
    ("TINYLORA", "llama", {"r": 2, "u": 6, "weight_tying": 0.3, "target_modules": EVERY}),
    ("TRAINABLE_TOKENS", "llama tied", {"token_indices": [1, 2, 5]}),
    ("UNILORA", "llama", {"r": 2, "theta_d_length": 50, "save_indices": True}),
    ("VBLORA", "llama", {"num_vectors": 16, "vector_length": 8, "r": 4, "topk": 3, "save_only_topk_weights": True}),
    ("VERA", "gpt2", {"r": 4, "target_modules": EVERY}),
    ("WAVEFT", "llama", {"n_frequency": 9, "n_frequency_pattern": {"q_proj": 4}}),
]
# What follows from the values of the base's weights, or from another model.
NOT_WORKED_OUT = frozenset({"ADAMSS", "SHADOW", "XLORA"})
CASES = [*(("LORA", base, config) for base, config in LORA), *OTHERS]
