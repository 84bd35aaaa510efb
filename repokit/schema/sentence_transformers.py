"""Files of sentence-transformers: which modules turn the output of a transformer into one vector.

modules.json                        the modules in their order: {idx, name, path, type}
config_sentence_transformers.json   prompts and similarity of the whole model
sentence_bert_config.json           the transformer, module 0, which lies at the top or in the folder of its path
1_Pooling/config.json, ...          each other module, in the folder of its path

Source: sentence-transformers 6.2.0 base/model.py, base/modules/*.py and sentence_transformer/modules/*.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, RootModel

from repokit.schema.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping


class ModuleEntry(Document):
    """One module."""

    idx: int | None = Field(None, description="Its place in the order, from 0; the order in the file counts.")
    name: str = Field(description="Its name, usually its place as text.")
    path: str = Field(description='Folder of its files: "" for the top, `1_Pooling`.')
    type: str = Field(description="Its class: `sentence_transformers.models.Pooling`, or one of this repository.")


class Modules(RootModel[list[ModuleEntry]]):
    """modules.json."""


class ModelSettings(Document):
    """config_sentence_transformers.json."""

    model_type: str | None = Field(None, description="SentenceTransformer, SparseEncoder, CrossEncoder, ...")
    version: dict[str, str] | None = Field(
        None, alias="__version__", description="Versions that wrote it: {sentence_transformers, transformers, pytorch}."
    )
    prompts: dict[str, str] | None = Field(None, description="Name -> text that is put before the input.")
    default_prompt_name: str | None = Field(None, description="Key of `prompts` that is used where none is asked for.")
    similarity_fn_name: str | None = Field(None, description="cosine, dot, euclidean or manhattan.")
    truncate_dim: int | None = Field(None, description="Numbers of a vector that are kept.")
    requirements: Any = Field(None, description="Package -> version specifier; what is no object is ignored.")


class TransformerSettings(Document):
    """sentence_bert_config.json, and its six names of old: sentence_roberta_config.json, ..."""

    max_seq_length: int | None = Field(None, description="Tokens after which an input is cut off.")
    do_lower_case: bool | None = Field(None, description="Whether inputs are put in lower case first.")
    transformer_task: str | None = Field(None, description="feature-extraction, sequence-classification, ...")
    modality_config: dict[str, Any] | None = Field(None, description="Kind of input -> {method, method_output_name}.")
    module_output_name: str | None = Field(None, description="Key of the output.")
    model_args: dict[str, Any] | None = Field(None, description="Arguments of the model's from_pretrained().")
    tokenizer_args: dict[str, Any] | None = Field(None, description="Arguments of the tokenizer's from_pretrained().")
    config_args: dict[str, Any] | None = Field(None, description="Arguments of the config's from_pretrained().")
    processing_kwargs: dict[str, Any] | None = Field(None, description="Arguments of the processor's calls.")
    query_length: int | None = Field(None, description="Tokens of a query (multi-vector models).")
    document_length: int | None = Field(None, description="Tokens of a document (multi-vector models).")
    unpad_inputs: bool | None = Field(None, description="Whether inputs are packed without padding.")


class PoolingSettings(Document):
    """config.json of a Pooling module. Before 5.4 there was one flag per mode, now there is their name."""

    word_embedding_dimension: int | None = Field(None, description="embedding_dimension as older versions spell it.")
    embedding_dimension: int | None = Field(None, description="Width of a token's vector: the model's hidden size.")
    pooling_mode: str | list[str] | None = Field(
        None, description="cls, mean, max, mean_sqrt_len_tokens, weightedmean or lasttoken; several are concatenated."
    )
    pooling_mode_cls_token: bool | None = Field(None, description="The vector of the first token.")
    pooling_mode_mean_tokens: bool | None = Field(None, description="The mean over tokens.")
    pooling_mode_max_tokens: bool | None = Field(None, description="The maximum over tokens.")
    pooling_mode_mean_sqrt_len_tokens: bool | None = Field(None, description="The sum by the root of the length.")
    pooling_mode_weightedmean_tokens: bool | None = Field(None, description="The mean, later tokens weighing more.")
    pooling_mode_lasttoken: bool | None = Field(None, description="The vector of the last token.")
    include_prompt: bool | None = Field(None, description="Whether the prompt's tokens count.")


class DenseSettings(Document):
    """config.json of a Dense module."""

    in_features: int | None = Field(None, description="Width of the input.")
    out_features: int | None = Field(None, description="Width of the output.")
    bias: bool | None = Field(None, description="Whether the layer has a bias.")
    activation_function: str | None = Field(None, description="Class: `torch.nn.modules.activation.Tanh`.")
    module_input_name: str | None = Field(None, description="Key of the input.")
    module_output_name: str | None = Field(None, description="Key of the output.")
    use_residual: bool | None = Field(None, description="Whether the input is added to the output.")


# Class of a module -> the file in its folder without which it cannot be made: some argument has no default. Other
# classes, such as Normalize and Dropout, load from an empty folder, or from none, which is what Git makes of one.
CONFIG_FILES: Final[Mapping[str, str]] = {
    "BoW": "config.json",
    "CNN": "cnn_config.json",
    "Dense": "config.json",
    "LSTM": "lstm_config.json",
    "LayerNorm": "config.json",
    "Pooling": "config.json",
    "Router": "router_config.json",
    "SparseAutoEncoder": "config.json",
    "WeightedLayerPooling": "config.json",
    "WordEmbeddings": "wordembedding_config.json",
    "WordWeights": "config.json",
}

# Classes that load model.safetensors or pytorch_model.bin from their folder, and stop where there is neither.
WEIGHTED: Final = frozenset(
    {
        "CNN",
        "Dense",
        "LSTM",
        "LayerNorm",
        "SparseAutoEncoder",
        "SparseStaticEmbedding",
        "StaticEmbedding",
        "WeightedLayerPooling",
        "WordEmbeddings",
    }
)


def is_of_library(kind: str) -> bool:
    """Whether the `type` of a module is a class of sentence-transformers, not code of the repository."""
    return kind.startswith("sentence_transformers.")
