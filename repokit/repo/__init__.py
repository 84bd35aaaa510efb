"""One read-only view of a repository, wherever it lies: in memory, in a plan, in a directory.

source       the seam: list the files, read a range
memory       a Source out of a mapping, for the examples of rules
directory    a Source out of a folder
document     a parsed JSON object with typed accessors
repository   the view: lazy, cached, lists once, reads once, parses once

Facets, which need more than one value or file:

config       config.json with the sub-configs of composed models
weights      which files a loader reads, which tensors they hold; weight_index, tensor_names: its parts
adapter      the factors of an adapter, in pairs
tokenizer    which ids its tokens really get; token_ids, special_tokens: its parts
tokenizer_trial    what the tokenizers library itself says, asked in the worker
chat_template      every place in which a template can live; stopping: which ids end an answer
processor    settings for images, audio and video
card         README.md: front matter and body
remote_code  which files `auto_map` needs, found by parsing

training_state     what trainers leave beside the weights
lookalikes, patterns    characters that look like others; regular expressions that a tokenizer would choke on
worker       the one limited child process in which templates render and tokenizers run: worker_process starts it,
             worker_child is its program, worker_templates the part for templates
"""
