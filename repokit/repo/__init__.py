"""One read-only view of a repository, wherever it lies: in memory, in a plan, in a directory, on the Hub.

source       the seam: list the files, read a range
memory       a Source out of a mapping, for the examples of rules
directory    a Source out of a folder
remote_directory   a Source over the files behind an address, s3://bucket/...; remote_files: fsspec, and its errors
hub          a Source over a revision on the Hub, without its weights; hub_cache: what was read, for the next time
overlay      a Source over another: the repository as it will be once it is edited; rebuilt_index: an index anew
document     a parsed JSON object with typed accessors
repository   the view: lazy, cached, lists once, reads once, parses once

Facets, which need more than one value or file:

config       config.json with the sub-configs of composed models
weights      which files a loader reads, which tensors they hold; weight_index, tensor_names: its parts
gguf         GGUF files: which are one model, what each is for, its tokens and templates
onnx         ONNX models, and the files that hold their tensors
pickles      which files are pickles, what they name, which tensors they hold
quantization which weights are packed, by config and by tensors; quantized_parts, quantized_shapes: what each method
             asks for
adapter      the factors of an adapter, in pairs; adapter_kinds: the names and shapes of the other methods;
             adapter_names: what the names of tensors tell
weight_values      which values are no numbers, zero or not as they were built; values: the bits; value_stream: threads
tokenizer    which ids its tokens really get; token_ids, special_tokens: its parts; vocabulary_table, tokenizer_parts:
             what a vocabulary was made by, and the steps around it
tokenizer_trial    what the tokenizers library itself says, asked in the worker
chat_template      every place in which a template can live; stopping: which ids end an answer
template_turns     what a template makes of conversations whose every word is known
processor    settings for images, audio and video; processor_classes: what each class has by itself
card         README.md: front matter and body
remote_code  which files `auto_map` needs, found by parsing
archives     .npz, .keras and .zip by their directories, without unpacking

identity     what is known of a model beside its files: its name, its family, where it is published
compare      two repositories side by side; compared_tensors: their weights
inspection   what a repository is, at a glance; stored_weights: its tensors in numbers
training_state     what trainers leave beside the weights
lookalikes, patterns    characters that look like others; regular expressions that a tokenizer would choke on
worker       the one limited child process in which templates render and tokenizers run: worker_process starts it,
             worker_child is its program, worker_templates the part for templates
"""
