"""Bytes to tensor tables and documents, and back.

tensors        what a tensor is on disk: dtype, shape, byte range
safetensors    strict header reader, deterministic header writer
torch_file     checkpoints of torch.save as tensor tables, without torch: torch_zip, torch_legacy (its two formats),
               torch_archive (zip), torch_containers (where the model is in it), torch_tensors (strides and storages)
inert_pickle   pickles read without running them: pickle_machine, pickle_opcodes, pickle_scalars (how), pickle_values
               (what comes out), pickle_globals (what the names in it can do), pickle_dtypes (numpy's, if forged)
gguf           strict header reader; ggml_types: its tensor types
dcp            folders of torch.distributed.checkpoint; dcp_chunks: where in a file the elements of a part begin,
               dcp_model: which tensors are the model's, boxes: whether parts are the whole
zero           the files of a DeepSpeed ZeRO checkpoint; zero_partitions: which rank has what of a parameter
paths          which relative paths may be followed
leaks          what looks like a secret, or like a path of somebody's machine
urls           addresses of files elsewhere, and what is secret in them
strict_json    JSON without the leniency of `json.loads`; places found on demand
json_edit      changes values of a JSON text and nothing else
front_matter   the YAML block of a model card, and YAML read strictly
front_matter_edit    changes values of that block and nothing else; front_matter_values: where they stand
sentencepiece  whether a file is a SentencePiece model, and how many pieces it has
byte_vocabularies    tiktoken's lines and tekken.json: tokens that are bytes, and their ids
onnx           which other files hold the tensors of an ONNX model
signature      what a file is by its first bytes, for messages that name the culprit

Nothing here opens a file: bytes come in through a `read(offset, length)` callable, so that a directory, a plan and a
repository in memory are read by the same code.
"""
