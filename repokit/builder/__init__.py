"""From a recipe and a checkpoint to a finished repository.

sources      what lies in a checkpoint, file by file
stored       the weights as they are stored: in safetensors; torch_weights: in pickles; memory_weights: in a program
dcp_weights  those of a torch.distributed checkpoint (FSDP sharded); sliced_weights: torch's slices in safetensors
shard_sets   shards of safetensors whose index is missing or wrong
partitions   weights that are one process's part
foreign      checkpoints of other frameworks, and what converts them
zero_weights those of a DeepSpeed ZeRO checkpoint; zero_layout: its files
arrays       arrays of any library as bytes
layouts      which checkpoints can be built from, and what is said of the others
training_run what a trainer wrote about its run
draft        `init`: what a checkpoint says, as a recipe
naming       wrapper prefixes repaired, renames one-to-one
vocabulary   more or fewer rows for token ids; a head of its own
fitting      which class the tensors are of; prefixes that their architecture does not have
merging      adapters merged into a base model; its parts: lora, lora_places, lora_changes, lora_experts,
             merge_combination, merged_weights, merge_checks
transforms/  cast, gather, interleave, merge, tie: one module each
sharding     which tensor goes into which file
documents    config.json and generation_config.json: what the recipe changes in them
card, generated_cards, license    README.md and LICENSE
weights      which tensors, under which names, in which dtype, in which file, from which bytes
quantized_repository   quantized weights: assembled as their tool wrote them
quantization_files     what the tool wrote of its work, held against each other; llm_compressor: its recipe
quantization_words     the same in the words of a card; quantized_card: that card
quantized_sizes        the parameters that packed weights stand for
quantized_metadata     what shards of theirs say beside their tensors
companions   which tensors belong to one module, and so into one file
adapter_repository     adapters of PEFT: adapter_weights finds them, adapter_naming gives their tensors PEFT's names,
             adapter_document changes adapter_config.json, adapter_checks refuses what is of no use; adapter_card,
             adapter_draft
gguf_repository        GGUF files, copied: gguf_files says which are one model, and what each is; gguf_card, gguf_draft
kinds        what is built: a full model, an adapter, a quantized model, GGUF files
against_base what the result lost or changed against its base
plan         Plan: frozen, ordered, serialisable; with the exact header bytes of every shard
planner      recipe -> Plan
reading      what a plan is made of, as streams of bytes
preview      the planned repository as a Source, so that it is linted before one byte is written
execute      Plan -> a staging directory beside the target
writing      one operation -> one file, by any thread, process or machine
reservation  memory that tensors may take at once
executors    operations carried out by other processes, and by a dask cluster
tasks        a plan in N tasks: which file is whose; task_builds: one of them carried out, and all put into place
journal      which files of an interrupted build are finished
locking      one build of an output at a time
staging      free space, atomic publish
remote_target the same behind an address, where nothing is renamed: uploads, remote_journal
build        all of it in order: lint the plan, write beside the target, lint that, put it into place
"""
